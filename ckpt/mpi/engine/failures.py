"""Failed ranks and revoked communicators: this rank's knowledge of them, and the operations that they end.

The semantics are those of ULFM (User-Level Failure Mitigation, as in mpi4py 4: Revoke, Shrink, Agree, Ack_failed).

The runtime calls `add` when the job's controller reports that ranks have died. A failed rank stays failed. From then on,
in every communicator that the failed rank is a member of:

    operation                                   outcome
    receive from it, no message of it in        ERR_PROC_FAILED, also if the receive was posted before the failure
        the mailbox
    send to it, synchronous send, large send    ERR_PROC_FAILED; queued messages are dropped
    receive from ANY_SOURCE                     wait and test raise ERR_PROC_FAILED_PENDING, and the request stays
                                                pending, until the failure is acknowledged; a blocking receive raises
                                                ERR_PROC_FAILED. A message in the mailbox is received all the same.
    collective, begun or not                    ERR_PROC_FAILED. After that, the rank passes on nothing, so that no
                                                result is combined from fewer values than all members'.
    agreement                                   goes on without the failed rank (agreement.py)
    one-sided operation on it, begun or not     ERR_PROC_FAILED; its locks are released (ckpt/mpi/rma/)

A blocking call raises the error. A nonblocking call does not raise; the wait or test of its request does.

Revoking a communicator ends all its pending operations with ERR_REVOKED, at every member. Every member that hears of the
revocation for the first time tells all other members. So all members hear of it, even if the rank that revoked dies while
it sends.

A failed operation that was sending from the program's memory is done only when the transport no longer reads that memory.

Every function here needs the engine's lock. Nothing here is shared between ranks; everything is part of the image.

Not here: how failures are detected.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from ckpt.mpi.base import envelope
from ckpt.mpi.base.constants import ANY_SOURCE
from ckpt.mpi.base.errors import (
    ERR_PROC_FAILED,
    ERR_PROC_FAILED_PENDING,
    ERR_REVOKED,
    MpiException,
    PeerFailed,
)
from ckpt.mpi.base.progress import Buffer
from ckpt.mpi.engine.agreement import Agreement, Combine, Outgoing
from ckpt.mpi.engine.operations import Operation, Receive

if TYPE_CHECKING:
    from ckpt.mpi.engine.comm_state import CommShared
    from ckpt.mpi.engine.engine import Engine
    from ckpt.mpi.engine.matching import Context

FREED_KEPT = 256
"""Number of freed communicators whose last agreements are kept, for members that have not received the decision."""


def nobody(value: Any) -> Iterable[int]:
    """The `needs` of an agreement that nobody's death is waited for in."""
    return ()


def raise_if_pending(error: BaseException) -> None:
    """Raise the error of a receive that is withdrawn, if `error` is a pending one: it is none any more."""
    if isinstance(error, MpiException) and error.error_code == ERR_PROC_FAILED_PENDING:
        final = MpiException(ERR_PROC_FAILED, error.detail)
        final.diagnosis = error.diagnosis
        raise final from None


class FailedRanks:
    """One rank's knowledge of failures and revocations.

    `known` is the set of the failed world ranks; `order` lists them in the order of their reports. `diagnoses`: by failed
    rank, the fault by which its host was lost, where it was located."""

    __slots__ = ("agreements", "any_failure", "diagnoses", "engine", "freed", "known", "order", "revoked")

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.known: set[int] = set()
        self.order: list[int] = []
        self.diagnoses: dict[int, dict[str, Any]] = {}
        self.revoked: set[int] = set()
        """Context numbers (`base`) of communicators that were revoked before they existed at this rank."""
        self.agreements: dict[tuple[int, int], Agreement] = {}
        self.freed: list[int] = []
        self.any_failure = False
        """Whether operations may have failed, because a process has failed or a communicator is revoked."""

    # -- failures ----------------------------------------------------------------------------------

    def add(self, ranks: Iterable[int]) -> None:
        """Handle the report that the world ranks `ranks` have failed: end the operations that need them."""
        new = [rank for rank in ranks if rank not in self.known and rank != self.engine.progress.rank]
        if not new:
            return
        self.any_failure = True
        self.known.update(new)
        self.order.extend(new)
        for shared in list(self.engine.shared.values()):
            if self._touches(shared):
                shared.broken = True
                self._break(shared)
        for token, operation in list(self.engine.syncs.items()):
            if operation.dst in self.known:
                del self.engine.syncs[token]
                operation.error = self.failure(operation.dst)
                operation.done = True
        for key, agreement in list(self.agreements.items()):
            for rank in new:
                self._send_agreement(key, agreement.lost(rank))
        self.engine.handlers.on_failed(new)
        self.engine.windows.lost(new)

    def failure(self, rank: int) -> PeerFailed:
        """The error of an operation with a failed world rank."""
        error = PeerFailed(ERR_PROC_FAILED, f"rank {rank} of the job has failed")
        error.diagnosis = self.diagnoses.get(rank)
        return error

    def failed_in(self, shared: CommShared) -> list[int]:
        """Failed members of a communicator (of both groups), as world ranks in the order of their reports."""
        return [rank for rank in self.order if rank in shared.group or rank in shared.peers]

    def register(self, shared: CommShared) -> None:
        """Apply the known failures and revocations to a communicator that is new at this rank."""
        shared.broken = bool(self.known) and self._touches(shared)
        if shared.base in self.revoked:
            self.any_failure = True
            for each in (shared, *(self.engine.shared[part] for part in shared.parts)):
                each.revoked = each.closed = True
                each.routes.clear()

    def forget(self, shared: CommShared) -> None:
        """Forget the agreements of freed communicators, except the FREED_KEPT last ones; `shared` has just been freed."""
        if shared.agreements:
            self.freed.append(shared.base)
            if len(self.freed) > FREED_KEPT:
                oldest = self.freed.pop(0)
                for key in [key for key in self.agreements if key[0] == oldest]:
                    del self.agreements[key]

    def _touches(self, shared: CommShared) -> bool:
        return not self.known.isdisjoint((*shared.group, *shared.peers, *shared.related_ranks))

    def _break(self, shared: CommShared) -> None:
        for key, route in list(shared.routes.items()):
            if route[0] in self.known:
                del shared.routes[key]
        matcher = self.engine.matcher
        for plane in (envelope.PLANE_POINT, envelope.PLANE_INTERNAL, envelope.PLANE_PARTS):
            for receive, src in matcher.posted_with_source(shared.base + plane, shared.peers):
                if src in self.known:
                    matcher.withdraw(receive)
                    receive.error = self.failure(src)
                    receive.done = True
        self._end_collectives(shared, self.collective_error(shared))

    def collective_error(self, shared: CommShared) -> MpiException:
        """The error of collectives of a communicator that is revoked or has a failed member."""
        if shared.revoked:
            return MpiException(ERR_REVOKED, "the communicator is revoked")
        lost = [rank for rank in self.order if rank in (*shared.group, *shared.peers, *shared.related_ranks)]
        return self.failure(lost[0])

    def _end_collectives(self, shared: CommShared, error: MpiException) -> None:
        matcher = self.engine.matcher
        for receive in matcher.posted_in(shared.base + envelope.PLANE_COLLECTIVE):
            matcher.withdraw(receive)
        chains, shared.pending = list(shared.pending.values()), {}
        for chain in chains:
            for schedule in chain:
                schedule.fail(error)

    # -- receives and probes from ANY_SOURCE -------------------------------------------------------

    def check(self, operation: Operation) -> None:
        """Raise ERR_PROC_FAILED_PENDING for a receive from ANY_SOURCE while a failure is not acknowledged."""
        error = self.pending(operation)
        if error is not None:
            raise error

    def pending(self, operation: Operation) -> MpiException | None:
        """The error that `check` raises, or None."""
        if isinstance(operation, Receive) and operation.want_source == ANY_SOURCE and not operation.done:
            shared = self._shared(operation.context)
            if shared is not None:
                return self._unacknowledged_error(shared, ERR_PROC_FAILED_PENDING)
        return None

    def check_probe(self, context: Context, source: int, *, blocking: bool) -> None:
        """Raise for a probe that found no message, if a failed member might have sent it."""
        shared = self._shared(context.number)
        if shared is None:
            return
        if source == ANY_SOURCE:
            error = self._unacknowledged_error(
                shared, ERR_PROC_FAILED if blocking else ERR_PROC_FAILED_PENDING
            )
            if error is not None:
                raise error
        elif shared.peers[source] in self.known:
            raise self.failure(shared.peers[source])

    def _unacknowledged_error(self, shared: CommShared, code: int) -> MpiException | None:
        """The error of a receive from ANY_SOURCE while a failure of a member is not acknowledged; else None."""
        if shared.broken:
            for rank in shared.peers:
                if rank in self.known and rank not in shared.acknowledged:
                    error = MpiException(
                        code, f"rank {rank} of the job has failed; Ack_failed() lets others be heard"
                    )
                    error.where = shared
                    error.diagnosis = self.diagnoses.get(rank)
                    return error
        return None

    def _shared(self, number: int) -> CommShared | None:
        return self.engine.shared.get(number - number % envelope.PLANES)

    # -- revoking ----------------------------------------------------------------------------------

    def revoke(self, base: int) -> None:
        """Revoke a communicator: tell its other members, end its pending operations."""
        shared = self.engine.shared[base]
        if not shared.revoked:
            shared.revoked = shared.closed = self.any_failure = True
            shared.routes.clear()
            self._send_revocation(base, tuple(dict.fromkeys((*shared.group, *shared.peers))))
            self._end_pending(shared)
            self.engine.windows.revoke(base)
            for part in shared.parts:
                self.revoke(part)
            self.engine.tell()

    def on_revoke(self, data: Buffer) -> None:
        """Handle the message of a member that a communicator is revoked."""
        base = envelope.unpack(data)[3]
        if base in self.engine.shared:
            self.revoke(base)
        elif base not in self.revoked:
            self.revoked.add(base)
            self._send_revocation(base, pickle.loads(data))

    def _send_revocation(self, base: int, members: tuple[int, ...]) -> None:
        """Send the revocation to the members. The message lists them, because the communicator may not exist yet at a
        receiver, which has to tell them too."""
        progress = self.engine.progress
        message = envelope.pack(envelope.REVOKE, 0, 0, base) + pickle.dumps(members, 5)
        for world in members:
            if world != progress.rank and world not in self.known:
                progress.send(world, message)

    def _end_pending(self, shared: CommShared) -> None:
        matcher = self.engine.matcher
        error = MpiException(ERR_REVOKED, "the communicator is revoked")
        for plane in (envelope.PLANE_POINT, envelope.PLANE_INTERNAL, envelope.PLANE_PARTS):
            for receive in matcher.posted_in(shared.base + plane):
                matcher.withdraw(receive)
                receive.error = error
                receive.done = True
        for token, operation in list(self.engine.syncs.items()):
            if operation.context - operation.context % envelope.PLANES == shared.base:
                del self.engine.syncs[token]
                operation.error = error
                operation.done = True
        self._end_collectives(shared, error)

    # -- agreeing ----------------------------------------------------------------------------------

    def agree(
        self,
        shared: CommShared,
        contribution: Any,
        combine: Combine,
        finish: Callable[..., None],
        *args: Any,
        needs: Callable[[Any], Iterable[int]] = nobody,
    ) -> Consensus:
        """Take part in the communicator's next agreement. When it is decided, and this process has been told of the death of
        all of `needs(value)`, `poll` of the returned operation calls `finish(consensus, *args)`."""
        number = shared.agreements
        shared.agreements += 1
        key = shared.base, number
        agreement = self._agreement(key)
        shared.undecided.add(number)
        shared.undecided = {n for n in shared.undecided if not self.agreements[shared.base, n].decided}
        low = min(shared.undecided, default=number)
        members = tuple({*shared.group, *shared.peers})
        self._send_agreement(key, agreement.start(members, contribution, combine, low))
        self._forget_decided(shared, agreement)
        return Consensus(agreement, shared, finish, args, needs, self.known)

    def on_agree(self, src: int, data: Buffer) -> None:
        """Handle a message of an agreement from the world rank `src`."""
        if src in self.known:
            return
        _, _, _, base, number = envelope.unpack(data)
        shared = self.engine.shared.get(base)
        if shared is not None and number < shared.forgotten:
            return
        key = base, number
        agreement = self._agreement(key)
        self._send_agreement(key, agreement.receive(src, pickle.loads(data)))
        if shared is not None:
            self._forget_decided(shared, agreement)

    def _agreement(self, key: tuple[int, int]) -> Agreement:
        found = self.agreements.get(key)
        if found is None:
            found = self.agreements[key] = Agreement(self.engine.progress.rank, self.known)
        return found

    def _send_agreement(self, key: tuple[int, int], out: Outgoing) -> None:
        base, number = key
        head = envelope.pack(envelope.AGREE, 0, 0, base, number)
        for dst, message in out:
            self.engine.progress.send(dst, head + pickle.dumps(message, 5))

    def _forget_decided(self, shared: CommShared, agreement: Agreement) -> None:
        """Forget agreements that all members have decided."""
        if agreement.decided:
            while shared.forgotten < agreement.low:
                self.agreements.pop((shared.base, shared.forgotten), None)
                shared.undecided.discard(shared.forgotten)
                shared.forgotten += 1


class Consensus(Operation):
    """The operation of a request that waits for an agreement."""

    __slots__ = ("agreement", "args", "finish", "known", "needs", "shared")

    def __init__(
        self,
        agreement: Agreement,
        shared: CommShared,
        finish: Callable[..., None],
        args: tuple[Any, ...],
        needs: Callable[[Any], Iterable[int]],
        known: set[int],
    ) -> None:
        super().__init__()
        self.agreement = agreement
        self.shared = shared
        self.finish = finish
        self.args = args
        self.needs = needs
        self.known = known

    @property
    def value(self) -> Any:
        """The value that was decided. Valid when the operation is done."""
        return self.agreement.value

    def poll(self) -> bool:
        if not self.done and self.agreement.decided and self.known.issuperset(self.needs(self.value)):
            self.done = True
            self.finish(self, *self.args)
        return self.done

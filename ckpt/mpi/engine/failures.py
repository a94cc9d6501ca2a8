"""Members that have failed, communicators that are revoked: what is known here, and what it ends.

Whoever sees ranks die (the job's controller, through the runtime) calls `lose`, once per rank and for good.
From then on, in every communicator that the rank was a member of:

    operation                                   outcome
    receive from it, nothing of it in the       ERR_PROC_FAILED; also if it was posted before
        mailbox
    send to it, synchronous send, large send    ERR_PROC_FAILED; what had been queued is dropped
    receive from ANY_SOURCE                     ERR_PROC_FAILED_PENDING from wait and test, and the request stays
                                                pending, until the failure is acknowledged; ERR_PROC_FAILED if
                                                blocking. A message that is there is received all the same.
    collective, begun or not                    ERR_PROC_FAILED. Nobody passes on anything after that, so no
                                                value is made of less than everybody's.
    agreement                                   goes on without it (agreement.py)

A blocking call raises; a nonblocking one never does when it is started, its wait or test does.

Revoking ends everything that is pending in a communicator with ERR_REVOKED at every member: who hears of it
first tells all the others, so that it reaches everybody even if the revoker dies while telling.

Memory of the program that a failed operation was sending from is the program's again when the operation is
done; until the transport has let go of it, the operation is not.

The engine's lock is held in all of this. Nothing here is shared between ranks; everything is part of an image.
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
"""Freed communicators whose last agreements are remembered for members that have not heard the outcome."""


class Losses:
    """One rank's knowledge of failures. `known` and `order` hold world ranks, `order` as they were heard of."""

    __slots__ = ("agreements", "engine", "freed", "known", "order", "revoked", "trouble")

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.known: set[int] = set()
        self.order: list[int] = []
        self.revoked: set[int] = set()
        """Contexts of communicators that were revoked before this rank knew of them."""
        self.agreements: dict[tuple[int, int], Agreement] = {}
        self.freed: list[int] = []
        self.trouble = False
        """Whether operations may have failed: a process has, or a communicator is revoked."""

    # -- failures ----------------------------------------------------------------------------------

    def lose(self, ranks: Iterable[int]) -> None:
        """These world ranks have failed."""
        new = [rank for rank in ranks if rank not in self.known and rank != self.engine.progress.rank]
        if not new:
            return
        self.trouble = True
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
                self._tell(key, agreement.lost(rank))

    def failure(self, rank: int) -> PeerFailed:
        """The error of an operation with a failed world rank."""
        return PeerFailed(ERR_PROC_FAILED, f"rank {rank} of the job has failed")

    def failed_in(self, shared: CommShared) -> list[int]:
        """Failed members of a communicator (of both groups), as world ranks in the order they were heard of."""
        return [rank for rank in self.order if rank in shared.group or rank in shared.peers]

    def register(self, shared: CommShared) -> None:
        """A communicator is new here."""
        shared.broken = bool(self.known) and self._touches(shared)
        if shared.base in self.revoked:
            self.trouble = True
            for each in (shared, *(self.engine.shared[part] for part in shared.parts)):
                each.revoked = each.closed = True
                each.routes.clear()

    def forget(self, shared: CommShared) -> None:
        """A communicator is freed."""
        if shared.agreements:
            self.freed.append(shared.base)
            if len(self.freed) > FREED_KEPT:
                oldest = self.freed.pop(0)
                for key in [key for key in self.agreements if key[0] == oldest]:
                    del self.agreements[key]

    def _touches(self, shared: CommShared) -> bool:
        return not self.known.isdisjoint((*shared.group, *shared.peers, *shared.kin))

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
        """Why collectives of this communicator cannot go on: revoked, or a member has failed."""
        if shared.revoked:
            return MpiException(ERR_REVOKED, "the communicator is revoked")
        lost = [rank for rank in self.order if rank in (*shared.group, *shared.peers, *shared.kin)]
        return self.failure(lost[0])

    def _end_collectives(self, shared: CommShared, error: MpiException) -> None:
        matcher = self.engine.matcher
        for receive in matcher.posted_in(shared.base + envelope.PLANE_COLLECTIVE):
            matcher.withdraw(receive)
        chains, shared.pending = list(shared.pending.values()), {}
        for chain in chains:
            for schedule in chain:
                schedule.fail(error)

    # -- what waits --------------------------------------------------------------------------------

    def check(self, operation: Operation) -> None:
        """Raise ERR_PROC_FAILED_PENDING for a receive from anybody that a failed member might have served."""
        error = self.pending(operation)
        if error is not None:
            raise error

    def pending(self, operation: Operation) -> MpiException | None:
        """The same error, or None."""
        if isinstance(operation, Receive) and operation.want_source == ANY_SOURCE and not operation.done:
            shared = self._shared(operation.context)
            if shared is not None:
                return self._unheard(shared, ERR_PROC_FAILED_PENDING)
        return None

    def check_probe(self, context: Context, source: int, *, blocking: bool) -> None:
        """Raise for a probe that found nothing and may never find anything."""
        shared = self._shared(context.number)
        if shared is None:
            return
        if source == ANY_SOURCE:
            error = self._unheard(shared, ERR_PROC_FAILED if blocking else ERR_PROC_FAILED_PENDING)
            if error is not None:
                raise error
        elif shared.peers[source] in self.known:
            raise self.failure(shared.peers[source])

    def _unheard(self, shared: CommShared, code: int) -> MpiException | None:
        """The error of who waits for anybody while a failure is not acknowledged."""
        if shared.broken:
            for rank in shared.peers:
                if rank in self.known and rank not in shared.acknowledged:
                    error = MpiException(
                        code, f"rank {rank} of the job has failed; Ack_failed() lets others be heard"
                    )
                    error.where = shared
                    return error
        return None

    def _shared(self, number: int) -> CommShared | None:
        return self.engine.shared.get(number - number % envelope.PLANES)

    # -- revoking ----------------------------------------------------------------------------------

    def revoke(self, base: int) -> None:
        """A communicator is revoked: tell its other members, end what is pending."""
        shared = self.engine.shared[base]
        if not shared.revoked:
            shared.revoked = shared.closed = self.trouble = True
            shared.routes.clear()
            self._spread(base, tuple(dict.fromkeys((*shared.group, *shared.peers))))
            self._end_pending(shared)
            for part in shared.parts:
                self.revoke(part)

    def on_revoke(self, data: Buffer) -> None:
        """A member says that a communicator is revoked."""
        base = envelope.unpack(data)[3]
        if base in self.engine.shared:
            self.revoke(base)
        elif base not in self.revoked:
            self.revoked.add(base)
            self._spread(base, pickle.loads(data))

    def _spread(self, base: int, members: tuple[int, ...]) -> None:
        """Tell the members; they are named in the message, since a receiver may not know them yet."""
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
        self, shared: CommShared, contribution: Any, combine: Combine, finish: Callable[..., None], *args: Any
    ) -> Consensus:
        """Take part in the communicator's next agreement. `finish(consensus, *args)` is called with the value
        before it is done."""
        number = shared.agreements
        shared.agreements += 1
        key = shared.base, number
        agreement = self._agreement(key)
        shared.undecided.add(number)
        shared.undecided = {n for n in shared.undecided if not self.agreements[shared.base, n].decided}
        low = min(shared.undecided, default=number)
        members = tuple({*shared.group, *shared.peers})
        self._tell(key, agreement.start(members, contribution, combine, low))
        self._tidy(shared, agreement)
        return Consensus(agreement, shared, finish, args)

    def on_agree(self, src: int, data: Buffer) -> None:
        """A message of an agreement."""
        if src in self.known:
            return
        _, _, _, base, number = envelope.unpack(data)
        shared = self.engine.shared.get(base)
        if shared is not None and number < shared.forgotten:
            return
        key = base, number
        agreement = self._agreement(key)
        self._tell(key, agreement.receive(src, pickle.loads(data)))
        if shared is not None:
            self._tidy(shared, agreement)

    def _agreement(self, key: tuple[int, int]) -> Agreement:
        found = self.agreements.get(key)
        if found is None:
            found = self.agreements[key] = Agreement(self.engine.progress.rank, self.known)
        return found

    def _tell(self, key: tuple[int, int], out: Outgoing) -> None:
        base, number = key
        head = envelope.pack(envelope.AGREE, 0, 0, base, number)
        for dst, message in out:
            self.engine.progress.send(dst, head + pickle.dumps(message, 5))

    def _tidy(self, shared: CommShared, agreement: Agreement) -> None:
        """Forget agreements that all members have decided."""
        if agreement.decided:
            while shared.forgotten < agreement.low:
                self.agreements.pop((shared.base, shared.forgotten), None)
                shared.undecided.discard(shared.forgotten)
                shared.forgotten += 1


class Consensus(Operation):
    """An agreement as a request waits for it."""

    __slots__ = ("agreement", "args", "finish", "shared")

    def __init__(
        self, agreement: Agreement, shared: CommShared, finish: Callable[..., None], args: tuple[Any, ...]
    ) -> None:
        super().__init__()
        self.agreement = agreement
        self.shared = shared
        self.finish = finish
        self.args = args

    @property
    def value(self) -> Any:
        """What was agreed on, once it is done."""
        return self.agreement.value

    def poll(self) -> bool:
        if not self.done and self.agreement.decided:
            self.done = True
            self.finish(self, *self.args)
        return self.done

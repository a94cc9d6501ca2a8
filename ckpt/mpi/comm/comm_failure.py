"""The methods of ULFM (User-Level Failure Mitigation, as in mpi4py 4): Get_failed, Ack_failed, Revoke, Agree, Shrink; and
`Agree_failed` and `shrink`, which mpi4py has not.

The effect of failures on operations is in engine/failures.py, the agreement of survivors in engine/agreement.py. Agree,
Agree_failed and Shrink also work on a revoked communicator, and while other operations are under way in it.

A contribution to an agreement has five parts, which are combined as follows:

    flag                  bitwise and of all contributions
    failed                every member that at least one member knows to have failed
    acknowledged          whether all surviving members have acknowledged all failed members; if not, Agree raises
                          ERR_PROC_FAILED, at every member
    proposals             two context numbers of each surviving member; the numbers of the lowest survivor are used for
                          the communicator that Shrink makes. Of `shrink`, and of an intercommunicator's `merge`, also
                          the member's object, pickled
    call                  what the member has called: if not all have called the same, all raise

Agree_failed returns what `failed` becomes. It does so only when this process has been told of all these deaths itself,
so that they are known at every member from then on.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from ckpt.mpi.base.errors import ERR_OTHER, ERR_PROC_FAILED, MpiException
from ckpt.mpi.base.group import Group
from ckpt.mpi.base.integers import argument
from ckpt.mpi.comm.comm_base import CommBase
from ckpt.mpi.datatypes.datatypes import PREDEFINED
from ckpt.mpi.engine.comm_state import CommShared
from ckpt.mpi.engine.failures import nobody
from ckpt.mpi.requests.request import Request

if TYPE_CHECKING:
    from ckpt.mpi.engine.failures import Consensus

_INT = PREDEFINED["MPI_INT"]


class Failures(CommBase):
    """Base class of Comm with these methods."""

    __slots__ = ()

    def Get_failed(self) -> Group:
        """The group of the members that this process knows to have failed, in the order of the reports."""
        shared, engine = self._alive(), self._engine
        with engine.lock:
            engine.make_progress()
            return Group._make(tuple(engine.failed_ranks.failed_in(shared)), engine.progress.rank)

    def Ack_failed(self, num_to_ack: int | None = None) -> int:
        """Acknowledge the first `num_to_ack` members of Get_failed (None: all). Returns the number of acknowledged members.

        When all failed members are acknowledged, receives from ANY_SOURCE wait for the living members again.
        """
        number = None if num_to_ack is None else max(argument(num_to_ack), 0)
        shared, engine = self._alive(), self._engine
        with engine.lock:
            failed = engine.failed_ranks.failed_in(shared)
            shared.acknowledged.update(failed[:number])
            return len(shared.acknowledged)

    def Is_revoked(self) -> bool:
        """Whether this process knows that a member has revoked the communicator."""
        return bool(self._alive().revoked)

    def Revoke(self) -> None:
        """End all pending operations on the communicator, at every rank, with ERR_REVOKED. Not collective."""
        shared, engine = self._alive(), self._engine
        with engine.lock:
            engine.failed_ranks.revoke(shared.base)

    # -- agreeing ----------------------------------------------------------------------------------

    def _start_consensus(
        self, call: str, flag: int, proposal: Any, finish: Any, *args: Any, needs: Any = nobody
    ) -> Consensus:
        shared, failed_ranks = self._alive(), self._engine.failed_ranks
        contribution = flag, tuple(failed_ranks.failed_in(shared)), tuple(shared.acknowledged), proposal, call
        return failed_ranks.agree(shared, contribution, _combine, _finish_alike, finish, *args, needs=needs)

    def Agree(self, flag: int) -> int:
        """The bitwise and of the flags of all contributing members. Works on a revoked communicator.

        All survivors get the same value, even if members die during the call. If a member has failed and not all survivors
        have acknowledged it, all survivors raise MpiException (ERR_PROC_FAILED); its `agreed` holds the value.
        """
        flag = argument(flag)
        engine = self._engine
        with engine.lock:
            consensus = self._start_consensus("Agree", flag, None, no_finish)
            _wait_for(engine, consensus)
        _raise_unacknowledged(consensus, engine.failed_ranks.diagnoses)
        agreed: int = consensus.value[0]
        return agreed

    def Iagree(self, flag: Any) -> Request:
        """Agree, nonblocking. The buffer `flag` of one C int holds this rank's flag, then the result."""
        view = memoryview(flag)
        if view.nbytes != _INT.size:
            raise ValueError(f"a buffer of {_INT.size} bytes is needed, not of {view.nbytes}")
        if view.readonly:
            raise BufferError("the buffer is read-only")
        mine = int.from_bytes(view.cast("B"), "little", signed=True)
        del view  # no memoryview may exist where an image may be taken
        with self._engine.lock:
            diagnoses = self._engine.failed_ranks.diagnoses
            return Request._make(
                self._engine, self._start_consensus("Agree", mine, None, _write_flag, flag, diagnoses)
            )

    def Agree_failed(self) -> Group:
        """The agreed group of the failed members, by their ranks in COMM_WORLD. Works on a revoked communicator.

        Collective: every living member calls it, and all that return get the same group, even if members die during the
        call. It has every member (of an intercommunicator: of both groups) that had failed for any of them when it
        called; one that dies during the call may be missing, and is in the group of a later call. From then on
        Get_failed of every member has the group, and so has every later Agree_failed. Nothing is acknowledged
        (Ack_failed), and unacknowledged failures raise nothing.

        Not in the MPI standard or in mpi4py; as proposed to the MPI Forum in 2026 (issue 1119, MPI_Comm_agree_failed).
        """
        group, engine = Group(), self._engine
        with engine.lock:
            _wait_for(engine, self._start_agreed_dead(group))
        return group

    def Iagree_failed(self) -> tuple[Group, Request]:
        """Agree_failed, nonblocking: the group is null until the request is done."""
        group, engine = Group(), self._engine
        with engine.lock:
            return group, Request._make(engine, self._start_agreed_dead(group))

    def _start_agreed_dead(self, group: Group) -> Consensus:
        me = self._engine.progress.rank
        return self._start_consensus("Agree_failed", -1, None, _fill_group, group, me, needs=_agreed_dead)

    def Shrink(self) -> Any:
        """A communicator of the surviving members. Works on a revoked communicator."""
        new, request = self.Ishrink()
        request.wait()
        return new

    def shrink(self, obj: Any) -> tuple[Any, list[Any]]:
        """As Shrink, and the objects that the members of the new communicator have given, in the order of their ranks in it.

        Both are agreed on: all survivors get the same, even if members die during the call. So a program that has met a
        failure needs one agreement, where it would need Shrink, allgather, and Agree on whether all have got everything.
        """
        shared, engine = self._alive(), self._engine
        new_class = type(self) if shared.topology is None else self._plain()
        copy: Any = CommBase.__new__(new_class)
        given = pickle.dumps(obj, 5)
        with engine.lock:
            proposal = engine.next_context(), engine.next_context(), given
            consensus = self._start_consensus("shrink", -1, proposal, _bind_survivors, engine, shared, copy)
            _wait_for(engine, consensus)
            proposals = consensus.value[3]
            found = [proposals[rank][2] for rank in copy._shared.group]
        return copy, [pickle.loads(each) for each in found]

    def Ishrink(self) -> tuple[Any, Request]:
        """Shrink, nonblocking: the communicator is null until the request is done."""
        shared, engine = self._alive(), self._engine
        new_class = type(self) if shared.topology is None else self._plain()
        copy: Any = CommBase.__new__(new_class)
        with engine.lock:
            proposal = engine.next_context(), engine.next_context()
            consensus = self._start_consensus("Shrink", -1, proposal, _bind_survivors, engine, shared, copy)
            return copy, Request._make(engine, consensus)

    def _plain(self) -> Any:
        """The class of the new communicator when this one has a topology: the new one has none."""
        from ckpt.mpi.comm.communicator import Intracomm

        return Intracomm


def _combine(contributions: dict[int, Any], known: frozenset[int]) -> Any:
    """(flag, failed members, whether all of them are acknowledged, proposals by member, calls by member); see the header.
    Images of before have no calls."""
    flag = -1
    failed = set(known)
    for mine, theirs, *_ in contributions.values():
        flag &= mine
        failed.update(theirs)
    acknowledged = set(failed)
    proposals = {}
    for member, (_, _, acked, proposal, *_) in contributions.items():
        if member not in failed:
            acknowledged.intersection_update(acked)
            proposals[member] = proposal
    calls = {
        member: call
        for member, (*_, call) in contributions.items()
        if isinstance(call, str) and member not in failed
    }
    return flag, tuple(sorted(failed)), acknowledged == failed, proposals, calls


def _finish_alike(consensus: Consensus, finish: Any, *args: Any) -> None:
    """The `finish` of all agreements: `finish(consensus, *args)`, if all members have called the same."""
    calls: dict[int, str] = consensus.value[4]
    if len(set(calls.values())) <= 1:
        finish(consensus, *args)
        return
    said = ", ".join(f"rank {member} of the job {calls[member]}" for member in sorted(calls))
    consensus.error = MpiException(
        ERR_OTHER, f"all members have to call the same agreements in one order, but these have called: {said}"
    )


def _wait_for(engine: Any, consensus: Consensus) -> None:
    """Wait with the lock held; raises the agreement's error."""
    engine.wait(consensus)
    if consensus.error is not None:
        raise consensus.error


def _raise_unacknowledged(consensus: Consensus, diagnoses: Mapping[int, dict[str, Any]]) -> None:
    flag, failed, acknowledged, *_ = consensus.value
    if not acknowledged:
        names = ", ".join(map(str, failed))
        error = MpiException(ERR_PROC_FAILED, f"rank {names} of the job failed, not acknowledged by all")
        error.agreed = flag
        error.diagnosis = next((diagnoses[rank] for rank in failed if rank in diagnoses), None)
        raise error


def no_finish(consensus: Consensus) -> None:
    """The `finish` of an agreement: it has nothing to do when the agreement is decided."""


def _agreed_dead(value: Any) -> tuple[int, ...]:
    """The failed members that an agreement has decided on, as world ranks."""
    failed: tuple[int, ...] = value[1]
    return failed


def _fill_group(consensus: Consensus, group: Group, me: int) -> None:
    """The `finish` of Agree_failed."""
    group._ranks, group._me = _agreed_dead(consensus.value), me


def _write_flag(
    consensus: Consensus, buffer: Any, diagnoses: Mapping[int, dict[str, Any]] = MappingProxyType({})
) -> None:
    memoryview(buffer).cast("B")[:] = consensus.value[0].to_bytes(_INT.size, "little", signed=True)
    try:
        _raise_unacknowledged(consensus, diagnoses)
    except MpiException as error:
        consensus.error = error.with_traceback(None)


def _bind_survivors(consensus: Consensus, engine: Any, shared: CommShared, copy: Any) -> None:
    """The `finish` of Shrink: make the communicator of the survivors and bind the handle `copy` to it."""
    _, failed, _, proposals, *_ = consensus.value
    group = tuple([rank for rank in shared.group if rank not in failed])
    peers = tuple([rank for rank in shared.peers if rank not in failed])
    base = proposals[min(proposals)][0]
    new = CommShared(base, group, peers, "", shared.handle)
    new.errhandler = shared.errhandler
    new.info.update(shared.info)
    side = shared.extras.get("side")
    if side is not None:
        from ckpt.mpi.comm.comm_inter import Side
        from ckpt.mpi.comm.communicator import Intracomm

        local = Intracomm._make(engine, group, proposals[min(group)][1])
        new.extras["side"] = Side(local, side.low)
        new.parts = (local._shared.base,)
        local._shared.related_ranks = peers
        engine.failed_ranks.register(local._shared)
    copy._bind(engine, new)
    engine.register(new)


def merged(comm: Any, obj: Any, new_class: Any) -> tuple[Any, list[Any]]:
    """`Intercomm.merge`: a communicator of this class, and the objects of its members."""
    shared, engine = comm._alive(), comm._engine
    made: Any = CommBase.__new__(new_class)
    given = pickle.dumps(obj, 5)
    with engine.lock:
        proposal = engine.next_context(), given
        consensus = comm._start_consensus("merge", -1, proposal, _bind_merged, engine, shared, made)
        _wait_for(engine, consensus)
        proposals = consensus.value[3]
        found = [proposals[rank][1] for rank in made._shared.group]
    return made, [pickle.loads(each) for each in found]


def _bind_merged(consensus: Consensus, engine: Any, shared: CommShared, made: Any) -> None:
    """The `finish` of merge: make the communicator of the survivors of both groups and bind the handle `made` to it."""
    _, failed, _, proposals, *_ = consensus.value
    low: bool = shared.extras["side"].low
    members = shared.group + shared.peers if low else shared.peers + shared.group
    group = tuple([rank for rank in members if rank not in failed])
    new = CommShared(proposals[min(proposals)][0], group, group, "", made._handle_of)
    new.errhandler = shared.errhandler
    made._bind(engine, new)
    engine.register(new)

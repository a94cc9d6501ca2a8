"""ULFM's names: revoking a communicator, agreeing, going on with those who are left.

Under `ckpt run` a dead rank is restarted together with the others, so no program ever sees a failed peer:
Get_failed is empty and Shrink keeps everybody. Revoke is what it is elsewhere: everything pending on the
communicator ends with ERR_REVOKED at every rank, and nothing but Agree, Shrink and Free works afterwards.

Agree and Shrink use a plane of their own, because ranks may have been torn out of different collectives.
"""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

from ckpt.mpi import envelope
from ckpt.mpi.comm_base import CommBase
from ckpt.mpi.comm_object import CommObject
from ckpt.mpi.constants import IN_PLACE
from ckpt.mpi.datatypes import PREDEFINED
from ckpt.mpi.group import Group
from ckpt.mpi.op import BAND

if TYPE_CHECKING:
    from ckpt.mpi.request import Request
    from ckpt.mpi.schedule import Schedule

_INT = PREDEFINED["MPI_INT"]


class Failures(CommObject):
    """Part of Comm."""

    __slots__ = ()

    def Get_failed(self) -> Group:
        """The members known to have failed: none, since a dead rank comes back."""
        self._alive()
        return Group._make((), self._engine.progress.rank)

    def Ack_failed(self, num_to_ack: int | None = None) -> int:
        """How many failed members are acknowledged."""
        self._alive()
        return 0

    def Is_revoked(self) -> bool:
        """Whether any member has revoked the communicator, as far as is known here."""
        return bool(self._alive().revoked)

    def Revoke(self) -> None:
        """End everything pending on the communicator, at every rank, with ERR_REVOKED. Not collective."""
        shared, engine = self._alive(), self._engine
        with engine.lock:
            if shared.revoked:
                return
            engine.revoke(shared.base)
            head = envelope.pack(envelope.REVOKE, max(self._rank, 0), 0, shared.base)
            for world in dict.fromkeys((*shared.group, *shared.peers)):
                if world != engine.progress.rank:
                    engine.progress.send(world, head)

    # -- agreeing ----------------------------------------------------------------------------------

    def _recovery(self) -> Any:
        """All members of both groups, over the plane for recovery."""
        shared = self._alive()
        found = shared.extras.get("recovery")
        if found is None:
            from ckpt.mpi.communicator import Intracomm

            members = shared.group if shared.group == shared.peers else sorted({*shared.group, *shared.peers})
            base = shared.base + envelope.PLANE_RECOVERY - envelope.PLANE_COLLECTIVE
            found = shared.extras["recovery"] = Intracomm._make(self._engine, tuple(members), base)
        return found

    def Agree(self, flag: int) -> int:
        """The bits that are set at every member. Works on a revoked communicator."""
        agreed: int = self._recovery().allreduce(int(flag), BAND)
        return agreed

    def Iagree(self, flag: Any) -> Request:
        """Agree, nonblocking, in a buffer of one C int."""
        view = memoryview(flag)
        if view.nbytes != _INT.size:
            raise ValueError(f"a buffer of {_INT.size} bytes is needed, not of {view.nbytes}")
        if view.readonly:
            raise BufferError("the buffer is read-only")
        request: Request = self._recovery().Iallreduce(IN_PLACE, [flag, 1, _INT], BAND)
        return request

    def Shrink(self) -> Any:
        """A communicator of the members that are left. Works on a revoked communicator."""
        new, request = self.Ishrink()
        request.wait()
        return new

    def Ishrink(self) -> tuple[Any, Request]:
        """Shrink, nonblocking: the communicator is null until the request is done."""
        recovery = self._recovery()
        s = recovery._schedule()
        slot = s.slot(None)
        recovery._plan_base(s, slot)
        copy = CommBase.__new__(type(self))
        s.call(_bind_rest, self, copy, slot)
        return copy, recovery._begin(s)


def _bind_rest(s: Schedule, comm: Any, copy: Any, slot: int) -> None:
    comm._become(copy, pickle.loads(s.values[slot]), None)

"""Communicators as programs see them: messages, collectives, and making new communicators.

A new communicator needs a context number that no other has. Whoever may become its rank 0 proposes a number
of its own (engine.next_context), the proposals travel with what the ranks have to tell each other anyway,
and the one of the new rank 0 is taken.
"""

from __future__ import annotations

from operator import index
from typing import Any

from ckpt.mpi import envelope
from ckpt.mpi.comm_collectives import BufferCollectives
from ckpt.mpi.constants import CONGRUENT, IDENT, SIMILAR, UNDEFINED, UNEQUAL
from ckpt.mpi.errors import ERR_ARG, ERR_COMM, ERR_GROUP, MpiException
from ckpt.mpi.group import Group

COMM_TYPE_SHARED = 1


class Comm(BufferCollectives):
    """Messages between the ranks of a group. The null communicator raises ERR_COMM from every call."""

    __slots__ = ()

    # -- what it is --------------------------------------------------------------------------------

    def Get_group(self) -> Group:
        return Group._make(self._shared.group, self._engine.progress.rank)

    @property
    def group(self) -> Group:
        return self.Get_group()

    def Is_inter(self) -> bool:
        return self._peers != self._shared.group

    def Is_intra(self) -> bool:
        return not self.Is_inter()

    @property
    def is_inter(self) -> bool:
        return self.Is_inter()

    @property
    def is_intra(self) -> bool:
        return self.Is_intra()

    @classmethod
    def Compare(cls, comm1: Comm, comm2: Comm) -> int:
        """IDENT (the same), CONGRUENT (same ranks, own context), SIMILAR (other order) or UNEQUAL."""
        one, two = comm1._shared, comm2._shared
        if one is two:
            return IDENT
        if one.group == two.group and one.peers == two.peers:
            return CONGRUENT
        if set(one.group) == set(two.group) and set(one.peers) == set(two.peers):
            return SIMILAR
        return UNEQUAL

    def __repr__(self) -> str:
        if not self:
            return f"<{type(self).__name__} null>"
        return f"<{type(self).__name__} {self.name or 'unnamed'}: rank {self.rank} of {self.size}>"

    # -- its end -----------------------------------------------------------------------------------

    def Free(self) -> None:
        """Collective: nobody uses the communicator any more. Operations under way still finish."""
        engine, shared = self._engine, self._shared
        with engine.lock:
            if self == engine.world or self == engine.self_comm:
                raise MpiException(ERR_COMM, f"{shared.name} cannot be freed")
            self._world_rank_checked()
            shared.freed = True
            for plane in range(envelope.PLANES):
                context = engine.matcher.contexts.get(shared.base + plane)
                if context is not None and not context.busy():
                    engine.matcher.forget(context.number)

    def Disconnect(self) -> None:
        """Free, once everything under way here is finished."""
        self.barrier()
        self.Free()

    def _world_rank_checked(self) -> None:
        if self._shared.freed:
            raise MpiException(ERR_COMM, "the communicator is freed already")


class Intracomm(Comm):
    """One group: messages within it, collectives over it."""

    __slots__ = ()

    def _derive(self, members: tuple[int, ...], base: int) -> Intracomm:
        return Intracomm._make(self._engine, members, base)

    def Dup(self, info: Any = None) -> Intracomm:
        """The same ranks with contexts of their own."""
        base = self.bcast(self._engine.next_context() if self._rank == 0 else None)
        copy = self._derive(self._shared.group, base)
        copy._shared.info.update(self._shared.info if info is None else info)
        return copy

    Clone = Dup

    def Split(self, color: int = 0, key: int = 0) -> Comm:
        """Ranks of one color form a communicator, ordered by key, then by rank; color UNDEFINED: none."""
        color, key = index(color), index(key)
        if color < 0 and color != UNDEFINED:
            raise MpiException(ERR_ARG, f"negative color {color}")
        proposals = self.allgather((color, key, self._engine.next_context()))
        if color == UNDEFINED:
            return _null()
        chosen = []
        for rank, proposal in enumerate(proposals):
            if proposal[0] == color:
                chosen.append((proposal[1], rank))
        chosen.sort()
        members = tuple([self._shared.group[rank] for _, rank in chosen])
        return self._derive(members, proposals[chosen[0][1]][2])

    def Split_type(self, split_type: int, key: int = 0, info: Any = None) -> Comm:
        """Ranks that share something: all of them share memory as far as programs can tell here."""
        return self.Split(UNDEFINED if split_type == UNDEFINED else 0, key)

    def Create(self, group: Group) -> Comm:
        """A communicator of a subgroup; called by all ranks of this one, members of one group give the
        same."""
        members = group._members
        self._check_members(members)
        proposals = self.allgather(self._engine.next_context())
        if self._engine.progress.rank not in members:
            return _null()
        return self._derive(members, proposals[self._shared.group.index(members[0])])

    def Create_group(self, group: Group, tag: int = 0) -> Comm:
        """The same, called by the members only."""
        members = group._members
        self._check_members(members)
        engine = self._engine
        if engine.progress.rank not in members:
            return _null()
        inner = Intracomm._make(engine, members, self._shared.base)
        inner._use_plane(envelope.PLANE_INTERNAL)
        if inner.rank == 0:
            base = engine.next_context()
            for rank in range(1, len(members)):
                inner.send(base, rank, tag)
        else:
            base = inner.recv(source=0, tag=tag)
        return self._derive(members, base)

    def _check_members(self, members: tuple[int, ...]) -> None:
        for world in members:
            if world not in self._shared.group:
                raise MpiException(ERR_GROUP, "the group is no part of the communicator's")


def _null() -> Comm:
    comm: Comm = Comm()
    return comm


Communicator = Intracomm
"""The communicator most programs use."""

COMM_NULL = Comm()
"""No communicator: every call raises ERR_COMM."""

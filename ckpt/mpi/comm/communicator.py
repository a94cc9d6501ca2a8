"""Communicators as programs see them: messages, collectives, and making new communicators.

A new communicator needs a context number that no other has. Whoever may become its rank 0 proposes a number
of its own (engine.next_context), the proposals travel with what the ranks have to tell each other anyway,
and the one of the new rank 0 is taken.
"""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any, ClassVar

from ckpt.mpi.base import envelope
from ckpt.mpi.base.constants import CONGRUENT, IDENT, NUMBERS, SIMILAR, UNDEFINED, UNEQUAL
from ckpt.mpi.base.errors import ERR_ARG, ERR_COMM, ERR_GROUP, MpiException
from ckpt.mpi.base.group import Group
from ckpt.mpi.base.info import Info
from ckpt.mpi.base.integers import argument
from ckpt.mpi.collectives import tree as trees
from ckpt.mpi.comm.buffer_collectives import BufferCollectives
from ckpt.mpi.comm.buffer_messages import BufferMessages
from ckpt.mpi.comm.comm_base import CommBase
from ckpt.mpi.comm.comm_factories import Factories
from ckpt.mpi.comm.comm_failure import Failures
from ckpt.mpi.comm.comm_object import CommObject
from ckpt.mpi.comm.guard import guard_all
from ckpt.mpi.comm.object_collectives import ObjectCollectives
from ckpt.mpi.comm.object_messages import ObjectMessages
from ckpt.mpi.engine import worlds
from ckpt.mpi.engine.comm_state import CommShared
from ckpt.mpi.engine.engine import SELF_COUNT, WORLD_COUNT, Engine

if TYPE_CHECKING:
    from ckpt.mpi.engine.schedule import Schedule
    from ckpt.mpi.requests.request import Request

COMM_TYPE_SHARED = 1


def handle_of(engine: Engine, shared: CommShared) -> Any:
    """An Intracomm or an Intercomm, when all that is known is that it is a communicator."""
    from ckpt.mpi.comm.comm_inter import Intercomm

    proper: Any = CommBase.__new__(Intercomm if "side" in shared.extras else Intracomm)
    proper._bind(engine, shared)
    return proper


class Comm(BufferMessages, BufferCollectives, CommObject, Failures):
    """Messages between the ranks of a group. The null communicator raises ERR_COMM from every call."""

    __slots__ = ()
    _constants: ClassVar[tuple[str, ...]] = ("COMM_NULL",)
    _handle_of = staticmethod(handle_of)

    # -- what it is --------------------------------------------------------------------------------

    def Get_group(self) -> Group:
        return Group._make(self._alive().group, self._engine.progress.rank)

    @property
    def group(self) -> Group:
        return self.Get_group()

    def Is_inter(self) -> bool:
        return bool(self._alive().peers != self._shared.group)

    def Is_intra(self) -> bool:
        return not self.Is_inter()

    @property
    def is_inter(self) -> bool:
        return self.Is_inter()

    @property
    def is_intra(self) -> bool:
        return self.Is_intra()

    def Get_topology(self) -> int:
        """CART, GRAPH, DIST_GRAPH, or UNDEFINED."""
        topology = self._alive().topology
        return UNDEFINED if topology is None else int(topology.kind)

    @property
    def topology(self) -> int:
        return self.Get_topology()

    @property
    def is_topo(self) -> bool:
        return self.Get_topology() != UNDEFINED

    def Compare(self, comm: Comm) -> int:
        """IDENT (the same), CONGRUENT (same ranks, own context), SIMILAR (other order) or UNEQUAL."""
        one, two = self._alive(), comm._alive()
        if one is two:
            return IDENT
        if one.group == two.group and one.peers == two.peers:
            return CONGRUENT
        if set(one.group) == set(two.group) and set(one.peers) == set(two.peers):
            return SIMILAR
        return UNEQUAL

    def __reduce__(self) -> Any:
        if self:
            for predefined, finder in ((world_of(self._engine), _world), (self_of(self._engine), _self_comm)):
                if self is predefined:
                    return finder, ()
                if self == predefined:
                    return type(self), (predefined,)
        return super().__reduce__()

    def __repr__(self) -> str:
        if not self:
            return f"<{type(self).__name__} null>"
        return f"<{type(self).__name__} {self.name or 'unnamed'}: rank {self.rank} of {self.size}>"

    # -- copies ------------------------------------------------------------------------------------

    def _copy_of(self, base: int, info: Any) -> Any:
        """A communicator like this one with contexts of its own."""
        return self._become(CommBase.__new__(type(self)), base, info)

    def _become(self, copy: Any, base: int, info: Any) -> Any:
        shared = self._shared
        new = CommShared(base, shared.group, shared.peers, "", shared.handle)
        new.topology = shared.topology
        new.errhandler = shared.errhandler
        new.info.update(shared.info if info is None else dict(info.items()))
        new.extras.update({key: value for key, value in shared.extras.items() if key == "side"})
        copy._bind(self._engine, new)
        self._engine.register(new)
        return copy

    def _bequeath(self, made: Any) -> Any:
        """A communicator made of this one begins with its error handler."""
        made._shared.errhandler = self._shared.errhandler
        return made

    def _new_base(self) -> int:
        """A number for a new communicator of all ranks, agreed on. Collective."""
        base: int = self._proper()._new_base()
        return base

    def _plan_base(self, s: Schedule, slot: int) -> None:
        """The same, as steps of a schedule: the slot gets the pickled number."""
        self._proper()._plan_base(s, slot)

    def _proper(self) -> Any:
        """This communicator as an Intracomm or an Intercomm, when all that is known is that it is one."""
        return handle_of(self._engine, self._alive())

    def Dup(self, info: Info | None = None) -> Any:
        """The same ranks with contexts of their own."""
        self._alive()
        copy = self._copy_of(self._new_base(), info)
        self._copy_attributes(copy)
        return copy

    def Clone(self) -> Any:
        return self.Dup()

    def Dup_with_info(self, info: Info) -> Any:
        return self.Dup(info)

    def Idup(self, info: Info | None = None) -> tuple[Any, Request]:
        """Dup, nonblocking: the communicator is null until the request is done."""
        s = self._schedule()
        slot = s.slot(None)
        self._plan_base(s, slot)
        copy = CommBase.__new__(type(self))
        s.call(_bind_copy, self, copy, slot, info)
        return copy, self._begin(s)

    def Idup_with_info(self, info: Info) -> tuple[Any, Request]:
        return self.Idup(info)

    # -- its end -----------------------------------------------------------------------------------

    def Free(self) -> None:
        """Collective: nobody uses the communicator any more. Operations under way still finish."""
        engine, shared = self._engine, self._alive()
        if self == world_of(engine) or self == self_of(engine):
            raise MpiException(ERR_COMM, f"{shared.name} cannot be freed")
        self._delete_attributes()
        private = shared.extras.pop("context", None)
        if private is not None and private[0]:
            private[0].Free()
        with engine.lock:
            shared.freed = shared.closed = True
            shared.routes.clear()
            engine.losses.forget(shared)
            idle = not shared.pending
            for plane in range(envelope.PLANES):
                context = engine.matcher.contexts.get(shared.base + plane)
                if context is not None and not context.busy():
                    engine.matcher.forget(context.number)
                idle = idle and engine.matcher.contexts.get(shared.base + plane) is None
            if idle:  # else the failure of a member must still be able to end what is under way
                engine.shared.pop(shared.base, None)
        self._unbind()

    def _discard(self) -> None:
        if self == world_of(self._engine) or self == self_of(self._engine):
            self._unbind()
        else:
            self.Free()

    def free(self) -> None:
        """Free unless it is predefined or null: never raises."""
        if self and self._engine._world is not self and self._engine._self is not self:
            self._discard()

    def _barrier(self) -> None:
        BufferCollectives.Barrier(self)

    def Disconnect(self) -> None:
        """Free, once everything under way here is finished."""
        self._barrier()
        self.Free()

    # -- parts -------------------------------------------------------------------------------------

    def Split(self, color: int = 0, key: int = 0) -> Any:
        """Communicators of the ranks of one color."""
        return self._proper().Split(color, key)

    def Create(self, group: Group) -> Any:
        """A communicator of a subgroup."""
        return self._proper().Create(group)

    def Split_type(self, split_type: int, key: int = 0, info: Any = None) -> Any:
        """Ranks that share something: all of them share memory as far as programs can tell here."""
        split_type = argument(split_type)
        if split_type in (NUMBERS["COMM_TYPE_HW_GUIDED"], NUMBERS["COMM_TYPE_RESOURCE_GUIDED"]):
            known = bool(info) and "mpi_hw_resource_type" in info
            split_type = (
                COMM_TYPE_SHARED
                if known and info["mpi_hw_resource_type"] == "mpi_shared_memory"
                else UNDEFINED
            )
        elif split_type == NUMBERS["COMM_TYPE_HW_UNGUIDED"]:
            split_type = UNDEFINED  # the next smaller domain: there is none
        return self.Split(UNDEFINED if split_type == UNDEFINED else 0, key)


def _bind_copy(s: Schedule, comm: Comm, copy: Comm, slot: int, info: Any) -> None:
    comm._become(copy, pickle.loads(s.values[slot]), info)
    comm._copy_attributes(copy)


class Intracomm(Comm, Factories):
    """One group: messages within it, collectives over it."""

    __slots__ = ()

    def __new__(cls, comm: Any = None) -> Any:
        self = super().__new__(cls, comm)
        if comm and "side" in comm._shared.extras:
            raise TypeError(f"{cls.__name__}: cannot be made of an intercommunicator")
        return self

    def _derive(self, members: tuple[int, ...], base: int) -> Any:
        return self._bequeath(Intracomm._make(self._engine, members, base))

    def _new_base(self) -> int:
        if self._engine.imports.provisional:
            return self._engine.next_context()  # agreed on before: see imports.py
        base: int = ObjectCollectives.bcast(self, self._engine.next_context() if self._rank == 0 else None)
        return base

    def _plan_base(self, s: Schedule, slot: int) -> None:
        if self._rank == 0:
            s.values[slot] = pickle.dumps(self._engine.next_context(), 5)
        trees.broadcast(s, 0, slot)

    def Split(self, color: int = 0, key: int = 0) -> Any:
        """Ranks of one color form a communicator, ordered by key, then by rank; color UNDEFINED: none."""
        color, key = argument(color), argument(key)
        if color < 0 and color != UNDEFINED:
            raise MpiException(ERR_ARG, f"negative color {color}")
        proposals = ObjectCollectives.allgather(self, (color, key, self._engine.next_context()))
        if color == UNDEFINED:
            return Intracomm()
        chosen = []
        for rank, proposal in enumerate(proposals):
            if proposal[0] == color:
                chosen.append((proposal[1], rank))
        chosen.sort()
        members = tuple([self._shared.group[rank] for _, rank in chosen])
        return self._derive(members, proposals[chosen[0][1]][2])

    def Create(self, group: Group) -> Any:
        """A communicator of a subgroup; called by all ranks of this one, members of one group give the
        same."""
        members = group._members
        self._check_members(members)
        proposals = ObjectCollectives.allgather(self, self._engine.next_context())
        if self._engine.progress.rank not in members:
            return Intracomm()
        return self._derive(members, proposals[self._shared.group.index(members[0])])

    def Create_group(self, group: Group, tag: int = 0) -> Any:
        """The same, called by the members only."""
        tag = argument(tag)
        members = group._members
        self._check_members(members)
        engine = self._engine
        if engine.progress.rank not in members:
            return Intracomm()
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
            if world not in self._alive().group:
                raise MpiException(ERR_GROUP, "the group is no part of the communicator's")


def world_of(engine: Engine) -> Intracomm:
    """The communicator of all ranks."""
    held = engine._world
    if not isinstance(held, Intracomm):
        base = envelope.context_base(0, WORLD_COUNT)
        held = Intracomm._make(engine, tuple(range(engine.progress.size)), base, "MPI_COMM_WORLD")
        engine._world = held
    return held


def self_of(engine: Engine) -> Intracomm:
    """The communicator of this rank alone."""
    held = engine._self
    if not isinstance(held, Intracomm):
        rank = engine.progress.rank
        held = Intracomm._make(engine, (rank,), envelope.context_base(rank, SELF_COUNT), "MPI_COMM_SELF")
        engine._self = held
    return held


def _world() -> Any:
    """COMM_WORLD of this process, by which it is pickled."""
    return world_of(worlds.engine())


def _self_comm() -> Any:
    """COMM_SELF of this process."""
    return self_of(worlds.engine())


guard_all(
    ObjectMessages,
    BufferMessages,
    ObjectCollectives,
    BufferCollectives,
    CommObject,
    Failures,
    Comm,
    Factories,
    Intracomm,
)

Communicator = Intracomm
"""The communicator most programs use."""

COMM_NULL = Comm()
"""No communicator: every call raises ERR_COMM."""

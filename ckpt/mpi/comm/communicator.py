"""The communicator classes of programs, Comm and Intracomm, and the methods that make new communicators.

A new communicator needs a context number that no other communicator has. Every rank that may become its rank 0 proposes a
number of its own (Engine.next_context). The ranks exchange the proposals together with the other data of the call, and
use the proposal of the new rank 0.

Not here: Intercomm (comm_inter.py), communicators with a topology (comm_topology.py).
"""

from __future__ import annotations

import os
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
    """A new handle of a communicator, of class Intracomm or Intercomm, as its state requires."""
    from ckpt.mpi.comm.comm_inter import Intercomm

    proper: Any = CommBase.__new__(Intercomm if "side" in shared.extras else Intracomm)
    proper._bind(engine, shared)
    return proper


class Comm(BufferMessages, ObjectMessages, BufferCollectives, ObjectCollectives, CommObject, Failures):
    """A handle of a communicator. Every call on the null communicator raises MpiException (ERR_COMM)."""

    __slots__ = ()
    _constants: ClassVar[tuple[str, ...]] = ("COMM_NULL",)
    _handle_of = staticmethod(handle_of)

    # -- properties --------------------------------------------------------------------------------

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
        return UNDEFINED if topology is None else int(topology.topology_type)

    @property
    def topology(self) -> int:
        return self.Get_topology()

    @property
    def is_topo(self) -> bool:
        return self.Get_topology() != UNDEFINED

    def Compare(self, comm: Comm) -> int:
        """IDENT (the same communicator), CONGRUENT (same ranks, other context), SIMILAR (other order) or UNEQUAL."""
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
        """A duplicate of this communicator with the context number `base`. info: None to copy this one's info."""
        return self._bind_duplicate(CommBase.__new__(type(self)), base, info)

    def _bind_duplicate(self, copy: Any, base: int, info: Any) -> Any:
        shared = self._shared
        new = CommShared(base, shared.group, shared.peers, "", shared.handle)
        new.topology = shared.topology
        new.errhandler = shared.errhandler
        new.info.update(shared.info if info is None else dict(info.items()))
        new.extras.update({key: value for key, value in shared.extras.items() if key == "side"})
        copy._bind(self._engine, new)
        self._engine.register(new)
        return copy

    def _with_errhandler_of_this(self, made: Any) -> Any:
        """Give a communicator that was made from this one this one's error handler. Returns it."""
        made._shared.errhandler = self._shared.errhandler
        return made

    def _new_base(self) -> int:
        """A context number for a new communicator of all ranks, equal at all of them. Collective."""
        base: int = self._typed_handle()._new_base()
        return base

    def _write_new_base(self, s: Schedule, slot: int) -> None:
        """Write steps of a schedule that do the work of `_new_base`: the slot gets the pickled number."""
        self._typed_handle()._write_new_base(s, slot)

    def _typed_handle(self) -> Any:
        """A handle of this communicator of class Intracomm or Intercomm: this handle's class may be Comm."""
        return handle_of(self._engine, self._alive())

    def Dup(self, info: Info | None = None) -> Any:
        """A duplicate: the same ranks, another context, and the attributes that `copy_fn` copies. Collective."""
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
        self._write_new_base(s, slot)
        copy = CommBase.__new__(type(self))
        s.call(_bind_copy, self, copy, slot, info)
        return copy, self._begin(s)

    def Idup_with_info(self, info: Info) -> tuple[Any, Request]:
        return self.Idup(info)

    # -- freeing -----------------------------------------------------------------------------------

    def Free(self) -> None:
        """Free the communicator. Collective. Operations under way still finish.

        MpiException (ERR_COMM): it is COMM_WORLD or COMM_SELF."""
        engine, shared = self._engine, self._alive()
        if self == world_of(engine) or self == self_of(engine):
            raise MpiException(ERR_COMM, f"{shared.name} cannot be freed")
        self._delete_attributes()
        private = shared.extras.pop("context", None)
        if private is not None and private[0]:
            private[0].Free()
        with engine.lock:
            if shared.exchange is not None:
                shared.exchange.close()
            shared.freed = shared.closed = True
            shared.routes.clear()
            engine.failed_ranks.forget(shared)
            idle = not shared.pending
            for plane in range(envelope.PLANES):
                context = engine.matcher.contexts.get(shared.base + plane)
                if context is not None and not context.busy():
                    engine.matcher.forget(context.number)
                idle = idle and engine.matcher.contexts.get(shared.base + plane) is None
            if idle:  # otherwise the engine needs `shared`, to end operations under way when a member fails
                engine.shared.pop(shared.base, None)
        self._unbind()

    def _discard(self) -> None:
        if self == world_of(self._engine) or self == self_of(self._engine):
            self._unbind()
        else:
            self.Free()

    def free(self) -> None:
        """Free the communicator, as mpi4py's `free`. No effect on a predefined or null one."""
        if self and self._engine._world is not self and self._engine._self is not self:
            self._discard()

    def _barrier(self) -> None:
        BufferCollectives.Barrier(self)

    def Disconnect(self) -> None:
        """Wait until all ranks have called Disconnect, then free the communicator."""
        self._barrier()
        self.Free()

    # -- communicators of subgroups ----------------------------------------------------------------

    def Split(self, color: int = 0, key: int = 0) -> Any:
        """A communicator of the ranks with the same color. Collective."""
        return self._typed_handle().Split(color, key)

    def Create(self, group: Group) -> Any:
        """A communicator of a subgroup. Collective over this communicator."""
        return self._typed_handle().Create(group)

    def Split_type(self, split_type: int, key: int = 0, info: Any = None) -> Any:
        """A communicator of the ranks that share a resource: COMM_TYPE_SHARED gives the ranks of this communicator on this
        host. The result is null for a resource that the library does not know."""
        split_type = argument(split_type)
        if split_type in (NUMBERS["COMM_TYPE_HW_GUIDED"], NUMBERS["COMM_TYPE_RESOURCE_GUIDED"]):
            known = bool(info) and "mpi_hw_resource_type" in info
            split_type = (
                COMM_TYPE_SHARED
                if known and info["mpi_hw_resource_type"] == "mpi_shared_memory"
                else UNDEFINED
            )
        elif split_type == NUMBERS["COMM_TYPE_HW_UNGUIDED"]:
            split_type = UNDEFINED  # asks for the next smaller hardware domain, which does not exist here
        host = int(os.environ.get("CKPT_HOST", "0"))  # not set if there is only one
        return self.Split(UNDEFINED if split_type == UNDEFINED else host, key)


def _bind_copy(s: Schedule, comm: Comm, copy: Comm, slot: int, info: Any) -> None:
    comm._bind_duplicate(copy, pickle.loads(s.values[slot]), info)
    comm._copy_attributes(copy)


class Intracomm(Comm, Factories):
    """An intracommunicator: messages and collectives within one group."""

    __slots__ = ()

    def __new__(cls, comm: Any = None) -> Any:
        self = super().__new__(cls, comm)
        if comm and "side" in comm._shared.extras:
            raise TypeError(f"{cls.__name__}: cannot be made of an intercommunicator")
        return self

    def _derive(self, members: tuple[int, ...], base: int) -> Any:
        return self._with_errhandler_of_this(Intracomm._make(self._engine, members, base))

    def _new_base(self) -> int:
        base: int = ObjectCollectives.bcast(self, self._engine.next_context() if self._rank == 0 else None)
        return base

    def _write_new_base(self, s: Schedule, slot: int) -> None:
        if self._rank == 0:
            s.values[slot] = pickle.dumps(self._engine.next_context(), 5)
        trees.broadcast(s, 0, slot)

    def Split(self, color: int = 0, key: int = 0) -> Any:
        """A communicator of the ranks with the same color, ordered by key, then by rank. Null for color UNDEFINED.

        MpiException (ERR_ARG): negative color."""
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
        """A communicator of a subgroup. All ranks of this communicator call it; all members of a subgroup give the same
        group. MpiException (ERR_GROUP): the group is not a subgroup."""
        members = group._members
        self._check_members(members)
        proposals = ObjectCollectives.allgather(self, self._engine.next_context())
        if self._engine.progress.rank not in members:
            return Intracomm()
        return self._derive(members, proposals[self._shared.group.index(members[0])])

    def Create_group(self, group: Group, tag: int = 0) -> Any:
        """A communicator of a subgroup. Only the members call it; `tag` distinguishes concurrent calls."""
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


def world_of(engine: Engine, members: range | None = None) -> Intracomm:
    """COMM_WORLD of an engine. It is made on first use, of `members`, by default of all processes."""
    world = engine._world
    if not isinstance(world, Intracomm):
        group = tuple(members or range(engine.progress.size))
        base = envelope.context_base(group[0], WORLD_COUNT)
        world = Intracomm._make(engine, group, base, "MPI_COMM_WORLD")
        engine._world = world
    return world


def self_of(engine: Engine) -> Intracomm:
    """COMM_SELF of an engine. It is made on first use."""
    self_comm = engine._self
    if not isinstance(self_comm, Intracomm):
        rank = engine.progress.rank
        self_comm = Intracomm._make(engine, (rank,), envelope.context_base(rank, SELF_COUNT), "MPI_COMM_SELF")
        engine._self = self_comm
    return self_comm


def _world() -> Any:
    """COMM_WORLD of this process. COMM_WORLD is pickled as a call of this function."""
    return world_of(worlds.engine())


def _self_comm() -> Any:
    """COMM_SELF of this process. COMM_SELF is pickled as a call of this function."""
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
"""Another name of Intracomm, for type annotations (`ckpt.enable` returns one)."""

COMM_NULL = Comm()
"""The null communicator: every call raises ERR_COMM."""

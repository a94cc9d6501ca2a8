"""The base class of all communicators: group, context number, routes to the peers, checks of arguments; and what calls on
objects and calls on buffers both do.

A communicator object is a handle. `Comm(other)` is another handle of the same communicator, and compares equal; all
handles share one CommShared. A freed or null communicator has `NULL_PART` in place of its parts (null_handles.py), and
every call on it raises ERR_COMM.

A *route* is the world rank and the packed envelope for a (destination, tag). It never changes. So rank and tag are checked
and the envelope is packed only when a route is used for the first time.

Not here: the calls themselves (object_messages.py, buffer_messages.py, object_collectives.py, buffer_collectives.py), making
of communicators (communicator.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, Self, TypeVar

from ckpt.mpi.base import envelope
from ckpt.mpi.base.constants import ANY_SOURCE, ANY_TAG, PROC_NULL, TAG_UB, UNDEFINED
from ckpt.mpi.base.errors import ERR_COMM, ERR_RANK, ERR_REVOKED, ERR_ROOT, ERR_TAG, MpiException
from ckpt.mpi.base.handle import Handle, expect
from ckpt.mpi.base.integers import argument
from ckpt.mpi.base.null_handles import NULL_PART
from ckpt.mpi.engine import quick
from ckpt.mpi.engine.comm_state import CommShared
from ckpt.mpi.engine.engine import REFERENCE_BYTES, Engine
from ckpt.mpi.engine.schedule import TAGS, Schedule
from ckpt.mpi.slots import collectives as small
from ckpt.mpi.slots.exchange import Exchange, exchange_of

if TYPE_CHECKING:
    from ckpt.mpi.base.progress import Buffer
    from ckpt.mpi.engine.matching import Channel, Context
    from ckpt.mpi.engine.operations import Operation

C = TypeVar("C", bound="CommBase")

ROUTES_MAX = 4096
"""Number of routes kept for a communicator. When the table is full, it is emptied."""


class CommBase(Handle):
    """Identity, routes and checks of arguments.

    `_peers`: world ranks of the group that ranks in calls refer to (the remote group of an intercommunicator).
    `_context`: the context of this handle's point-to-point messages; `_channels`: its `direct` table (matching.py)."""

    __slots__ = ("__weakref__", "_channels", "_context", "_engine", "_peers", "_rank", "_routes", "_shared")

    _engine: Engine
    _shared: CommShared
    _rank: int
    _peers: tuple[int, ...]
    _routes: dict[tuple[int, int], tuple[int, bytes]]
    _context: Context
    _channels: dict[tuple[int, int], Channel]
    _handle_of: ClassVar[staticmethod[[Engine, CommShared], object]]
    """The function for CommShared.handle. Every class of communicators that programs see has it."""

    def __new__(cls, comm: CommBase | None = None) -> Self:
        expect(cls, comm, CommBase)
        self = super().__new__(cls)
        self._unbind()
        if comm is not None and comm._shared is not NULL_PART:
            self._bind(comm._engine, comm._shared)
        return self

    def _alive(self) -> Any:
        """The parts that all handles of the communicator share. Raises ERR_COMM for a freed one."""
        shared = self._shared
        if shared.freed:
            raise MpiException(ERR_COMM, "the communicator is freed")
        return shared

    def _unbind(self) -> None:
        """Make this handle null."""
        self._engine = self._shared = self._rank = self._peers = self._context = self._channels = NULL_PART
        self._routes = {}

    def _bind(self, engine: Engine, shared: CommShared) -> None:
        self._engine = engine
        self._shared = shared
        self._peers = shared.peers
        rank = engine.progress.rank
        self._rank = shared.group.index(rank) if rank in shared.group else UNDEFINED
        self._routes = shared.routes
        self._context = engine.matcher.context(shared.base + envelope.PLANE_POINT)
        self._channels = self._context.direct
        if engine.imports.provisional:
            engine.imports.handles.append(self)

    def _use_plane(self, plane: int) -> None:
        """Use another plane of the communicator for this handle's point-to-point messages."""
        self._context = self._engine.matcher.context(self._shared.base + plane)
        self._channels = self._context.direct
        self._routes = {}

    @classmethod
    def _make(cls: type[C], engine: Engine, group: tuple[int, ...], base: int, name: str = "") -> C:
        """A communicator of the world ranks `group`. `base`: its first context number, which is equal at all members."""
        self: C = CommBase.__new__(cls)
        shared = CommShared(base, group, group, name, cls._handle_of)
        self._bind(engine, shared)
        engine.register(shared)
        return self

    def __getstate__(self) -> tuple[Any, ...]:
        # The state has every field, and nothing is computed from others: the engine and this object refer to each
        # other, so when this object's state is set, the engine may still be empty.
        extra = getattr(self, "__dict__", None)
        if self._shared is NULL_PART:
            return None, extra
        return (
            (
                self._engine,
                self._shared,
                self._rank,
                self._peers,
                self._context,
                self._channels,
                self._routes,
            ),
            extra,
        )

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        fields, extra = state
        if fields is not None:
            self._engine, self._shared, self._rank, self._peers, self._context, self._channels = fields[:6]
            self._routes = fields[6]
        if extra:
            self.__dict__.update(extra)

    def __image_reduce__(self) -> Any:
        return self._named() or (CommBase.__new__, (type(self),), self.__getstate__())

    def __bool__(self) -> bool:
        return self._shared is not NULL_PART and not self._shared.freed

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, CommBase):
            return NotImplemented
        if not self or not other:
            return bool(self) == bool(other)
        return self._shared is other._shared

    __hash__ = None

    # -- identity ----------------------------------------------------------------------------------

    def Get_rank(self) -> int:
        """This process's rank in the communicator."""
        return +self._rank  # the operator + raises for NULL_PART

    def Get_size(self) -> int:
        """Number of ranks in the group (the local group of an intercommunicator)."""
        return len(self._shared.group)

    def Get_name(self) -> str:
        return "MPI_COMM_NULL" if self._shared is NULL_PART else self._shared.name

    def Set_name(self, name: str) -> None:
        self._shared.name = name

    @property
    def rank(self) -> int:
        return +self._rank

    @property
    def size(self) -> int:
        return len(self._shared.group)

    @property
    def name(self) -> str:
        return self.Get_name()

    @name.setter
    def name(self, name: str) -> None:
        self._shared.name = name

    # -- checks ------------------------------------------------------------------------------------

    def _route(self, dest: int, tag: int) -> tuple[int, bytes] | None:
        """The route (world rank, packed EAGER envelope) for a destination and tag; None for PROC_NULL.

        MpiException (ERR_RANK, ERR_TAG, ERR_COMM, ERR_REVOKED) for bad arguments; PeerFailed when the rank has failed."""
        route = self._unchecked_route(dest, tag)
        if route is None:
            return None
        if self._shared.broken and route[0] in self._engine.failed_ranks.known:
            raise self._engine.failed_ranks.failure(route[0])
        if len(self._routes) >= ROUTES_MAX:
            self._routes.clear()
        self._routes[argument(dest), argument(tag)] = route
        return route

    def _unchecked_route(self, dest: int, tag: int) -> tuple[int, bytes] | None:
        """Like `_route`, but without the check for a failed rank: for operations that are started later."""
        dst = self._world_rank(dest)
        tag = argument(tag)
        if not 0 <= tag <= TAG_UB:
            raise MpiException(ERR_TAG, f"tag {tag} is not in 0…{TAG_UB}")
        if dst is None:
            return None
        return dst, envelope.pack(envelope.EAGER, self._rank, tag, self._context.number)

    def _refuse(self) -> NoReturn:
        if self._shared.freed:
            raise MpiException(ERR_COMM, "the communicator is freed")
        raise MpiException(ERR_REVOKED, "the communicator is revoked")

    def _world_rank(self, rank: int) -> int | None:
        """World rank of a peer; None for PROC_NULL."""
        number = argument(rank)
        if self._shared.closed:
            self._refuse()
        if number == PROC_NULL:
            return None
        if not 0 <= number < len(self._peers):
            raise MpiException(ERR_RANK, f"rank {number} in a communicator of {len(self._peers)} ranks")
        return self._peers[number]

    def _check_receive(self, source: int, tag: int) -> tuple[int | None, int, int]:
        """(world rank of the source, source, tag). The world rank is 0 for ANY_SOURCE, and None for PROC_NULL.

        MpiException: ERR_RANK or ERR_TAG for bad arguments, ERR_COMM or ERR_REVOKED for a closed communicator."""
        if type(source) is type(tag) is int and 0 <= source < len(self._peers) and ANY_TAG <= tag <= TAG_UB:
            if self._shared.closed:
                self._refuse()
            return self._peers[source], source, tag
        source, tag = argument(source), argument(tag)
        if tag != ANY_TAG and not 0 <= tag <= TAG_UB:
            raise MpiException(ERR_TAG, f"tag {tag} is neither ANY_TAG nor in 0…{TAG_UB}")
        if source == ANY_SOURCE:
            if self._shared.closed:
                self._refuse()
            return 0, source, tag
        return self._world_rank(source), source, tag

    def _check_root(self, root: int) -> int:
        number = argument(root)
        if not 0 <= number < len(self._peers):
            raise MpiException(ERR_ROOT, f"root {number} in a communicator of {len(self._peers)} ranks")
        return number

    # -- what messages of objects and of buffers share ---------------------------------------------

    def _put(self, dst: int, head: bytes, data: bytes) -> None:
        """Pass immutable bytes to the transport. The lock is held."""
        if len(data) < REFERENCE_BYTES:
            self._engine.progress.send(dst, head + data)
        else:
            self._engine.progress.send(dst, head, data)

    def _put_sync(self, dst: int, tag: int, data: Buffer) -> Operation:
        """Pass immutable bytes to the transport as a synchronous send. The lock is held."""
        tag = argument(tag)
        operation = self._engine.start_sync(dst, self._context)
        head = envelope.pack(envelope.SYNC, self._rank, tag, self._context.number, operation.token)
        self._engine.progress.send(dst, head, data if len(data) else None)
        return operation

    # -- what collectives of objects and of buffers share ------------------------------------------

    def _schedule(self) -> Schedule:
        """An empty schedule for the next collective operation of this communicator."""
        shared = self._shared
        self._world_rank(0)  # raises for a freed or revoked communicator
        if self._engine.guard is not None:
            self._engine.guard.check()
        number = shared.collectives % TAGS
        shared.collectives += 1
        return Schedule(self._engine, shared, self._rank, number)

    def _run(self, schedule: Schedule) -> Any:
        """Start the schedule, wait until it is done, and return its result."""
        engine = self._engine
        with engine.progress.lock:  # not the guard's: the operation has its number, so it has to begin
            schedule.start()
            if not schedule.done:
                engine.wait(schedule)
            engine.after_collective(schedule)
        return schedule.complete(None)

    def _slots(self) -> Exchange | None:
        """The exchange that small collectives take; None: they are schedules. Raises as `_schedule` does."""
        if self._shared.closed:
            self._refuse()
        engine = self._engine
        if engine.guard is not None:
            engine.guard.check()
        return exchange_of(engine, self._shared, self._rank)

    def _load_all(self, schedule: Schedule, slots: list[int]) -> list[Any]:
        return [self._engine.loads_value(schedule.values[slot]) for slot in slots]

    def _barrier_of_slots(self) -> bool:
        begun = quick.barrier(self)
        if begun is None:
            return True
        exchange = self._slots()
        if exchange is None:
            return False
        small.barrier(exchange, begun)
        return True

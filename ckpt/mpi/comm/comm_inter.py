"""Intercommunicators: messages and collectives between two disjoint groups.

Ranks in calls are ranks of the remote group. Both groups use the same context numbers. Each group has a private
intracommunicator, for what its members have to agree on alone. One group is the *low* one: its ranks come first when
Merge gives no other order, and its rank 0 chooses context numbers.

Processes that a program starts (`spawn`) and those that have started them are such two groups, too.
"""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any, ClassVar

from ckpt.mpi.base import envelope
from ckpt.mpi.base.commands import commands_of
from ckpt.mpi.base.constants import PROC_NULL, ROOT, TAG_UB, UNDEFINED
from ckpt.mpi.base.errors import ERR_ARG, ERR_COMM, ERR_ROOT, ERR_SPAWN, SUCCESS, MpiException
from ckpt.mpi.base.group import Group
from ckpt.mpi.base.integers import argument
from ckpt.mpi.collectives import inter
from ckpt.mpi.comm.comm_base import CommBase
from ckpt.mpi.comm.comm_failure import merged, no_finish
from ckpt.mpi.comm.communicator import Comm, Intracomm, world_of
from ckpt.mpi.comm.guard import guard_all
from ckpt.mpi.comm.unsupported import has_spawned, spawn_failed
from ckpt.mpi.datatypes.op import SUM, Op
from ckpt.mpi.engine import worlds
from ckpt.mpi.engine.comm_state import CommShared
from ckpt.mpi.engine.schedule import Schedule
from ckpt.mpi.engine.spawning import ask_for

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ckpt.mpi.engine.engine import Engine


INTERCOMM_TAG = TAG_UB
"""Tag of the messages between the leaders in Create_from_groups."""


class Side:
    """The local group of an intercommunicator: its private intracommunicator, and whether it is the low group."""

    __slots__ = ("local", "low")

    def __init__(self, local: Intracomm, low: bool) -> None:
        self.local = local
        self.low = low


class Intercomm(Comm):
    """An intercommunicator. Its size and rank are those of the local group; its peers are the remote group."""

    __slots__ = ()
    _builders: ClassVar[Any] = inter

    def __new__(cls, comm: Any = None) -> Any:
        self = super().__new__(cls, comm)
        if comm and "side" not in comm._shared.extras:
            raise TypeError(f"{cls.__name__}: cannot be made of an intracommunicator")
        return self

    @classmethod
    def _join(
        cls, engine: Engine, group: tuple[int, ...], peers: tuple[int, ...], base: int, side: Side
    ) -> Any:
        self: Any = CommBase.__new__(cls)
        shared = CommShared(base, group, peers, "", cls._handle_of)
        shared.extras["side"] = side
        private = side.local._shared
        # A rank of the local group may wait for a failed remote rank, and never take part in a local collective.
        private.related_ranks = peers
        shared.parts = (private.base,)
        engine.failed_ranks.register(private)
        self._bind(engine, shared)
        engine.register(shared)
        return self

    @classmethod
    def Create_from_groups(
        cls,
        local_group: Group,
        local_leader: int,
        remote_group: Group,
        remote_leader: int,
        stringtag: str = "org.mpi4py",
        info: Any = None,
        errhandler: Any = None,
    ) -> Any:
        """An intercommunicator of two groups. Only their members call it."""
        local_leader, remote_leader = argument(local_leader), argument(remote_leader)
        local = Intracomm.Create_from_group(local_group, stringtag)
        if not local:
            return cls()
        world = world_of(local._engine)
        leader = world._shared.group.index(remote_group._members[remote_leader])
        return create_intercomm(local, local_leader, world, leader, INTERCOMM_TAG)

    @property
    def _side(self) -> Side:
        side: Side = self._alive().extras["side"]
        return side

    def Is_inter(self) -> bool:
        self._alive()
        return True

    def _local_allgather(self, obj: Any) -> list[Any]:
        return self._side.local.allgather(obj)

    def Get_remote_group(self) -> Group:
        return Group._make(self._alive().peers, self._engine.progress.rank)

    @property
    def remote_group(self) -> Group:
        return self.Get_remote_group()

    def Get_remote_size(self) -> int:
        return len(self._alive().peers)

    @property
    def remote_size(self) -> int:
        return self.Get_remote_size()

    def _check_root(self, root: int) -> int:
        number = argument(root)
        if number in (ROOT, PROC_NULL):
            return number
        if not 0 <= number < len(self._peers):
            raise MpiException(ERR_ROOT, f"root {number} in a remote group of {len(self._peers)} ranks")
        return number

    def _schedule(self) -> Schedule:
        schedule = super()._schedule()
        schedule.peers = self._shared.group + self._shared.peers
        return schedule

    # -- new communicators -------------------------------------------------------------------------

    def _agree(self, mine: Any) -> Any:
        """The object `mine` of rank 0 of the low group, at every rank of both groups. Collective."""
        side = self._side
        s = self._schedule()
        slot = s.slot(pickle.dumps(mine, 5) if side.low and self._rank == 0 else None)
        inter.spread(s, slot, low=side.low)
        self._run(s)
        return pickle.loads(s.values[slot])

    def _new_base(self) -> int:
        base: int = self._agree(self._engine.next_context())
        return base

    def _write_new_base(self, s: Schedule, slot: int) -> None:
        low = self._side.low
        if low and self._rank == 0:
            s.values[slot] = pickle.dumps(self._engine.next_context(), 5)
        inter.spread(s, slot, low=low)

    def Merge(self, high: bool = False) -> Any:
        """An intracommunicator of both groups. The ranks of the group with `high` come last; if both groups give the same
        value, the low group's ranks come first."""
        side = self._side
        wishes = self._exchange((bool(high), self._engine.next_context()))
        mine, theirs = bool(high), wishes[0][0]
        first = side.low if mine == theirs else not mine
        group, peers = self._shared.group, self._shared.peers
        members = group + peers if first else peers + group
        bases = side.local.allgather(self._engine.next_context())
        remote = self._exchange(bases[0])
        return self._with_errhandler_of_this(
            Intracomm._make(self._engine, members, bases[0] if first else remote[0])
        )

    def merge(self, obj: Any) -> tuple[Any, list[Any]]:
        """An intracommunicator of the surviving members of both groups, those of the low group first (of those that have
        started the others by Spawn), and the objects that they have given, in the order of their ranks in it.

        Both are agreed on: all survivors get the same, even if members die during the call. Not in MPI or mpi4py, as
        `shrink`, which see; Merge ends with an error when a member dies.
        """
        return merged(self, obj, Intracomm)

    def _exchange(self, obj: Any) -> list[Any]:
        """The list of the remote ranks' objects. Collective."""
        objects: list[Any] = Intercomm.allgather(self, obj)
        return objects

    def Create_group(self, group: Group, tag: int = 0) -> Any:
        raise MpiException(ERR_COMM, "Create_group needs an intracommunicator")

    def Split(self, color: int = 0, key: int = 0) -> Any:
        """The ranks with the same color in both groups form an intercommunicator. The result is null for color UNDEFINED,
        and if one group has no rank with the color."""
        color, key = argument(color), argument(key)
        if color < 0 and color != UNDEFINED:
            raise MpiException(ERR_ARG, f"negative color {color}")
        world = self._engine.progress.rank
        mine = (color, key, self._rank, world, self._engine.next_context())
        ours = self._side.local.allgather(mine)
        theirs = self._exchange(mine)
        local = self._side.local.Split(color, key)
        if color == UNDEFINED:
            return Intercomm()
        group, peers = _of_color(ours, color), _of_color(theirs, color)
        if not group or not peers:
            return Intercomm()
        base = group[0][4] if self._side.low else peers[0][4]
        made = Intercomm._join(
            self._engine,
            tuple([entry[3] for entry in group]),
            tuple([entry[3] for entry in peers]),
            base,
            Side(local, self._side.low),
        )
        return self._with_errhandler_of_this(made)

    def Create(self, group: Group) -> Any:
        """An intercommunicator of subgroups: each rank gives a subgroup of its local group."""
        members = group._members
        for member in members:
            if member not in self._alive().group:
                raise MpiException(ERR_COMM, "the group is no part of the local one")
        inside = self._engine.progress.rank in members
        return self.Split(
            0 if inside else UNDEFINED, members.index(self._engine.progress.rank) if inside else 0
        )

    # -- collectives on objects --------------------------------------------------------------------

    def barrier(self) -> None:
        Comm.Barrier(self)

    def bcast(self, obj: Any, root: int = 0) -> Any:
        """The root's object, at the ranks of the other group. None in the root's group."""
        root = self._check_root(root)
        s = self._schedule()
        slot = s.slot(self._engine.dumps(obj) if root == ROOT else None)
        inter.from_root(s, root, slot)
        self._run(s)
        return self._engine.loads_value(s.values[slot]) if root >= 0 else None

    def gather(self, sendobj: Any, root: int = 0) -> list[Any] | None:
        root = self._check_root(root)
        s = self._schedule()
        own = s.slot(self._engine.dumps(sendobj) if root >= 0 else None)
        slots = [s.slot() for _ in self._peers]
        inter.to_root(s, root, own, slots)
        self._run(s)
        return self._load_all(s, slots) if root == ROOT else None

    def scatter(self, sendobj: Sequence[Any] | None, root: int = 0) -> Any:
        root = self._check_root(root)
        s = self._schedule()
        slots = [s.slot(value) for value in self._dump_all(sendobj)] if root == ROOT else []
        own = s.slot()
        inter.one_each(s, root, slots, own)
        self._run(s)
        return self._engine.loads_value(s.values[own]) if root >= 0 else None

    def allgather(self, sendobj: Any) -> list[Any]:
        s = self._schedule()
        own = s.slot(self._engine.dumps(sendobj))
        slots = [s.slot() for _ in self._peers]
        inter.exchange(s, [own] * len(slots), slots)
        self._run(s)
        return self._load_all(s, slots)

    def alltoall(self, sendobj: Sequence[Any]) -> list[Any]:
        s = self._schedule()
        outgoing = [s.slot(value) for value in self._dump_all(sendobj)]
        incoming = [s.slot() for _ in self._peers]
        inter.exchange(s, outgoing, incoming)
        self._run(s)
        return self._load_all(s, incoming)

    def reduce(self, sendobj: Any, op: Op = SUM, root: int = 0) -> Any:
        """At the root, the objects of the other group combined in rank order; None at other ranks."""
        objects = Intercomm.gather(self, sendobj, root)
        return None if objects is None else _combine(objects, op)

    def allreduce(self, sendobj: Any, op: Op = SUM) -> Any:
        """The objects of the other group combined in rank order."""
        return _combine(Intercomm.allgather(self, sendobj), op)

    def _no_scan(self, *args: Any, **options: Any) -> Any:
        raise MpiException(ERR_COMM, "scan and exscan need an intracommunicator")

    Scan = Exscan = Iscan = Iexscan = Scan_init = Exscan_init = scan = exscan = _no_scan

    def _dump_all(self, objects: Sequence[Any] | None) -> list[bytes]:
        count = len(self._peers)
        items = [None] * count if objects is None else list(objects)
        if len(items) != count:
            raise ValueError(f"expecting {count} items, got {len(items)}")
        return [self._engine.dumps(item) for item in items]


def _combine(objects: list[Any], op: Op) -> Any:
    total = objects[0]
    for obj in objects[1:]:
        total = op(total, obj)
    return total


def _of_color(entries: list[Any], color: int) -> list[Any]:
    chosen = [entry for entry in entries if entry[0] == color]
    chosen.sort(key=lambda entry: (entry[1], entry[2]))
    return chosen


def create_intercomm(
    local: Intracomm, local_leader: int, peer_comm: Any, remote_leader: int, tag: int
) -> Any:
    """An intercommunicator of the group of `local` and another group. Collective over both groups.

    The two leaders exchange their groups over `peer_comm`, then each leader broadcasts the result to its group."""
    engine = local._engine
    leader = local._check_root(local_leader)
    remote_leader, tag = argument(remote_leader), argument(tag)
    news: Any = None
    if local.rank == leader:
        base = engine.next_context()
        mine = (engine.progress.rank, base, local._shared.group)
        bridge = Intracomm._make(engine, peer_comm._shared.peers, peer_comm._shared.base)
        bridge._rank = peer_comm._rank
        bridge._use_plane(envelope.PLANE_INTERNAL)
        try:
            theirs = bridge.sendrecv(mine, remote_leader, tag, source=remote_leader, recvtag=tag)
        except MpiException as error:
            # The leader sends the error to its group, which would wait for ever otherwise.
            news = error.error_code, error.detail
        else:
            low = mine[0] < theirs[0]
            news = (theirs[2], base if low else theirs[1], low)
    news = local.bcast(news, leader)
    if len(news) == 2:
        raise MpiException(*news)
    peers, base, low = news
    made = Intercomm._join(engine, local._shared.group, peers, base, Side(local.Dup(), low))
    return local._with_errhandler_of_this(made)


# -- processes that are started ------------------------------------------------------------------------


def spawn(comm: Intracomm, root: int, codes: list[list[int]], what: tuple[Any, ...]) -> Any:
    """An intercommunicator with processes that are started: see `Factories.Spawn`. `what` (command, args, maxprocs, info)
    counts at the root; the lists of error codes are appended to `codes`.

    The root asks for the processes and waits. Then all agree on what it has been told: so either all that live make the
    communicator, or none does, whoever dies meanwhile."""
    engine, shared, root = comm._engine, comm._alive(), comm._check_root(root)
    comm._world_rank(0)  # raises for a revoked communicator
    token = f"{shared.base}.{shared.agreements}"
    told: Any = None
    failure: Exception | None = None
    if comm._rank == root:
        try:
            told = ask_for(engine, shared, token, commands_of(*what))
        except Exception as error:  # the others wait for what the root says
            failure, told = error, f"the root could not ask: {error}"
    with engine.lock:
        consensus = comm._start_consensus("Spawn", -1, told, no_finish)
        engine.wait(consensus)
        told = None if consensus.error else consensus.value[3].get(shared.group[root])
        if told is None:
            worlds.ask({"m": "request", "what": "void", "token": token})
            raise consensus.error or engine.failed_ranks.failure(shared.group[root])
    if failure is not None:
        raise failure
    if isinstance(told, str):
        if dead := consensus.value[1]:
            raise engine.failed_ranks.failure(dead[0])
        raise spawn_failed(told)
    numbers, bases, counts, wanted = told
    for started, asked in zip(counts, wanted, strict=True):
        codes.append([SUCCESS] * started + [ERR_SPAWN] * (asked - started))
    has_spawned()
    local = Intracomm._make(engine, shared.group, bases[1])
    made = Intercomm._join(engine, shared.group, numbers, bases[0], Side(local, True))
    return comm._with_errhandler_of_this(made)


def parent() -> Any:
    """The intercommunicator of this process with those that have started it, or the null one (`CommObject.Get_parent`)."""
    engine = worlds.engine()
    spawns = engine.spawns
    if spawns is None or spawns.parent is None:
        return Intercomm()
    if spawns.handle is None:
        group, (base, _, private) = world_of(engine)._shared.group, spawns.parent["bases"]
        side = Side(Intracomm._make(engine, group, private), False)
        spawns.handle = Intercomm._join(engine, group, tuple(spawns.parent["group"]), base, side)
    return spawns.handle or Intercomm()


guard_all(Intercomm)

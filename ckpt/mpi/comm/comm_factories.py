"""Methods of intracommunicators that make communicators with a topology and intercommunicators.

Spawn and Spawn_multiple start processes where the job may have more (`ckpt run --spares K`); else they raise
NotImplementedError, as the methods that would connect jobs do (Accept, Connect).
Not here: Dup, Split, Create, Create_group (communicator.py)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ckpt.mpi.base.constants import NUMBERS, UNDEFINED
from ckpt.mpi.base.errors import ERR_ARG, ERR_DIMS, ERR_TOPOLOGY, MpiException
from ckpt.mpi.base.group import Group
from ckpt.mpi.base.info import INFO_NULL, Info
from ckpt.mpi.base.integers import elements
from ckpt.mpi.comm.comm_base import CommBase
from ckpt.mpi.comm.object_collectives import ObjectCollectives
from ckpt.mpi.comm.unsupported import PORTS, SPAWNING, not_offered
from ckpt.mpi.engine import worlds


class Factories(CommBase):
    """Base class of Intracomm with these methods. All are collective."""

    __slots__ = ()

    # -- intercommunicators ------------------------------------------------------------------------

    def Create_intercomm(self, local_leader: int, peer_comm: Any, remote_leader: int, tag: int = 0) -> Any:
        """An intercommunicator of this communicator's group and another group. Both leaders are in `peer_comm`."""
        from ckpt.mpi.comm.comm_inter import create_intercomm

        return create_intercomm(self, local_leader, peer_comm, remote_leader, tag)  # type: ignore[arg-type]

    @classmethod
    def Create_from_group(
        cls, group: Group, stringtag: str = "org.mpi4py", info: Info = INFO_NULL, errhandler: Any = None
    ) -> Any:
        """A communicator of a group. Only the members call it. `stringtag` distinguishes concurrent calls."""
        from ckpt.mpi.comm.communicator import world_of

        engine = worlds.engine()
        tag = sum(byte * 31**place for place, byte in enumerate(stringtag.encode()))
        return world_of(engine).Create_group(group, tag % 0x7FFFFFFF)

    # -- topologies --------------------------------------------------------------------------------

    def _with_topology(self, cls: Any, count: int, topology: Any) -> Any:
        """A communicator of class `cls` with the first `count` ranks and a topology; the null communicator at the other
        ranks."""
        members = self._alive().group[:count]
        base = ObjectCollectives.bcast(self, self._engine.next_context() if self._rank == 0 else None)
        if self._rank >= count:
            return cls()
        made = cls._make(self._engine, members, base)
        made._shared.topology = topology
        made._shared.errhandler = self._shared.errhandler
        return made

    def Create_cart(
        self, dims: Sequence[int], periods: Sequence[bool] | bool | None = None, reorder: bool = False
    ) -> Any:
        """A communicator with a Cartesian grid. periods: for each dimension, or for all, whether it is periodic.

        MpiException (ERR_DIMS): the grid has more nodes than there are ranks."""
        from ckpt.mpi.collectives.topology import Cart
        from ckpt.mpi.comm.comm_topology import Cartcomm

        cart = Cart(*self._grid(dims, periods))
        return self._with_topology(Cartcomm, cart.size, cart)

    def _grid(self, dims: Any, periods: Any) -> tuple[list[int], list[bool]]:
        sizes = elements(dims)
        if periods is None or isinstance(periods, bool):
            periods = [bool(periods)] * len(sizes)
        rings = [bool(period) for period in elements(periods, len(sizes))]
        total = 1
        for size in sizes:
            if size < 0:
                raise MpiException(ERR_DIMS, f"dimensions {sizes}")
            total *= size
        if total > self.size:
            raise MpiException(ERR_DIMS, f"a grid of {sizes} needs more than {self.size} ranks")
        return sizes, rings

    def Create_graph(self, index: Sequence[int], edges: Sequence[int], reorder: bool = False) -> Any:
        """A communicator with a graph: index[r] is the number of edges of nodes 0 to r, `edges` lists their ends.

        MpiException: ERR_TOPOLOGY for more nodes than ranks, ERR_ARG for bad index or edges."""
        from ckpt.mpi.collectives.topology import Graph
        from ckpt.mpi.comm.comm_topology import Graphcomm

        places, ends = _graph(index, edges)
        if len(places) > self.size:
            raise MpiException(ERR_TOPOLOGY, f"a graph of {len(places)} nodes for {self.size} ranks")
        for end in ends:
            if not 0 <= end < len(places):
                raise MpiException(ERR_ARG, f"edge to node {end} of {len(places)}")
        if (places[-1] if places else 0) != len(ends) or sorted(places) != places:
            raise MpiException(ERR_ARG, "index and edges do not fit together")
        return self._with_topology(Graphcomm, len(places), Graph(places, ends))

    def Create_dist_graph_adjacent(
        self,
        sources: Sequence[int],
        destinations: Sequence[int],
        sourceweights: Sequence[int] | int | None = None,
        destweights: Sequence[int] | int | None = None,
        info: Info = INFO_NULL,
        reorder: bool = False,
    ) -> Any:
        """A communicator with a distributed graph, for which every rank gives its own neighbours."""
        from ckpt.mpi.collectives.topology import DistGraph
        from ckpt.mpi.comm.comm_topology import Distgraphcomm

        come, go = self._ranks(sources), self._ranks(destinations)
        weights = _weights(sourceweights, len(come)), _weights(destweights, len(go))
        return self._with_topology(Distgraphcomm, self.size, DistGraph(come, go, *weights))

    def _ranks(self, ranks: Sequence[int] | None) -> list[int]:
        return [] if ranks is None else [self._check_neighbor(rank) for rank in elements(ranks)]

    def _check_neighbor(self, rank: int) -> int:
        self._world_rank(rank)
        return rank

    def Create_dist_graph(
        self,
        sources: Sequence[int],
        degrees: Sequence[int],
        destinations: Sequence[int],
        weights: Sequence[int] | int | None = None,
        info: Info = INFO_NULL,
        reorder: bool = False,
    ) -> Any:
        """A communicator with a distributed graph, for which every rank gives some edges: from sources[i] to the next
        degrees[i] elements of `destinations`. ValueError: the lengths do not match."""
        from ckpt.mpi.collectives.topology import DistGraph
        from ckpt.mpi.comm.comm_topology import Distgraphcomm

        starts, ends = self._ranks(sources), self._ranks(destinations)
        counts = elements(degrees, len(starts))
        if sum(counts) != len(ends):
            raise ValueError("sources, degrees and destinations do not fit together")
        values = _weights(weights, len(ends))
        edges = []
        at = 0
        for source, count in zip(starts, counts, strict=True):
            for place in range(at, at + count):
                weight = None if values is None else values[place]
                edges.append((source, ends[place], weight))
            at += count
        everything = ObjectCollectives.allgather(self, (values is not None, edges))
        come, go = [], []
        for _, theirs in everything:
            come += [(edge[0], edge[2]) for edge in theirs if edge[1] == self._rank]
            go += [(edge[1], edge[2]) for edge in theirs if edge[0] == self._rank]
        weighted = any(flag for flag, theirs in everything if theirs) or any(flag for flag, _ in everything)
        graph = DistGraph(
            [rank for rank, _ in come],
            [rank for rank, _ in go],
            [weight for _, weight in come] if weighted else None,
            [weight for _, weight in go] if weighted else None,
        )
        return self._with_topology(Distgraphcomm, self.size, graph)

    def Cart_map(self, dims: Sequence[int], periods: Sequence[bool] | None = None) -> int:
        """The rank that Create_cart would give this process."""
        sizes, _ = self._grid(dims, periods)
        total = 1
        for size in sizes:
            total *= size
        return self.rank if self.rank < total else UNDEFINED

    def Graph_map(self, index: Sequence[int], edges: Sequence[int]) -> int:
        """The rank that Create_graph would give this process."""
        places, _ = _graph(index, edges)
        return self.rank if self.rank < len(places) else UNDEFINED

    # -- processes ---------------------------------------------------------------------------------

    def Spawn(
        self,
        command: Any,
        args: Sequence[str] | None = None,
        maxprocs: int = 1,
        info: Info = INFO_NULL,
        root: int = 0,
        errcodes: list[int] | None = None,
    ) -> Any:
        """Start `maxprocs` processes of a Python program, and return the intercommunicator with them. Collective; what is
        started counts at `root` alone. `command`: the interpreter, with the words that ``python`` takes as `args`; or a
        script, with its arguments. Keys of `info`: "wdir", "path", "soft".

        MpiException (ERR_SPAWN), at all members: too few processes are left of ``--spares``, the command is no Python
        program or cannot be read, a process has died before all were there. NotImplementedError: a job without
        ``--spares``.
        """
        codes: list[list[int]] = []
        made = self._spawn("Spawn", root, codes, [command], [args], [maxprocs], [info])
        if errcodes is not None:
            errcodes[:] = codes[0]
        return made

    def Spawn_multiple(
        self,
        command: Sequence[Any],
        args: Sequence[Sequence[str]] | None = None,
        maxprocs: Sequence[int] | int | None = None,
        info: Sequence[Info] | Info = INFO_NULL,
        root: int = 0,
        errcodes: list[list[int]] | None = None,
    ) -> Any:
        """As Spawn, for several commands, whose processes have one COMM_WORLD. Their attribute APPNUM is the number of their
        command. `maxprocs`: of each, by default 1; an info may stand for all."""
        codes: list[list[int]] = []
        made = self._spawn("Spawn_multiple", root, codes, command, args, maxprocs, info)
        if errcodes is not None:
            errcodes[:] = codes
        return made

    def _spawn(self, name: str, root: int, codes: list[list[int]], *what: Any) -> Any:
        from ckpt.mpi.comm.comm_inter import spawn

        if not worlds.may_spawn():
            raise not_offered(f"Intracomm.{name}", SPAWNING)
        return spawn(self, root, codes, what)  # type: ignore[arg-type]

    # -- not offered -------------------------------------------------------------------------------

    def Accept(self, *args: Any, **options: Any) -> Any:
        raise not_offered("Intracomm.Accept", PORTS)

    def Connect(self, *args: Any, **options: Any) -> Any:
        raise not_offered("Intracomm.Connect", PORTS)


def _graph(index: Sequence[int], edges: Sequence[int]) -> tuple[list[int], list[int]]:
    places, ends = elements(index), elements(edges)
    if len(places) > 1 and places[0] == 0 and places[-1] == len(ends):
        del places[0]  # mpi4py also allows the leading zero of an adjacency array
    return places, ends


def _weights(weights: Sequence[int] | int | None, count: int) -> list[int] | None:
    if weights is None or (isinstance(weights, int) and weights == NUMBERS["UNWEIGHTED"]):
        return None
    if isinstance(weights, int) and weights == NUMBERS["WEIGHTS_EMPTY"]:
        if count:
            raise ValueError(f"empty weights for {count} edges")
        return []
    return elements(weights, count)  # type: ignore[arg-type]  # which refuses other numbers

"""Communicators with a topology: Cartesian grids, graphs, distributed graphs, and neighbourhood collectives.

The topologies are in collectives/topology.py. The constructors (Create_cart …) are in comm_factories.py."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from ckpt.mpi.base.constants import CART, DIST_GRAPH, GRAPH
from ckpt.mpi.base.integers import argument, elements
from ckpt.mpi.collectives import neighbor_builders
from ckpt.mpi.collectives.topology import Cart
from ckpt.mpi.comm.communicator import Intracomm
from ckpt.mpi.comm.guard import guard_all
from ckpt.mpi.requests.request import Prequest, Request


class Topocomm(Intracomm):
    """A communicator with a topology, which defines the neighbours of each rank. For the order of neighbours and blocks see
    collectives/neighbor_builders.py."""

    __slots__ = ()
    _types: ClassVar[tuple[int, ...]] = (CART, GRAPH, DIST_GRAPH)

    def __new__(cls, comm: Any = None) -> Any:
        self = super().__new__(cls, comm)
        if comm and (comm._shared.topology is None or comm._shared.topology.topology_type not in cls._types):
            raise TypeError(f"{cls.__name__}: the communicator has no such topology")
        return self

    def _derive(self, members: tuple[int, ...], base: int) -> Any:
        return self._with_errhandler_of_this(Intracomm._make(self._engine, members, base))

    @property
    def _topology(self) -> Any:
        return self._alive().topology

    @property
    def inedges(self) -> list[int]:
        """The incoming neighbours, in the order of the blocks of the receive buffer."""
        return list(self._topology.incoming(self._rank))

    @property
    def outedges(self) -> list[int]:
        """The outgoing neighbours, in the order of the blocks of the send buffer."""
        return list(self._topology.outgoing(self._rank))

    @property
    def inoutedges(self) -> tuple[list[int], list[int]]:
        return self.inedges, self.outedges

    @property
    def indegree(self) -> int:
        return len(self.inedges)

    @property
    def outdegree(self) -> int:
        return len(self.outedges)

    @property
    def degrees(self) -> tuple[int, int]:
        return self.indegree, self.outdegree

    # -- objects -----------------------------------------------------------------------------------

    def neighbor_allgather(self, sendobj: Any) -> list[Any]:
        """The list of the incoming neighbours' objects; None for a neighbour that does not exist."""
        s = self._schedule()
        own = s.slot(self._engine.dumps(sendobj))
        slots = [s.slot() for _ in self.inedges]
        neighbor_builders.exchange(s, self._topology, [own] * self.outdegree, slots)
        self._run(s)
        return self._load_some(s, slots)

    def neighbor_alltoall(self, sendobj: Sequence[Any]) -> list[Any]:
        """Send sendobj[k] to outgoing neighbour k. Returns the list of the objects of the incoming neighbours.

        ValueError: there is not exactly one object for each outgoing neighbour."""
        objects = [None] * self.outdegree if sendobj is None else list(sendobj)
        if len(objects) != self.outdegree:
            raise ValueError(f"expecting {self.outdegree} items, got {len(objects)}")
        values = [self._engine.dumps(obj) for obj in objects]
        s = self._schedule()
        outgoing = [s.slot(value) for value in values]
        slots = [s.slot() for _ in self.inedges]
        neighbor_builders.exchange(s, self._topology, outgoing, slots)
        self._run(s)
        return self._load_some(s, slots)

    def _load_some(self, s: Any, slots: list[int]) -> list[Any]:
        values = [s.values[slot] for slot in slots]
        return [None if value is None else self._engine.loads_value(value) for value in values]

    # -- buffers -----------------------------------------------------------------------------------

    def _neighbor(self, builder: Any, sendbuf: Any, recvbuf: Any, variant: str) -> Any:
        s = self._schedule()
        builder(s, self._topology, sendbuf, recvbuf, variant=variant)
        return s

    def _neighbor_init(self, builder: Any, sendbuf: Any, recvbuf: Any, variant: str) -> Prequest:
        return self._persistent(builder, self._topology, sendbuf, recvbuf, variant=variant)

    def Neighbor_allgather(self, sendbuf: Any, recvbuf: Any) -> None:
        """Send one buffer to all outgoing neighbours; block k of `recvbuf` is from incoming neighbour k."""
        self._run(self._neighbor(neighbor_builders.allgather, sendbuf, recvbuf, ""))

    def Ineighbor_allgather(self, sendbuf: Any, recvbuf: Any) -> Request:
        """Neighbor_allgather, nonblocking."""
        return self._begin(self._neighbor(neighbor_builders.allgather, sendbuf, recvbuf, ""))

    def Neighbor_allgather_init(self, sendbuf: Any, recvbuf: Any, info: Any = None) -> Prequest:
        """Neighbor_allgather, persistent."""
        return self._neighbor_init(neighbor_builders.allgather, sendbuf, recvbuf, "")

    def Neighbor_allgatherv(self, sendbuf: Any, recvbuf: Any) -> None:
        """Neighbor_allgather with a count and displacement for each incoming neighbour."""
        self._run(self._neighbor(neighbor_builders.allgather, sendbuf, recvbuf, "v"))

    def Ineighbor_allgatherv(self, sendbuf: Any, recvbuf: Any) -> Request:
        """Neighbor_allgatherv, nonblocking."""
        return self._begin(self._neighbor(neighbor_builders.allgather, sendbuf, recvbuf, "v"))

    def Neighbor_allgatherv_init(self, sendbuf: Any, recvbuf: Any, info: Any = None) -> Prequest:
        """Neighbor_allgatherv, persistent."""
        return self._neighbor_init(neighbor_builders.allgather, sendbuf, recvbuf, "v")

    def Neighbor_alltoall(self, sendbuf: Any, recvbuf: Any) -> None:
        """Send block k to outgoing neighbour k; block k of `recvbuf` is from incoming neighbour k."""
        self._run(self._neighbor(neighbor_builders.alltoall, sendbuf, recvbuf, ""))

    def Ineighbor_alltoall(self, sendbuf: Any, recvbuf: Any) -> Request:
        """Neighbor_alltoall, nonblocking."""
        return self._begin(self._neighbor(neighbor_builders.alltoall, sendbuf, recvbuf, ""))

    def Neighbor_alltoall_init(self, sendbuf: Any, recvbuf: Any, info: Any = None) -> Prequest:
        """Neighbor_alltoall, persistent."""
        return self._neighbor_init(neighbor_builders.alltoall, sendbuf, recvbuf, "")

    def Neighbor_alltoallv(self, sendbuf: Any, recvbuf: Any) -> None:
        """Neighbor_alltoall with a count and displacement for each neighbour."""
        self._run(self._neighbor(neighbor_builders.alltoall, sendbuf, recvbuf, "v"))

    def Ineighbor_alltoallv(self, sendbuf: Any, recvbuf: Any) -> Request:
        """Neighbor_alltoallv, nonblocking."""
        return self._begin(self._neighbor(neighbor_builders.alltoall, sendbuf, recvbuf, "v"))

    def Neighbor_alltoallv_init(self, sendbuf: Any, recvbuf: Any, info: Any = None) -> Prequest:
        """Neighbor_alltoallv, persistent."""
        return self._neighbor_init(neighbor_builders.alltoall, sendbuf, recvbuf, "v")

    def Neighbor_alltoallw(self, sendbuf: Any, recvbuf: Any) -> None:
        """Neighbor_alltoall with a count, displacement in bytes and datatype for each neighbour."""
        self._run(self._neighbor(neighbor_builders.alltoall, sendbuf, recvbuf, "w"))

    def Ineighbor_alltoallw(self, sendbuf: Any, recvbuf: Any) -> Request:
        """Neighbor_alltoallw, nonblocking."""
        return self._begin(self._neighbor(neighbor_builders.alltoall, sendbuf, recvbuf, "w"))

    def Neighbor_alltoallw_init(self, sendbuf: Any, recvbuf: Any, info: Any = None) -> Prequest:
        """Neighbor_alltoallw, persistent."""
        return self._neighbor_init(neighbor_builders.alltoall, sendbuf, recvbuf, "w")


class Cartcomm(Topocomm):
    """A communicator with a Cartesian grid."""

    __slots__ = ()
    _types = (CART,)

    def Get_dim(self) -> int:
        """Number of dimensions."""
        return len(self._topology.dims)

    dim = ndim = property(Get_dim)

    def Get_topo(self) -> tuple[list[int], list[int], list[int]]:
        """(dimensions, periods, own coordinates)"""
        cart = self._topology
        return list(cart.dims), [int(ring) for ring in cart.periods], cart.coords(self._rank)

    topo = property(Get_topo)

    @property
    def dims(self) -> list[int]:
        return list(self._topology.dims)

    @property
    def periods(self) -> list[int]:
        return [int(ring) for ring in self._topology.periods]

    @property
    def coords(self) -> list[int]:
        return self.Get_coords(self._rank)

    def Get_cart_rank(self, coords: Sequence[int]) -> int:
        cart = self._topology
        rank: int = cart.rank(elements(coords, len(cart.dims)))
        return rank

    def Get_coords(self, rank: int) -> list[int]:
        coords: list[int] = self._topology.coords(argument(rank))
        return coords

    def Shift(self, direction: int, disp: int) -> tuple[int, int]:
        """(source, destination) of this rank when every rank sends to the rank `disp` steps further in a dimension."""
        pair: tuple[int, int] = self._topology.shift(self._rank, argument(direction), argument(disp))
        return pair

    def Sub(self, remain_dims: Sequence[bool]) -> Any:
        """The subgrid of this rank: it has the dimensions that `remain_dims` marks, and the ranks with this rank's
        coordinates in the other dimensions."""
        cart = self._topology
        flags = elements(remain_dims, len(cart.dims))
        color = key = 0
        dims, periods = [], []
        for at, size, ring, stays in zip(self.coords, cart.dims, cart.periods, flags, strict=True):
            if stays:
                key = key * size + at
                dims.append(size)
                periods.append(ring)
            else:
                color = color * size + at
        part = self.Split(color, key)
        made = Cartcomm._make(self._engine, part._shared.group, part._shared.base)
        made._shared.topology = Cart(dims, periods)
        return self._with_errhandler_of_this(made)


class Graphcomm(Topocomm):
    """A communicator with a graph that every rank knows completely."""

    __slots__ = ()
    _types = (GRAPH,)

    def Get_dims(self) -> tuple[int, int]:
        """(nodes, edges)"""
        return len(self._topology.index), len(self._topology.edges)

    dims = property(Get_dims)

    @property
    def nnodes(self) -> int:
        return self.Get_dims()[0]

    @property
    def nedges(self) -> int:
        return self.Get_dims()[1]

    def Get_topo(self) -> tuple[list[int], list[int]]:
        """(index, edges)"""
        return list(self._topology.index), list(self._topology.edges)

    topo = property(Get_topo)

    @property
    def index(self) -> list[int]:
        return self.Get_topo()[0]

    @property
    def edges(self) -> list[int]:
        return self.Get_topo()[1]

    def Get_neighbors_count(self, rank: int) -> int:
        return len(self._topology.neighbors(argument(rank)))

    def Get_neighbors(self, rank: int) -> list[int]:
        return list(self._topology.neighbors(argument(rank)))

    @property
    def nneighbors(self) -> int:
        return self.Get_neighbors_count(self._rank)

    @property
    def neighbors(self) -> list[int]:
        return self.Get_neighbors(self._rank)


class Distgraphcomm(Topocomm):
    """A communicator with a distributed graph: every rank knows only its own edges."""

    __slots__ = ()
    _types = (DIST_GRAPH,)

    def Get_dist_neighbors_count(self) -> tuple[int, int, bool]:
        """(number of incoming neighbours, of outgoing neighbours, whether the graph is weighted)"""
        graph = self._topology
        return len(graph.sources), len(graph.destinations), graph.source_weights is not None

    def Get_dist_neighbors(self) -> tuple[list[int], list[int], tuple[list[int], list[int]] | None]:
        """(sources, destinations, (weights of sources, weights of destinations) or None)"""
        graph = self._topology
        weights = None
        if graph.source_weights is not None:
            weights = list(graph.source_weights), list(graph.destination_weights or ())
        return list(graph.sources), list(graph.destinations), weights


guard_all(Topocomm, Cartcomm, Graphcomm, Distgraphcomm)

__all__ = ["Cartcomm", "Distgraphcomm", "Graphcomm", "Topocomm"]

"""Virtual topologies (MPI standard, "Process topologies"): Cartesian grids, graphs, distributed graphs, by rank.

For the neighbourhood collectives, `outgoing(rank)` and `incoming(rank)` list the neighbours in the order of the blocks of
the send and receive buffers; PROC_NULL stands for a neighbour that does not exist. `arrival(rank)` is the order in which
the receives from the incoming neighbours are posted, as indices into `incoming(rank)`. The order matters when one process
is several neighbours at the same time: its messages arrive in the order of its outgoing list.

Not here: communicators with a topology (comm/comm_topology.py).
"""

from __future__ import annotations

from collections.abc import Sequence

from ckpt.mpi.base.constants import CART, DIST_GRAPH, GRAPH, PROC_NULL
from ckpt.mpi.base.errors import ERR_ARG, ERR_DIMS, ERR_RANK, MpiException


class Cart:
    """A Cartesian grid. The coordinate of the last dimension varies fastest with the rank.

    ERR_RANK, ERR_ARG and ERR_DIMS: a rank, a coordinate or a direction is outside of the grid."""

    topology_type = CART

    def __init__(self, dims: list[int], periods: list[bool]) -> None:
        self.dims = dims
        self.periods = periods
        self.size = 1
        for dim in dims:
            self.size *= dim

    def coords(self, rank: int) -> list[int]:
        if not 0 <= rank < self.size:
            raise MpiException(ERR_RANK, f"rank {rank} in a grid of {self.size}")
        out: list[int] = []
        for dim in reversed(self.dims):
            out.append(rank % dim)
            rank //= dim
        return out[::-1]

    def rank(self, coords: Sequence[int]) -> int:
        if len(coords) != len(self.dims):
            raise ValueError(f"{len(coords)} coordinates in {len(self.dims)} dimensions")
        rank = 0
        for at, dim, ring in zip(coords, self.dims, self.periods, strict=True):
            if not 0 <= at < dim:
                if not ring:
                    raise MpiException(ERR_ARG, f"coordinate {at} outside of a dimension of {dim}")
                at %= dim
            rank = rank * dim + at
        return rank

    def shift(self, rank: int, direction: int, disp: int) -> tuple[int, int]:
        """(source, destination) of `rank` when every rank sends to the rank `disp` steps further in `direction`."""
        if not 0 <= direction < len(self.dims):
            raise MpiException(ERR_DIMS, f"direction {direction} of {len(self.dims)} dimensions")
        return self._step(rank, direction, -disp), self._step(rank, direction, disp)

    def _step(self, rank: int, direction: int, disp: int) -> int:
        coords = self.coords(rank)
        coords[direction] += disp
        if not self.periods[direction] and not 0 <= coords[direction] < self.dims[direction]:
            return PROC_NULL
        return self.rank(coords)

    def outgoing(self, rank: int) -> list[int]:
        out: list[int] = []
        for direction in range(len(self.dims)):
            out += self.shift(rank, direction, 1)
        return out

    incoming = outgoing

    def arrival(self, rank: int) -> list[int]:
        # The lower neighbour sends its second block to this rank, which is its upper neighbour. Where both neighbours
        # are the same process, its first block arrives first: the block for its lower neighbour, from our upper one.
        order = []
        for direction in range(len(self.dims)):
            order += [2 * direction + 1, 2 * direction]
        return order


class Graph:
    """A graph that every rank knows completely: the neighbours of node r are edges[index[r-1]:index[r]]."""

    topology_type = GRAPH

    def __init__(self, index: list[int], edges: list[int]) -> None:
        self.index = index
        self.edges = edges

    def neighbors(self, rank: int) -> list[int]:
        if not 0 <= rank < len(self.index):
            raise MpiException(ERR_RANK, f"node {rank} of {len(self.index)}")
        return self.edges[self.index[rank - 1] if rank else 0 : self.index[rank]]

    outgoing = incoming = neighbors

    def arrival(self, rank: int) -> list[int]:
        return list(range(len(self.neighbors(rank))))


class DistGraph:
    """The edges of one rank in a distributed graph. Weights None: the graph is unweighted."""

    topology_type = DIST_GRAPH

    def __init__(
        self,
        sources: list[int],
        destinations: list[int],
        source_weights: list[int] | None,
        destination_weights: list[int] | None,
    ) -> None:
        self.sources = sources
        self.destinations = destinations
        self.source_weights = source_weights
        self.destination_weights = destination_weights

    def outgoing(self, rank: int) -> list[int]:
        return self.destinations

    def incoming(self, rank: int) -> list[int]:
        return self.sources

    def arrival(self, rank: int) -> list[int]:
        return list(range(len(self.sources)))

"""The distribution of a matrix: block-cyclic, over process columns with virtual numbers.

A matrix of n × n numbers is divided into blocks of nb × nb. Block row i lies in process row i mod P, block column j
in the data column j mod Q; block columns J·Q … J·Q+Q-1 are the *group* J. A process holds its block rows one below
the other, and of every group one block column, so that the blocks of a group that lie in the same process row have
the same shape and the same rows: they can be added. That is what the process column of checksums holds, at the place
of the group.

A matrix whose order is no multiple of Q·nb is made larger by an identity in the corner (`Shape.order`).

`Column` is a process column with its place in the grid: Q columns of data have the virtual numbers 0 … Q-1, the columns of
checksums the numbers from Q on. Ranks are those of the grid's communicator. A column changes its number when it replaces
another; nothing of its data moves. `Roles` is what every rank is for, and changes as a whole (plan.py).

Pure: no communication, no clock.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ckpt.abft.decisions.encoding import Row, unit

__all__ = ["Column", "Place", "Roles", "Shape", "assign"]

Array = npt.NDArray[Any]


class Place(NamedTuple):
    """The place of a rank in the grid: process row `p`, virtual column `v` (from Q on: checksums)."""

    p: int
    v: int


@dataclass(frozen=True)
class Shape:
    """The distribution of a matrix of order `n` in blocks of `nb` over P × Q processes."""

    P: int
    Q: int
    n: int
    nb: int

    @property
    def blocks(self) -> int:
        """Number of block rows and columns, padding included."""
        return -(-self.n // (self.nb * self.Q)) * self.Q

    @property
    def order(self) -> int:
        """Order of the padded matrix."""
        return self.blocks * self.nb

    @property
    def groups(self) -> int:
        return self.blocks // self.Q

    def owner(self, k: int) -> int:
        """The data column that holds block column k, and factorises panel k."""
        return k % self.Q

    def root(self, k: int) -> int:
        """The process row that holds block row k."""
        return k % self.P

    def rows_before(self, p: int, i: int) -> int:
        """How many matrix rows the process row p holds in block rows below number i."""
        return self.nb * max(0, -(-(i - p) // self.P))

    def local_rows(self, p: int) -> int:
        return self.rows_before(p, self.blocks)

    def block_rows(self, p: int) -> range:
        return range(p, self.blocks, self.P)

    def row_numbers(self, p: int) -> Array:
        """The numbers of the matrix rows of process row p, in the order in which they are held."""
        blocks = np.array(self.block_rows(p), dtype=np.int64)
        return (blocks[:, None] * self.nb + np.arange(self.nb)).reshape(-1)

    def local(self, row: int) -> tuple[int, int]:
        """(process row, place there) of a matrix row."""
        block, within = divmod(row, self.nb)
        return block % self.P, block // self.P * self.nb + within

    def group_slice(self, group: int) -> slice:
        """The local columns of a group."""
        return slice(group * self.nb, (group + 1) * self.nb)


class Column(NamedTuple):
    """A process column: its ranks from process row 0 to P-1, and since which step it has its number.

    `since`: the number of the first panel that it applies as a column of data; for panels before it is a column of
    checksums. 0: a column of data from the start. Of no meaning in a column of checksums itself. `rows`: what it holds of
    every group (encoding.py); empty: true columns. `degree`: of its weights. `ready`: as a column of checksums it is
    complete once it has applied the panels below this step.
    """

    ranks: tuple[int, ...]
    since: int = 0
    rows: tuple[Row, ...] = ()
    degree: int = 0
    ready: int = 0


@dataclass(frozen=True)
class Roles:
    """What every living rank is for. `data`: columns 0 … Q-1. `checks`: columns of checksums. `idle`: all other ranks."""

    data: tuple[Column, ...]
    checks: tuple[Column, ...] = ()
    idle: tuple[int, ...] = ()

    def columns(self) -> Iterator[tuple[int, Column]]:
        """Every column with its virtual number."""
        yield from enumerate((*self.data, *self.checks))

    def numbers(self) -> tuple[int, ...]:
        return tuple(v for v, _ in self.columns())

    def column(self, v: int) -> Column:
        return (*self.data, *self.checks)[v]

    def rows(self, group: int) -> tuple[Row, ...]:
        """What the columns of data hold of a group."""
        Q = len(self.data)
        return tuple(column.rows[group] if column.rows else unit(v, Q) for v, column in enumerate(self.data))

    def rank(self, p: int, v: int) -> int:
        return self.column(v).ranks[p]

    def place(self, rank: int) -> Place | None:
        """Where a rank is in the grid; None: it is idle."""
        for v, column in self.columns():
            if rank in column.ranks:
                return Place(column.ranks.index(rank), v)
        return None

    def ranks(self) -> tuple[int, ...]:
        """All ranks, sorted."""
        found = set(self.idle)
        for _, column in self.columns():
            found.update(column.ranks)
        return tuple(sorted(found))


def assign(
    living: tuple[int, ...], P: int, Q: int, redundant: int, before: Roles | None = None
) -> Roles | None:
    """Roles for a solve in which no panel has been applied yet; None: fewer than P·Q ranks live.

    Whoever lives keeps its place in `before`. Empty places are filled by idle ranks, then by those of the checksums: without
    enough idle ranks there are fewer than `redundant` columns of checksums. Their rows are not said here.
    """
    if len(living) < P * Q:
        return None
    wanted = Q + min(redundant, (len(living) - P * Q) // P)
    kept: dict[Place, int] = {}
    if before is not None:
        for rank in living:
            place = before.place(rank)
            if place is not None and place.v < wanted:
                kept[place] = rank
    rest = [rank for rank in living if rank not in kept.values()]
    if before is not None:
        rest.sort(key=lambda rank: (rank not in before.idle, rank))
    for p in range(P):  # neighbours in a row are neighbours in the job
        for v in range(wanted):
            if Place(p, v) not in kept:
                kept[Place(p, v)] = rest.pop(0)
    columns = [Column(tuple(kept[Place(p, v)] for p in range(P))) for v in range(wanted)]
    return Roles(tuple(columns[:Q]), tuple(columns[Q:]), tuple(sorted(rest)))

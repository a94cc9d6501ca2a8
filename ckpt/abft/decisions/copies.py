"""Decides where copies of the panels are kept when the factors are wanted, and which are missing after a death.

Checksums protect what is still to be factorised, and U; not L, which no later step changes. So a panel is kept, in every
process row, by the column that has factorised it and by its neighbour (the column of checksums, if there is one column
of data). After a death whoever should have a copy and has none gets one from the other column.

Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ckpt.abft.decisions.grid import Roles, Shape
from ckpt.abft.errors import TooManyLost

__all__ = ["holders", "missing"]


def holders(Q: int, k: int) -> tuple[int, int]:
    """The virtual numbers of the columns that keep panel k."""
    return k % Q, (k + 1) % Q if Q > 1 else Q


def missing(
    shape: Shape, roles: Roles, held: Mapping[int, Collection[int]], base: int
) -> list[tuple[int, int, int]]:
    """(from, to, k) for every copy of the panels below `base` that is not there. `held`: what each rank has. Raises
    TooManyLost: nobody has it."""
    found = []
    columns = dict(roles.columns())
    for p in range(shape.P):
        row = {v: column.ranks[p] for v, column in columns.items()}
        for k in range(base):
            having = [rank for rank in row.values() if k in held.get(rank, ())]
            if not having:
                raise TooManyLost(
                    f"both copies of panel {k} in process row {p} are gone: the factors cannot be had"
                )
            lacking = (row[v] for v in holders(shape.Q, k) if v in row and row[v] not in having)
            found += [(having[0], rank, k) for rank in lacking]
    return found

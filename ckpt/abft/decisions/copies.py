"""Decides where copies of the panels are kept when the factors are wanted, and which are missing after a death.

Checksums protect what is still to be factorised, and U; not L, which no later step changes. So a panel is kept, in every
process row, by the column that has factorised it and by as many neighbours as columns may be lost at once (the first column
of checksums among them, if there are not enough columns of data). After a death whoever should have a copy and has none gets
one from another column.

Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ckpt.abft.decisions.grid import Roles, Shape
from ckpt.abft.errors import TooManyLost

__all__ = ["holders", "missing"]


def holders(Q: int, k: int, redundant: int) -> tuple[int, ...]:
    """The virtual numbers of the columns that keep panel k: so many of them more than one."""
    found = tuple((k + turn) % Q for turn in range(min(Q, redundant + 1)))
    return (*found, Q) if redundant >= Q else found


def missing(
    shape: Shape, roles: Roles, held: Mapping[int, Collection[int]], base: int, redundant: int
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
                    f"all copies of panel {k} in process row {p} are gone: the factors cannot be had"
                )
            lacking = (row[v] for v in holders(shape.Q, k, redundant) if v in row and row[v] not in having)
            found += [(having[0], rank, k) for rank in lacking]
    return found

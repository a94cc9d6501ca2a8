"""The ways of a panel along a process row: who gets it from whom.

    star     the owner sends to every other column: the shortest way, for few columns
    ring     the paper's increasing-2-ring-modified: the owner sends to the column after it first (that one factorises
             the next panel), then to the heads of two rings, in which every column sends on to the next

Every column but the owner has a *father*. The paper makes this robust by status messages from son to father. Here nobody
answers: a rank that meets a failure ends all communication of the solve (it revokes the communicator), all ranks meet
and say how far they are, and `resend` gives the panel to those that lack it, from any column of the row that has it.
If none has, no column can have applied it.

Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["STAR_COLUMNS", "Way", "resend", "ways"]

STAR_COLUMNS = 4
"""Up to so many columns, checksums included, the owner sends to each by itself."""


class Way(NamedTuple):
    """One column's part: from whom it receives (None: it is the owner), and to whom it sends, in this order."""

    father: int | None
    sons: tuple[int, ...]


def ways(columns: Sequence[int], owner: int, *, star: bool | None = None) -> dict[int, Way]:
    """The part of each of these columns (in increasing order) in the broadcast of a panel of `owner`.

    `star`: which of the two ways; None: by the number of columns.
    """
    at = columns.index(owner)
    others = [*columns[at + 1 :], *columns[:at]]
    if star if star is not None else len(columns) <= STAR_COLUMNS:
        return {owner: Way(None, tuple(others)), **{each: Way(owner, ()) for each in others}}
    first, rest = others[:1], others[1:]
    half = -(-len(rest) // 2)
    rings = [ring for ring in (rest[:half], rest[half:]) if ring]
    found = {
        owner: Way(None, (*first, *(ring[0] for ring in rings))),
        **{each: Way(owner, ()) for each in first},
    }
    for ring in rings:
        for place, each in enumerate(ring):
            found[each] = Way(ring[place - 1] if place else owner, tuple(ring[place + 1 : place + 2]))
    return found


def resend(holders: Sequence[int], lacking: Sequence[int]) -> list[tuple[int, int]] | None:
    """(from, to) for each column that lacks the panel, the work shared among those that have it; None: nobody has it."""
    if not holders:
        return None
    return [(holders[turn % len(holders)], each) for turn, each in enumerate(lacking)]

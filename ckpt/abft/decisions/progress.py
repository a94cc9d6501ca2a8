"""What a rank says of itself at a meeting, where nothing is factorised (of the solve it is `State`, course.py).

Pure: data only.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Progress"]


class Progress(NamedTuple):
    """What a rank says of itself at a meeting. `step`: as the operation counts; -1: it holds nothing. `done`: it has the
    result; `checked`: the last meeting since which it has looked at its share of it; `corrected`: how many
    wrong numbers it has put right; `redone`: how many spoilt arrays it has got. `problem`, `signature`, `remarks`: as in the
    solve's `State`."""

    rank: int
    step: int = -1
    done: bool = False
    checked: int = 0
    corrected: int = 0
    redone: int = 0
    problem: str | None = None
    signature: str = ""
    remarks: tuple[float, ...] = ()

    def of_new(self, rank: int) -> Progress:
        """What is said of a process that was started for this meeting."""
        return Progress(rank, signature=self.signature)

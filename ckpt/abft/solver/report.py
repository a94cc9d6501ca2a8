"""The report of a solve: `x.report`.

A `Solution` is numpy's array of x with the `Report` as an attribute; arrays that are made of it have none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["Loss", "Report", "Solution"]

_WORDS = {
    "replaced": "its column {column} was replaced by the checksums",
    "checksums lost": "the column of checksums is gone",
    "encoding": "new checksums are encoded",
    "idle lost": "it held nothing",
    "again": "nothing was lost: its place was given to another rank",
}


@dataclass(frozen=True)
class Loss:
    """What all ranks agreed on after a death.

    `ranks`: of the grid, who had died since the last meeting. `corrupt`: who had wrong numbers. `step`, `steps`: the
    panel from which all went on, and how many there are (0: there are no steps). `happened`: "replaced", "checksums
    lost", "encoding", "idle lost", "again", each with the column. `handling_ms`: from when this rank met the failure until
    it computed again. `caught_up`: steps that this rank had to catch up.
    """

    ranks: tuple[int, ...]
    corrupt: tuple[int, ...]
    step: int
    steps: int
    happened: tuple[tuple[str, int], ...]
    handling_ms: float
    caught_up: int

    def __str__(self) -> str:
        found = [(self.ranks, "died"), (self.corrupt, "had wrong numbers")]
        who = " and ".join(f"rank {', '.join(map(str, ranks))} {what}" for ranks, what in found if ranks)
        what = (
            "; ".join(_WORDS[name].format(column=column) for name, column in self.happened)
            or "nothing changed"
        )
        if not self.steps:
            return f"{who}: {what}"
        return f"{who}, seen at step {self.step} of {self.steps}: {what} ({self.handling_ms:.1f} ms)"


@dataclass(frozen=True)
class Report:
    """What all ranks have found, but for the times.

    `living`: the ranks of the grid that have the solution. `residual`: max |b - A·x| / (ε · (‖A‖·‖x‖ + ‖b‖) · n) in the
    maximum norm, as Linpack has it; nan: not looked at. `protected`: whether there were complete checksums at the end.
    `replaced`: how many columns of data are checksums at the end. `corrected`: wrong numbers that were
    put right; `redone`: how often something was made, or sent, again, since it was wrong. `seconds`: of this rank, in the
    whole solve. `remarks`: what the user should know. `started`: processes
    that were started to form new checksums; their numbers in `living` are those behind the grid's ranks.
    """

    order: int
    grid: tuple[int, int]
    losses: tuple[Loss, ...]
    living: tuple[int, ...]
    residual: float
    protected: bool
    replaced: int
    corrected: int
    seconds: float
    remarks: tuple[str, ...] = ()
    started: int = 0
    redone: int = 0

    @property
    def died(self) -> tuple[int, ...]:
        """The ranks of the grid that died in the solve."""
        return tuple(rank for loss in self.losses for rank in loss.ranks)

    def __str__(self) -> str:
        P, Q = self.grid
        kind = "protected" if self.protected else "not protected"
        head = f"order {self.order} on {P} × {Q} processes, {kind} at the end"
        end = f"residual {self.residual:.3g}, {self.seconds:.3f} s"
        if self.corrected:
            end += f", {self.corrected} wrong numbers put right"
        if self.redone:
            end += f", {self.redone} times something wrong was made again"
        if self.started:
            end += f", {self.started} started to form checksums"
        return "\n".join([f"{head}: {end}", *map(str, self.losses), *self.remarks])


class Solution(np.ndarray[Any, np.dtype[Any]]):
    """The solution x, an array, with a `report`."""

    report: Report | None

    def __array_finalize__(self, obj: Any) -> None:
        self.report = None

    @classmethod
    def of(cls, x: Any, report: Report) -> Solution:
        found = np.asarray(x).view(cls)
        found.report = report
        return found

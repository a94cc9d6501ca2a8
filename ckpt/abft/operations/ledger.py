"""The state that all encoded arrays of a grid share: who holds what; and the meetings and transfers of its ranks
(encoded.py)."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar

import numpy as np

from ckpt.abft.decisions.columns import Layout, first_layout
from ckpt.abft.decisions.progress import Progress
from ckpt.abft.errors import RankFailed
from ckpt.abft.numbers.local import Array
from ckpt.abft.solver.link import Interrupted, Link
from ckpt.abft.solver.matrix import Grid
from ckpt.abft.solver.protected import log_loss, raise_problems, told
from ckpt.abft.solver.report import Loss

__all__ = ["Ledger", "Moves", "given"]

Result = TypeVar("Result")


class _Encoded(Protocol):
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def local(self) -> Array | None: ...


def given(held: Array | None) -> Array:
    """What is held, to be sent."""
    assert held is not None
    return np.asarray(held, order="C")  # a single number stays one


class Ledger:
    """Who holds what, for all encoded arrays of a grid; and how ranks meet. `epoch`: how often data were moved."""

    def __init__(self, grid: Grid) -> None:
        self.grid, self.link = grid, Link(grid.comm, grid.hook)
        self.layout: Layout | None = None
        self.epoch = self.calls = 0
        self.losses: list[Loss] = []
        self.probed: list[Any] = []  # the last operations that were found linear

    def together(self, name: str, work: Callable[[Layout], Result] | None) -> tuple[Layout, Result | None]:
        """Meet, take note of deaths, and do the work at all ranks: until all have done it with the same layout, which is
        returned with this rank's result. An error of one rank is raised at all of them."""
        self.calls += 1
        problem: str | None = None
        original: Exception | None = None
        layout: Layout | None = None
        result: Result | None = None
        seen_ns = 0
        while True:
            said = Progress(
                *(self.link.rank, self.calls, layout is not None),
                problem=problem,
                signature=f"{name} {self.calls}",
            )
            states = self.link.meet(said)
            try:
                raise_problems(states, "operations on encoded arrays")
            except RankFailed as failed:
                raise (original if original is not None else failed) from None
            if layout is not None and all(state.done for state in states.values()):
                return layout, result
            self.take_note(states, name, seen_ns)
            assert self.layout is not None
            layout = None
            try:
                result = work(self.layout) if work is not None else None
                layout = self.layout
            except Interrupted:
                seen_ns = time.perf_counter_ns()
                self.link.end()
            except Exception as error:
                original, problem = error, told(error)
                self.link.end()

    def take_note(self, states: Mapping[int, Progress], name: str, seen_ns: int = 0) -> None:
        """Replace the columns of those who have died."""
        grid, before = self.grid, self.layout
        living = tuple(sorted(states))
        if before is None:
            self.layout = first_layout(living, grid.P, grid.Q, grid.redundant)
            return
        died = tuple(rank for rank in before.ranks if rank not in states)
        if not died:
            return
        self.layout, happened = before.after(living, range(before.Q, len(before.columns)))
        took_ms = (time.perf_counter_ns() - seen_ns) / 1e6 if seen_ns else 0.0
        self.losses.append(Loss(died, (), 0, 0, happened, took_ms, 0))
        if self.link.rank == living[0]:
            log_loss("Encoded", self.losses[-1])

    def look(self) -> Loss | None:
        """Has anybody died? Costs one agreement, also if somebody has."""
        noted = len(self.losses)
        if self.link.has_met:
            self.calls += 1
            self.take_note({rank: Progress(rank) for rank in self.link.living()}, "replace")
        else:
            self.together("replace", None)
        return self.losses[-1] if len(self.losses) > noted else None


class Moves:
    """Data of one array that go from rank to rank within a process row."""

    def __init__(self, link: Link, array: _Encoded, layout: Layout) -> None:
        self.link, self.array, self.layout = link, array, layout
        self.place, self.held = layout.place(link.rank), array.local

    def run(self, formed: Layout, number: int) -> Array | None:
        """What this rank holds in the layout `formed`, in which replaced columns are turned back, and checksums are new."""
        held, layout, tag = self.held, self.layout, 16 * number + 2
        back = layout.back()
        for v in range(layout.Q):
            if not layout.is_true(v):
                found = self._mixed(v, back[v], layout, self.held, tag)
                held = found if found is not None else held
        for v in range(len(layout.columns), len(formed.columns)):
            found = self._mixed(v, np.array(formed.weights[v]), formed, held, tag + 1)
            held = found if found is not None else held
        return held if formed.place(self.link.rank) is not None else None

    def _mixed(self, v: int, weights: Array, layout: Layout, held: Array | None, tag: int) -> Array | None:
        """Column v gets a sum of what the columns of data hold, with these weights; None: this rank is not of it."""
        place = layout.place(self.link.rank)
        if place is None:
            return None
        target = layout.columns[v][place.p]
        if target != self.link.rank:
            if place.v < layout.Q and weights[place.v]:
                self.link.send(target, given(held), tag)
            return None
        found = np.zeros(self.array.shape, dtype=self.array.dtype)
        for u in range(layout.Q):
            if weights[u]:
                rank = layout.data[u][place.p]
                own = rank == self.link.rank
                part = given(held) if own else self.link.receive(rank, found.shape, found.dtype, tag)
                found += found.dtype.type(weights[u]) * part
        return found

    def compare(self) -> tuple[float, float]:
        """(largest difference, largest number) of all ranks."""
        layout, held = self.layout, self.held
        off = np.zeros(2)
        if held is not None:
            off[1] = float(np.abs(held).max(initial=0.0))
        for v in range(layout.Q, len(layout.columns)):
            found = self._mixed(v, layout.mixture(v), layout, held, 3)
            if found is not None:
                difference = np.abs(found - given(held))
                off[0] = np.inf if not np.isfinite(difference).all() else float(difference.max(initial=0.0))
        everybody = self.link.exchange(layout.ranks, off, dict.fromkeys(layout.ranks, off.shape), 4).values()
        return float(max(each[0] for each in everybody)), float(max(each[1] for each in everybody))

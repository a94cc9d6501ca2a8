"""Process columns whose data are sums of data, with any number of columns of checksums: products and the user's arrays.

Here nothing is ever factorised, so a lost column is replaced as a whole, at once, and stays so to the end. What the columns
hold is said by one matrix of *weights*: column v holds Σ_q weights[v][q]·X_q of the true parts X_0 … X_(Q-1). At first the
weights of the columns of data are the identity; this matrix is the inverse of the paper's T, for all replacements
together (Wang, Yao, Chen and others). Rows Q, Q+1, … are those of the checksums.

    lost data       as many complete columns of checksums take the places, those for which the weights stay best
                    conditioned; no data moves. Fewer of them than lost columns, or weights that are as good as
                    singular: TooManyLost
    idle ranks      who is left of a lost column; P of them can form a new column of checksums (`formed`)
    at the end      X = weights⁻¹ · what is held (`parts`)

The i-th column of checksums has the weights s_q·x_q^i of what is held, with random signs s_q and positive x_q that grow
with q: so any number of these rows are independent in any equal number of columns (Vandermonde). The first has signs alone.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import combinations
from math import exp

import numpy as np

from ckpt.abft.decisions.encoding import Array, sign
from ckpt.abft.decisions.grid import Place
from ckpt.abft.errors import TooManyLost

__all__ = ["HOPELESS", "Layout", "first_layout"]

HOPELESS = 1e6
"""Condition number of the weights from which on a replacement is refused."""

_SPREAD = 2.0
"""Logarithm of the ratio of the largest and smallest x_q."""

Weights = tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class Layout:
    """Who holds what. `data`: the ranks of columns 0 … Q-1. `checks`: those of the checksums. `weights`: a row for each of
    these. `degrees`: of the checksums. `lost`: all that have died, in order."""

    P: int
    redundant: int
    data: tuple[tuple[int, ...], ...]
    checks: tuple[tuple[int, ...], ...]
    idle: tuple[int, ...]
    weights: Weights
    degrees: tuple[int, ...]
    lost: tuple[int, ...] = ()

    @property
    def Q(self) -> int:
        return len(self.data)

    @property
    def columns(self) -> tuple[tuple[int, ...], ...]:
        return (*self.data, *self.checks)

    @property
    def ranks(self) -> tuple[int, ...]:
        return tuple(sorted((*(rank for column in self.columns for rank in column), *self.idle)))

    def place(self, rank: int) -> Place | None:
        for v, column in enumerate(self.columns):
            if rank in column:
                return Place(column.index(rank), v)
        return None

    @property
    def condition(self) -> float:
        """Of the weights of what is held as data: how much larger errors may become when the parts are computed back."""
        return float(np.linalg.cond(np.array(self.weights[: self.Q])))

    @property
    def replaced(self) -> int:
        """How many columns of data are checksums."""
        return sum(not self.is_true(v) for v in range(self.Q))

    def after(
        self, living: Iterable[int], complete: Iterable[int]
    ) -> tuple[Layout, tuple[tuple[str, int], ...]]:
        """The layout without those who do not live, and what happened, as in `Loss`. `complete`: the numbers of the
        columns of checksums that hold what they should. Raises TooManyLost."""
        alive = set(living)
        died = tuple(rank for rank in self.ranks if rank not in alive)
        gone = [v for v, column in enumerate(self.data) if not alive.issuperset(column)]
        whole = set(complete)
        able = [
            v
            for v, column in enumerate(self.columns)
            if v >= self.Q and v in whole and alive.issuperset(column)
        ]
        happened = [("idle lost", -1)] if set(died) & set(self.idle) else []
        chosen = self._best(gone, able, died)
        data, weights = list(self.data), list(self.weights)
        for lost, check in zip(gone, chosen, strict=True):
            data[lost], weights[lost] = self.columns[check], self.weights[check]
            happened.append(("replaced", lost))
        rest = [v for v in able if v not in chosen]
        happened += [("checksums lost", v) for v in range(self.Q, len(self.columns)) if v not in able]
        checks = tuple(self.columns[v] for v in rest)
        busy = {rank for column in (*data, *checks) for rank in column}
        found = replace(
            self,
            data=tuple(data),
            checks=checks,
            idle=tuple(sorted(alive.intersection(self.ranks) - busy)),
            weights=(*weights[: self.Q], *(self.weights[v] for v in rest)),
            degrees=tuple(self.degrees[v - self.Q] for v in rest),
            lost=(*self.lost, *died),
        )
        return found, tuple(happened)

    def _best(self, gone: list[int], able: list[int], died: tuple[int, ...]) -> tuple[int, ...]:
        """Which checksums replace which of the lost columns."""
        who = ", ".join(map(str, sorted({*self.lost, *died})))
        if len(gone) > len(able):
            raise TooManyLost(
                f"ranks {who} of the grid are dead: {len(gone)} columns of data are gone, and {len(able)} complete columns "
                f"of checksums are there to replace them. Start again; spare ranks, or Grid(..., redundant=f), bear more"
            )
        if not gone:
            return ()
        held = np.array(self.weights[: self.Q])
        best: tuple[int, ...] = ()
        least = float("inf")
        for chosen in combinations(able, len(gone)):
            held[gone] = [self.weights[v] for v in chosen]
            condition = float(np.linalg.cond(held))
            if condition < least:
                best, least = chosen, condition
        if not least < HOPELESS:
            raise TooManyLost(
                f"ranks {who} of the grid are dead, and what is left cannot be told apart: the weights of what is held have "
                f"the condition number {least:.1e}. Start again"
            )
        return best

    def with_idle(self, ranks: Iterable[int]) -> Layout:
        """With these ranks besides, which hold nothing."""
        return replace(self, idle=tuple(sorted({*self.idle, *ranks})))

    def formed(self) -> Layout:
        """With new columns of checksums of idle ranks, as many as there are enough for. They hold nothing yet."""
        checks, weights, idle, degrees = list(self.checks), list(self.weights), self.idle, list(self.degrees)
        held = np.array(weights[: self.Q])
        while len(checks) < self.redundant and len(idle) >= self.P:
            degrees.append(min(set(range(self.redundant)).difference(degrees)))
            checks.append(idle[: self.P])
            weights.append(tuple((np.array(_row(degrees[-1], self.Q)) @ held).tolist()))
            idle = idle[self.P :]
        return replace(self, checks=tuple(checks), weights=tuple(weights), idle=idle, degrees=tuple(degrees))

    def mixture(self, check: int) -> Array:
        """By how much each held column of data counts in the checksums of column `check`."""
        held = np.array(self.weights[: self.Q])
        return _without_noise(np.linalg.solve(held.T, np.array(self.weights[check])))

    def back(self) -> Array:
        """The inverse of the weights of what is held as data: by how much each held column counts in each true part."""
        return _without_noise(np.linalg.inv(np.array(self.weights[: self.Q])))

    def turned_back(self) -> Layout:
        """With true parts in all columns of data."""
        identity = tuple(tuple(float(q == v) for q in range(self.Q)) for v in range(self.Q))
        return replace(self, weights=(*identity, *self.weights[self.Q :]))

    def is_true(self, v: int) -> bool:
        """Does column v of data hold a true part?"""
        return all(weight == (q == v) for q, weight in enumerate(self.weights[v]))

    def parts(self, held: Array) -> Array:
        """The true parts X_0 … X_(Q-1) of what the columns of data hold; both with the column as first index."""
        if not self.replaced:
            return held
        back = self.back()
        found = np.zeros_like(held)
        for q in range(self.Q):
            for v in range(self.Q):
                if back[q, v]:
                    found[q] += held.dtype.type(back[q, v]) * held[v]
        return found


def first_layout(
    living: tuple[int, ...], P: int, Q: int, redundant: int, before: Layout | None = None
) -> Layout:
    """The layout with which all begin, filled from the program's functions. `before`: whoever lives keeps its place, and
    empty places are filled by idle ranks, then by those of the checksums. Raises TooManyLost: fewer than P·Q ranks."""
    if len(living) < P * Q:
        raise TooManyLost(f"{len(living)} ranks are left of the {P} × {Q} that the grid needs at the least")
    checks = min(redundant, (len(living) - P * Q) // P)
    kept: dict[Place, int] = {}
    for rank in living:
        place = None if before is None else before.place(rank)
        if place is not None and place.v < Q + checks:
            kept[place] = rank
    rest = [rank for rank in living if rank not in kept.values()]
    if before is not None:
        rest.sort(key=lambda rank: (rank not in before.idle, rank))
    for p in range(P):  # neighbours in a row are neighbours in the job
        for v in range(Q + checks):
            if Place(p, v) not in kept:
                kept[Place(p, v)] = rest.pop(0)
    columns = [tuple(kept[Place(p, v)] for p in range(P)) for v in range(Q + checks)]
    weights = [tuple(float(q == v) for q in range(Q)) for v in range(Q)]
    weights += [_row(number, Q) for number in range(checks)]
    return Layout(
        *(P, redundant, tuple(columns[:Q]), tuple(columns[Q:]), tuple(sorted(rest))),
        weights=tuple(weights),
        lost=() if before is None else (*before.lost, *(rank for rank in before.ranks if rank not in living)),
        degrees=tuple(range(checks)),
    )


def _without_noise(weights: Array) -> Array:
    """What is zero but for rounding is zero, so that all ranks agree on who sends."""
    return np.where(np.abs(weights) < 1e-12, 0.0, weights)


def _row(degree: int, Q: int) -> tuple[float, ...]:
    """The weights of the columns that are held in the checksums of this degree."""
    return tuple(sign(0, 0, q) * exp(degree * _SPREAD * (q - (Q - 1) / 2) / Q) for q in range(Q))

"""The parts of one process in factorisations other than that of a solve; the steps are the same (decisions/steps.py).

    Cholesky    as LU without pivoting of a Hermitian matrix: U = D·L^H, and D^(1/2)·L^H is wanted. So a block row of U is
                made of the panel, and "rows" carries what the other process rows have of that. A step changes the lower
                triangle only, by groups: a row of a group that is above the group's own rows stays as it was in all
                columns, of checksums too, until it becomes U. So checksums hold in every row
    QR          Householder's reflections, a block of them I - V·T·V^H at a step (Schreiber and Van Loan 1989). What "rows"
                carries is V^H·A of each process row, what "update" carries is T^H·V^H·A, summed by the root

Both are applied from the left, so sums of columns stay what they are.

Pure: numbers in, numbers out.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ckpt.abft.decisions.encoding import Row
from ckpt.abft.decisions.grid import Shape
from ckpt.abft.errors import NotPositive
from ckpt.abft.numbers.dense import unit_lower
from ckpt.abft.numbers.local import Array, Local, Panel, Update
from ckpt.abft.numbers.seals import room
from ckpt.abft.numbers.verify import is_product, sums_of_columns, sums_of_rows

__all__ = ["LocalCholesky", "LocalQR", "ReflectionPanel", "reflections"]

_GROUPS_AT_ONCE = 4
"""So many groups, 0 to 3, 4 to 7, … in every column alike, are changed from the first row on that one of them needs: few of
these numbers are not needed, and the products are large enough to be fast."""


class LocalCholesky(Local):
    """The numbers of one process in a Cholesky factorisation. There are no right-hand sides."""

    def __init__(self, shape: Shape, p: int, dtype: np.dtype[Any], right: int) -> None:
        super().__init__(shape, p, dtype, right)
        self._held: tuple[Row, ...] = ()
        self._first = 0

    def begin(self, rows: tuple[Row, ...], group: int) -> None:
        """A step begins. `rows`: what this column holds of every group; `group`: the first one that the step changes."""
        self._held, self._first = rows, group

    def _of_row(self, k: int, p: int) -> Iterator[tuple[int, float, int]]:
        """What process row p has of block row k of U for this column: the group, the weight, and the place of the block of
        L in the panel of that row."""
        shape = self.shape
        for group in range(self._first, shape.groups):
            for q, weight in enumerate(self._held[group]):
                j = group * shape.Q + q
                if weight and j >= k and j % shape.P == p:
                    yield group, weight, shape.rows_before(p, j) - shape.rows_before(p, k)

    def rows_for(self, k: int, panel: Panel, start: int) -> Array:
        count, _ = self.count_rows(k, panel, self.p)
        found = np.zeros((count, self.numbers.shape[1] - start), dtype=self.dtype)
        nb, lower = self.shape.nb, panel.lower
        if self.p == self.shape.root(k):
            lower = unit_lower(lower, nb)
        for group, weight, place in self._of_row(k, self.p):
            block = lower[place : place + nb].conj().T
            found[:, group * nb - start : (group + 1) * nb - start] += self.dtype.type(weight) * block
        return found

    def count_rows(self, k: int, panel: Panel, p: int) -> tuple[int, int]:
        return (self.shape.nb if any(True for _ in self._of_row(k, p)) else 0), 0

    def solve(self, k: int, panel: Panel, start: int, given: dict[int, Array]) -> Update:
        shape = self.shape
        if self.sums is not None:  # what is set must be what it was: its share in the sums goes
            self.sums.verify_rows(slice(shape.rows_before(self.p, k), shape.rows_before(self.p, k + 1)))
        total = np.zeros((shape.nb, self.numbers.shape[1] - start), dtype=self.dtype)
        for rows in (self.rows_for(k, panel, start), *given.values()):
            if len(rows):
                total += rows
        total *= np.diagonal(panel.lower)[:, None]
        nothing = np.empty((0, total.shape[1]), dtype=self.dtype)
        return Update(k, total, dict.fromkeys(range(shape.P), nothing))

    def _applying(self, k: int, panel: Panel, start: int, update: Update, owner: bool) -> Iterator[None]:
        shape = self.shape
        nb, Q = shape.nb, shape.Q
        first, below = shape.rows_before(self.p, k), shape.rows_before(self.p, k + 1)
        if below > first:
            across = None if self.sums is None else sums_of_rows(update.upper)
            self._set(slice(first, below), slice(start, self.numbers.shape[1]), update.upper, across)
        together = _GROUPS_AT_ONCE
        for group in range(start // nb // together * together, shape.groups, together):
            row = max(below, shape.rows_before(self.p, group * Q))
            left, stop = max(group * nb, start), min(group + together, shape.groups) * nb
            upper = update.upper[:, left - start : stop - start]
            across = None if self.sums is None else sums_of_rows(upper)
            yield from self._subtracting(
                row, left, panel.lower[row - first :], upper, across, stop=stop, again=left > start
            )
        if owner:
            self.finish_block(k, panel, first, below)

    def _factorised(self, k: int, whole: Array, places: dict[int, Array]) -> list[Panel]:
        """As in LU, without exchanges. Raises NotPositive."""
        shape = self.shape
        nb, first = shape.nb, k * shape.nb
        top = whole[:nb]
        try:
            lower = np.linalg.cholesky(top)
        except np.linalg.LinAlgError:
            raise NotPositive(
                f"the matrix is not positive definite: the leading minor of order {first + _good(top) + 1} of {shape.n} "
                f"is not positive"
            ) from None
        diagonal = np.diagonal(lower)
        upper = diagonal[:, None] * lower.conj().T
        whole[:nb] = np.tril(lower / diagonal, -1) + np.triu(upper)
        whole[nb:] = np.linalg.solve(upper.T, whole[nb:].T).T
        return self.panels(k, whole, places, np.arange(first, first + nb))


def _good(top: Array) -> int:
    """The order of the largest leading block that is positive definite."""
    for order in range(1, len(top) + 1):
        try:
            np.linalg.cholesky(top[:order, :order])
        except np.linalg.LinAlgError:
            return order - 1
    return len(top)


class ReflectionPanel(Panel):
    """A panel of a QR factorisation: Householder's reflections. `lower`: the rows of V; in the root's, R is in the upper
    triangle of the first block. `factor`: T (nb × nb)."""

    __slots__ = ("factor",)

    def __init__(self, shape: Shape, p: int, k: int, dtype: np.dtype[Any]) -> None:
        rows = shape.local_rows(p) - shape.rows_before(p, k)
        size = (rows + shape.nb) * shape.nb * dtype.itemsize
        self.packed = room(size)
        numbers = self.packed[:size].view(dtype).reshape(rows + shape.nb, shape.nb)
        self.lower, self.factor = numbers[:rows], numbers[rows:]
        self.pivots = np.zeros(0, dtype=np.int64)


class LocalQR(Local):
    """The numbers of one process in a QR factorisation."""

    def _factorised(self, k: int, whole: Array, places: dict[int, Array]) -> list[Panel]:
        factor = reflections(whole)
        found: list[Panel] = []
        for p, rows in places.items():
            panel = ReflectionPanel(self.shape, p, k, self.dtype)
            panel.lower[...] = whole[rows]
            panel.factor[...] = factor
            found.append(panel)
        return found

    def _are_factors(self, sums: Array, whole: Array, panels: list[Panel]) -> bool:
        """The sums of the columns of Q = I - V·T·V^H stand for those of L. Its numbers are 1 at the most."""
        panel, nb = panels[0], self.shape.nb
        assert isinstance(panel, ReflectionPanel)
        lower = unit_lower(whole, nb)
        down = 1 - sums_of_columns(lower) @ panel.factor @ lower[:nb].conj().T
        sizes = np.full(nb, float(np.sqrt(len(whole))), dtype=down.real.dtype)
        return is_product(sums, down, sizes, np.triu(whole[:nb]), len(whole))

    def _reflectors(self, k: int, panel: Panel) -> Array:
        """The rows of V of this process."""
        return unit_lower(panel.lower, self.shape.nb) if self.p == self.shape.root(k) else panel.lower

    def rows_for(self, k: int, panel: Panel, start: int) -> Array:
        first = self.shape.rows_before(self.p, k)
        if self.sums is not None:
            self.sums.verify_rows(slice(first, len(self.numbers)))
        return np.ascontiguousarray(self._reflectors(k, panel).conj().T @ self.numbers[first:, start:])

    def count_rows(self, k: int, panel: Panel, p: int) -> tuple[int, int]:
        return self.shape.nb, 0

    def solve(self, k: int, panel: Panel, start: int, given: dict[int, Array]) -> Update:
        assert isinstance(panel, ReflectionPanel)
        total = self.rows_for(k, panel, start)
        for _, other in sorted(given.items()):
            total = total + other
        nothing = np.empty((0, total.shape[1]), dtype=self.dtype)
        return Update(
            k,
            np.ascontiguousarray(panel.factor.conj().T @ total),
            dict.fromkeys(range(self.shape.P), nothing),
        )

    def _applying(self, k: int, panel: Panel, start: int, update: Update, owner: bool) -> Iterator[None]:
        shape = self.shape
        first, below = shape.rows_before(self.p, k), shape.rows_before(self.p, k + 1)
        across = None if self.sums is None else sums_of_rows(update.upper)
        yield from self._subtracting(first, start, self._reflectors(k, panel), update.upper, across)
        if owner:
            self.finish_block(k, panel, first, below)


def reflections(panel: Array) -> Array:
    """QR of `panel` (m × nb, m ≥ nb) in place: R in its upper triangle, V below, with a diagonal of ones that is not stored.
    Returns T: Q = I - V·T·V^H."""
    count = panel.shape[1]
    factor = np.zeros((count, count), dtype=panel.dtype)
    for j in range(count):
        x = panel[j:, j].copy()
        size = float(np.abs(x).max())
        if size == 0:
            continue
        x /= size
        alpha = -(x[0] / abs(x[0]) if x[0] != 0 else 1) * np.linalg.norm(x)
        head = x[0] - alpha
        v = x / head
        v[0] = 1
        tau = 2 / float(np.vdot(v, v).real)
        panel[j:, j + 1 :] -= tau * np.outer(v, v.conj() @ panel[j:, j + 1 :])
        before = unit_lower(panel[:, :j], j)[j:] if j else panel[j:, :0]
        factor[:j, j] = -tau * (factor[:j, :j] @ (before.conj().T @ v))
        factor[j, j] = tau
        panel[j, j] = alpha * size
        panel[j + 1 :, j] = v[1:]
    return factor

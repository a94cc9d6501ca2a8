"""Wrong numbers in one process's part of the matrix: found by sums of its rows and columns, one of them put right.

`Sums` follows the sum of each local column and of each local row through the updates: what a step subtracts from all rows
is known from the sums of L and of U alone, so a step costs passes over the panel, not over the matrix (Huang and Abraham
1984). Compared with the numbers is

    before it is used   the part of a block column that is about to be factorised, the rows that are about to be moved or to
                        become U, at every step; all, before a block is computed back, encoded or given
    at each look        one in `TURNS` of the rows that still change. They take turns: all within so many looks
    at the end          all

So no wrong number gets into L, and thereby into other columns, and none is moved, since it would be looked for where it
was. Until then it stays where it is, however late it is found: a step only adds to it. Adding all up at each look took a
fifth of the time of the update; what takes turns costs a wrong number that is found some steps later, and two in one
process within that time cannot be put right.

What is finished, above and left of what the steps still change, is not added up at each look: its share in the sums is kept.

One wrong number shows in one row and one column, and is what its row lacks: it is put right. More than one, or one that
was moved or used before it was found: `Corrupt`. Then the process column is given up and replaced by the checksums, as if
a process had died.

Thresholds follow from the size of the numbers and how many were added since the sums were taken anew; in what was tried
(random, positive, graded matrices, 40 to 2 000 rows, four kinds of numbers) rounding stays below a tenth of them. What is
smaller than a threshold leaves the residual below Linpack's bound (10 000 flipped bits at order 48: below 12), or makes it
larger, and is told by that. Numbers that overflow are wrong numbers.

What a step makes of the numbers is compared as it is made: the sums of a panel, and of block row k of U, with those of the
product of the factors (`is_product`). If they differ, it is made again. Wrong numbers in what waits or travels are found by
digests (seals.py).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["TURNS", "Corrupt", "Sums", "is_product", "sums_of_columns", "sums_of_rows"]

Array = npt.NDArray[Any]

_SAFETY = 20.0
TURNS = 8
"""A look compares one in so many of the rows that still change."""
_CHUNK = 1 << 17
"""Numbers that are added up at a time, in rows and in columns: they stay in the cache, so memory is read once."""


class Corrupt(Exception):
    """Numbers of this process are wrong, and it cannot say which."""


class _Part(NamedTuple):
    """The sums of these columns (`down`) and rows (`across`) of a block column from row `first` on."""

    first: int
    columns: slice
    down: Array
    across: Array

    @classmethod
    def of(cls, numbers: Array, first: int, columns: slice) -> _Part:
        return cls(first, columns, _sums(numbers, 0), _sums(numbers, 1))


class Sums:
    """The sums of rows and columns that the numbers ought to have. `corrected`: how many numbers were put right;
    `redone`: how often something was made of them again."""

    def __init__(self, numbers: Array) -> None:
        self.numbers = numbers
        self.corrected = self.redone = 0
        self.take_anew()

    def take_anew(self) -> None:
        """Believe the numbers as they are."""
        self._believe(*_added_up(self.numbers))

    def _believe(self, rows: Array, columns: Array, largest: float) -> None:
        self.rows, self.columns, self._largest, self._terms = rows, columns, largest, 1.0
        self._leave_nothing()

    def _leave_nothing(self) -> None:
        """All numbers may change. `_row`, `_column`: nothing above that row, or left of that column, has changed since that
        was left; `_of_rows`, `_of_columns`: what it adds to the sum of each row (not of those above) and column. `_turn`:
        the row from which on the next look compares; `_share`: so many. `_part`: the sums of the part of a block column
        that was compared last. `_finished`: the columns of the block that was finished last."""
        self._row = self._column = 0
        self._part: _Part | None = None
        self._finished: slice | None = None
        self._turn, self._share = -1, 0
        self._of_rows, self._of_columns = np.zeros_like(self.rows), np.zeros_like(self.columns)

    def _leave(self, row: int, column: int) -> None:
        """The numbers above this row, and left of this column, will not change for now."""
        if row < self._row or column < self._column:
            self._leave_nothing()
        self._of_columns += _sums(self.numbers[self._row : row], 0)
        left = slice(self._column, column)
        if left != self._finished:  # else it is zero from this row on
            self._of_rows += _sums(self.numbers[:, left], 1)
        self._row, self._column = row, column

    def _changes(self, row: int, column: int) -> None:
        """Numbers from this row and this column on are about to change."""
        if row < self._row or column < self._column:
            self._leave_nothing()
        if self._part is not None and column < self._part.columns.stop:
            self._part = None
        if self._finished is not None and column < self._finished.stop:
            self._finished = None

    # -- what a step changes -------------------------------------------------------------------------

    def set(self, rows: Any, columns: slice, values: Array, across: Array | None = None) -> None:
        """Set these rows (a slice or places) in these columns. `across`: the sums of the rows of `values`, if known."""
        first = rows.start if isinstance(rows, slice) else min(rows, default=self._row)
        start = columns.start or 0
        self._changes(first or 0, start)
        old = self.numbers[rows, columns]
        self.columns[columns] += _sums(values, 0) - _sums(old, 0)
        if across is None:
            across = _sums(values, 1)
            self.saw(values)
        if columns.stop in (None, len(self.columns)) and start >= self._column:
            kept = self.numbers[rows, self._column : start]
            self.rows[rows] = self._of_rows[rows] + _sums(kept, 1) + across
        else:
            self.rows[rows] += across - _sums(old, 1)
        self.numbers[rows, columns] = values

    def finish(self, first: int, columns: slice, top: Array) -> None:
        """Set these columns from row `first` on to `top`, and to zero below that."""
        part = self._part
        self._changes(first, columns.start)
        if part is None or (part.first, part.columns) != (first, columns):
            part = _Part.of(self.numbers[first:, columns], first, columns)
        below = first + len(top)
        self.columns[columns] += _sums(top, 0) - part.down
        self.rows[first:] -= part.across
        self.rows[first:below] += _sums(top, 1)
        self.saw(top)
        self.numbers[first:below, columns] = top
        self.numbers[below:, columns] = 0
        self._finished = columns

    def saw(self, values: Array) -> None:
        """Numbers as large as these are here."""
        self._largest = max(self._largest, _largest(values))

    def subtracted(
        self, rows: slice, columns: slice, lower: Array, upper: Array, across: Array, *, again: bool = False
    ) -> None:
        """`lower @ upper` was subtracted from these rows and columns. `across`: the sums of the rows of `upper`. `again`:
        other columns have been changed in this step."""
        self._changes(rows.start or 0, columns.start or 0)
        self.columns[columns] -= _sums(lower, 0) @ upper
        self.rows[rows] -= lower @ across
        self._terms += 0 if again else lower.shape[1]
        self.saw(upper)

    # -- comparing -----------------------------------------------------------------------------------

    def verify_rows(self, places: Any) -> None:
        """Compare these rows only: a slice or places. Raises Corrupt."""
        found = _sums(self.numbers[places, self._column :], 1)
        if self._are_wrong(found + self._of_rows[places] - self.rows[places], len(self.columns)):
            self._correct()
            self.take_anew()

    def verify_part(self, columns: slice, first: int, part: Array) -> bool:
        """Compare these columns, of which `part` is a copy from row `first` on: what is finished above is not looked at.
        True: a number of this process was wrong, and has been put right; so a new copy is needed. Raises Corrupt."""
        row = min(self._row, first)
        between = self.numbers[row:first, columns]
        above = self._of_columns[columns] if row == self._row else 0
        sums = _Part.of(part, first, columns)
        if not self._are_wrong(sums.down + _sums(between, 0) + above - self.columns[columns], len(self.rows)):
            self._part = sums
            return False
        self._correct()
        self.take_anew()
        return True

    def verify(self, columns: slice | None = None) -> None:
        """Compare all columns, or these. Raises Corrupt."""
        if columns is not None:
            if self._wrong_columns(columns).any():
                self._correct()
                self.take_anew()
            return
        rows, sums, largest = _added_up(self.numbers)
        if self._are_wrong(rows - self.rows, len(sums)) or self._are_wrong(sums - self.columns, len(rows)):
            self._correct()
            self.take_anew()
        else:
            self._believe(rows, sums, largest)

    def verify_share(self, row: int, column: int) -> None:
        """Compare a share of the rows from `row` on; the steps to come change none above, and no columns left of `column`.
        The rows take turns. Raises Corrupt."""
        self._leave(row, column)
        if not row <= self._turn < len(self.rows):
            self._turn, self._share = row, -(-(len(self.rows) - row) // TURNS)
        share = slice(self._turn, min(self._turn + self._share, len(self.rows)))
        self._turn = share.stop
        self.verify_rows(share)

    def _are_wrong(self, off: Array, count: int) -> bool:
        """Is a sum of `count` numbers further off than rounding explains?"""
        return not bool((np.abs(off) <= self._threshold(count)).all())

    def _threshold(self, count: int) -> float:
        """For a sum of `count` numbers: what was subtracted from each, and the rounding of the sum itself, which is largest
        where all numbers have one sign."""
        epsilon = float(np.finfo(self.numbers.dtype).eps)
        steps = float(np.sqrt(count * self._terms) + np.sqrt(count) + 0.05 * count**1.5)
        return _SAFETY * epsilon * max(self._largest, 1e-300) * steps

    def _wrong_columns(self, columns: slice) -> Array:
        found = _sums(self.numbers[:, columns], 0) - self.columns[columns]
        return np.asarray(~(np.abs(found) <= self._threshold(len(self.rows))))

    def _wrong_rows(self) -> Array:
        found = self.numbers.sum(axis=1) - self.rows
        return np.asarray(~(np.abs(found) <= self._threshold(len(self.columns))))

    def _correct(self) -> None:
        """Put one number right, or raise Corrupt."""
        with np.errstate(all="ignore"):
            in_rows = np.abs(self.numbers.sum(axis=1) - self.rows)
            in_columns = np.abs(self.numbers.sum(axis=0) - self.columns)
        i = int(np.argmax(np.where(np.isfinite(in_rows), in_rows, np.inf)))
        j = int(np.argmax(np.where(np.isfinite(in_columns), in_columns, np.inf)))
        self.numbers[i, j] = 0
        self.numbers[i, j] = self.rows[i] - self.numbers[i].sum()
        if self._wrong_columns(slice(None)).any() or self._wrong_rows().any():
            raise Corrupt(f"numbers of this process are wrong, among them one in local row {i}, column {j}")
        self.corrected += 1


def _largest(numbers: Array) -> float:
    if numbers.dtype.kind == "c":
        return float(np.abs(numbers).max(initial=0.0))
    return float(max(numbers.max(initial=0), -numbers.min(initial=0)))


def _sums(numbers: Array, axis: int) -> Array:
    """As numpy's sum; BLAS is faster."""
    ones = np.ones(numbers.shape[axis], numbers.dtype)
    with np.errstate(all="ignore"):
        return np.asarray(ones @ numbers if axis == 0 else numbers @ ones)


def sums_of_rows(numbers: Array) -> Array:
    return _sums(numbers, 1)


def sums_of_columns(numbers: Array) -> Array:
    return _sums(numbers, 0)


def is_product(sums: Array, down: Array, sizes: Array, upper: Array, height: int) -> bool:
    """Are the sums of the columns of some numbers those of lower @ upper, but for rounding? `down`: the sums of the columns
    of `lower` (`height` rows), `sizes`: of the absolute numbers there.

    Each number of a product of nb terms is off by no more than nb·u·|lower|·|upper| (Higham 2002, theorem 9.3); a sum of m
    numbers by about √m·u of their sizes."""
    limits = np.finfo(upper.dtype)
    with np.errstate(all="ignore"):
        off = np.abs(down @ upper - sums)
        bound = float(limits.eps) * (len(down) + 8 * float(np.sqrt(height))) * (sizes @ np.abs(upper))
    return bool((off <= bound + height * float(limits.tiny)).all())


def _added_up(numbers: Array) -> tuple[Array, Array, float]:
    """The sums of rows and columns, and the size of the largest number."""
    height, width = numbers.shape
    rows, columns = np.empty(height, numbers.dtype), np.zeros(width, numbers.dtype)
    ones, largest = np.ones(max(height, width), numbers.dtype), 0.0
    step = max(1, _CHUNK // max(1, width))
    with np.errstate(all="ignore"):
        for first in range(0, height, step):
            chunk = numbers[first : first + step]
            rows[first : first + step] = chunk @ ones[:width]
            columns += ones[: len(chunk)] @ chunk
            largest = max(largest, _largest(chunk))
    return rows, columns, largest

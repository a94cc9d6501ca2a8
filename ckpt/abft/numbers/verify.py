"""Wrong numbers in one process's part of the matrix: found by sums of its rows and columns, one of them put right.

`Sums` follows the sum of each local column and of each local row through the updates: what a step subtracts from all rows
is known from the sums of L and of U alone, so a step costs one pass over the panel, not over the matrix (Huang and
Abraham 1984). `verify` adds the matrix up and compares.

What is finished, above and left of what the steps still change, need not be added up at each look: its share in the sums is
kept. It is compared when all is, at the end and before anything is computed of it.

One wrong number shows in one row and one column, and is what its row lacks: it is put right. More than one, or one that
was moved or used before it was found: `Corrupt`. Then the process column is given up and replaced by the checksums, as if
a process had died. Block columns are compared before they are factorised, so that no wrong number gets into L, and thereby
into other columns; rows are compared before they are moved, since a wrong number would be looked for where it was.

Thresholds follow from the size of the numbers and how many were added since the sums were taken anew; in what was tried
(random, positive, graded matrices, 40 to 400 rows, four kinds of numbers) rounding stays below a tenth of them. What is
smaller than a threshold leaves the residual below Linpack's bound. Numbers that overflow are wrong numbers.

Not found here: a wrong number in a message or in a panel. The residual at the end finds it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Corrupt", "Sums"]

Array = npt.NDArray[Any]

_SAFETY = 50.0
_CHUNK = 1 << 17
"""Numbers that are added up at a time, in rows and in columns: they stay in the cache, so memory is read once."""


class Corrupt(Exception):
    """Numbers of this process are wrong, and it cannot say which."""


class Sums:
    """The sums of rows and columns that the numbers ought to have. `corrected`: how many numbers were put right."""

    def __init__(self, numbers: Array) -> None:
        self.numbers = numbers
        self.corrected = 0
        self.take_anew()

    def take_anew(self) -> None:
        """Believe the numbers as they are."""
        self._believe(*_added_up(self.numbers))

    def _believe(self, rows: Array, columns: Array, largest: float) -> None:
        self.rows, self.columns, self._largest, self._terms = rows, columns, largest, 1.0
        self._terms_left = 0.0
        self._leave_nothing()

    def _leave_nothing(self) -> None:
        """All numbers may change. `_row`, `_column`: nothing above that row, or left of that column, has changed since that
        was left; `_of_rows`, `_of_columns`: what it adds to the sum of each row and column."""
        self._row = self._column = 0
        self._of_rows, self._of_columns = np.zeros_like(self.rows), np.zeros_like(self.columns)

    def _leave(self, row: int, column: int) -> None:
        """The numbers above this row, and left of this column, will not change for now."""
        if row < self._row or column < self._column:
            self._leave_nothing()
        above, left = self.numbers[self._row : row], self.numbers[:, self._column : column]
        self._of_columns += _sums(above, 0)
        self._of_rows += _sums(left, 1)
        self._terms_left = max(self._terms_left, self._terms)
        self._row, self._column = row, column

    def _changes(self, row: int, column: int) -> None:
        """Numbers from this row and this column on are about to change."""
        if row < self._row or column < self._column:
            self._leave_nothing()

    # -- what a step changes -------------------------------------------------------------------------

    def before(self, rows: Any, columns: slice) -> None:
        """These rows (a slice or places) are about to be set in these columns."""
        first = rows.start if isinstance(rows, slice) else min(rows, default=self._row)
        self._changes(first or 0, columns.start or 0)
        old = self.numbers[rows, columns]
        self.columns[columns] -= _sums(old, 0)
        self.rows[rows] -= _sums(old, 1)

    def after(self, rows: Any, columns: slice) -> None:
        """These rows have been set in these columns: the counterpart of `before`."""
        new = self.numbers[rows, columns]
        self.columns[columns] += _sums(new, 0)
        self.rows[rows] += _sums(new, 1)
        self._largest = max(self._largest, _largest(new))

    def subtracted(self, rows: slice, start: int, lower: Array, upper: Array) -> None:
        """`lower @ upper` was subtracted from these rows, in the columns from `start` on."""
        self._changes(rows.start or 0, start)
        self.columns[start:] -= _sums(lower, 0) @ upper
        self.rows[rows] -= lower @ _sums(upper, 1)
        self._terms += lower.shape[1]
        self._largest = max(self._largest, _largest(upper))

    # -- comparing -----------------------------------------------------------------------------------

    def verify_rows(self, places: Any) -> None:
        """Compare these rows only. Raises Corrupt."""
        found = _sums(self.numbers[places], 1) - self.rows[places]
        if not (np.abs(found) <= self._threshold(len(self.columns))).all():
            self._correct()
            self.take_anew()

    def verify(self, columns: slice | None = None) -> None:
        """Compare all columns, or these. Raises Corrupt."""
        self._terms = max(self._terms, self._terms_left)
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

    def verify_from(self, row: int, column: int) -> None:
        """Compare the rows from `row` on and the columns from `column` on: the steps to come change no others. The largest
        number is not looked for: `after` and `subtracted` have seen how large they become. Raises Corrupt."""
        self._leave(row, column)
        rows, columns, _ = _added_up(self.numbers[row:, column:], False)
        rows += self._of_rows[row:]
        columns += self._of_columns[column:]
        wrong = self._are_wrong(rows - self.rows[row:], len(self.columns))
        if wrong or self._are_wrong(columns - self.columns[column:], len(self.rows)):
            self._correct()
            self.take_anew()
        else:
            self.rows[row:], self.columns[column:] = rows, columns
            self._terms = 1.0

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


def _added_up(numbers: Array, of_size: bool = True) -> tuple[Array, Array, float]:
    """The sums of rows and columns, and, if wanted, the size of the largest number."""
    height, width = numbers.shape
    rows, columns = np.empty(height, numbers.dtype), np.zeros(width, numbers.dtype)
    ones, largest = np.ones(max(height, width), numbers.dtype), 0.0
    step = max(1, _CHUNK // max(1, width))
    with np.errstate(all="ignore"):
        for first in range(0, height, step):
            chunk = numbers[first : first + step]
            rows[first : first + step] = chunk @ ones[:width]
            columns += ones[: len(chunk)] @ chunk
            largest = max(largest, _largest(chunk)) if of_size else largest
    return rows, columns, largest

"""A product of matrices on one process that is checked by the sums of its rows and columns (Huang and Abraham 1984).

The sums of the rows of C = A·B are A·(B·e), and those of its columns (eᵀ·A)·B: two products of a matrix with a vector
beside one of matrices. A sum that is further from C's than rounding explains makes its row, or its column, *suspect*.

Thresholds follow from the variance of rounding (as V-ABFT has it, 2026): an addition of partial sums that grow like those
of independent numbers, and like the result itself, is rounded by a relative error that is as likely up as down. So the
variance of the error of a sum of C is computed from the sums of the squares of A, B and C, and a threshold is `SAFETY`
times its root.

A suspect is no alarm yet: what lies where suspect rows and columns meet is computed once more, in another order and with
more digits where there are any, and compared with the bound that no rounding exceeds (k·u·|A|·|B|). So

    nothing suspect, or suspects that are right      the product is returned: no alarm, whatever the numbers are
    one wrong number                                 it is put right, and the sums are compared again
    more                                             the product is computed again, `TRIES` times in all; then WrongProduct

A wrong number too small to be seen changes the sum of its row and column by less than rounding does.

Stacks of matrices (…, m, k) and (…, k, n) are checked matrix by matrix, their thresholds together.

Pure. Not here: who is told (operations/).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from ckpt.abft.errors import InputError, WrongProduct
from ckpt.abft.numbers.arrays import NumberType, is_tensor, number_type_of, operand, places

__all__ = ["SAFETY", "TRIES", "Finding", "checked_product"]

SAFETY = 6.0
"""Standard deviations of rounding that a sum may be off."""
TRIES = 3
_CHUNK = 1 << 16
"""Numbers that are widened at a time: they stay in the cache."""
_CHUNK_ON_GPU = 1 << 24
"""The same on a GPU, where each step costs as much as a million numbers: 128 MiB of its memory."""


class Finding(NamedTuple):
    """What the check of a product has found and put right. `what`: "corrected" (one wrong number, at `place`, put right) or
    "computed again" (`numbers` of them). `found`: the wrong number at `place`, `right`: what it ought to be."""

    what: str
    numbers: int
    place: tuple[int, ...]
    found: complex
    right: complex


def checked_product(a: Any, b: Any, multiply: Callable[[Any, Any], Any]) -> tuple[Any, list[Finding]]:
    """`multiply(a, b)`, checked, and what was found wrong on the way. Raises InputError, WrongProduct."""
    a, b = operand(a, "a"), operand(b, "b")
    _fits(a, b)
    findings: list[Finding] = []
    for _ in range(TRIES):
        product = multiply(a, b)
        if 0 in (*product.shape, a.shape[-1]):
            return product, findings
        with np.errstate(all="ignore"):
            product, finding = _looked_at(a, b, product)
        if finding is not None:
            findings.append(finding)
        if finding is None or finding.what == "corrected":
            return product, findings
    last = findings[-1]
    raise WrongProduct(
        f"the product of {_text(a)} and {_text(b)} is wrong in {last.numbers} numbers or more, at {last.place} for example, "
        f"each of {TRIES} times that it was computed: this processor, or its memory, must not be trusted"
    )


def _looked_at(a: Any, b: Any, product: Any) -> tuple[Any, Finding | None]:
    """The product, right if nothing or "corrected" is found."""
    check = _Check(a, b, product)
    wrong = list(check.wrong())
    if len(wrong) == 1:
        place, right = wrong[0]
        found = check.at(place)
        check.put(place, right)
        wrong = list(check.wrong())
        if not wrong:
            return check.product, Finding("corrected", 1, place, found, right)
    if not wrong:
        return product, None
    place, right = wrong[0]
    return product, Finding("computed again", len(wrong), place, check.at(place), right)


def _text(x: Any) -> str:
    return " × ".join(map(str, x.shape))


def _fits(a: Any, b: Any) -> None:
    if is_tensor(a) != is_tensor(b):
        raise InputError("one factor is a tensor of torch and the other is not: convert one of them")
    for name, x in (("a", a), ("b", b)):
        if x.ndim == 0:
            raise InputError(f"{name} is a single number: matrices and vectors are multiplied")
    if is_tensor(a) and (a.dtype != b.dtype or a.device != b.device):
        raise InputError(f"a is {a.dtype} on {a.device}, b is {b.dtype} on {b.device}: they must be alike")
    if a.shape[-1] != b.shape[-2 if b.ndim > 1 else 0]:
        raise InputError(f"a is {_text(a)} and b is {_text(b)}: a must have as many columns as b has rows")
    for one, other in zip(reversed(a.shape[:-2]), reversed(b.shape[:-2]), strict=False):
        if one != other and 1 not in (one, other):
            raise InputError(f"a is {_text(a)} and b is {_text(b)}: their stacks do not fit together")


class _Sums(NamedTuple):
    """The sums of a matrix's rows and columns, of its numbers and of their squares."""

    rows: Any
    columns: Any
    row_squares: Any
    column_squares: Any


class _Check:
    def __init__(self, a: Any, b: Any, product: Any) -> None:
        self.product = product
        self.number_type: NumberType = number_type_of(product)
        self.a, self.b = (x.detach() if is_tensor(x) else x for x in (a, b))
        self.a = self.a if self.a.ndim > 1 else self.a[None, :]
        self.b = self.b if self.b.ndim > 1 else self.b[:, None]
        whole = product.detach() if is_tensor(product) else product
        stack = whole.shape[: whole.ndim - (a.ndim > 1) - (b.ndim > 1)]
        self.c = whole.reshape(*stack, self.a.shape[-2], self.b.shape[-1])
        self.of_a, self.of_b = self._sums(self.a), self._sums(self.b)
        for name, x, sums in (("a", a, self.of_a), ("b", b, self.of_b)):
            if not self._finite(sums.column_squares):
                self._refuse(name, x)

    def _finite(self, x: Any) -> bool:
        return bool(self.number_type.xp.isfinite(x).all())

    def _refuse(self, name: str, x: Any) -> None:
        wrong = places(~self.number_type.xp.isfinite(x.detach() if is_tensor(x) else x))
        if wrong:
            where = ", ".join(map(str, wrong[0]))
            raise InputError(
                f"{name}[{where}] is {complex(x[wrong[0]]) if self.number_type.factor > 1 else float(x[wrong[0]])}"
            )
        raise InputError(f"{name} has numbers whose squares overflow: divide it by its largest number first")

    # -- sums ----------------------------------------------------------------------------------------

    def _pieces(self, x: Any) -> Iterator[tuple[slice, Any]]:
        """Rows of a matrix, widened, so many at a time."""
        rows = x.shape[-2]
        step = max(1, _chunk(x) * rows // max(1, self._size(x)))
        for first in range(0, rows, step):
            part = slice(first, min(first + step, rows))
            yield part, self._wide(x[..., part, :])

    def _size(self, x: Any) -> int:
        return int(x.numel() if is_tensor(x) else x.size)

    def _wide(self, x: Any) -> Any:
        return x.to(self.number_type.wide) if is_tensor(x) else x.astype(self.number_type.wide, copy=False)

    def _sums(self, x: Any) -> _Sums:
        xp, rows, row_squares = self.number_type.xp, [], []
        columns: Any = 0
        column_squares: Any = 0
        for _, part in self._pieces(x):
            rows.append(part.sum(-1))
            columns = columns + part.sum(-2)
            squares = self._squares(part)
            row_squares.append(squares.sum(-1))
            column_squares = column_squares + squares.sum(-2)
        return _Sums(
            *(xp.concatenate(rows, -1), columns),
            *(xp.concatenate(row_squares, -1), column_squares),
        )

    def _squares(self, x: Any) -> Any:
        return abs(x) ** 2 if self.number_type.factor > 1 else x * x

    # -- suspects ------------------------------------------------------------------------------------

    def suspects(self) -> tuple[Any, Any]:
        """Masks of rows (…, m) and columns (…, n)."""
        xp, of_c = self.number_type.xp, self._sums(self.c)
        m, n = self.c.shape[-2:]
        vector, variance = self.of_b.rows, self._variance(self.of_b.rows, self.of_b.row_squares, n)
        found = [
            ((some @ vector[..., :, None])[..., 0], (self._squares(some) @ variance[..., :, None])[..., 0])
            for _, some in self._pieces(self.a)
        ]
        rows, row_variance = (xp.concatenate(each, -1) for each in zip(*found, strict=True))
        vector, variance = self.of_a.columns, self._variance(self.of_a.columns, self.of_a.column_squares, m)
        columns: Any = 0
        column_variance: Any = 0
        for part, some in self._pieces(self.b):
            columns = columns + (vector[..., None, part] @ some)[..., 0, :]
            column_variance = column_variance + (variance[..., None, part] @ self._squares(some))[..., 0, :]
        return (
            self._off(rows, row_variance, of_c.rows, of_c.row_squares, n),
            self._off(columns, column_variance, of_c.columns, of_c.column_squares, m),
        )

    def _variance(self, sums: Any, squares: Any, terms: int) -> Any:
        """What the square of one number of the one factor contributes to the variance of a sum of `terms` numbers of C.
        `sums`, `squares`: of the row (column) of the other factor that it is multiplied with."""
        numbers, k = self.number_type, self.a.shape[-1]
        return (
            squares * (numbers.accumulated**2 * k + 2 * numbers.factors**2 + numbers.checks**2 * terms / 2)
            + numbers.checks**2 * k * abs(sums) ** 2
        )

    def _off(self, wanted: Any, variance: Any, sums: Any, squares: Any, terms: int) -> Any:
        """Which sums of so many `terms` of C are off; `squares`: the sums of their squares."""
        numbers, k = self.number_type, self.a.shape[-1]
        variance = variance + squares * (
            numbers.accumulated**2 * k / 3
            + numbers.stored**2
            + numbers.split**2
            + (numbers.drift * k) ** 2
            + numbers.checks**2 * terms / 2
        )
        variance = variance + numbers.checks**2 * abs(sums) ** 2 * (k + terms) / 3
        smallest = numbers.smallest * numbers.accumulated * (k + 1) * terms
        threshold = SAFETY * numbers.xp.sqrt(numbers.factor * variance) + smallest
        if numbers.drift:
            threshold = threshold + 4 * numbers.drift * k * abs(sums)
        return ~((abs(sums - wanted) <= threshold) & numbers.xp.isfinite(threshold))

    # -- what is wrong -------------------------------------------------------------------------------

    def wrong(self) -> Iterator[tuple[tuple[int, ...], complex]]:
        """Every wrong number of C that a suspect row or column has: its place in C, and what it ought to be."""
        rows, columns = self.suspects()
        stack = self.c.shape[:-2]
        if not bool(rows.any()) and not bool(columns.any()):
            return
        flat = self.c.reshape(-1, *self.c.shape[-2:])
        rows, columns = rows.reshape(-1, rows.shape[-1]), columns.reshape(-1, columns.shape[-1])
        some = rows.any(-1) | columns.any(-1)
        for (number,) in places(some):
            index = _unravel(number, stack)
            in_rows, in_columns = (
                [i for (i,) in places(rows[number])],
                [j for (j,) in places(columns[number])],
            )
            for i, j, right in self._compared(
                self._one(self.a, index), self._one(self.b, index), flat[number], in_rows, in_columns
            ):
                yield (*index, i, j), right

    def _one(self, x: Any, index: tuple[int, ...]) -> Any:
        """The matrix of a stack that belongs to this place of the product's stack."""
        own = index[len(index) - (x.ndim - 2) :] if x.ndim > 2 else ()
        return x[tuple(0 if size == 1 else at for at, size in zip(own, x.shape[:-2], strict=True))]

    def _compared(
        self, a: Any, b: Any, c: Any, rows: list[int], columns: list[int]
    ) -> Iterator[tuple[int, int, complex]]:
        """Where suspect rows and columns meet; without suspect rows: in all rows, and so with columns."""
        numbers, k = self.number_type, a.shape[-1]
        rows, columns = rows or list(range(c.shape[-2])), columns or list(range(c.shape[-1]))
        factor = self._wide(b[:, columns])
        step = max(1, _chunk(c) // max(k, len(columns)))
        for first in range(0, len(rows), step):
            some = rows[first : first + step]
            left = self._wide(a[some])
            again = _backwards(left) @ _backwards(factor.T).T
            size = abs(left) @ abs(factor)
            bound = 2 * (k + 2) * (numbers.accumulated + numbers.checks) * size * numbers.factor
            bound = bound + (4 * numbers.factors + 2 * numbers.split) * size * numbers.factor
            bound = bound + 4 * numbers.stored * abs(again) + numbers.smallest * (k + 1)
            given = self._wide(c[some][:, columns])
            for i, j in places(~(abs(given - again) <= bound)):
                right = complex(again[i, j])
                if not abs(right) <= numbers.largest:
                    raise InputError(f"the product overflows at {(some[i], columns[j])}: scale a or b")
                yield some[i], columns[j], right

    def at(self, place: tuple[int, ...]) -> complex:
        return complex(self.c[place])

    def put(self, place: tuple[int, ...], value: complex) -> None:
        self.c[place] = value if self.number_type.factor > 1 else value.real
        if not is_tensor(self.product) or self.product.data_ptr() != self.c.data_ptr():
            self._copy_back()

    def _copy_back(self) -> None:
        """A vector's product is a view, or a number of its own."""
        whole = self.c.reshape(self.product.shape)
        if is_tensor(self.product):
            self.product.data.copy_(whole)
        elif self.product.ndim:
            self.product[...] = whole
        else:
            self.product = self.product.dtype.type(whole[()])


def _chunk(x: Any) -> int:
    return _CHUNK if not is_tensor(x) or x.device.type == "cpu" else _CHUNK_ON_GPU


def _backwards(matrix: Any) -> Any:
    """Its columns from the last to the first, so that sums over them are rounded in other places."""
    return matrix.flip(-1) if is_tensor(matrix) else matrix[..., ::-1]


def _unravel(number: int, shape: Any) -> tuple[int, ...]:
    found: list[int] = []
    for size in reversed(tuple(shape)):
        number, rest = divmod(number, size)
        found.append(rest)
    return tuple(reversed(found))

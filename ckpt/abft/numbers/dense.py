"""Dense kernels on one process: the factorisation of a panel with partial pivoting, triangular solves, sums of arrays.

Recursive, so that most of the work is done by numpy's matrix product. LAPACK does the panel where scipy is there and
the panel is large enough to be worth its import.

Pure: numbers in, numbers out.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["factorise", "solve_lower", "solve_upper", "summed", "unit_lower"]

Array = npt.NDArray[Any]

_LEAF = 8
"""Columns below which a loop is as fast as recursion."""
_LAPACK_FROM = 1 << 18
"""Numbers in a panel from which on scipy's LAPACK is worth its import, which takes a tenth of a second and more."""


def factorise(panel: Array) -> tuple[Array, int]:
    """LU factorisation of `panel` (m × nb, m ≥ nb) in place: unit lower L below the diagonal, U above, rows exchanged.

    Returns the pivots (row exchanged with row 0, 1, …; 64-bit integers) and how many columns have a pivot that is not zero:
    if that is less than nb, the columns from there on are not factorised.
    """
    if panel.size >= _LAPACK_FROM:
        getrf = _getrf(panel.dtype)
        if getrf is not None:
            lu, pivots, info = getrf(panel)
            panel[...] = lu
            return np.asarray(pivots, dtype=np.int64), panel.shape[1] if info == 0 else int(info) - 1
    pivots = np.empty(panel.shape[1], dtype=np.int64)
    return pivots, _factorise(panel, 0, panel.shape[1], pivots)


def _getrf(dtype: np.dtype[Any]) -> Any:
    try:
        from scipy.linalg import lapack
    except ImportError:
        return None
    return lapack.get_lapack_funcs(("getrf",), dtype=dtype)[0]


def _factorise(panel: Array, first: int, last: int, pivots: Array) -> int:
    """Columns first … last-1, whose rows above `first` are done. Rows are exchanged over the whole panel."""
    if last - first <= _LEAF:
        return _factorise_columns(panel, first, last, pivots)
    middle = (first + last) // 2
    good = _factorise(panel, first, middle, pivots)
    if good < middle:
        return good
    upper = solve_lower(panel[first:middle, first:middle], panel[first:middle, middle:last])
    panel[first:middle, middle:last] = upper
    panel[middle:, middle:last] -= panel[middle:, first:middle] @ upper
    return _factorise(panel, middle, last, pivots)


def _factorise_columns(panel: Array, first: int, last: int, pivots: Array) -> int:
    for j in range(first, last):
        found = j + int(np.argmax(np.abs(panel[j:, j])))
        pivots[j] = found
        if found != j:
            panel[[j, found]] = panel[[found, j]]
        if panel[j, j] == 0:
            return j
        panel[j + 1 :, j] /= panel[j, j]
        panel[j + 1 :, j + 1 : last] -= np.outer(panel[j + 1 :, j], panel[j, j + 1 : last])
    return last


def solve_lower(lower: Array, right: Array) -> Array:
    """The solution X of L·X = B, L unit lower triangular; what `lower` has on and above the diagonal is not looked at."""
    x = np.array(right)
    _solve_lower(lower, x)
    return x


def _solve_lower(lower: Array, x: Array) -> None:
    size = len(lower)
    if size <= _LEAF:
        for i in range(1, size):
            x[i] -= lower[i, :i] @ x[:i]
        return
    half = size // 2
    _solve_lower(lower[:half, :half], x[:half])
    x[half:] -= lower[half:, :half] @ x[:half]
    _solve_lower(lower[half:, half:], x[half:])


def solve_upper(upper: Array, right: Array) -> Array:
    """The solution X of U·X = B, U upper triangular without zeros on the diagonal; what is below is not looked at."""
    x = np.array(right)
    _solve_upper(upper, x)
    return x


def _solve_upper(upper: Array, x: Array) -> None:
    size = len(upper)
    if size <= _LEAF:
        for i in reversed(range(size)):
            x[i] = (x[i] - upper[i, i + 1 :] @ x[i + 1 :]) / upper[i, i]
        return
    half = size // 2
    _solve_upper(upper[half:, half:], x[half:])
    x[:half] -= upper[:half, half:] @ x[half:]
    _solve_upper(upper[:half, :half], x[:half])


def summed(first: Array, others: Iterable[Array]) -> Array:
    """The sum of arrays with the rounding of one addition: what each addition loses is added up beside it (TwoSum)."""
    total, lost = first, np.zeros_like(first)
    for each in others:
        found = total + each
        part = found - total
        lost += (total - (found - part)) + (each - part)
        total = found
    return np.asarray(total + lost)


def unit_lower(panel: Array, nb: int) -> Array:
    """A panel with the identity's diagonal, and zeros above, in its first block."""
    found = panel.copy()
    found[:nb] = np.tril(panel[:nb], -1)
    found[range(nb), range(nb)] = 1
    return found

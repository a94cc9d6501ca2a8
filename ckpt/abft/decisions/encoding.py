"""Weights of the checksums, and what columns that hold checksums mean for the solution.

A column of checksums holds E_J = Σ_q w_q·A_(J,q) of every group J. The weights w_q = s_q·x_q^i have random signs s_q = ±1,
which depend on the encoding's number, the group and the column, and its *degree* i. Of degree 0 they are signs alone (Huang
and Abraham 1984 have sums; random signs keep the growth of rounding errors over several replacements far smaller). Signs
alone cannot tell several lost columns apart: with two, half of the groups would be singular. So further columns of
checksums of one grid have the degrees 1, 2, …, with positive x_q that grow with q: any number of these rows are independent
in any equal number of columns (Vandermonde).

Each update of a step of the LU factorisation is linear in the columns, so what a column holds stays the same sum of the
A_(J,q) before and after every step, if what lies below the diagonal in finished columns counts as zero. A *row* of weights
says which sum: column v of data holds A_(J,v) at first, (0, …, 1, …, 0); after it was replaced by checksums it has their
row. With the rows of all columns of data as the matrix W, what is factorised is A' = A·W^T (per group), A'y = b has the
solution y, and A·x = b the solution x = W^T·y. That is the paper's T, for all replacements together.

*Subtraction* makes a column hold another row: the row r is c·W with c = r·W⁻¹, and so is what it stands for. Errors of what
is computed so, and those of x, may be larger by the *condition number* of W, here in the maximum norm: what decides must be
the same at all ranks, so it is computed with Python's numbers in a fixed order, not by a library. Most groups have one of
few patterns of signs, so what was computed is remembered: all ranks wait for the decision.

Pure.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy.typing as npt

__all__ = ["Row", "condition", "row_of", "sign", "solution", "subtraction", "unit", "weights"]

Array = npt.NDArray[Any]
Row = tuple[float, ...]
"""By how much each true column A_(J,0) … A_(J,Q-1) counts in what a column holds of a group."""

_SPREAD = 2.0
"""Logarithm of the ratio of the largest and smallest x_q."""


def sign(encoding: int, group: int, q: int) -> int:
    """+1 or -1: the sign of data column q in the checksum of a group, in the encoding of this number."""
    mixed = (encoding * 0x9E3779B1 + group * 0x85EBCA77 + q * 0xC2B2AE3D + 0x27D4EB2F) & 0xFFFFFFFF
    for multiplier in (0x2C1B3C6D, 0x297A2D39):  # the finalising steps of a known 32-bit mixer
        mixed = ((mixed ^ mixed >> 15) * multiplier) & 0xFFFFFFFF
    return 1 if mixed >> 16 & 1 else -1


def weights(encoding: int, group: int, Q: int, degree: int = 0) -> Row:
    """The weights of the columns that are held in the checksum of a group."""
    return tuple(sign(encoding, group, q) * _base(q, Q) ** degree for q in range(Q))


def _base(q: int, Q: int) -> float:
    """x_q. Of few digits: the same everywhere, however the exponential function rounds."""
    return round(math.exp(_SPREAD * (q - (Q - 1) / 2) / Q) * 1024) / 1024


@lru_cache
def unit(q: int, Q: int) -> Row:
    """The row of a column that holds what it should."""
    return tuple(float(v == q) for v in range(Q))


def row_of(much: Sequence[float], rows: Sequence[Row]) -> Row:
    """The row of a sum in which the columns with these rows count so much."""
    return tuple(sum(c * row[q] for c, row in zip(much, rows, strict=True)) for q in range(len(rows)))


@lru_cache
def subtraction(rows: tuple[Row, ...], wanted: Row) -> Row:
    """By how much each column of data counts in what has the row `wanted`: c with c·W = wanted. Raises ZeroDivisionError:
    the rows depend on each other."""
    Q = len(rows)
    changed = [v for v in range(Q) if rows[v] != unit(v, Q)]
    inverse = _inverse([[rows[v][q] for q in changed] for v in changed])
    much = list(wanted)
    own = [sum(wanted[q] * inverse[i][j] for i, q in enumerate(changed)) for j in range(len(changed))]
    for v, c in zip(changed, own, strict=True):
        much[v] = c
    for q in range(Q):
        if q not in changed:
            much[q] -= sum(c * rows[v][q] for v, c in zip(changed, own, strict=True))
    return tuple(much)


@lru_cache
def condition(rows: tuple[Row, ...]) -> float:
    """The condition number of the rows in the maximum norm; infinite: they depend on each other."""
    Q = len(rows)
    try:
        back = [subtraction(rows, unit(q, Q)) for q in range(Q) if rows[q] != unit(q, Q)]
    except ZeroDivisionError:
        return math.inf
    norms = [max((sum(map(abs, row)) for row in of), default=1.0) for of in (rows, back)]
    return max(1.0, norms[0]) * max(1.0, norms[1])


def _inverse(matrix: list[list[float]]) -> list[list[float]]:
    """By elimination with partial pivoting. Raises ZeroDivisionError: singular."""
    size = len(matrix)
    work = [[*row, *unit(i, size)] for i, row in enumerate(matrix)]
    for j in range(size):
        pivot = max(range(j, size), key=lambda i: abs(work[i][j]))
        work[j], work[pivot] = work[pivot], work[j]
        work[j] = [number / work[j][j] for number in work[j]]
        for i in range(size):
            if i != j and work[i][j]:
                work[i] = [a - work[i][j] * b for a, b in zip(work[i], work[j], strict=True)]
    return [row[size:] for row in work]


def solution(y: Array, rows: Mapping[int, Sequence[Row]], Q: int, nb: int) -> Array:
    """The solution x of A·x = b from the solution y of A'·y = b. Shape (order, r); the order is a multiple of Q·nb. `rows`:
    of the columns of data, for each group in which not all are those of true columns."""
    x, shape = y.copy(), (len(y) // (Q * nb), Q, nb, y.shape[1])
    blocks, held = x.reshape(shape), y.reshape(shape)
    for group, of in rows.items():
        for q in range(Q):
            blocks[group, q] = 0
            for v in range(Q):
                if of[v][q]:
                    blocks[group, q] += of[v][q] * held[group, v]
    return x

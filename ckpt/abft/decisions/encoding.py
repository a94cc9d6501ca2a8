"""Weights of the checksums, and what a replaced column means for the solution.

The checksum of a group J is E_J = Σ_q s_q · A_(J,q) with signs s_q = ±1, which depend on the encoding's number, the
group and the column (Huang and Abraham 1984 have sums; random signs keep the growth of rounding errors over several
replacements far smaller). Each update of a step of the LU factorisation is linear in the columns, so the relation
holds before and after every step, if what lies below the diagonal in finished columns counts as zero.

*Replacement* of column d by the checksums: of each group whose column d has not been factorised, A' = A·T, where T is
the identity but for column d, which holds the signs. A'y = b has the solution y, and A·x = b the solution x = T·y:

    x_(J,d) = s_d·y_(J,d)        x_(J,q) = y_(J,q) + s_q·y_(J,d)  for q ≠ d

Several replacements follow each other: x = T_1·T_2·…·y.

*Subtraction* recovers the column itself: A_(J,d) = s_d·(E_J - Σ_(q≠d) s_q·A_(J,q)).

Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy.typing as npt

__all__ = ["Replacement", "sign", "signs", "solution"]

Array = npt.NDArray[Any]


def sign(encoding: int, group: int, q: int) -> int:
    """+1 or -1: the weight of data column q in the checksum of a group, in the encoding of this number."""
    mixed = (encoding * 0x9E3779B1 + group * 0x85EBCA77 + q * 0xC2B2AE3D + 0x27D4EB2F) & 0xFFFFFFFF
    for multiplier in (0x2C1B3C6D, 0x297A2D39):  # the finalising steps of a known 32-bit mixer
        mixed = ((mixed ^ mixed >> 15) * multiplier) & 0xFFFFFFFF
    return 1 if mixed >> 16 & 1 else -1


def signs(encoding: int, group: int, Q: int) -> list[int]:
    return [sign(encoding, group, q) for q in range(Q)]


class Replacement(NamedTuple):
    """Column `column` was replaced by the checksums of encoding `encoding`, before panel `step`, in these groups."""

    column: int
    step: int
    encoding: int
    groups: frozenset[int]


def solution(y: Array, replacements: Sequence[Replacement], Q: int, nb: int) -> Array:
    """The solution x of A·x = b from the solution y of A'·y = b. Shape (order, r); the order is a multiple of Q·nb."""
    x = y.copy()
    blocks = x.reshape(-1, Q, nb, y.shape[1])
    for replacement in reversed(replacements):
        d = replacement.column
        for group in replacement.groups:
            weights = signs(replacement.encoding, group, Q)
            lost = blocks[group, d].copy()
            for q in range(Q):
                if q != d:
                    blocks[group, q] += weights[q] * lost
            blocks[group, d] = weights[d] * lost
    return x

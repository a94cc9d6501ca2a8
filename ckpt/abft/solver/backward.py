"""The end of a solve: U·y = c by back substitution, the solution at every rank, the residual.

Nothing here changes U or c, so all of it can be begun again after a failure.

Block row j is solved by the process that holds U_jj. The columns of its process row have summed what the unknowns found so
far contribute to it, each for its own block columns, and send that; the new unknowns go to the other rows of its column.
Row 0 of every column then has all unknowns of its column, and gives them to every living rank, idle ones too: each
applies the replacements (encoding.py), and has x.

The residual is Linpack's, of the matrix as `fill` gives it, so it depends on nothing that could be lost or wrong. Every
living rank that has `fill` looks at a share of the block rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ckpt.abft.decisions.course import final_rows
from ckpt.abft.decisions.encoding import solution
from ckpt.abft.numbers.dense import solve_upper
from ckpt.abft.solver.link import tag
from ckpt.abft.solver.member import Member

__all__ = ["Shares", "digest", "finite", "residual", "residual_share", "spread", "substitute"]

Array = npt.NDArray[Any]
Shares = tuple[float, ...]


def substitute(member: Member) -> Array:
    """The solution x (n × r), at every rank."""
    shape, course, link = member.shape, member.course, member.link
    assert course is not None
    place, dtype, count = member.place, member.matrix.dtype, member.right.shape[1]
    mine = _unknowns(member) if place is not None and place.v < shape.Q else None
    requests = []
    if place is not None and place.p == 0 and mine is not None:
        requests = link.start_sends(course.roles.ranks(), mine, tag("unknown", shape.blocks))
    y = np.empty((shape.groups, shape.Q, shape.nb, count), dtype=dtype)
    for q, column in enumerate(course.roles.data):
        if link.rank == column.ranks[0]:
            y[:, q] = mine
        else:
            size = shape.groups, shape.nb, count
            y[:, q] = link.receive(column.ranks[0], size, dtype, tag("unknown", shape.blocks))
    link.finish(*requests)
    return solution(y.reshape(shape.order, count), final_rows(course), shape.Q, shape.nb)[: shape.n]


def _unknowns(member: Member) -> Array:
    """The unknowns of this rank's column (groups × nb × r)."""
    shape, course, link, local, place = member.shape, member.course, member.link, member.local, member.place
    assert course is not None and local is not None and place is not None
    dtype, nb, count = member.matrix.dtype, shape.nb, member.right.shape[1]
    known = np.zeros_like(local.right_hand_sides)  # what the unknowns of this column contribute to each row
    found = np.empty((shape.groups, nb, count), dtype=dtype)
    for j in reversed(range(shape.blocks)):
        group, v = divmod(j, shape.Q)
        p, first = shape.root(j), shape.rows_before(place.p, j)
        if place.p == p and place.v != v:
            part = np.ascontiguousarray(known[first : first + nb])
            link.send(course.roles.rank(p, v), part, tag("partial", j))
        if place.v != v:
            continue
        if place.p == p:
            right = local.right_hand_sides[first : first + nb] - known[first : first + nb]
            for q in range(shape.Q):
                if q != v:
                    right -= link.receive(course.roles.rank(p, q), right.shape, dtype, tag("partial", j))
            found[group] = solve_upper(local.block(group)[first : first + nb], right)
            for row in range(shape.P):
                if row != p:
                    link.send(course.roles.rank(row, v), found[group], tag("unknown", j))
        else:
            found[group] = link.receive(course.roles.rank(p, v), (nb, count), dtype, tag("unknown", j))
        known[:first] += local.block(group)[:first] @ found[group]
    return found


def residual_share(member: Member, x: Array, right: Array) -> Shares:
    """(largest |b - A·x|, largest sum of a row of |A|, largest and smallest |A_ij| that is not 0) of this rank's rows; the
    size of x and of b, the digest of x, and that of b."""
    matrix, course = member.matrix, member.course
    assert course is not None
    ranks = course.having(course.roles.ranks())
    worst, norm, largest, smallest = 0.0, 0.0, 0.0, np.inf
    for i in range(ranks.index(member.link.rank), -(-matrix.n // matrix.nb), len(ranks)):
        rows = slice(i * matrix.nb, min((i + 1) * matrix.nb, matrix.n))
        numbers = matrix.numbers(rows, slice(0, matrix.n))
        sizes = np.abs(numbers)
        with np.errstate(over="ignore"):
            norm = max(norm, float(sizes.sum(axis=1, dtype=np.float64).max()))
        wide = np.complex128 if numbers.dtype.kind == "c" else np.float64
        difference = np.abs(right[rows] - numbers.astype(wide) @ x.astype(wide))
        worst = max(worst, float(difference.max(initial=0.0)) if np.isfinite(difference).all() else np.inf)
        largest = max(largest, float(sizes.max()))
        smallest = min(smallest, float(sizes.min(initial=np.inf, where=sizes > 0)))
    of_x, of_b = (finite(float(np.abs(array).max(initial=0.0))) for array in (x, right))
    return worst, norm, largest, smallest, of_x, of_b, *digest(x), *digest(right)


def finite(value: float) -> float:
    """Infinity for what is no number, which no comparison finds."""
    return value if np.isfinite(value) else np.inf


def digest(array: Array) -> tuple[float, float]:
    """Real and imaginary part of the sum of all numbers with random signs: nearly equal at two ranks if the arrays are."""
    signs = np.random.default_rng(array.size).choice([-1.0, 1.0], size=array.size)
    with np.errstate(all="ignore"):
        found = complex(signs @ array.reshape(-1).astype(np.complex128))
    return finite(found.real), finite(found.imag)


def spread(shares: Sequence[Sequence[float]], first: int) -> float:
    """By how much the digests of ranks differ that stand at this place of their shares."""
    found = [[share[place] for share in shares] for place in (first, first + 1)]
    if not np.isfinite(found).all():
        return np.inf
    return max(max(each) - min(each) for each in found)


def residual(member: Member, shares: list[Shares]) -> float:
    """max |b - A·x| / (ε · (‖A‖·‖x‖ + ‖b‖) · n), of all ranks' shares; ε: half the distance of 1 to the next number.

    Every rank has looked at some rows with what it has as x and b. That these are the same at all ranks follows from the
    digests: how far they differ counts as a residual. The same at all ranks, since it is made of shares alone.
    """
    worst, norm, x, b = (max(share[place] for share in shares) for place in (0, 1, 4, 5))
    if not np.isfinite(norm * x + b):
        return float("inf")  # compared with that, every solution would be right
    worst = max(worst, norm * spread(shares, 6) if norm > 0 else 0.0, spread(shares, 8))
    scale = float(np.finfo(member.matrix.dtype).eps) / 2 * (norm * x + b) * member.shape.n
    if worst == 0:
        return 0.0
    return worst / scale if scale > 0 else float("inf")

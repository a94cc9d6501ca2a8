"""`lu`, `cholesky`, `qr`: factors at every rank. The factorisation is that of a solve, with its steps and what is decided
after a death; a lost column is computed back at once, since columns of checksums have no triangular factors.

At the end every column of data gives its part of the upper triangle to all living ranks, and what it keeps of L or of the
reflections (decisions/copies.py). Nothing is changed by that, so it can be begun again.

The factors are compared with the matrix: F·x with A·x for a vector x of random signs (Freivalds 1977), A as `fill` gives it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ckpt.abft.decisions.course import Course
from ckpt.abft.decisions.grid import Shape
from ckpt.abft.decisions.steps import trailing_group
from ckpt.abft.errors import InputError
from ckpt.abft.numbers import triangle
from ckpt.abft.numbers.arrays import plain
from ckpt.abft.numbers.dense import solve_lower, solve_upper, unit_lower
from ckpt.abft.numbers.local import Array, Local, Panel
from ckpt.abft.numbers.methods import LocalCholesky, LocalQR, ReflectionPanel
from ckpt.abft.numbers.triangle import cholesky_factor, upper_triangle
from ckpt.abft.solver.link import tag
from ckpt.abft.solver.matrix import Matrix
from ckpt.abft.solver.member import Member
from ckpt.abft.solver.method import Method
from ckpt.abft.solver.report import Report, Solution
from ckpt.abft.solver.solve import Task, factorised

__all__ = ["LU", "QR", "cholesky", "lu", "qr"]


class LU(NamedTuple):
    """The factors ``A[p] = L·U`` of a matrix, with pivoting: row numbers p (n), unit lower triangular L and upper
    triangular U (n × n)."""

    p: Array
    L: Array
    U: Array
    report: Report

    def solve(self, b: Any) -> Array:
        """The solution x of A·x = b for n numbers or n × r, on this rank alone. Raises InputError."""
        right = plain(b, "b")
        if right.ndim not in (1, 2) or len(right) != len(self.p):
            raise InputError(f"b must have {len(self.p)} rows, as the matrix; its shape is {right.shape}")
        if right.dtype.kind not in "biufc" or not np.isfinite(right).all():
            raise InputError("b must have finite numbers")
        right = right.astype(np.result_type(right.dtype, self.L.dtype))
        return solve_upper(self.U, solve_lower(self.L, right[self.p]))


class QR(NamedTuple):
    """The factors ``A = Q·R`` of a matrix: unitary Q and upper triangular R (n × n)."""

    Q: Array
    R: Array
    report: Report


def lu(A: Matrix, *, check: bool = True, verify: int = 0, look_ahead: int = 0) -> LU:
    """The LU factorisation with partial pivoting, at every living rank of the grid.

    Collective over the ranks of the grid, spares included. L is protected by copies of its panels at a neighbour column.
    `check`, `verify`, `look_ahead`: as in `solve`. Raises at all living ranks alike: InputError, GridError, Singular,
    TooManyLost, Inaccurate, RankFailed.
    """
    found, report = _factors(A, _LU(), check, verify, look_ahead)
    return LU(
        found[-1].real.astype(np.int64), np.ascontiguousarray(_lower(found[:-1])), np.triu(found[:-1]), report
    )


def cholesky(A: Matrix, *, check: bool = True, verify: int = 0) -> Solution:
    """L with A = L·L^H, lower triangular, of a Hermitian, positive definite matrix (n × n), at every living rank.

    Collective over the ranks of the grid, spares included. `check`, `verify`: as in `solve`; `check` also compares A
    with its adjoint. Raises at all living ranks alike: InputError (not Hermitian), NotPositive, GridError, TooManyLost,
    Inaccurate, RankFailed.
    """
    found, report = _factors(A, _Cholesky(), check, verify)
    return Solution.of(found, report)


def qr(A: Matrix, *, check: bool = True, verify: int = 0) -> QR:
    """The QR factorisation by Householder's reflections, at every living rank of the grid. R's diagonal may be negative.

    Collective over the ranks of the grid, spares included. The reflections are protected by copies at a neighbour column.
    `check`, `verify`: as in `solve`. Raises at all living ranks alike: InputError, GridError, TooManyLost, Inaccurate,
    RankFailed. A singular matrix has factors too.
    """
    found, report = _factors(A, _QR(), check, verify)
    return QR(found[: A.n], found[A.n :], report)


def _factors(
    A: Matrix, task: _Factors, check: bool, verify: int, look_ahead: int = 0
) -> tuple[Array, Report]:
    found = factorised(A, task, check, verify, look_ahead)
    assert found.report is not None
    return np.asarray(found), found.report


def _lower(packed: Array) -> Array:
    found = np.tril(packed, -1)
    found[range(len(found)), range(len(found))] = 1
    return found


class _Factors(Task, Method):
    """What the three have in common. `finish` makes one array of the factors."""

    keep = True

    @property
    def method(self) -> Method:
        return self

    def probe(self, member: Member) -> tuple[Array, Array]:
        """x, and what the factors say that A·x is."""
        assert member.solution is not None
        wide = np.complex128 if member.solution.dtype.kind == "c" else np.float64
        n = member.shape.n
        x = np.random.default_rng(n).choice([-1.0, 1.0], size=(n, 1)).astype(wide)
        with np.errstate(all="ignore"):
            return x, self.product(member.solution.astype(wide), x)

    def product(self, factors: Array, x: Array) -> Array:
        raise NotImplementedError


class _LU(_Factors):
    name = "lu"

    def shape(self, n: int, right: int) -> tuple[int, ...]:
        return n + 1, n

    def finish(self, member: Member) -> Array:
        """L below the diagonal and U, and the row numbers as a last row."""
        shape = member.shape
        parts, panels = _gathered(member)
        upper = upper_triangle(shape, parts, member.matrix.dtype)
        packed, rows = np.zeros_like(upper), np.arange(shape.order)
        for k in range(shape.blocks):
            first, columns = k * shape.nb, slice(k * shape.nb, (k + 1) * shape.nb)
            for p in range(shape.P):
                places = shape.row_numbers(p)[shape.rows_before(p, k) :]
                packed[places, columns] = panels[p][k].lower
            for t, pivot in enumerate(panels[0][k].pivots.tolist()):
                one, other = [first + t, pivot], [pivot, first + t]
                packed[one, :first] = packed[other, :first]
                rows[one] = rows[other]
        found = np.tril(packed, -1) + np.triu(upper)
        n = shape.n
        return np.ascontiguousarray(np.vstack([found[:n, :n], rows[:n].astype(upper.dtype)[None]]))

    def product(self, factors: Array, x: Array) -> Array:
        rows, packed = factors[-1].real.astype(np.int64), factors[:-1]
        found = np.empty_like(x)
        found[rows] = _lower(packed) @ (np.triu(packed) @ x)
        return found


class _Cholesky(_Factors):
    name, keep = "cholesky", False

    def local(self, shape: Shape, p: int, dtype: np.dtype[Any], right: int) -> Local:
        return LocalCholesky(shape, p, dtype, right)

    def begin(self, local: Local, course: Course, v: int, k: int) -> None:
        assert isinstance(local, LocalCholesky)
        local.begin(course.rows_at(k, v), trailing_group(course.shape, k, v, course.open_at(k, v)))

    def shape(self, n: int, right: int) -> tuple[int, ...]:
        return n, n

    def finish(self, member: Member) -> Array:
        shape, link = member.shape, member.link
        assert member.course is not None
        ranks = member.course.having(member.course.roles.ranks())
        first = ranks.index(link.rank) if link.rank in ranks else shape.n
        for i in range(first, -(-shape.n // shape.nb), len(ranks)):
            self._compare(member.matrix, slice(i * shape.nb, min((i + 1) * shape.nb, shape.n)))
        parts, _ = _gathered(member)
        found = cholesky_factor(shape, parts, member.matrix.dtype)
        return np.ascontiguousarray(found[: shape.n, : shape.n])

    def _compare(self, matrix: Matrix, rows: slice) -> None:
        whole = slice(0, matrix.n)
        one, other = matrix.numbers(rows, whole), matrix.numbers(whole, rows).conj().T
        close = 8 * float(np.finfo(matrix.dtype).eps) * float(np.abs(one).max(initial=0.0))
        wrong = np.argwhere(np.abs(one - other) > close)
        if len(wrong):
            i, j = rows.start + int(wrong[0][0]), int(wrong[0][1])
            raise InputError(
                f"A[{i}, {j}] is {one[tuple(wrong[0])]} and A[{j}, {i}] is {other[tuple(wrong[0])].conj()}: the matrix is "
                f"not Hermitian"
            )

    def product(self, factors: Array, x: Array) -> Array:
        return np.asarray(factors @ (factors.conj().T @ x))


class _QR(_Factors):
    name = "qr"

    def local(self, shape: Shape, p: int, dtype: np.dtype[Any], right: int) -> Local:
        return LocalQR(shape, p, dtype, right)

    def panel(self, shape: Shape, p: int, k: int, dtype: np.dtype[Any]) -> Panel:
        return ReflectionPanel(shape, p, k, dtype)

    def shape(self, n: int, right: int) -> tuple[int, ...]:
        return 2 * n, n

    def finish(self, member: Member) -> Array:
        """Q, and R below it. Every rank computes some columns of Q."""
        shape, link = member.shape, member.link
        assert member.course is not None
        parts, panels = _gathered(member)
        upper = upper_triangle(shape, parts, member.matrix.dtype)
        ranks = member.course.roles.ranks()
        slices = {
            rank: slice(shape.n * at // len(ranks), shape.n * (at + 1) // len(ranks))
            for at, rank in enumerate(ranks)
        }
        mine = np.ascontiguousarray(self._columns(shape, panels, slices[link.rank], upper.dtype))
        sizes = {rank: (shape.n, columns.stop - columns.start) for rank, columns in slices.items()}
        unitary = np.empty((shape.n, shape.n), dtype=upper.dtype)
        for rank, given in link.exchange(ranks, mine, sizes, tag("factor", shape.blocks + 2)).items():
            unitary[:, slices[rank]] = given
        return np.ascontiguousarray(np.vstack([unitary, np.triu(upper)[: shape.n, : shape.n]]))

    def _columns(self, shape: Shape, panels: Panels, columns: slice, dtype: np.dtype[Any]) -> Array:
        found = np.eye(shape.order, dtype=dtype)[:, columns]
        for k in reversed(range(shape.blocks)):
            first = k * shape.nb
            lower = np.empty((shape.order - first, shape.nb), dtype=dtype)
            for p in range(shape.P):
                places = shape.row_numbers(p)[shape.rows_before(p, k) :]
                lower[places - first] = panels[p][k].lower
            lower = unit_lower(lower, shape.nb)
            panel = panels[shape.root(k)][k]
            assert isinstance(panel, ReflectionPanel)
            found[first:] -= lower @ (panel.factor @ (lower.conj().T @ found[first:]))
        return found[: shape.n]

    def product(self, factors: Array, x: Array) -> Array:
        n = len(x)
        unitary = factors[:n]
        return np.asarray(unitary @ (unitary.conj().T @ (unitary @ (factors[n:] @ x))))


Panels = Sequence[dict[int, Panel]]


def _gathered(member: Member) -> tuple[dict[tuple[int, int], Array], Panels]:
    """The parts of the upper triangle, and the panels of every process row, if they are kept."""
    shape, course, link, place = member.shape, member.course, member.link, member.place
    assert course is not None
    dtype, keep = member.matrix.dtype, member.method.keep
    numbers, packed = tag("factor", shape.blocks), tag("factor", shape.blocks + 1)
    requests, mine, memory = list[Any](), np.zeros(0, dtype), np.zeros(0, np.uint8)
    if place is not None and place.v < shape.Q:
        assert member.local is not None
        mine = triangle.packed(shape, place.p, member.local.numbers)
        kept = range(place.v, shape.blocks, shape.Q) if keep else ()
        memory = np.concatenate([memory, *(member.kept[k].packed for k in kept)])
        member.see(*(member.kept[k] for k in kept))
        requests = link.start_sends(course.roles.ranks(), mine, numbers)
        if keep:
            requests += link.start_sends(course.roles.ranks(), memory, packed)
    parts: dict[tuple[int, int], Array] = {}
    panels: Panels = [{} for _ in range(shape.P)]
    for v, column in enumerate(course.roles.data):
        for p, rank in enumerate(column.ranks):
            own = rank == link.rank
            size = (triangle.packed_size(shape, p),)
            parts[p, v] = mine if own else link.receive(rank, size, dtype, numbers)
            if keep:
                empty = {k: member.method.panel(shape, p, k, dtype) for k in range(v, shape.blocks, shape.Q)}
                total = sum(panel.packed.size for panel in empty.values())
                whole = memory if own else link.receive(rank, (total,), np.uint8, packed)
                panels[p].update(_unpacked(empty, whole))
    link.finish(*requests)
    return parts, panels


def _unpacked(panels: dict[int, Panel], memory: Array) -> dict[int, Panel]:
    first = 0
    for panel in panels.values():
        panel.packed[...] = memory[first : first + panel.packed.size]
        first += panel.packed.size
    return panels

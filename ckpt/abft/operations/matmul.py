"""`matmul`: C = A·B on the grid by SUMMA (van de Geijn and Watts 1997), C encoded by columns of checksums.

Step k adds A's block column k times B's block row k to C: its owners send them along the process rows, and along the process
columns. A column of checksums holds checksums of B, so what it adds up is those of C, after every step. A and B are
what `fill` gives, so only C can be lost.

A rank is between two steps when it is interrupted: `step` says how many it has added. After a death a lost column is
replaced by checksums as it is (decisions/summa.py), with the checksums of B that they have; A's blocks of the lost column
are filled again. Ranks that are behind get the panels of their steps from the owners. Idle ranks form new checksums, of B
and of C, which are encoded when all have come to the step of the foremost. If there are too few, processes of
`ckpt run --spares K` are started, and join them (joining.py).

At the end all columns of data go to everybody, and the true parts are computed from what is held. The result is compared
with A·(B·x) for a vector x of random signs (Freivalds 1977), computed from `fill`, by everybody in part.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ckpt.abft.decisions.columns import Layout
from ckpt.abft.decisions.encoding import unit
from ckpt.abft.decisions.grid import Place
from ckpt.abft.decisions.joining import Meeting, Reserve
from ckpt.abft.decisions.progress import Progress
from ckpt.abft.decisions.summa import Course, Decision, decide
from ckpt.abft.errors import Inaccurate, InputError
from ckpt.abft.numbers.checked import checked_product
from ckpt.abft.operations import product
from ckpt.abft.operations.ledger import given
from ckpt.abft.solver.backward import digest, spread
from ckpt.abft.solver.link import Link
from ckpt.abft.solver.matrix import Grid, Matrix
from ckpt.abft.solver.protected import Protected, log_corrected, put_right
from ckpt.abft.solver.report import Loss, Report, Solution
from ckpt.abft.solver.started import take_in, without_fill

__all__ = ["matmul"]

Array = npt.NDArray[Any]

RESIDUAL_BOUND = 16.0


def matmul(A: Matrix, B: Matrix, *, check: bool = True, verify: bool = False) -> Solution:
    """The product A·B (n × n), at every living rank of the grid; `.report` tells what happened.

    `A`, `B`: matrices of one grid, of the same order, block size and kind. Collective over the ranks of the grid, spares
    included: every living one calls it with equal arguments. As many columns may lose ranks at once as the grid has columns
    of checksums, and one after the other as spares can form new ones.

    `check`: compare with A·(B·x), and raise Inaccurate if they differ by more than rounding explains. `verify`: every local
    product is checked as `checked_matmul` does, and arrays that travel by digests.

    Raises at all living ranks alike: InputError, TooManyLost, Inaccurate, WrongProduct, RankFailed.
    """
    for name, matrix in (("A", A), ("B", B)):
        if not isinstance(matrix, Matrix):
            raise InputError(f"{name} must be made by grid.matrix(), not {type(matrix).__name__}")
    if A.grid is not B.grid:
        raise InputError("A and B must be matrices of the same grid")
    mine, other = ((each.n, each.nb, each.dtype.name) for each in (A, B))
    if mine != other:
        raise InputError(f"A and B must have the same order, block size and kind: {mine} and {other}")
    grid = A.grid
    course = Course(grid.P, grid.Q, grid.redundant, A.shape.blocks, grid.comm.size)
    link = Link(grid.comm, grid.hook, seals=verify)
    signature = f"{A.signature()} {B.signature()} {check} {verify}"
    operation = _Product(link, A, B, course, check, verify, signature)
    operation.run()
    return operation.outcome()


class _Brief(NamedTuple):
    """What a process is told that is started during a product: see `started.Brief`."""

    course: Course
    n: int
    nb: int
    dtype: Any
    check: bool
    verify: bool
    signature: str
    losses: tuple[Loss, ...]
    meetings: int

    @property
    def seals(self) -> bool:
        """Do arrays travel with digests?"""
        return self.verify

    def serve(self, link: Link, comm: Any, course: Course, states: Mapping[int, Progress]) -> None:
        """Take part to the end."""
        grid = Grid(course.P, course.Q, redundant=0, comm=comm)
        nothing = Matrix(grid, self.n, without_fill, self.nb, self.dtype)
        operation = _Product(link, nothing, nothing, course, self.check, self.verify, self.signature)
        operation.losses, operation.meetings = list(self.losses), self.meetings
        operation.run(states)


class _Product(Protected):
    """One rank in a product. `course`: what all know when it begins."""

    operation = "matmul"

    def __init__(
        self, link: Link, A: Matrix, B: Matrix, course: Course, check: bool, verify: bool, signature: str
    ) -> None:
        super().__init__(link, signature)
        self.A, self.B, self.check, self.verify = A, B, check, verify
        self.shape = A.shape
        self.course = course
        self.reserve = Reserve(A.grid.has_reserve)
        self.decision: Decision | None = None
        self.place: Place | None = None
        self.a: Array | None = None
        self.b: Array | None = None
        self.c: Array | None = None
        self.step = -1
        self.steps: dict[int, int] = {}
        self.corrected = 0
        self.result: Array | None = None
        self.remarks: tuple[float, ...] = ()

    def progress(self) -> Progress:
        done = self.result is not None
        return Progress(self.link.rank, self.step, done, corrected=self.corrected, remarks=self.remarks)

    # -- what all decide alike -----------------------------------------------------------------------

    def taken_in(self, said: Progress, states: Mapping[int, Progress]) -> Mapping[int, Progress]:
        meeting = Meeting(self.course, states, self.reserve, decide)
        take_in(self.link, meeting, said, self._brief)
        self.reserve, self.decision = meeting.reserve, meeting.decision
        return meeting.states

    def _brief(self, course: Course) -> _Brief:
        A, losses = self.A, tuple(self.losses)
        return _Brief(
            *(course, A.n, A.nb, A.dtype, self.check, self.verify, self.signature, losses), self.meetings
        )

    def follow(self, states: Mapping[int, Progress]) -> bool:
        decision = self.decision
        assert decision is not None
        if self.all_checked(decision.died):
            return True
        self.course = course = decision.course
        if decision.drops(self.link.rank):
            self.a = self.b = self.c = None
            self.step = -1
        self.steps = dict(course.steps)
        self.note(decision.died, course.top, course.blocks, decision.happened)
        return False

    @property
    def layout(self) -> Layout:
        assert self.course.layout is not None
        return self.course.layout

    # -- computing -----------------------------------------------------------------------------------

    def go(self) -> None:
        course, layout = self.course, self.layout
        if any(state.done for state in self.states.values()):
            self._give_result()
        elif self.shape.n == 0:
            self.result = np.zeros((0, 0), dtype=self.A.dtype)
        else:
            self._fill()
            self._give_blocks()
            if course.joining:
                old = layout.columns[: -len(course.joining)]
                self._run(course.top, old)
                for v in course.joining:
                    self._encode(v)
                self.steps = {rank: max(step, course.top) for rank, step in self.steps.items()}
            self._run(course.blocks, layout.columns)
            self.result = self._gathered()
        looks = self.check and self.shape.n > 0 and self.link.rank < course.began
        self.remarks = self._shares() if looks else (0.0, 0.0)

    def _fill(self) -> None:
        layout, place = self.layout, self.layout.place(self.link.rank)
        joins = place is not None and place.v in self.course.joining
        if place is not None and not joins:
            if self.step < 0:
                self.b = _filled(self.B, place.p, layout.weights[place.v])
                self.c, self.step = np.zeros_like(self.b), 0
            has_fill = self.link.rank < self.course.began
            if has_fill and place.v < layout.Q and (self.a is None or self.place != place):
                self.a = _filled(self.A, place.p, unit(place.v, layout.Q))
        self.place = place

    def _give_blocks(self) -> None:
        """A's blocks, to ranks that cannot fill them."""
        for rank, giver in self.course.givers().items():
            place = self.layout.place(rank)
            assert place is not None
            if self.link.rank == giver:
                self.link.send(rank, _filled(self.A, place.p, unit(place.v, self.course.Q)), 15)
            elif self.link.rank == rank:
                self.a = self.link.receive(giver, self._size(place.p), self.A.dtype, 15)

    def _size(self, p: int) -> tuple[int, int]:
        """Of what a process holds of a matrix."""
        return self.shape.local_rows(p), self.shape.groups * self.shape.nb

    def _run(self, end: int, columns: tuple[tuple[int, ...], ...]) -> None:
        """Steps up to before `end`, of these columns, from that of the hindmost rank on."""
        place, sends = self.place, dict[int, list[Any]]()
        if place is None or place.v >= len(columns):
            return
        first = min(self.steps[rank] for column in columns for rank in column)
        for k in range(first, end):
            self._step(k, place, columns, sends.setdefault(k, []))
            self.link.finish(*sends.pop(k - 2, ()))
        for requests in sends.values():
            self.link.finish(*requests)

    def _step(self, k: int, place: Place, columns: tuple[tuple[int, ...], ...], sends: list[Any]) -> None:
        shape, dtype = self.shape, self.A.dtype
        assert self.b is not None and self.c is not None
        owner, root, mine = shape.owner(k), shape.root(k), self.step <= k
        left = right = None
        if place.v == owner:
            assert self.a is not None
            left = np.ascontiguousarray(self.a[:, shape.group_slice(k // shape.Q)])
            sends += self._sent([column[place.p] for column in columns], left, k, 0)
        if place.p == root:
            first = shape.rows_before(root, k)
            right = np.ascontiguousarray(self.b[first : first + shape.nb])
            sends += self._sent(columns[place.v], right, k, 1)
        if not mine:
            return
        if left is None:
            left = self.link.receive(columns[owner][place.p], (len(self.c), shape.nb), dtype, 4 * k)
        if right is None:
            size = shape.nb, self.c.shape[1]
            right = self.link.receive(columns[place.v][root], size, dtype, 4 * k + 1)
        added = self._multiplied(left, right)
        self.c += added
        self.step = k + 1

    def _sent(self, ranks: Any, array: Array, k: int, kind: int) -> list[Any]:
        """Start to send to those of `ranks` that have not added step k."""
        return self.link.start_sends((rank for rank in ranks if self.steps[rank] <= k), array, 4 * k + kind)

    def _multiplied(self, left: Array, right: Array) -> Array:
        if not self.verify:
            return np.asarray(product.multiply(left, right))
        found, findings = checked_product(left, right, product.multiply)
        self.corrected += len(findings)
        return np.asarray(found)

    def _encode(self, v: int) -> None:
        """Column v gets the checksums of what the others hold of B and C, all at the same step."""
        layout, place = self.layout, self.place
        if place is None:
            return
        if place.v < layout.Q:
            self.link.send(layout.columns[v][place.p], np.stack([given(self.b), given(self.c)]), 4 * v + 2)
        elif place.v == v:
            size = 2, *self._size(place.p)
            found = np.zeros(size, dtype=self.A.dtype)
            for u, much in enumerate(layout.mixture(v)):
                parts = self.link.receive(layout.data[u][place.p], size, found.dtype, 4 * v + 2)
                found += found.dtype.type(much) * parts
            self.b, self.c = found
            self.step = self.course.top

    # -- the result ----------------------------------------------------------------------------------

    def _gathered(self) -> Array:
        layout, shape, place = self.layout, self.shape, self.place
        requests = []
        if place is not None and place.v < layout.Q:
            requests = self.link.start_sends(layout.ranks, given(self.c), 3)
        held = np.empty((layout.Q, shape.order, shape.groups * shape.nb), dtype=self.A.dtype)
        for v, column in enumerate(layout.data):
            for p, rank in enumerate(column):
                mine = rank == self.link.rank
                held[v, shape.row_numbers(p)] = (
                    given(self.c) if mine else self.link.receive(rank, self._size(p), self.A.dtype, 3)
                )
        self.link.finish(*requests)
        whole = layout.parts(held).reshape(shape.Q, shape.order, shape.groups, shape.nb)
        found = whole.transpose(1, 2, 0, 3).reshape(shape.order, shape.order)
        return np.ascontiguousarray(found[: shape.n, : shape.n])

    def _give_result(self) -> None:
        having = min(rank for rank, state in self.states.items() if state.done)
        for rank, state in sorted(self.states.items()):
            if not state.done and self.link.rank == having:
                assert self.result is not None
                self.link.send(rank, self.result, 7)
            elif not state.done and self.link.rank == rank:
                self.result = self.link.receive(having, (self.shape.n,) * 2, self.A.dtype, 7)

    def _shares(self) -> tuple[float, ...]:
        """(largest |C·x - A·(B·x)|, largest |A|·(|B|·e)) of this rank's rows, and a digest of C·x, which is that of all rows
        that this rank has."""
        n, ranks = self.shape.n, self.course.having(self.states)
        wide = np.complex128 if self.A.dtype.kind == "c" else np.float64
        x = np.random.default_rng(n).choice([-1.0, 1.0], size=n)
        mine = np.zeros((2, n), dtype=wide)
        for rows in self._rows(self.link.rank, ranks):
            numbers = self.B.numbers(rows, slice(0, n))
            mine[:, rows] = numbers.astype(wide) @ x, np.abs(numbers).sum(axis=1, dtype=np.float64)
        shapes = dict.fromkeys(ranks, mine.shape)
        y, size = np.sum([*self.link.exchange(ranks, mine, shapes, 11).values()], axis=0)
        worst = largest = 0.0
        assert self.result is not None
        for rows in self._rows(self.link.rank, ranks):
            numbers = self.A.numbers(rows, slice(0, n))
            with np.errstate(all="ignore"):
                off = np.abs(self.result[rows].astype(wide) @ x - numbers.astype(wide) @ y)
            worst = max(worst, float(off.max(initial=0.0)) if np.isfinite(off).all() else math.inf)
            largest = max(largest, float((np.abs(numbers) @ size.real).max(initial=0.0)))
        with np.errstate(all="ignore"):
            whole = digest(self.result.astype(wide) @ x)
        return worst, largest, *whole

    def _rows(self, rank: int, ranks: tuple[int, ...]) -> Iterator[slice]:
        n, nb = self.shape.n, self.shape.nb
        for i in range(ranks.index(rank), -(-n // nb), len(ranks)):
            yield slice(i * nb, min((i + 1) * nb, n))

    def outcome(self) -> Solution:
        assert self.result is not None
        shares = [self.states[rank].remarks for rank in self.course.having(self.states)]
        worst, size = (max(share[place] for share in shares) for place in range(2))
        n, eps = self.shape.n, float(np.finfo(self.A.dtype).eps) / 2
        residual = math.nan
        if self.check and n:
            worst = max(worst, spread(shares, 2))
            residual = worst / (eps * math.sqrt(n) * size) if size > 0 else worst
            residual = residual if math.isfinite(size) else math.inf
            if not residual <= RESIDUAL_BOUND * max(1.0, self.layout.condition):
                raise Inaccurate(
                    f"the product differs from A·(B·x) by {residual:.3g} times what rounding may do, and no more than "
                    f"{RESIDUAL_BOUND:.0f} can be rounding: it must not be used. Either fill gives other numbers each "
                    f"time, a product overflows, or a number was wrong in memory"
                )
        corrected, redone = put_right(self.states)
        if self.link.rank == min(self.states):
            log_corrected(self.operation, corrected, redone)
        condition = self.layout.condition
        report = Report(
            order=n,
            grid=(self.shape.P, self.shape.Q),
            losses=tuple(self.losses),
            living=tuple(sorted(self.states)),
            residual=residual,
            protected=bool(self.layout.checks),
            replaced=self.layout.replaced,
            corrected=corrected,
            redone=redone,
            started=self.course.started,
            seconds=time.perf_counter() - self.began,
            remarks=(f"condition number of the weights: {condition:.3g}",) if condition > 1 else (),
        )
        return Solution.of(self.result, report)


def _filled(matrix: Matrix, p: int, weights: tuple[float, ...]) -> Array:
    """The blocks of process row p, each a sum of those of its group with these weights."""
    shape = matrix.shape
    found = np.zeros((shape.local_rows(p), shape.groups * shape.nb), dtype=matrix.dtype)
    for at, i in enumerate(shape.block_rows(p)):
        rows = slice(at * shape.nb, (at + 1) * shape.nb)
        for group in range(shape.groups):
            for q, weight in enumerate(weights):
                if weight:
                    block = matrix.blocks(i, group * shape.Q + q, 1, 0.0)
                    found[rows, shape.group_slice(group)] += matrix.dtype.type(weight) * block
    return found

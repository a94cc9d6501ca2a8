"""`cg`: A·x = b by the method of conjugate gradients (Hestenes and Stiefel 1952), of which every rank computes some rows.

Every rank has x, the residual r and the direction p whole; only A·p is computed in shares and exchanged, once in an
iteration. So what a rank holds others hold too (Chen 2011 shows this redundancy of iterative methods), and any number of
deaths is borne, without checksums and spares: those that are left share the rows anew, and who is an iteration behind gets
x, r and p from who is not.

All decide alike: whether it has converged is read from the norm that the lowest rank sends along.

Wrong numbers: a rank with the rows R has computed g = A·s once, for a vector s of random signs on R and zeros elsewhere. As
A is its own adjoint, s·(A·p) is g·p for every p. If it is not, the rank computes its rows again: either they are other
numbers now, and fit, or the same, and then A is not linear or not its own adjoint (far off), or that was rounding.
"""

from __future__ import annotations

import math
import time
import zlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from ckpt.abft.decisions.progress import Progress
from ckpt.abft.errors import Inaccurate, InputError, NotConverged, NotLinear, NotPositive, WrongProduct
from ckpt.abft.numbers.arrays import plain
from ckpt.abft.solver.backward import digest, finite, spread
from ckpt.abft.solver.link import Link
from ckpt.abft.solver.matrix import Grid, Matrix, right_hand_sides
from ckpt.abft.solver.protected import Protected, log_corrected, put_right, told
from ckpt.abft.solver.report import Report, Solution

__all__ = ["cg"]

Array = npt.NDArray[Any]
Operation = Callable[[Array, slice], Any]

_TRIES = 3


def cg(
    op: Matrix | Operation,
    b: Any,
    *,
    grid: Grid | None = None,
    tolerance: float = 1e-10,
    iterations: int | None = None,
    verify: bool = True,
) -> Solution:
    """The solution x of A·x = b for a Hermitian, positive definite A, at every living rank; `x.report` tells what happened.

    `op`: a matrix of the grid, or a function: ``op(x, rows)`` gives the rows (a slice) of A·x for the whole x (n numbers).
    It is called at any rank, for any rows, and must be the same function at all ranks. `b`: n numbers, the same
    at all ranks.
    `grid`: whose ranks take part (P and Q are of no meaning here); default: the matrix's, or all ranks of the job.

    Ends when the residual is smaller than `tolerance` times b's norm. `iterations`: at most (default: 10·n). `verify`: look
    for wrong numbers in each A·p; costs as much as one A·x for each rank, once. Any number of deaths is borne as long as a
    rank lives.

    Raises at all living ranks alike: InputError, NotLinear, NotPositive, NotConverged, Inaccurate (the true residual is far
    larger than the method's), WrongProduct (rows differ each time they are computed), RankFailed.
    """
    if not (grid is None or isinstance(grid, Grid)):
        raise InputError(f"grid must be an abft.Grid, not {type(grid).__name__}")
    if isinstance(op, Matrix):
        grid = op.grid
    elif not callable(op):
        raise InputError(
            f"op must be a matrix of the grid, or a function of x and rows, not {type(op).__name__}"
        )
    if not (isinstance(tolerance, (int, float, np.number)) and 0 < tolerance < 1):
        raise InputError(f"tolerance must be between 0 and 1, not {tolerance!r}")
    if iterations is not None and (not isinstance(iterations, (int, np.integer)) or iterations < 0):
        raise InputError(f"iterations must be a number of iterations, not {iterations!r}")
    operation = _Gradients(op, b, grid or Grid(1, 1, redundant=0), float(tolerance), iterations, bool(verify))
    operation.run()
    return operation.outcome()


def _vector(op: Matrix | Operation, b: Any) -> Array:
    if isinstance(op, Matrix):
        found = right_hand_sides(op, b)
    else:
        found = plain(b, "b")
        if found.dtype.kind not in "biufc":
            raise InputError(f"b has {found.dtype}, which are no numbers")
        if found.dtype.name not in ("float32", "float64", "complex64", "complex128"):
            found = found.astype(np.float64)
        if not np.isfinite(found).all():
            raise InputError(f"b{[int(i) for i in np.argwhere(~np.isfinite(found))[0]]} is not finite")
    if np.ndim(b) != 1:
        raise InputError(f"b must be one vector, and its shape is {np.shape(b)}: call cg for each column")
    return np.ascontiguousarray(found.reshape(-1))


class _Gradients(Protected):
    operation = "cg"

    def __init__(
        self,
        op: Matrix | Operation,
        b: Any,
        grid: Grid,
        tolerance: float,
        iterations: int | None,
        verify: bool,
    ) -> None:
        problem = None
        try:
            self.b = _vector(op, b)
        except InputError as error:
            problem, self.b = told(error), np.zeros(0)
        n = self.n = len(self.b)
        # No square under- or overflows
        self.scale = 2.0 ** int(np.frexp(float(np.abs(self.b).max(initial=0.0)))[1])
        self.b = self.b / self.b.dtype.type(self.scale)
        self.op, self.grid, self.verify, self.tolerance = op, grid, verify, tolerance
        self.most = 10 * n if iterations is None else int(iterations)
        what = op.signature() if isinstance(op, Matrix) else f"a function, {self.b.dtype}"
        signature = (
            f"{what} b={self.scale}·{zlib.crc32(self.b.tobytes()):08x}({n},) {tolerance} {self.most} {verify}"
        )
        super().__init__(Link(grid.comm, grid.hook), signature, problem)
        self.x, self.r, self.p = np.zeros_like(self.b), self.b.copy(), self.b.copy()
        self.norm = float(np.linalg.norm(self.b))
        self.squares = self.norm**2
        self.step = 0
        self.done = False
        self.living: tuple[int, ...] = ()
        self.lost: tuple[int, ...] = ()
        self.rows = slice(0, 0)
        self.numbers: Array | None = None
        self.signs = self.check = self.b
        self.corrected = 0
        self.remarks: tuple[float, ...] = ()

    def progress(self) -> Progress:
        return Progress(self.link.rank, self.step, self.done, corrected=self.corrected, remarks=self.remarks)

    def follow(self, states: Mapping[int, Progress]) -> bool:
        living = tuple(sorted(states))
        died = tuple(rank for rank in self.living if rank not in states)
        if self.living and self.all_checked(died):
            return True
        self.living, self.lost = living, (*self.lost, *died)
        self.note(died, max(state.step for state in states.values()), self.most, (("again", -1),))
        return False

    # -- computing -----------------------------------------------------------------------------------

    def go(self) -> None:
        self._catch_up()
        self.rows = self._rows_of(self.link.rank)
        self.numbers = self.op.numbers(self.rows, slice(0, self.n)) if isinstance(self.op, Matrix) else None
        if not self.done:
            if self.verify:
                self._prepare()
            while not self._ended():
                pass
            self.done = True
        off = self.b[self.rows] - self._applied(self.x)
        squares = finite(float((np.abs(off).astype(np.float64) ** 2).sum()))
        size = finite(float(np.abs(self.x).max(initial=0.0)))
        self.remarks = squares, size, *digest(self.x)

    def _rows_of(self, rank: int) -> slice:
        at, count = self.living.index(rank), len(self.living)
        return slice(self.n * at // count, self.n * (at + 1) // count)

    def _catch_up(self) -> None:
        """Who is behind gets everything from the lowest rank that is not."""
        order = {rank: (state.done, state.step) for rank, state in self.states.items()}
        first = max(order.values())
        source = min(rank for rank in order if order[rank] == first)
        for rank in self.living:
            if order[rank] == first:
                continue
            if self.link.rank == source:
                self.link.send(rank, np.stack([self.x, self.r, self.p]), 2)
            elif self.link.rank == rank:
                size = 3, self.n
                self.x, self.r, self.p = (
                    each.copy() for each in self.link.receive(source, size, self.b.dtype, 2)
                )
                self.squares, self.done, self.step = _squares(self.r), first[0], first[1]

    def _prepare(self) -> None:
        """A·s for everybody's s: this rank computes its rows of it, and gets all of its own."""
        every = np.random.default_rng(self.n).choice([-1.0, 1.0], size=self.n).astype(self.b.dtype)
        parts = {}
        for rank in self.living:
            signs = np.zeros_like(self.b)
            signs[self._rows_of(rank)] = every[self._rows_of(rank)]
            parts[rank] = self._applied(signs)
            if rank == self.link.rank:
                self.signs = signs[self.rows]
        requests = [
            self.link.start_send(rank, parts[rank], 3) for rank in self.living if rank != self.link.rank
        ]
        self.check = np.empty_like(self.b)
        for rank in self.living:
            rows, mine = self._rows_of(rank), rank == self.link.rank
            size = (rows.stop - rows.start,)
            self.check[rows] = parts[rank] if mine else self.link.receive(rank, size, self.b.dtype, 3)
        self.link.finish(*requests)

    def _ended(self) -> bool:
        """One iteration; or True: it has converged, or there have been enough."""
        mine = self._verified(self.p) if self.verify else self._applied(self.p)
        message = np.append(mine, self.b.dtype.type(self.squares))
        sizes = {rank: (self._rows_of(rank).stop - self._rows_of(rank).start + 1,) for rank in self.living}
        pieces = self.link.exchange(self.living, message, sizes, 4)
        squares = float(pieces[self.living[0]][-1].real)
        if math.sqrt(squares) <= self.tolerance * self.norm or self.step >= self.most:
            return True
        q = np.concatenate([pieces[rank][:-1] for rank in self.living])
        curvature = float(np.vdot(self.p, q).real)
        if not curvature > 0:
            raise NotPositive(
                f"p·A·p is {curvature:.3g} in iteration {self.step}, for a p that is not zero: A is not positive definite"
                + (", or its numbers are so small that products underflow" if curvature == 0 else "")
            )
        alpha = self.b.dtype.type(squares / curvature)
        self.x = self.x + alpha * self.p
        self.r = self.r - alpha * q
        self.squares = _squares(self.r)
        self.p = self.r + self.b.dtype.type(self.squares / squares) * self.p
        self.step += 1
        return False

    def _applied(self, x: Array) -> Array:
        """This rank's rows of A·x."""
        rows = self.rows
        size = rows.stop - rows.start
        if size == 0:
            return np.zeros(0, dtype=self.b.dtype)
        if self.numbers is not None:
            return np.asarray(self.numbers @ x)
        assert not isinstance(self.op, Matrix)
        given = x.view()
        given.flags.writeable = False
        found = plain(self.op(given, rows), "what op gave")
        where = f"for rows {rows.start}:{rows.stop}"
        if found.shape != (size,):
            raise InputError(f"op gave an array of {found.shape} {where}, not of {(size,)}")
        if found.dtype.kind not in "biufc" or (found.dtype.kind == "c" and self.b.dtype.kind != "c"):
            raise InputError(f"op gave {found.dtype} {where}, and b is {self.b.dtype}")
        if not np.isfinite(found).all():
            at = int(np.argmin(np.isfinite(found)))
            raise InputError(f"op gave {found[at]} for row {rows.start + at}")
        return np.ascontiguousarray(found.astype(self.b.dtype))

    def _verified(self, x: Array) -> Array:
        eps = float(np.finfo(self.b.dtype).eps)
        before: Array | None = None
        for _ in range(_TRIES):
            found = self._applied(x)
            size = float((np.abs(self.check) * np.abs(x)).sum() + np.abs(found).sum())
            off = abs(complex(np.vdot(self.signs, found)) - complex(np.vdot(self.check, x)))
            if off <= 64 * eps * math.sqrt(self.n) * size:
                self.corrected += before is not None
                return found
            if before is not None and before.tobytes() == found.tobytes():
                if off <= math.sqrt(eps) * size:
                    return found
                raise NotLinear(
                    f"rows {self.rows.start}:{self.rows.stop} of A·p are not what A·s says, for a vector s of signs: "
                    f"{off:.3g} off, of {size:.3g}. A must be linear, and its own adjoint"
                )
            before = found
        raise WrongProduct(
            f"rows {self.rows.start}:{self.rows.stop} of A·p are other numbers each time they are computed, and do not fit: "
            f"op is not a function of x alone, or this processor must not be trusted"
        )

    # -- the result ----------------------------------------------------------------------------------

    def outcome(self) -> Solution:
        shares = [state.remarks for state in self.states.values()]
        residual = math.sqrt(sum(share[0] for share in shares)) / (self.norm or 1.0)
        size, far = max(share[1] for share in shares), spread(shares, 2)
        if not far <= 1e4 * float(np.finfo(self.b.dtype).eps) * max(1, self.n) * size:
            raise Inaccurate(
                f"ranks have got solutions that differ by {far:.3g}: a number was wrong in memory, and x must not be used"
            )
        said = max(self.tolerance * 100, math.sqrt(float(np.finfo(self.b.dtype).eps)))
        if self.step >= self.most and not residual <= self.tolerance * 10:
            raise NotConverged(
                f"{self.step} iterations have brought the residual to {residual:.3g} of b's norm, and not to "
                f"{self.tolerance:.3g}"
            )
        if not residual <= said:
            raise Inaccurate(
                f"the residual is {residual:.3g} of b's norm, and the method has it as {self.tolerance:.3g} or less: x must "
                f"not be used. A is too badly conditioned for it, or a number was wrong in memory"
            )
        corrected, _ = put_right(self.states)
        if self.link.rank == min(self.states):
            log_corrected(self.operation, corrected)
        report = Report(
            order=self.n,
            grid=(len(self.living), 1),
            losses=tuple(self.losses),
            living=self.living,
            residual=residual,
            protected=len(self.living) > 1,
            replaced=0,
            corrected=corrected,
            seconds=time.perf_counter() - self.began,
            remarks=(f"{self.step} iterations",),
        )
        return Solution.of(self._scaled(), report)

    def _scaled(self) -> Array:
        """x, of b and not of b divided by `scale`. Raises Inaccurate: its numbers have no place in this type."""
        scale = self.b.dtype.type(self.scale)
        with np.errstate(all="ignore"):
            found: Array = self.x * scale
            off = float(np.abs(found / scale - self.x).max(initial=0.0))
        if not off <= math.sqrt(float(np.finfo(self.b.dtype).eps)) * float(np.abs(self.x).max(initial=0.0)):
            raise Inaccurate(
                f"the numbers of x are too {'large' if self.scale > 1 else 'small'} for {self.b.dtype}: divide b by its "
                f"largest number ({self.scale:.3g} or so), and A by its own"
            )
        return found


def _squares(x: Array) -> float:
    return float(np.vdot(x, x).real)

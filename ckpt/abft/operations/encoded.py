"""`Encoded`: arrays of the program, in parts on a grid and with checksums, for linear iterations that lose ranks and go on.

Rank (p, q) holds the part (p, q); the ranks of the columns of checksums hold sums of the parts of their row
(decisions/columns.py). What is linear and the same for all parts (sums, multiples, a linear operation on each part) is done
by every rank on what it holds, without communication, and the checksums stay checksums.

States of an array: *whole*, *replaced* (columns hold checksums: `parts` computes the true parts from them), *stale* (another
array's `recover` has moved data and this one was not named). All arrays of a grid share the `Ledger`: who holds what.

Ranks look at each other in the collective calls alone: `replace`, `recover`, `parts`, `verify`, and when an array is made.
There every one meets every other at the same place of the program, so what they hold belongs together.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from ckpt import MPI
from ckpt.abft.decisions.columns import Layout
from ckpt.abft.errors import Inaccurate, InputError, NotLinear
from ckpt.abft.numbers.arrays import plain
from ckpt.abft.operations.ledger import Ledger, Moves, given
from ckpt.abft.solver.matrix import Grid
from ckpt.abft.solver.protected import log_loss
from ckpt.abft.solver.report import Loss

__all__ = ["Encoded"]

Array = npt.NDArray[Any]
Result = TypeVar("Result")

_SCALES = (2.0**30, 2.0**-30)
_KINDS = ("float32", "float64", "complex64", "complex128")


class Encoded:
    """An array in parts of equal shape, encoded. Collective over the ranks of the grid.

    `parts`: an array of shape (P, Q, …), the same at all ranks, or a function: ``parts(p, q)`` gives the part of the process
    row p and column q; it is called at any rank and must give the same numbers for the same part. float32, float64,
    complex64 or complex128. `grid`: default: one row of all ranks of the job, with one column of checksums.

    Raises at all ranks alike: InputError (kinds, shapes, numbers that are not finite), TooManyLost, RankFailed.
    """

    __array_ufunc__ = None  # numpy would make an array of objects of `array * x`; so it asks `x.__rmul__`

    def __init__(self, parts: Callable[[int, int], Any] | Any, *, grid: Grid | None = None) -> None:
        if not (grid is None or isinstance(grid, Grid)):
            raise InputError(f"grid must be an abft.Grid, not {type(grid).__name__}")
        if grid is None:
            size = MPI.COMM_WORLD.size
            grid = _default if _default is not None else _make_default(size)
        if grid.ledger is None:
            grid.ledger = Ledger(grid)
        ledger: Ledger = grid.ledger
        self._ledger = ledger

        def filled(layout: Layout) -> tuple[Array | None, tuple[int, ...], np.dtype[Any]]:
            sample = _part(parts, grid, 0, 0, None)
            place = layout.place(ledger.link.rank)
            if place is None:
                return None, sample.shape, sample.dtype
            found = np.zeros_like(sample)
            for q, weight in enumerate(layout.weights[place.v]):
                if weight:
                    found += sample.dtype.type(weight) * _part(parts, grid, place.p, q, sample)
            return found, sample.shape, sample.dtype

        _, made = ledger.together("Encoded", filled)
        assert made is not None
        self._held, self.shape, self.dtype = made
        self._epoch = ledger.epoch

    # -- local ---------------------------------------------------------------------------------------

    @property
    def local(self) -> Array | None:
        """What this rank holds: a part, or sums of parts; None: nothing. It cannot be changed."""
        self._check()
        layout = self._ledger.layout
        assert layout is not None
        if layout.place(self._ledger.link.rank) is None or self._held is None:
            self._held = None
            return None
        held = self._held.view()
        held.flags.writeable = False  # a number that is changed here is wrong for all who hold its sums
        return held

    @property
    def losses(self) -> tuple[Loss, ...]:
        """What became of deaths, of all arrays of the grid."""
        return tuple(self._ledger.losses)

    @property
    def condition(self) -> float:
        """By how much rounding errors may grow when true parts are computed from what is held; 1: nothing is replaced."""
        assert self._ledger.layout is not None
        return self._ledger.layout.condition

    def _check(self) -> None:
        if self._epoch != self._ledger.epoch:
            raise InputError(
                "this array was not named when recover() moved the data of others of its grid: what it holds is of a "
                "former distribution. Name all arrays that go on: x.recover(y, z)"
            )

    def _made(self, held: Any, shape: tuple[int, ...], dtype: Any) -> Encoded:
        found = object.__new__(Encoded)
        found._ledger, found._epoch = self._ledger, self._epoch
        found._held = None if held is None else np.asarray(held)  # sums of single numbers are no arrays
        found.shape, found.dtype = shape, np.dtype(dtype)
        return found

    def add(self, other: Encoded, factor: complex = 1) -> Encoded:
        """``self + factor·other``, without communication."""
        if not isinstance(other, Encoded) or other._ledger is not self._ledger:
            raise InputError(f"an encoded array of the same grid is added, not {type(other).__name__}")
        if other.shape != self.shape:
            raise InputError(f"parts of {self.shape} and of {other.shape} cannot be added")
        factor = _factor(factor)
        dtype = np.result_type(self.dtype, other.dtype, *_wider(factor))
        mine, theirs = self.local, other.local
        if mine is None or theirs is None:
            return self._made(None, self.shape, dtype)
        return self._made((mine + dtype.type(factor) * theirs).astype(dtype), self.shape, dtype)

    def scale(self, factor: complex) -> Encoded:
        """``factor·self``, without communication."""
        factor = _factor(factor)
        dtype = np.result_type(self.dtype, *_wider(factor))
        mine = self.local
        return self._made(
            None if mine is None else (dtype.type(factor) * mine).astype(dtype), self.shape, dtype
        )

    def apply(self, op: Callable[[Array], Any], *, probe: bool = True) -> Encoded:
        """`op` of every part: a linear operation, the same for all parts, which must not depend on the rank, nor change what
        it is given. It may give parts of another shape. Without communication.

        `probe`: when this function is given for the first time, try with random parts whether it is linear. Raises
        NotLinear, InputError.
        """
        mine = self.local
        probe = probe and not any(op is each for each in self._ledger.probed)
        if probe or mine is None:
            shape, dtype = self._probe(op, probe)
        if mine is None:
            return self._made(None, shape, dtype)
        found = self._applied(op, mine)
        return self._made(found, found.shape, found.dtype)

    def _probe(self, op: Callable[[Array], Any], compare: bool) -> tuple[tuple[int, ...], np.dtype[Any]]:
        random = np.random.default_rng(17)
        u, v = (
            random.choice([-1.0, 1.0], size=self.shape) * random.uniform(0.5, 2, self.shape) for _ in "uv"
        )
        one, other = u.astype(self.dtype), v.astype(self.dtype)
        a = self.dtype.type(-1.75)
        left = self._applied(op, one)
        if compare:
            right = self._applied(op, other)
            both = self._applied(op, a * one + other)
            _compare("op(a·u + v) differs from a·op(u) + op(v)", both, a * left + right, one.size, right)
            for scale in _SCALES:  # limits and thresholds are beyond what is of the size of 1
                c = self.dtype.type(scale)
                with np.errstate(over="ignore", under="ignore", invalid="ignore"):
                    scaled, wanted = self._applied(op, c * one), c * left
                    if np.isfinite(wanted).all():
                        _compare(f"op(c·u) differs from c·op(u), c = {scale:.3g},", scaled, wanted, one.size)
            self._ledger.probed[:] = [*self._ledger.probed[-15:], op]
        return left.shape, left.dtype

    def _applied(self, op: Callable[[Array], Any], part: Array) -> Array:
        given = np.asarray(part).view()  # single numbers, too
        given.flags.writeable = False
        found = np.array(plain(op(given), "what the operation gave"))
        if found.dtype.name not in _KINDS:
            raise InputError(f"the operation gave {found.dtype}: encoded arrays are of {', '.join(_KINDS)}")
        return found

    def __add__(self, other: Encoded) -> Encoded:
        return self.add(other)

    def __sub__(self, other: Encoded) -> Encoded:
        return self.add(other, -1)

    def __neg__(self) -> Encoded:
        return self.scale(-1)

    def __mul__(self, factor: complex) -> Encoded:
        return self.scale(factor)

    __rmul__ = __mul__

    def __truediv__(self, factor: complex) -> Encoded:
        return self.scale(1 / _factor(factor))

    # -- collective ----------------------------------------------------------------------------------

    def replace(self) -> Loss | None:
        """If ranks have died since the last collective call, columns of checksums take the places of theirs, for all arrays
        of the grid; no data move. What became of it, or None. Raises TooManyLost at all ranks alike."""
        self._check()
        return self._ledger.look()

    def recover(self, *others: Encoded) -> None:
        """Compute the true parts of replaced columns back, and form new checksums of ranks that hold nothing, for this array
        and `others`. All arrays of the grid that go on must be named. Raises TooManyLost at all ranks alike."""
        arrays = (self, *others)
        for array in arrays:
            if not isinstance(array, Encoded) or array._ledger is not self._ledger:
                raise InputError("all arrays that are recovered must be encoded arrays of one grid")
            array._check()
        ledger = self._ledger
        ledger.look()
        if ledger.layout is None or ledger.layout.turned_back().formed() == ledger.layout:
            return

        def moved(layout: Layout) -> tuple[Layout, list[Array | None]]:
            true = layout.turned_back()
            formed = true.formed()
            return formed, [
                Moves(ledger.link, array, layout).run(formed, number) for number, array in enumerate(arrays)
            ]

        before, result = ledger.together("recover", moved)
        assert result is not None
        formed, held = result
        ledger.layout, ledger.epoch = formed, ledger.epoch + 1
        for array, numbers in zip(arrays, held, strict=True):
            array._held, array._epoch = numbers, ledger.epoch
        back = [v for v in range(before.Q) if not before.is_true(v)]
        if back and ledger.link.rank == formed.ranks[0]:
            happened = tuple(("recovered", v) for v in back)
            log_loss("Encoded", Loss(before.lost, (), 0, 0, happened, 0.0, 0))

    def parts(self) -> Array:
        """All true parts (P × Q × …), at every living rank. Raises TooManyLost at all ranks alike."""
        self._check()

        def gathered(layout: Layout) -> Array:
            mine, link = self.local, self._ledger.link
            requests = []
            place = layout.place(link.rank)
            if place is not None and place.v < layout.Q:
                requests = link.start_sends(layout.ranks, given(mine), 1)
            held = np.empty((layout.Q, layout.P, *self.shape), dtype=self.dtype)
            for v, column in enumerate(layout.data):
                for p, rank in enumerate(column):
                    own = rank == link.rank
                    held[v, p] = given(mine) if own else link.receive(rank, self.shape, self.dtype, 1)
            link.finish(*requests)
            return np.ascontiguousarray(layout.parts(held).swapaxes(0, 1))

        _, found = self._ledger.together("parts", gathered)
        assert found is not None
        return found

    def verify(self) -> float:
        """Compare the checksums with what is held: the largest difference, as a share of the largest number.

        nan: there are no columns of checksums any more. Raises Inaccurate at all ranks alike if that is more than rounding
        explains: a number was wrong in memory, or an operation was not the same for all parts.
        """
        self._check()

        def compared(layout: Layout) -> tuple[float, float]:
            return Moves(self._ledger.link, self, layout).compare()

        _, found = self._ledger.together("verify", compared)
        assert found is not None
        off, size = found
        assert self._ledger.layout is not None
        if not self._ledger.layout.checks:
            return math.nan
        share = off / size if size > 0 else off
        if not share <= float(np.sqrt(np.finfo(self.dtype).eps)):
            raise Inaccurate(
                f"checksums differ from the sums of the parts by {share:.3g} of the largest number: a number was wrong in "
                f"memory, or an operation was not the same for all parts. What is held must not be used"
            )
        return share


_default: Grid | None = None


def _make_default(size: int) -> Grid:
    global _default
    _default = Grid(1, max(1, size - 1), redundant=int(size > 1))
    return _default


def _compare(what: str, found: Array, wanted: Array, size: int, *terms: Array) -> None:
    """Raises NotLinear if two arrays differ by more than rounding explains."""
    of = sum(float(np.abs(each).max(initial=0.0)) for each in (found, wanted, *terms))
    off, kind = float(np.abs(wanted - found).max(initial=0.0)), np.finfo(found.dtype)
    if not off <= 100 * max(1.0, math.sqrt(size)) * (float(kind.eps) * of + float(kind.tiny)):
        raise NotLinear(
            f"the operation is not linear: {what} by {off:.3g}, of {of:.3g}. Checksums hold for linear operations only"
        )


def _part(parts: Any, grid: Grid, p: int, q: int, sample: Array | None) -> Array:
    if callable(parts):
        found = plain(parts(p, q), f"part ({p}, {q})")
    else:
        whole = plain(parts, "parts")
        if whole.shape[:2] != (grid.P, grid.Q):
            raise InputError(f"parts must be of shape ({grid.P}, {grid.Q}, …), not of {whole.shape}")
        found = np.asarray(whole[p, q])
    if found.dtype.name not in _KINDS:
        raise InputError(f"part ({p}, {q}) is of {found.dtype}: encoded arrays are of {', '.join(_KINDS)}")
    if sample is not None and (found.shape, found.dtype) != (sample.shape, sample.dtype):
        raise InputError(
            f"part ({p}, {q}) is {found.dtype} of {found.shape}, and part (0, 0) is {sample.dtype} of {sample.shape}"
        )
    if not np.isfinite(found).all():
        place = tuple(int(i) for i in np.argwhere(~np.isfinite(found))[0])
        raise InputError(f"part ({p}, {q}) is {found[place]} at {place}: checksums need finite numbers")
    return found


def _factor(factor: Any) -> complex:
    if isinstance(factor, np.ndarray) and factor.ndim == 0:
        factor = factor[()]
    if isinstance(factor, (int, float, complex, np.number)) and np.isfinite(factor):
        return complex(factor) if isinstance(factor, (complex, np.complexfloating)) else float(factor)
    raise InputError(f"an encoded array is multiplied by a finite number, not by {factor!r}")


def _wider(factor: complex) -> tuple[Any, ...]:
    return (np.complex64,) if isinstance(factor, complex) else ()

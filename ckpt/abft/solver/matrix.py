"""The process grid, and matrices as the program gives them.

A `Matrix` holds no numbers: it knows the program's function `fill`, and every solve asks it anew for the blocks that
a process needs, those of a column of checksums too. So encoding needs no communication, and a place whose rank dies
before the first panel is applied is filled by another one. That asks one thing of `fill`: it gives the same numbers
for the same rows and columns, at every rank, at any time.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ckpt import MPI, failure_policy
from ckpt.abft.decisions.encoding import Row
from ckpt.abft.decisions.grid import Place, Shape
from ckpt.abft.errors import GridError, InputError
from ckpt.abft.numbers.arrays import plain
from ckpt.abft.numbers.local import Local, bytes_of
from ckpt.abft.solver.link import Hook

__all__ = ["Grid", "Matrix", "right_hand_sides"]

Array = npt.NDArray[Any]
Fill = Callable[[slice, slice], Any]

_DTYPES = ("float32", "float64", "complex64", "complex128")

_GOES_BACK = (
    "when a rank dies, this job goes back to its last checkpoint with all ranks (from the beginning, if there is none): "
    "checksums do not take the place of the dead. For that, start it with `ckpt run --on-failure continue`. Or say what is "
    "meant: Grid(..., unprotected=True) keeps checksums for wrong numbers alone, Grid(..., redundant=0) saves them"
)


class Grid:
    """A grid of P × Q processes, with `redundant` columns of checksums, of the ranks of a communicator.

    `P`, `Q`: process rows, and columns of data. `redundant`: 1; or 0 for what no checksums protect; or more, so that as many
    columns may be lost at once. `comm`: the ranks; default: all of the job. Its further ranks are spares, which form new
    checksums after a failure: P-1 ranks are left of a column that has lost one, so each spare bears one more failure.
    `reserve`: where there are too few, solves, factorisations and products start processes of ``ckpt run --spares K`` for
    that; a process serves the call in which it was started.
    `unprotected`: a job without ``--on-failure continue`` will do, where a death sets all ranks back to the last checkpoint,
    and checksums are for wrong numbers alone.
    `hook`, for tests: called with (name, "before" or "after") around every call of the communication.

    No communication. Raises GridError at all ranks: too few ranks, numbers that make no grid, or checksums in a job without
    ``--on-failure continue``.
    """

    def __init__(
        self,
        P: int,
        Q: int,
        *,
        redundant: int = 1,
        comm: Any = None,
        reserve: bool = True,
        unprotected: bool = False,
        hook: Hook | None = None,
    ) -> None:
        for name, number in (("P", P), ("Q", Q)):
            if not isinstance(number, (int, np.integer)) or number < 1:
                raise GridError(f"{name} must be a positive number of processes, not {number!r}")
        if not isinstance(redundant, (int, np.integer)) or not 0 <= redundant <= Q:
            raise GridError(f"redundant must be 0 to Q={Q} columns of checksums, not {redundant!r}")
        if comm is not None and not isinstance(comm, type(MPI.COMM_WORLD)):
            raise GridError(f"comm must be a communicator of one group of ranks, not {comm!r}")
        self.P, self.Q, self.redundant, self.hook = int(P), int(Q), int(redundant), hook
        self.ledger: Any = None  # of encoded arrays, once there are any
        self.comm = MPI.COMM_WORLD if comm is None else comm
        world = MPI.COMM_WORLD  # the job may have more numbers than ranks, alike at all of them
        self.has_reserve = bool(reserve) and bool(world.Get_attr(MPI.UNIVERSE_SIZE) > world.size)
        needed = self.P * (self.Q + self.redundant)
        if self.comm.size < needed:
            raise GridError(
                f"a grid of {P} × {Q} with {redundant} column{'s' * (redundant != 1)} of checksums needs {needed} ranks, "
                f"and there are {self.comm.size}: start with `ckpt run -n {needed} --on-failure continue`"
                + (
                    ", or ask for a grid without protection (redundant=0)"
                    if redundant and self.comm.size >= self.P * self.Q
                    else ""
                )
            )
        if redundant and not unprotected and failure_policy() == "restart":
            raise GridError(_GOES_BACK)

    def __repr__(self) -> str:
        return f"Grid(P={self.P}, Q={self.Q}, redundant={self.redundant})"

    def matrix(self, n: int, *, fill: Fill | Any, nb: int = 64, dtype: Any = None) -> Matrix:
        """A matrix of order n in blocks of nb. `fill(rows, columns)`: two slices; the numbers there, or all that numpy
        makes an array of that shape of. It is called at several ranks, any number of times, and must give the same
        numbers each time. Or an array of n × n, the same at all ranks.

        `dtype`: float32, float64, complex64 or complex128; default: that of the array, or float64. Raises InputError.
        """
        return Matrix(self, n, fill, nb, dtype)


class Matrix:
    """A square matrix of order `n`, given by a function. Made by `Grid.matrix`."""

    def __init__(self, grid: Grid, n: int, fill: Fill | Any, nb: int, dtype: Any) -> None:
        if not isinstance(n, (int, np.integer)) or n < 0:
            raise InputError(f"n must be the order of a matrix, not {n!r}")
        if not isinstance(nb, (int, np.integer)) or nb < 1:
            raise InputError(f"nb must be a positive number of rows, not {nb!r}")
        self._array: Array | None = None
        if callable(fill):
            self._fill: Fill = fill
        else:
            array = self._array = plain(fill, "fill")
            if array.shape != (n, n):
                size = " × ".join(map(str, array.shape)) or type(fill).__name__
                raise InputError(f"an array of {n} × {n} is needed, not of {size}, or a function")
            if array.dtype.kind not in "biufc":
                raise InputError(f"fill has {array.dtype}, which are no numbers")
            dtype = array.dtype if dtype is None else dtype
            self._fill = lambda rows, columns: array[rows, columns]
        self.grid, self.n = grid, int(n)
        try:
            self.dtype = np.dtype(np.float64 if dtype is None else dtype).newbyteorder("=")
        except TypeError as error:
            raise InputError(f"dtype must be one of {', '.join(_DTYPES)}: {error}") from None
        if self.dtype.name not in _DTYPES:
            raise InputError(
                f"matrices are of {', '.join(_DTYPES)}, not of {self.dtype.name}: checksums of others are not exact, "
                f"or overflow; give dtype=numpy.float64 to convert"
            )
        self.nb = max(1, min(int(nb), -(-self.n // grid.Q)))
        self.shape = Shape(grid.P, grid.Q, self.n, self.nb)

    def __repr__(self) -> str:
        return f"<Matrix of order {self.n}, {self.dtype}, in blocks of {self.nb}, on {self.grid}>"

    def signature(self) -> str:
        given = (
            ""
            if self._array is None
            else f"{zlib.crc32(bytes_of(np.ascontiguousarray(self._array)).data):08x}"
        )
        grid = f"P={self.grid.P} Q={self.grid.Q} redundant={self.grid.redundant}"
        return f"{grid} n={self.n} nb={self.nb} {self.dtype} {given}"

    def numbers(self, rows: slice, columns: slice) -> Array:
        """What `fill` gives for these rows and columns. Raises InputError: another shape, kind, or numbers not finite."""
        wanted = rows.stop - rows.start, columns.stop - columns.start
        where = f"for rows {rows.start}:{rows.stop} and columns {columns.start}:{columns.stop}"
        found = plain(self._fill(rows, columns), "what fill gave")
        if found.shape != wanted:
            raise InputError(f"fill gave an array of {found.shape} {where}, not of {wanted}")
        if found.dtype.kind not in "biufc":
            raise InputError(f"fill gave {found.dtype} {where}, which are no numbers")
        if found.dtype.kind == "c" and self.dtype.kind != "c":
            raise InputError(f"fill gave complex numbers {where}: give dtype=numpy.complex128")
        found = found.astype(self.dtype, copy=False)
        if not np.isfinite(found).all():
            i, j = np.argwhere(~np.isfinite(found))[0]
            raise InputError(
                f"A[{rows.start + int(i)}, {columns.start + int(j)}] is {found[i, j]}: checksums need finite numbers"
            )
        return found

    def blocks(self, i: int, j: int, count: int, corner: float) -> Array:
        """Blocks (i, j) to (i, j + count - 1), with the identity (times `corner`) that fills the matrix up to its padded
        order. Not to be changed: it may be the program's array."""
        nb, n = self.nb, self.n
        wanted = nb, count * nb
        rows, columns = slice(i * nb, min((i + 1) * nb, n)), slice(j * nb, min((j + count) * nb, n))
        inside = max(0, rows.stop - rows.start), max(0, columns.stop - columns.start)
        if inside == wanted:
            return self.numbers(rows, columns)
        found = np.zeros(wanted, dtype=self.dtype)
        if all(inside):
            found[: inside[0], : inside[1]] = self.numbers(rows, columns)
        for t in range(max(n, i * nb, j * nb), min((i + 1) * nb, (j + count) * nb)):
            found[t - i * nb, t - j * nb] = corner
        return found

    def corner(self) -> float:
        """The size of the numbers that fill the matrix up: that of its first block."""
        if self.shape.order == self.n:
            return 1.0
        end = min(self.n, self.nb)
        largest = float(np.abs(self.numbers(slice(0, end), slice(0, end))).max())
        return largest if largest > 0 else 1.0

    def fill(self, local: Local, place: Place, weights: Sequence[Row]) -> None:
        """Fill a process's part: blocks of data, or checksums of all columns with these weights of every group."""
        shape, corner = self.shape, self.corner()
        for place_in_column, i in enumerate(shape.block_rows(place.p)):
            rows = slice(place_in_column * shape.nb, (place_in_column + 1) * shape.nb)
            for group in range(shape.groups):
                target = local.block(group)[rows]
                if place.v < shape.Q:
                    target[...] = self.blocks(i, group * shape.Q + place.v, 1, corner)
                    continue
                found = self.blocks(i, group * shape.Q, shape.Q, corner).reshape(shape.nb, shape.Q, shape.nb)
                for q, weight in enumerate(weights[group]):
                    target += weight * found[:, q]


def right_hand_sides(matrix: Matrix, b: Any) -> Array:
    """`b` as an array of n rows. Raises InputError."""
    found = plain(b, "b")
    if found.ndim not in (1, 2) or len(found) != matrix.n:
        raise InputError(f"b must have {matrix.n} rows, as the matrix; its shape is {found.shape}")
    if found.dtype.kind not in "biufc":
        raise InputError(f"b has {found.dtype}, which are no numbers")
    if found.dtype.kind == "c" and matrix.dtype.kind != "c":
        raise InputError("b is complex and the matrix is not: give the matrix dtype=numpy.complex128")
    found = found.astype(matrix.dtype).reshape(matrix.n, 1 if found.ndim == 1 else found.shape[1])
    if not np.isfinite(found).all():
        i, j = np.argwhere(~np.isfinite(found))[0]
        raise InputError(f"b[{int(i)}, {int(j)}] is {found[i, j]}")
    return found

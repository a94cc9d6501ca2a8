"""One process's part of the matrix, and what the operations of a step do to it.

`numbers` has the process's rows (grid.py), the blocks of all groups side by side, and last a copy of the right-hand
sides, which every column carries along. A `Panel` is what a step needs of its panel in one process row; `Update` is
what it needs of the row exchange: block row k of U, and the rows that move out of block row k into this process.

The pivots of a panel exchange row k·nb+t with row pivots[t], one after the other. So a row that leaves block row k has
been in it from the start: only the root moves rows out, and only block row k gets rows from elsewhere (`moves`).

Nothing here communicates. Arrays that travel are contiguous; `bytes_of` is their memory.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from ckpt.abft.decisions.grid import Shape
from ckpt.abft.decisions.steps import Share
from ckpt.abft.errors import Singular
from ckpt.abft.numbers.dense import factorise, solve_lower, summed, unit_lower
from ckpt.abft.numbers.seals import digest, is_whole, room, seal
from ckpt.abft.numbers.verify import Corrupt, Sums, is_product, sums_of_columns, sums_of_rows

__all__ = ["Array", "Local", "Panel", "Update", "bytes_of", "moves"]

Array = npt.NDArray[Any]
T = TypeVar("T")

_TRIES = 3
"""So often something is made of the same numbers before a process gives up."""

_PRODUCT_BYTES = 1 << 20
"""A product that is subtracted is made in parts of this size: what fits into a processor's own cache goes to memory once."""


def bytes_of(array: Array) -> Array:
    """The memory of a contiguous array as bytes."""
    return array.reshape(-1).view(np.uint8)


class Panel:
    """Panel k in one process row. `packed`: the memory that travels, with room for its digest (seals.py); `pivots`: matrix
    rows (nb); `lower`: the rows of L from block row k on that this process row holds (rows × nb), the root's with U in its
    upper triangle."""

    __slots__ = ("lower", "packed", "pivots")

    def __init__(self, shape: Shape, p: int, k: int, dtype: np.dtype[Any]) -> None:
        rows = shape.local_rows(p) - shape.rows_before(p, k)
        head, size = shape.nb * 8, rows * shape.nb * dtype.itemsize
        self.packed = room(head + size)
        self.pivots = self.packed[:head].view(np.int64)
        self.lower = self.packed[head : head + size].view(dtype).reshape(rows, shape.nb)

    def seal(self) -> None:
        """Its numbers are what they should be."""
        seal(self.packed)

    def is_whole(self) -> bool:
        """Are they still?"""
        return is_whole(self.packed)


class Update(NamedTuple):
    """The result of the row exchange of one step. `k`: the step. `upper`: block row k of U for the trailing columns (nb ×
    width). `out`: by process row, the rows that move there out of block row k. `seal`: its digest, if there is one."""

    k: int
    upper: Array
    out: dict[int, Array]
    seal: int = 0

    def sealed(self) -> Update:
        """With a digest: its numbers are what they should be."""
        return self._replace(seal=self._digest())

    def is_whole(self) -> bool:
        """Are they still?"""
        return self.seal == self._digest()

    def _digest(self) -> int:
        return sum(int(digest(bytes_of(array))) for array in (self.upper, *self.out.values()))


class Moves(NamedTuple):
    """The rows of the matrix that the pivots of one panel move. `into`: for each row of block row k the matrix row that
    moves there. `out`: (from, to) of the rows that leave it."""

    into: list[int]
    out: list[tuple[int, int]]


def moves(shape: Shape, k: int, pivots: Array) -> Moves:
    first = k * shape.nb
    at: dict[int, int] = {}
    for t, pivot in enumerate(pivots.tolist()):
        row = first + t
        at[row], at[pivot] = at.get(pivot, pivot), at.get(row, row)
    below = first + shape.nb
    return Moves(
        [at[first + t] for t in range(shape.nb)],
        sorted((source, target) for target, source in at.items() if target >= below),
    )


class Exchange:
    """The moves of a panel, by process row and place there. `p`, `places`: of the rows that move into block row k, in its
    order; `out_places`: those in block row k that leave it, `out_p` and `out_to`: whereto."""

    __slots__ = ("out_p", "out_places", "out_to", "p", "places")

    def __init__(self, shape: Shape, k: int, pivots: Array) -> None:
        found = moves(shape, k, pivots)
        out = np.array(found.out, dtype=np.int64).reshape(-1, 2)
        self.p, self.places = _local(shape, np.array(found.into))
        self.out_places = _local(shape, out[:, 0])[1]
        self.out_p, self.out_to = _local(shape, out[:, 1])

    def into(self, p: int) -> Array:
        """The places of the rows of process row p that move into block row k."""
        return np.asarray(self.places[self.p == p])

    def arriving(self, p: int) -> Array:
        """The places in process row p of the rows that leave block row k."""
        return np.asarray(self.out_to[self.out_p == p])

    def leaving(self, p: int) -> Array:
        """Their places in block row k."""
        return np.asarray(self.out_places[self.out_p == p])


def _local(shape: Shape, rows: Array) -> tuple[Array, Array]:
    """`Shape.local` of several rows."""
    blocks, within = np.divmod(rows, shape.nb)
    return blocks % shape.P, blocks // shape.P * shape.nb + within


class Local:
    """The numbers of one process at row p."""

    def __init__(self, shape: Shape, p: int, dtype: np.dtype[Any], right: int) -> None:
        """`right`: the number of right-hand sides."""
        self.shape, self.p, self.dtype, self.right = shape, p, dtype, right
        self.numbers: Array = np.zeros((shape.local_rows(p), shape.groups * shape.nb + right), dtype=dtype)
        self._backups: list[tuple[int, Array]] = []
        self.sums: Sums | None = None
        self._exchanged: tuple[Panel, Exchange] | None = None  # of the panel that was asked for last

    def watch(self) -> None:
        """From now on follow the sums of rows and columns, for `sums.verify`."""
        self.sums = Sums(self.numbers)

    @property
    def right_hand_sides(self) -> Array:
        return self.numbers[:, self.shape.groups * self.shape.nb :]

    def block(self, group: int) -> Array:
        """A view of the block column of a group."""
        return self.numbers[:, self.shape.group_slice(group)]

    def block_copy(self, group: int, rows: int) -> Array:
        """The first rows of the block column of a group."""
        return np.ascontiguousarray(self.block(group)[:rows])

    def _made(self, make: Callable[[], T], is_right: Callable[[T], bool]) -> T:
        """What is made of the numbers; again, if it is wrong. Raises Corrupt."""
        for _ in range(_TRIES):
            found = make()
            if self.sums is None or is_right(found):
                return found
            self.sums.redone += 1
        raise Corrupt(f"this process has computed the same thing wrong {_TRIES} times")

    # -- panel ---------------------------------------------------------------------------------------

    def part(self, k: int) -> Array:
        """The rows from block row k on of block column k, which this column owns."""
        first, group = self.shape.rows_before(self.p, k), k // self.shape.Q
        found = self.block(group)[first:].copy()
        if self.sums is not None and self.sums.verify_part(self.shape.group_slice(group), first, found):
            found = self.block(group)[first:].copy()
        return found

    def factorise(self, k: int, parts: dict[int, Array]) -> list[Panel]:
        """The panel of every process row, at the root. `parts`: of all rows. Raises Singular, Corrupt."""

        def make() -> tuple[Array, Array, list[Panel]]:
            whole, places = self.gathered(k, parts)
            sums = whole[:0] if self.sums is None else sums_of_columns(whole)
            return sums, whole, self._factorised(k, whole, places)

        return self._made(make, lambda found: self._are_factors(*found))[2]

    def _are_factors(self, sums: Array, whole: Array, panels: list[Panel]) -> bool:
        """Is a block column with these sums the product of the factors that are in its place now?"""
        nb = self.shape.nb
        lower = unit_lower(whole, nb)
        down, sizes = sums_of_columns(lower), sums_of_columns(np.abs(lower))
        return is_product(sums, down, sizes, np.triu(whole[:nb]), len(whole))

    def _factorised(self, k: int, whole: Array, places: dict[int, Array]) -> list[Panel]:
        shape = self.shape
        nb, first = shape.nb, k * shape.nb
        pivots, good = factorise(whole)
        if good < nb:
            raise Singular(
                f"the matrix is singular: column {first + good} of {shape.n} depends on those before it "
                f"(no pivot but zero)"
            )
        return self.panels(k, whole, places, pivots + first)

    def gathered(self, k: int, parts: dict[int, Array]) -> tuple[Array, dict[int, Array]]:
        """The rows from block row k on of a block column, of parts of all process rows; and where those of each row are."""
        shape, first = self.shape, k * self.shape.nb
        whole = np.empty((shape.order - first, shape.nb), dtype=self.dtype)
        places = {p: shape.row_numbers(p)[shape.rows_before(p, k) :] - first for p in range(shape.P)}
        for p, rows in places.items():
            whole[rows] = parts[p]
        return whole, places

    def panels(self, k: int, whole: Array, places: dict[int, Array], pivots: Array) -> list[Panel]:
        """A factorised block column as the panel of each process row."""
        found = []
        for p, rows in places.items():
            panel = Panel(self.shape, p, k, self.dtype)
            panel.pivots[...] = pivots
            panel.lower[...] = whole[rows]
            found.append(panel)
        return found

    # -- update --------------------------------------------------------------------------------------

    def rows_for(self, k: int, panel: Panel, start: int) -> Array:
        """The rows of this process that move into block row k, from local column `start` on."""
        places = self._exchange(k, panel).into(self.p)
        if self.sums is not None:
            self.sums.verify_rows(places)
        return np.ascontiguousarray(self.numbers[places, start:])

    def _exchange(self, k: int, panel: Panel) -> Exchange:
        if self._exchanged is None or self._exchanged[0] is not panel:
            self._exchanged = panel, Exchange(self.shape, k, panel.pivots)
        return self._exchanged[1]

    def count_rows(self, k: int, panel: Panel, p: int) -> tuple[int, int]:
        """How many rows process row p gives for block row k, and how many it gets out of it."""
        found = self._exchange(k, panel)
        return len(found.into(p)), len(found.arriving(p))

    def solve(self, k: int, panel: Panel, start: int, given: dict[int, Array]) -> Update:
        """Block row k of U, at the root, with the rows that the others have given."""
        shape, found = self.shape, self._exchange(k, panel)
        mine = found.into(self.p)
        if self.sums is not None:
            first, below = shape.rows_before(self.p, k), shape.rows_before(self.p, k + 1)
            self.sums.verify_rows(slice(first, below))
            self.sums.verify_rows(mine[mine >= below])
        top = np.empty((shape.nb, self.numbers.shape[1] - start), dtype=self.dtype)
        top[found.p == self.p] = self.numbers[mine, start:]
        for p, rows in given.items():
            top[found.p == p] = rows
        out = {p: np.ascontiguousarray(self.numbers[found.leaving(p), start:]) for p in range(shape.P)}
        lower = panel.lower[: shape.nb]
        return Update(k, self._made(lambda: solve_lower(lower, top), lambda x: _solves(lower, x, top)), out)

    def applying(self, k: int, panel: Panel, start: int, update: Update, owner: bool) -> Iterator[None]:
        """Change the matrix from step k to step k+1, in parts of a few milliseconds each. Until all are done, the numbers
        are of no use to anybody else. `owner`: block column k is here, and becomes U."""
        self._backups.clear()
        yield from self._applying(k, panel, start, update, owner)

    def _applying(self, k: int, panel: Panel, start: int, update: Update, owner: bool) -> Iterator[None]:
        shape = self.shape
        trailing = slice(start, self.numbers.shape[1])
        self._set(self._exchange(k, panel).arriving(self.p), trailing, update.out[self.p])
        first, below = shape.rows_before(self.p, k), shape.rows_before(self.p, k + 1)
        across = None if self.sums is None else sums_of_rows(update.upper)
        if below > first:
            self._set(slice(first, below), trailing, update.upper, across)
        yield from self._subtracting(below, start, panel.lower[below - first :], update.upper, across)
        if owner:
            self.finish_block(k, panel, first, below)

    def ahead(self, k: int, panel: Panel, start: int, update: Update) -> Array:
        """The rows from block row k+1 on of block column k+1, which is here, as step k will make them. The matrix
        is not changed."""
        shape = self.shape
        first, below = shape.rows_before(self.p, k), shape.rows_before(self.p, k + 1)
        columns = shape.group_slice((k + 1) // shape.Q)
        here = slice(columns.start - start, columns.stop - start)
        found = self.numbers[below:, columns].copy()
        found[self._exchange(k, panel).arriving(self.p) - below] = update.out[self.p][:, here]
        found -= panel.lower[below - first :] @ update.upper[:, here]
        return found

    def finish_block(self, k: int, panel: Panel, first: int, below: int) -> None:
        """Block column k, which is here, becomes upper triangular; its block row is at `first` … `below`, if it is here."""
        block = self.shape.group_slice(k // self.shape.Q)
        top = np.triu(panel.lower[: below - first])
        if self.sums is not None:
            self.sums.finish(first, block, top)
        else:
            self.numbers[first:below, block] = top
            self.numbers[below:, block] = 0

    def _set(self, rows: Any, columns: slice, values: Array, across: Array | None = None) -> None:
        if self.sums is not None:
            self.sums.set(rows, columns, values, across)
        else:
            self.numbers[rows, columns] = values

    def _subtracting(
        self,
        row: int,
        start: int,
        lower: Array,
        upper: Array,
        across: Array | None,
        *,
        stop: int | None = None,
        again: bool = False,
    ) -> Iterator[None]:
        """Subtract `lower @ upper` from the rows from `row` on, in the columns from `start` to `stop` (None: the last one).
        In parts. `across`: for the sums. `again`: other columns have been changed in this step."""
        target = self.numbers[row:, start:stop]
        count = max(1, _PRODUCT_BYTES // max(1, target.shape[1] * target.itemsize))
        product = np.empty((min(count, len(target)), target.shape[1]), dtype=self.dtype)
        for first in range(0, len(target), count):
            part = target[first : first + count]
            part -= np.matmul(lower[first : first + count], upper, out=product[: len(part)])
            yield
        if self.sums is not None:
            assert across is not None
            rows, columns = slice(row, len(self.numbers)), slice(start, stop)
            self.sums.subtracted(rows, columns, lower, upper, across, again=again)

    # -- shares of recovery and encoding -------------------------------------------------------------

    def combine(self, share: Share, given: dict[int, Array], rows: int) -> None:
        """Compute the block of this column back, or encode; `given`: the first rows of the group's blocks of the other
        columns of data. The other rows are zero (steps.py).

        The rounding of plain sums would be most of the error that is left behind by several replacements."""
        if self.sums is not None:
            self.sums.verify()
        whole = self.block(share.group)
        if share.kind == "subtract":
            self._backups.append((share.group, whole.copy()))
            mine = whole[:rows] * share.much[share.column]
        else:
            mine = np.zeros_like(whole[:rows])
        whole[:rows] = summed(mine, (share.much[q] * given[q] for q in sorted(given) if share.much[q]))
        whole[rows:] = 0
        if self.sums is not None:
            self.sums.take_anew()

    def undo_shares(self, settled: Collection[int] = ()) -> None:
        """Undo what was subtracted since the last panel was applied, but in these groups, where it counts."""
        for group, block in reversed(self._backups):
            if group not in settled:
                self._set(slice(None), self.shape.group_slice(group), block)
        self._backups.clear()


def _solves(lower: Array, x: Array, right: Array) -> bool:
    """Is L·x what it should be, L with ones on its diagonal?"""
    unit = unit_lower(lower, len(lower))
    down, sizes = sums_of_columns(unit), sums_of_columns(np.abs(unit))
    return is_product(sums_of_columns(right), down, sizes, x, len(lower))

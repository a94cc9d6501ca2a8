"""Layouts: the places in memory of the bytes of one element of a datatype. (MPI's term is type map.)

    runs          (offset, bytes) of each contiguous piece, in the order of transfer
    lb, ub        lower and upper bound; ub - lb (the extent) is the distance between consecutive elements
    basics        (bytes, how many) of the basic elements, in order
    code          numpy or struct typecode of the basic elements, if all have the same; "value,index" for a pair type
    contiguous    elements follow each other without gaps, so any number of elements is one slice of memory

Not here: handles of datatypes (datatypes.py), and the constructors that programs call (derived.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ckpt.mpi.base.constants import UNDEFINED
from ckpt.mpi.base.errors import ERR_ARG, MpiException

Runs = tuple[tuple[int, int], ...]
Basics = tuple[tuple[int, int], ...]

LONG_DOUBLES = ("g", "Zg", "g,i")
"""Typecodes of elements with bytes that may belong to no value (gaps.py, which most programs do not need)."""


class Layout:
    """A layout. Immutable. Sizes, offsets and bounds are in bytes."""

    __slots__ = ("align", "basics", "code", "contiguous", "lb", "runs", "size", "true_lb", "true_ub", "ub")

    def __init__(
        self,
        runs: Runs,
        basics: Basics,
        code: str = "",
        *,
        lb: int | None = None,
        ub: int | None = None,
        align: int = 1,
    ) -> None:
        size = 0
        low: int | None = None
        high: int | None = None
        for offset, nbytes in runs:
            size += nbytes
            low = offset if low is None else min(low, offset)
            high = offset + nbytes if high is None else max(high, offset + nbytes)
        self.runs = runs
        self.size = size
        self.basics = basics
        self.code = code
        self.true_lb = low or 0
        self.true_ub = high or 0
        self.lb = self.true_lb if lb is None else lb
        self.ub = self.true_ub if ub is None else ub
        self.align = align
        self.contiguous = self.lb == 0 and self.ub == size and (not runs or runs == ((0, size),))

    @property
    def extent(self) -> int:
        return self.ub - self.lb

    def elements_in(self, nbytes: int) -> int:
        """Number of basic elements in a message of `nbytes` bytes; UNDEFINED if the message ends inside of one."""
        if self.size == 0:
            return 0 if nbytes == 0 else UNDEFINED
        whole, rest = divmod(nbytes, self.size)
        count = 0
        for _, many in self.basics:
            count += many
        count *= whole
        for each, many in self.basics:
            if rest < each * many:
                number, rest = divmod(rest, each)
                count += number
                break
            rest -= each * many
            count += many
        return UNDEFINED if rest else count

    def nbytes_of(self, elements: int) -> int:
        """Number of bytes of the first `elements` basic elements of a message."""
        per = 0
        for _, many in self.basics:
            per += many
        if per == 0:
            return 0
        whole, rest = divmod(elements, per)
        nbytes = whole * self.size
        for each, many in self.basics:
            took = min(rest, many)
            nbytes += took * each
            rest -= took
        return nbytes

    def resized(self, lb: int, extent: int) -> Layout:
        return Layout(self.runs, self.basics, self.code, lb=lb, ub=lb + extent, align=self.align)


def _merge(runs: Iterable[tuple[int, int]]) -> Runs:
    """The runs, with adjacent ones joined and empty ones removed."""
    out: list[tuple[int, int]] = []
    for offset, nbytes in runs:
        if nbytes == 0:
            continue
        if out and out[-1][0] + out[-1][1] == offset:
            out[-1] = (out[-1][0], out[-1][1] + nbytes)
        else:
            out.append((offset, nbytes))
    return tuple(out)


def _repeat(basics: Basics, count: int) -> Basics:
    if count <= 0:
        return ()
    if len(basics) == 1:
        return ((basics[0][0], basics[0][1] * count),)
    return basics * count


def _block(layout: Layout, count: int, at: int) -> list[tuple[int, int]]:
    """The runs of `count` consecutive elements that start at byte `at`."""
    if layout.contiguous:
        return [(at, count * layout.size)] if count else []
    extent = layout.extent
    out = []
    for element in range(count):
        base = at + element * extent
        for offset, nbytes in layout.runs:
            out.append((base + offset, nbytes))
    return out


def blocks(pieces: Sequence[tuple[Layout, int, int]], *, pad: bool = False) -> Layout:
    """The layout of several blocks (element layout, count, byte offset). pad: round the extent up to the alignment, as a C
    compiler does for a struct. MpiException (ERR_ARG): a count is negative."""
    runs: list[tuple[int, int]] = []
    basics: list[tuple[int, int]] = []
    codes = set()
    low: int | None = None
    high: int | None = None
    align = 1
    for layout, count, at in pieces:
        if count < 0:
            raise MpiException(ERR_ARG, f"negative block length {count}")
        if count == 0:
            continue
        runs += _block(layout, count, at)
        for each, many in _repeat(layout.basics, count):
            if basics and basics[-1][0] == each:
                basics[-1] = (each, basics[-1][1] + many)
            else:
                basics.append((each, many))
        codes.add(layout.code)
        align = max(align, layout.align)
        spread = (count - 1) * layout.extent  # of the last element from the first; an extent may be negative
        first, last = at + layout.lb + min(0, spread), at + layout.ub + max(0, spread)
        low = first if low is None else min(low, first)
        high = last if high is None else max(high, last)
    lb, ub = low or 0, high or 0
    if pad and (ub - lb) % align:
        ub += align - (ub - lb) % align
    code = codes.pop() if len(codes) == 1 else ""
    return Layout(_merge(runs), tuple(basics), code, lb=lb, ub=ub, align=align)


def subarray(
    layout: Layout, sizes: Sequence[int], subsizes: Sequence[int], starts: Sequence[int], *, c_order: bool
) -> Layout:
    """The layout of a subarray of a dense array. MpiException (ERR_ARG): the subarray is not inside the array."""
    for size, subsize, start in zip(sizes, subsizes, starts, strict=True):
        if size < 1 or subsize < 0 or start < 0 or start + subsize > size:
            raise MpiException(ERR_ARG, "the box lies outside of the array")
    axes = [(size, [(start, subsize)]) for size, subsize, start in zip(sizes, subsizes, starts, strict=True)]
    return _box(layout, axes, c_order=c_order)


def _box(layout: Layout, axes: list[tuple[int, list[tuple[int, int]]]], *, c_order: bool) -> Layout:
    """The layout of the elements of a dense array with these indices: of each axis its size, and (first index, how many) of
    each block. Its bounds are those of the array."""
    if c_order:
        axes = axes[::-1]  # the axis with the smallest stride comes first
    extent = layout.extent
    pieces = [(0, 1)]  # (first element, how many)
    stride = 1
    for number, (size, spans) in enumerate(axes):
        if number == 0:
            pieces = spans
        else:
            pieces = [
                (at + index * stride, count)
                for start, many in spans
                for index in range(start, start + many)
                for at, count in pieces
            ]
        stride *= size
    inner = blocks([(layout, count, at * extent) for at, count in pieces])
    return inner.resized(0, stride * extent)


def darray(
    layout: Layout,
    rank: int,
    gsizes: Sequence[int],
    distribs: Sequence[tuple[int, int]],
    psizes: Sequence[int],
    *,
    c_order: bool,
) -> Layout:
    """The layout of the part of a distributed array that process `rank` of the grid `psizes` owns.

    distribs: (block size, whether cyclic) for each axis; block size 0 for an axis that is not distributed."""
    coords = []
    rest = rank
    for place in range(len(psizes)):
        below = 1
        for size in psizes[place + 1 :]:
            below *= size
        coords.append(rest // below)
        rest %= below
    axes = []
    for axis, size in enumerate(gsizes):
        block, cyclic = distribs[axis]
        parts, own = psizes[axis], coords[axis]
        if block == 0:
            spans = [(0, size)]
        elif not cyclic:
            spans = [(own * block, max(0, min(size, (own + 1) * block) - own * block))]
        else:
            spans = [(first, min(block, size - first)) for first in range(own * block, size, parts * block)]
        axes.append((size, spans))
    return _box(layout, axes, c_order=c_order)

"""The view of a file at one rank: which bytes of the file the program's data are. (pure)

    displacement     byte of the file at which the view begins
    etype            what positions count: position p is byte p · (size of the etype) of the view's data
    filetype         its data are the bytes that the view has; it is repeated, each time one extent further

    data of the view     0 1 2 3 4 5 …         `ranges` maps a piece of it to pieces of the file, neighbours joined
    file                 . . 0 1 . 2 3 4 . 5 …

All offsets and sizes are in bytes, positions in etypes.

Not here: handles of datatypes, and what is done with the pieces (disk.py).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import accumulate

from ckpt.mpi.base.errors import ERR_ARG, ERR_IO, ERR_TYPE, MpiException
from ckpt.mpi.datatypes.layout import Layout

Ranges = list[tuple[int, int]]
"""(offset in the file, bytes) of each piece, in the order of the data."""


class View:
    """A view. Immutable."""

    __slots__ = ("before", "dense", "displacement", "etype_bytes", "extent", "runs", "size")

    def __init__(self, displacement: int, etype: Layout, filetype: Layout, *, writes: bool) -> None:
        """writes: the file is open for writing, so no byte may be in the view twice.

        MpiException (ERR_ARG, ERR_TYPE): the standard does not allow such a view."""
        _check(displacement, etype, filetype, writes=writes)
        self.displacement = displacement
        self.etype_bytes = etype.size
        self.runs = filetype.runs
        self.size = filetype.size
        self.extent = filetype.extent
        self.dense = len(filetype.runs) == 1 and filetype.extent == filetype.size
        """Are the view's data all bytes of the file from somewhere on?"""
        self.before = [0, *accumulate(nbytes for _, nbytes in filetype.runs)]
        """Bytes of data of a filetype before each of its runs, and in all of them."""

    def ranges(self, position: int, nbytes: int) -> Ranges:
        """The pieces of the file for `nbytes` bytes from a position on. MpiException (ERR_IO): they are no whole number of
        etypes; (ERR_ARG): the position is negative, or the view has no bytes."""
        if position < 0:
            raise MpiException(ERR_ARG, f"negative offset {position}")
        if self.etype_bytes and nbytes % self.etype_bytes:
            raise MpiException(
                ERR_IO, f"{nbytes} bytes are no whole number of etypes of {self.etype_bytes} bytes"
            )
        if not nbytes:
            return []
        if not self.size:
            raise MpiException(ERR_ARG, "the filetype of the view has no data")
        at = position * self.etype_bytes
        if self.dense:
            return [(self.displacement + self.runs[0][0] + at, nbytes)]
        return self._pieces(at, nbytes)

    def _pieces(self, at: int, nbytes: int) -> Ranges:
        tile, inside = divmod(at, self.size)
        number = bisect_right(self.before, inside) - 1
        skipped = inside - self.before[number]
        runs = self.runs
        base = self.displacement + tile * self.extent
        out: Ranges = []
        end = -1  # of the last piece; a piece that begins there is joined to it
        while nbytes:
            offset, length = runs[number]
            start, length = base + offset + skipped, min(length - skipped, nbytes)
            if start == end:
                out[-1] = (out[-1][0], out[-1][1] + length)
            else:
                out.append((start, length))
            end = start + length
            nbytes -= length
            skipped = 0
            number += 1
            if number == len(runs):
                number, base = 0, base + self.extent
        return out

    def byte_offset(self, position: int) -> int:
        """The byte of the file at which a position is. MpiException (ERR_ARG): it is negative, or the view is empty."""
        if position < 0:
            raise MpiException(ERR_ARG, f"negative offset {position}")
        if not self.size:
            raise MpiException(ERR_ARG, "the filetype of the view has no data")
        tile, inside = divmod(position * self.etype_bytes, self.size)
        number = bisect_right(self.before, inside) - 1
        return self.displacement + tile * self.extent + self.runs[number][0] + inside - self.before[number]

    def end(self, file_bytes: int) -> int:
        """The first position that is behind the end of a file of this size."""
        rest = file_bytes - self.displacement
        if rest <= 0 or not self.size or not self.etype_bytes:
            return 0
        first = self.runs[0][0]
        tile = max(0, (rest - first - 1) // self.extent) if self.extent > 0 and rest > first else 0
        rest -= tile * self.extent
        number = bisect_left(self.runs, (rest, 0)) - 1  # the last run that begins before the end
        data = tile * self.size
        if number >= 0:
            offset, length = self.runs[number]
            data += self.before[number] + min(length, rest - offset)
        return -(-data // self.etype_bytes)


def _check(displacement: int, etype: Layout, filetype: Layout, *, writes: bool) -> None:
    if displacement < 0:
        raise MpiException(ERR_ARG, f"negative displacement {displacement} of a view")
    if not etype.size:
        raise MpiException(ERR_ARG, "the etype has no data")
    if filetype.size % etype.size:
        raise MpiException(
            ERR_ARG, f"a filetype of {filetype.size} bytes is not made of etypes of {etype.size} bytes"
        )
    end = 0
    for offset, nbytes in filetype.runs:
        if offset < 0:
            raise MpiException(ERR_TYPE, f"the filetype has the negative displacement {offset}")
        if offset < end and writes:
            raise MpiException(ERR_TYPE, f"byte {offset} of the filetype is there twice, or after later ones")
        end = max(end, offset + nbytes)
    offsets = [offset for offset, _ in filetype.runs]
    if offsets != sorted(offsets):
        raise MpiException(ERR_TYPE, "the displacements of the filetype decrease")
    if filetype.runs and (filetype.extent <= 0 or (writes and end - offsets[0] > filetype.extent)):
        raise MpiException(
            ERR_TYPE, f"filetypes of extent {filetype.extent}, one after the other, have bytes in common"
        )

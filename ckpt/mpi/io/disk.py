"""Reads and writes of pieces of a file. (driver)

Small pieces that lie near each other are read together, with what is between them. Writes touch no byte but their own: what
is between two pieces may be another rank's or another program's.

Not here: which pieces (view.py), which rank does it (state.py).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

from ckpt.mpi.base.layer import Disk
from ckpt.mpi.base.progress import Buffer
from ckpt.mpi.io.view import Ranges

NONE, BY_PATH = -1, -2
"""Instead of a descriptor: there is none; the file is opened by its path for each access."""

_SMALL_BYTES = 1 << 16
"""Pieces of this size are read one by one."""
_TOGETHER_BYTES = 1 << 20
"""So much of the file is read at once for several small pieces."""
_SPARSE = 8
"""Pieces are read together if they are at least one byte in so many of what is read."""


@contextlib.contextmanager
def opened(fd: int, path: str, of_replicas: Disk | None, flags: int = os.O_RDONLY) -> Iterator[int]:
    """The descriptor; in place of BY_PATH the file, opened. Raises OSError."""
    if fd != BY_PATH:
        yield fd
        return
    fd = os.open(path, flags | os.O_CLOEXEC)
    try:
        if of_replicas is not None:
            of_replicas.check(path, fd)
        yield fd
    finally:
        os.close(fd)


def write(fd: int, ranges: Ranges, data: Buffer) -> None:
    """Write the data to these pieces. Raises OSError: some of them may have been written."""
    view = memoryview(data)
    at = 0
    for offset, nbytes in ranges:
        end = at + nbytes
        while at < end:
            done = os.pwrite(fd, view[at:end], offset)
            at += done
            offset += done


def read(fd: int, ranges: Ranges, into: Any) -> int:
    """Read these pieces into writable memory, up to the end of the file. Returns the number of bytes. Raises OSError."""
    view = memoryview(into)
    at = number = 0
    while number < len(ranges):
        several = _near(ranges, number)
        if several > 1:
            done, wanted = _together(fd, ranges[number : number + several], view[at:])
        else:
            offset, wanted = ranges[number]
            done = _one(fd, offset, view[at : at + wanted])
        at += done
        number += several
        if done < wanted:
            break  # the file ends here
    return at


def _near(ranges: Ranges, number: int) -> int:
    """How many pieces from this one on are to be read together."""
    first, nbytes = ranges[number]
    if nbytes >= _SMALL_BYTES:
        return 1
    several, end, data = 1, first + nbytes, nbytes
    for offset, length in (
        ranges[number + 1 :] if len(ranges) - number < 1024 else ranges[number + 1 : number + 1024]
    ):
        data += length
        if offset < end or length >= _SMALL_BYTES or offset + length - first > _TOGETHER_BYTES:
            break
        if data * _SPARSE < offset + length - first:
            break
        end = offset + length
        several += 1
    return several


def _together(fd: int, ranges: Ranges, into: memoryview) -> tuple[int, int]:
    """(bytes read, bytes wanted) of pieces that are read at once."""
    first = ranges[0][0]
    block = bytearray(ranges[-1][0] + ranges[-1][1] - first)
    there = first + _one(fd, first, memoryview(block))
    at = wanted = 0
    for offset, nbytes in ranges:
        wanted += nbytes
        usable = min(nbytes, there - offset)
        if usable > 0:
            into[at : at + usable] = block[offset - first : offset - first + usable]
            at += usable
    return at, wanted


def _one(fd: int, offset: int, into: memoryview) -> int:
    """Read one piece, up to the end of the file. Returns the number of bytes."""
    at = 0
    while at < len(into):
        done = os.preadv(fd, [into[at:]], offset + at)
        if not done:
            break
        at += done
    return at

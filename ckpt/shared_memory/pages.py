"""Pages of a host's memory: reserved, copied for an image, given back. (driver)

Not here: who may have which (:mod:`ckpt.shared_memory.host`).
"""

from __future__ import annotations

import ctypes
import mmap
from typing import Any, Final

from ckpt.shared_memory._mapping import extend
from ckpt.shared_memory.table import Shared

__all__ = ["copy_of", "give_back", "reserve", "whole_pages"]

_LARGE_BYTES: Final = 1 << 20
_FALLOC_KEEP_SIZE_PUNCH_HOLE: Final = 1 | 2


def give_back(fd: int, offset: int, nbytes: int) -> None:
    """Return memory to the system; it is zero where it is still looked at."""
    fallocate = ctypes.CDLL(None).fallocate
    fallocate(fd, _FALLOC_KEEP_SIZE_PUNCH_HOLE, ctypes.c_long(offset), ctypes.c_long(whole_pages(nbytes)))


def reserve(table: Shared, fd: int, end: int) -> None:
    """Let the file have all bytes before this one, and nobody get one of them again. Raises OSError."""
    table.free_at = whole_pages(end)
    extend(fd, table.free_at)


def whole_pages(nbytes: int) -> int:
    """So many bytes or more, up to the end of a page."""
    return -(-nbytes // mmap.PAGESIZE) * mmap.PAGESIZE


def copy_of(memory: memoryview) -> Any:
    """For a large one, the kernel provides the pages at once: else each would be a fault, for as long again."""
    if memory.nbytes < _LARGE_BYTES:
        return bytes(memory)
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE
    copy = mmap.mmap(-1, memory.nbytes, flags=flags)
    copy[:] = memory
    return copy

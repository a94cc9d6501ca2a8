"""Buffers for reassembled large messages, used again when the pool holds the only reference to them. (driver)

New memory costs more than the copy into it: the first touch of fresh pages runs at about 2 GB/s. Programs
that exchange large arrays exchange the same sizes again and again, so a few buffers of exact sizes are kept.
A buffer is free when the pool's reference is the only one left, which in CPython means that no view of it
exists either. Not thread-safe.

`keep_freed_memory` spares the same costs for all other blocks of the process: malloc keeps them.
"""

from __future__ import annotations

import ctypes
import sys
from collections import OrderedDict

_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_ONLY_OURS = 2
"""`sys.getrefcount` of an object that only a list refers to (the function's argument is the second reference)."""


class BufferPool:
    """Keeps up to `limit_bytes` of buffers; the sizes that were not asked for longest are dropped first."""

    def __init__(self, limit_bytes: int = 256 << 20, smallest_bytes: int = 1 << 20) -> None:
        """Buffers smaller than `smallest_bytes` are not kept: malloc does that well enough."""
        self._limit_bytes = limit_bytes
        self._smallest_bytes = smallest_bytes
        self.kept_bytes = 0
        self._kept: OrderedDict[int, list[bytearray]] = OrderedDict()

    def allocate(self, nbytes: int) -> bytearray:
        """Return a buffer of exactly `nbytes`; its content is arbitrary."""
        if not self._smallest_bytes <= nbytes <= self._limit_bytes:
            return bytearray(nbytes)
        same_size = self._kept.get(nbytes)
        if same_size is not None:
            self._kept.move_to_end(nbytes)
            for index in range(len(same_size)):
                if sys.getrefcount(same_size[index]) == _ONLY_OURS and len(same_size[index]) == nbytes:
                    return same_size[index]
        buffer = bytearray(nbytes)
        self._keep(buffer)
        return buffer

    def _keep(self, buffer: bytearray) -> None:
        self._kept.setdefault(len(buffer), []).append(buffer)
        self.kept_bytes += len(buffer)
        while self.kept_bytes > self._limit_bytes:
            size = next(iter(self._kept))
            self._kept[size].pop(0)
            self.kept_bytes -= size
            if not self._kept[size]:
                del self._kept[size]


def keep_freed_memory(mmap_threshold_bytes: int = 32 << 20, trim_threshold_bytes: int = 256 << 20) -> bool:
    """Tell malloc to keep freed blocks below the first threshold instead of returning them to the system.

    Large messages cost page faults, not copies: first touch of new memory runs at about 2 GB/s, a copy at 10.
    For the whole process; False where there is no such malloc. 32 MiB is the largest threshold glibc takes.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return False
    return bool(
        mallopt(_M_MMAP_THRESHOLD, mmap_threshold_bytes) and mallopt(_M_TRIM_THRESHOLD, trim_threshold_bytes)
    )

"""Addresses of memory, and access to the class `MPI.buffer`, which is in mpi_buffer.py.

Before Python 3.12 only types written in C can export a buffer. Therefore `MPI.buffer` is derived from numpy's array. It is
imported at its first use, so a program that does not use `MPI.buffer` does not need numpy.

An address is valid in this process only: not in another rank, and not after a restart.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any

from ckpt.mpi.base.constants import BottomType, Marker


class Absolute:
    """The memory of the process, indexed by slices of absolute addresses. It is the memory of a buffer at BOTTOM."""

    def __getitem__(self, where: slice) -> bytes:
        return ctypes.string_at(where.start, where.stop - where.start)

    def __setitem__(self, where: slice, data: Any) -> None:
        ctypes.memmove(where.start, bytes(data), where.stop - where.start)


BottomType.window = Absolute


def address_of(obj: Any) -> int:
    """The address of the first byte of a buffer; 0 for None and for an empty buffer; its number for a marker (BOTTOM)."""
    if obj is None:
        return 0
    if isinstance(obj, Marker):
        return int(obj)
    view = memoryview(obj)
    if view.nbytes == 0:
        return 0
    if not view.readonly:
        return ctypes.addressof(ctypes.c_char.from_buffer(view.cast("B") if view.contiguous else view))
    import numpy

    return int(numpy.frombuffer(view, "B").__array_interface__["data"][0])


finders: list[Callable[[int, int], Any]] = []
"""Each finds an object that the program knows by its address, too: (address, size in bytes) → its memory there; or None."""


def memory_at(address: int, nbytes: int) -> Any:
    """The memory of a known object at an address; None: nobody knows."""
    for find in finders:
        if (found := find(address, nbytes)) is not None:
            return found
    return None


@cache
def buffer_type() -> Any:
    """The class `MPI.buffer`. ImportError without numpy."""
    from ckpt.mpi.datatypes.mpi_buffer import buffer

    return buffer

"""Addresses of memory, and access to the class `MPI.buffer`, which is in mpi_buffer.py.

Before Python 3.12 only types written in C can export a buffer. Therefore `MPI.buffer` is derived from numpy's array. It is
imported at its first use, so a program that does not use `MPI.buffer` does not need numpy.

An address is valid in this process only: not in another rank, and not after a restart. Where a program is to send it, a
number may stand for it (`TOLD_ADDRESSES`; ckpt/mpi/datatypes/address_numbers.py).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from pickle import PickleBuffer
from typing import Any

from ckpt.mpi.base.constants import BottomType, Marker
from ckpt.mpi.base.errors import ERR_BUFFER, MpiException

TOLD_ADDRESSES = range(1 << 44, 1 << 45)
"""No addresses, but numbers that stand for them."""


class Absolute:
    """The memory of the process, indexed by slices of absolute addresses. It is the memory of a buffer at BOTTOM."""

    def __getitem__(self, where: slice) -> bytes:
        nbytes = where.stop - where.start
        return ctypes.string_at(_present(where.start, nbytes), nbytes)

    def __setitem__(self, where: slice, data: Any) -> None:
        nbytes = where.stop - where.start
        ctypes.memmove(_present(where.start, nbytes), bytes(data), nbytes)


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
    if view.contiguous:
        view = PickleBuffer(view).raw()
    if not view.readonly:
        return ctypes.addressof(ctypes.c_char.from_buffer(view))
    import numpy

    return int(numpy.frombuffer(view, "B").__array_interface__["data"][0])


tellers: list[Callable[[Any], int | None]] = []
"""Each tells the number that stands for the address of a buffer; None: the address itself does."""


def told_address(location: Any) -> int:
    """The address of a buffer, as the program may tell it to others: a number may stand for it."""
    for tell in tellers:
        if (number := tell(location)) is not None:
            return number
    return address_of(location)


finders: list[Callable[[int, int], Any]] = []
"""Each finds an object that the program knows by its address, too: (address, size in bytes) → its memory there; or None."""


def memory_at(address: int, nbytes: int) -> Any:
    """The memory of a known object at an address; None: nobody knows."""
    for find in finders:
        if (found := find(address, nbytes)) is not None:
            return found
    return None


def _present(address: int, nbytes: int) -> int:
    """The address itself, or that for which this number stands. MpiException (ERR_BUFFER): for none any more."""
    if address not in TOLD_ADDRESSES:
        return address
    known = memory_at(address, nbytes)
    if known is None:
        raise MpiException(ERR_BUFFER, f"no memory of this program is at {address:#x}")
    return address_of(known)


@cache
def buffer_type() -> Any:
    """The class `MPI.buffer`. ImportError without numpy."""
    from ckpt.mpi.datatypes.mpi_buffer import buffer

    return buffer

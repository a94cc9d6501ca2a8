"""Addresses of memory, and access to the class `MPI.buffer`, which is in mpi_buffer.py.

Before Python 3.12 only types written in C can export a buffer. Therefore `MPI.buffer` is derived from numpy's array. It is
imported at its first use, so a program that does not use `MPI.buffer` does not need numpy.

An address is valid in this process only: not in another rank, and not after a restart. What a program was told of addresses
is remembered (addresses.py).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from pickle import PickleBuffer
from typing import Any

from ckpt.mpi.base.constants import BottomType, Marker
from ckpt.mpi.base.errors import ERR_BUFFER, MpiException

TOLD_NUMBERS = range(1 << 44, 1 << 45)
"""No addresses, but numbers that programs are told instead of some."""


class Absolute:
    """The memory of the process, indexed by slices of addresses that the program was told: that of a buffer at BOTTOM."""

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


finders: list[Callable[[int, int], Any]] = []
"""Each finds an object that the program knows by its address, too: (address, size in bytes) → its memory there; or None."""


def memory_at(address: int, nbytes: int) -> Any:
    """The memory of a known object at an address; None: nobody knows."""
    for find in finders:
        if (found := find(address, nbytes)) is not None:
            return found
    return None


remembered: list[Callable[[int, int], set[int]]] = []
"""Each gives the present addresses of so many bytes of which the program was told that they are at this address."""


def _present(address: int, nbytes: int) -> int:
    """Where the memory is now that the program was told to be at this address.

    MpiException (ERR_BUFFER): it is gone, or may be one of two."""
    found = {each for find in remembered for each in find(address, nbytes)}
    if len(found) > 1:
        raise MpiException(
            ERR_BUFFER, f"since a restart, {address:#x} is the address of two buffers: make the datatype anew"
        )
    if not found and address in TOLD_NUMBERS:
        raise MpiException(ERR_BUFFER, f"no memory of this program is at {address:#x} any more")
    return found.pop() if found else address


@cache
def buffer_type() -> Any:
    """The class `MPI.buffer`. ImportError without numpy."""
    from ckpt.mpi.datatypes.mpi_buffer import buffer

    return buffer

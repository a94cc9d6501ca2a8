"""`MPI.buffer`: a flat piece of memory as an object; and addresses.

Before Python 3.12 only types written in C can offer memory to others, so the type is derived from numpy's
array, and made when first asked for: programs without numpy and without `MPI.buffer` never notice.

Alloc_mem gives ordinary memory that is part of the process image. An `address` means something in this
process only.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

from ckpt.mpi.base.constants import BottomType, Marker


class Absolute:
    """All memory, by address: what BOTTOM stands for. Means nothing after a restart."""

    def __getitem__(self, where: slice) -> bytes:
        return ctypes.string_at(where.start, where.stop - where.start)

    def __setitem__(self, where: slice, data: Any) -> None:
        ctypes.memmove(where.start, bytes(data), where.stop - where.start)


BottomType.window = Absolute


def address_of(obj: Any) -> int:
    """Address of the first byte of a buffer; 0 for none."""
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


@cache
def buffer_type() -> Any:
    """The class `MPI.buffer`. ImportError without numpy."""
    from ckpt.mpi.datatypes.window import buffer

    return buffer

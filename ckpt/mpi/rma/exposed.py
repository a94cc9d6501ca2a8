"""The memory that a window exposes at one rank, and where in it an operation works.

    Fixed       one piece (Create, Allocate); offsets are bytes from its beginning
    Dynamic     pieces that the program attaches; offsets are addresses at this rank

An address is that of this process, so a restart changes it, while the origins' programs still hold the former one.
Therefore a piece of a Dynamic is found by the addresses it has now and by what the program was told
(ckpt/mpi/datatypes/addresses.py). An address that is right for two pieces, by a former address of one and the present one of
another, is refused: a guess could change the wrong bytes.

Not here: what the operations do (target.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ckpt.mpi.base.errors import ERR_BASE, ERR_RMA_ATTACH, ERR_RMA_RANGE, MpiException
from ckpt.mpi.datatypes.buffers import BufferSpec
from ckpt.mpi.datatypes.datatype_info import DatatypeInfo
from ckpt.mpi.datatypes.datatypes import BYTE, Datatype
from ckpt.mpi.datatypes.layout import Layout
from ckpt.mpi.datatypes.memory import address_of


def bounds(layout: Layout | None, count: int, offset: int) -> tuple[int, int]:
    """(first byte, byte behind the last) of `count` elements at byte `offset`. layout None: the elements are bytes."""
    if layout is None:
        return offset, offset + count
    if count == 0 or layout.size == 0:
        return offset, offset
    last = offset + (count - 1) * layout.extent
    return min(offset, last) + layout.true_lb, max(offset, last) + layout.true_ub


def size_of(memory: Any) -> int:
    """The size in bytes of memory that a program exposes. BufferError: it is read-only or not contiguous."""
    view = memoryview(memory)
    if view.readonly:
        raise BufferError("window: the buffer is read-only")
    if not view.contiguous:
        raise BufferError("window: the buffer is not contiguous")
    return view.nbytes


class Fixed:
    """One piece of memory; None has no bytes."""

    __slots__ = ("memory", "nbytes")

    def __init__(self, memory: Any, nbytes: int) -> None:
        self.memory = memory
        self.nbytes = nbytes

    @property
    def address(self) -> int:
        return address_of(self.memory)

    def spec(self, layout: Layout | None, count: int, offset: int) -> BufferSpec:
        """The elements at an offset. MpiException (ERR_RMA_RANGE): they are not inside."""
        low, high = bounds(layout, count, offset)
        if low < 0 or high > self.nbytes:
            raise out_of_range(low, high, self.nbytes)
        return _spec(self.memory, layout, count, offset)

    def whole(self) -> list[BufferSpec]:
        """All of the memory."""
        return [_spec(self.memory, None, self.nbytes, 0)] if self.nbytes else []


def _itself(address: int, nbytes: int) -> set[int]:
    return {address}


class Dynamic:
    """Pieces of memory. `pieces`: (object, size in bytes)."""

    __slots__ = ("pieces",)

    def __init__(self) -> None:
        self.pieces: list[tuple[Any, int]] = []

    def attach(self, memory: Any) -> None:
        """Add a piece. MpiException (ERR_RMA_ATTACH): some of it is attached already."""
        nbytes, address = size_of(memory), address_of(memory)
        for other, size in self.pieces:
            at = address_of(other)
            if nbytes and size and at < address + nbytes and address < at + size:
                raise MpiException(ERR_RMA_ATTACH, f"the memory at {address:#x} is attached already")
        self.pieces.append((memory, nbytes))

    def detach(self, memory: Any) -> None:
        """Remove a piece. MpiException (ERR_BASE): it is not attached."""
        address = address_of(memory)
        for place, piece in enumerate(self.pieces):
            if piece[0] is memory or (piece[1] and address_of(piece[0]) == address):
                del self.pieces[place]
                return
        raise MpiException(ERR_BASE, f"the memory at {address:#x} is not attached")

    def spec(
        self,
        layout: Layout | None,
        count: int,
        offset: int,
        present: Callable[[int, int], set[int]] = _itself,
    ) -> BufferSpec:
        """The elements at an address. present: gives the present addresses that it may mean, for so many bytes.

        MpiException (ERR_RMA_RANGE): they are not inside one piece, or may be in two."""
        low, high = bounds(layout, count, offset)
        if low == high:
            return _spec(b"", layout, 0, 0)
        here, found = present(low, high - low), []
        for memory, nbytes in self.pieces:
            base = address_of(memory)
            found += [
                (memory, at - base + offset - low)
                for at in here
                if base <= at <= base + nbytes - (high - low)
            ]
        if not found:
            raise MpiException(ERR_RMA_RANGE, f"no attached memory has the bytes {low:#x} to {high:#x}")
        if len(found) > 1:
            raise MpiException(
                ERR_RMA_RANGE,
                f"since a restart, the address {low:#x} is right for two attached pieces: attach them anew, and tell the "
                "other ranks the new addresses",
            )
        return _spec(found[0][0], layout, count, found[0][1])

    def whole(self) -> list[BufferSpec]:
        """All of the memory."""
        return [_spec(memory, None, nbytes, 0) for memory, nbytes in self.pieces if nbytes]


Exposed = Fixed | Dynamic


def out_of_range(low: int, high: int, nbytes: int) -> MpiException:
    """The error of an operation that touches bytes outside of a window."""
    return MpiException(ERR_RMA_RANGE, f"bytes {low} to {high} of a window of {nbytes} bytes")


def _spec(memory: Any, layout: Layout | None, count: int, offset: int) -> BufferSpec:
    datatype = BYTE if layout is None else Datatype._of(DatatypeInfo(layout))
    return BufferSpec(memory, count, datatype, offset)

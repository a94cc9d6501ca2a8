"""The class `MPI.buffer`: memory as a flat array of bytes. memory.py imports this module on demand, since it needs numpy.

Not here: the buffers that a program gives to a call (buffers.py), windows for one-sided communication (ckpt/mpi/rma/).
"""

from __future__ import annotations

import ctypes
import operator
from collections.abc import Sequence
from pickle import PicklingError
from typing import Any, SupportsIndex

import numpy

from ckpt.mpi.base.integers import COUNT, argument
from ckpt.mpi.datatypes.memory import TOLD_NUMBERS, memory_at

_BYTE = numpy.dtype("B")


class buffer(numpy.ndarray[Any, Any]):
    """The bytes of `obj`, as an array of unsigned bytes that shares the memory of `obj`. Without argument it is empty.

    Indices count bytes. A slice must have no step (IndexError)."""

    _obj: Any = None
    _released = False
    _is_at_address = False

    def __new__(cls, *args: Any) -> buffer:
        if not args:
            return _window(numpy.zeros(0, _BYTE), None)
        if len(args) > 1:
            raise TypeError(f"buffer expected at most 1 argument, got {len(args)}")
        return cls.frombuffer(args[0])

    def __array_finalize__(self, obj: Any) -> None:
        self._obj = None

    @staticmethod
    def allocate(nbytes: int, clear: bool = False) -> buffer:
        """A buffer with `nbytes` bytes of new memory. clear: the bytes are zero. ValueError: the size is negative."""
        size = argument(nbytes, COUNT)
        if size < 0:
            raise ValueError("negative size")
        memory = numpy.zeros(size, _BYTE) if clear else numpy.empty(size, _BYTE)
        return _window(memory, memory)

    @staticmethod
    def frombuffer(obj: Any, readonly: bool = False) -> buffer:
        """A buffer that shares the memory of `obj`. BufferError: the memory is not contiguous."""
        view = memoryview(obj)
        if not view.contiguous:
            raise BufferError("the buffer is not contiguous")
        if view.nbytes:
            source = view.cast("B") if view.format == "B" and view.ndim == 1 else obj
            memory = numpy.frombuffer(source, _BYTE)
        else:
            memory = numpy.zeros(0, _BYTE)
        made = _window(memory, obj)
        if readonly or view.readonly:
            made.flags.writeable = False
        return made

    @staticmethod
    def fromaddress(address: int, nbytes: int, readonly: bool = False) -> buffer:
        """A buffer of `nbytes` bytes at an address. The memory there must stay valid as long as the buffer is used.

        Memory of a window is known, and is there after a restart, too. Other memory at a mere address is not, so there is no
        image while the program has such a buffer."""
        nbytes = argument(nbytes, COUNT)
        if nbytes < 0:
            raise ValueError("negative size")
        if nbytes and not address:
            raise ValueError("null address with nonzero size")
        if not nbytes:
            return _window(numpy.zeros(0, _BYTE), None)
        if (known := memory_at(address, nbytes)) is not None:
            return buffer.frombuffer(known, readonly)
        if address in TOLD_NUMBERS:
            raise ValueError(f"no memory of this program is at {address:#x} any more")
        memory: Any = (ctypes.c_ubyte * nbytes).from_address(address)
        made = _window(numpy.frombuffer(memory, _BYTE), None)
        made._is_at_address = True
        if readonly:
            made.flags.writeable = False
        return made

    def __reduce__(self) -> Any:
        if self._released or (self._obj is None and not len(self)):
            return type(self), ()
        if type(self._obj) is numpy.ndarray:
            return _from_memory, (self._obj, self.readonly)
        if self._is_at_address:
            raise PicklingError(
                f"the memory of a buffer that was made of an address (MPI.buffer.fromaddress, {len(self)} bytes) belongs to "
                "an object that is not known; make it of the object itself (MPI.buffer.frombuffer)"
            )
        if self._obj is None:
            return _from_memory, (numpy.array(self, copy=True).view(numpy.ndarray), self.readonly)
        return type(self).frombuffer, (self._obj, self.readonly)

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        return self.__reduce__()

    __eq__ = object.__eq__
    __ne__ = object.__ne__
    __hash__ = object.__hash__  # type: ignore[assignment]

    def __bool__(self) -> bool:
        return len(self) > 0

    def __len__(self) -> int:
        return 0 if self._released else super().__len__()

    def __getitem__(self, item: Any) -> Any:
        if isinstance(item, slice):
            first, last, step = item.indices(len(self))
            if step != 1:
                raise IndexError("slice with step not supported")
            part = _window(self.view(numpy.ndarray)[first:last], self)
            part.flags.writeable = not self.readonly
            return part
        return int(super().__getitem__(_index(item, len(self))))

    def __setitem__(self, item: Any, value: Any) -> None:
        if self.readonly:
            raise TypeError("memory buffer is read-only")
        if isinstance(item, slice):
            first, last, step = item.indices(len(self))
            if step != 1:
                raise IndexError("slice with step not supported")
            target = self.view(numpy.ndarray)[first:last]
            if isinstance(value, int):
                target[:] = value
                return
            source = memoryview(value)
            if source.nbytes != len(target):
                raise ValueError(f"slice length {len(target)} does not match {source.nbytes} bytes")
            if source.nbytes:
                target[:] = numpy.frombuffer(source, _BYTE)
            return
        self.view(numpy.ndarray)[_index(item, len(self))] = value

    def __delitem__(self, item: Any) -> None:
        raise NotImplementedError("memory cannot be deleted")

    @property
    def address(self) -> int:
        return 0 if self._released or (self._obj is None and not len(self)) else int(self.ctypes.data)

    @property
    def obj(self) -> Any:
        """The object whose memory the buffer shares; None if there is none."""
        return None if self._released else self._obj

    @property
    def nbytes(self) -> int:
        return len(self)

    @property
    def readonly(self) -> bool:
        return not self._released and not self.flags.writeable

    @property
    def format(self) -> str:
        return "B"

    def cast(self, format: str, shape: Sequence[int] | None = None) -> memoryview:
        """A memoryview of the buffer with another item format and shape."""
        whole: Any = self
        view = memoryview(whole)
        return view.cast(format) if shape is None else view.cast(format, list(shape))  # type: ignore[call-overload,no-any-return]

    def tobytes(self, order: Any = None) -> bytes:
        whole: Any = self
        return b"" if self._released else bytes(memoryview(whole))

    def toreadonly(self) -> buffer:
        made = _window(self.view(numpy.ndarray), self.obj)
        made.flags.writeable = False
        return made

    def release(self) -> None:
        """Release the memory. The buffer is empty afterwards."""
        self._released = True
        self._obj = None


def _index(item: Any, length: int) -> int:
    at = operator.index(item)
    if at < 0:
        at += length
    if not 0 <= at < length:
        raise IndexError("index out of range")
    return at


def _window(memory: Any, obj: Any) -> buffer:
    made = memory.view(buffer)
    made._obj = obj
    return made  # type: ignore[no-any-return]


def _from_memory(memory: Any, readonly: bool) -> buffer:
    made = _window(memory, memory)
    if readonly:
        made.flags.writeable = False
    return made

"""Buffer arguments of a program: an array, bytes, or a list such as [array, count, type], in all forms of mpi4py.

    argument ──▶ Message            object, datatype, and counts and displacements as given
             ──▶ BufferSpec         `count` elements of a datatype at a byte offset of an object, checked to lie inside
             ──▶ list of them       one for each rank: `blocks`, `vector` (counts and displacements), `typed_vector`

A `BufferSpec` refers to the exporting object, never to a memoryview of it, because an image cannot hold a memoryview. It
makes a memoryview when it reads or writes.
"""

from __future__ import annotations

from pickle import PickleBuffer
from typing import Any

from ckpt.mpi.base.constants import BOTTOM, BottomType, InPlaceType
from ckpt.mpi.base.errors import MpiException
from ckpt.mpi.base.integers import COUNT, element, elements, is_one
from ckpt.mpi.base.progress import Buffer
from ckpt.mpi.datatypes.datatypes import BYTE, Datatype, from_code
from ckpt.mpi.datatypes.layout import LONG_DOUBLES


def raw(obj: Any) -> memoryview:
    """The memory of a C- or Fortran-contiguous exporter, as a one-dimensional view of unsigned bytes.

    BufferError: the exporter is not contiguous."""
    return PickleBuffer(obj).raw()


def _memory(obj: Any) -> Any:
    return BOTTOM.window() if obj is BOTTOM else raw(obj)


class BufferSpec:
    """A checked buffer argument: `count` elements of `datatype` in the memory of `obj`, from byte `offset` on.

    `nbytes`: size of the data. `dense`: the elements are one slice of the memory, without gaps."""

    __slots__ = ("count", "datatype", "dense", "nbytes", "obj", "offset")

    def __init__(self, obj: Any, count: int, datatype: Datatype, offset: int = 0) -> None:
        self.obj = obj
        self.count = count
        self.datatype = datatype
        self.offset = offset
        layout = (datatype._info or datatype._valid()).layout
        self.nbytes = count * layout.size
        self.dense = layout.contiguous

    def part(self, first: int, count: int) -> BufferSpec:
        """The spec of `count` elements from element `first` on."""
        return BufferSpec(self.obj, count, self.datatype, self.offset + first * self.datatype.extent)

    def view(self) -> memoryview:
        """A view of the memory. Only for a `dense` spec."""
        if self.nbytes == 0:
            return memoryview(b"")
        if self.obj is BOTTOM:
            return memoryview(BOTTOM.window()[self.offset : self.offset + self.nbytes])
        whole = raw(self.obj)
        return whole if len(whole) == self.nbytes else whole[self.offset : self.offset + self.nbytes]

    def read(self) -> Buffer:
        """The bytes in the order of transfer: a view of the memory for a `dense` spec, else a copy; what belongs to no value
        is 0 (gaps.py)."""
        info = self.datatype._info
        if info is not None and info.layout.code in LONG_DOUBLES:
            from ckpt.mpi.datatypes.gaps import filled

            return filled(self._in_order(), info.layout.code)
        return self._in_order()

    def _in_order(self) -> Buffer:
        if self.dense:
            return self.view()
        if self.nbytes == 0:
            return b""
        memory = _memory(self.obj)
        out = bytearray(self.nbytes)
        at = 0
        for place in range(self.count):
            base = self.offset + place * self.datatype.extent
            for offset, nbytes in self.datatype.runs:
                out[at : at + nbytes] = memory[base + offset : base + offset + nbytes]
                at += nbytes
        return out

    def write(self, data: Buffer, at: int = 0) -> None:
        """Write the bytes of `data`, from index `at` on, into the buffer. The caller checks that they fit."""
        nbytes = len(data) - at
        if nbytes <= 0:
            return
        memory = _memory(self.obj)
        if self.dense:
            memory[self.offset : self.offset + nbytes] = memoryview(data)[at:] if at else data
            return
        for place in range(self.count):
            base = self.offset + place * self.datatype.extent
            for offset, length in self.datatype.runs:
                length = min(length, nbytes)
                memory[base + offset : base + offset + length] = data[at : at + length]
                at += length
                nbytes -= length
                if nbytes == 0:
                    return


NUMBERS = {code: from_code(code) for code in "bBhHiIlLqQfd?"}
"""Datatypes of plain numbers, by buffer format. `simple` needs no further checks for a whole array of these."""

_BYTES = (bytes, bytearray, memoryview)

EMPTY = BufferSpec(b"", 0, BYTE)
"""The buffer of a message to or from PROC_NULL."""


def is_in_place(arg: Any) -> bool:
    """Whether a buffer argument is IN_PLACE, or None, which means the same in mpi4py."""
    return arg is None or isinstance(arg, InPlaceType)


def _exported(obj: Any) -> tuple[int, str, bool]:
    """(size in bytes, format, whether read-only) of an exporter. TypeError: it exports no buffer. BufferError: the buffer
    is not contiguous."""
    view = memoryview(obj)
    if not view.contiguous:
        raise BufferError("message: the buffer is not contiguous")
    return view.nbytes, view.format, view.readonly


def _as_datatype(arg: Any) -> Datatype:
    if isinstance(arg, Datatype):
        return arg
    try:
        return from_code(arg)
    except (MpiException, TypeError):
        raise KeyError(f"cannot map {arg!r} to an MPI datatype") from None


def _of_format(obj: Any, code: str) -> Datatype:
    """The datatype of a buffer's items, from the format `code`. BufferError: the byte order is not the native one."""
    if code[:1] in (">", "!") and len(code) > 1 and code[1:] not in ("b", "B", "c", "s", "?"):
        raise BufferError(f"message: format {code!r} has not the native byte order")
    found = _as_datatype(code)
    return BYTE if code == "B" and isinstance(obj, _BYTES) else found


class Message:
    """A buffer argument: the object, its size in bytes, the datatype, and counts and displacements as the program gave
    them (None if it gave none)."""

    __slots__ = ("count", "datatype", "displacement", "nbytes", "obj")

    def __init__(self, arg: Any, *, writable: bool, pair: tuple[type, ...] = (tuple,)) -> None:
        """pair: types that the pair (counts, displacements) may have. writable: a read-only buffer raises BufferError."""
        obj, self.count, self.displacement, type_arg = _split(arg, pair)
        if obj is None or isinstance(obj, BottomType):
            self.obj: Any = BOTTOM
            self.nbytes = 0
            if type_arg is None:
                raise KeyError("message: without a buffer a datatype is needed")
            self.datatype = _as_datatype(type_arg)
            return
        self.nbytes, code, readonly = _exported(obj)
        if writable and readonly:
            raise BufferError("message: the buffer is read-only")
        self.obj = obj
        self.datatype = _of_format(obj, code) if type_arg is None else _as_datatype(type_arg)

    def infer(self, nbytes: int) -> int:
        """The number of elements in `nbytes` bytes. ValueError: it is not a whole number."""
        if nbytes == 0:
            return 0
        if not self.datatype:
            raise ValueError("message: cannot infer count, the datatype is null")
        extent = self.datatype.extent
        if extent <= 0 or nbytes % extent:
            raise ValueError(f"message: cannot infer count, {nbytes} bytes, datatype extent {extent}")
        return nbytes // extent

    def spec(self, count: int, offset: int) -> BufferSpec:
        """The spec of `count` elements at byte `offset`. ValueError: they are not all inside the buffer."""
        if count and self.obj is not BOTTOM:
            last = offset + (count - 1) * self.datatype.extent
            low = min(offset, last) + self.datatype.true_lb
            if low < 0 or max(offset, last) + self.datatype.true_ub > self.nbytes:
                name = self.datatype.name or "the datatype"
                raise ValueError(f"message: {count} elements of {name} exceed {self.nbytes} bytes")
        return BufferSpec(self.obj, count, self.datatype, offset)


def _is_buffer(arg: Any) -> bool:
    try:
        memoryview(arg)
    except TypeError:
        return False
    return True


def _two(pair: Any) -> tuple[Any, Any]:
    counts, displacements = pair
    return counts, displacements


def _split(arg: Any, pair: tuple[type, ...]) -> tuple[Any, Any, Any, Any]:
    """(object, count or counts, displacement or displacements, type) of an argument; None for a part not given."""
    second: Any
    if not isinstance(arg, (list, tuple)):
        if not _is_buffer(arg):
            raise TypeError("message: expecting buffer or list/tuple")
        return arg, None, None, None
    size = len(arg)
    if size == 2:
        obj, second = arg
        if isinstance(second, (Datatype, str)):
            return obj, None, None, second
        if isinstance(second, pair):
            return obj, *_two(second), None
        return obj, second, None, None
    if size == 3:
        obj, second, type_arg = arg
        if isinstance(second, pair):
            return obj, *_two(second), type_arg
        return obj, second, None, type_arg
    if size == 4:
        return arg[0], arg[1], arg[2], arg[3]
    raise ValueError("message: expecting 2 to 4 items")


def simple(arg: Any, *, writable: bool) -> BufferSpec:
    """The buffer of a point-to-point message. Raises TypeError, ValueError, KeyError or BufferError."""
    obj = exporter(arg)
    if obj is not None:
        datatype = None if obj is arg else arg[-1]
        try:
            view = memoryview(obj)
        except (TypeError, ValueError, BufferError):
            return parted(arg, 1, writable=writable)  # raises with the message that fits the defect
        size = view.itemsize if datatype is None else datatype.size
        if datatype is None:
            datatype = NUMBERS.get(view.format)
            if view.format == "B" and isinstance(obj, _BYTES):
                datatype = BYTE
        if datatype is not None and view.contiguous and not (writable and view.readonly):
            return BufferSpec(obj, view.nbytes // size, datatype)
    return parted(arg, 1, writable=writable)


def exporter(arg: Any) -> Any:
    """The object whose bytes are all of the message, in their order: the argument itself, or that of `[object, datatype]` or
    `[object, count, datatype]` where the datatype has no gaps. None: only a part of them is, or the argument is wrong."""
    if type(arg) not in (list, tuple):
        return arg
    if len(arg) not in (2, 3) or type(arg[-1]) is not Datatype or (info := arg[-1]._info) is None:
        return None
    try:
        nbytes = memoryview(arg[0]).nbytes
    except (TypeError, ValueError, BufferError):
        return None
    if not info.layout.contiguous or not info.layout.size or nbytes % info.layout.size:
        return None
    is_all = len(arg) == 2 or (type(arg[1]) is int and arg[1] * info.layout.size == nbytes)
    return arg[0] if is_all else None


def parted(arg: Any, parts: int, *, writable: bool) -> BufferSpec:
    """The spec of `parts` equal blocks. A count in the argument is the count of one block.

    Without a count, the spec has all elements of the buffer. ValueError: their number is not a multiple of `parts`."""
    message = Message(arg, writable=writable, pair=(tuple, list))
    offset = 0
    displacement = 0 if message.displacement is None else element(message.displacement, COUNT)
    if displacement < 0:
        raise ValueError(f"message: negative displacement {displacement}")
    if displacement:
        if not message.datatype:
            raise ValueError("message: cannot handle displacement, the datatype is null")
        offset = displacement * message.datatype.extent
        if message.datatype.extent <= 0 or (offset > message.nbytes and message.obj is not BOTTOM):
            raise ValueError(f"message: displacement {displacement} out of bounds")
    if message.count is None:
        count = message.infer(message.nbytes - offset)
        if count % parts:
            raise ValueError(f"message: {count} items cannot be cut into {parts} equal blocks")
    else:
        count = element(message.count, COUNT)
        if count < 0:
            raise ValueError(f"message: negative count {count}")
        if count and isinstance(arg, (list, tuple)) and arg[0] is None:
            raise ValueError(f"message: buffer is None but count is {count}")
        count *= parts
    return message.spec(count, offset)


def blocks(arg: Any, size: int, *, writable: bool) -> list[BufferSpec]:
    """One buffer divided into `size` equal blocks. A count in the argument is the count of one block."""
    whole = parted(arg, size, writable=writable)
    each = whole.count // size
    return [whole.part(rank * each, each) for rank in range(size)]


def _numbers(value: Any, size: int) -> list[int]:
    return elements(value, size, COUNT)


def _integral(value: Any) -> int | None:
    """The value as an integer if it is a single number, else None."""
    return element(value, COUNT) if is_one(value) else None


def vector(arg: Any, size: int, *, writable: bool) -> list[BufferSpec]:
    """One buffer with a count and a displacement (in elements) for each of `size` ranks (Gatherv, Scatterv …).

    Without counts, the elements are distributed as equally as possible; without displacements, the blocks follow each
    other. ValueError: a count is negative, or a block is not inside the buffer."""
    message = Message(arg, writable=writable)
    if message.count is None:
        each, rest = divmod(message.infer(message.nbytes), size)
        counts = [each + (1 if rank < rest else 0) for rank in range(size)]
    else:
        same = _integral(message.count)
        counts = _numbers(message.count, size) if same is None else [same] * size
    if message.displacement is None:
        places, at = [], 0
        for count in counts:
            places.append(at)
            at += count
    else:
        step = _integral(message.displacement)
        if step is None:
            places = _numbers(message.displacement, size)
        else:
            places = [step * rank for rank in range(size)]
    extent = message.datatype.extent if message.datatype else 0
    out = []
    for count, place in zip(counts, places, strict=True):
        if count < 0:
            raise ValueError(f"message: negative count {count}")
        out.append(message.spec(count, place * extent))
    return out


def typed_vector(arg: Any, size: int, *, writable: bool) -> list[BufferSpec]:
    """One buffer with a count, a displacement in bytes and a datatype for each of `size` ranks (Alltoallw)."""
    if not isinstance(arg, (list, tuple)):
        raise TypeError("message: expecting a list or tuple")
    counts: Any
    places: Any
    if len(arg) == 2:
        obj, type_args = arg
        counts = places = None
    elif len(arg) == 3:
        obj, pair, type_args = arg
        counts, places = pair
    elif len(arg) == 4:
        obj, counts, places, type_args = arg
    else:
        raise ValueError("message: expecting 2 to 4 items")
    bottom = obj is None or isinstance(obj, BottomType)
    if bottom and (counts is None or places is None) and len(arg) == 4:
        raise ValueError("message: without a buffer counts and displacements are needed")
    types = [_as_datatype(type_arg) for type_arg in type_args]
    if len(types) != size:
        raise ValueError(f"message: expecting {size} datatypes, got {len(types)}")
    numbers = [1] * size if counts is None else _numbers(counts, size)
    offsets = [0] * size if places is None else _numbers(places, size)
    out = []
    for count, offset, datatype in zip(numbers, offsets, types, strict=True):
        out.append(Message([obj, datatype], writable=writable).spec(count, offset))
    return out


def as_bytes(arg: Any, *, writable: bool) -> tuple[Any, int, int]:
    """(object, offset in bytes, size in bytes) of a buffer argument of any datatype."""
    if isinstance(arg, (list, tuple)):
        spec = simple(arg, writable=writable)
        return spec.obj, spec.offset, spec.count * spec.datatype.extent
    nbytes, _, readonly = _exported(arg)
    if writable and readonly:
        raise BufferError("message: the buffer is read-only")
    return arg, 0, nbytes

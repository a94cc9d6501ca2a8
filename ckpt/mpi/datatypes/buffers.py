"""What a program passes as a buffer: an array, bytes, or [array, count, type] in mpi4py's spellings.

A `BufferSpec` keeps the exporting object, never a memoryview of it (views cannot be part of an image), and
cuts the raw bytes out when it needs them. Vector specs (counts and displacements per rank) are lists of
specs.
"""

from __future__ import annotations

from pickle import PickleBuffer
from typing import Any

from ckpt.mpi.base.constants import BOTTOM, BottomType, InPlaceType
from ckpt.mpi.base.errors import MpiException
from ckpt.mpi.base.integers import COUNT, element, elements, is_one
from ckpt.mpi.base.progress import Buffer
from ckpt.mpi.datatypes.datatypes import BYTE, Datatype, from_code


def raw(obj: Any) -> memoryview:
    """The bytes of a C- or Fortran-contiguous exporter as a one-dimensional view of unsigned bytes."""
    return PickleBuffer(obj).raw()


def _memory(obj: Any) -> Any:
    return BOTTOM.window() if obj is BOTTOM else raw(obj)


class BufferSpec:
    """`count` elements of `datatype` from `offset` bytes into `obj`. `dense`: they are one slice of it."""

    __slots__ = ("count", "datatype", "dense", "nbytes", "obj", "offset")

    def __init__(self, obj: Any, count: int, datatype: Datatype, offset: int = 0) -> None:
        self.obj = obj
        self.count = count
        self.datatype = datatype
        self.offset = offset
        layout = (datatype._kind or datatype._valid()).layout
        self.nbytes = count * layout.size
        self.dense = layout.contiguous

    def part(self, first: int, count: int) -> BufferSpec:
        """`count` elements from element `first` on."""
        return BufferSpec(self.obj, count, self.datatype, self.offset + first * self.datatype.extent)

    def view(self) -> memoryview:
        """The bytes themselves; the type must be contiguous."""
        if self.nbytes == 0:
            return memoryview(b"")
        if self.obj is BOTTOM:
            return memoryview(BOTTOM.window()[self.offset : self.offset + self.nbytes])
        whole = raw(self.obj)
        return whole if len(whole) == self.nbytes else whole[self.offset : self.offset + self.nbytes]

    def read(self) -> Buffer:
        """The bytes in the order of transfer: a view of the memory if contiguous, else a copy."""
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
        """Put the bytes of `data` from `at` on into the buffer; at most as many as there is room for."""
        nbytes = len(data) - at
        if nbytes <= 0:
            return
        if self.dense:
            _memory(self.obj)[self.offset : self.offset + nbytes] = memoryview(data)[at:] if at else data
            return
        memory = _memory(self.obj)
        for place in range(self.count):
            base = self.offset + place * self.datatype.extent
            for offset, length in self.datatype.runs:
                length = min(length, nbytes)
                memory[base + offset : base + offset + length] = data[at : at + length]
                at += length
                nbytes -= length
                if nbytes == 0:
                    return


_NUMBERS = {code: from_code(code) for code in "hHiIlLqQfd"}
"""Types of plain numbers by buffer format: whole arrays of them need no second look."""

EMPTY = BufferSpec(b"", 0, BYTE)
"""What a message to or from PROC_NULL carries."""


def is_in_place(arg: Any) -> bool:
    """None means the same, as in mpi4py."""
    return arg is None or isinstance(arg, InPlaceType)


def _exported(obj: Any) -> tuple[int, str, bool]:
    """(bytes, format, read-only) of a buffer; TypeError if it has none."""
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
    """The type of a buffer's items."""
    if code[:1] in (">", "!") and len(code) > 1 and code[1:] not in ("b", "B", "c", "s", "?"):
        raise BufferError(f"message: format {code!r} has not the native byte order")
    found = _as_datatype(code)
    return BYTE if code == "B" and isinstance(obj, (bytes, bytearray, memoryview)) else found


class Message:
    """A message as a program wrote it: buffer, bytes, type, and counts and displacements as given."""

    __slots__ = ("count", "datatype", "displacement", "nbytes", "obj")

    def __init__(self, arg: Any, *, writable: bool, pair: tuple[type, ...] = (tuple,)) -> None:
        """pair: types of the (counts, displacements) form."""
        obj, self.count, self.displacement, kind = _split(arg, pair)
        if obj is None or isinstance(obj, BottomType):
            self.obj: Any = BOTTOM
            self.nbytes = 0
            if kind is None:
                raise KeyError("message: without a buffer a datatype is needed")
            self.datatype = _as_datatype(kind)
            return
        self.nbytes, code, readonly = _exported(obj)
        if writable and readonly:
            raise BufferError("message: the buffer is read-only")
        self.obj = obj
        self.datatype = _of_format(obj, code) if kind is None else _as_datatype(kind)

    def infer(self, nbytes: int) -> int:
        """How many elements `nbytes` are. ValueError if that is no whole number."""
        if nbytes == 0:
            return 0
        if not self.datatype:
            raise ValueError("message: cannot infer count, the datatype is null")
        extent = self.datatype.extent
        if extent <= 0 or nbytes % extent:
            raise ValueError(f"message: cannot infer count, {nbytes} bytes, datatype extent {extent}")
        return nbytes // extent

    def spec(self, count: int, offset: int) -> BufferSpec:
        """Part of the buffer, checked to lie in it. `offset` in bytes."""
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
    """(object, count(s), displacement(s), type)"""
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
        obj, second, kind = arg
        if isinstance(second, pair):
            return obj, *_two(second), kind
        return obj, second, None, kind
    if size == 4:
        return arg[0], arg[1], arg[2], arg[3]
    raise ValueError("message: expecting 2 to 4 items")


def simple(arg: Any, *, writable: bool) -> BufferSpec:
    """The buffer of a point-to-point message. Raises TypeError, ValueError, KeyError or BufferError."""
    if type(arg) not in (list, tuple):
        try:
            view = memoryview(arg)
        except (TypeError, ValueError, BufferError):
            return _one(arg, 1, writable=writable)  # which says what is wrong
        datatype = _NUMBERS.get(view.format)
        if datatype is not None and view.contiguous and not (writable and view.readonly):
            return BufferSpec(arg, view.nbytes // datatype.size, datatype)
    return _one(arg, 1, writable=writable)


def _one(arg: Any, parts: int, *, writable: bool) -> BufferSpec:
    """`parts` blocks of as many elements as the message says; without a count the buffer's elements, which
    then must be a multiple of `parts`."""
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
    """One buffer cut into `size` equal blocks. A count in the message is the count of one block."""
    whole = _one(arg, size, writable=writable)
    each = whole.count // size
    return [whole.part(rank * each, each) for rank in range(size)]


def _numbers(value: Any, size: int) -> list[int]:
    return elements(value, size, COUNT)


def _integral(value: Any) -> int | None:
    """A single number; None if it is none."""
    return element(value, COUNT) if is_one(value) else None


def vector(arg: Any, size: int, *, writable: bool) -> list[BufferSpec]:
    """One buffer with a count and a displacement (in elements) per rank."""
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
    """One buffer with a count, a displacement in bytes and a type per rank (the w-variants)."""
    if not isinstance(arg, (list, tuple)):
        raise TypeError("message: expecting a list or tuple")
    counts: Any
    places: Any
    if len(arg) == 2:
        obj, kinds = arg
        counts = places = None
    elif len(arg) == 3:
        obj, pair, kinds = arg
        counts, places = pair
    elif len(arg) == 4:
        obj, counts, places, kinds = arg
    else:
        raise ValueError("message: expecting 2 to 4 items")
    bottom = obj is None or isinstance(obj, BottomType)
    if bottom and (counts is None or places is None) and len(arg) == 4:
        raise ValueError("message: without a buffer counts and displacements are needed")
    types = [_as_datatype(kind) for kind in kinds]
    if len(types) != size:
        raise ValueError(f"message: expecting {size} datatypes, got {len(types)}")
    numbers = [1] * size if counts is None else _numbers(counts, size)
    offsets = [0] * size if places is None else _numbers(places, size)
    out = []
    for count, offset, kind in zip(numbers, offsets, types, strict=True):
        out.append(Message([obj, kind], writable=writable).spec(count, offset))
    return out


def as_bytes(arg: Any, *, writable: bool) -> tuple[Any, int, int]:
    """(object, first byte, bytes) of a message, whatever its type."""
    if isinstance(arg, (list, tuple)):
        spec = simple(arg, writable=writable)
        return spec.obj, spec.offset, spec.count * spec.datatype.extent
    nbytes, _, readonly = _exported(arg)
    if writable and readonly:
        raise BufferError("message: the buffer is read-only")
    return arg, 0, nbytes

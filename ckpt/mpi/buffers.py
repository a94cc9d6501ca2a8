"""What a program passes as a buffer: an array, bytes, or [array, count, type] in mpi4py's spellings.

A `BufferSpec` keeps the exporting object, never a memoryview of it (views cannot be part of an image), and
cuts the raw bytes out when it needs them. Vector specs (counts and displacements per rank) are lists of
specs.
"""

from __future__ import annotations

from pickle import PickleBuffer
from typing import TYPE_CHECKING, Any

from ckpt.mpi.constants import BottomType, InPlaceType
from ckpt.mpi.datatypes import BYTE, Datatype, from_code
from ckpt.mpi.errors import ERR_ARG, ERR_BUFFER, ERR_COUNT, ERR_TRUNCATE, MpiException
from ckpt.mpi.progress import Buffer

if TYPE_CHECKING:
    from ckpt.mpi.operations import Operation


def raw(obj: Any) -> memoryview:
    """The bytes of a C- or Fortran-contiguous exporter as a one-dimensional view of unsigned bytes."""
    return PickleBuffer(obj).raw()


class BufferSpec:
    """`count` elements of `datatype` from `offset` bytes into `obj`."""

    __slots__ = ("count", "datatype", "nbytes", "obj", "offset")

    def __init__(self, obj: Any, count: int, datatype: Datatype, offset: int = 0) -> None:
        self.obj = obj
        self.count = count
        self.datatype = datatype
        self.offset = offset
        self.nbytes = count * datatype.size

    def part(self, first: int, count: int) -> BufferSpec:
        """`count` elements from element `first` on."""
        return BufferSpec(self.obj, count, self.datatype, self.offset + first * self.datatype.extent)

    def view(self) -> memoryview:
        """The bytes themselves; the type must be contiguous."""
        if self.nbytes == 0:
            return memoryview(b"")
        return raw(self.obj)[self.offset : self.offset + self.nbytes]

    def read(self) -> Buffer:
        """The bytes in the order of transfer: a view of the memory if contiguous, else a copy."""
        if self.datatype.contiguous:
            return self.view()
        if self.nbytes == 0:
            return b""
        memory = raw(self.obj)
        out = bytearray(self.nbytes)
        at = 0
        for element in range(self.count):
            base = self.offset + element * self.datatype.extent
            for offset, nbytes in self.datatype.runs:
                out[at : at + nbytes] = memory[base + offset : base + offset + nbytes]
                at += nbytes
        return out

    def write(self, data: Buffer, at: int = 0) -> None:
        """Put the bytes of `data` from `at` on into the buffer; at most as many as there is room for."""
        nbytes = len(data) - at
        if nbytes <= 0:
            return
        if self.datatype.contiguous:
            raw(self.obj)[self.offset : self.offset + nbytes] = memoryview(data)[at:] if at else data
            return
        memory = raw(self.obj)
        for element in range(self.count):
            base = self.offset + element * self.datatype.extent
            for offset, length in self.datatype.runs:
                length = min(length, nbytes)
                memory[base + offset : base + offset + length] = data[at : at + length]
                at += length
                nbytes -= length
                if nbytes == 0:
                    return

    def put_checked(self, operation: Operation, data: Buffer, at: int) -> None:
        """Write a received message; what does not fit is cut off: ERR_TRUNCATE on the operation."""
        nbytes = len(data) - at
        if nbytes > self.nbytes:
            operation.error = MpiException(
                ERR_TRUNCATE, f"message of {nbytes} bytes for a buffer of {self.nbytes} bytes"
            )
            self.write(memoryview(data)[: at + self.nbytes], at)
            operation.nbytes = self.nbytes
        else:
            self.write(data, at)


EMPTY = BufferSpec(b"", 0, BYTE)


def is_in_place(arg: Any) -> bool:
    return isinstance(arg, InPlaceType)


def _exported(obj: Any) -> tuple[int, Datatype | None, bool]:
    """(bytes, type or None if the format is unknown, read-only) of a buffer; TypeError if it has none."""
    if obj is None or isinstance(obj, BottomType):
        return 0, BYTE, False
    view = memoryview(obj)
    if not view.contiguous:
        raise ValueError("the buffer is not contiguous")
    try:
        datatype = from_code(view.format)
    except MpiException:
        datatype = None
    if datatype is not None and view.format == "B":
        datatype = BYTE if isinstance(obj, (bytes, bytearray, memoryview)) else datatype
    return view.nbytes, datatype, view.readonly


def _as_datatype(arg: Any) -> Datatype:
    if isinstance(arg, Datatype):
        return arg
    if isinstance(arg, str):
        return from_code(arg)
    raise TypeError(f"message: expecting a datatype, got {type(arg).__name__}")


def _split_spec(spec: list[Any] | tuple[Any, ...]) -> tuple[Any, Any, Any, Any]:
    """(object, count(s), displacement(s), type) of a message given as a sequence."""
    size = len(spec)
    if size == 2:
        obj, second = spec
        if isinstance(second, (Datatype, str)):
            return obj, None, None, second
        if isinstance(second, tuple) and len(second) == 2:
            return obj, second[0], second[1], None
        return obj, second, None, None
    if size == 3:
        obj, second, third = spec
        if isinstance(third, (Datatype, str)):
            if isinstance(second, tuple) and len(second) == 2:
                return obj, second[0], second[1], third
            return obj, second, None, third
        return obj, second, third, None
    if size == 4:
        return spec[0], spec[1], spec[2], spec[3]
    raise ValueError(f"message: expecting 2 to 4 items, got {size}")


def _extent_count(nbytes: int, datatype: Datatype, displacement: int) -> int:
    """How many elements fit when the program gave no count."""
    extent = datatype.extent
    if extent <= 0:
        return 0
    room = nbytes - displacement * extent
    if room < 0:
        raise MpiException(ERR_COUNT, "displacement lies outside of the buffer")
    if room % extent:
        raise MpiException(
            ERR_COUNT, f"{room} bytes are no multiple of the datatype's extent of {extent} bytes"
        )
    return room // extent


def _fits(nbytes: int, count: int, datatype: Datatype, offset: int) -> None:
    if count == 0:
        return
    end = offset + (count - 1) * datatype.extent
    for at, length in datatype.runs:
        if end + at + length > nbytes or offset + at < 0:
            raise MpiException(
                ERR_BUFFER, f"{count} elements of {datatype.name or 'the datatype'} exceed {nbytes} bytes"
            )


def simple(arg: Any, *, writable: bool) -> BufferSpec:
    """The buffer of a point-to-point message. Raises TypeError, ValueError, BufferError or MpiException."""
    if isinstance(arg, (list, tuple)):
        obj, count, displacement, kind = _split_spec(arg)
    else:
        obj, count, displacement, kind = arg, None, None, None
        if obj is None:
            raise TypeError("message: expecting a buffer or a list/tuple, got None")
    nbytes, own, readonly = _exported(obj)
    if kind is None and own is None:
        raise ValueError("message: the buffer's format has no MPI datatype; give one")
    datatype = _as_datatype(kind) if kind is not None else own
    assert datatype is not None
    if writable and readonly and nbytes:
        raise BufferError("message: the buffer is read-only")
    displacement = 0 if displacement is None else int(displacement)
    if count is None:
        count = _extent_count(nbytes, datatype, displacement)
    else:
        count = int(count)
        if count < 0:
            raise MpiException(ERR_COUNT, f"negative count {count}")
    offset = displacement * datatype.extent
    _fits(nbytes, count, datatype, offset)
    return BufferSpec(obj, count, datatype, offset)


def blocks(arg: Any, size: int, *, writable: bool) -> list[BufferSpec]:
    """One buffer cut into `size` equal blocks. A count in the message is the count of one block."""
    if isinstance(arg, (list, tuple)) and _split_spec(arg)[1] is not None:
        obj, count, displacement, kind = _split_spec(arg)
        count = int(count)
        if count < 0:
            raise MpiException(ERR_COUNT, f"negative count {count}")
        whole = simple(
            [obj, count * size, displacement or 0, kind] if kind is not None else [obj, count * size],
            writable=writable,
        )
    else:
        whole = simple(arg, writable=writable)
        if whole.count % size:
            raise ValueError(f"message: {whole.count} items cannot be cut into {size} equal blocks")
    each = whole.count // size
    return [whole.part(rank * each, each) for rank in range(size)]


def vector(arg: Any, size: int, *, writable: bool) -> list[BufferSpec]:
    """One buffer with a count and a displacement (in elements) per rank."""
    if isinstance(arg, (list, tuple)):
        obj, counts, displacements, kind = _split_spec(arg)
    else:
        obj, counts, displacements, kind = arg, None, None, None
        if obj is None:
            raise TypeError("message: expecting a buffer or a list/tuple, got None")
    nbytes, own, readonly = _exported(obj)
    if kind is None and own is None:
        raise ValueError("message: the buffer's format has no MPI datatype; give one")
    datatype = _as_datatype(kind) if kind is not None else own
    assert datatype is not None
    if writable and readonly and nbytes:
        raise BufferError("message: the buffer is read-only")
    if counts is None:
        total = _extent_count(nbytes, datatype, 0)
        each, rest = divmod(total, size)
        counts = [each + (1 if rank < rest else 0) for rank in range(size)]
    elif isinstance(counts, int):
        counts = [counts] * size
    counts = [int(count) for count in counts]
    if displacements is None:
        displacements, at = [], 0
        for count in counts:
            displacements.append(at)
            at += count
    else:
        displacements = [int(displacement) for displacement in displacements]
    if len(counts) != size or len(displacements) != size:
        raise ValueError(f"message: expecting {size} counts and displacements")
    return _cut(obj, nbytes, datatype, counts, displacements)


def _cut(
    obj: Any, nbytes: int, datatype: Datatype, counts: list[int], displacements: list[int]
) -> list[BufferSpec]:
    out = []
    for count, displacement in zip(counts, displacements, strict=True):
        if count < 0:
            raise MpiException(ERR_COUNT, f"negative count {count}")
        offset = displacement * datatype.extent
        _fits(nbytes, count, datatype, offset)
        out.append(BufferSpec(obj, count, datatype, offset))
    return out


def typed_vector(arg: Any, size: int, *, writable: bool) -> list[BufferSpec]:
    """One buffer with a count, a displacement in bytes and a type per rank (the w-variants)."""
    obj, counts, displacements, kinds = _split_spec(arg) if len(arg) != 2 else (arg[0], None, None, arg[1])
    nbytes, _, readonly = _exported(obj)
    if writable and readonly and nbytes:
        raise BufferError("message: the buffer is read-only")
    if kinds is None:
        raise TypeError("message: expecting a datatype per rank")
    kinds = [_as_datatype(kind) for kind in kinds]
    counts = [1] * size if counts is None else [int(count) for count in counts]
    displacements = [0] * size if displacements is None else [int(at) for at in displacements]
    if not len(kinds) == len(counts) == len(displacements) == size:
        raise ValueError(f"message: expecting {size} counts, displacements and datatypes")
    out = []
    for count, offset, kind in zip(counts, displacements, kinds, strict=True):
        _fits(nbytes, count, kind, offset)
        out.append(BufferSpec(obj, count, kind, offset))
    return out


def as_bytes(arg: Any, *, writable: bool) -> tuple[Any, int, int]:
    """(object, first byte, bytes) of a message, whatever its type."""
    if isinstance(arg, (list, tuple)):
        spec = simple(arg, writable=writable)
        return spec.obj, spec.offset, spec.count * spec.datatype.extent
    nbytes, _, readonly = _exported(arg)
    if writable and readonly and nbytes:
        raise BufferError("message: the buffer is read-only")
    return arg, 0, nbytes


def require_same_size(one: BufferSpec, other: BufferSpec) -> None:
    if one.nbytes != other.nbytes:
        raise MpiException(
            ERR_ARG, f"send buffer of {one.nbytes} bytes, receive buffer of {other.nbytes} bytes"
        )

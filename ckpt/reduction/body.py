"""The values that a reduction combines: numpy arrays under an operation of MPI, or objects of the program's own class.

A reduction combines two values into a new one, out of place: what it was given stays as it is until the end, since a task
whose executor dies is done again from its inputs.

    arrays   any shape, contiguous or not, read-only or not; numbers and booleans of numpy. Operations as MPI 4.1 table 6.1
             defines them for these types; one that the program makes (`MPI.Op.Create`) is called as for objects:
             `function(x, y, None)` returns a new array of the same shape and type
    bodies   instances of a subclass of `Body`

Both can be divided into parts: arrays under an operation of MPI, which is done element by element, and bodies that say how.

Not here: who combines what (scheduler.py), and in which thread (service.py).
"""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Sequence
from typing import Any, NamedTuple, Self

import numpy as np

import ckpt.MPI
from ckpt.reduction.errors import CombineFailed, InvalidInput

MPI: Any = ckpt.MPI
NUMBERS = "iufc"
LOGICAL = "biu"
OPERATIONS: dict[str, tuple[np.ufunc, str]] = {
    # name: (function, kinds of types that it is defined for)
    "MPI_SUM": (np.add, NUMBERS),
    "MPI_PROD": (np.multiply, NUMBERS),
    "MPI_MAX": (np.maximum, "iuf"),
    "MPI_MIN": (np.minimum, "iuf"),
    "MPI_LAND": (np.logical_and, LOGICAL),
    "MPI_LOR": (np.logical_or, LOGICAL),
    "MPI_LXOR": (np.logical_xor, LOGICAL),
    "MPI_BAND": (np.bitwise_and, LOGICAL),
    "MPI_BOR": (np.bitwise_or, LOGICAL),
    "MPI_BXOR": (np.bitwise_xor, LOGICAL),
}
OWN = "an operation of the program"
LEAST_PART_BYTES = 64 << 10
"""Of an array. Others can read such a part where it lies (copies.py)."""


class Body:
    """Base class of the program's own data and operation.

    ``combine`` is called in a thread of the reduction, while the program computes. It must not call the library.
    """

    def combine(self, other: Self) -> Self:
        """A new body of the same class, made of this one and `other`, which stay as they are.

        With order="tree" all ranks in `other` are higher ones; with "ready" the operation has to commute."""
        raise NotImplementedError(f"{type(self).__qualname__} has no combine()")

    def size(self) -> object:
        """Something that is equal for bodies that can be combined, such as a shape. Ranks that differ are told so."""
        return None

    def split(self, count: int) -> Sequence[Self]:
        """About `count` parts (`parts=`), each of which is combined, sent and copied by itself, so that a level of the tree
        begins before the one below has ended. As many at all ranks; those of the same number fit together. Default: the
        body itself is the only one."""
        return [self]

    @classmethod
    def join(cls, parts: list[Self]) -> Self:
        """The reverse of `split`: a body of parts, which belong to it. What it raises is raised by `Future.result`."""
        raise NotImplementedError(f"{cls.__qualname__} has split() and no join()")

    def pack(self) -> Any:
        """The contents for another rank: something that can be pickled. Default: the body itself is pickled."""
        return self

    @classmethod
    def unpack(cls, contents: Any) -> Self:
        """The reverse of `pack`."""
        assert isinstance(contents, cls)
        return contents


class Packed(NamedTuple):
    """A body on its way, pickled: where it arrives, its class may not be there yet, and it is unpacked when it is used."""

    data: bytes

    @classmethod
    def of(cls, body: Body) -> Packed:
        """Raises what the body's `pack` and pickle raise."""
        return cls(pickle.dumps((type(body), body.pack()), 5))

    def body(self) -> Body:
        """A new body, which belongs to the caller."""
        kind, contents = pickle.loads(self.data)
        unpacked: Body = kind.unpack(contents)
        return unpacked


def name_of(op: Any) -> str:
    """The name of a predefined operation; OWN for one that the program has made.

    Raises InvalidInput for what is no operation, or not defined for arrays."""
    if not isinstance(op, MPI.Op) or op == MPI.OP_NULL:
        raise InvalidInput(f"op is an operation such as MPI.SUM, not {op!r}")
    if not op.is_predefined:
        return OWN
    for name in OPERATIONS:
        if op == getattr(MPI, name[4:]):
            return name
    raise InvalidInput(
        f"{op!r} is not defined for arrays: use SUM, PROD, MAX, MIN, a logical or a bitwise operation"
    )


def array_of(data: Any, op: str) -> np.ndarray[Any, Any]:
    """The data as a contiguous array; the data themselves where they are one.

    Raises InvalidInput for what is no array of numbers, or where the operation is not defined for its type; for masked
    arrays, whose masked elements would be combined like all others."""
    if isinstance(data, np.ma.MaskedArray):
        raise InvalidInput(
            "masked arrays cannot be reduced: give their filled() data, or a ckpt.reduction.Body"
        )
    array = np.asarray(data)
    if array.dtype.kind not in "biufc" or array.dtype.kind not in OPERATIONS.get(op, (None, "biufc"))[1]:
        what = f"an array of {array.dtype}" if array.dtype.kind != "O" else "an array of Python objects"
        raise InvalidInput(
            f"{what} cannot be reduced with {op[4:] if op != OWN else 'this operation'}; see ckpt.reduction.Body"
        )
    return array if array.flags.c_contiguous else np.ascontiguousarray(array)


def content_of(value: Any, op: str) -> str:
    """What has to be the same at all ranks; it ends with the name of the operation."""
    if isinstance(value, Body):
        return f"{type(value).__module__}.{type(value).__qualname__} of size {value.size()!r}|"
    return f"{value.dtype.str}{list(value.shape)}|{op}"


class Part(NamedTuple):
    """A part of a value, and what has to be the same at all ranks in it."""

    value: Any
    content: str


def parts_of(value: Any, content: str, count: int) -> list[Part]:
    """The value in `count` parts; itself where it cannot be divided. The first part has the content of the whole, too.

    Raises InvalidInput, and what the body's `split` and `size` raise."""
    parts: Sequence[Any] = [value]
    kind, _, op = content.rpartition("|")
    if isinstance(value, Body):
        parts = _split(value, count)
    elif op in OPERATIONS and (count := min(count, value.nbytes // LEAST_PART_BYTES)) > 1:
        flat = value.reshape(-1)
        parts = [flat[first:last] for first, last in bounds(flat.size, count)]
    if len(parts) == 1:
        return [Part(value, content)]
    first = f"{kind} in {len(parts)} parts, {content_of(parts[0], op)}"
    return [Part(parts[0], first), *(Part(part, content_of(part, op)) for part in parts[1:])]


def _split(body: Body, count: int) -> Sequence[Any]:
    parts = body.split(count)
    if not isinstance(parts, list | tuple) or not parts:
        raise InvalidInput(f"split() has to return a list of bodies, not {parts!r}")
    for part in parts:
        if type(part) is not type(body):
            kind = type(body).__qualname__
            raise InvalidInput(f"split() has to return bodies of {kind}, not of {type(part).__qualname__}")
    return parts


def bounds(size: int, count: int) -> list[tuple[int, int]]:
    """Of an array of so many elements in so many parts: the first of each part, and that of the next one."""
    return [(size * part // count, size * (part + 1) // count) for part in range(count)]


def combine(left: Any, right: Any, content: str, own: Any = None) -> Any:
    """A new value made of two; `left` is of the lower ranks. `own`: the program's operation, where it is one.

    Raises CombineFailed for a result of another kind, and what the operation raises."""
    left = left.body() if isinstance(left, Packed) else left
    right = right.body() if isinstance(right, Packed) else right
    if isinstance(left, Body):
        return _combine_bodies(left, right)
    op = content.rpartition("|")[2]
    result: Any = np.asarray(own(left, right) if op == OWN else OPERATIONS[op][0](left, right))
    if result.dtype.kind == "O" and result.shape == () and result.item() is None:
        raise CombineFailed(
            "the operation has returned nothing: function(x, y, None) has to return a new array"
        )
    if result.shape != left.shape:
        raise CombineFailed(f"the operation has returned an array of shape {result.shape}, not {left.shape}")
    if result.size and (np.may_share_memory(result, left) or np.may_share_memory(result, right)):
        raise CombineFailed("the operation has to return a new array, and leave both of its own as they are")
    if result.dtype == left.dtype:
        return result
    if op == OWN and result.dtype != left.dtype.newbyteorder(
        "="
    ):  # numpy computes in the machine's order of bytes
        raise CombineFailed(f"the operation has returned an array of {result.dtype}, not {left.dtype}")
    return result.astype(left.dtype)  # a logical operation: booleans of any type; another order of bytes


def _combine_bodies(left: Body, right: Body) -> Body:
    size = left.size()
    result = left.combine(right)
    if type(result) is not type(left):
        raise CombineFailed(
            f"combine() has to return a {type(left).__qualname__}, not {type(result).__name__}"
        )
    if result is left or result is right:
        raise CombineFailed("combine() has to return a new body, and leave both of its own as they are")
    if result.size() != size:
        raise CombineFailed(f"combine() has returned a body of size {result.size()!r}, not {size!r}")
    return result


def checksum(value: Any) -> int:
    """Of an array, or of what a body packs. To find what is written to too early. Raises what `pack` and pickle raise."""
    contents = value.pack() if isinstance(value, Body) else value
    if isinstance(contents, np.ndarray):
        return zlib.crc32(np.ascontiguousarray(contents).tobytes())
    if isinstance(contents, (bytes, bytearray, memoryview)):
        return zlib.crc32(contents)
    return zlib.crc32(pickle.dumps(contents, 5))

"""Reduction operations on objects and on buffers.

`op(x, y)` combines two objects. `op.combine(a, b, datatype)` combines two packed buffers, element by element. In both, the
first argument comes from the lower rank. The algorithms keep the order of ranks, so an operation need not be commutative,
and the result depends on the number of ranks, not on timing.

A predefined operation on buffers uses numpy if it is installed, else a loop in Python. For a few numbers, collectives use
small_reductions.py instead. A function of the program is called as in mpi4py: `function(x, y, None)` returns the result
for objects; `function(a, b, datatype)` writes the result into `b` for buffers.
"""

from __future__ import annotations

import functools
import operator
from array import array
from collections.abc import Callable
from typing import Any, ClassVar, Self

from ckpt.mpi.base.errors import ERR_OP, MpiException
from ckpt.mpi.base.handle import Handle, expect
from ckpt.mpi.base.process import process_state
from ckpt.mpi.base.progress import Buffer
from ckpt.mpi.datatypes.buffers import raw
from ckpt.mpi.datatypes.datatypes import BYTE, Datatype
from ckpt.mpi.datatypes.layout import LONG_DOUBLES


def _max(x: Any, y: Any) -> Any:
    return y if y > x else x


def _min(x: Any, y: Any) -> Any:
    return y if y < x else x


def _land(x: Any, y: Any) -> Any:
    return bool(x) & bool(y)


def _lor(x: Any, y: Any) -> Any:
    return bool(x) | bool(y)


def _lxor(x: Any, y: Any) -> Any:
    return bool(x) ^ bool(y)


def _maxloc(x: Any, y: Any) -> Any:
    if x[0] == y[0]:
        return tuple(y) if y[1] < x[1] else tuple(x)
    return tuple(x) if x[0] > y[0] else tuple(y)


def _minloc(x: Any, y: Any) -> Any:
    if x[0] == y[0]:
        return tuple(y) if y[1] < x[1] else tuple(x)
    return tuple(x) if x[0] < y[0] else tuple(y)


def _first(x: Any, y: Any) -> Any:
    return x


def _second(x: Any, y: Any) -> Any:
    return y


INTEGERS = "bBhHiIlLqQ"
REALS = "fdg"

_PREDEFINED: dict[str, tuple[Callable[[Any, Any], Any], str, str]] = {
    # name: (function on objects, name of numpy's function, typecodes that the operation is defined for)
    "MPI_MAX": (_max, "maximum", INTEGERS + REALS),
    "MPI_MIN": (_min, "minimum", INTEGERS + REALS),
    "MPI_SUM": (operator.add, "add", INTEGERS + REALS + "Z"),
    "MPI_PROD": (operator.mul, "multiply", INTEGERS + REALS + "Z"),
    "MPI_LAND": (_land, "logical_and", INTEGERS + "?"),
    "MPI_BAND": (operator.and_, "bitwise_and", INTEGERS + "?"),
    "MPI_LOR": (_lor, "logical_or", INTEGERS + "?"),
    "MPI_BOR": (operator.or_, "bitwise_or", INTEGERS + "?"),
    "MPI_LXOR": (_lxor, "logical_xor", INTEGERS + "?"),
    "MPI_BXOR": (operator.xor, "bitwise_xor", INTEGERS + "?"),
    "MPI_MAXLOC": (_maxloc, "", ","),
    "MPI_MINLOC": (_minloc, "", ","),
    "MPI_REPLACE": (_second, "", ""),
    "MPI_NO_OP": (_first, "", ""),
}

_NUMBERS = frozenset(
    (name, code) for name, (_, _, domain) in _PREDEFINED.items() for code in domain if code not in "B,"
)
"""The pairs (operation, typecode) that are certainly defined. `check` examines all others: the typecode "B" is that of
MPI_BYTE and of MPI_UNSIGNED_CHAR, and pair types have typecodes with a comma."""

_BITWISE = ("MPI_BAND", "MPI_BOR", "MPI_BXOR")
_LOGICAL = ("MPI_LAND", "MPI_LOR", "MPI_LXOR")
"""The standard does not define logical operations for MPI_BYTE, but every MPI library accepts them, and mpi4py.futures
needs them."""


OPERATIONS_MAX = 32
"""Number of operations that a program may have made and not freed, as in mpi4py."""


class Token:
    """The identity of an operation that the program made. All copies of the operation share it."""

    __slots__ = ("freed",)

    def __init__(self) -> None:
        self.freed = False


class Op(Handle):
    """A reduction operation; `bool(op)` is False for OP_NULL."""

    __slots__ = ("__weakref__", "_commute", "_function", "_name", "_token")
    _constants: ClassVar[tuple[str, ...]] = (
        "OP_NULL",
        *[name[4:] for name in _PREDEFINED],
    )

    _token: Token | None
    _name: str
    _commute: bool
    _function: Callable[..., Any] | None

    def __new__(cls, op: Op | None = None) -> Self:
        expect(cls, op, Op)
        self = super().__new__(cls)
        self._token = None if op is None else op._token
        self._name = "" if op is None else op._name
        self._commute = True if op is None else op._commute
        self._function = None if op is None else op._function
        return self

    @classmethod
    def Create(cls, function: Callable[..., Any], commute: bool = False) -> Op:
        """An operation that calls `function`. RuntimeError: OPERATIONS_MAX operations exist. TypeError: not callable."""
        if not callable(function):
            raise TypeError(f"a callable is needed, got {type(function).__name__}")
        made = process_state().interned
        if made.get("operations", 0) >= OPERATIONS_MAX:
            raise RuntimeError(f"cannot create more than {OPERATIONS_MAX} user-defined operations; Free some")
        made["operations"] = made.get("operations", 0) + 1
        op = cls()
        op._token = Token()
        op._function = function
        op._commute = commute
        return op

    def Free(self) -> None:
        if self._named() or not self:
            raise MpiException(ERR_OP, f"{self._name or 'the null operation'} cannot be freed")
        if self._token is not None and not self._token.freed:
            self._token.freed = True
            process_state().interned["operations"] -= 1
        self._function = None
        self._token = None
        self._name = ""

    def _discard(self) -> None:
        self.Free()

    def Is_commutative(self) -> bool:
        return self._commute

    @property
    def is_commutative(self) -> bool:
        return self._commute

    @property
    def is_predefined(self) -> bool:
        return self._function is None

    def __bool__(self) -> bool:
        return bool(self._name) or self._function is not None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Op):
            return NotImplemented
        return self._name == other._name and self._token is other._token

    __hash__ = None

    def __repr__(self) -> str:
        return f"<Op {self._name or self._function or 'null'}>"

    def __reduce__(self) -> Any:
        name = self._named()
        if name is not None:
            return name
        return _rebuild, (type(self), self._name, self._commute, self._function, self._token)

    def __call__(self, x: Any, y: Any) -> Any:
        """Combine two objects; `x` is of the lower rank. ValueError: this is OP_NULL."""
        if self._function is not None:
            return self._function(x, y, None)
        if not self._name:
            raise ValueError("cannot call the null operation")
        return _PREDEFINED[self._name][0](x, y)

    def check(self, datatype: Datatype) -> None:
        """Raise MpiException (ERR_OP) if the operation is not defined for buffers of this datatype."""
        if self._function is not None:
            return
        code = datatype.code
        if (self._name, code) in _NUMBERS:
            return
        if not self._name:
            raise MpiException(ERR_OP, "null operation")
        domain = _PREDEFINED[self._name][2]
        if self._name in ("MPI_REPLACE", "MPI_NO_OP"):
            return
        is_defined = bool(code) and ("," in code if domain == "," else code[0] in domain and "," not in code)
        if datatype == BYTE:
            is_defined = self._name in _BITWISE + _LOGICAL
        if not is_defined:
            raise MpiException(ERR_OP, f"{self._name} is not defined for {datatype.name or 'a derived type'}")

    def combine(self, a: Buffer, b: Buffer, datatype: Datatype, out: Buffer | None = None) -> Buffer:
        """Combine the packed elements of `a` and `b` and return the packed result; `a` is of the lower rank.

        out: memory for the result, which may be `a` or `b`. The result may be elsewhere: use the return value."""
        result, code = self._combined(a, b, datatype, out), datatype.code
        if code not in LONG_DOUBLES:
            return result
        from ckpt.mpi.datatypes.gaps import filled

        return filled(result, code)

    def _combined(self, a: Buffer, b: Buffer, datatype: Datatype, out: Buffer | None) -> Buffer:
        if self._function is not None:
            if not datatype.contiguous:
                return self._combine_spread(a, b, datatype)
            result = bytearray(b)
            self._function(memoryview(a), result, datatype)
            if len(result) != len(b):
                raise ValueError(f"the operation made {len(result)} bytes of {len(b)}")
            return result
        return combine_predefined(self._name, a, b, datatype.code, out)

    def _combine_spread(self, a: Buffer, b: Buffer, datatype: Datatype) -> Buffer:
        """As :meth:`combine`, with a function of the program and a datatype that has gaps, or another order than memory: the
        function sees the elements as they are in memory."""
        from ckpt.mpi.datatypes.buffers import BufferSpec

        count, before = len(b) // datatype.size if datatype.size else 0, max(0, -datatype.true_lb)
        nbytes = (
            max(count * datatype.extent, datatype.true_ub + (count - 1) * datatype.extent) if count else 0
        )
        one, two = bytearray(before + nbytes), bytearray(before + nbytes)
        low, high = (BufferSpec(memory, count, datatype, before) for memory in (one, two))
        low.write(a)
        high.write(b)
        self._function(memoryview(one)[before:], memoryview(two)[before:], datatype)  # type: ignore[misc]
        return high.read()

    def Reduce_local(self, inbuf: Any, inoutbuf: Any) -> None:
        """Combine two buffers of this process; the result is in the second. ValueError: counts or datatypes differ."""
        from ckpt.mpi.datatypes.buffers import simple

        one = simple(inbuf, writable=False)
        two = simple(inoutbuf, writable=True)
        if one.count != two.count:
            raise ValueError(f"mismatch in counts: {one.count} and {two.count}")
        if one.datatype.code != two.datatype.code:
            raise ValueError("mismatch in datatypes")
        self.check(two.datatype)
        two.write(bytes(self.combine(one.read(), two.read(), two.datatype)))


def combine_predefined(name: str, a: Buffer, b: Buffer, code: str, out: Buffer | None = None) -> Buffer:
    """Combine packed elements with the typecode `code` by the predefined operation with the MPI name `name`."""
    if name == "MPI_REPLACE":
        return bytes(b)
    if name == "MPI_NO_OP":
        return bytes(a)
    numpy = _numpy()
    if numpy is None:
        return _combine_plain(name, a, b, code)
    return _combine_numpy(numpy, name, a, b, code, out)


def prepare() -> None:
    """Import what `combine_predefined` may need, so that a later call in another thread imports nothing."""
    _numpy()


def _rebuild(
    cls: type[Op],
    name: str,
    commute: bool,
    function: Callable[..., Any] | None,
    token: Token | None = None,
) -> Op:
    op: Op = cls()
    op._name = name
    op._commute = commute
    op._function = function
    op._token = token
    return op


def _numpy() -> Any:
    try:
        import numpy
    except ImportError:
        return None
    return numpy


def _dtype(numpy: Any, code: str) -> Any:
    if "," in code:
        value, index = code.split(",")
        return numpy.dtype([("value", value), ("index", index)])
    return numpy.dtype({"Zf": "F", "Zd": "D", "Zg": "G"}.get(code, code))


@functools.cache
def _kernel(name: str, code: str) -> tuple[Any, Any]:
    """(numpy dtype of a typecode, numpy function of an operation; None for MAXLOC and MINLOC, which need several)."""
    import numpy

    function = _PREDEFINED[name][1]
    return _dtype(numpy, code), getattr(numpy, function) if function else None


def _combine_numpy(numpy: Any, name: str, a: Buffer, b: Buffer, code: str, out: Buffer | None) -> Buffer:
    dtype, function = _kernel(name, code)
    x = numpy.frombuffer(a, dtype)
    y = numpy.frombuffer(b, dtype)
    if function is None:
        better = x["value"] > y["value"] if name == "MPI_MAXLOC" else x["value"] < y["value"]
        tie = x["value"] == y["value"]
        result = numpy.where(better, x, y)
        result["index"] = numpy.where(tie, numpy.minimum(x["index"], y["index"]), result["index"])
        return memoryview(result.tobytes())
    if out is not None:
        function(x, y, out=numpy.frombuffer(out, dtype), casting="unsafe")
        return out
    result = numpy.empty(len(x), dtype)
    function(x, y, out=result, casting="unsafe")
    return raw(result)


def _combine_plain(name: str, a: Buffer, b: Buffer, code: str) -> Buffer:
    if code not in INTEGERS + "fd?":
        raise MpiException(ERR_OP, f"{name} on buffers of type {code!r} needs numpy")
    function = _PREDEFINED[name][0]
    if code == "?":
        return bytes(bool(function(u, v)) for u, v in zip(a, b, strict=True))
    x: array[Any] = array(code, bytes(a))
    y: array[Any] = array(code, bytes(b))
    if code in "fd":
        return array(code, [function(u, v) for u, v in zip(x, y, strict=True)]).tobytes()
    bits = 8 * x.itemsize
    signed = code.islower()
    half, whole = 1 << (bits - 1), 1 << bits
    values = [int(function(u, v)) % whole for u, v in zip(x, y, strict=True)]
    if signed:
        values = [value - whole if value >= half else value for value in values]
    return array(code, values).tobytes()


def predefined(name: str) -> Op:
    """The predefined operation with this MPI name."""
    return _rebuild(Op, name, name not in ("MPI_REPLACE", "MPI_NO_OP"), None)


MAX = predefined("MPI_MAX")
MIN = predefined("MPI_MIN")
SUM = predefined("MPI_SUM")
PROD = predefined("MPI_PROD")
LAND = predefined("MPI_LAND")
BAND = predefined("MPI_BAND")
LOR = predefined("MPI_LOR")
BOR = predefined("MPI_BOR")
LXOR = predefined("MPI_LXOR")
BXOR = predefined("MPI_BXOR")
MAXLOC = predefined("MPI_MAXLOC")
MINLOC = predefined("MPI_MINLOC")
REPLACE = predefined("MPI_REPLACE")
NO_OP = predefined("MPI_NO_OP")
OP_NULL = Op()

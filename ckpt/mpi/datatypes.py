"""Datatypes: how the bytes of a buffer are laid out.

A basic type is one number of a native C type, `code` its numpy/struct type. A derived type is a list of
*runs* (offset, bytes) per element and an extent, the distance between consecutive elements. A type is
contiguous when its elements lie one after the other without gaps; then a buffer of it is one slice of
memory.
"""

from __future__ import annotations

import struct
from typing import Any

from ckpt.mpi.constants import UNDEFINED
from ckpt.mpi.errors import ERR_TYPE, MpiException


class Datatype:
    """A basic or derived type. Sizes, offsets and extents in bytes."""

    __slots__ = (
        "__weakref__",
        "_basics",
        "_code",
        "_lb",
        "_name",
        "_runs",
        "_size",
        "_ub",
        "contiguous",
        "predefined",
    )

    def __init__(
        self,
        name: str,
        runs: tuple[tuple[int, int], ...],
        *,
        basics: tuple[int, ...],
        code: str = "",
        lb: int = 0,
        extent: int | None = None,
        predefined: bool = False,
    ) -> None:
        """runs: pieces of one element in the order of transfer; basics: sizes of its basic numbers in that
        order; code: numpy typecode, or comma-separated codes of a pair, when all numbers are of one kind."""
        size = 0
        end = 0
        for offset, nbytes in runs:
            size += nbytes
            end = max(end, offset + nbytes)
        self._name = name
        self._runs = runs
        self._size = size
        self._basics = basics
        self._code = code
        self._lb = lb
        self._ub = end if extent is None else lb + extent
        self.contiguous = self._lb == 0 and self._ub == size and (not runs or runs == ((0, size),))
        self.predefined = predefined

    @property
    def size(self) -> int:
        """Bytes of data in one element."""
        return self._size

    @property
    def extent(self) -> int:
        """Distance between consecutive elements."""
        return self._ub - self._lb

    @property
    def lb(self) -> int:
        return self._lb

    @property
    def ub(self) -> int:
        return self._ub

    @property
    def runs(self) -> tuple[tuple[int, int], ...]:
        return self._runs

    @property
    def code(self) -> str:
        return self._code

    @property
    def name(self) -> str:
        return self._name

    @name.setter
    def name(self, name: str) -> None:
        self._name = name

    @property
    def is_predefined(self) -> bool:
        return self.predefined

    def Get_size(self) -> int:
        return self._size

    def Get_extent(self) -> tuple[int, int]:
        """(lower bound, extent)"""
        return self._lb, self._ub - self._lb

    def Get_name(self) -> str:
        return self._name

    def Set_name(self, name: str) -> None:
        self._name = name

    def elements_in(self, nbytes: int) -> int:
        """Basic numbers in a message of `nbytes`; UNDEFINED if it ends inside one."""
        if self._size == 0:
            return 0 if nbytes == 0 else UNDEFINED
        whole, rest = divmod(nbytes, self._size)
        count = whole * len(self._basics)
        for size in self._basics:
            if rest == 0:
                break
            rest -= size
            count += 1
        return UNDEFINED if rest else count

    def __repr__(self) -> str:
        return f"<Datatype {self._name or 'derived'}, {self._size} bytes>"

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self) >> 4

    def __reduce__(self) -> Any:
        if self.predefined:
            return predefined, (self._name,)
        return _rebuild, (self._name, self._runs, self._basics, self._code, self._lb, self.extent)


def _rebuild(
    name: str,
    runs: tuple[tuple[int, int], ...],
    basics: tuple[int, ...],
    code: str,
    lb: int,
    extent: int,
) -> Datatype:
    return Datatype(name, runs, basics=basics, code=code, lb=lb, extent=extent)


def _basic(name: str, code: str) -> Datatype:
    size = {"Zf": 8, "Zd": 16, "Zg": 2 * _LONG_DOUBLE, "g": _LONG_DOUBLE}.get(code) or struct.calcsize(code)
    return Datatype(name, ((0, size),), basics=(size,), code=code, predefined=True)


def _pair(name: str, first: str, second: str) -> Datatype:
    """A value and an index, aligned as in C, for MINLOC and MAXLOC."""
    value, index = _basic("", first).size, _basic("", second).size
    at = -(-value // index) * index
    align = max(value if value <= 16 else 16, index)
    extent = -(-(at + index) // align) * align
    runs = ((0, value), (at, index)) if at != value else ((0, value + index),)
    return Datatype(
        name, runs, basics=(value, index), code=f"{first},{second}", extent=extent, predefined=True
    )


_LONG_DOUBLE = 16

_BASIC = {
    "MPI_BYTE": "B",
    "MPI_PACKED": "B",
    "MPI_CHAR": "b",
    "MPI_WCHAR": "i",
    "MPI_SIGNED_CHAR": "b",
    "MPI_UNSIGNED_CHAR": "B",
    "MPI_SHORT": "h",
    "MPI_UNSIGNED_SHORT": "H",
    "MPI_INT": "i",
    "MPI_UNSIGNED": "I",
    "MPI_LONG": "l",
    "MPI_UNSIGNED_LONG": "L",
    "MPI_LONG_LONG": "q",
    "MPI_UNSIGNED_LONG_LONG": "Q",
    "MPI_FLOAT": "f",
    "MPI_DOUBLE": "d",
    "MPI_LONG_DOUBLE": "g",
    "MPI_C_BOOL": "?",
    "MPI_INT8_T": "b",
    "MPI_INT16_T": "h",
    "MPI_INT32_T": "i",
    "MPI_INT64_T": "q",
    "MPI_UINT8_T": "B",
    "MPI_UINT16_T": "H",
    "MPI_UINT32_T": "I",
    "MPI_UINT64_T": "Q",
    "MPI_AINT": "q",
    "MPI_OFFSET": "q",
    "MPI_COUNT": "q",
    "MPI_C_FLOAT_COMPLEX": "Zf",
    "MPI_C_DOUBLE_COMPLEX": "Zd",
    "MPI_C_LONG_DOUBLE_COMPLEX": "Zg",
}
_PAIRS = {
    "MPI_FLOAT_INT": ("f", "i"),
    "MPI_DOUBLE_INT": ("d", "i"),
    "MPI_LONG_INT": ("l", "i"),
    "MPI_2INT": ("i", "i"),
    "MPI_SHORT_INT": ("h", "i"),
    "MPI_LONG_DOUBLE_INT": ("g", "i"),
}

PREDEFINED: dict[str, Datatype] = {name: _basic(name, code) for name, code in _BASIC.items()}
PREDEFINED.update({name: _pair(name, *codes) for name, codes in _PAIRS.items()})
PREDEFINED["MPI_DATATYPE_NULL"] = DATATYPE_NULL = Datatype(
    "MPI_DATATYPE_NULL", (), basics=(), predefined=True
)


def predefined(name: str) -> Datatype:
    """The predefined type of this MPI name."""
    return PREDEFINED[name]


BYTE = PREDEFINED["MPI_BYTE"]

_BY_CODE = {
    "c": PREDEFINED["MPI_CHAR"],
    "s": PREDEFINED["MPI_CHAR"],
    "S1": PREDEFINED["MPI_CHAR"],
    "b": PREDEFINED["MPI_SIGNED_CHAR"],
    "B": PREDEFINED["MPI_UNSIGNED_CHAR"],
    "u1": PREDEFINED["MPI_UINT8_T"],
    "?": PREDEFINED["MPI_C_BOOL"],
    "h": PREDEFINED["MPI_SHORT"],
    "H": PREDEFINED["MPI_UNSIGNED_SHORT"],
    "i": PREDEFINED["MPI_INT"],
    "I": PREDEFINED["MPI_UNSIGNED"],
    "l": PREDEFINED["MPI_LONG"],
    "L": PREDEFINED["MPI_UNSIGNED_LONG"],
    "q": PREDEFINED["MPI_LONG_LONG"],
    "Q": PREDEFINED["MPI_UNSIGNED_LONG_LONG"],
    "n": PREDEFINED["MPI_AINT"],
    "p": PREDEFINED["MPI_AINT"],
    "f": PREDEFINED["MPI_FLOAT"],
    "d": PREDEFINED["MPI_DOUBLE"],
    "g": PREDEFINED["MPI_LONG_DOUBLE"],
    "Zf": PREDEFINED["MPI_C_FLOAT_COMPLEX"],
    "Zd": PREDEFINED["MPI_C_DOUBLE_COMPLEX"],
    "Zg": PREDEFINED["MPI_C_LONG_DOUBLE_COMPLEX"],
    "F": PREDEFINED["MPI_C_FLOAT_COMPLEX"],
    "D": PREDEFINED["MPI_C_DOUBLE_COMPLEX"],
    "G": PREDEFINED["MPI_C_LONG_DOUBLE_COMPLEX"],
    "i1": PREDEFINED["MPI_INT8_T"],
    "i2": PREDEFINED["MPI_INT16_T"],
    "i4": PREDEFINED["MPI_INT32_T"],
    "i8": PREDEFINED["MPI_INT64_T"],
    "u2": PREDEFINED["MPI_UINT16_T"],
    "u4": PREDEFINED["MPI_UINT32_T"],
    "u8": PREDEFINED["MPI_UINT64_T"],
    "f4": PREDEFINED["MPI_FLOAT"],
    "f8": PREDEFINED["MPI_DOUBLE"],
    "c8": PREDEFINED["MPI_C_FLOAT_COMPLEX"],
    "c16": PREDEFINED["MPI_C_DOUBLE_COMPLEX"],
}


def from_code(code: str) -> Datatype:
    """The basic type of a buffer format or numpy typecode; ERR_TYPE for structures, other endian."""
    found = _BY_CODE.get(code)
    if found is None:
        native = code[1:] if code[:1] in ("@", "=", "<", "|", "^") else code
        found = _BY_CODE.get(native)
    if found is None:
        raise MpiException(
            ERR_TYPE, f"no MPI datatype for the buffer format {code!r}; give one in the message"
        )
    return found

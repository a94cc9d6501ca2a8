"""Datatypes: a datatype describes the elements of a buffer.

A `Datatype` is a handle of a `DatatypeInfo` (datatype_info.py), which has a layout (layout.py), a name, a constructor with
its arguments, and attributes. Basic datatypes are constants. Derived datatypes are made from others (derived.py). Free
makes one handle null; operations and datatypes that refer to the `DatatypeInfo` still use it.
"""

from __future__ import annotations

import struct
from typing import Any, ClassVar, Self

from ckpt.mpi.base.attributes import HasAttributes
from ckpt.mpi.base.errors import ERR_TYPE, MpiException
from ckpt.mpi.base.handle import expect
from ckpt.mpi.datatypes.datatype_info import DatatypeInfo
from ckpt.mpi.datatypes.derived import Derived
from ckpt.mpi.datatypes.layout import Layout, Runs
from ckpt.mpi.datatypes.packing import Packing
from ckpt.mpi.datatypes.typenames import BASIC, PAIRS


class Datatype(Derived, Packing, HasAttributes):
    """A handle of a basic or derived datatype. Sizes, offsets and extents are in bytes.

    `bool(datatype)` is False for the null datatype."""

    __slots__ = ("__weakref__", "_info")
    _constants: ClassVar[tuple[str, ...]] = ("DATATYPE_NULL",)

    _info: DatatypeInfo | None

    def __new__(cls, datatype: Datatype | None = None) -> Self:
        expect(cls, datatype, Datatype)
        self = super().__new__(cls)
        self._info = None if datatype is None else datatype._info
        return self

    @classmethod
    def _of(cls, info: DatatypeInfo | None) -> Datatype:
        datatype = cls.__new__(cls)
        datatype._info = info
        return datatype

    @classmethod
    def _make(
        cls,
        name: str,
        runs: Runs,
        *,
        basics: tuple[int, ...],
        code: str = "",
        extent: int | None = None,
        predefined: bool = False,
    ) -> Datatype:
        """A datatype whose elements have these runs. basics: sizes in bytes of the numbers of an element, in order."""
        layout = Layout(runs, tuple([(size, 1) for size in basics]), code, ub=extent)
        return cls._of(DatatypeInfo(layout, name, predefined=predefined))

    def _valid(self) -> DatatypeInfo:
        info = self._info
        if info is None:
            raise MpiException(ERR_TYPE, "the datatype is null or freed")
        return info

    @property
    def layout(self) -> Layout:
        return self._valid().layout

    @property
    def size(self) -> int:
        """Number of bytes of data in one element, without gaps."""
        return (self._info or self._valid()).layout.size

    @property
    def extent(self) -> int:
        """Distance between consecutive elements."""
        return self._valid().layout.extent

    @property
    def contiguous(self) -> bool:
        """Whether any number of elements is one slice of memory."""
        return (self._info or self._valid()).layout.contiguous

    @property
    def lb(self) -> int:
        return self._valid().layout.lb

    @property
    def ub(self) -> int:
        return self._valid().layout.ub

    @property
    def true_lb(self) -> int:
        return self._valid().layout.true_lb

    @property
    def true_ub(self) -> int:
        return self._valid().layout.true_ub

    @property
    def true_extent(self) -> int:
        return self.true_ub - self.true_lb

    @property
    def runs(self) -> Runs:
        return self._valid().layout.runs

    @property
    def code(self) -> str:
        return (self._info or self._valid()).layout.code

    @property
    def name(self) -> str:
        return self.Get_name()

    @name.setter
    def name(self, name: str) -> None:
        self.Set_name(name)

    @property
    def is_predefined(self) -> bool:
        return self._info is None or self._info.predefined

    predefined = is_predefined

    def Get_size(self) -> int:
        return self.size

    def Get_extent(self) -> tuple[int, int]:
        """(lower bound, extent)"""
        return self.lb, self.extent

    def Get_true_extent(self) -> tuple[int, int]:
        """(offset of the first byte of data, distance from there to the end of the last byte of data)"""
        return self.true_lb, self.true_extent

    def Get_name(self) -> str:
        return "MPI_DATATYPE_NULL" if self._info is None else self._info.name

    def Set_name(self, name: str) -> None:
        self._valid().name = name

    def Free(self) -> None:
        info = self._valid()
        if info.predefined and info.combiner == "NAMED" and self._named():
            raise MpiException(ERR_TYPE, f"{info.name} is predefined and cannot be freed")
        if not info.predefined:
            self._delete_attributes()
        self._info = None

    def _discard(self) -> None:
        self.Free()

    def _named(self) -> str | None:
        info = self._info
        if info is not None and PREDEFINED.get(info.mpi_name) is self:
            return info.mpi_name
        return super()._named()

    def elements_in(self, nbytes: int) -> int:
        """Number of basic elements in a message of `nbytes` bytes; UNDEFINED if the message ends inside of one."""
        return self.layout.elements_in(nbytes)

    def __bool__(self) -> bool:
        return self._info is not None

    def __repr__(self) -> str:
        return f"<Datatype {self.Get_name() or 'derived'}>"

    def __eq__(self, other: object) -> bool:
        return self._info is other._info if isinstance(other, Datatype) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> Any:
        info = self._info
        if info is None:
            return self._named() or (type(self), ())
        named = PREDEFINED.get(info.mpi_name)
        if named is self:
            return predefined, (info.mpi_name,)
        if named is not None and named._info is info:
            return type(self), (named,)
        return type(self), (), (None, {"_info": info})

    # -- attributes --------------------------------------------------------------------------------

    def _attribute_table(self) -> dict[int, Any]:
        return self._valid().attributes

    @classmethod
    def _keyval_kind(cls) -> str:
        return "Datatype"

    # -- typecodes ---------------------------------------------------------------------------------

    def tocode(self) -> str:
        """The numpy typecode of the datatype. ValueError: it has none."""
        code = typecode(self)
        if code is None:
            raise ValueError(f"no typecode for {self.Get_name() or 'a derived datatype'}")
        return code

    @classmethod
    def fromcode(cls, code: str) -> Datatype:
        """The basic datatype of a typecode. ValueError: there is none."""
        try:
            return from_code(code)
        except MpiException:
            raise ValueError(f"cannot map code {code!r} to an MPI datatype") from None

    @property
    def typechar(self) -> str:
        return _TYPECHARS.get(self.code, "V") if self else "V"

    @property
    def typestr(self) -> str:
        if not self:
            return "V0"
        letter = _KINDS.get(self.typechar)
        return f"V{self.extent}" if letter is None else f"{letter}{self.size}"


def _basic(name: str, code: str) -> Datatype:
    size = {"Zf": 8, "Zd": 16, "Zg": 2 * _LONG_DOUBLE, "g": _LONG_DOUBLE}.get(code) or struct.calcsize(code)
    align = min(size, 16) if code[0] != "Z" else size // 2
    layout = Layout(((0, size),), ((size, 1),), code, align=align)
    return Datatype._of(DatatypeInfo(layout, name, predefined=True))


def _pair(name: str, first: str, second: str) -> Datatype:
    """The predefined datatype of a value and an index, aligned as a C struct, for MINLOC and MAXLOC."""
    value, index = _basic("", first).size, _basic("", second).size
    at = -(-value // index) * index
    align = max(value if value <= 16 else 16, index)
    extent = -(-(at + index) // align) * align
    runs = ((0, value), (at, index)) if at != value else ((0, value + index),)
    layout = Layout(runs, ((value, 1), (index, 1)), f"{first},{second}", ub=extent, align=align)
    return Datatype._of(DatatypeInfo(layout, name, predefined=True))


_LONG_DOUBLE = 16

PREDEFINED: dict[str, Datatype] = {name: _basic(name, code) for name, code in BASIC.items()}
PREDEFINED.update({name: _pair(name, *codes) for name, codes in PAIRS.items()})
PREDEFINED["MPI_DATATYPE_NULL"] = DATATYPE_NULL = Datatype()


def predefined(name: str) -> Datatype:
    """The predefined datatype with this MPI name. KeyError: there is none."""
    return PREDEFINED[name]


BYTE = PREDEFINED["MPI_BYTE"]

_TYPECHARS = {"Zf": "F", "Zd": "D", "Zg": "G", "c": "S"}
_TYPECHARS.update({code: code for code in "bBhHiIlLqQefdg?"})
_KINDS = {"F": "c", "D": "c", "G": "c", "S": "S", "?": "b", "B": "u", "H": "u", "I": "u", "L": "u", "Q": "u"}
_KINDS.update(dict.fromkeys("bhilq", "i"))
_KINDS.update(dict.fromkeys("efdg", "f"))


def typecode(datatype: Datatype) -> str | None:
    """The numpy typecode of a basic datatype or of its duplicate; None for other datatypes."""
    info = datatype._info
    while info is not None and info.combiner == "DUP":
        info = info.base
    if info is None or info.combiner not in ("NAMED", "F90_INTEGER", "F90_REAL", "F90_COMPLEX"):
        return None
    return {"S": "c"}.get(char, char) if (char := _TYPECHARS.get(info.layout.code)) else None


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
    "P": PREDEFINED["MPI_AINT"],
    "p": PREDEFINED["MPI_AINT"],
    "f": PREDEFINED["MPI_FLOAT"],
    "e": PREDEFINED["MPI_FLOAT16_T"],
    "f2": PREDEFINED["MPI_FLOAT16_T"],
    "b1": PREDEFINED["MPI_C_BOOL"],
    "U": PREDEFINED["MPI_WCHAR"],
    "S": PREDEFINED["MPI_CHAR"],
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
    """The basic datatype of a buffer format (PEP 3118) or numpy typecode.

    MpiException (ERR_TYPE): there is none, for example for a structure or a foreign byte order."""
    found = _BY_CODE.get(code)
    if found is None:
        native = code[1:] if code[:1] in ("@", "=", "<", "|", "^") else code
        found = _BY_CODE.get(native)
    if found is None:
        raise MpiException(
            ERR_TYPE, f"no MPI datatype for the buffer format {code!r}; give one in the message"
        )
    return found

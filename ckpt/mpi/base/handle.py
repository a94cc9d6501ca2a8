"""The base class of all MPI objects. It defines equality without hashing, pickling, and handle numbers.

Pickling by the program:
- A *constant* is a predefined object with a name in the module that defines its class (COMM_NULL, ERRORS_RETURN …).
  A constant is pickled as its name, so it is the same object after loading.
- A copy of a constant is pickled as a copy of that constant.
- Any other object (communicator, group, request, message, session) raises ValueError, as in mpi4py. A process image
  does hold such objects, by value: the image's pickler calls `__image_reduce__`.

Handle numbers: `handle` (also toint, py2f) returns a number for an object, and `fromhandle` returns the object of a
number. A number is valid in this process, as long as its object lives.
"""

from __future__ import annotations

import weakref
from types import FunctionType
from typing import Any, ClassVar, TypeVar

H = TypeVar("H", bound="Handle")

_LIVE: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
"""The objects whose `handle` was read, by handle number."""


class Handle:
    """Base of Comm, Group, Datatype, Op, Request, Message, Info, Errhandler, Session and the null stubs."""

    __slots__ = ()
    _constants: ClassVar[tuple[str, ...]] = ()
    """Names of the constants in the module that defines the class."""

    __hash__ = None  # type: ignore[assignment]

    def _named(self) -> str | None:
        """The name of the constant, if this object is a constant (by identity); else None."""
        for base in type(self).__mro__[:-1]:
            for name in base.__dict__.get("_constants", ()):
                if _namespace(base).get(name) is self:
                    return str(name)
        return None

    def _original(self) -> Any:
        """The constant that is equal to this object; None if there is none."""
        for base in type(self).__mro__[:-1]:
            for name in base.__dict__.get("_constants", ()):
                constant = _namespace(base).get(name)
                if constant is not None and constant == self:
                    return constant
        return None

    def __reduce__(self) -> Any:
        name = self._named()
        if name is not None:
            return name
        original = self._original()
        if original is None:
            raise ValueError(f"cannot pickle a {type(self).__name__}: it means nothing to another process")
        return type(self), (original,)

    def __copy__(self: H) -> H:
        return self if self._named() else type(self)(self)  # type: ignore[call-arg]

    def __deepcopy__(self: H, memo: Any) -> H:
        return self.__copy__()

    def __lt__(self, other: object) -> bool:
        return NotImplemented

    @property
    def handle(self) -> int:
        """The handle number of this object in this process."""
        number = id(self)
        _LIVE[number] = self
        return number

    @classmethod
    def fromhandle(cls, handle: int) -> Any:
        """The object with this handle number. ValueError: there is no such object of this class, or it is gone."""
        found = _LIVE.get(handle)
        if not isinstance(found, cls):
            raise ValueError(f"{handle} is no handle of a {cls.__name__}")
        return found

    def toint(self) -> int:
        return self.handle

    @classmethod
    def fromint(cls, arg: int) -> Any:
        return cls.fromhandle(arg)

    def py2f(self) -> int:
        return self.handle

    @classmethod
    def f2py(cls, arg: int) -> Any:
        return cls.fromhandle(arg)

    def free(self) -> None:
        """Free the object, as mpi4py's `free`. No effect on a constant and on a null object."""
        if self and not self._named():
            self._discard()

    def _discard(self) -> None:
        self.Free()  # type: ignore[attr-defined]


def _namespace(base: type) -> dict[str, Any]:
    """The global names of the module that defines the class `base`."""
    for member in base.__dict__.values():
        if isinstance(member, FunctionType):
            inner = getattr(member, "__wrapped__", member)  # guard.py wraps methods
            names: dict[str, Any] = inner.__globals__
            return names
    return {}


def expect(cls: type, obj: Any, expected: type) -> Any:
    """Check the argument `obj` of a copying constructor of `cls`. TypeError: it is neither None nor of class `expected`."""
    if obj is not None and not isinstance(obj, expected):
        raise TypeError(f"{cls.__name__}: expected {expected.__name__}, got {type(obj).__name__}")
    return obj

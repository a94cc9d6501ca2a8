"""What all objects of MPI share as Python objects: equality without hashing, constants that stay themselves
when pickled, numbers that stand for them.

A *constant* is a predefined object, named in the module that defines its class. Pickling it gives the name,
so that it is the same object afterwards; a copy of one is pickled as a copy of it. What else a program makes
(communicators, groups, requests, messages, sessions) cannot be pickled by it, as in mpi4py: ValueError. A process
image holds all of it by value: `__image_reduce__`.

Handle numbers are made on demand: `handle` (and toint, py2f) gives a number, `fromhandle` the object for it,
in this process and as long as the object lives. They mean nothing to another process.
"""

from __future__ import annotations

import weakref
from types import FunctionType
from typing import Any, ClassVar, TypeVar

H = TypeVar("H", bound="Handle")

_LIVE: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
"""Objects that were asked for their number."""


class Handle:
    """Base of Comm, Group, Datatype, Op, Request, Message, Info, Errhandler, Session and the null stubs."""

    __slots__ = ()
    _constants: ClassVar[tuple[str, ...]] = ()
    """Names of the constants in the module that defines the class."""

    __hash__ = None  # type: ignore[assignment]

    def _named(self) -> str | None:
        """Name of the constant that this very object is."""
        for kind in type(self).__mro__[:-1]:
            for name in kind.__dict__.get("_constants", ()):
                if _namespace(kind).get(name) is self:
                    return str(name)
        return None

    def _original(self) -> Any:
        """The constant that this is a copy of; None: it is none."""
        for kind in type(self).__mro__[:-1]:
            for name in kind.__dict__.get("_constants", ()):
                constant = _namespace(kind).get(name)
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
        """A number for this object, in this process."""
        number = id(self)
        _LIVE[number] = self
        return number

    @classmethod
    def fromhandle(cls, handle: int) -> Any:
        """The object of a number that `handle` gave; ValueError if there is none."""
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
        """Free unless it is a constant or null: never raises."""
        if self and not self._named():
            self._discard()

    def _discard(self) -> None:
        self.Free()  # type: ignore[attr-defined]


def _namespace(kind: type) -> dict[str, Any]:
    """The names of the module that defines a class."""
    for member in kind.__dict__.values():
        if isinstance(member, FunctionType):
            inner = getattr(member, "__wrapped__", member)  # guard.py wraps methods
            names: dict[str, Any] = inner.__globals__
            return names
    return {}


def expect(cls: type, obj: Any, kind: type) -> Any:
    """The argument of a constructor that copies: None or an object of the class; TypeError otherwise."""
    if obj is not None and not isinstance(obj, kind):
        raise TypeError(f"{cls.__name__}: expected {kind.__name__}, got {type(obj).__name__}")
    return obj

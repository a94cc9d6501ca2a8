"""`NamedTuple` as `typing.NamedTuple` in a class statement: it defines a class in less than a quarter of the time.

Every interpreter, that of a rank and that of a command, defines some fifty such classes before its work begins. The
standard library compiles a `__new__` for each class, makes five more functions, and `typing` compiles each annotation.
Here all classes share these functions; `__new__` is compiled once for each number of fields, and each class gets the code
with the names of its own fields. A class gets no `__annotations__`.

A class that `typing` refuses is refused here: a field without a default after one with a default, a field whose name begins
with an underscore.
"""

from __future__ import annotations

import types
from collections import namedtuple
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any

__all__ = ["NamedTuple"]

_TupleGetter: Any = type(namedtuple("_TupleGetter", "field").__dict__["field"])
_new_codes: dict[int, types.CodeType] = {}
_NEW_GLOBALS = {"__name__": __name__, "__tuple_new__": tuple.__new__}


class _NamedTuple(type):
    """The metaclass of `NamedTuple`, whose "subclasses" are subclasses of `tuple` only."""

    def __new__(mcs, name: str, bases: tuple[type, ...], space: dict[str, Any]) -> Any:
        return type(name, (tuple,), _namespace(name, tuple(space.get("__annotations__", ())), space))


NamedTuple: Any = type.__new__(_NamedTuple, "NamedTuple", (), {})


def _namespace(name: str, fields: tuple[str, ...], space: Mapping[str, Any]) -> dict[str, Any]:
    """The namespace of the class. `space`: that of the class statement. Raises TypeError, ValueError."""
    for before, field in pairwise(fields):
        if before in space and field not in space:
            raise TypeError(f"Non-default namedtuple field {field} cannot follow default field {before}")
    defaults = {field: space[field] for field in fields if field in space}
    made: dict[str, Any] = {
        "__doc__": f"{name}({', '.join(fields)})",
        "__slots__": (),
        "_fields": fields,
        "_field_defaults": defaults,
        "__new__": _make_new(name, fields, tuple(defaults.values())),
        "__match_args__": fields,
        **_METHODS,
    }
    for index, field in enumerate(fields):
        if field.startswith("_"):
            raise ValueError(f"Field names cannot start with an underscore: {field!r}")
        made[field] = _TupleGetter(index, f"Alias for field number {index}")
    made |= {key: value for key, value in space.items() if key not in defaults and key != "__annotations__"}
    return made


def _make_new(name: str, fields: tuple[str, ...], defaults: tuple[Any, ...]) -> types.FunctionType:
    code = _new_codes.get(len(fields))
    if code is None:
        some = "".join(f"__{index}__, " for index in range(len(fields)))
        scope: dict[str, Any] = {}
        exec(f"def new(__cls__, {some}):\n return __tuple_new__(__cls__, ({some}))", scope)
        code = _new_codes[len(fields)] = scope["new"].__code__
    code = code.replace(co_varnames=("__cls__", *fields))
    new = types.FunctionType(code, _NEW_GLOBALS, "__new__", defaults)
    new.__qualname__ = f"{name}.__new__"
    return new


# ---- methods of all such classes ---------------------------------------------------------------------------------


def _make(cls: Any, iterable: Iterable[Any]) -> Any:
    """Make a new object from a sequence or iterable."""
    made = tuple.__new__(cls, iterable)
    if len(made) != len(cls._fields):
        raise TypeError(f"Expected {len(cls._fields)} arguments, got {len(made)}")
    return made


def _replace(self: Any, /, **changes: Any) -> Any:
    """Return a new object in which the fields named in `changes` have other values."""
    made = self._make(map(changes.pop, self._fields, self))
    if changes:
        raise ValueError(f"Got unexpected field names: {list(changes)!r}")
    return made


def _repr(self: Any) -> str:
    shown = (f"{name}={value!r}" for name, value in zip(self._fields, self, strict=True))
    return f"{self.__class__.__name__}({', '.join(shown)})"


def _asdict(self: Any) -> dict[str, Any]:
    """Return the fields as a dict."""
    return dict(zip(self._fields, self, strict=True))


def _getnewargs(self: Any) -> tuple[Any, ...]:
    """What copy and pickle call `__new__` with."""
    return tuple(self)


_METHODS = {
    "_make": classmethod(_make),
    "_replace": _replace,
    "__replace__": _replace,
    "__repr__": _repr,
    "_asdict": _asdict,
    "__getnewargs__": _getnewargs,
}

"""The standard library's `dataclasses`, the part that is used here, for a ninth of the time it takes to define one.

Every rank's interpreter, and that of every command, defines some sixty such classes before it can begin. The standard
library's decorator compiles each of six methods by itself, and imports what reads source code; here `__init__` is
compiled, and the rest is shared by all classes.

    @dataclass(frozen=…, slots=…)   fields, defaults, `field(default_factory=…, repr=…, compare=…, hash=…)`, `__post_init__`,
                                    inheritance, `__match_args__`; equality and order of fields as there; pickles alike
    replace, asdict                 as there; `asdict` copies lists, tuples and dicts on its way

What differs: annotations have to be text (`from __future__ import annotations`), and the standard library's own functions
do not take these classes for theirs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

if TYPE_CHECKING:  # for whoever checks types they are the standard library's
    from dataclasses import asdict, dataclass, field, replace

__all__ = ["asdict", "dataclass", "field", "names", "replace"]

T = TypeVar("T")

_FIELDS = "__lean_fields__"
_ABSENT: Any = type("Absent", (), {"__repr__": lambda self: "<factory>", "__slots__": ()})()


class Field:
    """How one attribute is made, shown and compared."""

    __slots__ = ("compare", "default", "factory", "hash", "repr")

    def __init__(self, default: Any, factory: Any, repr: bool, compare: bool, hash: bool | None) -> None:
        self.default = default
        self.factory = factory
        self.repr = repr
        self.compare = compare
        self.hash = compare if hash is None else hash


if not TYPE_CHECKING:

    def field(*, default=_ABSENT, default_factory=_ABSENT, repr=True, compare=True, hash=None):
        """As `dataclasses.field`."""
        return Field(default, default_factory, repr, compare, hash)

    def dataclass(cls=None, /, *, frozen=False, slots=False):
        """As `dataclasses.dataclass`."""
        return _made(cls, frozen, slots) if cls is not None else lambda cls: _made(cls, frozen, slots)

    def replace(obj, /, **changes):
        """A copy with other values for some fields."""
        return type(obj)(**{name: getattr(obj, name) for name in names(obj)} | changes)

    def asdict(obj):
        """Its fields, those of fields' values too."""
        return {name: _plain(getattr(obj, name)) for name in names(obj)}


def names(obj: object) -> tuple[str, ...]:
    """Of the fields of an object or a class, in order."""
    return tuple(getattr(obj, _FIELDS))


def _plain(value: Any) -> Any:
    if hasattr(type(value), _FIELDS):
        return asdict(value)
    if isinstance(value, list | tuple):
        return type(value)(_plain(item) for item in value)
    if isinstance(value, dict):
        return {_plain(key): _plain(item) for key, item in value.items()}
    return value


def _made(cls: type[T], frozen: bool, slots: bool) -> type[T]:
    own = _own_fields(cls)
    inherited: dict[str, Field] = {}
    for base in reversed(cls.__mro__[1:]):
        inherited |= base.__dict__.get(_FIELDS, {})
    every = inherited | own
    methods: dict[str, Any] = {
        "__init__": _initialiser(cls, every, frozen),
        "__repr__": _repr,
        "__eq__": _eq,
        "__match_args__": tuple(every),
    }
    if frozen:
        methods |= {"__setattr__": _refuse_to_set, "__delattr__": _refuse_to_delete}
    given = cls.__dict__
    hashing = given.get("__hash__")
    if hashing is None:  # not defined, or taken away with an __eq__ of its own
        methods["__hash__"] = _hash if frozen else None
    methods = {name: method for name, method in methods.items() if name not in given or name == "__hash__"}
    methods[_FIELDS] = every
    if slots:
        return _slotted(cls, own, inherited, methods, frozen)
    for name, method in methods.items():
        setattr(cls, name, method)
    for name, about in own.items():
        if about.default is not _ABSENT:
            setattr(cls, name, about.default)
        elif name in cls.__dict__:
            delattr(cls, name)
    return cls


def _own_fields(cls: type) -> dict[str, Field]:
    found = {}
    for name, kind in cls.__dict__.get("__annotations__", {}).items():  # noqa: RUF063
        if kind.startswith("ClassVar"):
            continue
        given = cls.__dict__.get(name, _ABSENT)
        found[name] = given if isinstance(given, Field) else Field(given, _ABSENT, True, True, None)
    return found


def _initialiser(cls: type, every: Mapping[str, Field], frozen: bool) -> Any:
    scope: dict[str, Any] = {"__name__": cls.__module__, "_absent": _ABSENT, "_set": object.__setattr__}
    words, body = ["self"], []
    for name, about in every.items():
        value = name
        if about.factory is not _ABSENT:
            scope[f"_make_{name}"] = about.factory
            words.append(f"{name}=_absent")
            value = f"_make_{name}() if {name} is _absent else {name}"
        elif about.default is not _ABSENT:
            scope[f"_default_{name}"] = about.default
            words.append(f"{name}=_default_{name}")
        else:
            words.append(name)
        body.append(f" _set(self, {name!r}, {value})" if frozen else f" self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        body.append(" self.__post_init__()")
    exec(f"def __init__({', '.join(words)}):\n" + ("\n".join(body) or " pass"), scope)
    made = scope["__init__"]
    made.__qualname__ = f"{cls.__qualname__}.__init__"
    return made


def _slotted(
    cls: type[T],
    own: Mapping[str, Field],
    inherited: Mapping[str, Field],
    methods: Mapping[str, Any],
    frozen: bool,
) -> type[T]:
    """The class again, with slots: they cannot be given to one that is there."""
    space = {
        name: value
        for name, value in cls.__dict__.items()
        if name not in own and name not in ("__dict__", "__weakref__")
    }
    space |= methods
    space["__slots__"] = tuple(name for name in own if name not in inherited)
    if frozen:
        space.setdefault("__getstate__", _values)
        space.setdefault("__setstate__", _set_values)
    metaclass: Any = type(cls)
    made: type[T] = metaclass(cls.__name__, cls.__bases__, space)
    made.__qualname__ = cls.__qualname__
    return made


# ---- methods of all such classes ---------------------------------------------------------------------------------


def _repr(self: Any) -> str:
    shown = (name for name, about in getattr(self, _FIELDS).items() if about.repr)
    return f"{type(self).__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in shown)})"


def _eq(self: Any, other: object) -> Any:
    if other.__class__ is not self.__class__:
        return NotImplemented
    compared = [name for name, about in getattr(self, _FIELDS).items() if about.compare]
    return [getattr(self, name) for name in compared] == [getattr(other, name) for name in compared]


def _hash(self: Any) -> int:
    return hash(tuple(getattr(self, name) for name, about in getattr(self, _FIELDS).items() if about.hash))


def _refuse_to_set(self: Any, name: str, value: object) -> NoReturn:
    raise AttributeError(f"cannot assign to field {name!r}")


def _refuse_to_delete(self: Any, name: str) -> NoReturn:
    raise AttributeError(f"cannot delete field {name!r}")


def _values(self: Any) -> list[Any]:
    return [getattr(self, name) for name in getattr(self, _FIELDS)]


def _set_values(self: Any, state: list[Any]) -> None:
    for name, value in zip(getattr(self, _FIELDS), state, strict=False):
        object.__setattr__(self, name, value)

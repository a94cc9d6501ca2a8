"""The standard library's `dataclasses`, the part that is used here, for a ninth of the time it takes to define one.

Every rank's interpreter, and that of every command, defines some sixty such classes before it can begin. The standard
library's decorator compiles each of six methods by itself, and imports what reads source code; here `__init__` is
compiled, and the rest is shared by all classes.

    @dataclass(frozen=…, slots=…)   fields, defaults, `field(default_factory=…, repr=…, compare=…, hash=…)`, `__post_init__`,
                                    inheritance, `__match_args__`; equality and order of fields as there; pickles alike
    replace, asdict                 as there; `asdict` copies lists, tuples and dicts on its way

What a class may not say is refused in the words of `dataclasses`: defaults that are shared and mutable, fields without a
default behind one with, `InitVar` and `KW_ONLY` (these are not made here), frozen and other classes in one line of descent.

What differs: no annotations and no docstring are made; the methods of a class are those of all such classes, so
`super().__eq__` in a method that a class brings itself compares all fields, not those of its base; and the standard
library's own functions do not take these classes for theirs.
"""

from __future__ import annotations

import re
import sys
import types
import typing
from collections.abc import Mapping
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

if TYPE_CHECKING:  # for whoever checks types they are the standard library's
    from dataclasses import asdict, dataclass, field, replace

__all__ = ["asdict", "dataclass", "field", "names", "replace"]

T = TypeVar("T")

_FIELDS = "__lean_fields__"
_FROZEN = "__lean_frozen__"
_ANNOTATED = (
    "__lean_annotated__"  # the fields, and each `ClassVar` in its place: a class below may make it a field
)
_ABSENT: Any = type("Absent", (), {"__repr__": lambda self: "<factory>", "__slots__": ()})()
_ATOMS = frozenset({type(None), bool, int, float, complex, str, bytes, type, range, type(...), property})
_FIRST_NAME = re.compile(r"(?:\s*(\w+)\s*\.)?\s*(\w+)")


class Field:
    """How one attribute is made, shown and compared."""

    __slots__ = ("compare", "default", "factory", "hash", "repr")

    def __init__(self, default: Any, factory: Any, repr: bool, compare: bool, hash: bool | None) -> None:
        self.default = default
        self.factory = factory
        self.repr = repr
        self.compare = compare
        self.hash = compare if hash is None else hash


_VARIABLE = Field(_ABSENT, _ABSENT, False, False, False)

if not TYPE_CHECKING:

    def field(*, default=_ABSENT, default_factory=_ABSENT, repr=True, compare=True, hash=None):
        """As `dataclasses.field`."""
        if default is not _ABSENT and default_factory is not _ABSENT:
            raise ValueError("cannot specify both default and default_factory")
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
    kind = type(value)
    if kind in _ATOMS:
        return value
    if hasattr(kind, _FIELDS):
        return asdict(value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return kind(*[_plain(item) for item in value])
    if isinstance(value, list | tuple):
        return kind(_plain(item) for item in value)
    if isinstance(value, dict):
        pairs: Any = ((_plain(key), _plain(item)) for key, item in value.items())
        factory: Any = getattr(value, "default_factory", _ABSENT)  # a defaultdict's
        return kind(pairs) if factory is _ABSENT else kind(factory, pairs)
    from copy import deepcopy  # rare, and slow to load

    return deepcopy(value)


def _made(cls: type[T], frozen: bool, slots: bool) -> type[T]:
    own = _own_fields(cls)
    annotated = _inherited(cls, frozen) | own
    every = {name: about for name, about in annotated.items() if about is not _VARIABLE}
    _check_order(every)
    given = cls.__dict__
    methods: dict[str, Any] = {
        "__init__": _initialiser(cls, every, frozen),
        "__repr__": _repr,
        "__eq__": _eq,
        "__match_args__": tuple(every),
    }
    methods = {name: method for name, method in methods.items() if name not in given}
    if frozen:
        for name, method in (("__setattr__", _refuse_to_set), ("__delattr__", _refuse_to_delete)):
            if name in given:
                raise TypeError(f"Cannot overwrite attribute {name} in class {cls.__name__}")
            methods[name] = method
    if given.get("__hash__", _ABSENT) is _ABSENT or (given["__hash__"] is None and "__eq__" in given):
        # not defined, or taken away by the interpreter because of an __eq__ of its own
        methods["__hash__"] = _hash if frozen else None
    methods |= {_FIELDS: every, _ANNOTATED: annotated, _FROZEN: frozen}
    if slots:
        return _slotted(cls, every, methods, frozen)
    for name, method in methods.items():
        setattr(cls, name, method)
    for name, about in own.items():
        if cls.__dict__.get(name) is about:  # else the default itself stands there, or in a base
            _put_default(cls, name, about)
    return cls


def _put_default(cls: type, name: str, about: Field) -> None:
    """In place of the `field()` of the source."""
    if about.default is not _ABSENT:
        setattr(cls, name, about.default)
    else:
        delattr(cls, name)


def _inherited(cls: type, frozen: bool) -> dict[str, Field]:
    fields: dict[str, Field] = {}
    for base in reversed(cls.__mro__[1:-1]):
        if _FIELDS in base.__dict__:
            fields |= base.__dict__[_ANNOTATED]
            if base.__dict__[_FROZEN] and not frozen:
                raise TypeError("cannot inherit non-frozen dataclass from a frozen one")
            if frozen and not base.__dict__[_FROZEN]:
                raise TypeError("cannot inherit frozen dataclass from a non-frozen one")
    return fields


def _own_fields(cls: type) -> dict[str, Field]:
    """What the class itself annotates."""
    found: dict[str, Field] = {}
    annotations = cls.__dict__.get("__annotations__", {})  # noqa: RUF063
    for name, kind in annotations.items():
        meant = _typing_name(cls, kind)
        if meant == "ClassVar":
            given = cls.__dict__.get(name)
            if isinstance(given, Field):
                if given.factory is not _ABSENT:
                    raise TypeError(f"field {name} cannot have a default factory")
                _put_default(cls, name, given)
            found[name] = _VARIABLE
            continue
        if meant in ("InitVar", "KW_ONLY"):
            raise TypeError(f"field {name!r}: {meant} is not supported by {__name__}")
        given = getattr(cls, name, _ABSENT)  # a default may be that of a base
        if isinstance(given, types.MemberDescriptorType):
            given = _ABSENT  # the slot of a base
        about = given if isinstance(given, Field) else Field(given, _ABSENT, True, True, None)
        if type(about.default).__hash__ is None:
            raise ValueError(
                f"mutable default {type(about.default)} for field {name} is not allowed: use default_factory"
            )
        found[name] = about
    for name, value in cls.__dict__.items():
        if isinstance(value, Field) and name not in annotations:
            raise TypeError(f"{name!r} is a field but has no type annotation")
    return found


def _typing_name(cls: type, kind: Any) -> str | None:
    """Which of the names that make an annotation no field begins it, found as `dataclasses` finds it: in the namespace of
    the module, without evaluating the text.
    """
    if isinstance(kind, str):
        found = _FIRST_NAME.match(kind)
        space: Any = getattr(sys.modules.get(cls.__module__), "__dict__", {})
        if found is not None and found[1]:
            space = getattr(space.get(found[1]), "__dict__", {})
        if found is None or found[2] not in space:
            return None
        kind = space[found[2]]
    if kind is typing.ClassVar or getattr(kind, "__origin__", None) is typing.ClassVar:
        return "ClassVar"
    known: Any = sys.modules.get("dataclasses")
    if known is not None and kind is not None:
        if kind is known.InitVar or type(kind) is known.InitVar:
            return "InitVar"
        if kind is known.KW_ONLY:
            return "KW_ONLY"
    return None


def _check_order(every: Mapping[str, Field]) -> None:
    before = None
    for name, about in every.items():
        if about.default is not _ABSENT or about.factory is not _ABSENT:
            before = name
        elif before is not None:
            raise TypeError(f"non-default argument {name!r} follows default argument {before!r}")


def _initialiser(cls: type, every: Mapping[str, Field], frozen: bool) -> Any:
    # names that no field has
    scope: dict[str, Any] = {
        "__name__": cls.__module__,
        "__lean_absent__": _ABSENT,
        "__lean_set__": object.__setattr__,
    }
    me = "__lean_self__" if "self" in every else "self"
    words, body = [me], []
    for name, about in every.items():
        value = name
        if about.factory is not _ABSENT:
            scope[f"__lean_make_{name}__"] = about.factory
            words.append(f"{name}=__lean_absent__")
            value = f"__lean_make_{name}__() if {name} is __lean_absent__ else {name}"
        elif about.default is not _ABSENT:
            scope[f"__lean_default_{name}__"] = about.default
            words.append(f"{name}=__lean_default_{name}__")
        else:
            words.append(name)
        body.append(f" __lean_set__({me}, {name!r}, {value})" if frozen else f" {me}.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        body.append(f" {me}.__post_init__()")
    exec(f"def __init__({', '.join(words)}):\n" + ("\n".join(body) or " pass"), scope)
    made = scope["__init__"]
    made.__qualname__ = f"{cls.__qualname__}.__init__"
    return made


def _slotted(cls: type[T], every: Mapping[str, Field], methods: Mapping[str, Any], frozen: bool) -> type[T]:
    """The class again, with slots: they cannot be given to one that is there."""
    if "__slots__" in cls.__dict__:
        raise TypeError(f"{cls.__name__} already specifies __slots__")
    space = {
        name: value
        for name, value in cls.__dict__.items()
        if name not in every and name not in ("__dict__", "__weakref__")
    }
    space |= methods
    there: set[str] = set()
    for base in cls.__mro__[1:-1]:
        slots = base.__dict__.get("__slots__", ())
        there.update((slots,) if isinstance(slots, str) else slots)
    space["__slots__"] = tuple(name for name in every if name not in there)
    if frozen:
        space.setdefault("__getstate__", _values)
        space.setdefault("__setstate__", _set_values)
    metaclass: Any = type(cls)
    made: type[T] = metaclass(cls.__name__, cls.__bases__, space)
    made.__qualname__ = cls.__qualname__
    return made


# ---- methods of all such classes ---------------------------------------------------------------------------------


@recursive_repr()
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


def _is_frozen(self: Any, name: str) -> bool:
    """A class below that is not made here may have attributes of its own."""
    kind = type(self)
    return _FIELDS in kind.__dict__ or name in getattr(kind, _FIELDS)


def _refuse_to_set(self: Any, name: str, value: object) -> None:
    if _is_frozen(self, name):
        _refuse(f"cannot assign to field {name!r}")
    object.__setattr__(self, name, value)


def _refuse_to_delete(self: Any, name: str) -> None:
    if _is_frozen(self, name):
        _refuse(f"cannot delete field {name!r}")
    object.__delattr__(self, name)


def _refuse(words: str) -> NoReturn:
    raise AttributeError(words)


def _values(self: Any) -> list[Any]:
    return [getattr(self, name) for name in getattr(self, _FIELDS)]


def _set_values(self: Any, state: list[Any]) -> None:
    for name, value in zip(getattr(self, _FIELDS), state, strict=False):
        object.__setattr__(self, name, value)

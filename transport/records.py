"""A small version of the standard library's `dataclasses`: it defines a class in a ninth of the time.

Every interpreter, that of a rank and that of a command, defines some sixty such classes before its work begins. The
standard library's decorator compiles six methods for each class and imports the modules that inspect source code; this one
compiles `__init__` only, when it is first asked for (most classes have no instance at the start), and all classes share the
other methods.

    @dataclass(frozen=…, slots=…)   fields, defaults, `field(default_factory=…, repr=…, compare=…, hash=…)`, `__post_init__`,
                                    inheritance, `__match_args__`; equality, order of fields and pickles as in `dataclasses`
    NamedTuple                      as `typing.NamedTuple` in a class statement: see `ckpt.transport.namedtuples`
    replace, asdict                 as in `dataclasses`; `asdict` also copies lists, tuples and dicts

A class that `dataclasses` refuses is refused here with the same words: a mutable default, a field without a default after
one with a default, a frozen class that inherits from one that is not, and the reverse. `InitVar` and `KW_ONLY` are refused
because they are not supported here.

Three things differ from `dataclasses`. The class gets no docstring and `__init__` no annotations. All classes share the
same methods, so `super().__eq__` in a class's own method compares all fields, not only those of the base. And the functions
of the standard library (`dataclasses.fields`, `is_dataclass`) do not recognise these classes.
"""

from __future__ import annotations

import re
import sys
import types
import typing
from collections.abc import Mapping
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

if TYPE_CHECKING:  # a type checker sees the standard library's
    from dataclasses import asdict, dataclass, field, replace
    from typing import NamedTuple
else:
    from ckpt.transport.namedtuples import NamedTuple

__all__ = ["NamedTuple", "asdict", "compile_init", "dataclass", "field", "names", "replace"]

T = TypeVar("T")

_FIELDS = "__record_fields__"
_FROZEN = "__record_frozen__"
_ANNOTATED = "__record_annotated__"
"""The fields and, as `_VARIABLE`, each `ClassVar`: a subclass may turn it into a field, at this place of the order."""
_MISSING: Any = type("Missing", (), {"__repr__": lambda self: "<factory>", "__slots__": ()})()
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


_VARIABLE = Field(_MISSING, _MISSING, False, False, False)

if not TYPE_CHECKING:

    def field(*, default=_MISSING, default_factory=_MISSING, repr=True, compare=True, hash=None):
        """The same as `dataclasses.field`."""
        if default is not _MISSING and default_factory is not _MISSING:
            raise ValueError("cannot specify both default and default_factory")
        return Field(default, default_factory, repr, compare, hash)

    def dataclass(cls=None, /, *, frozen=False, slots=False):
        """The same as `dataclasses.dataclass`, with two of its options."""
        return (
            _process_class(cls, frozen, slots)
            if cls is not None
            else lambda cls: _process_class(cls, frozen, slots)
        )

    def replace(obj, /, **changes):
        """Return a copy of `obj` in which the fields named in `changes` have other values."""
        return type(obj)(**{name: getattr(obj, name) for name in names(obj)} | changes)

    def asdict(obj):
        """Return the fields of `obj` as a dict; values that have fields become dicts too."""
        return {name: _plain(getattr(obj, name)) for name in names(obj)}


def names(obj: object) -> tuple[str, ...]:
    """The names of the fields of an object or a class, in order."""
    return tuple(getattr(obj, _FIELDS))


def compile_init(cls: type) -> None:
    """Compile the `__init__` of a class now, for all processes that will be forked from this one."""
    _ = cls.__init__  # type: ignore[misc]


def _plain(value: Any) -> Any:
    cls = type(value)
    if cls in _ATOMS:
        return value
    if hasattr(cls, _FIELDS):
        return asdict(value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return cls(*[_plain(item) for item in value])
    if isinstance(value, list | tuple):
        return cls(_plain(item) for item in value)
    if isinstance(value, dict):
        pairs: Any = ((_plain(key), _plain(item)) for key, item in value.items())
        factory: Any = getattr(value, "default_factory", _MISSING)  # a defaultdict's
        return cls(pairs) if factory is _MISSING else cls(factory, pairs)
    from copy import deepcopy  # seldom needed, and slow to import

    return deepcopy(value)


def _process_class(cls: type[T], frozen: bool, slots: bool) -> type[T]:
    own = _own_fields(cls)
    annotated = _inherited_fields(cls, frozen) | own
    fields = {name: field_ for name, field_ in annotated.items() if field_ is not _VARIABLE}
    _check_order(fields)
    given = cls.__dict__
    methods: dict[str, Any] = {
        "__init__": _Uncompiled(cls, fields, frozen),
        "__repr__": _repr,
        "__eq__": _eq,
        "__match_args__": tuple(fields),
    }
    methods = {name: method for name, method in methods.items() if name not in given}
    if frozen:
        for name, method in (("__setattr__", _refuse_to_set), ("__delattr__", _refuse_to_delete)):
            if name in given:
                raise TypeError(f"Cannot overwrite attribute {name} in class {cls.__name__}")
            methods[name] = method
    if given.get("__hash__", _MISSING) is _MISSING or (given["__hash__"] is None and "__eq__" in given):
        # the class does not define it, or the interpreter set it to None because the class defines __eq__
        methods["__hash__"] = _hash if frozen else None
    methods |= {_FIELDS: fields, _ANNOTATED: annotated, _FROZEN: frozen}
    if slots:
        return _add_slots(cls, fields, methods, frozen)
    for name, method in methods.items():
        setattr(cls, name, method)
    for name, field_ in own.items():
        if cls.__dict__.get(name) is field_:  # otherwise the default itself is there, or in a base
            _put_default(cls, name, field_)
    return cls


def _put_default(cls: type, name: str, field_: Field) -> None:
    """Replace the `Field` object that `field()` left in the class by the default, if there is one."""
    if field_.default is not _MISSING:
        setattr(cls, name, field_.default)
    else:
        delattr(cls, name)


def _inherited_fields(cls: type, frozen: bool) -> dict[str, Field]:
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
    """The fields and class variables that the class itself annotates."""
    found: dict[str, Field] = {}
    annotations = cls.__dict__.get("__annotations__", {})  # noqa: RUF063
    for name, annotation in annotations.items():
        special_form = _typing_name(cls, annotation)
        if special_form == "ClassVar":
            given = cls.__dict__.get(name)
            if isinstance(given, Field):
                if given.factory is not _MISSING:
                    raise TypeError(f"field {name} cannot have a default factory")
                _put_default(cls, name, given)
            found[name] = _VARIABLE
            continue
        if special_form in ("InitVar", "KW_ONLY"):
            raise TypeError(f"field {name!r}: {special_form} is not supported by {__name__}")
        given = getattr(cls, name, _MISSING)  # a default may be that of a base
        if isinstance(given, types.MemberDescriptorType):
            given = _MISSING  # the slot of a base
        field_ = given if isinstance(given, Field) else Field(given, _MISSING, True, True, None)
        if type(field_.default).__hash__ is None:
            raise ValueError(
                f"mutable default {type(field_.default)} for field {name} is not allowed: use default_factory"
            )
        found[name] = field_
    for name, value in cls.__dict__.items():
        if isinstance(value, Field) and name not in annotations:
            raise TypeError(f"{name!r} is a field but has no type annotation")
    return found


def _typing_name(cls: type, annotation: Any) -> str | None:
    """Return "ClassVar", "InitVar" or "KW_ONLY" if the annotation is one of these, which make no field, and else None.

    A text is not evaluated: as in `dataclasses`, the name it begins with is looked up in the namespace of the module.
    """
    if isinstance(annotation, str):
        found = _FIRST_NAME.match(annotation)
        space: Any = getattr(sys.modules.get(cls.__module__), "__dict__", {})
        if found is not None and found[1]:
            space = getattr(space.get(found[1]), "__dict__", {})
        if found is None or found[2] not in space:
            return None
        annotation = space[found[2]]
    if annotation is typing.ClassVar or getattr(annotation, "__origin__", None) is typing.ClassVar:
        return "ClassVar"
    known: Any = sys.modules.get("dataclasses")
    if known is not None and annotation is not None:
        if annotation is known.InitVar or type(annotation) is known.InitVar:
            return "InitVar"
        if annotation is known.KW_ONLY:
            return "KW_ONLY"
    return None


def _check_order(fields: Mapping[str, Field]) -> None:
    before = None
    for name, field_ in fields.items():
        if field_.default is not _MISSING or field_.factory is not _MISSING:
            before = name
        elif before is not None:
            raise TypeError(f"non-default argument {name!r} follows default argument {before!r}")


def _make_init(
    module: str, qualname: str, fields: Mapping[str, Field], frozen: bool, has_post_init: bool
) -> types.FunctionType:
    # no field has one of these names
    scope: dict[str, Any] = {
        "__name__": module,
        "__record_missing__": _MISSING,
        "__record_set__": object.__setattr__,
    }
    self_name = "__record_self__" if "self" in fields else "self"
    parameters, body = [self_name], []
    for name, field_ in fields.items():
        value = name
        if field_.factory is not _MISSING:
            scope[f"__record_make_{name}__"] = field_.factory
            parameters.append(f"{name}=__record_missing__")
            value = f"__record_make_{name}__() if {name} is __record_missing__ else {name}"
        elif field_.default is not _MISSING:
            scope[f"__record_default_{name}__"] = field_.default
            parameters.append(f"{name}=__record_default_{name}__")
        else:
            parameters.append(name)
        body.append(
            f" __record_set__({self_name}, {name!r}, {value})" if frozen else f" {self_name}.{name} = {value}"
        )
    if has_post_init:
        body.append(f" {self_name}.__post_init__()")
    exec(f"def __init__({', '.join(parameters)}):\n" + ("\n".join(body) or " pass"), scope)
    made: types.FunctionType = scope["__init__"]
    made.__qualname__ = f"{qualname}.__init__"
    return made


class _Uncompiled:
    """Stands in a class for its `__init__`, until an instance or somebody else asks for it (the descriptor protocol)."""

    __slots__ = ("_arguments",)

    def __init__(self, cls: type, fields: Mapping[str, Field], frozen: bool) -> None:
        self._arguments = cls.__module__, cls.__qualname__, fields, frozen, hasattr(cls, "__post_init__")

    def __get__(self, obj: object, owner: type) -> Any:
        made = _make_init(*self._arguments)
        for (
            cls
        ) in owner.__mro__:  # the class itself, one with slots that replaces it, or a class that inherits it
            if cls.__dict__.get("__init__") is self:
                type.__setattr__(cls, "__init__", made)
        return made if obj is None else types.MethodType(made, obj)


def _add_slots(
    cls: type[T], fields: Mapping[str, Field], methods: Mapping[str, Any], frozen: bool
) -> type[T]:
    """Return a new class like `cls` that has slots: a class that exists cannot get them."""
    if "__slots__" in cls.__dict__:
        raise TypeError(f"{cls.__name__} already specifies __slots__")
    space = {
        name: value
        for name, value in cls.__dict__.items()
        if name not in fields and name not in ("__dict__", "__weakref__")
    }
    space |= methods
    inherited_slots: set[str] = set()
    for base in cls.__mro__[1:-1]:
        slots = base.__dict__.get("__slots__", ())
        inherited_slots.update((slots,) if isinstance(slots, str) else slots)
    space["__slots__"] = tuple(name for name in fields if name not in inherited_slots)
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
    shown = (name for name, field_ in getattr(self, _FIELDS).items() if field_.repr)
    return f"{type(self).__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in shown)})"


def _eq(self: Any, other: object) -> Any:
    if other.__class__ is not self.__class__:
        return NotImplemented
    compared = [name for name, field_ in getattr(self, _FIELDS).items() if field_.compare]
    return [getattr(self, name) for name in compared] == [getattr(other, name) for name in compared]


def _hash(self: Any) -> int:
    return hash(tuple(getattr(self, name) for name, field_ in getattr(self, _FIELDS).items() if field_.hash))


def _is_frozen(self: Any, name: str) -> bool:
    """Is assignment to `name` refused? A plain subclass of a frozen class may have more attributes, not frozen ones."""
    cls = type(self)
    return _FIELDS in cls.__dict__ or name in getattr(cls, _FIELDS)


def _refuse_to_set(self: Any, name: str, value: object) -> None:
    if _is_frozen(self, name):
        _refuse(f"cannot assign to field {name!r}")
    object.__setattr__(self, name, value)


def _refuse_to_delete(self: Any, name: str) -> None:
    if _is_frozen(self, name):
        _refuse(f"cannot delete field {name!r}")
    object.__delattr__(self, name)


def _refuse(reason: str) -> NoReturn:
    raise AttributeError(reason)


def _values(self: Any) -> list[Any]:
    return [getattr(self, name) for name in getattr(self, _FIELDS)]


def _set_values(self: Any, state: list[Any]) -> None:
    for name, value in zip(getattr(self, _FIELDS), state, strict=False):
        object.__setattr__(self, name, value)

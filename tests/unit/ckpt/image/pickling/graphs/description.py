"""What a graph of objects looks like from outside: one line for each object, which refers to others by their numbers.

Two graphs with equal lines have the same objects, with the same references between them: identity included. Objects get
their numbers in the order in which they are met. To describe an iterator uses it up, and to describe random numbers draws
some.
"""

from __future__ import annotations

import array
import collections
import contextvars
import enum
import functools
import io
import queue
import random
import re
import sys
import types
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tests.unit.ckpt.image.pickling.graphs.builder import VALUES

_ADDRESS = re.compile(r"(?i)( at )?0x[0-9a-f]+")
_PACKAGE = __name__.rpartition(".")[0]  # of classes whose attributes say all
_MOST_OBJECTS = 4000
_ITEMS = 4  # of an iterator
_NO_ATTRIBUTES = (
    "threading",
    "queue",
    "weakref",
    "random",
    "_io",
    "functools",
    "pathlib",
    "decimal",
    "fractions",
    "uuid",
)
_METHODS = (types.BuiltinFunctionType, types.MethodWrapperType)


def described(root: Any) -> list[str]:
    return _Description().lines(root)


class _Description:
    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}
        self._waiting: collections.deque[Any] = collections.deque()
        self._kept: list[Any] = []  # so that no address is used twice

    def lines(self, root: Any) -> list[str]:
        self.name(root)
        found: list[str] = []
        while self._waiting and len(found) < _MOST_OBJECTS:
            obj = self._waiting.popleft()
            cls = (
                "iterator" if isinstance(obj, Iterator) else type(obj).__name__
            )  # of a changed dict: see `Changed`
            found.append(f"#{self._numbers[id(obj)]} {cls} {self.line(obj)}")
        return found

    def name(self, obj: Any) -> str:
        """What a line calls the object."""
        if type(obj) in weakref.ProxyTypes:
            return self._proxy(obj)
        if obj is None or obj is ... or obj is NotImplemented:
            return repr(obj)
        if type(obj) in VALUES:
            return f"{type(obj).__name__} {obj!r}"
        if isinstance(obj, type) and obj.__module__ in ("builtins", "collections"):
            return obj.__qualname__
        if isinstance(obj, types.ModuleType) and sys.modules.get(obj.__name__) is obj:
            return f"module {obj.__name__}"
        if id(obj) not in self._numbers:
            self._numbers[id(obj)] = len(self._numbers)
            self._kept.append(obj)
            self._waiting.append(obj)
        return f"#{self._numbers[id(obj)]}"

    @staticmethod
    def _proxy(proxy: Any) -> str:
        try:
            return f"proxy of {getattr(proxy, 'label', None)}"
        except ReferenceError:
            return "proxy of what is gone"

    def names(self, objects: Any) -> str:
        return "[" + ", ".join(map(self.name, objects)) + "]"

    def pairs(self, pairs: Any) -> str:
        return "{" + ", ".join(f"{self.name(key)}: {self.name(value)}" for key, value in pairs) + "}"

    def line(self, obj: Any) -> str:
        for cls, describe in _WAYS:
            if isinstance(obj, cls):
                return describe(self, obj) + ("" if isinstance(obj, Iterator) else self.attributes(obj))
        return _ADDRESS.sub("", repr(obj)) + self.attributes(obj)

    def attributes(self, obj: Any) -> str:
        """Its dictionary and its slots."""
        cls = type(obj)
        if isinstance(obj, (type, types.ModuleType)) or cls.__module__ in _NO_ATTRIBUTES:
            return ""
        slots = [
            (name, getattr(obj, name))
            for owner in cls.__mro__
            for name in getattr(owner, "__slots__", ())
            if "kinds" in owner.__module__ and name not in ("__dict__", "__weakref__") and hasattr(obj, name)
        ]
        own = getattr(obj, "__dict__", None)
        return " with " + self.pairs([*slots, *(own.items() if isinstance(own, dict) else ())])

    # ------------------------------------------------------------------ containers

    def sequence(self, obj: Any) -> str:
        return self.names(obj) + (f" of at most {obj.maxlen}" if isinstance(obj, collections.deque) else "")

    def members(self, obj: Any) -> str:
        assert all(member in obj for member in obj), "a member is not found"
        return self.names(sorted(obj, key=_order))

    def mapping(self, obj: Any) -> str:
        assert all(key in obj for key in list(obj)), "a key is not found"
        factory = self.name(obj.default_factory) if isinstance(obj, collections.defaultdict) else ""
        return self.pairs(list(obj.items())) + factory

    # ------------------------------------------------------------------ functions, classes, errors

    def function(self, obj: Any) -> str:
        parts = (obj.__closure__, obj.__defaults__, obj.__kwdefaults__)
        return f"{obj.__qualname__} {self.names(parts)}"

    def own_class(self, obj: Any) -> str:
        own = [
            (name, value)
            for name, value in obj.__dict__.items()
            if name in ("attribute", "function", "later")
        ]
        return f"{obj.__qualname__} {self.names(obj.__bases__)} {self.name(type(obj))} {self.pairs(own)}"

    def exception(self, obj: Any) -> str:
        parts = [obj.args, obj.__cause__, obj.__context__, *getattr(obj, "exceptions", ())]
        return f"{self.names(parts)} {obj.__suppress_context__} {obj.__traceback__ is None}"

    def weak(self, obj: Any) -> str:
        target = obj()
        return self.names([target, None if target is None else obj.__callback__])

    # ------------------------------------------------------------------ others

    def ndarray(self, obj: Any) -> str:
        text = f"{obj.dtype} {obj.shape} {(obj.strides, obj.flags.writeable) if obj.size else ''}"
        if obj.dtype.hasobject and obj.dtype.names is None:
            return f"{text} {self.names(obj.flat)}"
        if obj.size and (owner := _owner(obj)) is not obj:
            where = obj.__array_interface__["data"][0] - owner.__array_interface__["data"][0]
            text += f" at {where} of {self.name(owner)}"
        return text if obj.dtype.hasobject else f"{text} {obj.tolist()}"

    def queued(self, obj: Any) -> str:
        items = []
        while not obj.empty():
            items.append(obj.get())
        return self.names(items)

    def generator(self, obj: Any) -> str:
        variables = obj.gi_frame.f_locals if obj.gi_frame else {}
        return f"{self.pairs(variables.items())} {self.iterator(obj)}"

    def iterator(self, obj: Any) -> str:
        items = []
        for _ in range(_ITEMS):
            try:
                items.append(self.name(next(obj)))
            except (StopIteration, RuntimeError):  # an error of `zip_longest` comes once
                return f"{items} and the end"
            except Exception as error:
                return f"{items} and {type(error).__name__}"
        return f"{items}"


def _owner(view: Any) -> Any:
    """The last array in the chain of bases: a view of a view may be one of the owner itself, later."""
    owner = base = view
    while isinstance(base, (np.ndarray, np.void)):
        owner = base if isinstance(base, np.ndarray) else owner
        base = base.base
    return owner


def _order(member: Any) -> tuple[Any, ...]:
    if type(getattr(member, "label", None)) is int:
        return (type(member).__name__, member.label)
    inner = tuple(map(_order, member)) if isinstance(member, tuple) else ()
    if isinstance(member, frozenset):
        inner = tuple(sorted(map(_order, member), key=repr))
    return (type(member).__name__, 0, repr(inner or (None if isinstance(member, frozenset) else member)))


def _by_text(text: Callable[[Any], str]) -> Callable[[_Description, Any], str]:
    return lambda description, obj: text(obj)


def _by_parts(parts: Callable[[Any], Any]) -> Callable[[_Description, Any], str]:
    return lambda description, obj: description.names(parts(obj))


_WEAK_MAPPINGS = (weakref.WeakValueDictionary, weakref.WeakKeyDictionary)
_WAYS: tuple[tuple[Any, Callable[[_Description, Any], str]], ...] = (
    (np.ndarray, _Description.ndarray),
    (np.generic, _by_text(lambda obj: f"{obj.dtype} {getattr(obj, 'base', None) is None}")),
    ((list, tuple, collections.deque, collections.UserList), _Description.sequence),
    ((set, frozenset, weakref.WeakSet), _Description.members),
    (collections.ChainMap, _by_parts(lambda obj: obj.maps)),
    ((dict, collections.UserDict, types.MappingProxyType, *_WEAK_MAPPINGS), _Description.mapping),
    ((type({}.keys()), type({}.values()), type({}.items())), _by_parts(lambda obj: [obj.mapping])),
    (weakref.ref, _Description.weak),
    (types.FunctionType, _Description.function),
    (types.CellType, _by_parts(lambda obj: [obj.cell_contents])),
    (types.MethodType, _by_parts(lambda obj: [obj.__self__, obj.__func__])),
    (_METHODS, lambda description, obj: f"{obj.__name__} of {description.name(obj.__self__)}"),
    (functools.partial, _by_parts(lambda obj: [obj.func, obj.args, obj.keywords])),
    (functools.partialmethod, _by_parts(lambda obj: [obj.func, obj.args, obj.keywords])),
    (functools._lru_cache_wrapper, _by_parts(lambda obj: [obj.__wrapped__])),
    (property, _by_parts(lambda obj: [obj.fget])),
    ((staticmethod, classmethod), _by_parts(lambda obj: [obj.__func__])),
    (type, _Description.own_class),
    (types.ModuleType, lambda description, obj: description.name(getattr(obj, "x", None))),
    (BaseException, _Description.exception),
    (enum.Enum, _by_text(str)),
    ((bytearray, array.array), _by_text(repr)),
    (memoryview, lambda description, obj: f"{obj.tobytes()!r} {description.name(obj.obj)}"),
    ((io.StringIO, io.BytesIO), _by_text(lambda obj: f"{obj.tell()} {obj.getvalue()!r}")),
    ((queue.Queue, queue.SimpleQueue), _Description.queued),
    (contextvars.Context, lambda description, obj: description.names(obj.values())),
    ((random.Random, np.random.Generator), _by_text(lambda obj: repr(obj.random()))),
    (types.GeneratorType, _Description.generator),
    (Iterator, _Description.iterator),
    (types.SimpleNamespace, _by_text(lambda obj: "")),
    (object, _by_text(lambda obj: "" if _PACKAGE in type(obj).__module__ else _ADDRESS.sub("", repr(obj)))),
)

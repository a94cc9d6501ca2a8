"""Objects as they are in memory: looked at without running any code of the program.

No ``__getattribute__``, ``__class__``, ``__eq__`` or ``__iter__`` of a class is called. Keys of dicts are hashed and
compared only if they are strings or integers. Also here: an object is found again by the names and keys that lead to it.
"""

from __future__ import annotations

import sys
import types
import weakref
from collections import OrderedDict, deque
from threading import local
from typing import Any

from ckpt.compat.typeobjects import has_dictionary, instance_dictionary, is_heap

__all__ = [
    "ADDRESSES",
    "WEAK",
    "Path",
    "attributes_of",
    "content_of",
    "copied",
    "dictionary_of",
    "follow",
    "is_a",
    "is_named",
    "is_special",
    "package_of",
    "slots_of",
    "namespace_of",
]

Path = tuple[Any, ...]
"""Module, variable, and steps from there: a name for an attribute, ``(key,)`` for a member of a container."""

ADDRESSES = range(1 << 32, 1 << 47, 8)
"""Numbers that may be the address of an object, which is what ``id()`` returns."""

WEAK = (weakref.WeakKeyDictionary, weakref.WeakValueDictionary, weakref.WeakSet)

_slots: dict[type, dict[str, Any]] = {}
_MISSING: Any = object()


def package_of(module: str) -> str:
    return module.partition(".")[0]


def is_special(name: str) -> bool:
    """Is it a name that Python itself gives a meaning (``__doc__``)? One that only begins so is a private one."""
    return name.startswith("__") and name.endswith("__")


def copied(value: Any) -> Any:
    """An equal text or number that is another object."""
    return f"{value} "[:-1] if type(value) is str else float(repr(value))


def is_a(obj: Any, cls: Any) -> bool:
    """Is ``obj`` an instance of ``cls``, by its true type? ``isinstance`` would also call a property ``__class__``."""
    return issubclass(type(obj), cls)


def namespace_of(cls: Any) -> Any:
    """The namespace (``__dict__``) of a class, past its metaclass; empty for a type in C that nobody has used yet."""
    return type.__dict__["__dict__"].__get__(cls) or {}


def slots_of(cls: type) -> dict[str, Any]:
    """Name → descriptor of the slots of its instances."""
    slots = _slots.get(cls)
    if slots is None:
        slots = _slots[cls] = {
            name: value
            for base in reversed(cls.__mro__)
            if is_heap(base)
            for name, value in namespace_of(base).items()
            if type(value) is types.MemberDescriptorType
        }
    return slots


def dictionary_of(obj: Any) -> dict[str, Any] | None:
    """The dictionary of an instance (no copy); of a ``threading.local``, the dictionary of this thread."""
    try:
        if is_a(obj, local):
            found = local.__getattribute__(obj, "__dict__")
        elif has_dictionary(type(obj)):
            found = instance_dictionary(obj)
        else:
            return None
    except AttributeError:
        return None
    return found if type(found) is dict else None


def attributes_of(obj: Any) -> dict[str, Any] | None:
    """A copy of the attributes of an instance, slots included; ``None``: instances of its class have no attributes."""
    dictionary, slots = dictionary_of(obj), slots_of(type(obj))
    if dictionary is None and not slots:
        return None
    found = {} if dictionary is None else dict(dictionary)
    for name, slot in slots.items():
        try:
            found[name] = slot.__get__(obj)
        except AttributeError:
            continue  # not set
    return found


def content_of(obj: Any) -> Any:
    """A copy of the content of a container, made by the builtin type's own methods; of a weak one, its pairs or members."""
    if type(obj) in WEAK:
        return list(obj) if type(obj) is weakref.WeakSet else list(obj.items())
    if is_a(obj, OrderedDict):
        return [(key, OrderedDict.__getitem__(obj, key)) for key in OrderedDict.__iter__(obj)]
    if is_a(obj, dict):
        # dict.copy would call methods of a class that has an __iter__ of its own
        return dict(dict.items(obj)) if _has_own_iter(type(obj)) else dict.copy(obj)
    if is_a(obj, set):
        return set.copy(obj)
    return list(list.__iter__(obj) if is_a(obj, list) else deque.__iter__(obj))


def _has_own_iter(cls: type) -> bool:
    """Has this subclass of ``dict`` an ``__iter__`` of its own?"""
    mro = type.__dict__["__mro__"].__get__(cls)
    return any("__iter__" in namespace_of(base) for base in mro[: mro.index(dict)])


def follow(path: Path) -> Any:
    """The object at a place in this process. Raises LookupError where there is none."""
    found: Any = getattr(sys.modules[path[0]], "__dict__", {})[path[1]]
    for step in path[2:]:
        if type(step) is tuple:
            if is_a(found, (list, tuple)):
                found = (list if is_a(found, list) else tuple).__getitem__(found, step[0])
            elif not is_a(found, dict) or (found := dict.get(found, step[0], _MISSING)) is _MISSING:
                raise KeyError(step[0])
        elif step == "__self__" and type(found) is types.MethodWrapperType:
            found = found.__self__
        elif is_a(found, type):
            found = namespace_of(found)[step]
        else:
            found = (attributes_of(found) or {})[step]
    return found


def is_named(cls: type) -> bool:
    """Is the class found by its own qualified name?"""
    found: Any = sys.modules.get(namespace_of(cls).get("__module__"))
    if not is_a(found, types.ModuleType):
        return False
    found = found.__dict__
    last = None
    for part in type.__dict__["__qualname__"].__get__(cls).split("."):
        last = found.get(part)
        if not is_a(last, type):
            return False
        found = namespace_of(last)
    return last is cls

"""Decides whether what a program has changed in an installed package is *plain*: settings and registries. Only plain changes
are kept.

A value is plain if all of its state is seen from Python, and it is not in the middle of something: it consists of values and
names that a new process can have too. Else it may depend on what no image looks at (C, other processes, another thread), and
a flag "is set up" would come back without the thing.

=====================  =======================================================================================
plain                  numbers, texts, bytes, dates, paths, patterns, arrays of numbers, members of enumerations
plain                  what is saved by a name: modules, classes, functions, loggers, variables of other modules
plain                  what is defined in the program: its functions, classes and their instances
plain, by its parts    containers; instances of classes written in Python; bound methods, ``partial``, properties;
                       functions and classes that no name leads to (closures, lambdas, classes made at run time)
plain                  random generators, those of numpy, too; counters, locks that nobody holds
plain                  weak containers, by their keys or values that are not weak: what is held weakly is there only
                       as long as something else holds it
plain, by what is      weak references without a callback
there
not plain              iterators, generators, coroutines, held locks, other weak references, files
not plain              every other object of a type written in C
=====================  =======================================================================================

The parts of a value of the program are not looked at: they are the program's own data. Nor is what a container held when
the package had been imported: that is no change. A package *at work*, with a function on the stack or in a task of
asyncio, is not judged: what its running function holds and what its modules hold belong together, so all is kept that can
be saved. The same holds for a package that a library class speaks for (:mod:`ckpt.image.interface.library`): what must not
be kept is known there.

No code of the program or of a package runs. One walk visits at most ``_MOST_OBJECTS`` objects; what is larger is no setting.

Not here: what has changed, and what is done with the answer (:mod:`ckpt.image.modules.package_changes`).
"""

from __future__ import annotations

import contextvars
import functools
import gc
import itertools
import random
import sys
import threading
import types
import weakref
from collections import defaultdict, deque, namedtuple
from collections.abc import Callable, Iterable, Iterator
from enum import EnumMeta
from typing import TYPE_CHECKING, Any

from ckpt.compat import asyncio_names
from ckpt.compat.stdlib import ABC_STATE
from ckpt.compat.typeobjects import has_hidden_state, is_heap
from ckpt.image.errors import Unpicklable
from ckpt.image.interface.registry import libraries
from ckpt.image.lowlevel.inspect_raw import (
    WEAK,
    attributes_of,
    content_of,
    follow,
    is_a,
    is_named,
    namespace_of,
    package_of,
    slots_of,
)
from ckpt.image.modules import held_locks
from ckpt.image.modules.definitions import Definitions
from ckpt.image.modules.origins import is_standard
from ckpt.image.modules.package_baseline import Large
from ckpt.image.modules.package_changes import is_kept
from ckpt.image.modules.standard_streams import std_objects

if TYPE_CHECKING:
    from ckpt.image.frames.stack import FrameRecord
    from ckpt.image.modules.package_baseline import PackageBaseline
    from ckpt.image.modules.package_changes import Change, Changed
    from ckpt.image.modules.references import References

__all__ = ["PlainValues", "leave_out_not_plain", "leave_out_unsavable"]

_MOST_OBJECTS = 100_000
_MOST_NAMED = 3  # kinds of such values that a report names for one package
_NOT_KEPT = "changed, not kept, since it is not only settings and registries:"

_ATOMS = (int, str, float, complex, bytes, bytearray, type(None), types.CodeType)
_VALUE_TYPES = (
    *(*_ATOMS, range, slice, type(...), type(NotImplemented)),
    *(types.SimpleNamespace, types.GenericAlias, types.UnionType),
    *(random.Random, itertools.count, threading.local, contextvars.ContextVar),
)
_VALUE_MODULES = frozenset(
    {
        "array",
        "datetime",
        "decimal",
        "fractions",
        "ipaddress",
        "operator",
        "pathlib",
        "re",
        "typing",
        "uuid",
        "zoneinfo",
    }
)
"""Modules of the standard library whose classes are all of values."""
_LRU = type(functools.lru_cache(lambda: None))
_DESCRIPTORS = (
    types.MemberDescriptorType,
    types.GetSetDescriptorType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.ClassMethodDescriptorType,
    type(namedtuple("Named", "field").__dict__["field"]),
)
_EMPTY_CELL = types.CellType()
_CONTAINERS = (dict, list, set, deque)


def leave_out_not_plain(
    found: Changed, notes: PackageBaseline, references: References, frames: Iterable[FrameRecord]
) -> None:
    """Leave out the packages of which a change is not plain, except those at work, known to a library class, or asked for.
    Must be called after :func:`leave_out_unsavable`."""
    running = [_globals_of(frame) for frame in frames]
    suspended = [part.f_globals for part in asyncio_names.suspended_frames()]
    at_work = {package_of(str(variables.get("__name__"))) for variables in (*running, *suspended)}
    plain = PlainValues(references, found.ids)
    for name, changes in list(found.changes.items()):
        package = package_of(name)
        if package in at_work or is_standard(package) or is_kept(package) or libraries.find(package):
            continue
        judged = [(change, plain.not_plain_in(_new_values(change, notes))) for change in changes]
        not_plain = [(change.where, what) for change, what in judged if what is not None]
        if not_plain:
            kinds = list(dict.fromkeys(what for _, what in not_plain))
            named = ", ".join([*kinds[:_MOST_NAMED], *(["…"] if len(kinds) > _MOST_NAMED else [])])
            found.leave_out(
                "not-plain",
                package,
                [where for where, _ in not_plain],
                f"{_NOT_KEPT} {named} (ckpt.keep_package)",
            )
            found.give_up(name, [change for change, what in judged if what is not None])


def leave_out_unsavable(
    found: Changed, attempt: Callable[[list[Change]], Exception | None], frames: Iterable[FrameRecord]
) -> None:
    """Leave out the packages of which a change cannot be saved, found by bisection. ``attempt`` tries to save changes, and
    returns the exception or None.

    Raises :class:`Unpicklable` if such a change is of a variable that a function of ``frames`` uses.
    """
    waiting = [list(found.changes)] if found.changes else []
    while waiting:
        packages = waiting.pop()
        failure = attempt([change for package in packages for change in found.changes[package]])
        if failure is None:
            continue
        if len(packages) > 1:
            half = len(packages) // 2
            waiting += [packages[half:], packages[:half]]
            continue
        changes = found.changes[packages[0]]
        unsavable = [change for change in changes if attempt([change]) is not None] or changes
        for change in unsavable:
            if any(_uses(frame, change) for frame in frames):
                raise Unpicklable(change.where, str(failure)) from failure
        found.leave_out(
            "unsaved", package_of(packages[0]), [change.where for change in unsavable], str(failure)
        )
        found.give_up(packages[0], unsavable)


def _uses(frame: FrameRecord, change: Change) -> bool:
    """Does the frame's function use the changed variable, as a global of its own module?"""
    if change.part not in ("module", "weak") or frame.func is None:
        return False
    is_of_module = frame.func.__globals__ is getattr(sys.modules.get(change.path[0]), "__dict__", None)
    names = change.value[0] if change.part == "module" else change.path[1:2]
    return is_of_module and any(name in frame.func.__code__.co_names for name in names)


def _globals_of(frame: FrameRecord) -> dict[str, Any]:
    found = frame.globals_ if frame.func is None else frame.func.__globals__
    return {} if found is None else found


def _new_values(change: Change, notes: PackageBaseline) -> list[Any]:
    """The values of a change that were not in the same container or object after the import."""
    if change.part in ("module", "class", "attributes"):
        return list(change.value[0].values())
    if change.part == "threads":
        return [value for values in change.value.values() for value in values.values()]
    if change.part == "weak":
        return list(_held_by(follow(change.path)))
    if change.part != "content":
        return []  # the state of a random generator, the position of a counter
    obj = follow(change.path)
    note = notes.objects[id(obj)]
    old = set(map(id, _members(note.content)))
    return [value for value in _members(content_of(obj)) if id(value) not in old]


def _members(content: Any) -> Iterator[Any]:
    """What a container holds, given as :func:`content_of` copies it. An ordered dictionary is copied as pairs."""
    for value in content if type(content) is not Large else ():
        if type(value) is tuple:
            yield from value
        else:
            yield value
    if type(content) is dict:
        yield from content.values()


class NotPlain(Exception):
    """Raised in a walk at the first object that is not plain; its text says what that is."""


class PlainValues:
    """Judges values for one image; remembers what it has found plain. ``known``: addresses of objects that are saved by a
    path, and whose own changes are judged by themselves."""

    def __init__(self, references: References, known: Iterable[int]) -> None:
        self._references = references
        self._definitions = Definitions(references)
        self._known = {*known, *map(id, std_objects().values())}
        # The objects, too: no other object must get the address of one meanwhile
        self._plain: dict[int, Any] = {}

    def not_plain_in(self, values: Iterable[Any]) -> str | None:
        """What the first object below these values is that is not plain; ``None``: all are plain."""
        waiting = list(values)
        # The objects themselves: an address must not be given to another object meanwhile
        seen: dict[int, Any] = {}
        try:
            while waiting:
                value = waiting.pop()
                if is_a(value, _ATOMS[:5]) and not is_heap(type(value)):
                    continue
                if id(value) in seen or id(value) in self._plain or id(value) in self._known:
                    continue
                if len(seen) >= _MOST_OBJECTS:
                    raise NotPlain(f"more than {_MOST_OBJECTS} objects")
                seen[id(value)] = value
                waiting += self._parts(value)
        except NotPlain as found:
            return str(found)
        except Exception as failure:  # not foreseen: the image is taken without the change
            return f"{failure!r}, please report this"
        self._plain |= seen
        return None

    def _parts(self, value: Any) -> Iterable[Any]:
        """The objects on which it depends whether this one is plain. Raises :class:`NotPlain`."""
        cls = type(value)
        if self._references.name_of(value) is not None or self._references.is_user_type(cls):
            return ()
        if is_a(value, type):
            return self._parts_of_class(value)
        if cls is types.FunctionType:
            return self._parts_of_function(value)
        if cls is _LRU:
            return () if self._references.is_importable(value) else (value.__wrapped__,)
        if cls is types.MethodType:
            return (value.__self__, value.__func__)
        if is_a(value, types.BuiltinMethodType) or cls is types.MethodWrapperType:
            return (value.__self__,)
        if cls is types.MappingProxyType:
            return gc.get_referents(value)
        if cls is property:
            return (value.fget, value.fset, value.fdel)
        if cls is staticmethod or cls is classmethod:
            return (value.__func__,)
        if cls is functools.partial:
            return (value.func, value.args, value.keywords)
        if cls in _DESCRIPTORS or is_a(value, types.ModuleType) or is_a(cls, EnumMeta) or _is_logger(cls):
            return ()
        if held_locks.is_free(value):
            return ()
        if cls in WEAK:
            return _held_by(value)
        if cls is weakref.ReferenceType and value.__callback__ is None:
            return (value(),)
        return [*_content_of(value), *(attributes_of(value) or {}).values()]

    def _parts_of_class(self, cls: type) -> Iterable[Any]:
        is_found = not is_heap(cls) or is_named(cls) or self._references.is_user_type(cls)
        if is_found or self._definitions.path_of(cls) is not None:
            return ()
        own = [value for name, value in namespace_of(cls).items() if name != ABC_STATE]
        return [type(cls), *cls.__bases__, *own]

    def _parts_of_function(self, function: Any) -> Iterable[Any]:
        is_found = self._references.is_importable(function) or self._definitions.path_of(function) is not None
        if is_found or function.__globals__.get("__name__") in self._references.by_value:
            return ()
        cells = [cell.cell_contents for cell in function.__closure__ or () if cell != _EMPTY_CELL]
        named = [function.__globals__, function.__defaults__, function.__kwdefaults__, function.__dict__]
        return [*named, *cells]


def _content_of(value: Any) -> Iterable[Any]:
    """What an object holds beside its attributes. Raises :class:`NotPlain`: that cannot be seen."""
    cls = type(value)
    if is_a(value, _CONTAINERS):
        content = content_of(value)
        own = [value.default_factory] if is_a(value, defaultdict) else []
        return own + ([*content, *content.values()] if type(content) is dict else list(content))
    if is_a(value, (tuple, frozenset)):
        return list((tuple if is_a(value, tuple) else frozenset).__iter__(value))
    if is_a(value, BaseException):
        return BaseException.args.__get__(value)  # type: ignore[attr-defined, no-any-return]
    if (
        cls is object
        or is_a(value, _VALUE_TYPES)
        or any(_home(base) in _VALUE_MODULES for base in cls.__mro__)
    ):
        return ()
    if is_a(value, libraries.value_types()):
        return value.ravel().tolist() if getattr(getattr(value, "dtype", None), "hasobject", False) else ()
    base = next(base for base in cls.__mro__ if not is_heap(base))
    is_seen = base is object and not has_hidden_state(cls, len(slots_of(cls)))
    if not is_seen:
        raise NotPlain(f"an object of {_text_of(cls)}")
    return ()


def _held_by(container: Any) -> Iterable[Any]:
    """What a weak container holds by itself."""
    if type(container) is weakref.WeakSet:
        return ()
    data = container.data
    return list(dict.keys(data) if type(container) is weakref.WeakValueDictionary else dict.values(data))


def _is_logger(cls: type) -> bool:
    """Loggers are saved by name."""
    logging = sys.modules.get("logging")
    return logging is not None and issubclass(cls, logging.Logger)


def _home(cls: type) -> Any:
    return namespace_of(cls).get("__module__") if is_heap(cls) else type.__dict__["__module__"].__get__(cls)


def _text_of(cls: type) -> str:
    return f"{_home(cls)}.{type.__dict__['__qualname__'].__get__(cls)}"

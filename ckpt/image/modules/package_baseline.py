"""Notes of installed modules as they are after their import. They are the notes that
:mod:`ckpt.image.modules.package_changes` compares with.

A note is a *shallow copy* of one thing: of a module's variables, of a class's attributes, or of a container or instance
found from there, six levels deep (three below a class). Notes are taken when the outermost import of installed modules has
ended. A note keeps its object alive: an address means the same object for ever. Times of the import count as changed.

====================================  ==========================================================================
noted, by its content                 ``dict``, ``list``, ``set``, ``deque``, their subclasses; ``random.Random``; weak
                                      containers that are empty; ``itertools.count`` (also by its bound ``__next__``)
noted, by its attributes              instances of classes of installed packages, ``threading.local`` (of the thread that
                                      imports), ``SimpleNamespace``, conditions, queues and a few like them; functions
noted too, one level below            values of attributes; values in small dictionaries, lists and tuples
not noted                             closures, defaults and caches of functions, generators, other weak containers,
                                      of containers with more than ``_MOST_ENTRIES`` entries only the number of entries
====================================  ==========================================================================

A function of this module replaces ``exec_module`` of the loaders. Its code has the file name of the import system, so that
tracebacks and warnings leave it out, and no image is taken while it runs. The standard library has other notes
(:mod:`ckpt.image.modules.standard_baseline`). ckpt's own packages, and libraries that ask for it, are not noted
(``Library.is_left_alone``). No code of a package runs: dictionaries are read past ``__getattribute__``, types are asked for
by ``type()``.
"""

from __future__ import annotations

import itertools
import random
import sys
import types
from _thread import get_ident
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator
from enum import EnumMeta
from importlib.machinery import ExtensionFileLoader
from threading import local
from typing import Any

from ckpt.compat import accelerators
from ckpt.compat.stdlib import IMPORT_SYSTEM_FILES, wrap_exec_module
from ckpt.compat.typeobjects import is_heap
from ckpt.image.interface.registry import libraries
from ckpt.image.lowlevel import _lookup
from ckpt.image.lowlevel.import_times import mark_times
from ckpt.image.lowlevel.inspect_raw import (
    WEAK,
    Path,
    attributes_of,
    content_of,
    is_a,
    is_named,
    is_special,
    namespace_of,
    package_of,
)
from ckpt.image.modules import lazy
from ckpt.image.modules.origins import is_standard
from ckpt.image.modules.standard_baseline import Note as OwnerNote
from ckpt.image.modules.standard_baseline import StandardBaseline, is_from_standard
from ckpt.transport.records import NamedTuple

__all__ = [
    "NO_LIBRARIES",
    "Large",
    "Note",
    "PackageBaseline",
    "forget",
    "holds_since_import",
    "members",
    "note_standard",
    "under_way",
    "values_since_import",
    "watch",
]

NO_LIBRARIES = frozenset({"ckpt", "dill", "pip", "setuptools", "pkg_resources", "_distutils_hack"})
"""Packages that are not noted, and are no libraries of the program: ckpt, dill (which ckpt uses), and the tools that install
packages."""

_MOST_ENTRIES, _MOST_ENTERED = 10_000, 64  # members of larger containers are not looked into
_DEPTH, _DEPTH_IN_CLASSES = 6, 3
_CONTAINERS = (dict, list, set, deque)
_BUILTIN_CONTAINERS = frozenset({*_CONTAINERS, OrderedDict, defaultdict})
_NAMESPACES = frozenset(
    {
        *(("argparse", "Namespace"), ("configparser", "ConfigParser"), ("configparser", "RawConfigParser")),
        *(("collections", name) for name in ("Counter", "ChainMap", "UserDict")),
        *(("threading", name) for name in ("Condition", "Event", "Semaphore", "BoundedSemaphore")),
        *(("queue", name) for name in ("Queue", "LifoQueue", "PriorityQueue")),
    }
)
_CONSTANTS = frozenset(
    {"re", "typing", "types", "datetime", "decimal", "fractions", "pathlib", "functools", "operator"}
    | {"weakref", "_thread", "contextvars"}
)
"""Modules whose objects do not change, or are no state of the program."""
_ATOMS = frozenset({object, range, slice, type(...), type(NotImplemented)})
_SKIPPED = frozenset(
    {
        *(int, str, float, bool, complex, bytes, frozenset, type(None), property, staticmethod, classmethod),
        *(types.ModuleType, types.FunctionType, types.BuiltinFunctionType, types.MethodType),
        *(types.MemberDescriptorType, types.GetSetDescriptorType),
    }
)


class Large(NamedTuple):
    """The content of a container with more entries than are copied."""

    length: int


class Note(NamedTuple):
    """The note of one object. ``attributes``, ``content``: shallow copies; ``None``: the object has none that is noted."""

    path: Path
    obj: Any
    attributes: dict[str, Any] | None
    content: Any


class PackageBaseline:
    """All notes of a process. ``modules``: name → its note; ``objects``: address → note, ``of_packages``: by package."""

    def __init__(self) -> None:
        self.standard = StandardBaseline()
        self.modules: dict[str, OwnerNote] = {}
        self.objects: dict[int, Note] = {}
        self.of_packages: dict[str, dict[int, Note]] = {}
        self._entered: dict[int, int] = {}  # address -> how many levels below it have been noted
        self._pending: dict[int, list[types.ModuleType]] = {}  # by thread
        self._packages: set[str] = set()
        self._whole: set[int] = set()

    # ------------------------------------------------------------------ imports

    def begin_import(self) -> None:
        thread = get_ident()
        under_way[thread] = under_way.get(thread, 0) + 1

    def end_import(self, module: types.ModuleType | None) -> None:
        """``module``: what has been imported, ``None`` if that failed."""
        thread = get_ident()
        pending = self._pending.setdefault(thread, [])
        if module is not None:
            pending.append(module)
            libraries.note_import(str(module.__dict__.get("__name__")), is_inner=True)
        under_way[thread] -= 1
        if under_way[thread]:
            return
        del under_way[thread], self._pending[thread]
        # some modules put another object into their place in sys.modules
        present = [sys.modules.get(str(imported.__dict__.get("__name__")), imported) for imported in pending]
        pending = [imported for imported in present if is_a(imported, types.ModuleType)]
        packages = {package_of(str(imported.__dict__.get("__name__"))) for imported in pending}
        names = set(itertools.filterfalse(is_standard, packages))
        left_alone = {name for name in names if libraries.is_left_alone(name, is_complete=True)}
        self._packages.update(names - left_alone)
        for imported in pending:
            libraries.note_import(str(imported.__dict__.get("__name__")))
        for imported in pending:
            name = str(imported.__dict__.get("__name__"))
            if package_of(name) in left_alone:
                lazy.left_alone.setdefault(name, frozenset(imported.__dict__))
                continue
            try:
                self.standard.note(imported) if is_standard(package_of(name)) else self.note(imported)
            except Exception:  # changed meanwhile by another thread, or too odd: not the import's affair
                self.modules.pop(name, None)

    # ------------------------------------------------------------------ noting

    def note(self, module: types.ModuleType) -> None:
        attributes, name = module.__dict__, module.__dict__["__name__"]
        self._packages.add(package_of(name))
        self.modules[name] = OwnerNote((name,), "module", module, attributes, mark_times(attributes))
        for key, value in list(attributes.items()):
            cls = type(value)
            if cls in _SKIPPED or issubclass(cls, types.ModuleType) or is_special(key):
                continue
            if issubclass(cls, type):
                self._note_class((name, key), value)
            else:
                self._note_object((name, key), value, _DEPTH)
        for key, function in self.functions_with_attributes(name):
            self._note_object((name, key), function, _DEPTH)

    def functions_with_attributes(self, name: str) -> list[tuple[str, Any]]:
        """Variable and function, of those that a noted module had when it was noted, that have attributes now."""
        return [(key, function) for key, function, _ in _lookup.owners(self.modules[name].noted, name, True)]

    def _note_class(self, path: Path, cls: type) -> None:
        """``path``: module, variable, and the names of the classes in which this one is defined."""
        if namespace_of(cls).get("__module__") != path[0] or not is_heap(cls) or id(cls) in self.objects:
            return
        attributes = mark_times(namespace_of(cls))
        self._put(Note(path, cls, attributes, None))
        for name, value in attributes.items():
            if type(value) in _SKIPPED or is_special(name):
                continue
            if is_a(value, type):
                self._note_class((*path, name), value)
            else:
                self._note_object((*path, name), value, _DEPTH_IN_CLASSES)

    def _note_object(self, path: Path, obj: Any, levels: int) -> None:
        """Note a container or an instance, and ``levels`` levels of objects below it. Objects of other types are not
        noted."""
        if type(obj) is types.MethodWrapperType and type(obj.__self__) is itertools.count:
            path, obj = (*path, "__self__"), obj.__self__
        if type(obj) is tuple:
            for index, value in enumerate(obj[:_MOST_ENTERED]):
                if type(value) not in _SKIPPED:
                    self._note_object((*path, (index,)), value, levels)
            return
        note = self.objects.get(id(obj))
        if note is None:
            note = self._new_note(path, obj)
            if note is None:
                return
            self._put(note)
        if levels == 0 or is_a(obj, type) or self._entered.get(id(obj), 0) >= levels:
            return
        self._entered[id(obj)] = levels
        for step, value in members(note):
            if is_a(value, type):
                is_of_package = is_heap(value) and self._is_of_noted_package(value)
                if is_of_package and not is_named(value) and id(value) not in self.objects:
                    self._put(Note((*note.path, step), value, dict(namespace_of(value)), None))
            else:
                self._note_object((*note.path, step), value, levels - 1)

    def _put(self, note: Note) -> None:
        self.objects[id(note.obj)] = note
        self.of_packages.setdefault(package_of(note.path[0]), {})[id(note.obj)] = note

    def _new_note(self, path: Path, obj: Any) -> Note | None:
        cls = type(obj)
        if cls is random.Random:
            return Note(path, obj, None, accelerators.random.Random.getstate(obj))
        if cls is itertools.count:
            return Note(path, obj, None, repr(obj))
        if cls in WEAK:
            return None if content_of(obj) else Note(path, obj, None, [])
        is_builtin = cls in _BUILTIN_CONTAINERS
        if cls is types.FunctionType:
            return Note(path, obj, attributes_of(obj), None)
        if not is_builtin and not self._is_of_noted_package(cls) and not _is_namespace(cls):
            return None
        base = next((base for base in _CONTAINERS if issubclass(cls, base)), None)
        content = None
        if base is not None:
            length = base.__len__(obj)
            content = Large(length) if length > _MOST_ENTRIES else content_of(obj)
        attributes = None if is_builtin else attributes_of(obj)
        if attributes is None and content is None:
            return None
        return Note(path, obj, attributes and mark_times(attributes), content)

    # ------------------------------------------------------------------ asking

    def is_whole(self, obj: Any, is_known: Callable[[Any], bool]) -> bool:
        """Is every object that the noted object held noted too, found by a name, or unchangeable? ``is_known``: is an object
        found by a name?"""
        if id(obj) in self._whole:
            return True
        seen, waiting = {id(obj)}, [self.objects[id(obj)]]
        while waiting:
            note = waiting.pop()
            if type(note.content) is Large:
                return False
            for value in _contained(note):
                if id(value) in seen:
                    continue
                seen.add(id(value))
                if is_known(value):
                    continue
                inner = self.objects.get(id(value))
                if inner is not None:
                    waiting.append(inner)
                elif not _is_constant(value):
                    return False
        self._whole |= seen & self.objects.keys()
        return True

    def _is_of_noted_package(self, cls: type) -> bool:
        home = namespace_of(cls).get("__module__")
        return isinstance(home, str) and package_of(home) in self._packages


def _is_namespace(cls: type) -> bool:
    name = namespace_of(cls).get("__module__"), type.__dict__["__name__"].__get__(cls)
    return cls is local or cls is types.SimpleNamespace or name in _NAMESPACES


def _contained(note: Note) -> Iterator[Any]:
    """The objects that the noted object held; instead of a tuple or frozenset, the objects in it."""
    waiting = [] if note.attributes is None else list(note.attributes.values())
    if type(note.content) is dict:
        waiting += [*note.content, *note.content.values()]
    elif type(note.content) in (list, set):
        waiting += note.content
    while waiting:
        value = waiting.pop()
        if type(value) is tuple or type(value) is frozenset:
            waiting += value
        else:
            yield value


def _is_constant(value: Any) -> bool:
    cls = type(value)
    if cls in _SKIPPED or cls in _ATOMS or is_a(value, (type, types.ModuleType)):
        return True
    home = namespace_of(cls).get("__module__") if is_heap(cls) else type.__dict__["__module__"].__get__(cls)
    return home in _CONSTANTS or is_a(cls, EnumMeta)


def members(note: Note) -> Iterator[tuple[Any, Any]]:
    """``(step, object)`` for the objects one step below the noted object that may be noted too."""
    found: list[tuple[Any, Any]] = [] if note.attributes is None else list(note.attributes.items())
    content = note.content
    if type(content) is dict and len(content) <= _MOST_ENTERED:
        found += [((key,), value) for key, value in content.items() if type(key) is str or type(key) is int]
    elif type(content) is list and len(content) <= _MOST_ENTERED and is_a(note.obj, list):
        found += [((index,), value) for index, value in enumerate(content)]
    for step, value in found:
        if type(value) in _SKIPPED or is_a(value, types.ModuleType):
            continue
        if type(step) is tuple or not is_special(step):
            yield step, value


# ---------------------------------------------------------------------- watching imports

_notes = PackageBaseline()
under_way: dict[int, int] = {}  # by thread: imports of installed modules, one within the other


def note_standard() -> None:
    """Note the imported modules of the standard library. Also called before ranks are forked: one set for all ranks."""
    _notes.standard.note_all()


def watch() -> PackageBaseline:
    """The notes of this process. From the first call on, modules are noted when they are imported."""
    wrap_exec_module(lambda execute: _watching(execute, _is_noted))
    wrap_exec_module(lambda execute: _watching(execute, is_from_standard), ExtensionFileLoader)
    note_standard()
    return _notes


def holds_since_import(module: str, variable: str, obj: object) -> bool:
    """Does the variable of a module hold the object now, and will it in a new process, after the module's import? Where the
    module is not noted: does it hold it now?"""
    present = getattr(sys.modules.get(module), "__dict__", {})
    note = _notes.modules.get(module)
    noted = present if note is None else note.noted
    return present.get(variable) is obj and noted.get(variable) is obj


def values_since_import() -> Iterator[tuple[str, str, Any]]:
    """Module, variable and value, of all noted modules."""
    return ((name, key, value) for name, note in _notes.modules.items() for key, value in note.noted.items())


def forget() -> None:
    """Drop the notes, which would keep objects alive that the interpreter's end destroys. For a process that ends."""
    _notes.__init__()  # type: ignore[misc]


def _watching(execute: Callable[..., None], is_noted: Callable[[Any], bool]) -> Callable[..., None]:
    if execute.__code__.co_name == "_exec_and_note":
        return execute

    def _exec_and_note(self: Any, module: Any) -> None:
        if not is_noted(module):
            execute(self, module)
            return
        _notes.begin_import()
        imported = None
        try:
            execute(self, module)
            imported = module
        finally:
            _notes.end_import(imported)

    code = _exec_and_note.__code__
    _exec_and_note.__code__ = code.replace(co_filename=IMPORT_SYSTEM_FILES[-1])
    return _exec_and_note


def _is_noted(module: Any) -> bool:
    return is_from_standard(module) or _is_installed(module)


def _is_installed(module: Any) -> bool:
    name, file = module.__name__, module.__dict__.get("__file__")
    is_there = type(file) is str and ("site-packages" in file or "dist-packages" in file)
    return (is_there or libraries.is_extended(name)) and package_of(name) not in NO_LIBRARIES

"""The objects that an image refers to by a persistent id: modules that are saved by reference (by name), and what is in
them.

References
    A module, a module's dictionary, and every *mutable* object that is an attribute of a by-reference module
    (``random._inst``, ``os.environ``, ``sys.path``) are pickled as a persistent id: a tuple for which :func:`resolve`
    returns the object of the new process. Their state, where it matters, is saved separately
    (:mod:`ckpt.image.process.resources`). Two kinds of objects are never references: instances of the program's classes,
    even if a library module holds them, and the objects of lazy variables of the standard library
    (:mod:`ckpt.image.modules.lazy`).

    To find such attributes, the dictionaries of all imported modules must be searched: 1.5 ms for 250 modules, and more
    after a fork, because using Python objects copies their memory pages. So a :class:`References` remembers its results and
    searches only modules that are new or have changed; a test in C, which writes to no memory page, finds these. A result
    may therefore be out of date: each is checked against the module before it is used. Ids are compared, never values: no
    ``__eq__`` or ``__hash__`` of the program runs.

Not here: which modules these are (:mod:`ckpt.image.modules.origins`); how the objects of by-value modules are taken apart
(:mod:`ckpt.image.reducers.by_value`).
"""

from __future__ import annotations

import contextlib
import importlib
import sys
import types
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from ckpt.compat.interpreter import DICTS_COUNT_CHANGES
from ckpt.image.errors import RestoreError
from ckpt.image.interface.registry import libraries
from ckpt.image.lowlevel import _lookup
from ckpt.image.lowlevel.inspect_raw import copied, follow, package_of
from ckpt.image.modules import held_locks, lazy, package_changes
from ckpt.image.modules.origins import OWN_PACKAGES, SECOND_NAMES, is_by_value, look_at_links_again
from ckpt.image.modules.standard_streams import STREAMS, std_objects

__all__ = ["Pid", "References", "forget_process_references", "import_all", "process_references", "resolve"]

Pid = tuple[Any, ...]
"""A persistent id: ``("module", name)``, ``("dict", name)``, ``("attr", module, name)``, with the value of a text
or number, ``("std", path)``, ``("live", name)``, ``("lib", module, variable, step, …)``
(:mod:`ckpt.image.modules.package_changes`), ``("held", kind, module, variable, step, …)``
(:mod:`ckpt.image.modules.held_locks`)."""

# Values of these types are found by other means (functions and classes by qualified name), or their identity does not
# matter.
_NOT_REFERENCED = (
    *(types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.CodeType),
    *(int, bool, complex, bytes, tuple, frozenset, type(None), type(NotImplemented), type(...)),
)

# Types of plain values that a program may bind in modules of others, as settings.
_SETTING_TYPES = frozenset(
    {int, str, float, bool, complex, bytes, tuple, list, dict, set, frozenset, type(None)}
)

_OWN_MPI = "ckpt.MPI"
_OF_IMAGES = ("ckpt.image.", "ckpt.compat.")


class References:
    """The objects of this process that have a persistent id; kept from image to image (:meth:`refresh`).

    ``by_value``: name → module, for the modules that are saved by value, in the order of their import. ``versions``: the
    ``__version__`` of by-reference modules, by top-level name. ``added``: module → names that a by-reference module has got
    since :meth:`note_names`. ``changed``, ``held_locks``: changes and held locks in installed packages, for one image.
    ``lazy``: (module, variable) → object, for lazy variables that the pickler has met (:mod:`ckpt.image.modules.lazy`).
    ``is_header``: is the part being saved that is loaded before modules are imported? Texts are then no references, as
    they would have their modules imported out of turn.
    """

    def __init__(self) -> None:
        self.by_value: dict[str, types.ModuleType] = {}
        self.versions: dict[str, str] = {}
        self.added: dict[str, list[str]] = {}
        self.lazy: dict[tuple[str, str], object] = {}
        self.is_header = False
        self._module_states, self._module_count = _lookup.ModuleStates(), 0
        self._ids: dict[int, Pid] = {}
        self._values: dict[str, tuple[int, bool]] = {}  # name -> (id of the module, is it saved by value?)
        self._own_names: dict[str, frozenset[str]] = {}
        self._mpi_names: dict[tuple[str, str], types.ModuleType] = {}
        self._changed_modules: dict[str, types.ModuleType] = {}
        self.forget()

    def forget(self) -> None:
        """Drop the findings for one image, so that they keep no objects of the program alive."""
        self.changed = package_changes.Changed()
        self.held_locks: list[held_locks.HeldLock] = []

    def note_names(self) -> None:
        """Record the names in by-reference modules; called before the program starts. A name that such a module gets later
        counts as bound by the program."""
        self.refresh()
        for name, (_, is_saved_by_value) in self._values.items():
            module = sys.modules.get(name)
            if not is_saved_by_value and module is not None:
                self._own_names[name] = frozenset(module.__dict__)
        self._changed_modules.clear()

    def is_outdated(self) -> bool:  # have modules been imported since the last refresh?
        return len(sys.modules) != self._module_count

    def refresh(self) -> None:
        """Search the modules that are new or have changed since the last call. About 10 µs if there are none."""
        modules = sys.modules
        changed = self._module_states.changed(modules)
        if not changed and len(modules) == self._module_count:
            return
        are_changed = len(modules) != self._module_count
        self._module_count = len(modules)
        look_at_links_again()
        checked: set[int] = set()
        for name in changed:
            if name in SECOND_NAMES:
                continue  # another name of __main__
            module = modules[name]
            attributes = module.__dict__
            origin = self._values.get(name)
            if origin is None or origin[0] != id(module):
                are_changed = True
                is_own = is_by_value(name, module) and not libraries.is_extended(name)
                self._values[name] = origin = (id(module), is_own)
                self._ids[id(module)] = ("module", name)
                self._ids[id(attributes)] = ("dict", name)
                self.by_value.pop(name, None)
                if origin[1]:
                    self.by_value[name] = module
            if not origin[1]:
                self._changed_modules[name] = module
                self._search(name, module, checked)
        if are_changed:
            names = sorted(self.by_value, key="__main__".__ne__)  # it comes first, also if it was replaced
            self.by_value = {  # no page of another module is touched, and copied
                name: each for name in names if isinstance(each := modules.get(name), types.ModuleType)
            }

    def _search(self, name: str, module: types.ModuleType, checked: set[int]) -> None:
        # checked: addresses of objects whose persistent id is known to be valid; modules share many objects
        ids, own_names = self._ids, self._own_names.get(name, lazy.left_alone.get(name))
        if own_names is not None:
            self.added[name] = lazy.added_names(module, own_names)
        version = module.__dict__.get("__version__")
        if type(version) is str and "." not in name:
            self.versions[name] = version
        for key, value in _lookup.identities(module, _NOT_REFERENCED):
            cls = type(value)  # isinstance() could call a __class__ property of the program
            if cls is types.ModuleType:
                if value.__dict__.get("__name__") == _OWN_MPI:
                    self._mpi_names[name, key] = value
                continue
            is_new = own_names is not None and key not in own_names and not issubclass(cls, types.ModuleType)
            if is_new and (cls in _SETTING_TYPES or name in lazy.left_alone):
                continue
            if (name == "sys" and key in STREAMS) or id(value) in checked:
                continue  # a stream may be an object of the program; the original ones are in std_objects()
            pid = ids.get(id(value))
            if pid is not None and self._valid_pid(pid, value) is not None:
                checked.add(id(value))
            else:
                # A text may be the same object as its name or its module's. Copies in the persistent id keep the pickler
                # from treating a part of the id as a reference too.
                ids[id(value)] = ("attr", copied(name), copied(key)) if cls is str else ("attr", name, key)

    def finder(
        self,
        live: Mapping[str, object],
        special: Callable[[Any], Any],
        table: Callable[[Any], Any],
        note: Callable[[Pid], None],
    ) -> Callable[[object], Any]:
        """The function that maps an object to its persistent id, or to ``None``.

        ``live``: name → object saved by name. ``special``: gives the persistent id of a container that pickle cannot save
        exactly (:mod:`ckpt.image.pickling.containers`). ``table``: is told of dictionaries whose keys are addresses
        (:mod:`ckpt.image.pickling.id_tables`). ``note``: is told of persistent ids. The function is called for every object
        pickled, so it is written in C. It is valid until the next :meth:`refresh`.
        """
        more_ids: dict[int, Pid] = dict(self.changed.ids)
        for held_lock in self.held_locks:
            more_ids[id(held_lock.lock)] = held_lock.pid
        for path, stream in std_objects().items():
            more_ids[id(stream)] = ("std", path)
        for name, value in live.items():
            more_ids[id(value)] = ("live", name)

        with_values: dict[Pid, Pid] = {}

        def checked(pid: Pid, obj: object) -> Pid | None:
            if type(obj) is str and (self.is_header or len(obj) < 2):
                return None  # of one character the interpreter has one text
            found = self._checked(pid, obj)
            if found is not None:
                note(found)
                if type(obj) in (str, float) and found[0] == "attr":
                    return with_values.setdefault(found, (*found, copied(obj)))
            return found

        return _lookup.Finder(self._ids, more_ids, checked, special, table)

    def at(self, address: int) -> tuple[object] | None:
        """The object that has a persistent id and this address, as a 1-tuple; None: there is none."""
        pid = self._ids.get(address) or self.changed.ids.get(address)
        if pid is None or pid[1] not in sys.modules:
            return None
        try:
            found = follow(pid[1:]) if pid[0] == "lib" else resolve(pid, {})
        except (LookupError, AttributeError, RestoreError):
            return None
        return (found,) if id(found) == address else None

    def name_of(self, obj: object) -> Pid | None:
        """The persistent id of an object that is a module, a module's dictionary, or the value of a variable of a module."""
        return self._checked(self._ids[id(obj)], obj) if id(obj) in self._ids else None

    def _checked(self, pid: Pid, obj: object) -> Pid | None:
        """``pid`` if it names ``obj`` now, and will name the same object in a new process; else None."""
        found = self._valid_pid(pid, obj)
        if found is not None and found[0] == "attr" and lazy.is_lazy(found[1], found[2]):
            self.lazy[found[1], found[2]] = obj
            return None
        return found

    def _valid_pid(self, pid: Pid, obj: object) -> Pid | None:
        """``pid`` if it still names ``obj``, and ``obj`` may be saved as a reference; else None."""
        tag = pid[0]
        if tag == "attr":
            module = sys.modules.get(pid[1])
            if module is None or module.__dict__.get(pid[2]) is not obj or pid[1:] in self.changed.rebound:
                return None
            return None if self.is_user_type(type(obj)) or libraries.is_saved(pid, type(obj)) else pid
        if tag in ("module", "dict"):
            module = sys.modules.get(pid[1])
            return pid if (module if tag == "module" else getattr(module, "__dict__", None)) is obj else None
        return pid if tag != "lib" or self.changed.is_whole(obj) else None

    def imported(self) -> list[str]:
        """Names of the by-reference modules that the program has imported, in order, referred to or not, without those by
        which images are written. Among them, in their places, those that the program lets nobody import."""
        found = []
        for name in _lookup.added(sys.modules, self._own_names):
            module = sys.modules.get(name)
            if module is None:
                found.append(name)
            if name in self.by_value or name.startswith(_OF_IMAGES) or type(module) is not types.ModuleType:
                continue
            if getattr(module.__dict__.get("__spec__"), "name", None) == name:
                found.append(name)
        return found

    def patches(self) -> list[tuple[str, str, Any]]:
        """``(module, name, value)`` of what the program has bound in modules of others: functions, classes, instances,
        new plain values. Searched are modules that were imported, or have changed, since :meth:`note_names`; from Python
        3.13 on, all: :class:`ckpt.image.lowlevel._lookup.ModuleStates` then detects only more or fewer attributes."""
        touched = self._changed_modules if DICTS_COUNT_CHANGES else dict(sys.modules)
        for name in SECOND_NAMES:
            touched.pop(name, None)
        own = self._added_values() + self._found_mpi() + _lookup.patches(touched, self.by_value)
        return own + self._patches_by_packages(touched)

    def _patches_by_packages(self, touched: dict[str, types.ModuleType]) -> list[tuple[str, str, object]]:
        """Functions and classes of installed packages that are bound in modules of the standard library (freezegun)."""
        return [
            (name, key, value)
            for name, key, value in _lookup.foreign(touched, sys.stdlib_module_names)
            if isinstance(value, (types.FunctionType, type))
            and value.__module__ not in self.by_value
            and package_of(value.__module__) not in OWN_PACKAGES
            and self.is_importable(value)
        ]

    def _found_mpi(self) -> list[tuple[str, str, object]]:
        """Variables of libraries that hold ckpt's module MPI, also such as were ``None`` after the import (schwimmbad)."""
        return [
            (name, key, value)
            for (name, key), value in self._mpi_names.items()
            if name not in self.by_value
            and getattr(sys.modules.get(name), "__dict__", {}).get(key) is value
            and name.partition(".")[0] not in OWN_PACKAGES
        ]

    def _added_values(self) -> list[tuple[str, str, object]]:
        dicts = {name: getattr(sys.modules.get(name), "__dict__", {}) for name in self.added}
        found = [(name, k, dicts[name].get(k, self)) for name, keys in self.added.items() for k in keys]
        return [each for each in found if type(each[2]) in _SETTING_TYPES]

    def is_patch(self, cls: type) -> bool:
        """Are objects of this class among :meth:`patches`, or need not be, where a program adds them to a module?"""
        is_plain = (
            cls in _SETTING_TYPES or cls in _NOT_REFERENCED or issubclass(cls, (type, types.ModuleType))
        )
        return is_plain or self.is_user_type(cls)

    def is_user_type(self, cls: type) -> bool:
        """Is the class defined in a by-value module?"""
        module = cls.__dict__.get("__module__")
        return isinstance(module, str) and module in self.by_value

    def is_importable(self, obj: Any) -> bool:
        """Can a function or class be found by its qualified name, in a by-reference module?"""
        module_name, name = getattr(obj, "__module__", None), getattr(obj, "__qualname__", None)
        if not isinstance(module_name, str) or module_name in self.by_value:
            return False
        if not isinstance(name, str):  # the object is still being made, for example a functools.lru_cache
            return False
        found: Any = sys.modules.get(module_name)
        if found is None:
            return False
        for part in name.split("."):
            try:
                found = found.__dict__[part]
            except (AttributeError, KeyError):
                found = getattr(found, part, None)
        return found is obj

    def replaced_name(self, obj: Any) -> tuple[str, str] | None:
        """(module, name) of a function or type made in C, if an object of another module is bound to its name now; else
        None. The original is found under this name while an image is loaded, before patches are applied."""
        name, key = obj.__module__, obj.__qualname__
        module = sys.modules.get(name)
        if module is None or name in self.by_value:
            return None
        found = module.__dict__.get(key, obj) if isinstance(module, types.ModuleType) else module
        is_replaced = found is not obj and getattr(found, "__module__", None) != name
        return (name, key) if is_replaced else None


process_references = References()
"""The references of this process."""


def forget_process_references() -> None:
    """Empty :data:`process_references` before the process ends: the interpreter then destroys the modules in it."""
    process_references.__init__()  # type: ignore[misc]


def resolve(pid: Pid, live: Mapping[str, object]) -> object:
    """The object of this process that a persistent id names. Raises :class:`RestoreError` if there is none.

    ``live``: name → object, for ids ``("live", name)``."""
    tag = pid[0]
    if tag == "live":
        try:
            return live[pid[1]]
        except KeyError:
            raise RestoreError(f"the image refers to {pid[1]!r}, which this process does not offer") from None
    if tag == "std":
        try:
            return std_objects()[pid[1]]
        except KeyError:
            raise RestoreError(
                f"the image refers to sys.{pid[1]}, which this process does not have"
            ) from None
    module = import_again(pid[1])
    if tag == "module":
        return module
    if tag == "dict":
        return module.__dict__
    if len(pid) > 3:  # another process may have found another value: a path, a number by chance
        found = module.__dict__.get(pid[2])
        return found if type(found) is type(pid[3]) and (found == pid[3] or found != found) else pid[3]
    try:
        return module.__dict__[pid[2]]
    except KeyError:
        try:
            return getattr(module, pid[2])
        except AttributeError:
            raise RestoreError(f"module {pid[1]!r} has no attribute {pid[2]!r} in this process") from None


def import_all(names: Iterable[str], halted: Collection[str] = ()) -> None:
    """Import modules, in order. A module that cannot be imported is no error here; :func:`resolve` raises if an object needs
    the module. ``halted``: nobody may import these (``sys.modules[name] = None``), from their places or the end on.
    """
    modules: dict[str, Any] = sys.modules
    for name in names:
        if name in halted:
            modules.setdefault(name, None)
        elif name not in modules:
            with contextlib.suppress(Exception):
                importlib.import_module(name)
    modules.update(dict.fromkeys(halted))


def import_again(name: str) -> types.ModuleType:
    """``sys.modules[name]``, imported if necessary. Raises :class:`RestoreError`: it cannot be imported."""
    module = sys.modules.get(name)
    if module is not None:
        return module
    try:
        return importlib.import_module(name)
    except ImportError as failure:
        text = f"module {name!r} is part of the image and cannot be imported here"
        raise RestoreError(f"{text}: {failure}") from failure

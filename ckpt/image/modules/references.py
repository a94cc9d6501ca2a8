"""Which modules travel inside an image by value, which are named, and which objects are found again by such a
name.

Rules
    =========================================================  ===============================================
    module                                                     in the image
    =========================================================  ===============================================
    ``__main__``                                               by value
    written by the user: a Python file (or namespace package)  by value
    outside the standard library and ``site-packages``
    standard library, installed packages, C extensions         by reference: imported again at load
    ``ckpt``, ``transport``, ``controller``                    by reference, even in editable mode
    a module object that is in ``sys.modules`` under no name   by value, as an ordinary object
    =========================================================  ===============================================

References
    A module, a module's dictionary, and every *mutable* object that is an attribute of a by-reference module
    (``random._inst``, ``os.environ``, ``sys.path``) are pickled as a persistent id: a tuple that
    :func:`resolve` turns into the new process's object. Their state, where it matters, is saved apart
    (:mod:`ckpt.image.process.resources`). Instances of user classes are never references, even when they were stored
    in a library module, nor is what the standard library binds lazily (:mod:`ckpt.image.modules.lazy`).

    Looking for such attributes means walking the dictionaries of all imported modules (1.5 ms for 250
    modules, and more after a fork, when each page looked at from Python is copied), so a :class:`References`
    remembers what it has walked and looks again only at modules that are new or have changed; that question is
    C and touches nothing. An entry may therefore be stale; each hit is checked against
    the live module before it is used. Ids are compared, never values: no ``__eq__`` or ``__hash__`` of the
    program runs.

Not here: how the objects of by-value modules are taken apart (:mod:`ckpt.image.reducers.by_value`).
"""

from __future__ import annotations

import contextlib
import importlib
import os
import site
import sys
import sysconfig
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ckpt import version
from ckpt.image.errors import RestoreError
from ckpt.image.lowlevel import _addresses, _lookup
from ckpt.image.lowlevel.addresses import Addresses, Walk
from ckpt.image.lowlevel.inspect_raw import package_of
from ckpt.image.modules import held_locks, lazy, package_changes
from ckpt.image.modules.standard_streams import STREAMS, std_objects

__all__ = ["Pid", "References", "import_all", "is_by_value", "resolve"]

Pid = tuple[Any, ...]
"""``("module", name)``, ``("dict", name)``, ``("attr", module, name)``, ``("std", path)``, ``("live", name)``,
``("lib", module, variable, step, …)`` (:mod:`ckpt.image.modules.package_changes`), ``("held", kind, module, variable,
step, …)`` (:mod:`ckpt.image.modules.held_locks`)."""

OWN_PACKAGES = ("ckpt",)
_OWN_ROOT = os.path.dirname(os.path.dirname(os.path.realpath(version.__file__))) + os.sep
_ALWAYS_BY_REFERENCE = frozenset({"builtins", "sys"})
_NOT_MODULES_OF_THEIR_OWN = frozenset({"__mp_main__"})

# Values of these types are found again by other means (functions and classes by qualified name) or carry no
# identity worth keeping.
_NOT_REFERENCED = frozenset(
    {
        int,
        str,
        float,
        bool,
        complex,
        bytes,
        tuple,
        frozenset,
        type(None),
        type(NotImplemented),
        type(...),
        type,
        types.ModuleType,
        types.FunctionType,
        types.BuiltinFunctionType,
        types.MethodType,
        types.CodeType,
    }
)

# Values that a program may put into somebody else's module for all to see.
_PLAIN_VALUES = frozenset(
    {int, str, float, bool, complex, bytes, tuple, list, dict, set, frozenset, type(None)}
)

_CHANGES_ARE_SEEN = sys.version_info < (3, 13)
"""Does the census see that an attribute has been bound anew? Otherwise only that there are more or fewer."""

_OWN_MPI = "ckpt.MPI"


def _is_mark(key: str, value: object) -> bool:
    """Plain values that others compare by identity: ``argparse.SUPPRESS``, ``math.nan``."""
    if type(value) is str:
        return key.isupper() and len(value) > 1
    return type(value) is float and value != value


def _copy(text: str) -> str:
    return f"{text} "[:-1]


def _installed_roots() -> tuple[str, ...]:
    """Directories whose modules are installed, with a trailing separator."""
    paths = sysconfig.get_paths()
    found = [paths[key] for key in ("stdlib", "platstdlib", "purelib", "platlib") if key in paths]
    found += [os.path.dirname(os.__file__), *site.getsitepackages()]
    user = site.getusersitepackages()
    if user:
        found.append(user)
    return tuple(dict.fromkeys(os.path.realpath(path) + os.sep for path in found))


_roots: tuple[str, ...] = _installed_roots()


def _is_installed_path(path: str) -> bool:
    real = os.path.realpath(path)
    if real.startswith(_roots):
        return True
    return f"{os.sep}site-packages{os.sep}" in real or f"{os.sep}dist-packages{os.sep}" in real


def is_by_value(name: str, module: types.ModuleType) -> bool:
    """Does the module ``sys.modules[name]`` travel inside the image?"""
    if name == "__main__":
        return True
    if name in _ALWAYS_BY_REFERENCE or name in sys.builtin_module_names or name in _NOT_MODULES_OF_THEIR_OWN:
        return False
    attributes = module.__dict__
    file = attributes.get("__file__")
    if isinstance(file, str):
        own_name = attributes.get("__name__")  # ours by an alias, as mpi4py.MPI is, is ours
        for known in (name, own_name) if isinstance(own_name, str) else (name,):
            if known.partition(".")[0] in OWN_PACKAGES and os.path.realpath(file).startswith(_OWN_ROOT):
                return False
        return file.endswith((".py", ".pyc")) and not _is_installed_path(file)
    path = attributes.get("__path__")
    if path is not None:  # a namespace package has no file
        places = list(path)
        return bool(places) and not any(_is_installed_path(place) for place in places)
    if attributes.get("__spec__") is not None:
        return False  # frozen or built in
    if name.startswith(("_cython_", "cython_runtime")) or _is_made_in_c(module):
        return False  # made again when what has made them is imported: Cython's shared types, modules of cffi
    parent = sys.modules.get(name.rpartition(".")[0])
    if isinstance(parent, types.ModuleType):
        return is_by_value(parent.__name__, parent)
    # made by hand and put into sys.modules: by the program, unless by something that is imported before any
    # program
    return type(module) is types.ModuleType


def _is_made_in_c(module: types.ModuleType) -> bool:
    """Was it made from a definition in C, as those of extensions are, and those that an extension makes beside itself?"""
    import ctypes

    definition = ctypes.pythonapi.PyModule_GetDef
    definition.restype, definition.argtypes = ctypes.c_void_p, [ctypes.py_object]
    return isinstance(module, types.ModuleType) and definition(module) is not None


class References:
    """The objects that this process can name: id → persistent id. Kept from image to image; see
    :meth:`refresh`.

    ``by_value``: the modules that travel by value, in the order of their import. ``versions``: of the others, by top-level
    name, where they have one. ``added``: names that by-reference modules have got since :meth:`settle`. ``changed``,
    ``held``: what one image finds in installed packages. ``lazy``: (module, variable) → object, of those that were asked
    for and are no references (:mod:`ckpt.image.modules.lazy`).
    """

    def __init__(self) -> None:
        self.by_value: dict[str, types.ModuleType] = {}
        self.versions: dict[str, str] = {}
        self.added: dict[str, list[str]] = {}
        self.lazy: dict[tuple[str, str], object] = {}
        self._census = _lookup.Census()
        self._count = 0
        self._ids: dict[int, Pid] = {}
        self._values: dict[str, tuple[int, bool]] = {}  # name -> id of the module, does it travel by value
        self._own_names: dict[str, frozenset[str]] = {}
        self._mpi_names: dict[tuple[str, str], types.ModuleType] = {}
        self._touched: dict[str, types.ModuleType] = {}
        self.forget()

    def forget(self) -> None:
        """What has been found for one image."""
        self.changed = package_changes.Changed()
        self.held: list[held_locks.Held] = []

    def settle(self) -> None:
        """Before the program starts: what by-reference modules get from now on, the program has put there."""
        self.refresh()
        for name, (_, by_value) in self._values.items():
            module = sys.modules.get(name)
            if not by_value and module is not None:
                self._own_names[name] = frozenset(module.__dict__)
        self._touched.clear()

    def are_behind(self) -> bool:
        """Have modules been imported since the last :meth:`refresh`?"""
        return len(sys.modules) != self._count

    def refresh(self) -> None:
        """Look at modules imported, or grown, since the last time. About 10 µs when there are none."""
        modules = sys.modules
        changed = self._census.changed(modules)
        if not changed and len(modules) == self._count:
            return
        are_others = len(modules) != self._count
        self._count = len(modules)
        for name in changed:
            if name in _NOT_MODULES_OF_THEIR_OWN:
                continue  # another name of __main__
            module = modules[name]
            attributes = module.__dict__
            known = self._values.get(name)
            if known is None or known[0] != id(module):
                are_others = True
                self._values[name] = known = (id(module), is_by_value(name, module))
                self._ids[id(module)] = ("module", name)
                self._ids[id(attributes)] = ("dict", name)
            if not known[1]:
                self._touched[name] = module
                self._walk(name, attributes)
        if are_others:  # touches all of them
            values = self._values
            self.by_value = {
                name: module
                for name, module in list(modules.items())
                # one that another thread imports meanwhile is looked at the next time
                if isinstance(module, types.ModuleType) and values.get(name, (0, False))[1]
            }

    def _walk(self, name: str, attributes: Mapping[str, Any]) -> None:
        ids, own_names = self._ids, self._own_names.get(name)
        if own_names is not None:
            self.added[name] = [key for key in attributes if key not in own_names]
        version = attributes.get("__version__")
        if type(version) is str and "." not in name:
            self.versions[name] = version
        for key, value in attributes.items():
            kind = type(value)  # isinstance() would ask a lazy object of the program for its class
            if kind is types.ModuleType and value.__dict__.get("__name__") == _OWN_MPI:
                self._mpi_names[name, key] = value
            if issubclass(kind, type) or (kind in _NOT_REFERENCED and not _is_mark(key, value)):
                continue
            if own_names is not None and key not in own_names and kind in _PLAIN_VALUES:
                continue
            if name == "sys" and key in STREAMS:
                continue  # may be the program's; its own ones are found by std_objects()
            known = ids.get(id(value))
            if known is None or self._still(known, value) is None:
                # a mark may be the very string that is its name, or its module's: those of its id are copies
                ids[id(value)] = ("attr", _copy(name), _copy(key)) if kind is str else ("attr", name, key)

    def finder(
        self,
        live: Mapping[str, object],
        special: Callable[[Any], Any],
        roots: Sequence[object] = (),
    ) -> Callable[[object], Any]:
        """The function that maps an object to its persistent id, or to ``None``.

        ``special`` is asked for the containers that pickle cannot save (:mod:`ckpt.image.pickling.containers`); ``roots``
        hold all objects that numbers may be the addresses of (:mod:`ckpt.image.lowlevel.addresses`). Called for every
        object pickled, so it is C. Holds until the next :meth:`refresh`.
        """
        more: dict[int, Pid] = dict(self.changed.ids)
        for held in self.held:
            more[id(held.lock)] = held.pid
        for path, stream in std_objects().items():
            more[id(stream)] = ("std", path)
        for name, value in live.items():
            more[id(value)] = ("live", name)

        def walk() -> Walk:
            return _addresses.numbers(list(roots), self._ids, more, self._still, self.by_value)

        return _lookup.Finder(self._ids, more, self._checked, special, Addresses(walk))

    def name_of(self, obj: object) -> Pid | None:
        """The persistent id of a module, of its variables, or of one of them."""
        return self._checked(self._ids[id(obj)], obj) if id(obj) in self._ids else None

    def _checked(self, pid: Pid, obj: object) -> Pid | None:
        """``pid`` if it names ``obj``, and will in a new process."""
        found = self._still(pid, obj)
        if found is not None and found[0] == "attr" and lazy.is_lazy(found[1], found[2]):
            self.lazy[found[1], found[2]] = obj
            return None
        return found

    def _still(self, pid: Pid, obj: object) -> Pid | None:
        """``pid`` if it still names ``obj`` and may be used for it."""
        kind = pid[0]
        if kind == "attr":
            module = sys.modules.get(pid[1])
            if module is None or module.__dict__.get(pid[2]) is not obj or pid[1:] in self.changed.rebound:
                return None
            return None if self.is_user_type(type(obj)) else pid
        if kind == "module":
            return pid if sys.modules.get(pid[1]) is obj else None
        if kind == "dict":
            module = sys.modules.get(pid[1])
            return pid if module is not None and module.__dict__ is obj else None
        return pid if kind != "lib" or self.changed.is_whole(obj) else None

    def imported(self) -> list[str]:
        """By-reference modules that the program has imported, in order: also those that nothing in the image refers to.

        `import package.part` leaves `package` in a variable, and finds `part` in it later.
        """
        found = []
        for name, module in list(sys.modules.items()):
            if name in self.by_value or name in self._own_names or type(module) is not types.ModuleType:
                continue
            if getattr(module.__dict__.get("__spec__"), "name", None) == name:
                found.append(name)
        return found

    def patches(self) -> list[tuple[str, str, Any]]:
        """What the program has put into modules of others: functions, classes, instances, new plain values.

        Looked for in the modules that were imported, or have changed, since :meth:`settle`.
        """
        touched = self._touched if _CHANGES_ARE_SEEN else dict(sys.modules)
        for name in _NOT_MODULES_OF_THEIR_OWN:
            touched.pop(name, None)
        own = self._added_values() + self._found_mpi() + _lookup.patches(touched, self.by_value)
        return own + self._patches_by_packages(touched)

    def _patches_by_packages(self, touched: Mapping[str, types.ModuleType]) -> list[tuple[str, str, object]]:
        """Functions and classes of installed packages that the program has had put into the standard library (freezegun)."""
        standard = {name: module for name, module in touched.items() if _is_standard(name)}
        others = {name: module for name, module in list(sys.modules.items()) if not _is_standard(name)}
        return [
            (name, key, value)
            for name, key, value in _lookup.patches(standard, others)
            if isinstance(value, (types.FunctionType, type))
            and value.__module__ not in self.by_value
            and package_of(value.__module__) not in OWN_PACKAGES
            and self.names(value)
        ]

    def _found_mpi(self) -> list[tuple[str, str, object]]:
        """Where libraries keep the module MPI: some (schwimmbad) look for it late, and put it into a global of theirs that
        was ``None`` when they were imported.
        """
        return [
            (name, key, value)
            for (name, key), value in self._mpi_names.items()
            if name not in self.by_value
            and getattr(sys.modules.get(name), "__dict__", {}).get(key) is value
            and name.partition(".")[0] not in OWN_PACKAGES
        ]

    def _added_values(self) -> list[tuple[str, str, object]]:
        found = []
        for name, keys in self.added.items():
            attributes = getattr(sys.modules.get(name), "__dict__", {})
            found += [
                (name, k, attributes[k]) for k in keys if type(attributes.get(k, self)) in _PLAIN_VALUES
            ]
        return found

    def is_user_type(self, cls: type) -> bool:
        """Was the class written in a module that travels by value?"""
        module = cls.__dict__.get("__module__")
        return isinstance(module, str) and module in self.by_value

    def names(self, obj: Any) -> bool:
        """Can a function or class be found again by its qualified name, in a by-reference module?"""
        module_name, name = getattr(obj, "__module__", None), getattr(obj, "__qualname__", None)
        if not isinstance(module_name, str) or module_name in self.by_value:
            return False
        if not isinstance(name, str):  # it is just being made, as a functools.lru_cache may be
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
        """(module, name) of a function or type made in C in whose place there is something of another module now: it is
        found there while an image is loaded."""
        name, key = obj.__module__, obj.__qualname__
        module = sys.modules.get(name)
        if module is None or name in self.by_value:
            return None
        found = module.__dict__.get(key, obj) if isinstance(module, types.ModuleType) else module
        is_replaced = found is not obj and getattr(found, "__module__", None) != name
        return (name, key) if is_replaced else None


def _is_standard(name: str) -> bool:
    return package_of(name) in sys.stdlib_module_names


def resolve(pid: Pid, live: Mapping[str, object]) -> object:
    """The object of this process that a persistent id names. Raises :class:`RestoreError` where there is none."""
    kind = pid[0]
    if kind == "live":
        try:
            return live[pid[1]]
        except KeyError:
            raise RestoreError(f"the image refers to {pid[1]!r}, which this process does not offer") from None
    if kind == "std":
        try:
            return std_objects()[pid[1]]
        except KeyError:
            raise RestoreError(
                f"the image refers to sys.{pid[1]}, which this process does not have"
            ) from None
    module = import_again(pid[1])
    if kind == "module":
        return module
    if kind == "dict":
        return module.__dict__
    try:
        return module.__dict__[pid[2]]
    except KeyError:
        try:
            return getattr(module, pid[2])
        except AttributeError:
            raise RestoreError(f"module {pid[1]!r} has no attribute {pid[2]!r} in this process") from None


def import_all(names: Iterable[str]) -> None:
    """Import modules, in order. What cannot be imported is missed by who needs it, by name (:func:`resolve`)."""
    for name in names:
        if name not in sys.modules:
            with contextlib.suppress(Exception):
                importlib.import_module(name)


def import_again(name: str) -> types.ModuleType:
    """``sys.modules[name]``, imported if need be. Raises :class:`RestoreError`."""
    module = sys.modules.get(name)
    if module is not None:
        return module
    try:
        return importlib.import_module(name)
    except ImportError as failure:
        text = f"module {name!r} is part of the image and cannot be imported here"
        raise RestoreError(f"{text}: {failure}") from failure

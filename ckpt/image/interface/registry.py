"""The registry of libraries: which class (:class:`ckpt.image.interface.library.Library`) serves which library.

A table (:mod:`ckpt.image.interface.table`) maps the name of a top-level module to the path of a class, ``"module:Class"``.
The class is imported when the program has imported the library, so no class makes the start of a rank later. Other
distributions add to the table by entry points (group ``ckpt.libraries``; the name of the entry point is that of the
top-level module; docs/extending.md). The agent looks them up once, before ranks are forked (:func:`look_for_extensions`).
Classes of other distributions come before those of ckpt, for the same library too.

A class that cannot be used, because its module cannot be imported or holds no such class, never breaks a job: the rank
prints one warning, and ckpt's own class for the library, if there is one, serves it.

Modules that use the table: :mod:`ckpt.image.interface.transient` (moments to avoid), :mod:`ckpt.image.process.settings`,
:mod:`ckpt.replay.state` (registered objects),
:mod:`ckpt.image.pickling.pickler` (types), :mod:`ckpt.capture.threads`, :mod:`ckpt.image.modules.package_baseline`.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ckpt.compat import accelerators
from ckpt.compat.stdlib import is_initializing
from ckpt.image.errors import RestoreError
from ckpt.image.interface.library import InPlace, Library, Reducer, merged
from ckpt.image.interface.table import BUILT_IN
from ckpt.image.lowlevel.inspect_raw import namespace_of

__all__ = ["GROUP", "Registry", "libraries", "look_for_extensions"]

GROUP = "ckpt.libraries"

_LISTS = ("harmless_threads", "left_out_threads", "transient_types", "lock_types", "id_tables")
_AT_ONCE = frozenset(accelerators.TLS)
"""Modules of which a program's own module, while it is being imported, may make objects that are to be seen."""


class Registry:
    """The table, and the instances of its classes in this process."""

    def __init__(self, class_paths: Mapping[str, str]) -> None:
        self._class_paths: dict[str, tuple[str, ...]] = {
            name: (class_path,) for name, class_path in class_paths.items()
        }
        self._extensions: set[str] = set()
        self._extended: set[str] = set()
        self._instances: dict[str, Library | None] = {}  # by class path; None: the class cannot be used
        self._by_name: dict[str, Library | None] = {}
        self._names_seen: set[str] = set()
        self._loaded: tuple[Library, ...] = ()
        self._rebound: set[tuple[str, ...]] = set()
        self._filled: set[tuple[str, ...]] = set()
        self._is_filled: dict[type, bool] = {}
        self._thread_names: dict[str, tuple[tuple[Library, ...], tuple[str, ...]]] = {}
        self._implementations: dict[str, tuple[tuple[Library, ...], list[Any]]] = {}

    def extend(self, class_paths: Iterable[tuple[str, str]]) -> None:
        """Add (name, class path) pairs to the table, before the entries that it has."""
        added: dict[str, tuple[str, ...]] = {}
        for name, class_path in class_paths:
            added[name] = (*added.get(name, ()), class_path)
            self._extensions.add(class_path)
            self._extended |= {name, class_path.partition(":")[0]} - {"__main__"}
        self._class_paths = {**added, **self._class_paths}
        for name, first in added.items():
            self._class_paths[name] = first + tuple(
                class_path for class_path in self._class_paths[name] if class_path not in first
            )
            self._by_name.pop(name, None)
        self._names_seen = set()

    def find(self, name: str, *, is_complete: bool = False) -> Library | None:
        """The instance that serves the library of that name; ``None``: there is none. ``is_complete``: the library has been
        imported, though the import system does not say so yet. The class of another distribution is not imported while the
        library is being imported, since it may import the library itself: a later call finds it."""
        if name in self._by_name:
            return self._by_name[name]
        is_too_early = not is_complete and _is_being_imported(name)
        library = None
        for class_path in self._class_paths.get(name, ()):
            if class_path in self._extensions and is_too_early:
                return None
            library = self._make(name, class_path)
            if library is not None:
                break
        if name in self._class_paths and (
            library is not None or self._class_paths[name][-1] in self._instances
        ):
            self._by_name[name] = library
        return library

    def is_extended(self, module: str) -> bool:
        """Does an installed distribution say how images treat the library that this module is part of, or is that said in
        this module? Then the library is imported again, wherever its files are (editable mode)."""
        return module in self._extended or module.partition(".")[0] in self._extended

    def _make(self, name: str, class_path: str) -> Library | None:
        if class_path not in self._instances:
            try:
                self._instances[class_path] = self._imported(name, class_path)
            except Exception as failure:  # whatever an author's module may do
                if class_path not in self._extensions:
                    return None  # a class of ckpt cannot be imported now (a patched import system): tried again later
                self._instances[class_path] = None
                _print_warning(
                    f"the entry point {name!r} = {class_path!r} of {GROUP} cannot be used: "
                    f"{type(failure).__name__}: {failure}"
                )
        return self._instances[class_path]

    def _imported(self, name: str, class_path: str) -> Library:
        module, _, attribute = class_path.partition(":")
        cls: Any = importlib.import_module(module)
        for part in attribute.split("."):
            cls = getattr(cls, part)
        if not (isinstance(cls, type) and issubclass(cls, Library)):
            raise TypeError("it is no subclass of ckpt.libraries.Library")
        for name_of_list in _LISTS:
            if isinstance(text := getattr(cls, name_of_list), str):  # each letter would be taken for a name
                raise TypeError(f"{name_of_list} is a text: write ({text!r},), with a comma")
        library = cls(name)
        self._rebound.update(library.rebound_variables)
        self._filled.update(tuple(name.split(":", 1)) for name in library.filled_types)
        self._is_filled.clear()
        return library

    def loaded(self) -> tuple[Library, ...]:
        """The instances for the libraries that the program has imported, in the order of the table."""
        names = {
            name for name in self._class_paths.keys() & sys.modules.keys() if sys.modules[name] is not None
        }
        if names != self._names_seen:
            libraries_by_name = {name: self.find(name) for name in self._class_paths if name in names}
            self._loaded = tuple(
                dict.fromkeys(library for library in libraries_by_name.values() if library is not None)
            )
            if all(
                library is not None or name in self._by_name for name, library in libraries_by_name.items()
            ):
                self._names_seen = names
        return self._loaded

    def harmless_threads(self) -> tuple[str, ...]:
        """Prefixes of the names of classes and functions of harmless threads; each prefix ends with a dot."""
        return self._prefixes("harmless_threads")

    def left_out_threads(self) -> tuple[str, ...]:
        """Prefixes of the names of classes and functions of threads that are left out of images."""
        return self._prefixes("left_out_threads")

    def _prefixes(self, attribute: str) -> tuple[str, ...]:
        loaded = self.loaded()
        known = self._thread_names.get(attribute)
        if known is None or loaded is not known[0]:
            prefixes = tuple(f"{name}." for library in loaded for name in getattr(library, attribute))
            known = self._thread_names[attribute] = loaded, prefixes
        return known[1]

    def is_saved(self, pid: tuple[str, ...], cls: type) -> bool:
        """Do images hold the object of this class at ``("attr", module, variable)``, instead of that name? See
        :attr:`Library.rebound_variables` and ``filled_types``."""
        return pid[1:] in self._rebound or self.is_filled(cls)

    def is_filled(self, cls: type) -> bool:
        """See :attr:`Library.filled_types`."""
        if not self._filled:
            return False
        found = self._is_filled.get(cls)
        if found is None:
            bases = type.__dict__["__mro__"].__get__(cls)
            names = {
                (namespace_of(c).get("__module__"), type.__dict__["__qualname__"].__get__(c)) for c in bases
            }
            found = self._is_filled[cls] = not self._filled.isdisjoint(names)
        return found

    def note_import(self, name: str, *, is_inner: bool = False) -> None:
        """The module of that name has just been imported. ``is_inner``: another one, which imports it, is not complete."""
        if name in self._class_paths and (not is_inner or name in _AT_ONCE):
            library = self.find(name, is_complete=True)
            if library is not None:
                library.when_imported()

    def implementations(self, method: Callable[..., Any]) -> list[Any]:
        """The bound methods of this name of all loaded libraries whose class overrides ``method``."""
        name, loaded = method.__name__, self.loaded()
        known = self._implementations.get(name)
        if known is None or known[0] is not loaded:
            found = [
                getattr(library, name)
                for library in loaded
                if getattr(type(library), name, method) is not method
            ]
            known = self._implementations[name] = loaded, found
        return known[1]

    def reducers(self, *, beside_pickle: bool = False) -> dict[type, Reducer]:
        """The reducers of all loaded libraries, by exact type. ``beside_pickle``: without those of the libraries whose
        objects plain pickle saves too (``is_left_to_pickle``)."""
        found: dict[type, Reducer] = {}
        for library in reversed(self.loaded()):  # the first library has precedence
            if not (beside_pickle and library.is_left_to_pickle):
                found.update(library.reducers())
        return found

    def value_types(self) -> tuple[type, ...]:
        """Of all loaded libraries."""
        return tuple(each for found in self.implementations(Library.value_types) for each in found())

    def note_random(self) -> dict[str, Any]:
        """Library → the state of its generators of random numbers."""
        noted = {library.name: library.note_random() for library in self.loaded()}
        return {name: state for name, state in noted.items() if state is not None}

    def apply_random(self, noted: Mapping[str, Any]) -> None:
        """Restore what :meth:`note_random` has returned. Raises RestoreError if a state was noted by a distribution that is
        not installed here."""
        for name, state in noted.items():
            self.require(name).apply_random(state)

    def require(self, name: str) -> Library:
        """Import the library of that name, and return the instance that serves it. Raises RestoreError: there is none."""
        if name not in sys.modules:
            importlib.import_module(name)
        library = self.find(name)
        if library is None:
            raise RestoreError(
                f"the image has settings of {name!r}, noted by a distribution that is not installed here "
                "(an entry point of ckpt.libraries)"
            )
        return library

    def in_place(self) -> list[InPlace]:
        """What all loaded libraries say of registered objects."""
        return [entry for in_place in self.implementations(Library.in_place) for entry in in_place()]

    def shape_of(self, obj: Any, module: str) -> str | None:
        """The description of an object for reports, or ``None``. ``module``: the module of the object's class."""
        found = self.find(module.partition(".")[0])
        return None if found is None else found.shape_of(obj)

    def coming_back(self) -> tuple[set[int], set[int]]:
        """See :meth:`Library.coming_back`; of all libraries."""
        return merged(coming_back() for coming_back in self.implementations(Library.coming_back))

    def before_image(self) -> None:
        """Called in the parent just before an image: libraries write to disk what must be there, and record what a forked
        child could not find."""
        for before_image in self.implementations(Library.before_image):
            before_image()

    def rehearse(self) -> None:
        """Look for what the pause for an image calls: see :meth:`ckpt.capture.taker.Taker.rehearse`."""
        for method in (Library.reason_now, Library.before_image, Library.copy_out):
            self.implementations(method)

    def copy_out(self, *, is_writing: bool, available: Callable[[], int | None]) -> None:
        """See :meth:`Library.copy_out`."""
        for copy_out in self.implementations(Library.copy_out):
            copy_out(is_writing=is_writing, available=available)

    def has_to_read(self) -> bool:
        """See :meth:`Library.has_to_read`: is there one that has to?"""
        return any(has_to_read() for has_to_read in self.implementations(Library.has_to_read))

    def read_in_child(self, is_in_time: Callable[[], bool]) -> None:
        """See :meth:`Library.read_in_child`; of those that have to."""
        for library in self.loaded():
            if library.has_to_read():
                library.read_in_child(is_in_time)

    def let_copies_go(self) -> None:
        """See :meth:`Library.let_copies_go`."""
        for let_go in self.implementations(Library.let_copies_go):
            let_go()

    def copied_maps(self) -> set[int]:
        """See :meth:`Library.copied_maps`."""
        return {address for copied in self.implementations(Library.copied_maps) for address in copied()}

    def before_saving(self, threads: Sequence[Any], *, is_disposable: bool) -> None:
        """Called before anything is saved. ``threads``: see :meth:`Library.note_threads`."""
        for before_saving in self.implementations(Library.before_saving):
            before_saving(is_disposable=is_disposable)
        for note_threads in self.implementations(Library.note_threads):
            note_threads(threads, is_disposable=is_disposable)

    def after_restart(self) -> None:
        for after_restart in self.implementations(Library.after_restart):
            after_restart()

    def is_left_alone(self, name: str, *, is_complete: bool = False) -> bool:
        """Are the variables of that package no part of images?"""
        found = self.find(name, is_complete=is_complete)
        return found is not None and found.is_left_alone


libraries = Registry(BUILT_IN)
"""The registry of this process."""


def _is_being_imported(name: str) -> bool:
    return is_initializing(getattr(sys.modules.get(name), "__spec__", None))


def _print_warning(text: str) -> None:
    stream = sys.__stderr__
    if stream is not None:
        try:
            stream.write(f"ckpt: {text}\n")
            stream.flush()
        except (OSError, ValueError):  # standard error is closed
            pass


# ---------------------------------------------------------------------- entry points


def look_for_extensions() -> None:
    """Add the classes that installed distributions offer by entry points. Called once, before ranks are forked; imports none
    of these classes."""
    if not _is_group_in_use():
        return
    from importlib import metadata  # takes 30 ms, and few jobs need it

    class_paths = []
    for entry in metadata.entry_points(group=GROUP):
        if entry.name.isidentifier() and all(
            part.isidentifier() for part in entry.value.replace(":", ".").split(".")
        ):
            class_paths.append((entry.name, entry.value))
        else:
            _print_warning(
                f"the entry point {entry.name!r} = {entry.value!r} of {GROUP} is not of the form NAME = MODULE:CLASS"
            )
    libraries.extend(class_paths)


def _is_group_in_use() -> bool:
    """Does the ``entry_points.txt`` of a distribution on the path name the group? The files are searched for the text only,
    without importing :mod:`importlib.metadata`."""
    mark = f"[{GROUP}]".encode()
    for directory in sys.path:
        try:
            with os.scandir(directory or ".") as entries:
                names = [entry.name for entry in entries if entry.name.endswith((".dist-info", ".egg-info"))]
        except OSError:
            continue  # no directory: distributions in archives are not searched
        for name in names:
            try:
                with open(os.path.join(directory, name, "entry_points.txt"), "rb") as file:
                    if mark in file.read():
                        return True
            except OSError:
                continue
    return False

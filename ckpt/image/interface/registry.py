"""Which library is served by which class (:class:`ckpt.image.interface.library.Library`): the only table of libraries.

Name of a top-level module → ``"module:Class"``. The class is imported when the program has imported the library, so a rank
starts no later for any of them. Other distributions add to the table by entry points (group ``ckpt.libraries``, the name is
that of the top-level module; docs/extending.md), which are looked up once, by the agent, before ranks are forked
(:func:`look_for_extensions`). Theirs come before ours, for the same library too.

One that cannot be used, because its module cannot be imported or holds no such class, is said once and passed over, in
favour of ours where there is one: it never breaks a job.

What asks all of them: :mod:`ckpt.image.interface.transient` (moments to avoid), :mod:`ckpt.image.process.settings`,
:mod:`ckpt.replay.state` (registered objects),
:mod:`ckpt.image.pickling.pickler` (types), :mod:`ckpt.capture.threads`, :mod:`ckpt.image.modules.package_baseline`.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ckpt.compat import accelerators
from ckpt.compat.stdlib import is_initializing
from ckpt.image.errors import RestoreError
from ckpt.image.interface.library import InPlace, Library, Reducer

__all__ = ["GROUP", "Registry", "libraries", "look_for_extensions"]

GROUP = "ckpt.libraries"

_STANDARD = "ckpt.image.stdlib.standard"
_REGISTERED = "ckpt.image.stdlib.registered"
_DATA = "ckpt.image.libraries"
_TOOLS = "ckpt.image.tools"
BUILT_IN = {
    # the standard library: by the modules in C, which may be there without those in Python
    **dict.fromkeys(accelerators.DIGESTS, f"{_STANDARD}:Digests"),
    **dict.fromkeys(accelerators.COMPRESSION, f"{_STANDARD}:Compression"),
    **dict.fromkeys(accelerators.SOCKETS, f"{_STANDARD}:Sockets"),
    **dict.fromkeys(("subprocess", "multiprocessing"), f"{_STANDARD}:Processes"),
    accelerators.ELEMENT_TREE: f"{_STANDARD}:ElementTree",
    accelerators.PROFILER: f"{_STANDARD}:Profiles",
    accelerators.TOKENIZER: f"{_STANDARD}:Tokenizer",
    "logging": f"{_STANDARD}:Logging",
    "mmap": f"{_STANDARD}:MappedMemory",
    "pyexpat": f"{_STANDARD}:Expat",
    "sqlite3": f"{_STANDARD}:Sqlite",
    # those with settings, in the order in which these are put back
    "copyreg": f"{_REGISTERED}:CopyReg",
    "abc": f"{_REGISTERED}:VirtualSubclasses",
    "locale": f"{_STANDARD}:Locale",
    "csv": f"{_STANDARD}:Csv",
    "decimal": f"{_STANDARD}:Decimal",
    accelerators.RANDOM: f"{_STANDARD}:Random",
    # installed
    "numpy": f"{_DATA}.numpy:NumPy",
    "pandas": f"{_DATA}.pandas:Pandas",
    "matplotlib": f"{_DATA}.matplotlib:Matplotlib",
    "numba": f"{_DATA}.numba:Numba",
    "torch": f"{_DATA}.torch:Torch",
    "h5py": f"{_DATA}.h5py:H5py",
    "netCDF4": f"{_DATA}.netCDF4:NetCDF4",
    "PIL": f"{_DATA}.pillow:Pillow",
    "gmpy2": f"{_DATA}.gmpy2:Gmpy2",
    "numexpr": f"{_DATA}.numexpr:NumExpr",
    "cython_runtime": f"{_TOOLS}.cython:Cython",
    "pyfakefs": f"{_TOOLS}.pyfakefs:PyFakeFs",
    "regex": f"{_TOOLS}.regex:Regex",
    "filelock": f"{_TOOLS}.filelock:FileLock",
    "fastrlock": f"{_TOOLS}.fastrlock:FastRLock",
    "tqdm": f"{_TOOLS}.tqdm:Tqdm",
    "zmq": f"{_TOOLS}.zmq:Zmq",
    **dict.fromkeys(("pytest", "_pytest", "pluggy"), f"{_TOOLS}.pytest:Pytest"),
    "coverage": f"{_TOOLS}.coverage:Coverage",
    "django": f"{_TOOLS}.id_tables:Django",
    "lark": f"{_TOOLS}.id_tables:Lark",
    "parsimonious": f"{_TOOLS}.id_tables:Parsimonious",
    "sqlglot": f"{_TOOLS}.id_tables:Sqlglot",
    "transitions": f"{_TOOLS}.id_tables:Transitions",
    "gevent": f"{_TOOLS}.gevent:Gevent",
    "greenlet": f"{_TOOLS}.greenlet:Greenlet",
    "warnings": f"{_STANDARD}:Warnings",  # last: what the others cause must not meet the filters of the program
}


class Registry:
    """The table, and the instances of this process."""

    def __init__(self, ways: Mapping[str, str]) -> None:
        self._ways: dict[str, tuple[str, ...]] = {name: (way,) for name, way in ways.items()}
        self._extensions: set[str] = set()
        self._made: dict[str, Library | None] = {}  # by way; None: said that it cannot be used
        self._found: dict[str, Library | None] = {}  # by name
        self._names: set[str] = set()
        self._loaded: tuple[Library, ...] = ()
        self._of_threads: tuple[tuple[Library, ...], tuple[str, ...]] = ((), ())

    def extend(self, ways: Iterable[tuple[str, str]]) -> None:
        """More ways, (name, "module:Class"), before those that are known."""
        added: dict[str, tuple[str, ...]] = {}
        for name, way in ways:
            added[name] = (*added.get(name, ()), way)
            self._extensions.add(way)
        self._ways = {**added, **self._ways}
        for name, first in added.items():
            self._ways[name] = first + tuple(way for way in self._ways[name] if way not in first)
            self._found.pop(name, None)
        self._names = set()

    def find(self, name: str, *, is_complete: bool = False) -> Library | None:
        """What serves the library of that name; ``None``: nothing. ``is_complete``: it has been imported, though the import
        system does not know yet. An extension that is asked for too early is asked again: it may import what it serves."""
        if name in self._found:
            return self._found[name]
        is_early = not is_complete and _is_being_imported(name)
        found = None
        for way in self._ways.get(name, ()):
            if way in self._extensions and is_early:
                return None
            found = self._make(name, way)
            if found is not None:
                break
        if name in self._ways and (found is not None or self._ways[name][-1] in self._made):
            self._found[name] = found
        return found

    def _make(self, name: str, way: str) -> Library | None:
        if way not in self._made:
            try:
                self._made[way] = self._imported(name, way)
            except Exception as failure:  # whatever an author's module may do
                if way not in self._extensions:
                    return None  # ours cannot be imported just now (an import system that is patched): asked again
                self._made[way] = None
                _say(
                    f"the entry point {name!r} = {way!r} of {GROUP} cannot be used: {type(failure).__name__}: {failure}"
                )
        return self._made[way]

    @staticmethod
    def _imported(name: str, way: str) -> Library:
        module, _, attribute = way.partition(":")
        cls: Any = importlib.import_module(module)
        for part in attribute.split("."):
            cls = getattr(cls, part)
        if not (isinstance(cls, type) and issubclass(cls, Library)):
            raise TypeError("it is no subclass of ckpt.libraries.Library")
        return cls(name)

    def loaded(self) -> tuple[Library, ...]:
        """Those of the libraries that the program has imported, in the order of the table."""
        names = self._ways.keys() & sys.modules.keys()
        if names != self._names:
            found = {name: self.find(name) for name in self._ways if name in names}
            self._loaded = tuple(dict.fromkeys(each for each in found.values() if each is not None))
            if all(each is not None or name in self._found for name, each in found.items()):
                self._names = names
        return self._loaded

    def harmless_threads(self) -> tuple[str, ...]:
        """What names of threads' classes and functions begin with, each with a dot at its end."""
        loaded = self.loaded()
        if loaded is not self._of_threads[0]:
            beginnings = tuple(f"{name}." for each in loaded for name in each.harmless_threads)
            self._of_threads = loaded, beginnings
        return self._of_threads[1]

    def having(self, method: Callable[..., Any]) -> list[Any]:
        """That method of all libraries that are loaded and have one of their own."""
        name = method.__name__
        return [
            getattr(each, name) for each in self.loaded() if getattr(type(each), name, method) is not method
        ]

    def reducers(self, *, beside_pickle: bool = False) -> dict[type, Reducer]:
        """By exact type, of all of them. ``beside_pickle``: not of those whose objects plain pickle saves as well."""
        found: dict[type, Reducer] = {}
        for each in reversed(self.loaded()):  # the first ones count most
            if not (beside_pickle and each.is_left_to_pickle):
                found.update(each.reducers())
        return found

    def note_random(self) -> dict[str, Any]:
        """Library → the state of its generators of random numbers."""
        noted = {each.name: each.note_random() for each in self.loaded()}
        return {name: state for name, state in noted.items() if state is not None}

    def apply_random(self, noted: Mapping[str, Any]) -> None:
        """Put back what :meth:`note_random` has returned. Raises RestoreError where that was noted by a distribution that is
        not installed here."""
        for name, state in noted.items():
            self.need(name).apply_random(state)

    def need(self, name: str) -> Library:
        """What serves the library of that name, which is imported. Raises RestoreError: nothing does here."""
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
        """What all of them say of registered objects."""
        return [each for act in self.having(Library.in_place) for each in act()]

    def shape_of(self, obj: Any, module: str) -> str | None:
        """``module``: of the object's class."""
        found = self.find(module.partition(".")[0])
        return None if found is None else found.shape_of(obj)

    def before_image(self) -> None:
        """In the parent, just before the image: what must reach the disk first, and what a child would not find."""
        for act in self.having(Library.before_image):
            act()

    def after_restart(self) -> None:
        for act in self.having(Library.after_restart):
            act()

    def is_left_alone(self, name: str, *, is_complete: bool = False) -> bool:
        """Are the variables of that package no part of images?"""
        found = self.find(name, is_complete=is_complete)
        return found is not None and found.is_left_alone


libraries = Registry(BUILT_IN)
"""Of this process."""


def _is_being_imported(name: str) -> bool:
    return is_initializing(getattr(sys.modules.get(name), "__spec__", None))


def _say(text: str) -> None:
    stream = sys.__stderr__
    if stream is not None:
        try:
            stream.write(f"ckpt: {text}\n")
            stream.flush()
        except (OSError, ValueError):  # closed: nobody to say it to
            pass


# ---------------------------------------------------------------------- entry points


def look_for_extensions() -> None:
    """Add what installed distributions offer. Once, before ranks are forked; nothing of them is imported here."""
    if not _is_anything_offered():
        return
    from importlib import metadata  # 30 ms, which few need

    ways = []
    for entry in metadata.entry_points(group=GROUP):
        if entry.name.isidentifier() and all(
            part.isidentifier() for part in entry.value.replace(":", ".").split(".")
        ):
            ways.append((entry.name, entry.value))
        else:
            _say(
                f"the entry point {entry.name!r} = {entry.value!r} of {GROUP} is not of the form NAME = MODULE:CLASS"
            )
    libraries.extend(ways)


def _is_anything_offered() -> bool:
    """Does a distribution on the path name the group? Their files are looked at without what reads them properly."""
    mark = f"[{GROUP}]".encode()
    for place in sys.path:
        try:
            with os.scandir(place or ".") as entries:
                names = [each.name for each in entries if each.name.endswith((".dist-info", ".egg-info"))]
        except OSError:
            continue  # no directory: what is in archives offers nothing
        for name in names:
            try:
                with open(os.path.join(place, name, "entry_points.txt"), "rb") as file:
                    if mark in file.read():
                        return True
            except OSError:
                continue
    return False

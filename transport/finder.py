"""How an agent finds the modules of this package: as the import system's own finder does, in a quarter of the time.

An agent imports some 350 modules of this package, and the import system's finder asks of each in seven forms whether it is
there: of several kinds of extension modules, as source, as bytecode alone, as a package. A module of this package has one of
two forms, source or a package with source, and one look at a folder's list of names tells which. The module is loaded as
always: its ``__spec__``, its loader and its bytecode file are the same (tests/unit/transport/test_finder.py).

    `install`   before the agent imports anything else       `remove`   before it forks a rank: a program finds its modules
                                                             by the import system's own finders

Whatever is not source in the package's one folder is left to the finders that follow: extension modules, packages of
others, a package in an archive.
"""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from os import listdir

TYPE_CHECKING = False  # as typing.TYPE_CHECKING, without importing typing
if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

_PACKAGE = "ckpt."


class Finder:
    """A meta path finder (``importlib.abc.MetaPathFinder``)."""

    def __init__(self) -> None:
        self._names: dict[str, frozenset[str]] = {}  # folder → the names in it

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if path is None or not name.startswith(_PACKAGE) or len(path) != 1:
            return None
        folder, last = path[0], name.rpartition(".")[2]
        names = self._names_in(folder)
        if last in names and "__init__.py" in self._names_in(f"{folder}/{last}"):
            return _spec(name, f"{folder}/{last}", "__init__")
        return _spec(name, folder, last) if f"{last}.py" in names else None

    def _names_in(self, folder: str) -> frozenset[str]:
        names = self._names.get(folder)
        if names is None:
            try:
                names = frozenset(listdir(folder))
            except OSError:
                names = frozenset()
            self._names[folder] = names
        return names


def _spec(name: str, folder: str, stem: str) -> ModuleSpec:
    """The spec that ``importlib.util.spec_from_file_location`` would make for ``{stem}.py`` in the folder."""
    file = f"{folder}/{stem}.py"
    is_package = stem == "__init__"
    spec = ModuleSpec(name, SourceFileLoader(name, file), origin=file, is_package=is_package)
    spec.has_location = True
    if is_package:
        assert spec.submodule_search_locations is not None
        spec.submodule_search_locations.append(folder)
    # Else the spec finds the name itself, in more time
    if sys.pycache_prefix is None and not sys.flags.optimize:
        spec.cached = f"{folder}/__pycache__/{stem}.{sys.implementation.cache_tag}.pyc"
    return spec


_finder = Finder()


def install() -> None:
    """Ask this finder before the import system's own one, and after those that others have put before that: they want to see
    each import. Where the import system's own one is not asked, this one is not either. Further calls do nothing."""
    if _finder not in sys.meta_path and PathFinder in sys.meta_path:
        sys.meta_path.insert(sys.meta_path.index(PathFinder), _finder)


def remove() -> None:
    """Ask the import system's own finders alone, as before `install`."""
    if _finder in sys.meta_path:
        sys.meta_path.remove(_finder)

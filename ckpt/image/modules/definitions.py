"""Classes, functions and cells that an installed module has made when it was imported, and that no name leads to.

A decorator may put another class or function in the place of the one it was given (``dataclass(slots=True)``, or what
uses ``functools.wraps``). The first one lives on: methods hold it in the cell of ``__class__``, the second one
inherits from it or keeps it as ``__wrapped__``. A function that is stopped holds those very cells, and `super()` in it
compares the class in the cell with the class of its object. So they are references, as what has a name is: a path from
a variable of the module, which is followed in the new process, after the import.

::

    ("xdsl.dialects.builtin", "IntegerAttr", ("base", 0))            the class that the decorator was given
    ("xdsl.dialects.builtin", "IntegerAttr", ("base", 0), ("member", "__init__"), ("cell", 0))

What a cell holds is saved besides, unless it is a definition of the module again: the function on the stack works with it.

Only what definitions with a name of their own lead to is looked at (members and bases of classes, closures, what
descriptors and decorators wrap), of modules that are asked for, once per image. What has been made
since the import, and is found nowhere at such a path, is saved by value. Nothing of the program or of the package runs.
"""

from __future__ import annotations

import functools
import sys
import types
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ckpt.image.errors import RestoreError
from ckpt.image.lowlevel.inspect_raw import is_heap, space_of
from ckpt.image.modules.references import import_again

if TYPE_CHECKING:
    from ckpt.image.modules.references import References

__all__ = ["Definitions", "Path", "fill_cell", "follow"]

Path = tuple[Any, ...]
"""Module, variable, and steps, each a pair of its kind and where to go."""

_LRU = type(functools.lru_cache(lambda: None))
_WRAPPING: dict[type, tuple[str, ...]] = {
    property: ("fget", "fset", "fdel"),
    classmethod: ("__func__",),
    staticmethod: ("__func__",),
    functools.partial: ("func",),
    functools.partialmethod: ("func",),
    functools.cached_property: ("func",),
    _LRU: ("__wrapped__",),
}


class Definitions:
    """The unnamed definitions of by-reference modules, for one image. Objects are looked up by address, and kept alive."""

    def __init__(self, references: References) -> None:
        self._references = references
        self._found: dict[int, tuple[Any, Path]] = {}
        self._modules: set[str] = set()

    def path_of(self, obj: Any) -> Path | None:
        """Where a class or function is found that has no name; ``None``: nowhere."""
        module = space_of(obj).get("__module__") if isinstance(obj, type) else obj.__module__
        if not isinstance(module, str):
            return None
        self._look(module)
        found = self._found.get(id(obj))
        return found[1] if found is not None else None

    def note_closure(self, function: Any) -> None:
        """The function is on the stack, or that of a generator: its cells will be asked for."""
        if type(function) is types.FunctionType and function.__closure__ and type(function.__module__) is str:
            self._look(function.__module__)

    def cell(self, cell: types.CellType) -> tuple[Path, tuple[Any] | None] | None:
        """Where a cell is found, and what it is to hold, if that is not what the import puts there; ``None``: nowhere."""
        found = self._found.get(id(cell))
        if found is None:
            return None
        try:
            content = cell.cell_contents
        except ValueError:
            return found[1], None
        if type(content) is types.FunctionType or isinstance(content, type):
            is_defined = self._references.names(content) or self.path_of(content) is not None
            return found[1], None if is_defined else (content,)
        return found[1], (content,)

    def _look(self, name: str) -> None:
        if name in self._modules:
            return
        self._modules.add(name)
        module = sys.modules.get(name)
        if type(module) is not types.ModuleType or name in self._references.by_value:
            return
        waiting: deque[tuple[Any, Path]] = deque(
            (value, (name, key))
            for key, value in list(module.__dict__.items())
            if self._is_of(value, name) and _is_called(value, key)
        )
        while waiting:
            obj, path = waiting.popleft()
            if id(obj) in self._found:
                continue
            self._found[id(obj)] = obj, path
            for step, part in _parts(obj):
                if type(part) is types.CellType or self._is_of(part, name):
                    waiting.append((part, (*path, step)))

    def _is_of(self, obj: Any, name: str) -> bool:
        """Is it a definition of that module, or wraps one?"""
        kind = type(obj)
        if issubclass(kind, type):
            return is_heap(obj) and space_of(obj).get("__module__") == name
        if kind is types.FunctionType:
            home = obj.__module__
            if home == name:
                return True
            return (
                isinstance(home, str)
                and home not in self._references.by_value
                and not self._references.names(obj)
            )
        return kind in _WRAPPING


def _is_called(obj: Any, name: str) -> bool:
    """Is that its own name? What a module keeps under another may have been made, and put there, since the import."""
    kind = type(obj)
    if issubclass(kind, type):
        return bool(type.__dict__["__qualname__"].__get__(obj) == name)
    return kind in (types.FunctionType, _LRU) and getattr(obj, "__qualname__", None) == name


def _parts(obj: Any) -> Iterator[tuple[tuple[str, Any], Any]]:
    """What a definition leads to, one step away."""
    kind = type(obj)
    if kind is types.CellType:
        try:
            yield ("content", None), obj.cell_contents
        except ValueError:
            return
    elif issubclass(kind, type):
        for index, base in enumerate(type.__dict__["__bases__"].__get__(obj)):
            yield ("base", index), base
        for key, value in list(space_of(obj).items()):
            yield ("member", key), value
    elif kind is types.FunctionType:
        for index, cell in enumerate(obj.__closure__ or ()):
            yield ("cell", index), cell
        if "__wrapped__" in obj.__dict__:
            yield ("wrapped", None), obj.__dict__["__wrapped__"]
    else:
        for key in _WRAPPING.get(kind, ()):
            yield ("attribute", key), getattr(obj, key)


def follow(path: Path, name: str | None) -> Any:
    """The definition at that path. ``name``: the qualified name it must have. Raises :class:`RestoreError`."""
    module = import_again(path[0])
    try:
        found = module.__dict__[path[1]]
        for step in path[2:]:
            found = next(part for known, part in _parts(found) if known == step)
    except (KeyError, StopIteration):
        found = None
    if found is None or (name is not None and getattr(found, "__qualname__", None) != name):
        raise RestoreError(
            f"module {path[0]!r} does not define {name or 'what a function holds'} as it did when the image was taken"
        )
    return found


def fill_cell(cell: types.CellType, state: tuple[Any]) -> None:
    cell.cell_contents = state[0]

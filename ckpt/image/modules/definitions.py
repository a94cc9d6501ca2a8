"""Classes, functions and cells of installed modules that have no name of their own: an image refers to them by a path.

A decorator may replace the class or function that it was given by another (``dataclass(slots=True)``, ``functools.wraps``).
The first class or function still exists: methods hold it in their cell ``__class__``, the second one inherits from it or
keeps it as ``__wrapped__``. A captured frame holds such a cell, and `super()` in the frame compares the class in the cell
with the class of the object. So these objects must be references, like objects with a name: a path from a variable of the
module, which is followed in the new process after the import.

::

    ("xdsl.dialects.builtin", "IntegerAttr", ("base", 0))            the class that the decorator was given
    ("xdsl.dialects.builtin", "IntegerAttr", ("base", 0), ("member", "__init__"), ("cell", 0))

The content of such a cell is saved too, because the captured frame uses it, unless the content is itself a class or function
of the module.

Paths start at classes and functions that are variables under their own name, and go through members and bases of classes,
closures, and the functions that descriptors and decorators wrap. A module is searched once per image, when an object of the
module is asked for. Or an object is the value of a variable with another name than its own, and has been since the import:
``dot`` of ``autograd.numpy`` is a function ``primitive.<locals>.f_wrapped`` of another module, and a key of a table. An
object that no path leads to has been made after the import, and is saved by value. No code of the program or of the package
runs.
"""

from __future__ import annotations

import functools
import sys
import types
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ckpt.compat.typeobjects import is_heap
from ckpt.image.errors import RestoreError
from ckpt.image.lowlevel.inspect_raw import namespace_of
from ckpt.image.modules import package_baseline
from ckpt.image.modules.references import import_again

if TYPE_CHECKING:
    from ckpt.image.modules.references import References

__all__ = ["Definitions", "Path", "fill_cell", "follow"]

Path = tuple[Any, ...]
"""Module, variable, and steps. A step is a pair: the kind of step, and the name or index (None: not needed)."""

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
    """Paths to the unnamed classes, functions and cells of by-reference modules, for one image. Objects are looked up by
    address, and kept alive.
    """

    def __init__(self, references: References) -> None:
        self._references = references
        self._paths: dict[int, tuple[Any, Path]] = {}
        self._modules: set[str] = set()
        self._variables: dict[int, tuple[str, str]] | None = None

    def path_of(self, obj: Any) -> Path | None:
        """The path to a class or function that has no name; ``None``: there is none."""
        module = namespace_of(obj).get("__module__") if isinstance(obj, type) else obj.__module__
        if not isinstance(module, str):
            return None
        self._search_module(module)
        found = self._paths.get(id(obj))
        return found[1] if found is not None else self._variable(obj, module)

    def _variable(self, obj: Any, home: str) -> Path | None:
        """The variable of an installed module, if one has had this value since the module's import."""
        if home in self._references.by_value:
            return None
        if self._variables is None:
            self._variables = {
                id(value): (module, key)
                for module, key, value in package_baseline.values_since_import()
                if (type(value) is types.FunctionType or (issubclass(type(value), type) and is_heap(value)))
                and not _has_name(value, key)
            }
        path = self._variables.get(id(obj))
        if path is None or not package_baseline.holds_since_import(*path, obj):
            return None
        self._search_from(deque([(obj, path)]), home)
        return path

    def note_closure(self, function: Any) -> None:
        """Search the module of a function on the stack, or of a generator: :meth:`cell` will be asked for its cells."""
        if type(function) is types.FunctionType and function.__closure__ and type(function.__module__) is str:
            if not self._references.is_importable(function):
                self.path_of(function)
            else:
                self._search_module(function.__module__)

    def cell(self, cell: types.CellType) -> tuple[Path, tuple[Any] | None] | None:
        """``(path, content)`` of a cell; ``content`` is a 1-tuple, or None if the import itself fills the cell in the new
        process. ``None``: no path leads to the cell.
        """
        found = self._paths.get(id(cell))
        if found is None:
            return None
        try:
            content = cell.cell_contents
        except ValueError:
            return found[1], None
        if type(content) is types.FunctionType or isinstance(content, type):
            is_defined = self._references.is_importable(content) or self.path_of(content) is not None
            return found[1], None if is_defined else (content,)
        return found[1], (content,)

    def _search_module(self, name: str) -> None:
        if name in self._modules:
            return
        self._modules.add(name)
        module = sys.modules.get(name)
        if type(module) is not types.ModuleType or name in self._references.by_value:
            return
        waiting: deque[tuple[Any, Path]] = deque(
            (value, (name, key))
            for key, value in list(module.__dict__.items())
            if self._is_defined_in(value, name) and _has_name(value, key)
        )
        self._search_from(waiting, name)

    def _search_from(self, waiting: deque[tuple[Any, Path]], name: str) -> None:
        while waiting:
            obj, path = waiting.popleft()
            if id(obj) in self._paths:
                continue
            self._paths[id(obj)] = obj, path
            for step, part in _parts(obj):
                if type(part) is types.CellType or self._is_defined_in(part, name):
                    waiting.append((part, (*path, step)))

    def _is_defined_in(self, obj: Any, name: str) -> bool:
        """Is the object a class or function of the module ``name``, or does it wrap one?"""
        cls = type(obj)
        if issubclass(cls, type):
            return is_heap(obj) and namespace_of(obj).get("__module__") == name
        if cls is types.FunctionType:
            home = obj.__module__
            if home == name:
                return True
            return (
                isinstance(home, str)
                and home not in self._references.by_value
                and not self._references.is_importable(obj)
            )
        return cls in _WRAPPING


def _has_name(obj: Any, name: str) -> bool:
    """Is ``name`` the object's own name? An object under another name may have been made, and bound, after the import."""
    cls = type(obj)
    if issubclass(cls, type):
        return bool(type.__dict__["__qualname__"].__get__(obj) == name)
    return cls in (types.FunctionType, _LRU) and getattr(obj, "__qualname__", None) == name


def _parts(obj: Any) -> Iterator[tuple[tuple[str, Any], Any]]:
    """``(step, object)`` for the objects that one step from ``obj`` leads to."""
    cls = type(obj)
    if cls is types.CellType:
        try:
            yield ("content", None), obj.cell_contents
        except ValueError:
            return
    elif issubclass(cls, type):
        for index, base in enumerate(type.__dict__["__bases__"].__get__(obj)):
            yield ("base", index), base
        for key, value in list(namespace_of(obj).items()):
            yield ("member", key), value
    elif cls is types.FunctionType:
        for index, cell in enumerate(obj.__closure__ or ()):
            yield ("cell", index), cell
        if "__wrapped__" in obj.__dict__:
            yield ("wrapped", None), obj.__dict__["__wrapped__"]
    else:
        for key in _WRAPPING.get(cls, ()):
            yield ("attribute", key), getattr(obj, key)


def follow(path: Path, name: str | None) -> Any:
    """At load: the object at a path. ``name``: the qualified name that it must have; None for a cell. Raises
    :class:`RestoreError`.
    """
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

"""Objects of a library that an installed module has made, and that change later: mapped classes' tables, a registry.

An installed module is imported again in the new process and makes them anew: a variable or class there holds a new object,
others hold it too, in closures and default arguments. A name would lose what has changed in the object since the import, a
copy would be a second object beside that of the module. So the image holds the whole state, and in the new process *the
module's object is filled with it*, in its place.

- A place is a path (:mod:`ckpt.image.lowlevel.inspect_raw`) from a variable of an installed module, through its classes and
  through objects of the library.
- All places are looked up at once when the first of these objects is loaded, before any is filled: what is filled leads
  elsewhere.
- Where the new process has nothing at a place (made since the import), something else, or an object that another place has
  led to, a new object is made: what refers to it is in the image.

A library names the classes of such objects (:attr:`ckpt.image.interface.library.Library.filled_types`); for these a variable
of a module is no reference by itself. No code of the library runs.
"""

from __future__ import annotations

import sys
import types
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ckpt.compat.typeobjects import is_heap
from ckpt.image.interface.registry import libraries
from ckpt.image.lowlevel.inspect_raw import (
    Path,
    attributes_of,
    content_of,
    follow,
    is_a,
    is_named,
    namespace_of,
    package_of,
)
from ckpt.image.reducers import rebuild
from ckpt.image.reducers.raw_instances import FILLED_BASES, reduce_raw

if TYPE_CHECKING:
    from ckpt.image.modules.references import References
    from ckpt.image.reducers.saver import Saver

__all__ = ["FoundPlaces", "Places", "fill_again", "reduce_places", "reduce_to_place", "take"]

_CONTAINERS = (dict, list, tuple)
_MOST_OBJECTS = 200_000


class Places:
    """Where installed modules hold objects of ``package`` that are to be filled, for one image."""

    def __init__(self, references: References, package: str) -> None:
        self.package = package
        self._numbers: dict[int, int] = {}
        self.paths: list[tuple[type, Path]] = []
        self._kept: list[Any] = []  # so that the addresses stay theirs
        self._seen: set[int] = set()
        self._search(deque(self._roots(references)))

    def number_of(self, obj: Any) -> int | None:
        return self._numbers.get(id(obj))

    def _roots(self, references: References) -> Iterator[tuple[Any, Path]]:
        for name, module in list(sys.modules.items()):
            is_other = name in references.by_value or package_of(name) == self.package
            if is_other or type(module) is not types.ModuleType or name in sys.builtin_module_names:
                continue
            for key, value in list(module.__dict__.items()):
                if is_a(value, type):
                    yield from self._attributes_of_class(name, value)
                elif self._is_of_package(value):
                    yield value, (name, key)

    def _attributes_of_class(self, module: str, cls: type) -> Iterator[tuple[Any, Path]]:
        if id(cls) in self._seen or not is_heap(cls) or namespace_of(cls).get("__module__") != module:
            return
        self._seen.add(id(cls))
        names = type.__dict__["__qualname__"].__get__(cls).split(".")
        for key, value in list(namespace_of(cls).items()):
            if is_a(value, type):
                yield from self._attributes_of_class(module, value)
            elif self._is_of_package(value) and is_named(cls):
                yield value, (module, *names, key)

    def _is_of_package(self, value: Any) -> bool:
        cls = type(value)
        home = namespace_of(cls).get("__module__") if is_heap(cls) else None
        return isinstance(home, str) and package_of(home) == self.package

    def _search(self, waiting: deque[tuple[Any, Path]]) -> None:
        while waiting and len(self._seen) < _MOST_OBJECTS:
            obj, path = waiting.popleft()
            if id(obj) in self._seen:
                continue
            self._seen.add(id(obj))
            self._kept.append(obj)
            if libraries.is_filled(type(obj)):
                self._numbers[id(obj)] = len(self.paths)
                self.paths.append((type(obj), path))
            for step, part in _parts(obj):
                if self._is_of_package(part) or is_a(part, _CONTAINERS):
                    waiting.append((part, (*path, step)))


def _parts(obj: Any) -> Iterator[tuple[Any, Any]]:
    cls = type(obj)
    if cls is not dict and cls not in _CONTAINERS:
        yield from (attributes_of(obj) or {}).items()
    if issubclass(cls, dict):
        content = content_of(obj)
        for key, value in content.items() if type(content) is dict else content:
            if type(key) is str or type(key) is int:
                yield (key,), value
    elif issubclass(cls, (list, tuple)):
        for index in range(
            len(content := (list if issubclass(cls, list) else tuple).__getitem__(obj, slice(None)))
        ):
            yield (index,), content[index]


def reduce_to_place(saver: Saver, obj: Any, package: str) -> Any:
    """The raw state of an object, put into that of an installed module if it is one."""
    key = (Places, package)
    places = saver.shared.get(key)
    if places is None:
        places = saver.shared[key] = Places(saver.references, package)
    number, reduced = places.number_of(obj), reduce_raw(saver, obj)
    if number is None:
        return reduced
    make, args, state = reduced[:3]
    fill = reduced[5] if len(reduced) > 5 else None
    return take, (places, number, make, args), (fill, state), None, None, fill_again


def reduce_places(saver: Saver, places: Places) -> Any:
    return FoundPlaces, (places.paths,)


class FoundPlaces:
    """At load: what this process has at the places."""

    def __init__(self, paths: list[tuple[type, Path]]) -> None:
        self.objects: list[Any] = []
        taken: set[int] = set()
        for cls, path in paths:
            try:
                found = follow(path)
            except (LookupError, AttributeError, TypeError):
                found = None
            if type(found) is not cls or id(found) in taken:
                found = None
            taken.add(id(found))
            self.objects.append(found)


def take(places: FoundPlaces, number: int, make: Any, args: tuple[Any, ...]) -> Any:
    """The object at a place, empty, or a new one."""
    found = places.objects[number]
    if found is None:
        return make(*args)
    base = next(c for c in type(found).__mro__ if not is_heap(c))
    if base in FILLED_BASES:
        base.clear(found)
    return found


def fill_again(obj: Any, state: tuple[Any, Any]) -> None:
    fill, inner = state
    if fill is not None:
        fill(obj, inner)
    elif inner is not None:
        rebuild.fill_instance(obj, inner)

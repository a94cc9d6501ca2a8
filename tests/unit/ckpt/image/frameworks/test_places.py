"""Objects of a library that an installed module has made are filled in their places, after its next import."""

from __future__ import annotations

import importlib
import io
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ckpt.image.frameworks import places
from ckpt.image.frameworks.places import FoundPlaces, Places, fill_again, take
from ckpt.image.interface.library import Library
from ckpt.image.interface.registry import Registry
from ckpt.image.modules.references import References

LIBRARY = """
class Table(dict):
    def __init__(self, name, home):
        self.name, self.home, self.next = name, home, None
        home.tables[name] = self
class Home:
    def __init__(self):
        self.tables = {}
"""
MODULE = """
import framework
home = framework.Home()
one = framework.Table("one", home)
class Model:
    class Meta:
        table = framework.Table("two", home)
def known(table=one):
    return table
"""


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Any, Any]]:
    """The library, and an installed module that makes objects of it."""
    place = tmp_path / "site-packages"
    place.mkdir()
    (place / "framework.py").write_text(LIBRARY)
    (place / "models_of_framework.py").write_text(MODULE)
    monkeypatch.syspath_prepend(place)
    registry = Registry({"framework": f"{__name__}:Framework"})
    monkeypatch.setattr(places, "libraries", registry)
    names = ("framework", "models_of_framework")
    library, module = map(importlib.import_module, names)
    assert registry.find("framework") is not None
    yield library, module
    for name in names:
        sys.modules.pop(name, None)


class Framework(Library):
    filled_types = ("framework:Table", "framework:Home")


def imported_again() -> types.ModuleType:
    del sys.modules["models_of_framework"]
    return importlib.import_module("models_of_framework")


def test_what_has_changed_is_put_into_the_objects_of_the_new_import(modules: tuple[Any, Any]) -> None:
    library, old = modules
    added = library.Table("three", old.home)  # the program's
    old.one["rows"], old.one.next, old.Model.Meta.table.next = 7, added, old.one
    found = Places(References(), "framework")
    every = [old.home, old.one, old.Model.Meta.table, added]
    numbers = [found.number_of(each) for each in every]
    assert None not in numbers and found.number_of(library.Home()) is None
    new = imported_again()
    there = FoundPlaces(found.paths)
    cls = library.Table
    home = take(there, numbers[0], library.Home, ())
    one, two, three = (take(there, number, cls.__new__, (cls,)) for number in numbers[1:])
    assert home is new.home and one is new.one is new.known() and two is new.Model.Meta.table
    assert three is not one and three is not two and type(three) is cls and three is not added
    fill_again(one, (None, {"name": "one", "home": home, "next": three}))
    assert new.known().next is three and new.known().home is new.home


def test_one_object_is_filled_once(modules: tuple[Any, Any]) -> None:
    """Two objects of the program, where the new process has one and the same in both places."""
    library, old = modules
    old.other = library.Home()
    found = Places(References(), "framework")
    numbers = [found.number_of(old.home), found.number_of(old.other)]
    new: Any = imported_again()
    new.other = new.home
    there = FoundPlaces(found.paths)
    first, second = (take(there, number, library.Home, ()) for number in numbers if number is not None)
    assert first is new.home and second is not first


def test_a_place_with_something_else_is_no_place(modules: tuple[Any, Any]) -> None:
    library, old = modules
    found = Places(References(), "framework")
    number = found.number_of(old.one)
    new: Any = imported_again()
    new.one = new.home.tables["one"] = io.StringIO()
    assert number is not None
    assert type(take(FoundPlaces(found.paths), number, library.Home, ())) is library.Home


def test_what_a_container_had_at_the_import_is_gone(modules: tuple[Any, Any]) -> None:
    library, old = modules
    found = Places(References(), "framework")
    number = found.number_of(old.one)
    new: Any = imported_again()
    new.one["default"] = 1
    assert number is not None
    assert take(FoundPlaces(found.paths), number, library.Table, ()) == {}

"""Which class serves which library: the table, what distributions add to it, and those that cannot be used."""

from __future__ import annotations

import importlib
import sys
import types
from pathlib import Path

import pytest

from ckpt.image.errors import RestoreError
from ckpt.image.interface import registry
from ckpt.image.interface.library import InPlace, Library, by_name, later
from ckpt.image.interface.registry import Registry
from ckpt.image.interface.table import BUILT_IN
from ckpt.libraries import Library as PublicLibrary


class Serving(Library):
    is_left_alone = True


class Other(Library):
    def before_image(self) -> None:
        raise OSError("the disk is full")


class WithoutComma(Library):
    id_tables = "a_library.tables"  # type: ignore[assignment]


HERE = __name__


@pytest.fixture
def imported(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    monkeypatch.setitem(sys.modules, __name__, sys.modules.get(__name__) or importlib.import_module(__name__))
    module = types.ModuleType("a_library")
    monkeypatch.setitem(sys.modules, "a_library", module)
    return module


@pytest.mark.parametrize("way", sorted(set(BUILT_IN.values())))
def test_every_class_of_the_table_exists_and_imports_no_library(way: str) -> None:
    before = set(sys.modules)
    module, _, name = way.partition(":")
    cls = getattr(importlib.import_module(module), name)
    assert issubclass(cls, Library)
    known = {each.partition(".")[0] for each in set(sys.modules) - before}
    assert not known & set(BUILT_IN) - sys.stdlib_module_names


def test_what_the_program_has_not_imported_has_no_instance() -> None:
    here = Registry({"not_imported": f"{HERE}:Serving"})
    assert here.loaded() == () and not here.reducers()


@pytest.mark.usefixtures("imported")
def test_an_extension_comes_before_ours_and_ours_serves_where_it_is_broken(
    capfd: pytest.CaptureFixture[str],
) -> None:
    here = Registry({"a_library": f"{HERE}:Serving"})
    here.extend([("a_library", f"{HERE}:Other")])
    assert [type(each) for each in here.loaded()] == [Other]
    here = Registry({"a_library": f"{HERE}:Serving"})
    here.extend([("a_library", "not_installed:Class")])
    assert [type(each) for each in here.loaded()] == [Serving]
    assert here.is_left_alone("a_library")
    here.loaded()
    said = capfd.readouterr().err
    assert said.count("'a_library' = 'not_installed:Class' of ckpt.libraries cannot be used") == 1, said


@pytest.mark.usefixtures("imported")
@pytest.mark.parametrize("way", [f"{HERE}:imported", f"{HERE}:Nothing", "os:path", "math:pi"])
def test_what_is_no_subclass_is_said_by_name_and_passed_over(
    way: str, capfd: pytest.CaptureFixture[str]
) -> None:
    here = Registry({})
    here.extend([("a_library", way)])
    assert here.loaded() == () and here.find("a_library") is None
    assert repr(way) in capfd.readouterr().err


@pytest.mark.usefixtures("imported")
def test_a_text_in_place_of_a_tuple_is_said(capfd: pytest.CaptureFixture[str]) -> None:
    """Its letters were taken for names, and what it had asked for was not done."""
    here = Registry({})
    here.extend([("a_library", f"{HERE}:WithoutComma")])
    assert here.loaded() == ()
    assert "id_tables is a text: write ('a_library.tables',), with a comma" in capfd.readouterr().err


def test_an_extension_is_not_imported_while_its_library_is(imported: types.ModuleType) -> None:
    """It may import what it serves, which would change the order in which that is imported."""
    imported.__spec__ = types.SimpleNamespace(_initializing=True)  # type: ignore[assignment]
    here = Registry({})
    here.extend([("a_library", f"{HERE}:Serving")])
    assert here.loaded() == ()
    assert here.find("a_library", is_complete=True) is not None
    assert [type(each) for each in here.loaded()] == [Serving]


@pytest.mark.usefixtures("imported")
def test_a_failing_before_image_is_the_reason_why_there_is_no_image() -> None:
    here = Registry({"a_library": f"{HERE}:Other"})
    with pytest.raises(OSError, match="the disk is full"):
        here.before_image()


@pytest.mark.usefixtures("imported")
def test_nothing_is_special_by_default() -> None:
    plain = Library("a_library")
    assert (plain.note_random(), plain.in_place(), plain.shape_of(1)) == (None, (), None)
    assert (plain.reducers(), plain.reducer_by_base(int), plain.note_settings()) == ({}, None, None)
    assert plain.module is sys.modules["a_library"] and PublicLibrary is Library
    for act in (plain.before_image, plain.after_restart, plain.refuse):
        assert act() is None  # type: ignore[func-returns-value]
    assert by_name("not_imported", {"Type": later("os", "getpid")}) == {}


@pytest.mark.parametrize(
    ("text", "found"), [("a = m:C\n", ["a = m:C"]), ("a = not a way\nb = m:C\n", ["b = m:C"])]
)
def test_entry_points_are_found_on_the_path(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    text: str,
    found: list[str],
) -> None:
    info = tmp_path / "an_author-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Name: an-author\nVersion: 1\n")
    (info / "entry_points.txt").write_text(f"[ckpt.libraries]\n{text}")
    monkeypatch.setattr(sys, "path", [str(tmp_path), str(tmp_path / "missing")])
    here = Registry({})
    monkeypatch.setattr(registry, "libraries", here)
    registry.look_for_extensions()
    assert [f"{name} = {path}" for name, (path,) in here._class_paths.items()] == found
    assert ("not a way" in capfd.readouterr().err) == ("not a way" in text)


def test_no_reader_of_metadata_is_imported_where_nothing_is_offered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.setitem(sys.modules, "importlib.metadata", None)  # importing it would fail
    registry.look_for_extensions()


class Dice(Library):
    """Its generator is a number; its objects are dictionaries."""

    state = 1

    def note_random(self) -> int:
        return self.state

    def apply_random(self, saved: int) -> None:
        self.state = saved

    def in_place(self) -> list[InPlace]:
        return [InPlace("dice", (Dice,), vars, lambda obj, content: vars(obj).update(content))]

    def shape_of(self, obj: object) -> str:
        return f"{obj!r} sides"


@pytest.mark.usefixtures("imported")
def test_generators_contents_and_shapes_are_what_the_libraries_say() -> None:
    here = Registry({"a_library": f"{HERE}:Dice", "not_imported": f"{HERE}:Dice"})
    noted = here.note_random()
    here.require("a_library").apply_random(5)
    assert (noted, here.note_random()) == ({"a_library": 1}, {"a_library": 5})
    here.apply_random(noted)
    assert here.note_random() == noted
    assert [each.kind for each in here.in_place()] == ["dice"]
    assert (here.shape_of(6, "a_library.part"), here.shape_of(6, "another")) == ("6 sides", None)
    with pytest.raises(RestoreError, match="settings of 'json'"):
        here.apply_random({"json": 1})

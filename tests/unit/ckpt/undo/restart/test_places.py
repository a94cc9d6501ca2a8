"""No step of a restart follows a symbolic link, in whatever component of a path, and whenever it was put there."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ckpt.undo.keeping import look
from ckpt.undo.planning.plan import Log, make_plan
from ckpt.undo.records import Attributes, Content, Name, Record, Status
from ckpt.undo.restart import places as module
from ckpt.undo.restart.places import Places
from ckpt.undo.restart.putting_back import Problem, put_back
from tests.unit.ckpt.undo.test_sequences import tree_of


@pytest.fixture
def places() -> Iterator[Places]:
    made = Places()
    yield made
    made.close()


def status_of(path: Path) -> Status:
    status = look(str(path))
    assert status is not None
    return status


class Scene:
    """`work/d` is the program's; `elsewhere` has the same names, and the program could not have written there."""

    def __init__(self, where: Path) -> None:
        self.directory, self.elsewhere = where / "work" / "d", where / "elsewhere"
        self.undone, self.kept = where / "undone", where / "kept"
        for directory in (self.directory, self.elsewhere):
            (directory / "below").mkdir(parents=True)
            (directory / "file").write_text(f"in {directory.name}")
            (directory / "link").symlink_to("file")
        for path in (self.undone, self.kept):
            path.mkdir()
        (self.kept / "1").write_text("copy")
        self.before = tree_of(str(self.elsewhere))

    def swap(self) -> None:
        """Somebody puts a symbolic link in the place of the directory."""
        self.directory.rename(self.directory.with_name("away"))
        self.directory.symlink_to(self.elsewhere)

    def put_back(self, *records: Record) -> list[Problem]:
        return put_back(make_plan([Log(str(self.kept), records)]), str(self.undone), {})


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    made = Scene(tmp_path)
    yield made
    assert tree_of(str(made.elsewhere)) == made.before


def name_of_new(scene: Scene) -> list[Record]:
    return [Name(str(scene.directory / "file"), None, 0, 1)]


def name_of_file(scene: Scene) -> list[Record]:
    path = scene.directory / "file"
    return [Content(str(path), status_of(path), 1, "", 0, 0, 1), Name(str(path), status_of(path), 0, 2)]


def name_of_directory(scene: Scene) -> list[Record]:
    path = scene.directory / "below"
    return [Name(str(path), status_of(path), 0, 1)]


def name_of_link(scene: Scene) -> list[Record]:
    path = scene.directory / "link"
    return [Name(str(path), status_of(path), 0, 1)]


def contents(scene: Scene) -> list[Record]:
    path = scene.directory / "file"
    return [Content(str(path), status_of(path), 1, "", 0, 0, 1)]


def length(scene: Scene) -> list[Record]:
    path = scene.directory / "file"
    return [Content(str(path), status_of(path)._replace(nbytes=1), 0, "", 0, 0, 1)]


def mode_of_file(scene: Scene) -> list[Record]:
    path = scene.directory / "file"
    return [Attributes(str(path), status_of(path)._replace(mode=stat.S_IFREG | 0o600), 0, 1)]


def mode_of_directory(scene: Scene) -> list[Record]:
    path = scene.directory / "below"
    return [Attributes(str(path), status_of(path)._replace(mode=stat.S_IFDIR | 0o700), 0, 1)]


KINDS = (
    name_of_new,
    name_of_file,
    name_of_directory,
    name_of_link,
    contents,
    length,
    mode_of_file,
    mode_of_directory,
)


@pytest.mark.parametrize("kind", KINDS)
def test_a_directory_that_is_a_symbolic_link_now_leads_nowhere(
    scene: Scene, kind: Callable[[Scene], list[Record]]
) -> None:
    """What cannot be put back for that is named. New names below it have gone with the directory."""
    records = kind(scene)
    scene.swap()
    problems = scene.put_back(*records)
    assert {problem.path for problem in problems} == ({records[0].path} if kind is not name_of_new else set())
    assert not list(scene.undone.iterdir())


STEPS: dict[str, Callable[[Places, Scene, str], None]] = {
    "make a file": lambda places, scene, path: places.make_file(path + "+").__exit__(),
    "make a directory": lambda places, scene, path: places.make_directory(path + "+"),
    "make a symbolic link": lambda places, scene, path: places.make_symlink("x", path + "+"),
    "link to it": lambda places, scene, path: places.link(str(scene.kept / "1"), path + "+"),
    "link from it": lambda places, scene, path: places.link(path, str(scene.undone / "0")),
    "rename": lambda places, scene, path: places.rename(path, path + "+"),
    "move out": lambda places, scene, path: places.move_out(path, str(scene.undone / "0")),
}


@pytest.mark.parametrize("step", STEPS)
def test_a_directory_that_becomes_a_symbolic_link_behind_a_look_leads_nowhere(
    scene: Scene, places: Places, step: str
) -> None:
    """The change is made in the directory that was looked at."""
    path = str(scene.directory / "file")
    assert places.look(path) is not None
    scene.swap()
    STEPS[step](places, scene, path)
    away = {path.name for path in scene.directory.with_name("away").iterdir()}
    assert away != {"below", "file", "link"} or list(scene.undone.iterdir())


def test_a_file_that_is_replaced_while_it_is_changed(scene: Scene, places: Places) -> None:
    """What is changed is the file that was looked at, not what has its name by then."""
    path = scene.directory / "file"
    status = status_of(path)
    with places.opened(str(path)) as file:
        path.unlink()
        path.symlink_to(scene.elsewhere / "file")
        file.overwrite(str(scene.kept / "1"), 4)
        file.truncate(2)
        file.set_attributes(status._replace(mode=stat.S_IFREG | 0o640, mtime_ns=5))
    assert places.look(str(path)) is not None


def test_a_directory_that_was_renamed_is_looked_for_again(scene: Scene, places: Places) -> None:
    path = scene.directory / "below" / "x"
    path.write_text("x")
    assert places.look(str(path)) is not None
    places.rename(str(scene.directory), str(scene.directory.with_name("away")))
    assert places.look(str(path)) is None
    assert places.look(str(scene.directory.with_name("away") / "below" / "x")) is not None


def test_few_descriptors_are_kept(tmp_path: Path, places: Places) -> None:
    count = len(os.listdir("/proc/self/fd"))
    for number in range(200):
        (tmp_path / f"{number}").mkdir()
        assert places.look(str(tmp_path / f"{number}" / "x")) is None
    assert len(os.listdir("/proc/self/fd")) <= count + module._REMEMBERED
    places.close()
    assert len(os.listdir("/proc/self/fd")) == count

"""Going back: files are what they were at the image, whatever the program has done to them since; random programs."""

from __future__ import annotations

import contextlib
import os
import random
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ckpt.redundancy.files import names, notes, objects
from ckpt.redundancy.files.changes import STATE
from ckpt.redundancy.files.going_back import _Undoing, go_back
from ckpt.redundancy.files.notes import Notes

FORGOTTEN = "what was to be put back is not known any more"
Tree = dict[str, tuple[Any, ...]]


def tree(root: Path) -> Tree:
    """Kind, mode, content and time of all that is below a directory; which names have one file."""
    found: Tree = {}
    files: dict[int, str] = {}
    for path in sorted(root.rglob("*")):
        status = path.lstat()
        name, mode = str(path.relative_to(root)), stat.S_IMODE(status.st_mode)
        if stat.S_ISLNK(status.st_mode):
            found[name] = ("link", os.readlink(path))
        elif stat.S_ISREG(status.st_mode):
            first = files.setdefault(status.st_ino, name)
            found[name] = ("file", mode, path.read_bytes(), first, status.st_mtime_ns)
        else:
            found[name] = (stat.S_IFMT(status.st_mode), mode)
    return found


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A directory of a program with replicas; each change is made once."""
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    monkeypatch.setattr(STATE, "meet", lambda content, act: act())
    monkeypatch.setattr(STATE, "notes", Notes(str(tmp_path / "notes")))
    return work


def again() -> Notes:
    """Another process: it knows what is in the log."""
    STATE.notes = Notes(STATE.notes.path)
    return STATE.notes


class KilledError(Exception):
    pass


@contextlib.contextmanager
def killed_at(count: int, monkeypatch: pytest.MonkeyPatch, cls: type, method: str) -> Iterator[None]:
    """The process is killed at this call of the method, instead of it."""
    left, genuine = iter(range(1, count)), getattr(cls, method)

    def call(*args: Any) -> Any:
        if next(left, None) is None:
            raise KilledError
        return genuine(*args)

    with monkeypatch.context() as patched:
        patched.setattr(cls, method, call)
        yield


def write(path: str, text: str, mode: str = "w") -> None:
    with objects.replica_open(path, mode) as file:
        file.write(text)


def test_a_state_file_that_is_read_changed_and_written_anew_has_its_old_value(work: Path) -> None:
    """It had that of the future: the program went on from it without a word."""
    write("state", "1")
    image = STATE.notes.image("1")
    write("state", "2")
    write("state.tmp", "3")
    names.os_replace("state.tmp", "state")
    assert go_back(again(), image) == []
    assert os.listdir() == ["state"] and Path("state").read_text() == "1"
    assert go_back(again(), None) == [] and os.listdir() == []


def test_links_and_pipes_are_made_again(work: Path) -> None:
    write("old", "before")
    names.os_symlink("old", "kept")
    image = STATE.notes.image("1")
    names.os_symlink("old", "link")
    names.os_mkfifo("pipe")
    names.os_remove("kept")
    assert go_back(again(), image) == []
    assert sorted(os.listdir()) == ["kept", "old"] and os.readlink("kept") == "old"


def test_a_new_directory_with_something_of_others_in_it_stays_and_may_be_made_again(work: Path) -> None:
    names.os_makedirs("made/below")
    Path("made/other").write_text("of another rank")
    assert go_back(again(), None) == []
    assert os.listdir("made") == ["other"] and STATE.notes.may_exist == {str(work / "made")}
    names.os_mkdir("made")
    with pytest.raises(FileExistsError):
        names.os_mkdir("made")


def test_a_directory_that_has_moved_has_its_path_again(work: Path) -> None:
    names.os_mkdir("one")
    write("one/file", "before")
    image = STATE.notes.image("1")
    names.os_rename("one", "two")
    write("two/file", "after")
    write("two/new", "x")
    second = STATE.notes.image("2")
    write("two/file", "later")
    names.os_remove("two/new")
    assert go_back(again(), second) == []
    assert Path("two/file").read_text() == "after" and Path("two/new").read_text() == "x"
    assert go_back(again(), image) == []
    assert os.listdir() == ["one"] and os.listdir("one") == ["file"]
    assert Path("one/file").read_text() == "before"


def test_a_new_directory_under_the_name_of_one_that_has_moved_makes_room_for_it(work: Path) -> None:
    """As programs do that keep the output of the run before."""
    names.os_mkdir("out")
    write("out/file", "before")
    image = STATE.notes.image("1")
    for number in range(2):
        names.os_rename("out", f"out-{number}")
        names.os_mkdir("out")
        write("out/file", f"run {number}")
    names.os_rename("out-1", "out-2")
    names.os_remove("out-0/file")
    assert go_back(again(), image) == []
    assert os.listdir() == ["out"] and Path("out/file").read_text() == "before"


def test_an_image_without_replicas_leaves_files_as_they_are_when_it_is_gone_on_from_first(work: Path) -> None:
    """What had been noted before was undone: files that the program had made were removed."""
    write("log", "one\n")
    write("gone", "x")
    Path("gone").unlink()
    without = again().image_without_replicas(5)
    assert go_back(STATE.notes, without) == [] and Path("log").read_text() == "one\n"
    for _ in range(2):
        write("log", "two\n", "a")
        write("later", "x")
        assert go_back(again(), again().image_without_replicas(5)) == []
        assert Path("log").read_text() == "one\n" and not Path("later").exists()


def test_what_a_process_had_begun_to_note_when_it_was_killed_hides_no_later_line(work: Path) -> None:
    """Its half of a line and the next one became one line, which nobody could read."""
    write("one", "x")
    with open(STATE.notes.path, "ab") as log:
        log.write(b'["name", "/never"')
    again()
    write("two", "x")
    assert go_back(again(), None) == [] and os.listdir() == []


def test_going_back_that_was_interrupted_is_done_again(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write("a", "before")
    write("b", "other")
    image = STATE.notes.image("1")
    names.os_replace("b", "a")
    write("a", "after")

    with killed_at(1, monkeypatch, Notes, "rewrite"), pytest.raises(KilledError):
        go_back(again(), image)
    assert go_back(again(), image) == []
    assert Path("a").read_text() == "before" and Path("b").read_text() == "other"
    assert os.listdir(STATE.notes.kept) == []


def test_a_directory_that_was_left_may_be_made_again_when_going_back_was_interrupted_behind_it(
    work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names.os_mkdir("moved")
    names.os_rename("moved", "here")
    names.os_mkdir("made")
    Path("made/other").write_text("of another rank")
    with killed_at(2, monkeypatch, Notes, "rewrite"), pytest.raises(KilledError):
        go_back(again(), None)
    assert go_back(again(), None) == [] and os.listdir() == ["made"]
    names.os_mkdir("made")


def test_of_old_images_nothing_is_known_any_more_and_what_they_kept_is_removed(
    work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notes, "IMAGES", 3)
    write("a", "at first")
    images = []
    for number in range(9):
        images.append(STATE.notes.image(str(number)))
        write("a", f"value {number}")
    assert len(os.listdir(STATE.notes.kept)) <= 5
    assert go_back(again(), images[0]) == [("", FORGOTTEN)]
    assert Path("a").read_text() == "value 8"
    assert go_back(again(), images[7]) == [] and Path("a").read_text() == "value 6"
    assert go_back(again(), None) == [] and os.listdir() == []


def test_a_file_that_is_too_large_to_be_kept_is_named(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write("large", "x" * 1000)
    write("other", "x" * 1000)
    image = STATE.notes.image("1")
    monkeypatch.setattr(notes, "COPIED_BYTES", 999)
    monkeypatch.setattr(notes, "LINKED_BYTES", 999)
    write("large", "y")
    names.os_remove("other")
    problems = go_back(again(), image)
    assert sorted(problems) == [
        (str(work / name), "it was too large to be kept") for name in ("large", "other")
    ]


class Program:
    """Does something to a few files. `random`: what it chooses by."""

    paths = ("a", "b", "d", "e", "d/a", "d/b", "e/a")

    def __init__(self, choose: random.Random) -> None:
        self._random = choose

    def step(self) -> None:
        one, two = (self._random.choice(self.paths) for _ in range(2))
        text = "".join(self._random.choices("xyz", k=self._random.randrange(6)))
        steps: list[Callable[[], object]] = [
            lambda: write(one, text),
            lambda: write(one, text, "a"),
            lambda: write(one, text, "x"),
            lambda: self._within(one, text),
            lambda: names.os_remove(one),
            lambda: names.os_mkdir(one),
            lambda: names.os_rmdir(one),
            lambda: names.os_rename(one, two),
            lambda: names.os_replace(one, two),
            lambda: names.os_link(one, two),
            lambda: names.os_symlink(text or "a", one),
            lambda: names.os_mkfifo(one) if self._random.random() < 0.2 else None,
            lambda: names.os_truncate(one, len(text)) if not _is_pipe(one) else None,
            lambda: names.os_chmod(one, self._random.choice((0o644, 0o755))),
            lambda: names.os_utime(one, ns=(1, self._random.randrange(1 << 40))),
        ]
        try:
            if not (_is_pipe(one) or _is_pipe(two)) or self._random.random() < 0.1:
                self._random.choice(steps[4:])()
            else:
                self._random.choice(steps)() if not _is_pipe(one) else None
        except OSError:
            pass  # the program sees that, too

    def _within(self, path: str, text: str) -> None:
        """Written anew, and then within what it has written."""
        with objects.replica_open(path, "wb", 0) as file:
            file.write(b"0123456789")
            file.seek(self._random.randrange(8))
            file.write(text.encode())
            file.truncate(self._random.randrange(12))


def _is_pipe(path: str) -> bool:
    try:
        return stat.S_ISFIFO(os.stat(path).st_mode)
    except OSError:
        return False


@pytest.mark.parametrize("block", range(4))
@pytest.mark.parametrize("links", [True, False])
def test_whatever_a_program_has_done_to_files_they_are_what_they_were(
    work: Path, monkeypatch: pytest.MonkeyPatch, block: int, links: bool
) -> None:
    """`links`: can hard links be made in the job's directory?"""
    genuine = os.link

    def link(source: Any, target: Any, **named: Any) -> None:
        if not links and str(target).startswith(STATE.notes.kept):
            raise OSError("no links here")
        genuine(source, target, **named)

    monkeypatch.setattr(os, "link", link)
    for number in range(60):
        seed = block * 1000 + number
        choose = random.Random(seed)
        for path in (STATE.notes.path, *map(str, sorted(work.rglob("*"), reverse=True))):
            if os.path.isdir(path) and not os.path.islink(path):
                os.rmdir(path)
            elif os.path.lexists(path):
                os.unlink(path)
        again()
        monkeypatch.setattr(notes, "IMAGES", choose.choice((1, 64)))
        program = Program(choose)
        images: list[tuple[str | None, Tree]] = [(None, tree(work))]
        for _ in range(choose.randrange(2, 6)):
            for _ in range(choose.randrange(12)):
                program.step()
                if choose.random() < 0.1:
                    again()  # another replica leads
            at = choose.randrange(len(images) + 1)
            if at == len(images):
                images.append((STATE.notes.image(str(len(images))), tree(work)))
                continue
            del images[at + 1 :]
            if choose.random() < 0.3:
                step = choose.choice(((Notes, "rewrite", 4), (_Undoing, "_try", 30)))
                with (
                    contextlib.suppress(KilledError),
                    killed_at(choose.randrange(1, step[2]), monkeypatch, *step[:2]),
                ):
                    go_back(again(), images[at][0])
            problems = go_back(again(), images[at][0])
            if problems == [("", FORGOTTEN)] and at and notes.IMAGES == 1:
                continue
            assert problems == [], seed
            found, expected = tree(work), images[at][1]
            if not links:  # then names that were one file may be several
                found, expected = _without_names(found), _without_names(expected)
                images = [(image, _without_names(each)) for image, each in images]
            assert found == expected, (seed, at)
            if not links:
                break


def _without_names(found: Tree) -> Tree:
    return {name: (*each[:3], *each[4:]) if each[0] == "file" else each for name, each in found.items()}

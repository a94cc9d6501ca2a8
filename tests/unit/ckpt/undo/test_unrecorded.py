"""What changes in a directory and stands in no undo log is noticed; what a rank has recorded is not."""

from __future__ import annotations

import os
import shutil
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ckpt.undo.unrecorded import Change, DirectoryWatch, changes_since_now, fold, unrecorded
from tests.unit.ckpt.undo.test_sequences import BUILDING, OPERATIONS
from tests.unit.ckpt.undo.test_watching import SEQUENCES, Program, Watched, watched

CLOSE_WRITE, MOVED_FROM, MOVED_TO, CREATE, DELETE, OVERFLOW, IGNORED, DIRECTORY = (
    0x8, 0x40, 0x80, 0x100, 0x200, 0x4000, 0x8000, 0x40000000,
)  # fmt: skip


def event(number: int, mask: int, name: str = "") -> bytes:
    raw = os.fsencode(name)
    raw += b"\0" * (16 - len(raw) % 16) if raw else b""
    return struct.pack("iIII", number, mask, 0, len(raw)) + raw


# ---------------------------------------------------------------------- events


def test_events_of_a_name_are_one_change() -> None:
    changes: dict[str, Change] = {}
    data = event(1, CREATE, "x") + event(1, CLOSE_WRITE, "x") + event(2, DELETE, "y")
    assert not fold(changes, {1: "/a", 2: "/b"}, data)
    assert changes == {"/a/x": Change(CREATE, CREATE | CLOSE_WRITE), "/b/y": Change(DELETE, DELETE)}


def test_a_name_that_is_no_text() -> None:
    changes: dict[str, Change] = {}
    fold(changes, {1: "/a"}, event(1, CREATE, os.fsdecode(b"\xff")))
    assert list(changes) == [os.fsdecode(b"/a/\xff")]


def test_events_that_are_lost_are_known() -> None:
    assert fold({}, {}, event(-1, OVERFLOW))


def test_a_directory_that_has_gone_is_watched_no_more() -> None:
    directories, changes = {1: "/a", 2: "/a/b", 3: "/a/b/c", 4: "/a/bc"}, dict[str, Change]()
    fold(changes, directories, event(1, MOVED_FROM | DIRECTORY, "b") + event(3, CREATE, "x"))
    assert directories == {1: "/a", 4: "/a/bc"} and list(changes) == ["/a/b"]
    fold(changes, directories, event(4, IGNORED))
    assert directories == {1: "/a"}


# ---------------------------------------------------------------------- comparison


@pytest.fixture
def work(tmp_path: Path) -> Iterator[Watched]:
    with watched(tmp_path) as made:
        yield made


def by_another_process(act: Callable[[], object]) -> None:
    pid = os.fork()
    if pid == 0:
        try:
            act()
        finally:
            os._exit(0)
    os.waitpid(pid, 0)


class Seen:
    """Watches the directories of a watched process, as a controller does."""

    def __init__(self, work: Watched) -> None:
        self.work = work
        self.watch = DirectoryWatch()
        self.since_ns = changes_since_now()
        work.on_directory = self.watch.add
        self.watch.add(str(work.root))

    def unrecorded(self) -> list[tuple[str, str]]:
        changes, is_lost = self.watch.take()
        self.watch.close()
        assert not is_lost
        logs = [str(path) for path in self.work.job.glob("undo/epoch-*/rank-*/log")]
        return [
            (os.path.relpath(path, self.work.root), what)
            for path, what in unrecorded(changes, logs, self.since_ns)
        ]


def test_what_another_process_has_done(work: Watched) -> None:
    for name in ("changed", "removed", "ours", "read", "replaced"):
        Path(name).write_text("x")
    os.mkdir("theirs")
    time_before = os.stat("read").st_mtime_ns - 10**9
    os.utime("read", ns=(time_before, time_before))
    seen = Seen(work)
    work.start()

    def changes() -> None:
        Path("changed").write_text("y")
        os.remove("removed")
        Path("made").touch()
        Path('quoted " and \\').touch()
        os.mkdir("directory")
        os.rename("theirs", "renamed")
        Path("short").touch()
        os.remove("short")
        Path("new").touch()
        os.replace("new", "replaced")

    by_another_process(changes)
    Path("ours").write_text("z")
    Path('our " and \\').write_text("z")
    assert dict(seen.unrecorded()) == {
        "changed": "changed",
        "removed": "removed",
        "made": "made",
        'quoted " and \\': "made",
        "directory": "made",
        "theirs": "removed",
        "renamed": "changed",
        "replaced": "changed",
    }


def test_a_file_that_was_only_opened_has_not_changed(work: Watched) -> None:
    Path("x").write_text("x")
    seen = Seen(work)
    seen.since_ns += 10**9  # as if the file were a second old
    by_another_process(lambda: open("x", "r+").close())
    assert seen.unrecorded() == []


@pytest.mark.rotate(2)
def test_a_file_that_was_put_back_just_before_has_not_changed(work: Watched) -> None:
    """Found with a rank that was killed while it opened its files again: they were told to be changed by another program."""
    seen = Seen(work)
    for turn in range(20):
        Path("x").write_text(f"{turn}")
        seen.since_ns = changes_since_now(after_ns=time.time_ns())
        seen.watch.take()
        by_another_process(lambda: open("x", "r+").close())
        assert os.stat("x").st_ctime_ns < seen.since_ns
        by_another_process(lambda: Path("y").write_text("changed"))
        assert os.stat("y").st_ctime_ns >= seen.since_ns
    assert seen.unrecorded() == [("y", "changed")]


def test_what_another_process_does_in_a_directory_of_this_interval_goes_with_it(work: Watched) -> None:
    seen = Seen(work)
    work.start()
    os.makedirs("a/b")
    Path("a/b/x").touch()
    by_another_process(lambda: Path("a/b/y").touch())
    assert seen.unrecorded() == []


def test_a_file_is_known_under_its_other_names(work: Watched) -> None:
    Path("x").touch()
    os.link("x", "y")
    seen = Seen(work)
    work.start()
    Path("x").write_text("changed")
    by_another_process(lambda: Path("y").write_text("changed"))
    assert seen.unrecorded() == []


def test_what_a_rank_does_is_never_told(tmp_path: Path) -> None:
    operations = [*OPERATIONS, "hold", "hold", "use", "use", "use", "let_go"]
    for seed in range(SEQUENCES // 4):
        where = tmp_path / str(seed)
        where.mkdir()
        with watched(where) as work:
            program = Program(str(work.root), str(work.job), seed)
            for _ in range(16):
                program.step([*BUILDING, "hold"])
            work.start()
            seen = Seen(work)
            for number in range(12):
                program.step(operations)
                if number % 5 == 4:
                    work.cut()
            for file in program.open:
                file.close()
            assert seen.unrecorded() == [], seed
        shutil.rmtree(where)


def test_a_directory_of_everybody_is_not_watched(work: Watched) -> None:
    os.mkdir("shared")
    os.chmod("shared", 0o1777)
    seen = Seen(work)
    seen.watch.add(f"{work.root}/shared")
    by_another_process(lambda: Path("shared/x").touch())
    assert seen.unrecorded() == []


def test_no_more_directories_than_allowed_are_watched(work: Watched) -> None:
    os.mkdir("a")
    watch = DirectoryWatch(most=1)
    assert watch.add(str(work.root)) == ""
    assert watch.add(str(work.root)) == ""
    assert "1 directories are watched already" in watch.add(f"{work.root}/a")
    watch.close()


def test_after_the_end_nothing_is_noticed_and_closing_need_not_wait(work: Watched) -> None:
    os.mkdir("gone")
    watch = DirectoryWatch()
    for directory in (work.root, work.root / "gone"):
        watch.add(str(directory))
    os.rmdir("gone")
    watch.end()
    by_another_process(lambda: Path("late").touch())
    assert f"{work.root}/late" not in watch.take()[0]
    watch.close()

"""Changes of files: made again by another leader they come to the same; what going back undoes."""

from __future__ import annotations

import io
import os
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ckpt.errors import NotReplicable
from ckpt.redundancy.files import names, objects
from ckpt.redundancy.files.changes import STATE
from ckpt.redundancy.files.meeting import LATE_NS, Meeting
from ckpt.redundancy.files.notes import Notes


def twice(content: bytes, look: Callable[[], Any]) -> Any:
    """The leader dies after the change, before it has told anybody; the next one makes it again."""
    look()
    mine, STATE.session = STATE.session, object()
    try:
        return look()
    finally:
        STATE.session = mine


@pytest.fixture
def leaders(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(STATE, "meet", twice)
    monkeypatch.setattr(STATE, "notes", Notes(str(tmp_path / "notes")))


def test_a_change_that_is_made_again_comes_to_the_same(leaders: None) -> None:
    with objects.replica_open("a", "w") as file:
        file.write("one\n")
        file.flush()
        file.seek(0)
        file.write("ONE\ntwo\n")
    for _ in range(2):
        with objects.replica_open("log", "a") as log:
            assert log.tell() in (0, 5)
            log.write("line\n")
    with objects.replica_open("new", "xb") as new:
        new.write(b"bytes")
        new.truncate(3)
    with pytest.raises(FileExistsError):
        objects.replica_open("new", "x")
    names.os_mkdir("d")
    with pytest.raises(FileExistsError, match="'d'"):
        names.os_mkdir("d")
    names.os_rename("a", "d/b")
    names.os_symlink("b", "d/link")
    names.os_replace("new", "d/new")
    names.os_remove("log")
    with pytest.raises(FileNotFoundError):
        names.os_unlink("log")
    names.os_makedirs("e/f")
    names.os_makedirs("e/f", exist_ok=True)
    with pytest.raises(FileExistsError):
        names.os_makedirs("e/f")
    names.os_rmdir("e/f")
    names.os_rmdir("e")
    assert sorted(os.listdir(".")) == ["d", "notes"] and sorted(os.listdir("d")) == [
        "b",
        "link",
        "new",
    ]
    assert Path("d/link").read_text() == "ONE\ntwo\n" and Path("d/new").read_bytes() == b"byt"


@pytest.mark.parametrize("written", ["", "li", "line\n", "other", "line\nother"])
def test_what_a_dead_leader_has_appended_in_part_is_completed(tmp_path: Path, written: str) -> None:
    """Another rank may have appended meanwhile: its text stays."""
    path = tmp_path / "log"
    path.write_text("before\n" + written)
    objects._append(str(path), None, 7, b"line\n", again=True)
    assert path.read_text() == "before\n" + ("other" if written == "other" else "") + (
        written if "\n" in written else "line\n"
    )


def test_a_file_that_was_replaced_while_it_was_open_is_not_written(leaders: None) -> None:
    with objects.replica_open("a", "w", 1) as file:
        Path("b").write_text("another")
        names.os_replace("b", "a")
        with pytest.raises(OSError, match="replaced by another file"):
            file.write("x\n")
        assert Path("a").read_text() == "another"
        file.buffer.raw._identity = None  # what is in the buffer is written when it is closed


def test_files_in_memory_are_shared_and_devices_are_not(leaders: None) -> None:
    """Each replica wrote to a file in /dev/shm, as to a device: an appended line was there once for each."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as place:
        with objects.replica_open(f"{place}/log", "a") as log:
            assert isinstance(log.buffer.raw, objects.ReplicaFile)
            log.write("line\n")
        assert Path(place, "log").read_text() == "line\n"
    with objects.replica_open("/dev/null", "w") as nothing:
        assert isinstance(nothing.buffer.raw, io.FileIO)


def test_what_replicas_cannot_share_is_refused_by_name(leaders: None) -> None:
    with pytest.raises(NotReplicable, match="a descriptor of a directory"):
        names.os_mkdir("d", dir_fd=3)
    assert not os.path.exists("a")


def test_without_replicas_all_is_done_as_the_program_says(tmp_path: Path) -> None:
    with objects.replica_open(tmp_path / "a", "w+") as file:
        file.write("x")
        os.fsync(file.fileno())
    names.os_mkdir(tmp_path / "d")
    names.os_rename(tmp_path / "a", tmp_path / "d/a")
    assert (tmp_path / "d/a").read_text() == "x"


def test_who_does_not_come_to_a_change_is_told_after_a_time() -> None:
    class Choices:
        def together(self, digest: str, look: Callable[[], Any]) -> Any:
            meeting.tick(LATE_NS // 2)
            assert not reports
            for _ in range(2):
                meeting.tick(1 << 62)
            return look()

        def missing(self) -> set[int]:
            return {2}

        def writes_late(self, now_ns: int, least_ns: int) -> set[int]:
            return set()

        def tick(self, now_ns: int, *, has_ended: bool) -> None:
            pass

    class Below:
        lock = threading.Lock()

        def report(self, fields: dict[str, Any]) -> None:
            reports.append(fields)

    reports: list[dict[str, Any]] = []
    below: Any = Below()
    meeting = Meeting(below, lambda: None, lambda: None, 0)  # type: ignore[arg-type, return-value]
    meeting.choices = Choices()
    assert meeting.meet(b"", lambda: 7) == 7
    assert reports == [{"late": [2]}]
    meeting.has_ended = True
    with pytest.raises(NotReplicable, match="after the program's end"):
        meeting.meet(b"x", lambda: 7)

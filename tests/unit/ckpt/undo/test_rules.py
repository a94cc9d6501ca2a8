"""What the rules of the undo log spare, and where it puts what is new; the other rules have tests by their topics."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from ckpt.undo.logs import LOG
from ckpt.undo.recorder import Changes, Operation, Recorder
from ckpt.undo.records import Content, FileId, Name, Status
from ckpt.undo.restart import restoring
from ckpt.undo.restart.intervals import kept_of
from tests.unit.ckpt.undo import test_sequences
from tests.unit.ckpt.undo.test_sequences import line_of, two_ranks
from tests.unit.ckpt.undo.test_watching import KEY, Watched, watched

where = test_sequences.where


@pytest.fixture
def work(tmp_path: Path) -> Iterator[Watched]:
    with watched(tmp_path) as made:
        yield made


def copies(work: Watched) -> list[int]:
    return [record.copy for record in work.log(0).records if isinstance(record, Content)]


def test_a_file_that_is_appended_to_is_not_copied(work: Watched) -> None:
    Path("log").write_text("then")
    work.start()
    with open("log", "a") as file:
        file.write("now")
    assert copies(work) == [0]
    assert not work.back_to(0)
    assert Path("log").read_text() == "then"


def test_a_file_is_copied_once(where: str) -> None:
    """Without the fast path, which asks the recorder once only."""
    with two_ranks(where) as (rank, other):
        path = os.path.join(rank.root, "state")
        os.mkdir(rank.root)
        Path(path).write_text("then")
        line_of(rank, other)
        for _ in range(3):
            rank.patch(path, "")
        log, *kept = sorted(os.listdir(rank.directories[-1]), reverse=True)
        assert log == LOG and len(kept) == 1


def written_bytes() -> int:
    """By this process, whatever function it calls."""
    return int(Path("/proc/self/io").read_text().split("wchar: ")[1].split()[0])


def test_of_a_file_of_a_gigabyte_that_is_replaced_no_byte_is_copied(work: Watched) -> None:
    """Neither to keep it nor to put it back. Most of it is a hole, so that a disk need not have the space."""
    with open("large", "wb") as file:
        file.write(b"x" * (8 << 20))
        file.truncate(1 << 30)
    inode = os.stat("large").st_ino
    work.start()
    before = written_bytes()
    Path("large.tmp").write_text("now")
    os.replace("large.tmp", "large")
    assert not work.back_to(0)
    assert written_bytes() - before < 1 << 16
    assert os.stat("large").st_ino == inode and os.stat("large").st_size == 1 << 30


def test_what_is_kept_is_listed_for_people(work: Watched) -> None:
    for name in ("copied", "linked", "longer", "mode"):
        Path(name).write_text(name)
    os.mkdir("moved")
    os.symlink("mode", "link")
    work.start()
    with open("copied", "r+") as file:
        file.write("x")
    os.remove("linked")
    with open("longer", "a") as file:
        file.write("x")
    os.chmod("mode", 0o600)
    os.rename("moved", "away")
    os.remove("link")
    rows = list(kept_of(work.log(0)))
    assert [(os.path.basename(each["path"]), each["kept"], each["bytes"]) for each in rows] == [
        ("copied", "copy", 6),
        ("linked", "hard link", 6),
        ("longer", "length", 6),
        ("mode", "mode, owner and times", 0),
        ("moved", "directory", 0),
        ("away", "there was none", 0),
        ("moved", "name of a directory", 0),
        ("link", "symbolic link", 0),
    ]
    assert [Path(each["where"]).read_text() for each in rows if each["where"]] == ["copied", "linked"]


def test_what_is_new_is_kept_in_the_directory_for_it(work: Watched) -> None:
    work.start()
    Path("new").write_text("result")
    os.makedirs("d/e")
    Path("d/e/x").write_text("result")
    assert not work.back_to(0)
    assert not os.listdir()
    undone = work.job / "undone"
    assert sorted(os.listdir(undone)) == ["0-d", "0-new"]
    assert (undone / "0-d" / "e" / "x").read_text() == "result"


def test_what_somebody_has_removed_since_the_end_comes_back(work: Watched) -> None:
    Path("state").write_text("then")
    work.start()
    Path("new").write_text("now")
    os.replace("new", "state")
    work.watch.stop()
    work.watch.cut(1, ())
    restoring.ended(str(work.job), KEY)
    os.unlink("state")
    assert not restoring.undo(str(work.job), KEY, 0, highest=1, from_start=True).problems
    assert Path("state").read_text() == "then"


def test_a_file_that_gets_a_name_recorded_ahead_is_one_of_the_checkpoint() -> None:
    """It was kept by a hard link. When its contents change under that name, there is no doubt that it was there before."""
    recorder = Recorder()
    recorder.begin(0, is_line_whole=False)
    old, new = (Status(FileId(1, inode, inode), stat.S_IFREG | 0o600, 1, 4, 0, 0, 0) for inode in (1, 2))
    changes = Changes({"/work/state": new}, {"/undo/1": old}, {"/work/state": old})
    records = [keep.record for keep in recorder.ahead(changes, {}, 5)]
    assert records == [Name("/work/state", new, 1, 5), Content("/undo/1", old, 2, "", 0, 0, 5)]


@pytest.mark.parametrize("above", [None, Status(FileId(1, 1, 1), stat.S_IFREG | 0o600, 1, 4, 0, 0, 0)])
def test_an_operation_below_what_is_no_directory_fails_and_needs_no_record(above: Status | None) -> None:
    """A record would say that the name was free at the checkpoint. It may be an old name of what has moved since."""
    recorder = Recorder()
    recorder.begin(0)
    for kind in ("rewrite", "directory", "link"):
        assert not recorder.before(
            Operation(kind, "/work/a/b"),  # type: ignore[arg-type]
            {"/work/a/b": None, "/work/a": above},
            5,
        )

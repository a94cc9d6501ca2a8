"""What a checkpoint does with the undo log that ends: it notes what files are, and makes durable what was kept."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from ckpt.store.records import formats
from ckpt.undo import _status, keeping, sealing
from ckpt.undo.errors import LogDamaged
from ckpt.undo.logs import boot_id, boot_of, line_key
from ckpt.undo.records import Noted, Uncovered
from ckpt.undo.sealing import Told, read_notes
from tests.unit.ckpt.undo.test_watching import KEY, Watched, watched


@pytest.fixture
def work(tmp_path: Path) -> Iterator[Watched]:
    with watched(tmp_path) as made:
        yield made


def sealed(work: Watched) -> str:
    """A program has changed some files, and an image is taken. The directory of the interval."""
    Path("old").write_text("then")
    work.start()
    Path("old").write_text("now")
    Path("new").write_text("new")
    os.symlink("new", "link")
    work.cut()
    said = work.watch.seal()
    assert said is not None
    formats.FILES.check([said])
    assert said["bytes"] and said["boot"] == boot_id()
    return keeping.directory_of(str(work.job), 0, 1, 0)


def test_what_the_rank_has_changed_is_noted_with_what_it_is_now(work: Watched) -> None:
    notes = read_notes(sealed(work), KEY)
    assert notes is not None
    assert {os.path.basename(each.path) for each in notes} == {"old", "new", "link"}
    assert all(each.binding == keeping.look(each.path) for each in notes)


def test_a_note_that_is_not_whole_says_nothing(work: Watched) -> None:
    """The child that writes it is killed, or the host fails."""
    path = Path(sealed(work), "noted")
    lines = path.read_bytes().splitlines(keepends=True)
    for count in range(len(lines)):
        path.write_bytes(b"".join(lines[:count]) + lines[count][:-1])
        assert read_notes(str(path.parent), KEY) is None
    path.unlink()
    assert read_notes(str(path.parent), KEY) is None


@pytest.mark.parametrize("line", range(3))
def test_a_note_that_was_changed_is_refused(work: Watched, line: int) -> None:
    path = Path(sealed(work), "noted")
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:line], lines[line].replace(b"1", b"2"), *lines[line + 1 :]]))
    with pytest.raises(LogDamaged, match=f"line {line + 1} does not verify"):
        read_notes(str(path.parent), KEY)


def test_the_note_of_another_interval_is_refused(work: Watched) -> None:
    first = Path(sealed(work), "noted")
    Path("old").write_text("later")
    work.cut()
    work.watch.seal()
    second = Path(keeping.directory_of(str(work.job), 1, 1, 0), "noted")
    second.write_bytes(first.read_bytes())
    with pytest.raises(LogDamaged):
        read_notes(str(second.parent), KEY)


def test_all_that_was_kept_is_synced_with_the_directories_above(
    work: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []

    def notes(fd: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{fd}"))

    Path("old").write_text("then")
    Path("replaced").write_text("then")
    work.start()
    with open("old", "r+") as file:
        file.write("now")
    os.rename("old", "replaced")
    work.cut()
    monkeypatch.setattr(os, "fdatasync", notes)
    monkeypatch.setattr(os, "fsync", notes)
    assert work.watch.seal()
    directory = keeping.directory_of(str(work.job), 0, 1, 0)
    within = [os.path.join(directory, name) for name in os.listdir(directory)]
    above = [directory, os.path.dirname(directory), str(work.job / "undo"), str(work.job)]
    assert len(within) == 5, "the log, the note, a copy, two hard links"
    assert sorted(os.path.realpath(path) for path in synced[: len(within)]) == sorted(
        os.path.realpath(path) for path in within
    )
    assert synced[len(within) :] == above


def test_where_much_was_kept_the_file_system_is_synced_as_a_whole(
    work: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(70):
        Path(f"{number}").write_text("then")
    work.start()
    for number in range(70):
        Path(f"{number}").write_text("now")
    work.cut()
    calls: list[int] = []
    genuine = _status.sync_file_system
    monkeypatch.setattr(_status, "sync_file_system", lambda fd: calls.append(fd) or genuine(fd))
    monkeypatch.setattr(os, "fdatasync", None)
    assert work.watch.seal()
    assert len(calls) == 1


@pytest.mark.parametrize("call", ["fdatasync", "fsync"])
def test_what_might_not_survive_a_failure_of_the_host_is_in_the_line(
    work: Watched, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """The checkpoint is taken nevertheless."""

    def fails(fd: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    Path("old").write_text("then")
    work.start()
    Path("old").write_text("now")
    work.cut()
    with monkeypatch.context() as patch:
        patch.setattr(os, call, fails)
        said = work.watch.seal()
    assert said is not None
    [[epoch, path, reason]] = said["uncovered"]
    assert (epoch, path) == (0, keeping.directory_of(str(work.job), 0, 1, 0))
    assert "failure of the host: Input/output error" in reason


@pytest.mark.parametrize("call", ["open", "write"])
def test_a_note_that_cannot_be_written_is_none(
    work: Watched, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    genuine = getattr(os, call)

    def full(*arguments: object, **options: object) -> object:
        if call == "write" or str(arguments[0]).endswith("/noted"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return genuine(*arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(sealing.os, call, full)
        directory = sealed(work)
    assert read_notes(directory, KEY) is None


def test_an_interval_without_changes_has_nothing_to_seal(work: Watched) -> None:
    assert work.watch.seal() is None
    work.start()
    assert work.watch.seal() is None
    work.cut()
    said = work.watch.seal()
    assert said is not None
    assert said["bytes"] == 0
    assert not os.path.exists(work.job / "undo")


def test_what_is_not_covered_stands_in_the_line_with_the_epoch_before(tmp_path: Path) -> None:
    with watched(tmp_path, limit_bytes=1) as work:
        Path("large").write_bytes(b"then")
        Path("held").write_bytes(b"then")
        work.start()
        Path("large").write_bytes(b"now")
        with open("held", "r+b"):
            work.cut()
            said = work.watch.seal()
        assert said is not None
        rows = [(epoch, os.path.basename(path)) for epoch, path, _ in said["uncovered"]]
        assert rows == [(0, "large"), (0, "held"), (1, "held")]
        assert said["more"] == 0


def test_the_newest_changes_that_are_not_covered_are_listed_the_others_counted() -> None:
    told = Told()
    for number in range(1000):
        told.add(number, Uncovered(f"/{number}", "no space", 0))
    fields = told.fields()
    assert fields["uncovered"][-1] == [999, "/999", "no space"]
    assert fields["more"] + len(fields["uncovered"]) == 1000


def test_a_log_says_in_which_boot_it_was_begun(work: Watched) -> None:
    directory = sealed(work)
    assert boot_of(directory, line_key(KEY)) == boot_id() != ""
    assert not any(isinstance(record, Noted) for record in work.log(0).records)
    assert boot_of(f"{directory}-another", line_key(KEY)) == ""


def test_paths_of_all_kinds_are_noted_alike(tmp_path: Path) -> None:
    """Those of plain ASCII in C."""
    names = [
        "plain",
        "with space",
        'qu"ote',
        "back\\slash",
        "\u00e4",
        os.fsdecode(b"\xff"),
        "tab\t",
        "missing",
        "link",
        "d",
    ]
    for name in names[:7]:
        (tmp_path / name).write_text(name.encode("ascii", "replace").decode())
    os.symlink("plain", tmp_path / "link")
    os.mkdir(tmp_path / "d")
    paths = [str(tmp_path / name) for name in names]
    directory = tmp_path / "epoch-00000001-00001" / "rank-00000"
    directory.mkdir(parents=True)
    sealing.note(str(directory), line_key(KEY), paths)
    assert read_notes(str(directory), KEY) == [Noted(path, keeping.look(path)) for path in paths]
    assert _status.noted(paths[0]) is not None
    assert _status.noted(paths[2]) is None

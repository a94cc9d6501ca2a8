"""What a forked child would not find as it was: every open descriptor, timers, the mask of signals."""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import tempfile
from pathlib import Path

import pytest

from ckpt.image.errors import Unpicklable
from ckpt.image.files import descriptors
from ckpt.image.frames import _frames
from ckpt.image.process import moment


@pytest.fixture(autouse=True)
def without_ours_of_other_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers of descriptors and inodes are used again: a file of this test was taken for one that is ckpt's own."""
    monkeypatch.setattr(descriptors, "_baseline", {})
    monkeypatch.setattr(descriptors, "_readable", [])


def noted() -> moment.Moment:
    return moment.read(moment.note())


def test_where_a_file_stands(tmp_path: Path) -> None:
    with open(tmp_path / "a name", "w+b", buffering=0) as file:
        file.write(b"0123456789")
        file.seek(4)
        note = noted().files[file.fileno()]
    assert (note.path, note.kind, note.offset, note.length) == (str(tmp_path / "a name"), "file", 4, 10)
    assert note.flags & os.O_ACCMODE == os.O_RDWR
    with open(tmp_path / "a name", "ab") as file:
        assert noted().files[file.fileno()].flags & os.O_APPEND


@pytest.mark.parametrize("then", ["another", "none"])
def test_the_name_of_a_file_that_has_lost_its_first_one_is_that_of_the_moment(
    tmp_path: Path, then: str
) -> None:
    """It was looked for when the program had gone on: after a restart what it wrote went to a file with a name that it had
    made later, and its own file stayed behind, without a word."""
    a, b, c = (tmp_path / name for name in "abc")
    with open(a, "wb", buffering=0) as file:
        os.link(a, b)
        os.unlink(a)
        if then == "another":
            os.rename(b, a)  # for the kernel it has lost that name all the same
        else:
            os.unlink(b)
        before = moment.note()
        if then == "another":
            os.link(a, c)
            os.unlink(a)
        note = moment.read(before).files[file.fileno()]
    assert (note.path, note.kind) == (
        (str(a), "file") if then == "another" else (f"{a} (deleted)", "deleted")
    )


def test_the_note_holds_although_the_file_goes_on(tmp_path: Path) -> None:
    with open(tmp_path / "log", "wb", buffering=0) as file:
        file.write(b"early")
        before = moment.note()
        file.write(b"late")
        os.unlink(file.name)
        note = moment.read(before).files[file.fileno()]
    assert (note.path, note.kind, note.offset, note.length) == (str(tmp_path / "log"), "file", 5, 5)


def test_kinds_of_descriptors() -> None:
    out, into = os.pipe()
    null = os.open(os.devnull, os.O_RDONLY)
    with socket.socket() as connection, tempfile.TemporaryFile() as gone:
        fds = (out, connection.fileno(), null, gone.fileno())
        files = noted().files
    for fd in (out, into, null):
        os.close(fd)
    assert [files[fd].kind for fd in fds] == ["pipe", "socket", "device", "deleted"]
    assert out not in noted().files, "closed"


def test_how_far_a_directory_has_been_read(tmp_path: Path) -> None:
    """A forked child has an offset of its own there, and so may read it to its end."""
    for name in "abc":
        (tmp_path / name).touch()
    before = noted().files.keys()
    with os.scandir(tmp_path) as entries:
        next(entries)
        found = {fd: note for fd, note in noted().files.items() if fd not in before}
        known = [note for note in found.values() if note.kind == "directory" and note.path == ""]
        assert [note.offset > 0 for note in known] == [True]
    place = os.open(tmp_path, os.O_PATH)
    assert noted().files[place].offset == -1, "it cannot be read"
    os.close(place)


def test_files_that_may_be_written_are_those_of_the_whole_record(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with open(path, "w") as written, open(path) as read, open(path, "r+b", 0) as both, socket.socket():
        written.write("x" * 3)
        written.flush()
        noted = moment.note()
        found = dict(moment.written_files(noted))
        assert {written.fileno(), both.fileno()} <= found.keys()
        assert read.fileno() not in found
        assert all(moment.read(noted).files[fd] == note for fd, note in found.items())
        left = dict(moment.written_files(noted, (os.fsencode(tmp_path),)))
        assert found.keys() - left.keys() == {written.fileno(), both.fileno()}
        assert dict(moment.written_files(noted, (os.fsencode(path), os.fsencode(tmp_path)[:-1]))) == found


def test_a_mere_place_in_the_file_system_is_no_file() -> None:
    place = os.open(__file__, os.O_PATH)
    assert noted().files[place].kind == "special file"
    moment.check(moment.note())
    os.close(place)


def test_all_descriptors_are_found_wherever_their_numbers_are(tmp_path: Path) -> None:
    """The kernel says how many there are; where they lie far apart, they are listed."""
    with open(tmp_path / "far", "wb") as file:
        near = set(noted().files)
        far = os.dup2(file.fileno(), 1000, inheritable=False)
        try:
            assert set(noted().files) == near | {far}
        finally:
            os.close(far)


def test_a_file_that_another_thread_opens_meanwhile_is_missed_by_no_image(tmp_path: Path) -> None:
    before = moment.note()
    moment.check(before)
    out, into = os.pipe()  # nothing that could stand anywhere
    moment.check(before)
    with (
        open(tmp_path / "new", "wb"),
        pytest.raises(Unpicklable, match=r"new.*opened while the image was being taken"),
    ):
        moment.check(before)
    directory = os.open(tmp_path, os.O_RDONLY)
    with pytest.raises(Unpicklable, match="opened while the image was being taken"):
        moment.check(before)
    os.close(directory)
    moment.check(before)
    os.close(out)
    os.close(into)


def test_a_log_of_ours_that_another_thread_opens_meanwhile_is_no_file_of_the_program(tmp_path: Path) -> None:
    """A harmless thread has changed a file between the record and the fork: no image could be taken of a program with such
    a thread that writes all the time."""
    before = moment.note()
    with open(tmp_path / "log", "wb") as log:
        with pytest.raises(Unpicklable, match="opened while the image was being taken"):
            moment.check(before)
        descriptors.note_ours(log.fileno())
        moment.check(before)
        number = log.fileno()
    with open(tmp_path / "other", "wb") as other:  # under the same number
        assert other.fileno() == number
        with pytest.raises(Unpicklable, match="opened while the image was being taken"):
            moment.check(before)


def test_a_file_of_ours_under_a_high_number_is_in_the_record_like_others(tmp_path: Path) -> None:
    """A log of the undo log; without it the numbers are close to each other, and need not be listed."""
    with open(tmp_path / "log", "wb") as log, open(tmp_path / "other", "wb") as other:
        high = [fcntl.fcntl(log.fileno(), fcntl.F_DUPFD_CLOEXEC, low) for low in (1001, 1000)]
        found = os.fstat(log.fileno())
        known = dict.fromkeys(high, (found.st_dev, found.st_ino))
        record = moment.read(_frames.note_moment((), known)).files
        listed = moment.read(_frames.note_moment((), {})).files  # their numbers are not known
        for fd in high:
            os.close(fd)
        after = moment.read(_frames.note_moment((), known)).files
    assert list(record) == list(listed)
    assert all(record[fd].path == "" and listed[fd].path == log.name for fd in high)
    assert other.name in [each.path for each in record.values()]
    assert record.keys() - after.keys() == set(high)


def test_timers_and_the_mask() -> None:
    former = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2, signal.SIGRTMAX})
    try:
        signal.setitimer(signal.ITIMER_VIRTUAL, 500, 0.25)
        timing = noted().timing
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.pthread_sigmask(signal.SIG_SETMASK, former)
    assert set(timing.blocked) == {int(number) for number in former} | {signal.SIGUSR2, signal.SIGRTMAX}
    assert timing.timers[2] == (0.0, 0.0)
    left, interval = timing.timers[1]
    assert 400 < left <= 500.1 and interval == 0.25


def test_what_ckpt_itself_opens_while_the_image_is_taken_is_no_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A harmless thread was just opening the undo log: the round failed."""
    monkeypatch.setattr(descriptors, "_our_directories", set())
    before = moment.note()
    with open(tmp_path / "log", "w"):
        with pytest.raises(Unpicklable, match="opened while the image was being taken"):
            moment.check(before)
        descriptors.note_our_directory(str(tmp_path))
        moment.check(before)


def test_a_file_under_a_number_that_was_one_of_ours_is_found(tmp_path: Path) -> None:
    """The undo log of the interval before was closed after the record, and a harmless thread has opened a file."""
    with open(tmp_path / "log", "w") as log:
        number = log.fileno()
        descriptors.note_ours(number)
        before = moment.note()
    moment.check(before)
    with open(tmp_path / "new", "w") as new:
        assert new.fileno() == number
        with pytest.raises(Unpicklable, match=r"new.*opened while the image was being taken"):
            moment.check(before)

"""The real system calls, where the system is an unusual one or refuses: no descriptor stays open, no error goes by."""

from __future__ import annotations

import errno
import fcntl
import os
import resource
from pathlib import Path
from typing import Any

import pytest

from ckpt.store import FileSystem, JobDirectory, NotPrivate, StorageFailed
from ckpt.store.disk.privacy import open_regular


def open_descriptors() -> set[str]:
    """Without the one that lists them."""
    return {name for name in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{name}")}


@pytest.fixture
def file(tmp_path: Path) -> str:
    (tmp_path / "file").write_bytes(b"content")
    return str(tmp_path / "file")


def test_a_file_is_read_under_a_far_number(file: str) -> None:
    fd = FileSystem().open_read(file)
    assert fd >= 600 and not os.get_inheritable(fd)
    os.close(fd)


def test_a_file_is_read_where_the_limit_of_descriptors_is_low(file: str) -> None:
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (500, limit[1]))
    try:
        before = open_descriptors()
        assert FileSystem().read_file(file) == b"content"
        assert open_descriptors() == before
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limit)


def failing_close(monkeypatch: pytest.MonkeyPatch) -> None:
    """As Linux does where a network file system refuses: the number is free, and the call reports an error."""
    close = os.close

    def fails(fd: int) -> None:
        close(fd)
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "close", fails)


def test_a_close_that_fails_leaves_no_descriptor_open(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The number it is read under stayed open when the close of the first one failed."""
    before = open_descriptors()
    with monkeypatch.context() as patch:
        failing_close(patch)
        fd = FileSystem().open_read(file)
    assert os.read(fd, 100) == b"content"
    os.close(fd)
    assert open_descriptors() == before


def test_a_job_whose_key_s_close_fails_is_opened(job: JobDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    before = open_descriptors()
    with monkeypatch.context() as patch:
        patch.setattr(FileSystem, "check_private", lambda self, path: None)
        patch.setattr("ckpt.store.job.directory.check_private_directory", lambda path: None)
        patch.setattr(FileSystem, "close", lambda self, fd, close=os.close: close(fd))
        failing_close(patch)
        assert JobDirectory.open(job.path) == job
    assert open_descriptors() == before


def test_a_key_that_the_disk_cannot_read_is_named(job: JobDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was a bare OSError."""
    read = os.read

    def fails(fd: int, length: int) -> bytes:
        if os.readlink(f"/proc/self/fd/{fd}").endswith("/key"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return read(fd, length)

    before = open_descriptors()
    with monkeypatch.context() as patch:
        patch.setattr(os, "read", fails)
        with pytest.raises(StorageFailed, match="Input/output error") as caught:
            JobDirectory.open(job.path)
    assert str(caught.value.path).endswith("/key")
    assert open_descriptors() == before


@pytest.mark.parametrize("refusal", [errno.EPERM, errno.ENOSYS])
def test_a_sandbox_without_preadv(file: str, monkeypatch: pytest.MonkeyPatch, refusal: int) -> None:
    def refuse(*_: object) -> int:
        raise OSError(refusal, os.strerror(refusal))

    monkeypatch.setattr(os, "preadv", refuse)
    fs = FileSystem()
    fd = fs.open_read(file)
    first, second = bytearray(4), bytearray(4)
    assert fs.preadv(fd, [first, second], 2) == 4, "a short read: the caller goes on"
    assert (first, second) == (b"nten", bytes(4))
    rest = bytearray(b"....")
    assert fs.preadv(fd, [rest], 5) == 2 and rest == b"nt.."
    fs.close(fd)


def test_what_else_preadv_says_is_an_error(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "preadv", refuse)
    with open(file, "rb") as opened, pytest.raises(OSError, match="Input/output error"):
        FileSystem().preadv(opened.fileno(), [bytearray(4)], 0)


def test_a_fifo_that_nobody_reads_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    before = open_descriptors()
    with pytest.raises(NotPrivate, match="not a regular file"):
        open_regular(str(tmp_path / "fifo"), os.O_WRONLY)
    assert open_descriptors() == before


def test_a_file_of_which_nothing_can_be_known_is_closed(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(fd: int) -> Any:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    before = open_descriptors()
    with monkeypatch.context() as patch:
        patch.setattr(os, "fstat", refuse)
        with pytest.raises(OSError, match="Input/output error"):
            open_regular(file, os.O_RDONLY)
    assert open_descriptors() == before


def test_a_file_is_opened_to_wait_and_not_for_a_child(file: str) -> None:
    fd = open_regular(file, os.O_RDONLY)
    assert os.get_blocking(fd) and fcntl.fcntl(fd, fcntl.F_GETFD) & fcntl.FD_CLOEXEC
    os.close(fd)


def test_calls_at_once_are_all_made_and_the_first_failure_is_raised() -> None:
    made: list[int] = []

    def call(number: int) -> None:
        made.append(number)
        if number == 1:
            raise OSError(errno.EIO, "refused")

    FileSystem().at_once([lambda: call(0), lambda: call(2)])
    with pytest.raises(OSError, match="refused"):
        FileSystem().at_once([lambda: call(0), lambda: call(1), lambda: call(2)])
    assert sorted(made) == [0, 0, 1, 2, 2]


def test_calls_at_once_are_made_one_by_one_where_the_system_has_no_thread_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refused(*_: object) -> int:
        raise RuntimeError("can't start new thread")

    made: list[int] = []

    def call(number: int) -> None:
        made.append(number)
        if number:
            raise OSError(errno.EIO, f"refused {number}")

    monkeypatch.setattr("_thread.start_new_thread", refused)
    with pytest.raises(OSError, match="refused 1"):
        FileSystem().at_once([lambda: call(0), lambda: call(1), lambda: call(2)])
    assert sorted(made) == [0, 1, 2]

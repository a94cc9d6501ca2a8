"""Any call of a restart to the operating system fails while it puts files back: the restart is refused by name."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ckpt.undo import _status, copying, keeping
from ckpt.undo.errors import NotUndone
from ckpt.undo.restart import ending, kept_files, places, putting_back, restoring, state
from tests.unit.ckpt.undo import test_bad_input as bad_input
from tests.unit.ckpt.undo import test_sequences as sequences
from tests.unit.ckpt.undo.restart.test_restoring import job_of
from tests.unit.ckpt.undo.test_keeping_faults import SYSTEM_CALLS, Calls
from tests.unit.ckpt.undo.test_sequences import tree_of
from tests.unit.ckpt.undo.test_watching import Watched

where = sequences.where
work = bad_input.work
NAMES = SYSTEM_CALLS | {
    *("chmod", "chown", "fsync", "listdir", "lstat", "mkdir", "open_directory", "rename", "rmdir", "stat"),
    *("symlink", "sync", "utime", "write"),
}


@contextlib.contextmanager
def failing(number: int, error: int) -> Iterator[Callable[[], bool]]:
    """The call of this number fails. Yields whether there was such a call."""
    count = 0

    def turn() -> BaseException | None:
        nonlocal count
        count += 1
        return OSError(error, os.strerror(error)) if count - 1 == number else None

    with pytest.MonkeyPatch.context() as patch:
        for user in (restoring, kept_files, putting_back, places, state, ending, copying, keeping):
            for name, module in (("os", os), ("fcntl", fcntl), ("_status", _status)):
                if hasattr(user, name):
                    patch.setattr(user, name, Calls(module, turn, NAMES))
        yield lambda: count > number


@pytest.mark.rotate(6)
@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("error", (errno.ENOSPC, errno.EDQUOT, errno.EIO), ids=errno.errorcode.get)
def test_any_call_of_putting_back_fails(where: str, error: int, seed: int) -> None:
    refused = 0
    for number in range(10000):
        with job_of(where, seed, lines=2) as job:
            job.close()
            with failing(number, error) as was_reached:
                try:
                    assert not job.undo(0).problems, number
                except NotUndone as failure:
                    refused += 1
                    assert os.strerror(error) in str(failure), number
                    assert failure.path, number
            assert not job.undo(0).problems, number
            assert tree_of(job.root) == job.trees[0], number
        if not was_reached():
            break
    assert refused > 100


def test_a_log_that_cannot_be_read_for_comparison_is_not_taken_for_another_one(work: Watched) -> None:
    """It was told as "changed otherwise", left as it was, and the restart could not be done again."""
    Path("log").write_text("a line")
    work.start()
    with open("log", "a") as file:
        file.write("another one")
    work.watch.stop()

    def refused(*_: object) -> bytes:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with pytest.MonkeyPatch.context() as patch, pytest.raises(NotUndone, match="Input/output error"):
        patch.setattr(copying.os, "pread", refused)
        work.back_to(0)
    assert not work.back_to(0)
    assert Path("log").read_text() == "a line"


def test_no_other_file_system_is_waited_for(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """sync(2) waits for all of the machine: for one whose server is gone it would wait for ever."""
    synced: list[int] = []
    genuine = _status.sync_file_system

    def sync(fd: int) -> None:
        synced.append(os.fstat(fd).st_dev)
        genuine(fd)

    monkeypatch.setattr(_status, "sync_file_system", sync)
    monkeypatch.setattr(os, "sync", lambda: pytest.fail("sync(2)"))
    with job_of(where, 4, lines=2) as job:
        job.close()
        synced.clear()
        assert not job.undo(0).problems
        assert tree_of(job.root) == job.trees[0]
        assert set(synced) == {os.stat(place).st_dev for place in (job.path, job.root)}


def test_where_a_directory_may_not_be_read_all_is_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "sync", lambda: synced.append(1))

    def refuse(path: str, flags: int) -> int:
        raise PermissionError(errno.EACCES, "refused", path)

    state.sync_file_systems([str(tmp_path / "gone" / "gone" / "file"), str(tmp_path / "file")])
    assert not synced
    monkeypatch.setattr(os, "open", refuse)
    state.sync_file_systems([str(tmp_path / "file")])
    assert synced

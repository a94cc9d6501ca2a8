"""What is known of a job's past where the event log does not say it."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from ckpt.controller.errors import Unrecoverable
from ckpt.controller.supervision import past
from ckpt.store import JobDirectory, StorageFailed
from ckpt.store.job.branch import Branch
from ckpt.store.job.lock import Life


@pytest.fixture
def job(tmp_path: Path) -> JobDirectory:
    return JobDirectory.create(tmp_path / "job", command=["app.py"], size=1)


def unreadable(job: JobDirectory) -> Path:
    job.events.close()
    path = Path(job.events.path)
    path.unlink(missing_ok=True)
    path.symlink_to(path.name)
    return path


def test_a_number_that_the_record_has_is_used_whatever_the_log_says(job: JobDirectory) -> None:
    job.events.append("rank-started", rank=0, pid=1, start_ticks=1, incarnation=1)
    with job.lock() as lock:
        assert past.known(job, lock.record)[0].incarnation == 1
        assert past.record(lock, 3, "word") is None
        assert past.known(job, lock.record)[0].incarnation == 3


def test_epochs_that_were_left_behind_are_used_even_where_neither_log_nor_disk_has_them(
    job: JobDirectory,
) -> None:
    """A line of such a number would not count as the job's past: what it commits would be lost."""
    with job.lock() as lock:
        lock.set_branch(Branch(1, (1,), above=7))
        assert past.known(job, lock.record)[0].highest_epoch == 7


def test_images_say_the_number_where_an_earlier_version_has_written_the_record(job: JobDirectory) -> None:
    (Path(job.rank_directory(0)) / "epoch-00000003.i0002.abcd.json").touch()
    (Path(job.rank_directory(0)) / ".tmp-epoch-00000004.i0005.abcd.pack").touch()
    assert past.known(job, job.record())[0].incarnation == 5


def test_where_nothing_says_the_number_the_job_is_refused_by_name(job: JobDirectory) -> None:
    path = unreadable(job)
    with pytest.raises(Unrecoverable, match=r"neither the event log nor generation\.json") as caught:
        past.known(job, job.record())
    assert str(path) in str(caught.value) and caught.value.exit_code == 12


def test_too_many_open_files_are_no_damage_of_the_log(
    job: JobDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    with job.lock(life=Life(0, "")) as lock:
        many = StorageFailed("read", job.events.path, OSError(errno.EMFILE, ""))
        monkeypatch.setattr(job.events, "read", lambda: (_ for _ in ()).throw(many))
        with pytest.raises(StorageFailed, match="Too many open files"):
            past.known(job, lock.record)


def test_a_running_job_whose_long_log_cannot_be_read_begins_another(job: JobDirectory) -> None:
    """It read the log to begin it anew, and ended."""
    with job.lock(life=Life(2, "word")) as lock:
        unreadable(job)
        assert past.shorten(job, lock) is None, "it has not grown"
        job.events.length = past.LOG_BYTES_MAX + 1
        said = past.shorten(job, lock)
        assert said is not None and "goes on without it" in said
        names = [event["event"] for event in job.events.read().events]
        assert names == ["continued", "log-unreadable"]
        assert past.known(job, lock.record) == (past.known(job, lock.record)[0], None)
        assert os.path.islink(str(job.events.read().events[1]["kept"]))


def test_a_record_that_the_disk_refuses_does_not_end_a_restart(job: JobDirectory) -> None:
    with job.lock() as lock:
        (Path(job.path) / "generation.json").write_bytes(b"damaged")
        said = past.record(lock, 1, "word")
        assert said is not None and "incarnation 1 is in the event log only" in said

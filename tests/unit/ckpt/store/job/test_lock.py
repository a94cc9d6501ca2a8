"""The lock: one controller at a time, none left behind by a kill, and an old one notices that it is old."""

from __future__ import annotations

import errno
import os
import shutil
import signal
from pathlib import Path

import pytest
from store_helpers import commit

from ckpt.store import JobDirectory, JobLocked, LockLost, NotPrivate
from ckpt.store.disk.fsio import FileSystem
from ckpt.store.job.location import this_location
from ckpt.store.job.lock import Life, read_generation
from ckpt.transport import records


def test_only_one_at_a_time(job: JobDirectory) -> None:
    other = JobDirectory.open(job.path)
    with job.lock():
        with pytest.raises(JobLocked, match=f"pid {os.getpid()}") as caught:
            other.lock()
        assert caught.value.exit_code == 11 and caught.value.holder["pid"] == os.getpid()
    with other.lock():
        pass


def test_every_holder_has_a_higher_generation(job: JobDirectory) -> None:
    seen = []
    for _ in range(3):
        with job.lock() as lock:
            lock.check()
            seen.append(lock.generation)
    assert seen == [1, 2, 3]


def test_a_killed_holder_leaves_nothing_behind(job: JobDirectory) -> None:
    ready, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        lock = job.lock()
        os.write(tell, b"x")
        signal.pause()
        os._exit(lock.generation)
    assert os.read(ready, 1) == b"x"
    with pytest.raises(JobLocked, match=f"pid {pid}"):
        job.lock()
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    with job.lock() as lock:
        assert lock.generation == 2


def test_a_forked_child_that_forgets_the_lock_does_not_keep_it(job: JobDirectory) -> None:
    lock = job.lock()
    go, tell = os.pipe()
    done, told = os.pipe()
    pid = os.fork()
    if pid == 0:
        lock.forget()
        os.write(told, b"x")
        os.read(go, 1)
        os._exit(0)
    os.read(done, 1)
    lock.check()
    lock.release()
    with job.lock() as again:
        assert os.waitpid(pid, os.WNOHANG) == (0, 0), "the child is there, and keeps nothing"
        assert again.generation == lock.generation + 1
    os.write(tell, b"x")
    assert os.waitpid(pid, 0)[1] == 0


def test_a_released_lock_is_lost(job: JobDirectory) -> None:
    lock = job.lock()
    lock.release()
    lock.release()
    assert not lock.is_held
    with pytest.raises(LockLost, match="released"):
        lock.check()


def test_a_holder_whose_lock_file_was_removed_is_told(job: JobDirectory) -> None:
    with job.lock() as old:
        os.unlink(os.path.join(job.path, "lock"))
        with pytest.raises(LockLost, match="replaced"):
            old.check()
        with job.lock() as new:
            new.check()
            with pytest.raises(LockLost) as caught:
                old.check()
            assert caught.value.exit_code == 11


def test_a_holder_that_was_overtaken_is_told(job: JobDirectory) -> None:
    """As on a file system whose locks do not reach other machines."""
    with job.lock() as old:
        os.rename(os.path.join(job.path, "lock"), os.path.join(job.path, "lock.old"))
        with job.lock():
            pass
        os.rename(os.path.join(job.path, "lock.old"), os.path.join(job.path, "lock"))
        with pytest.raises(LockLost, match="generation 2 is on disk, ours is 1"):
            old.check()


@pytest.mark.parametrize("damage", ["lost", "damaged"])
def test_a_generation_is_never_used_again(job: JobDirectory, damage: str) -> None:
    for _ in range(4):
        job.lock().release()
    control = commit(job, 1, "x")
    assert control.generation == 1
    path = Path(job.path) / "generation.json"
    if damage == "lost":
        path.unlink()
    else:
        path.write_bytes(b"{}")
    with job.lock() as lock:
        assert lock.generation == 5 > control.generation  # the journal knows of the four before


def test_reading_a_job_does_not_lock_it(job: JobDirectory) -> None:
    with job.lock():
        JobDirectory.open(job.path).events.read()
        assert read_generation(job.path, job.key, job.job_id, job.fs) == 1


def test_a_planted_lock_file_is_refused(job: JobDirectory, tmp_path: Path) -> None:
    path = Path(job.path) / "lock"
    path.touch()
    path.chmod(0o666)
    with pytest.raises(NotPrivate):
        job.lock()


def test_a_copied_job_is_not_locked_by_the_original(job: JobDirectory, tmp_path: Path) -> None:
    with job.lock():
        shutil.copytree(job.path, tmp_path / "copy")
        with JobDirectory.open(tmp_path / "copy").lock() as lock:
            assert lock.generation == 2


def test_a_seat_is_taken_and_left(job: JobDirectory) -> None:
    assert job.record().location is None, "never locked"
    with job.lock() as lock:
        lock.clear_location()
        assert job.record().location is None, "nobody had sat down"
        location = this_location(job.path, "/run/x")
        lock.claim(location)
        assert job.record().location == location == lock.record.location
        lock.clear_location()
        assert job.record() == lock.record and lock.record.location is None


def test_a_seat_that_the_disk_does_not_let_go_of_stays(job: JobDirectory) -> None:
    """The next one finds it, and looks whether somebody lives."""
    full = [False]

    class Filling(FileSystem):
        def create(self, path: str, *, direct: bool = False) -> int:
            if full[0]:
                raise OSError(errno.ENOSPC, "full")
            return super().create(path, direct=direct)

    location = this_location(job.path, "/run/x")
    with records.replace(job, fs=Filling()).lock(location=location) as lock:
        full[0] = True
        lock.clear_location()
        assert lock.record.location == location
    assert job.record().location == location


def test_a_lock_that_was_let_go_of_leaves_no_seat(job: JobDirectory) -> None:
    """It may be somebody else's by now."""
    location = this_location(job.path, "/run/x")
    lock = job.lock(location=location)
    lock.release()
    lock.clear_location()
    assert job.record().location == location


def test_the_last_life_is_in_the_record_whoever_takes_the_lock_next(job: JobDirectory) -> None:
    with job.lock() as lock:
        assert lock.record.life is None
        lock.record_incarnation(Life(4, "word"))
        before = os.stat(os.path.join(job.path, "generation.json")).st_ino
        lock.record_incarnation(Life(4, "word"))
        assert os.stat(os.path.join(job.path, "generation.json")).st_ino == before, (
            "nothing new, nothing written"
        )
        lock.claim(this_location(job.path, "/run/x"))
    with job.lock() as lock:
        assert lock.found.life == lock.record.life == job.record().life == Life(4, "word")
    with job.lock(life=Life(5, "other")):
        assert job.record().life == Life(5, "other")

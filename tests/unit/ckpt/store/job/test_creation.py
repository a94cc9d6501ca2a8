"""The creation of a job: after a crash at any moment there is a whole job, or none and room for another try."""

from __future__ import annotations

import errno
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from store_helpers import commit, read_image

from ckpt.store import FileSystem, JobDirectory, JobExists, JobLocked, JobMissing, StorageFailed, StoreError
from ckpt.store.disk.simulated import NO_MEMORY, SHORT, Faults, SimulatedDisk

pytestmark = pytest.mark.turns(4)

SIZE = 2
State = dict[str, bytes]


class Watched(SimulatedDisk):
    """Collects every state that a crash could leave, after every change."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.seen: dict[frozenset[tuple[str, bytes]], State] = {}

    def look(self) -> None:
        for state in self.crash_states():
            self.seen[frozenset(state.items())] = state

    def make_directory(self, path: str) -> None:
        super().make_directory(path)
        self.look()

    def create(self, path: str, *, direct: bool = False) -> int:
        fd = super().create(path, direct=direct)
        self.look()
        return fd

    def pwrite(self, fd: int, data: Any, offset: int) -> int:
        taken = super().pwrite(fd, data, offset)
        self.look()
        return taken

    def replace(self, source: str, target: str) -> None:
        super().replace(source, target)
        self.look()

    def fsync(self, fd: int) -> None:
        super().fsync(fd)
        self.look()

    def sync_directory(self, path: str) -> None:
        super().sync_directory(path)
        self.look()


def lay_out(state: State, place: Path, disk_root: str) -> Path:
    """The state as real directories and files; the path of the job."""
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(mode=0o700)
    for path in sorted(state):
        real = place / os.path.relpath(path, disk_root)
        if path.endswith("/"):
            real.mkdir(mode=0o700)
        else:
            real.write_bytes(state[path])
            real.chmod(0o600)
    return place / "job"


def is_whole(job: JobDirectory) -> bool:
    """Whether a round works, without making anything that should be there."""
    commit(job, 1, "state")
    return [read_image(job, rank, 1) for rank in range(SIZE)] == [[0, "state"], [1, "state"]]


def create(tmp_path: Path, ignore_sync: int | None = None) -> tuple[Watched, list[State]]:
    """A creation on a simulated disk: the disk, and what a crash may leave once it is over."""
    root = str(tmp_path / "disk")
    os.makedirs(root, exist_ok=True)
    disk = Watched([root], ignore_sync=ignore_sync)
    JobDirectory.create(f"{root}/job", command=["a.py"], size=SIZE, fs=disk)
    assert disk.open_files == 0
    return disk, list(disk.crash_states())


def violations(tmp_path: Path, ignore_sync: int | None = None) -> Iterator[str]:
    """What is wrong with the states of a creation."""
    disk, final = create(tmp_path, ignore_sync)
    root, place = str(tmp_path / "disk"), tmp_path / "after"
    for state in disk.seen.values():
        path = lay_out(state, place, root)
        try:
            job = JobDirectory.open(path)
        except JobMissing:
            JobDirectory.create(path, command=[], size=SIZE)  # what was left does not stand in the way
            if not is_whole(JobDirectory.open(path)):
                yield "a second try gives no whole job"
            continue
        except StoreError as error:
            yield f"neither a job nor none: {error}"
            continue
        try:
            if not is_whole(job):
                yield "a job that is not whole"
        except (StoreError, OSError) as error:
            yield f"a job that is not whole: {error}"
    for state in final:
        try:
            JobDirectory.open(lay_out(state, place, root))
        except StoreError as error:
            yield f"created, and lost: {error}"


def test_every_crash_state_is_a_whole_job_or_none(tmp_path: Path) -> None:
    assert list(violations(tmp_path)) == []
    disk, final = create(tmp_path / "again")
    print(f"{len(disk.seen)} crash states of a creation, {disk.syncs} syncs; {len(final)} when it is over")
    assert len(disk.seen) > 40 and disk.syncs == 6


@pytest.mark.parametrize("number", range(6))
def test_each_forgotten_sync_shows(tmp_path: Path, number: int) -> None:
    assert next(violations(tmp_path, ignore_sync=number), None) is not None


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC, SHORT, NO_MEMORY])
@pytest.mark.parametrize("forever", [False, True])
def test_every_call_fails(tmp_path: Path, error: int, forever: bool) -> None:
    root = str(tmp_path / "disk")
    os.makedirs(root)
    at = 0
    while True:
        faults = Faults(at, error, forever)
        disk = SimulatedDisk([root], faults=faults)
        created = False
        try:
            JobDirectory.create(f"{root}/job", command=[], size=SIZE, fs=disk)
            created = True
        except (StorageFailed, MemoryError) as failure:
            assert isinstance(failure, MemoryError) == (error == NO_MEMORY)
        assert disk.open_files == 0
        state = {**{f"{path}/": b"" for path in disk.directories - {root}}, **disk.files}
        path = lay_out(state, tmp_path / "after", root)
        try:
            job = JobDirectory.open(path)
        except StoreError:
            assert not created
            job = JobDirectory.create(path, command=[], size=SIZE)
        assert is_whole(job)
        if faults.hit is None:
            break
        at += 1
    assert at > 15


class Killed(FileSystem):
    """Its process is killed instead of making the call number `at`."""

    def __init__(self, at: int) -> None:
        self.left = at

    def __getattribute__(self, name: str) -> Any:
        if name in ("left", "__class__", "__dict__"):
            return object.__getattribute__(self, name)
        if not self.left:
            os.kill(os.getpid(), signal.SIGKILL)
        self.left -= 1
        return object.__getattribute__(self, name)


def in_child(work: Callable[[], object]) -> int:
    """Its wait status; `work` says by its exit code what it is to say."""
    pid = os.fork()
    if pid == 0:
        code = 9
        try:
            work()
            code = 0
        except StoreError as error:
            code = error.exit_code
        finally:
            os._exit(code)
    return pid


def test_a_creation_that_is_killed_at_any_call_is_taken_over_by_the_next(tmp_path: Path) -> None:
    for at in range(200):
        path = tmp_path / f"job{at}"
        pid = in_child(
            lambda at=at, path=path: JobDirectory.create(path, command=[], size=SIZE, fs=Killed(at))
        )  # type: ignore[misc]
        _, status = os.waitpid(pid, 0)
        if status == 0:
            assert at > 20
            return
        assert os.WTERMSIG(status) == signal.SIGKILL
        try:
            job = JobDirectory.open(path)
        except JobMissing:
            job = JobDirectory.create(path, command=[], size=SIZE)
        assert is_whole(job)
    raise AssertionError("it never came to its end")


def test_of_several_at_the_same_time_one_makes_the_job(tmp_path: Path) -> None:
    """All others are told so, or that there is one; what is there is the winner's, whole."""
    for turn in range(15):
        path = tmp_path / f"job{turn}"
        come, tell = os.pipe()

        def make(number: int, path: Path = path, come: int = come) -> None:
            os.read(come, 1)
            job, lock_fd = JobDirectory.create_locked(path, command=[str(number)], size=SIZE)
            with job.lock(lock_fd):
                commit(job, 1, "state")

        pids = [in_child(lambda number=number: make(number)) for number in range(3)]  # type: ignore[misc]
        os.write(tell, b"xxx")
        codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
        assert codes.count(0) == 1 and set(codes) <= {0, JobLocked.exit_code, JobExists.exit_code}, codes
        job = JobDirectory.open(path)
        assert job.command == [str(codes.index(0))] and read_image(job, 1, 1) == [1, "state"]
        os.close(come)
        os.close(tell)

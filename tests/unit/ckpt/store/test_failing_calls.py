"""Every call that the store makes fails once, or from then on: a typed error or success, and nothing is lost.

All of it runs the production code on a simulated disk (`ckpt.store.disk.simulated`); the same on file systems that really
fail is in `tests/system/store/test_store_disks.py`.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from commit_model import EPOCHS, Promises, data_of, rounds
from store_helpers import commit, directories_of, make_job, on_disk, read_image

from ckpt.store import (
    BlockDamaged,
    ImageReader,
    JobDirectory,
    RecordDamaged,
    StorageFailed,
    StoreError,
    latest_committed,
    prune,
    verify,
)
from ckpt.store.disk.simulated import NO_MEMORY, SHORT, Faults, SimulatedDisk
from ckpt.store.job.lock import read_generation, take_lock

pytestmark = pytest.mark.turns(2)

FAILURES = {"EIO": errno.EIO, "ENOSPC": errno.ENOSPC, "short": SHORT, "MemoryError": NO_MEMORY}
every_failure = pytest.mark.parametrize("error", FAILURES.values(), ids=FAILURES)
once_and_for_ever = pytest.mark.parametrize("forever", [False, True], ids=["once", "for ever"])


def possible_states(disk: SimulatedDisk) -> Iterable[dict[str, bytes]]:
    """What a crash may leave; of a disk that takes ever smaller pieces only what is there now: too many subsets."""
    if disk.faults.error == SHORT and disk.faults.forever:
        return [disk.files]
    return disk.crash_states(1 << 18)


def every_call(run: Callable[[Faults], object], error: int, forever: bool) -> int:
    """Let the first, second, … call fail until one run meets no failure; the number of calls."""
    at = 0
    while True:
        faults = Faults(at, error, forever)
        run(faults)
        if faults.hit is None:
            return at
        at += 1


@once_and_for_ever
@every_failure
def test_rounds(tmp_path: Path, error: int, forever: bool) -> None:
    """Images, control files and prunes: nothing lost, nothing leaked, and the next round works."""
    job = make_job(tmp_path)

    def run(faults: Faults) -> None:
        simulated, disk = on_disk(job, faults=faults)
        run_with_a_fault(job, simulated, disk)

    calls = every_call(run, error, forever)
    print(f"{calls} calls of {EPOCHS} rounds failed, one at a time: no committed line lost")
    assert calls > 100


@pytest.mark.soak
@once_and_for_ever
@every_failure
def test_rounds_of_four_ranks(tmp_path: Path, error: int, forever: bool, soaked: Callable[..., None]) -> None:
    job = make_job(tmp_path, size=4)

    def run(faults: Faults) -> None:
        simulated, disk = on_disk(job, faults=faults)
        run_with_a_fault(job, simulated, disk)

    calls = every_call(run, error, forever)
    print(f"{calls} calls of {EPOCHS} rounds of 4 ranks failed, one at a time: no committed line lost")
    assert calls > 300
    name = next(name for name, number in FAILURES.items() if number == error)
    soaked("calls", calls, **{f"{name} {'for ever' if forever else 'once'}, simulated": calls})


def run_with_a_fault(job: JobDirectory, simulated: JobDirectory, disk: SimulatedDisk) -> None:
    promises = Promises(job)
    failed: set[int] = set()
    for what, epoch, step in rounds(simulated):
        if epoch in failed and what != "prune":
            continue  # burnt: its number is not used again
        if what == "commit":
            promises.attempted = epoch
        try:
            step()
        except StorageFailed as failure:
            assert failure.exit_code == 1 and failure.path is not None and failure.path in str(failure)
            failed.add(epoch)
        except (BlockDamaged, RecordDamaged):
            failed.add(epoch)
        except MemoryError:
            assert disk.faults.error == NO_MEMORY
            failed.add(epoch)
        else:
            if what == "commit":
                promises.committed = epoch
    assert disk.open_files == 0
    # Of several ranks there are too many: every crash state is looked at with one.
    for state in possible_states(disk) if job.size == 1 else [disk.files]:
        after, _ = on_disk(job, state)
        found = latest_committed(after)
        newest = 0 if found is None else found.epoch
        assert newest >= promises.committed
        if newest:
            for rank in range(job.size):
                assert read_image(after, rank) == [rank, data_of(newest)]
    disk.faults.at = None
    again, _ = on_disk(job, disk.files)
    commit(again, EPOCHS + 1, "works again")
    assert read_image(again, 0) == [0, "works again"]


@every_failure
def test_a_restore(job: JobDirectory, error: int) -> None:
    """Reading an image, and verifying it, through a disk that fails: the image, or a typed error; no descriptor leaks."""
    simulated, disk = on_disk(job)
    for epoch in (1, 2):
        commit(simulated, epoch, data_of(epoch))
    files = disk.files

    def run(faults: Faults) -> None:
        broken, disk = on_disk(job, files, faults=faults)
        try:
            reader = ImageReader(broken, epoch=2, rank=0, threads=0)
            reader.buffers()
            reader.stream()
        except (StoreError, MemoryError) as failure:
            assert isinstance(failure, MemoryError) == (error == NO_MEMORY)
        assert disk.open_files == 0
        faults.at = None
        assert read_image(broken, 0, 2) == [0, data_of(2)]

    assert every_call(run, error, False) > (0 if error == SHORT else 5)


@pytest.mark.parametrize("error", [errno.EIO, errno.EACCES])
def test_a_verification(job: JobDirectory, error: int) -> None:
    """It says what it could not read, and never that a line is good which it has not seen."""
    simulated, disk = on_disk(job)
    commit(simulated, 1, data_of(1))
    files = disk.files

    def run(faults: Faults) -> None:
        broken, disk = on_disk(job, files, faults=faults)
        try:
            report = verify(broken)
        except StoreError:
            report = None
        assert disk.open_files == 0
        harmless = {"set_direct", "close", None}
        assert faults.hit in harmless or report is None or not report.good

    assert every_call(run, error, False) > 5


@once_and_for_ever
@every_failure
def test_a_lock(job: JobDirectory, error: int, forever: bool) -> None:
    """The generation only grows, whatever happens on the way; a failed attempt leaves no lock behind."""
    disk = SimulatedDisk(directories_of(job))
    take_lock(job.path, job.key, job.job_id, disk).release()
    files = disk.files

    def run(faults: Faults) -> None:
        disk = SimulatedDisk(directories_of(job), files, faults=faults)
        before = 1
        try:
            lock = take_lock(job.path, job.key, job.job_id, disk)
        except (StoreError, MemoryError):
            pass
        else:
            assert lock.generation > 1
            before = lock.generation
            lock.release()
        faults.at = None
        for state in possible_states(disk):
            after = SimulatedDisk(directories_of(job), state)
            again = take_lock(job.path, job.key, job.job_id, after)
            assert again.generation > before
            again.release()
        assert disk.open_files == 0

    every_call(run, error, forever)


def test_a_lock_that_is_taken_outlives_a_crash_and_needs_both_syncs(job: JobDirectory) -> None:
    def lost(ignore_sync: int | None) -> bool:
        disk = SimulatedDisk(directories_of(job), ignore_sync=ignore_sync)
        take_lock(job.path, job.key, job.job_id, disk).release()
        found = []
        for state in disk.crash_states():
            _, after = on_disk(job, state)
            try:
                found.append(read_generation(job.path, job.key, job.job_id, after))
            except RecordDamaged:
                found.append(0)
        return found != [1] * len(found)

    assert not lost(None)
    assert lost(0) and lost(1)


def test_every_call_of_a_prune_of_many_lines(job: JobDirectory) -> None:
    """Kept lines stay whole whichever removal fails; the next prune finishes the work."""
    simulated, disk = on_disk(job)
    for epoch in range(1, 6):
        commit(simulated, epoch, data_of(epoch))
    files = disk.files

    def run(faults: Faults) -> None:
        broken, disk = on_disk(job, files, faults=faults)
        try:
            prune(broken)
        except StorageFailed:
            pass
        faults.at = None
        for state in disk.crash_states(1 << 18):
            after, _ = on_disk(job, state)
            assert read_image(after, 0, 5) == [0, data_of(5)]
            assert read_image(after, 0, 4) == [0, data_of(4)]
        report = prune(broken)
        assert report.kept == [4, 5] and latest_committed(broken) is not None
        assert verify(broken).orphans == []

    assert every_call(run, errno.EIO, True) > 10

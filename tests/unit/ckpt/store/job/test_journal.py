"""The journal in real directories and on a simulated disk: commits of controllers that no lock keeps apart."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from random import Random

import pytest
from store_helpers import commit, control_of, make_job, on_disk, read_image, write_image

from ckpt.store import (
    Damaged,
    JobDirectory,
    LockHandle,
    LockLost,
    NotCommitted,
    StorageFailed,
    StoreError,
    latest_committed,
    list_epochs,
    list_lines,
    load_control,
    prune,
    write_control,
)
from ckpt.store.disk.fsio import FileSystem
from ckpt.store.disk.simulated import Faults, SimulatedDisk
from ckpt.store.job.lock import take_lock
from ckpt.transport import records


class WithoutFlock(FileSystem):
    """A file system whose locks do not reach the other host."""

    def try_lock(self, fd: int) -> bool:
        return True


class Pausing(WithoutFlock):
    """Its nth link is made only after `meanwhile` has been called."""

    def __init__(self, at: int, meanwhile: object) -> None:
        self.left = at
        self.meanwhile = meanwhile

    def link(self, source: str, target: str) -> None:
        self.left -= 1
        if self.left == 0:
            self.meanwhile()  # type: ignore[operator]
        super().link(source, target)


@pytest.fixture
def job(tmp_path: Path) -> JobDirectory:
    return records.replace(make_job(tmp_path), fs=WithoutFlock())


def committed(job: JobDirectory, lock: LockHandle, epoch: int, data: str, incarnation: int = 0) -> None:
    entry = write_image(job, 0, epoch, data, incarnation=incarnation)
    control = records.replace(control_of(epoch, [entry]), generation=lock.generation)
    write_control(job, control, lock=lock)


def journal(job: JobDirectory) -> list[str]:
    return sorted(name for name in os.listdir(os.path.join(job.path, "journal")) if name != "hint")


def test_a_commit_is_a_record_that_names_the_control_file(job: JobDirectory) -> None:
    with job.lock() as lock:
        committed(job, lock, 1, "one")
        committed(job, lock, 2, "two")
    assert journal(job) == ["00000001", "00000002", "00000003"]
    assert read_image(job, 0, 2) == "two"
    assert load_control(job, 2).record == 3


@pytest.mark.parametrize("lost", [["00000001", "00000002", "00000003"], ["00000002", "00000003"]])
def test_lines_whose_records_are_gone_are_damaged_and_stay(job: JobDirectory, lost: list[str]) -> None:
    """They were taken for lines that had never been committed: the next controller removed them, and began anew."""
    with job.lock() as lock:
        committed(job, lock, 1, "one")
        committed(job, lock, 2, "two")
    kept = {name: Path(job.path, "journal", name).read_bytes() for name in lost}
    for name in lost:
        Path(job.path, "journal", name).unlink()
    Path(job.path, "journal", "hint").unlink(missing_ok=True)
    newest = list_lines(job)[-1]
    assert newest.control is None and "journal has lost its records" in str(newest.error)
    if len(lost) == 3:
        job.lock().release()
        Path(job.path, "journal", "00000001").unlink()
        assert list_epochs(job) == [1, 2]
    for name, data in kept.items():
        Path(job.path, "journal", name).write_bytes(data)
    assert read_image(job, 0, 2) == "two"


@pytest.mark.parametrize("at", [1, 2], ids=["before the control file", "before the record"])
def test_a_controller_that_was_superseded_commits_nothing(job: JobDirectory, at: int) -> None:
    """Two controllers could commit the same epoch where flock does not reach the other host: the generation was checked,
    then a rename overwrote the other's control file, and with it the line that had been announced."""

    def take_over_and_commit() -> None:
        with job.lock() as later:
            committed(job, later, 1, "later", incarnation=1)

    former = job.lock()
    slow = records.replace(job, fs=Pausing(at, take_over_and_commit))
    assert former.journal is not None
    former.journal.fs = slow.fs
    with pytest.raises(
        LockLost, match=r"generation 2 has (taken the job \(process \d+ on|written this epoch)"
    ):
        committed(slow, former, 1, "former")
    assert read_image(job, 0) == "later"
    assert [line.control.generation for line in list_lines(job) if line.control] == [2]


class Refusing(WithoutFlock):
    """Creates no files."""

    def __init__(self, number: int) -> None:
        self.number = number

    def create(self, path: str, *, direct: bool = False) -> int:
        raise OSError(self.number, os.strerror(self.number), path)


def test_a_controller_that_looks_finds_the_one_that_has_taken_over(job: JobDirectory) -> None:
    """Its own commits are none. So it is on a full disk; where the disk fails otherwise, it cannot be known."""
    former = job.lock()
    assert former.journal is not None
    former.journal.check()
    committed(job, former, 1, "former")
    former.journal.check()
    names = os.listdir(os.path.join(job.path, "journal"))
    for number in (errno.ENOSPC, errno.EDQUOT):
        former.journal.fs = Refusing(number)
        former.journal.check()
    with job.lock():
        with pytest.raises(LockLost, match="generation 2 has taken the job"):
            former.journal.check()
        former.journal.fs = Refusing(errno.EIO)
        with pytest.raises(StorageFailed):
            former.journal.check()
        former.journal.fs = job.fs
        with pytest.raises(LockLost):
            former.journal.check()
    assert len(os.listdir(os.path.join(job.path, "journal"))) == len(names) + 1, "looks leave no files"


def test_a_line_is_none_before_its_record(job: JobDirectory) -> None:
    with job.lock() as lock:
        committed(job, lock, 1, "one")
        committed(job, lock, 2, "two")
        entry = write_image(job, 0, 3, "three")
        left = records.replace(control_of(3, [entry]), record=4).encode(job.key, job.job_id)
        Path(job.control_directory, "epoch-00000003.json").write_bytes(left)
    found = latest_committed(job)
    assert found is not None and found.epoch == 2
    assert [line.epoch for line in list_lines(job)] == [1, 2]
    with pytest.raises(NotCommitted, match="before the commit was recorded"):
        load_control(job, 3)
    with job.lock() as again:
        assert list_epochs(job) == [1, 2], "the next controller has removed it"
        committed(job, again, 3, "other", incarnation=1)
    assert read_image(job, 0) == "other"


def test_a_controller_that_cannot_remove_what_was_not_committed_does_not_begin(job: JobDirectory) -> None:
    class Keeping(WithoutFlock):
        def unlink(self, path: str) -> None:
            if path.endswith("epoch-00000001.json"):
                raise OSError(errno.EIO, os.strerror(errno.EIO), path)
            super().unlink(path)

    job.lock().release()
    left = records.replace(control_of(1, [write_image(job, 0, 1, "left")]), record=2, generation=1)
    Path(job.control_directory, "epoch-00000001.json").write_bytes(left.encode(job.key, job.job_id))
    with pytest.raises(StorageFailed, match="unlink"):
        records.replace(job, fs=Keeping()).lock()
    job.lock().release()
    assert list_epochs(job) == []


def test_a_control_file_that_is_there_again_and_again_is_no_commit(job: JobDirectory) -> None:
    class Taken(WithoutFlock):
        def link(self, source: str, target: str) -> None:
            if target.endswith("epoch-00000001.json"):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), target)
            super().link(source, target)

    with job.lock() as lock:
        entry = write_image(job, 0, 1, "one")
        control = records.replace(control_of(1, [entry]), generation=lock.generation)
        with pytest.raises(StorageFailed, match="File exists"):
            write_control(job, control, lock=lock, fs=Taken())
    assert latest_committed(job) is None


def test_a_control_file_of_a_former_generation_gives_way(job: JobDirectory) -> None:
    with job.lock() as lock:
        committed(job, lock, 1, "one")
        entry = write_image(job, 0, 2, "late")
        late = records.replace(control_of(2, [entry], generation=0), record=3).encode(job.key, job.job_id)
        Path(job.control_directory, "epoch-00000002.json").write_bytes(late)
        committed(job, lock, 2, "two", incarnation=1)
    assert read_image(job, 0) == "two"


def test_a_link_whose_answer_was_lost_is_settled_by_the_number_of_names(job: JobDirectory) -> None:
    class Retried(WithoutFlock):
        def link(self, source: str, target: str) -> None:
            super().link(source, target)
            # What an NFS client does when no answer came: EEXIST, of its own making
            super().link(source, target)

    job = records.replace(job, fs=Retried())
    with job.lock() as lock:
        committed(job, lock, 1, "one")
    assert read_image(job, 0) == "one"


def test_a_job_directory_from_before_there_was_a_journal(job: JobDirectory) -> None:
    commit(job, 1, "old")
    shutil.rmtree(os.path.join(job.path, "journal"))
    with job.lock() as lock:
        assert read_image(job, 0) == [0, "old"]
        committed(job, lock, 2, "new")
    assert read_image(job, 0) == "new"
    assert read_image(job, 0, 1) == [0, "old"]


def test_a_file_system_without_links_has_no_journal(job: JobDirectory) -> None:
    class Fat(FileSystem):
        def link(self, source: str, target: str) -> None:
            raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    job = records.replace(job, fs=Fat())
    with job.lock() as lock:
        assert lock.journal is None
        committed(job, lock, 1, "one")
    assert load_control(job).record == 0
    assert journal(job) == []


@pytest.mark.parametrize(
    "hint", [b"", b"x\n", b"7\n", b"-1\n", b"0000", b"00000009\n", b"00000000\n", b"00000001", None]
)
def test_a_wrong_hint_only_costs_time(job: JobDirectory, hint: bytes | None) -> None:
    with job.lock() as lock:
        committed(job, lock, 1, "one")
    path = Path(job.path, "journal", "hint")
    path.unlink()
    if hint is not None:
        path.write_bytes(hint)
    with job.lock() as lock:
        assert lock.generation == 2
        committed(job, lock, 2, "two")
    assert read_image(job, 0) == "two"


def test_a_journal_that_was_cut_is_refused_with_the_place(job: JobDirectory) -> None:
    for _ in range(3):
        job.lock().release()
    Path(job.path, "journal", "00000002").unlink()
    Path(job.path, "journal", "00000003").rename(Path(job.path, "journal", "00000002"))
    Path(job.path, "journal", "hint").write_bytes(b"1\n")
    with pytest.raises(Damaged, match=r"journal record 3, wanted was 2|00000002"):
        job.lock()


def test_pruning_removes_the_records_of_lines_and_no_takeover(job: JobDirectory) -> None:
    with job.lock() as lock:
        for epoch in range(1, 6):
            committed(job, lock, epoch, str(epoch))
        prune(job, 2, lock=lock)
        assert journal(job) == ["00000001", "00000005", "00000006"]
        committed(job, lock, 6, "6")
    with job.lock() as lock:
        committed(job, lock, 7, "7")
    assert [line.epoch for line in list_lines(job)] == [4, 5, 6, 7]


def test_a_hint_that_a_crash_has_set_back_names_no_record_before_a_removed_one(job: JobDirectory) -> None:
    """Half of "13" is a number. The gap behind it was taken for the journal's end, and a takeover written into it: "the
    journal does not continue here"."""
    simulated, disk = on_disk(job, {})
    disk.directories.add(os.path.join(job.path, "journal"))
    lock = take_lock(job.path, job.key, job.job_id, disk, journal=True)
    for epoch in range(1, 12):
        committed(simulated, lock, epoch, str(epoch))
    assert prune(simulated, 2, lock=lock).removed
    committed(simulated, lock, 12, "12")
    for seed in range(100):
        after, other = on_disk(job, disk.after_crash(Random(seed)))
        other.directories.add(os.path.join(job.path, "journal"))
        again = take_lock(job.path, job.key, job.job_id, other, journal=True)
        assert again.journal is not None and again.journal.position.number == 14
        committed(after, again, 13, "13")


def test_a_failing_call_at_any_step_of_a_commit_or_a_crash_there_loses_nothing(tmp_path: Path) -> None:
    """When the commit has returned, the line survives every crash; when it has raised, the next one works."""
    job = make_job(tmp_path)
    at = 0
    while True:
        files = {os.path.join(job.path, "journal", "hint"): b"0\n"}
        simulated, disk = on_disk(job, files)
        disk.directories.add(os.path.join(job.path, "journal"))
        lock = take_lock(job.path, job.key, job.job_id, disk, journal=True)
        committed(simulated, lock, 1, "one")
        entry = write_image(simulated, 0, 2, "two")
        disk.faults.at, disk.faults.calls, disk.faults.error = at, 0, errno.EIO
        told = 1
        try:
            write_control(simulated, control_of(2, [entry]), lock=lock)
            told = 2
        except StorageFailed:
            pass
        disk.faults.at = None
        for state in disk.crash_states(1 << 18):
            after, _ = on_disk(job, state)
            found = latest_committed(after)
            assert found is not None and told <= found.epoch <= 2
            assert read_image(after, 0, found.epoch) == ("one", "two")[found.epoch - 1]
        if told == 1:
            for epoch in (3, 4):  # the first of them may find the record that had failed
                try:
                    committed(simulated, lock, epoch, "next")
                except StoreError:
                    assert epoch == 3
            assert read_image(simulated, 0) == "next"
        assert disk.open_files <= 1, "the lock"
        if disk.faults.hit is None:
            break
        at += 1
    assert at > 15


def test_simulated_links_are_names_of_one_file() -> None:
    disk = SimulatedDisk(["/d"], {"/d/a": b"x"}, faults=Faults())
    disk.link("/d/a", "/d/b")
    fd = disk.open_read("/d/b")
    assert disk.link_count(fd) == 2
    disk.close(fd)
    with pytest.raises(FileExistsError):
        disk.link("/d/a", "/d/b")
    with pytest.raises(FileNotFoundError):
        disk.link("/d/c", "/d/e")
    assert {frozenset(state) for state in disk.crash_states()} == {
        frozenset({"/d/a"}),
        frozenset({"/d/a", "/d/b"}),
    }

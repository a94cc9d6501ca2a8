"""The commit sequence: whatever a crash leaves, and whichever call fails, committed lines stand.

All of it runs the production code on a simulated disk (`ckpt.store.disk.simulated`).
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest
from commit_model import EPOCHS, data_of, rounds, run_and_watch
from store_helpers import commit, control_of, make_job, on_disk, read_image, write_image

from ckpt.store import (
    BlockDamaged,
    ControlFile,
    FileSystem,
    JobDirectory,
    LockLost,
    Misplaced,
    RecordDamaged,
    StorageFailed,
    StoreError,
    list_epochs,
    prune,
    write_control,
)
from ckpt.store.disk.fsio import PendingFile
from ckpt.store.disk.simulated import Faults, SimulatedDisk


@pytest.mark.parametrize("size", [1, 2])
def test_every_crash_state_keeps_every_committed_line(tmp_path: Path, size: int) -> None:
    states, syncs = run_and_watch(make_job(tmp_path, size))
    print(f"{states} crash states of {EPOCHS} rounds of {size} ranks, {syncs} syncs: no committed line lost")
    assert states > 50 * size


def test_each_forgotten_sync_loses_a_line_in_some_crash_state(job: JobDirectory) -> None:
    """The mutants: without any one of the syncs of the last rounds, the check above fails.

    The very last syncs belong to pruning; what a sync of `prune` guards is checked in its own test.
    """
    _, disk = on_disk(job)
    simulated, _ = on_disk(job)
    simulated.fs = disk
    needed: list[int] = []
    for what, _, step in rounds(simulated):
        before = disk.syncs
        step()
        if what != "prune":
            needed.extend(range(before, disk.syncs))
    assert len(needed) == EPOCHS * 5  # pack, manifest, their directory, control file, its directory
    survived = []
    for number in needed:
        try:
            run_and_watch(job, ignore_sync=number)
        except (AssertionError, StoreError):
            continue
        survived.append(number)
    assert survived == []


def test_prune_syncs_between_control_files_and_images(job: JobDirectory) -> None:
    """Without the sync after removing control files, a crash leaves a control file whose images are gone."""

    def dangling(ignore: int | None) -> bool:
        simulated, disk = on_disk(job, ignore_sync=ignore)
        for epoch in range(1, 5):
            commit(simulated, epoch, epoch)
        prune(simulated)
        for state in disk.crash_states():
            after, _ = on_disk(job, state)
            for epoch in list_epochs(after):
                try:
                    read_image(after, 0, epoch)
                except StoreError:
                    return True
        return False

    assert not dangling(None)
    simulated, disk = on_disk(job)
    for epoch in range(1, 5):
        commit(simulated, epoch, epoch)
    before = disk.syncs
    prune(simulated)
    assert disk.syncs == before + 2
    assert dangling(before + 1)


def test_prune_waits_for_the_newer_line(job: JobDirectory) -> None:
    """A control file renamed by somebody who died before the directory sync is made durable before others
    go."""
    simulated, disk = on_disk(job)
    for epoch in (1, 2):
        commit(simulated, epoch, data_of(epoch))
    entry = write_image(simulated, 0, 3, [0, data_of(3)])
    data = control_of(3, [entry]).encode(job.key, job.job_id)
    file = PendingFile(disk, simulated.control_directory, "epoch-00000003.json")
    file.write(data, 0)
    file.seal()
    file.publish()
    assert prune(simulated).removed == [1]
    for state in disk.crash_states():
        after, _ = on_disk(job, state)
        assert read_image(after, 0) == [0, data_of(3)]


def test_a_failed_fsync_is_never_tried_again(job: JobDirectory) -> None:
    """The mutant that retries gets a success that means nothing; the real one gives the file up."""
    for call, once_each in (("fsync", 2), ("sync_directory", 1)):  # pack and manifest; their directory
        simulated, disk = on_disk(job, faults=Faults(0, only=frozenset({call})))
        with pytest.raises(StorageFailed, match="fsync"):
            write_image(simulated, 0, 1, "x")
        assert disk.faults.calls == once_each, "a file was synced again"
        assert disk.files == {}

    class Retrying(SimulatedDisk):
        def fsync(self, fd: int) -> None:
            try:
                super().fsync(fd)
            except OSError:
                super().fsync(fd)

    disk = Retrying([job.path, job.control_directory, job.rank_directory(0)])
    disk.faults = Faults(0, only=frozenset({"fsync"}))
    simulated.fs = disk
    commit(simulated, 1, "x")

    def readable(state: dict[str, bytes]) -> bool:
        after, _ = on_disk(job, state)
        try:
            return bool(read_image(after, 0) == [0, "x"])
        except StoreError:
            return False

    assert not all(readable(state) for state in disk.crash_states())


def test_no_space_is_told_with_the_file_and_what_to_do(job: JobDirectory) -> None:
    simulated, _ = on_disk(job, faults=Faults(0, errno.ENOSPC, only=frozenset({"pwrite"})))
    with pytest.raises(StorageFailed) as caught:
        write_image(simulated, 0, 1, "x")
    assert caught.value.errno == errno.ENOSPC
    text = str(caught.value)
    assert "No space left" in text and job.rank_directory(0) in text and "free space" in text


class TestWriteControlRefuses:
    def test_a_missing_rank(self, tmp_path: Path) -> None:
        job = make_job(tmp_path, size=2)
        with pytest.raises(ValueError, match="1 ranks"):
            write_control(job, control_of(1, [write_image(job, 0, 1, "x")]))

    def test_ranks_out_of_order(self, tmp_path: Path) -> None:
        job = make_job(tmp_path, size=2)
        entries = [write_image(job, rank, 1, "x") for rank in (1, 0)]
        with pytest.raises(ValueError, match="rank 1 in place 0"):
            write_control(job, control_of(1, entries))

    def test_an_image_that_does_not_stand_for_the_epoch(self, job: JobDirectory) -> None:
        for label_end, epoch in ((1, 2), (5, 4)):
            entry = write_image(job, 0, label_end, "x", previous=label_end - 1)
            with pytest.raises(ValueError, match="voted"):
                write_control(job, control_of(epoch, [entry]))

    def test_an_epoch_that_is_not_above_all(self, job: JobDirectory) -> None:
        commit(job, 3, "x")
        for epoch in (2, 3):
            with pytest.raises(ValueError, match="only grow"):
                write_control(job, control_of(epoch, [write_image(job, 0, epoch, "x")]))

    def test_a_manifest_that_was_changed_after_the_vote(self, job: JobDirectory) -> None:
        entry = write_image(job, 0, 1, "x")
        other = write_image(job, 0, 1, "y")
        os.replace(os.path.join(job.path, other.manifest), os.path.join(job.path, entry.manifest))
        with pytest.raises(RecordDamaged, match="not the one"):
            write_control(job, control_of(1, [entry]))

    def test_a_manifest_of_another_rank(self, tmp_path: Path) -> None:
        job = make_job(tmp_path, size=2)
        entries = [write_image(job, rank, 1, "x") for rank in range(2)]
        paths = [os.path.join(job.path, entry.manifest) for entry in entries]
        os.replace(paths[1], paths[0])
        with pytest.raises(Misplaced, match="rank 1, wanted was 0"):
            write_control(job, control_of(1, entries))

    def test_a_missing_pack(self, job: JobDirectory) -> None:
        entry = write_image(job, 0, 1, "x")
        os.unlink(os.path.join(job.path, entry.manifest.replace(".json", ".pack")))
        with pytest.raises(BlockDamaged, match="missing"):
            write_control(job, control_of(1, [entry]))
        assert list_epochs(job) == []

    def test_a_controller_that_lost_its_lock(self, job: JobDirectory) -> None:
        entry = write_image(job, 0, 1, "x")
        with job.lock() as lock:
            os.unlink(os.path.join(job.path, "lock"))
            with pytest.raises(LockLost):
                write_control(job, control_of(1, [entry]), lock=lock)
        assert list_epochs(job) == []


def test_the_sequence_is_write_sync_rename_sync(job: JobDirectory) -> None:
    """Pinned down call by call, on the real disk: five syncs for a whole one-rank round."""
    calls: list[str] = []

    class Listening(FileSystem):
        def create(self, path: str, *, direct: bool = False) -> int:
            calls.append(f"create {kind(path)}")
            return super().create(path, direct=direct)

        def pwrite(self, fd: int, data: Any, offset: int) -> int:
            calls.append("write")
            return super().pwrite(fd, data, offset)

        def fsync(self, fd: int) -> None:
            calls.append("fsync")
            super().fsync(fd)

        def replace(self, source: str, target: str) -> None:
            calls.append(f"rename {kind(target)}")
            super().replace(source, target)

        def sync_directory(self, path: str) -> None:
            calls.append(f"sync {os.path.basename(path)}")
            super().sync_directory(path)

    def kind(path: str) -> str:
        name = os.path.basename(path).removeprefix(".tmp-")
        return "pack" if ".pack" in name else "control" if "/control/" in path else "manifest"

    job.fs = Listening()
    commit(job, 1, "x")
    image = "create pack|write|create manifest|write|fsync|fsync|rename pack|rename manifest|sync rank-00000"
    assert "|".join(calls) == f"{image}|create control|write|fsync|rename control|sync control"


def test_a_control_file_survives_its_trip(job: JobDirectory) -> None:
    control = commit(job, 1, "x")
    data = control.encode(job.key, job.job_id)
    back = ControlFile.decode(job.key, job.job_id, data, "f", epoch=1)
    assert back == ControlFile(**{**vars(control), "ranks": tuple(control.ranks)})
    assert back.ranks[0].vectors == {0: (3, 1, 2)}
    assert (back.size, back.bytes_raw, back.bytes_written) == (1, control.bytes_raw, control.bytes_written)

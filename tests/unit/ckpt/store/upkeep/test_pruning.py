"""Prune: two whole lines stay at least, and everything they point to; the rest goes, unless somebody may
need it."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

import pytest
from store_helpers import commit, make_job, read_image, write_image

from ckpt.store import JobDirectory, LockLost, list_epochs, load_manifest, prune, verify
from ckpt.store.upkeep.verification import Finding

DATA = os.urandom(200_000)


def images(job: JobDirectory, rank: int = 0) -> list[str]:
    return sorted(os.listdir(job.rank_directory(rank)))


def test_the_newest_lines_stay(tmp_path: Path) -> None:
    job = make_job(tmp_path, size=2)
    for epoch in range(1, 6):
        commit(job, epoch, os.urandom(9000))
    report = prune(job, 3)
    assert (report.kept, report.removed) == ([3, 4, 5], [1, 2])
    assert list_epochs(job) == [3, 4, 5] and len(images(job)) == 6
    assert report.bytes_freed > 4 * 9000 and len(report.files) == 2 + 2 * 4
    assert verify(job).good and verify(job).orphans == []


@pytest.mark.parametrize("keep", [1, 0, -1])
def test_fewer_than_two_are_refused(job: JobDirectory, keep: int) -> None:
    with pytest.raises(ValueError, match="at least 2"):
        prune(job, keep)


def test_nothing_to_prune(job: JobDirectory) -> None:
    assert prune(job).removed == []
    commit(job, 1, "x")
    assert prune(job).files == []


def test_packs_that_kept_lines_point_into_stay(job: JobDirectory) -> None:
    for epoch in range(1, 6):
        commit(job, epoch, DATA)
    (pack,) = load_manifest(job, commit(job, 6, DATA).ranks[0]).packs
    assert "epoch-00000001" in pack.path
    prune(job)
    assert list_epochs(job) == [5, 6]
    assert read_image(job, 0, 5) == [0, DATA] and read_image(job, 0, 6) == [0, DATA]


def test_a_damaged_line_does_not_count_as_kept(job: JobDirectory) -> None:
    for epoch in range(1, 5):
        commit(job, epoch, epoch)
    (Path(job.control_directory) / "epoch-00000004.json").write_bytes(b"damaged")
    report = prune(job)
    assert report.kept == [2, 3] and report.removed == [1]
    assert report.unknown_ranks == [0], "what the damaged line needs is not known: no image is removed"
    assert len(images(job)) == 8


def test_a_rank_whose_manifest_is_damaged_loses_nothing(tmp_path: Path) -> None:
    job = make_job(tmp_path, size=2)
    for epoch in range(1, 5):
        control = commit(job, epoch, epoch)
    (Path(job.path) / control.ranks[1].manifest).write_bytes(b"damaged")
    report = prune(job)
    assert report.kept == [2, 3] and report.unknown_ranks == [1]
    assert len(images(job, 1)) == 8 and len(images(job, 0)) == 6


def test_leftovers_of_burnt_rounds_go(job: JobDirectory) -> None:
    write_image(job, 0, 1, "burnt")
    commit(job, 2, "x")
    assert len(images(job)) == 4
    prune(job)
    assert all(name.startswith("epoch-00000002") for name in images(job))


def test_an_image_of_a_round_under_way_stays(job: JobDirectory) -> None:
    commit(job, 1, "x")
    write_image(job, 0, 2, "under way")
    assert prune(job).files == []
    assert len(prune(job, fenced=True).files) == 2


def test_temporary_files_of_the_dead_go(job: JobDirectory) -> None:
    commit(job, 3, "x")
    here = Path(job.rank_directory(0))
    old, current = (
        here / ".tmp-epoch-00000002.i0000.aa.pack.bb",
        here / ".tmp-epoch-00000004.i0000.aa.pack.bb",
    )
    root = Path(job.path) / ".tmp-job.json.cc"
    control = Path(job.control_directory) / ".tmp-epoch-00000002.json.dd"
    for path in (old, current, root, control):
        path.write_bytes(b"half")
    prune(job)
    assert not old.exists() and not control.exists() and current.exists() and root.exists()
    prune(job, fenced=True)
    assert not current.exists() and not root.exists()


def test_a_temporary_file_whose_writer_lives_stays(job: JobDirectory) -> None:
    commit(job, 3, "x")
    path = Path(job.rank_directory(0)) / ".tmp-epoch-00000002.i0000.aa.pack.bb"
    with open(path, "wb") as writer:
        fcntl.flock(writer, fcntl.LOCK_EX)
        prune(job, fenced=True)
        assert path.exists()
    prune(job)
    assert not path.exists()


def test_files_of_others_are_left_alone(job: JobDirectory) -> None:
    for epoch in (1, 2, 3):
        commit(job, epoch, "x")
    notes = Path(job.rank_directory(0)) / "notes.txt"
    notes.write_text("mine")
    prune(job, fenced=True)
    assert notes.exists()


def test_a_controller_that_lost_its_lock_removes_nothing(job: JobDirectory) -> None:
    for epoch in (1, 2, 3):
        commit(job, epoch, "x")
    with job.lock() as lock:
        os.unlink(os.path.join(job.path, "lock"))
        with pytest.raises(LockLost):
            prune(job, lock=lock)
    assert list_epochs(job) == [1, 2, 3]


def test_images_can_go_on_after_a_prune(job: JobDirectory) -> None:
    for epoch in range(1, 8):
        commit(job, epoch, [DATA, epoch])
        prune(job)
        assert read_image(job, 0) == [0, [DATA, epoch]]
        assert verify(job).good


def test_a_line_that_is_pruned_while_it_is_verified_is_no_damage(
    job: JobDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`ckpt verify` of a running job: its controller removed the oldest line meanwhile, and the job was called damaged."""
    for epoch in range(1, 4):
        commit(job, epoch, os.urandom(9000))
    read_file = job.fs.read_file

    def pruned_first(path: str, *arguments: int) -> bytes:
        monkeypatch.setattr(job.fs, "read_file", read_file)
        prune(job)
        return read_file(path, *arguments)

    lines = list_epochs(job)
    monkeypatch.setattr(job.fs, "read_file", pruned_first)
    report = verify(job)
    assert lines == [1, 2, 3] and [line.epoch for line in report.lines] == [2, 3]
    assert report.good and report.exit_code == 0


def test_the_only_line_that_was_looked_at_is_pruned_meanwhile(tmp_path: Path) -> None:
    """What is there then is looked at again."""
    job = make_job(tmp_path)
    commit(job, 1, "one")

    def goes(epoch: int) -> list[Finding]:
        if list_epochs(job) == [1]:
            commit(job, 2, "two")
            os.unlink(os.path.join(job.control_directory, "epoch-00000001.json"))
            return [Finding("Damaged", None, None, "its images are gone")]
        return []

    assert [line.epoch for line in verify(job, also=goes).lines] == [2]


def test_a_damaged_line_of_which_the_system_says_nothing_is_in_the_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = make_job(tmp_path)
    commit(job, 1, "one")

    def refused(path: str) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO), path)

    def damaged(epoch: int) -> list[Finding]:
        monkeypatch.setattr(job.fs, "file_size", refused)
        return [Finding("Damaged", None, None, "said by a test")]

    (line,) = verify(job, also=damaged).lines
    assert line.epoch == 1 and not line.good

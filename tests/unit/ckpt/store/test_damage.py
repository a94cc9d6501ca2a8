"""Damage: every flipped bit, every truncation and every swap is detected before a byte of the image is
handed out."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from store_helpers import commit, make_job, on_disk, read_image

from ckpt.store import (
    BlockDamaged,
    Damaged,
    ImageReader,
    JobDirectory,
    Misplaced,
    RecordDamaged,
    StoreError,
    list_lines,
    load_control,
    verify,
)
from ckpt.store.disk.simulated import SimulatedDisk
from ckpt.transport import records


def small_image(job: JobDirectory) -> tuple[JobDirectory, SimulatedDisk]:
    """One committed line of a small image that has raw, zstd and shuffled blocks."""
    simulated, disk = on_disk(job)
    data = {"text": "abc" * 100, "smooth": np.arange(100), "random": np.frombuffer(os.urandom(64), np.uint8)}
    commit(simulated, 1, data)
    return simulated, disk


def is_detected(job: JobDirectory, files: dict[str, bytes]) -> bool:
    """Whether a restart from `files` is refused before `stream` or `buffers` have given anything."""
    damaged, _ = on_disk(job, files)
    try:
        reader = ImageReader(damaged, epoch=1, rank=0, threads=0)
        reader.buffers()
        reader.stream()
    except Damaged as error:
        assert error.exit_code == 12 and error.path
        return True
    return False


@pytest.mark.rotate(2)
def test_every_flipped_bit_of_a_small_image_is_detected(job: JobDirectory) -> None:
    _, disk = small_image(job)
    files = disk.files
    assert not is_detected(job, files)
    bits = 0
    for path, content in files.items():
        for bit in range(len(content) * 8):
            changed = bytearray(content)
            changed[bit // 8] ^= 1 << bit % 8
            assert is_detected(job, {**files, path: bytes(changed)}), f"{path}, bit {bit}"
            bits += 1
    print(f"{bits} flipped bits in {len(files)} files, all detected")
    assert len(files) == 3 and bits > 10_000


def test_every_truncation_and_any_addition_is_detected(job: JobDirectory) -> None:
    _, disk = small_image(job)
    files = disk.files
    for path, content in files.items():
        for length in range(len(content)):
            assert is_detected(job, {**files, path: content[:length]}), f"{path}, {length} bytes"
        for more in (b"\0", b"\n", bytes(4096)):
            assert is_detected(job, {**files, path: content + more})


def test_a_missing_file_is_detected(job: JobDirectory) -> None:
    _, disk = small_image(job)
    for path in disk.files:
        if "/control/" not in path:
            assert is_detected(job, {name: data for name, data in disk.files.items() if name != path})


def test_padding_of_a_large_pack_is_checked_too(job: JobDirectory) -> None:
    commit(job, 1, os.urandom((9 << 20) + 17), threads=0)  # in order: the short block lies last
    (pack,) = Path(job.rank_directory(0)).glob("*.pack")
    content = bytearray(pack.read_bytes())
    last = len(content) - 1
    assert content[last] == 0
    for position in (0, len(content) // 2, last):
        changed = bytearray(content)
        changed[position] ^= 0x40
        pack.write_bytes(changed)
        with pytest.raises(BlockDamaged, match="was changed"):
            read_image(job, 0)
    pack.write_bytes(content)
    read_image(job, 0)


@pytest.mark.parametrize("threads", [0, 2])
def test_damage_at_the_end_shows_before_the_first_byte_is_given(job: JobDirectory, threads: int) -> None:
    commit(job, 1, [os.urandom(9 << 20) for _ in range(2)])
    (pack,) = Path(job.rank_directory(0)).glob("*.pack")
    with open(pack, "r+b") as file:
        file.seek(-5000, os.SEEK_END)
        file.write(b"damage")
    reader = ImageReader(job, epoch=1, rank=0, threads=threads)
    with pytest.raises(BlockDamaged):
        reader.stream()
    with pytest.raises(BlockDamaged):
        reader.buffers()


Swap = Callable[[Path, Path], None]


def exchange(one: Path, other: Path) -> None:
    kept = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(kept)


def names(job: JobDirectory, rank: int, epoch: int) -> tuple[Path, Path]:
    entry = load_control(job, epoch).ranks[rank]
    manifest = Path(job.path) / entry.manifest
    return manifest, manifest.with_suffix(".pack")


class TestSwaps:
    def test_manifests_of_two_ranks(self, tmp_path: Path) -> None:
        job = make_job(tmp_path, size=2)
        commit(job, 1, "x")
        exchange(names(job, 0, 1)[0], names(job, 1, 1)[0])
        for rank in range(2):
            with pytest.raises(Misplaced, match=f"rank {1 - rank}, wanted was {rank}"):
                read_image(job, rank)

    def test_packs_of_two_ranks(self, tmp_path: Path) -> None:
        job = make_job(tmp_path, size=2)
        commit(job, 1, "x")
        exchange(names(job, 0, 1)[1], names(job, 1, 1)[1])
        for rank in range(2):
            with pytest.raises(BlockDamaged):
                read_image(job, rank)

    def test_manifests_and_packs_of_two_ranks(self, tmp_path: Path) -> None:
        job = make_job(tmp_path, size=2)
        commit(job, 1, "x")
        for one, other in zip(names(job, 0, 1), names(job, 1, 1), strict=True):
            exchange(one, other)
        with pytest.raises(Misplaced):
            read_image(job, 0)

    def test_manifests_of_two_epochs(self, job: JobDirectory) -> None:
        for epoch in (1, 2):
            commit(job, epoch, epoch)
        exchange(names(job, 0, 1)[0], names(job, 0, 2)[0])
        with pytest.raises(Misplaced, match="epoch 1, wanted was 2"):
            read_image(job, 0, 2)

    def test_manifests_of_two_incarnations(self, job: JobDirectory) -> None:
        for epoch in (1, 2):
            commit(job, epoch, epoch, incarnation=epoch)
        control = load_control(job, 2)
        lying = records.replace(control.ranks[0], incarnation=1)
        with pytest.raises(Misplaced, match="incarnation 2, wanted was 1"):
            ImageReader(job, lying)

    def test_control_files_of_two_epochs(self, job: JobDirectory) -> None:
        for epoch in (1, 2):
            commit(job, epoch, epoch)
        exchange(*sorted(Path(job.control_directory).iterdir()))
        for epoch in (1, 2):
            with pytest.raises(Misplaced):
                load_control(job, epoch)

    def test_files_of_two_jobs(self, tmp_path: Path) -> None:
        jobs = [make_job(tmp_path / name) for name in "ab"]
        for job in jobs:
            commit(job, 1, "same")
        for folder in ("control", "images"):
            shutil.rmtree(Path(jobs[0].path) / folder)
            shutil.copytree(Path(jobs[1].path) / folder, Path(jobs[0].path) / folder)
        with pytest.raises(RecordDamaged, match="not of this job"):
            read_image(jobs[0], 0, 1)

    def test_files_and_key_of_another_job(self, tmp_path: Path) -> None:
        """Even who holds the key of both cannot pass an image of one off as the other's by mistake."""
        jobs = [make_job(tmp_path / name) for name in "ab"]
        commit(jobs[1], 1, "x")
        mixed = records.replace(jobs[1], job_id=jobs[0].job_id)
        with pytest.raises(Misplaced, match="belongs to job"):
            read_image(mixed, 0, 1)


def test_a_damaged_newest_line_names_the_one_to_use(job: JobDirectory) -> None:
    for epoch in (1, 2):
        commit(job, epoch, os.urandom(3000))
    names(job, 0, 2)[1].write_bytes(b"")
    with pytest.raises(BlockDamaged) as caught:
        read_image(job, 0)
    assert caught.value.exit_code == 3 and caught.value.fallback_epoch == 1
    assert "restart JOB@1" in str(caught.value)
    report = verify(job)
    assert (report.exit_code, report.newest_good) == (3, 1)


class TestVerify:
    def test_all_good(self, tmp_path: Path) -> None:
        job = make_job(tmp_path, size=2)
        for epoch in (1, 2):
            commit(job, epoch, os.urandom(9000))
        report = verify(job)
        assert report.good and report.exit_code == 0 and report.newest_good == 2 and report.orphans == []
        assert [line.epoch for line in report.lines] == [1, 2]
        assert report.to_json()["lines"][0]["good"] is True

    def test_shared_blocks_are_read_once(self, job: JobDirectory) -> None:
        data = os.urandom(1 << 20)
        for epoch in (1, 2):
            commit(job, epoch, data)
        first, second = verify(job).lines
        assert first.bytes_read > 1 << 20 > second.bytes_read

    def test_names_rank_and_file(self, tmp_path: Path) -> None:
        job = make_job(tmp_path, size=2)
        commit(job, 1, "x")
        pack = names(job, 1, 1)[1]
        pack.unlink()
        report = verify(job, 1)
        (finding,) = report.lines[0].findings
        assert (finding.rank, finding.path, finding.kind) == (1, str(pack), "BlockDamaged")
        assert report.exit_code == 12

    def test_one_epoch_damaged_and_another_good(self, job: JobDirectory) -> None:
        for epoch in (1, 2):
            commit(job, epoch, os.urandom(3000))
        names(job, 0, 2)[1].unlink()
        report = verify(job, 2)
        assert (report.exit_code, report.newest_good) == (3, 1)

    def test_counts_files_that_no_line_has(self, job: JobDirectory) -> None:
        commit(job, 1, "x")
        stray = Path(job.rank_directory(0)) / "epoch-00000002.i0000.0badcafe.pack"
        stray.write_bytes(b"left over")
        assert verify(job).orphans == [f"images/rank-00000/{stray.name}"]

    def test_a_control_file_that_does_not_verify(self, job: JobDirectory) -> None:
        commit(job, 1, "x")
        (path,) = Path(job.control_directory).iterdir()
        path.write_bytes(path.read_bytes().replace(b'"size":1', b'"size":2'))
        report = verify(job)
        assert report.exit_code == 12 and report.lines[0].findings[0].path == str(path)
        (line,) = list_lines(job)
        assert line.control is None and isinstance(line.error, RecordDamaged)

    def test_never_unpickles(self, job: JobDirectory, tmp_path: Path) -> None:
        touched = tmp_path / "touched"
        commit(job, 1, Trap(str(touched)))
        assert verify(job).good and not touched.exists()
        read_image(job, 0)
        assert touched.exists()


class Trap:
    """Creates a file when it is unpickled."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., object], tuple[str, str]]:
        return open, (self.path, "w")


def test_nothing_is_unpickled_from_an_image_that_does_not_verify(job: JobDirectory, tmp_path: Path) -> None:
    touched = tmp_path / "touched"
    commit(job, 1, [Trap(str(touched)), os.urandom(9000)])
    pack = names(job, 0, 1)[1]
    content = bytearray(pack.read_bytes())
    content[-1] ^= 1
    pack.write_bytes(content)
    with pytest.raises(StoreError):
        read_image(job, 0)
    assert not touched.exists()

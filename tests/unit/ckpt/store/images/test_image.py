"""Writer and reader: an image comes back equal, writable and aligned, whatever its size; what is known is not
written again."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from store_helpers import commit, control_of, make_job, read_image, write_image

from ckpt.store import (
    ImageReader,
    ImageWriter,
    Incompatible,
    JobDirectory,
    StorageFailed,
    latest_committed,
    load_manifest,
    verify,
    write_control,
)
from ckpt.store.disk.simulated import Faults
from ckpt.store.images.packs import ALIGN
from ckpt.store.images.writer import BLOCK
from ckpt.store.records.manifest import SMALL_ALIGN

MIB = 1 << 20


def arrays() -> dict[str, Any]:
    random = np.random.default_rng(1)
    return {
        "empty": np.empty(0),
        "tiny": np.arange(3, dtype=np.int8),
        "small": random.normal(size=100),
        "medium": random.normal(size=20_000),
        "large": random.normal(size=(9 * MIB) // 8 + 5),
        "smooth": np.sin(np.arange(5 * MIB // 8) * 1e-4),
        "zeros": np.zeros(12 * MIB, np.uint8),
        "odd": np.ones(100_003, dtype=[("a", "i1"), ("b", "f4"), ("c", "i2")]),
        "fortran": np.asfortranarray(random.normal(size=(300, 200))),
        "inband": os.urandom(70_000),
        "huge_inband": bytes(5 * MIB) + os.urandom(2 * MIB),
        "text": ["x" * n for n in range(100)],
    }


def assert_equal(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert list(one) == list(other)
    for name, value in one.items():
        if isinstance(value, np.ndarray):
            assert value.dtype == other[name].dtype and np.array_equal(value, other[name]), name
        else:
            assert value == other[name], name


@pytest.mark.parametrize("threads", [0, 1, 3])
def test_an_image_comes_back(job: JobDirectory, threads: int) -> None:
    data = arrays()
    commit(job, 1, data, threads=threads)
    rank, back = read_image(job, 0, threads=threads)
    assert rank == 0
    assert_equal(data, back)


@pytest.mark.parametrize("data", [None, b"", {"x": 1}, np.arange(10), bytearray(b"abc")])
def test_a_small_image_comes_back(job: JobDirectory, data: Any) -> None:
    commit(job, 1, data)
    assert np.array_equal(read_image(job, 0)[1], data)


def test_an_image_of_nothing_has_no_pack(job: JobDirectory) -> None:
    writer = ImageWriter(job, rank=0, incarnation=0, label=(0, 1))
    receipt = writer.finish({})
    assert [name for name in os.listdir(job.rank_directory(0)) if name.endswith(".pack")] == []
    assert receipt.bytes_raw == 0


def test_restored_arrays_can_be_written_and_are_aligned(job: JobDirectory) -> None:
    commit(job, 1, {n: np.arange(n, dtype=np.complex128) for n in range(1, 60)})
    for n, array in read_image(job, 0)[1].items():
        assert array.flags.writeable and array.flags.aligned
        array[0] = n


def test_restored_neighbours_do_not_share_memory(job: JobDirectory) -> None:
    commit(job, 1, [np.zeros(5), np.zeros(5), np.zeros(2 * MIB), np.zeros(2 * MIB)])
    a, b, c, d = read_image(job, 0)[1]
    a[:] = 1
    c[:] = 1
    assert not b.any() and not d.any()


@pytest.mark.parametrize("count", [10, 20_000, 2 * MIB])
def test_restored_memory_is_copied_by_a_fork(job: JobDirectory, count: int) -> None:
    """The next image is written by a forked child: it must not see what the program writes meanwhile."""
    commit(job, 1, np.zeros(count))
    array = read_image(job, 0)[1]
    go, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.read(go, 1)
        os._exit(int(array.any()))
    array[:] = 1
    os.write(tell, b"x")
    assert os.waitpid(pid, 0)[1] == 0


def test_read_only_arrays_stay_read_only(job: JobDirectory) -> None:
    array = np.arange(100_000)
    array.flags.writeable = False
    commit(job, 1, array)
    assert not read_image(job, 0)[1].flags.writeable


def test_a_buffer_that_is_not_contiguous_is_refused_by_name(job: JobDirectory) -> None:
    writer = ImageWriter(job, rank=0, incarnation=0, label=(0, 1))
    with pytest.raises(BufferError):
        writer.buffer(pickle.PickleBuffer(np.arange(100)[::2]))
    writer.abort()


def test_equal_blocks_are_stored_once(job: JobDirectory) -> None:
    same = np.frombuffer(os.urandom(BLOCK), np.uint8)
    entry = write_image(job, 0, 1, [np.tile(same, 4), same.copy()])
    assert entry.bytes_raw > 5 * BLOCK
    assert entry.bytes_written < BLOCK + 100_000


def test_a_large_pack_is_aligned_and_a_small_one_is_dense(job: JobDirectory) -> None:
    large = load_manifest(job, commit(job, 1, os.urandom(9 * MIB)).ranks[0])
    assert large.packs[0].align == ALIGN and all(block.offset % ALIGN == 0 for block in large.blocks)
    small = load_manifest(job, commit(job, 2, b"x").ranks[0])
    assert small.packs[0].align == 1 and small.packs[0].length < 200


def test_small_buffers_share_blocks(job: JobDirectory) -> None:
    manifest = load_manifest(job, commit(job, 1, [np.full(9, n) for n in range(1000)]).ranks[0])
    assert len(manifest.buffers) == 1000
    assert len(manifest.blocks) == 2  # the stream, and all arrays
    assert manifest.blocks[manifest.small[0]].length == 1000 * (2 * SMALL_ALIGN)


class TestUnchangedBlocks:
    def test_are_not_written_again(self, job: JobDirectory) -> None:
        data = np.frombuffer(os.urandom(20 * MIB), np.uint8).copy()
        first = commit(job, 1, data).ranks[0]
        again = commit(job, 2, data).ranks[0]
        assert first.bytes_written > 20 * MIB and again.bytes_written < 0.01 * again.bytes_raw
        data[5 * MIB] ^= 1
        changed = commit(job, 3, data).ranks[0]
        assert BLOCK < changed.bytes_written < BLOCK + 100_000
        assert np.array_equal(read_image(job, 0, 3)[1], data)
        assert verify(job).good

    def test_are_written_when_asked(self, job: JobDirectory) -> None:
        data = os.urandom(5 * MIB)
        commit(job, 1, data)
        assert commit(job, 2, data, incremental=False).ranks[0].bytes_written > 5 * MIB

    def test_of_a_round_that_did_not_commit_are_written(self, job: JobDirectory) -> None:
        data = os.urandom(5 * MIB)
        write_image(job, 0, 1, [0, data])
        assert commit(job, 2, data).ranks[0].bytes_written > 5 * MIB

    def test_of_another_incarnation_are_only_trusted_when_it_was_resumed_from(
        self, job: JobDirectory
    ) -> None:
        data = os.urandom(5 * MIB)
        commit(job, 1, data)
        assert commit(job, 2, data, incarnation=1).ranks[0].bytes_written > 5 * MIB
        commit(job, 3, data)
        entry = write_image(job, 0, 4, [0, data], incarnation=2, resumed_from=3)
        assert entry.bytes_written < 100_000

    def test_in_a_pack_that_is_gone_or_cut_are_written(self, job: JobDirectory) -> None:
        data = os.urandom(5 * MIB)
        commit(job, 1, data)
        (pack,) = Path(job.rank_directory(0)).glob("*.pack")
        os.truncate(pack, 5 * MIB)
        assert commit(job, 2, data).ranks[0].bytes_written > 5 * MIB
        pack.unlink()
        assert commit(job, 3, data).ranks[0].bytes_written < 100_000  # now 2 is the base

    def test_in_a_pack_that_is_hardly_used_are_written_anew(self, job: JobDirectory) -> None:
        parts = [np.frombuffer(os.urandom(BLOCK), np.uint8) for _ in range(8)]
        commit(job, 1, parts)
        keep = commit(job, 2, parts[:1]).ranks[0]
        assert keep.bytes_written < 100_000
        moved = commit(job, 3, parts[:1]).ranks[0]
        assert moved.bytes_written > BLOCK
        assert [pack.path for pack in load_manifest(job, moved).packs] == [
            moved.manifest.replace(".json", ".pack")
        ]

    def test_a_damaged_base_is_no_reason_to_fail(self, job: JobDirectory) -> None:
        data = os.urandom(5 * MIB)
        commit(job, 1, data)
        for name in ("control", "images/rank-00000"):
            for path in (Path(job.path) / name).glob("*.json"):
                path.write_bytes(b"{}")
        assert write_image(job, 0, 2, [0, data]).bytes_written > 5 * MIB


def test_the_image_may_be_written_by_a_forked_child_with_threads(job: JobDirectory) -> None:
    data = arrays()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            commit(job, 1, data, threads=2)
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(pid, 0)[1] == 0
    assert_equal(data, read_image(job, 0)[1])


def test_the_commit_path_imports_nothing_heavy() -> None:
    check = (
        "import sys, ckpt.store; print({'pydantic', 'numpy', 'dill', 'zmq', 'threading'} & set(sys.modules))"
    )
    found = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert "pydantic" not in found.stdout and "numpy" not in found.stdout and "dill" not in found.stdout


def test_a_writer_that_is_done_takes_nothing_more(job: JobDirectory) -> None:
    writer = ImageWriter(job, rank=0, incarnation=0, label=(0, 1))
    writer.write(b"x")
    writer.finish({})
    for use in (lambda: writer.write(b"y"), lambda: writer.finish({})):
        with pytest.raises(ValueError, match="finished"):
            use()
    writer.abort()


@pytest.mark.parametrize("size", [10, 9 * MIB])
def test_an_image_given_up_leaves_nothing(job: JobDirectory, size: int) -> None:
    writer = ImageWriter(job, rank=0, incarnation=0, label=(0, 1))
    writer.write(os.urandom(size))
    writer.abort()
    assert os.listdir(job.rank_directory(0)) == []


@pytest.mark.parametrize("label", [(1, 1), (2, 1), (-1, 1)])
def test_a_label_is_a_range(job: JobDirectory, label: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="label"):
        ImageWriter(job, rank=0, incarnation=0, label=label)


def test_a_rank_the_job_does_not_have(job: JobDirectory) -> None:
    with pytest.raises(ValueError, match="rank 1"):
        ImageWriter(job, rank=1, incarnation=0, label=(0, 1))
    commit(job, 1, "x")
    with pytest.raises(Incompatible, match="no rank 1"):
        ImageReader(job, epoch=1, rank=1)
    with pytest.raises(TypeError):
        ImageReader(job, epoch=1)


def test_meta_is_readable_without_reading_the_image(job: JobDirectory) -> None:
    commit(job, 1, "x")
    assert ImageReader(job, epoch=1, rank=0).meta == {"note": "test"}


def test_an_error_in_a_thread_ends_the_image_and_leaves_nothing(
    job: JobDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults = Faults(at=3, only=frozenset({"pwrite"}))
    write = job.fs.pwrite

    def failing(fd: int, data: Any, offset: int) -> int:
        faults.check("pwrite", "")
        return write(fd, data, offset)

    monkeypatch.setattr(job.fs, "pwrite", failing)
    with pytest.raises(StorageFailed, match="write failed"):
        write_image(job, 0, 1, [os.urandom(BLOCK) for _ in range(20)], threads=2)
    assert os.listdir(job.rank_directory(0)) == []


def test_a_short_write_of_a_large_pack_is_completed(
    job: JobDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = job.fs.pwrite
    monkeypatch.setattr(
        job.fs, "pwrite", lambda fd, data, offset: write(fd, data[: len(data) // 3 + 1], offset)
    )
    data = os.urandom(9 * MIB)
    commit(job, 1, data)
    assert read_image(job, 0)[1] == data


def test_a_file_system_without_direct_writes_will_do(
    job: JobDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(fd: int, direct: bool) -> None:
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr(job.fs, "set_direct", refuse)
    data = os.urandom(9 * MIB)
    commit(job, 1, data)
    assert read_image(job, 0)[1] == data


def test_two_ranks_have_their_own_images(tmp_path: Path) -> None:
    job = make_job(tmp_path, size=2)
    commit(job, 1, "state")
    assert [read_image(job, rank) for rank in range(2)] == [[0, "state"], [1, "state"]]


def test_a_final_image_stands_for_later_epochs(tmp_path: Path) -> None:
    job = make_job(tmp_path, size=2)
    final = write_image(job, 0, 5, "final", previous=0)
    write_control(job, control_of(3, [final, write_image(job, 1, 3, "three")]))
    assert read_image(job, 0, 3) == "final"
    found = latest_committed(job)
    assert found is not None and found.epoch == 3


def test_blocks_collected_before_the_pack_is_streamed_are_found_again(tmp_path: Path) -> None:
    """Many buffers smaller than a block, more in all than is collected: streaming begins half-way."""
    job = make_job(tmp_path)
    random = np.random.default_rng(5)
    data = {str(n): random.normal(size=69_000 + n) for n in range(24)}
    commit(job, 1, data)
    assert_equal(data, read_image(job, 0)[1])
    assert verify(job).good
    changed = {**data, "7": random.normal(size=70_000)}
    commit(job, 2, changed)
    assert_equal(changed, read_image(job, 0)[1])

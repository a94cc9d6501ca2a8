"""Blocks recognised without their digests: the sums are what their definition says, and no image is ever another one for it.

The oracle of the writer's tests is the writer itself without a base line: whatever a program does to its memory between
two images, in whatever way, the manifest that was written with the base's likenesses names the very same digests.
"""

from __future__ import annotations

import ctypes
import mmap
import random
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from store_helpers import commit, control_of, make_job, read_image, write_image

from ckpt.store import JobDirectory, Manifest, load_manifest, verify, write_control
from ckpt.store.images import writer as writer_module
from ckpt.store.images._likeness import IMPLEMENTATIONS, KEY_BYTES, sums
from ckpt.store.images.likeness import LIKENESS_FROM, Likeness
from ckpt.store.images.writer import BLOCK
from ckpt.store.records import authenticated
from ckpt.store.records.authenticated import digest
from ckpt.transport import records

MIB = 1 << 20
PIECE = 4096


def as_defined(data: bytes, key: bytes) -> bytes:
    """The sums, word by word."""
    data += bytes(-len(data) % PIECE)
    k = struct.unpack(f"<{KEY_BYTES // 4}I", key)
    found = b""
    for start in range(0, len(data), PIECE):
        x = struct.unpack("<1024I", data[start : start + PIECE])
        for first in range(0, 64, 16):
            products = (
                ((x[i] + k[i + first]) % 2**32) * ((x[i + 1] + k[i + first + 1]) % 2**32)
                for i in range(0, 1024, 2)
            )
            found += (sum(products) % 2**64).to_bytes(8, "little")
    return found


class TestSums:
    KEY = random.Random(1).randbytes(KEY_BYTES)

    @pytest.mark.parametrize("implementation", IMPLEMENTATIONS.split())
    @pytest.mark.parametrize("length", [0, 1, 7, 8, 4095, 4096, 4097, 12_289])
    def test_are_what_they_are_defined_to_be(self, implementation: str, length: int) -> None:
        data = random.Random(length).randbytes(length)
        assert sums(data, self.KEY, implementation) == as_defined(data, self.KEY)
        largest = b"\xff" * length
        assert sums(largest, b"\xff" * KEY_BYTES, implementation) == as_defined(largest, b"\xff" * KEY_BYTES)

    @pytest.mark.parametrize("implementation", IMPLEMENTATIONS.split())
    def test_do_not_depend_on_where_the_data_lies(self, implementation: str) -> None:
        data = random.Random(2).randbytes(9000)
        for shift in range(1, 70, 3):
            moved = memoryview(bytes(shift) + data)[shift:]
            assert sums(moved, self.KEY, implementation) == sums(data, self.KEY)

    def test_every_word_has_a_key_of_its_own(self) -> None:
        """Whatever is exchanged, the sums are others: words of a pair, pairs, rows, pieces."""
        data = random.Random(3).randbytes(2 * PIECE)
        for size in (4, 8, 64, PIECE):
            exchanged = data[size : 2 * size] + data[:size] + data[2 * size :]
            assert sums(exchanged, self.KEY) != sums(data, self.KEY), size

    def test_every_bit_counts_in_all_four(self) -> None:
        data = bytearray(random.Random(4).randbytes(PIECE))
        whole = sums(data, self.KEY)
        for bit in range(8 * PIECE):
            data[bit // 8] ^= 1 << bit % 8
            other = sums(data, self.KEY)
            assert all(whole[at : at + 8] != other[at : at + 8] for at in range(0, 32, 8)), bit
            data[bit // 8] ^= 1 << bit % 8

    def test_a_key_of_another_length_is_refused(self) -> None:
        with pytest.raises(ValueError, match="the key has 4288 bytes, not 32"):
            sums(b"", bytes(32))

    def test_an_implementation_that_does_not_exist_is_refused(self) -> None:
        with pytest.raises(ValueError, match="no implementation abacus"):
            sums(b"", self.KEY, "abacus")


class TestLikeness:
    def test_is_that_of_equal_blocks_only(self) -> None:
        likeness = Likeness(bytes(32))
        block = random.Random(5).randbytes(LIKENESS_FROM + 100)
        others = [block[:-1], block + b"\0", block[:-1] + b"\0", bytes(len(block)), block[1:] + block[:1]]
        names = [likeness.of(other) for other in others]
        assert likeness.of(block) == likeness.of(memoryview(bytearray(block)))
        assert len({likeness.of(block), *names}) == 1 + len(others)

    def test_zeros_at_the_end_count(self) -> None:
        likeness = Likeness(bytes(32))
        assert len({likeness.of(bytes(LIKENESS_FROM + n)) for n in range(100)}) == 100

    def test_depends_on_the_key_of_the_job(self) -> None:
        block = bytes(LIKENESS_FROM)
        assert Likeness(bytes(32)).of(block) != Likeness(b"\1" + bytes(31)).of(block)

    def test_small_blocks_have_none(self) -> None:
        assert Likeness(bytes(32)).of(bytes(LIKENESS_FROM - 1)) == ""

    def test_is_the_same_for_good(self) -> None:
        """It lies in manifests: computed otherwise, nothing would be recognised after an update."""
        likeness = Likeness(bytes(range(32)))
        assert likeness.of(bytes(range(256)) * 300) == "b4bd9b266ce9a5411dcd7e3dfcaa3f13"


def digests(manifest: Manifest) -> list[Any]:
    """What the image consists of, in its order."""

    def named(indices: tuple[int, ...] | None) -> list[str] | None:
        return None if indices is None else [manifest.blocks[index].digest for index in indices]

    buffers = [(buffer.length, named(buffer.blocks)) for buffer in manifest.buffers]
    return [named(manifest.stream), named(manifest.small), buffers]


class TestRecognised:
    @pytest.fixture(params=[0, 2], ids=["here", "threads"])
    def threads(self, request: pytest.FixtureRequest) -> int:
        return int(request.param)

    @pytest.fixture
    def hashed(self, monkeypatch: pytest.MonkeyPatch) -> list[int]:
        """Lengths of what was digested while images were written."""
        lengths: list[int] = []

        def noted(data: Any) -> str:
            lengths.append(len(data))
            return digest(data)

        monkeypatch.setattr(writer_module, "digest", noted)
        return lengths

    def test_blocks_are_not_hashed_again(self, job: JobDirectory, hashed: list[int], threads: int) -> None:
        data = [np.random.default_rng(1).random(9 * MIB // 8), np.arange(5 * MIB // 8)]
        first = load_manifest(job, commit(job, 1, data, threads=threads).ranks[0])
        hashed.clear()
        second = load_manifest(job, commit(job, 2, data, threads=threads).ranks[0])
        assert max(hashed) < LIKENESS_FROM, "the stream and the manifest only"
        assert digests(second)[2] == digests(first)[2]
        data[0][0] += 1
        hashed.clear()
        third = load_manifest(job, commit(job, 3, data, threads=threads).ranks[0])
        assert [length for length in hashed if length >= LIKENESS_FROM] == [BLOCK]
        assert digests(third) == digests(load_manifest(job, commit(job, 4, data, incremental=False).ranks[0]))
        assert verify(job).good

    def test_blocks_may_lie_elsewhere(self, job: JobDirectory, hashed: list[int]) -> None:
        one, two = (np.random.default_rng(seed).random(BLOCK // 8) for seed in (1, 2))
        commit(job, 1, [one, two])
        hashed.clear()
        commit(job, 2, [two.copy(), np.zeros(9000), one.copy(), two.copy()])
        assert [length for length in hashed if length >= LIKENESS_FROM] == [72_000]

    def test_after_a_restart(self, job: JobDirectory, hashed: list[int]) -> None:
        commit(job, 1, np.random.default_rng(1).random(BLOCK // 8))
        data = read_image(job, 0)
        hashed.clear()
        entry = write_image(job, 0, 2, data, incarnation=1, resumed_from=1)
        assert max(hashed) < LIKENESS_FROM and entry.bytes_written < 10_000

    def test_of_a_line_without_likenesses_by_digests(self, job: JobDirectory, hashed: list[int]) -> None:
        """As it was written before there were any: blocks are not written again, and have one from then on."""
        data = np.random.default_rng(1).random(2 * BLOCK // 8)
        entry = write_image(job, 0, 1, data)
        manifest = load_manifest(job, entry)
        old = records.replace(manifest, blocks=tuple(b._replace(likeness="") for b in manifest.blocks))
        write_control(job, control_of(1, [replaced(job, entry, old)]))
        assert commit(job, 2, data).ranks[0].bytes_written < 10_000
        assert hashed.count(BLOCK) == 4
        again = load_manifest(job, commit(job, 3, data).ranks[0])
        assert hashed.count(BLOCK) == 4 and digests(again)[2] == digests(manifest)[2]
        alike = [{block.likeness for block in which.blocks} for which in (again, manifest)]
        assert alike[0] == alike[1] and len(alike[0]) == 3, "two blocks, and the stream without one"

    def test_a_likeness_that_is_not_the_blocks_own_is_found(self, job: JobDirectory) -> None:
        """It could only come from a fault of memory or of ours; the next image would be wrong for it."""
        entry = write_image(job, 0, 1, np.random.default_rng(1).random(BLOCK // 8))
        manifest = load_manifest(job, entry)
        wrong = records.replace(
            manifest, blocks=tuple(b._replace(likeness=b.likeness and "ab" * 16) for b in manifest.blocks)
        )
        write_control(job, control_of(1, [replaced(job, entry, wrong)]))
        (line,) = verify(job).lines
        assert [finding.kind for finding in line.findings] == ["BlockDamaged"]


def replaced(job: JobDirectory, entry: Any, manifest: Manifest) -> Any:
    """The vote for another manifest in the place of the one that was written."""
    data = manifest.encode(job.key)
    path = Path(job.path) / entry.manifest
    path.write_bytes(data)
    return records.replace(entry, digest=authenticated.digest(data))


class Memory:
    """A program's memory, and the many ways to change it."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.random = random.Random(seed)
        self.file = folder / "noise"
        self.file.write_bytes(self.random.randbytes(MIB))
        self.array = np.frombuffer(bytearray(self.random.randbytes(5 * MIB + 12_345)), np.uint8)
        self.text = bytearray(b"the same line again and again\n" * 40_000)
        self.mapped = self.new_mapping(6 * MIB)

    def new_mapping(self, length: int) -> mmap.mmap:
        mapped = mmap.mmap(-1, length, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        mapped[: length // 3] = self.random.randbytes(length // 3)
        return mapped

    def state(self) -> list[Any]:
        return [self.array, self.text, np.frombuffer(self.mapped, np.uint8), {"text": "x" * 200_000}]

    def place(self, length: int) -> int:
        """Often near the border of a piece or a block."""
        borders = [0, length - 1, *range(PIECE, length, 97 * PIECE), *range(BLOCK, length, BLOCK)]
        near = self.random.choice(borders) + self.random.randint(-9, 9)
        return min(max(near, 0), length - 1)

    def ways(self) -> Iterator[Callable[[], None]]:
        yield from (self.one_bit, self.by_numpy, self.by_a_view, self.by_ctypes, self.read_into, self.swap)
        yield from (self.another_length, self.mapped_anew, self.moved, self.back_and_forth)

    def one_bit(self) -> None:
        self.array[self.place(len(self.array))] ^= 1 << self.random.randrange(8)

    def by_numpy(self) -> None:
        at = self.place(len(self.array))
        self.array[at : at + self.random.choice([1, 100, PIECE, MIB])] += np.uint8(1)

    def by_a_view(self) -> None:
        memoryview(self.text)[self.place(len(self.text))] = self.random.randrange(256)

    def by_ctypes(self) -> None:
        at = self.place(len(self.array))
        ctypes.memset(self.array.ctypes.data + at, self.random.randrange(256), min(9, len(self.array) - at))

    def read_into(self) -> None:
        at = self.place(len(self.mapped) - 10_000)
        with self.file.open("rb", buffering=0) as file:
            file.seek(self.random.randrange(MIB - 10_000))
            file.readinto(memoryview(self.mapped)[at : at + self.random.choice([1, 10_000])])

    def swap(self) -> None:
        """The same bytes in other places."""
        one, other = (self.random.randrange(len(self.array) // PIECE - 1) * PIECE for _ in range(2))
        kept = self.array[one : one + PIECE].copy()
        self.array[one : one + PIECE] = self.array[other : other + PIECE]
        self.array[other : other + PIECE] = kept

    def another_length(self) -> None:
        if self.random.random() < 0.5:
            self.text += bytes(self.random.choice([1, 64, PIECE]))
        else:
            del self.text[-self.random.choice([1, 64, PIECE]) :]

    def mapped_anew(self) -> None:
        """Most likely at the same address."""
        length = len(self.mapped)
        self.mapped.close()
        self.mapped = self.new_mapping(length)

    def moved(self) -> None:
        self.array = np.frombuffer(bytearray(self.array), np.uint8)

    def back_and_forth(self) -> None:
        """Written, and nothing changed."""
        self.array[:] = self.array[:]
        self.array[0] ^= 1
        self.array[0] ^= 1


@pytest.mark.parametrize("seed", range(4))
def test_whatever_a_program_does_its_image_is_the_one_written_without_a_base(
    tmp_path: Path, seed: int
) -> None:
    job, alone = make_job(tmp_path / "one"), make_job(tmp_path / "other")
    memory = Memory(seed, tmp_path)
    ways = list(memory.ways())
    memory.random.shuffle(ways)
    for epoch in range(1, 13):
        for change in memory.random.choices(ways, k=memory.random.choice([0, 1, 1, 3])):
            change()
        if epoch <= len(ways):
            ways[epoch - 1]()
        state = memory.state()
        found = load_manifest(job, commit(job, epoch, state, threads=seed % 3).ranks[0])
        wanted = load_manifest(alone, commit(alone, epoch, state, incremental=False).ranks[0])
        assert digests(found) == digests(wanted), epoch
        for back, value in zip(read_image(job, 0, epoch)[1], state, strict=True):
            assert np.array_equal(back, value) if isinstance(value, np.ndarray) else back == value
        del state, back, value  # views of memory that is about to be given back
    assert verify(job).good

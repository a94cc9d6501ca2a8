"""Random flips in large images, and that nothing at all is unpickled, or even looked up, before everything is verified."""

from __future__ import annotations

import os
import pickle
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from store_helpers import commit, on_disk

from ckpt.store import BlockDamaged, Damaged, ImageReader, JobDirectory, load_control, load_manifest
from ckpt.store.disk.memory import ALIGN, Staging
from ckpt.store.images.codec import Codec
from ckpt.store.images.source import BlockSource, Target

MIB = 1 << 20


class Auditor(pickle.Unpickler):
    """An unpickler that writes down whatever it is asked to look up."""

    looked_up: list[str]

    def find_class(self, module: str, name: str) -> Any:
        self.looked_up.append(f"{module}.{name}")
        return super().find_class(module, name)


def audited(job: JobDirectory) -> list[str]:
    """What a restore of epoch 1 has looked up, whether it failed or not; it must fail with `Damaged` or not at all."""
    looked_up: list[str] = []
    try:
        reader = ImageReader(job, epoch=1, rank=0, threads=0)
        unpickler = Auditor(reader.stream(), buffers=reader.buffers())
        unpickler.looked_up = looked_up
        unpickler.load()
    except Damaged:
        return [*looked_up, "refused"]
    return looked_up


def test_nothing_is_looked_up_before_all_is_verified(job: JobDirectory) -> None:
    """A flip anywhere, in the last byte of the last buffer too: refused, and `find_class` was not called once."""
    simulated, disk = on_disk(job)
    commit(simulated, 1, [Path("x"), np.arange(30_000), os.urandom(100_000), np.zeros(5, bool)])
    assert len(audited(simulated)) > 2, "an image that is whole looks up what it names"
    files = disk.files
    flips = random.Random(1)
    for path, content in files.items():
        places = {0, len(content) - 1, *(flips.randrange(len(content)) for _ in range(100))}
        for place in places:
            changed = bytearray(content)
            changed[place] ^= 1 << flips.randrange(8)
            broken, _ = on_disk(job, {**files, path: bytes(changed)})
            assert audited(broken) == ["refused"], (path, place)


def flip_everywhere(job: JobDirectory, flips: int, seed: int) -> dict[str, int]:
    """Flip one random bit after the other in a large image; each must be refused. How many, by kind of byte.

    Only the record or the block that a flipped byte belongs to is read again: the others were read before.
    """
    chance = random.Random(seed)
    numbers = np.random.default_rng(seed)
    data = [
        *(numbers.random(size // 8) for size in (3 * MIB, 70_000, 200_000, 65_536)),
        np.sin(np.arange(MIB // 2) * 1e-4),
        *(np.sin(np.arange(20_000) * 1e-4 + n) for n in range(20)),
        *(numbers.random(20_000 + n) for n in range(20)),
        b"text " * 100_000,
    ]
    simulated, disk = on_disk(job)
    control = commit(simulated, 1, data, threads=0)
    entry = control.ranks[0]
    manifest = load_manifest(simulated, entry)
    assert manifest.packs[0].align == ALIGN and len({block.codec for block in manifest.blocks}) == 3
    pack = next(path for path in disk.files if path.endswith(".pack"))
    records = [path for path in disk.files if not path.endswith(".pack")]
    contents = {path: node.content for path, node in disk.nodes.items()}
    owner = np.zeros(len(contents[pack]), np.int32)
    for number, block in enumerate(manifest.blocks):
        owner[block.offset : block.offset + -(-block.stored // ALIGN) * ALIGN] = number
    source = BlockSource(simulated, manifest, disk)
    codec, staging, plain = Codec(), Staging(), Staging()
    counts = {"block": 0, "padding": 0, "record": 0}
    for number in range(flips):
        path = chance.choice(records) if number % 10 == 0 else pack
        content = contents[path]
        place, bit = chance.randrange(len(content)), 1 << chance.randrange(8)
        content[place] ^= bit
        kind = "record"
        with pytest.raises(Damaged):
            if path == pack:
                block = manifest.blocks[owner[place]]
                kind = "block" if place < block.offset + block.stored else "padding"
                target = Target(plain.take(block.length), aligned=bool(number % 2))
                source.read(block, target, codec, staging)
            else:
                load_manifest(simulated, load_control(simulated, 1).ranks[0])
        counts[kind] += 1
        content[place] ^= bit
    for block in manifest.blocks:
        source.read(block, Target(plain.take(block.length)), codec, staging)
    source.close()
    return counts


def test_random_flips_in_a_large_image(job: JobDirectory) -> None:
    counts = flip_everywhere(job, 2_000, seed := random.randrange(1 << 32))
    print(f"{sum(counts.values())} random flips in a large image, all refused: {counts} (seed {seed})")
    assert min(counts.values()) > 5


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_a_million_random_flips_in_large_images(job: JobDirectory, soaked: Callable[..., None]) -> None:
    counts = flip_everywhere(job, 1_000_000, seed := random.randrange(1 << 32))
    print(f"{sum(counts.values())} random flips in a large image, all refused: {counts} (seed {seed})")
    assert sum(counts.values()) == 1_000_000
    soaked("flips", 1_000_000, **counts)


@pytest.mark.parametrize("threads", [0, 4])
def test_a_flip_is_seen_through_the_real_disk_too(job: JobDirectory, threads: int) -> None:
    """O_DIRECT, in place and staged, by several threads."""
    data = [np.random.default_rng(1).random(MIB), np.sin(np.arange(MIB) * 1e-4), b"text " * MIB]
    commit(job, 1, data)
    (pack,) = Path(job.rank_directory(0)).glob("*.pack")
    manifest = load_manifest(job, load_control(job, 1).ranks[0])
    for block in manifest.blocks:
        with open(pack, "r+b") as file:
            for place in (block.offset, block.offset + block.stored - 1):
                file.seek(place)
                (byte,) = file.read(1)
                file.seek(place)
                file.write(bytes([byte ^ 16]))
                file.flush()
                reader = ImageReader(job, epoch=1, rank=0, threads=threads)
                with pytest.raises(BlockDamaged, match=f"at byte {block.offset} was changed"):
                    reader.stream()
                file.seek(place)
                file.write(bytes([byte]))
    ImageReader(job, epoch=1, rank=0, threads=threads).stream()

"""Codec: every block comes back; what does not shrink is stored as it is; damage never gives other bytes
silently."""

from __future__ import annotations

import os

import numpy as np
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from ckpt.store import BlockDamaged
from ckpt.store.images._shuffle import shuffle, unshuffle
from ckpt.store.images.codec import LEVEL, RAW, SHUFFLED, WORTH_SHUFFLED, ZSTD, Codec


def roundtrip(block: bytes, item: int) -> str:
    codec = Codec()
    packed = codec.pack(memoryview(block), item)
    target = bytearray(len(block))
    codec.unpack(packed.codec, packed.item, packed.data, memoryview(target))
    assert bytes(target) == block
    return packed.codec


@given(st.binary(max_size=2000), st.integers(1, 5), st.integers(0, 80))
@settings(deadline=None)
def test_every_block_comes_back(piece: bytes, repeat: int, item: int) -> None:
    roundtrip(piece * repeat, item)


def test_random_bytes_are_stored_raw_and_uncopied() -> None:
    block = memoryview(os.urandom(1 << 20))
    packed = Codec().pack(block, 8)
    assert packed.codec == RAW and packed.data is block


def test_text_is_compressed() -> None:
    assert roundtrip(b"the quick brown fox jumps over the lazy dog. " * 4000, 1) == ZSTD


def test_smooth_numbers_are_shuffled() -> None:
    smooth = np.sin(np.arange(100_000) * 1e-4)
    assert roundtrip(smooth.tobytes(), 8) == SHUFFLED


def test_numbers_with_a_mantissa_of_noise_are_stored_raw() -> None:
    """Shuffling would save their exponents, an eighth, for more time than the disk needs for the whole."""
    noise = np.random.default_rng(1).random(1 << 19)
    planes = bytearray(noise.nbytes)
    shuffle(memoryview(noise).cast("B"), 8, planes)
    saved = 1 - len(zstandard.ZstdCompressor(level=LEVEL).compress(planes)) / noise.nbytes
    assert 0.05 < saved < 1 - WORTH_SHUFFLED
    assert roundtrip(noise.tobytes(), 8) == RAW


def test_numbers_that_plain_zstd_serves_as_well_are_not_shuffled() -> None:
    assert roundtrip(np.tile(np.random.default_rng(1).random(100), 3000).tobytes(), 8) == ZSTD


@pytest.mark.parametrize("item", [1, 8])
def test_a_sample_that_misjudges_the_block_costs_no_space(item: int) -> None:
    """Compressible at the places that are looked at only: stored raw after all."""
    block = bytearray(os.urandom(1 << 20))
    for start in (0, (1 << 19) - 4096, (1 << 20) - 8192):
        block[start : start + 16384] = np.arange(2048).tobytes()[: len(block) - start]
    packed = Codec().pack(memoryview(block), item)
    assert packed.codec == RAW and len(packed.data) == len(block)


@pytest.mark.parametrize("item", [0, -1, 3, 65, 1 << 30])
def test_an_item_size_of_no_use_is_ignored(item: int) -> None:
    packed = Codec().pack(memoryview(bytes(100_000)), item)
    assert (packed.codec, packed.item) == (ZSTD, 1)


def test_counters_are_shuffled_to_almost_nothing() -> None:
    packed = Codec().pack(memoryview(np.arange(1 << 18)).cast("B"), 8)
    assert packed.codec == SHUFFLED and len(packed.data) < 1 << 17


def test_a_compressible_head_on_a_random_rest_is_not_misjudged_by_much() -> None:
    block = bytes(1 << 18) + os.urandom(3 << 18)
    packed = Codec().pack(memoryview(block), 1)
    assert len(packed.data) <= len(block)
    roundtrip(block, 1)


def dumb_shuffle(block: bytes, item: int) -> bytes:
    return b"".join(block[k::item] for k in range(item))


@pytest.mark.parametrize("item", [1, 2, 3, 4, 7, 8, 9, 12, 16, 24, 63, 64])
@pytest.mark.parametrize("count", [0, 1, 7, 63, 64, 65, 128, 1000])
def test_shuffling_is_what_the_dumb_one_does_and_comes_back(item: int, count: int) -> None:
    block = os.urandom(item * count)
    planes, target = bytearray(len(block)), bytearray(len(block))
    shuffle(block, item, planes)
    assert bytes(planes) == dumb_shuffle(block, item)
    unshuffle(planes, item, target)
    assert bytes(target) == block


def test_shuffling_writes_nothing_beside_its_target() -> None:
    room = bytearray(b"x" * 1000)
    shuffle(bytes(800), 8, memoryview(room)[100:900])
    unshuffle(bytes(800), 8, memoryview(room)[100:900])
    assert room == b"x" * 100 + bytes(800) + b"x" * 100


@pytest.mark.parametrize(
    ("length", "item", "room"), [(8, 3, 8), (8, 0, 8), (8, -1, 8), (8, 8, 7), (8, 8, 16)]
)
def test_shuffling_refuses_what_does_not_fit(length: int, item: int, room: int) -> None:
    for function in (shuffle, unshuffle):
        with pytest.raises(ValueError, match="multiple of the item size"):
            function(bytes(length), item, bytearray(room))


def test_shuffling_needs_writable_memory() -> None:
    for function in (shuffle, unshuffle):
        with pytest.raises((TypeError, BufferError)):
            function(bytes(8), 8, bytes(8))  # type: ignore[arg-type]


def test_a_block_of_another_length_than_promised_is_damaged() -> None:
    codec = Codec()
    packed = codec.pack(memoryview(b"ab" * 10_000), 1)
    assert packed.codec == ZSTD
    for wrong in (0, 1, 19_999, 20_001):
        with pytest.raises(BlockDamaged):
            codec.unpack(ZSTD, 1, packed.data, memoryview(bytearray(wrong)))
    for cut in (b"", bytes(packed.data)[:-1], b"nonsense"):
        with pytest.raises(BlockDamaged):
            codec.unpack(ZSTD, 1, cut, memoryview(bytearray(20_000)))
    with pytest.raises(BlockDamaged):
        codec.unpack(RAW, 1, b"abc", memoryview(bytearray(4)))


@pytest.mark.parametrize(("codec", "item"), [("lzma", 1), (SHUFFLED, 0), (SHUFFLED, 3)])
def test_an_unknown_codec_is_damaged(codec: str, item: int) -> None:
    with pytest.raises(BlockDamaged, match="unknown codec"):
        Codec().unpack(codec, item, b"abc", memoryview(bytearray(4)))

"""Codec: every block comes back; what does not shrink is stored as it is; damage never gives other bytes
silently."""

from __future__ import annotations

import os
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ckpt.store import BlockDamaged
from ckpt.store.codec import RAW, SHUFFLED, ZSTD, Codec, shuffle, unshuffle


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


def test_counters_are_shuffled_to_almost_nothing() -> None:
    packed = Codec().pack(memoryview(np.arange(1 << 18)).cast("B"), 8)
    assert packed.codec == SHUFFLED and len(packed.data) < 1 << 17


def test_a_compressible_head_on_a_random_rest_is_not_misjudged_by_much() -> None:
    block = bytes(1 << 18) + os.urandom(3 << 18)
    packed = Codec().pack(memoryview(block), 1)
    assert len(packed.data) <= len(block)
    roundtrip(block, 1)


@pytest.mark.parametrize("item", [2, 3, 8, 24])
def test_shuffling_is_the_same_without_numpy(item: int, monkeypatch: pytest.MonkeyPatch) -> None:
    block = os.urandom(item * 1000)
    planes = memoryview(bytearray(len(block)))
    fast = bytes(shuffle(memoryview(block), item, planes))
    monkeypatch.setitem(sys.modules, "numpy", None)
    planes[:] = bytes(len(block))
    assert bytes(shuffle(memoryview(block), item, planes)) == fast
    target = bytearray(len(block))
    unshuffle(fast, item, memoryview(target))
    assert bytes(target) == block


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

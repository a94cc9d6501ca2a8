"""Decompressors of raw deflate streams between two blocks: copies that go on alike. Any other place is refused."""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterator

import pytest

from ckpt.image.lowlevel.inflating import make_inflating, window_of
from tests.unit.ckpt.image.support import copy_of

WINDOW = 1 << 15


def messages(chance: random.Random) -> Iterator[bytes]:
    for _ in range(chance.randrange(6)):
        yield bytes(chance.choices(b"abcdefgh \n", k=chance.choice([0, 1, 3, 5, 300, 20_000, 40_000])))


@pytest.mark.parametrize("seed", range(12))
def test_a_copy_between_two_messages_goes_on_alike(seed: int) -> None:
    chance = random.Random(seed)
    bits = chance.choice([9, 12, 15, 15])
    compressor = zlib.compressobj(chance.choice([0, 1, 6, 9]), zlib.DEFLATED, -bits)
    original, seen = zlib.decompressobj(-bits), b""
    for message in messages(chance):
        packed = compressor.compress(message) + compressor.flush(zlib.Z_SYNC_FLUSH)
        assert original.decompress(packed) == message
        seen += message
    window = window_of(original)
    assert window is not None
    assert seen.endswith(window)
    assert len(window) >= min(len(seen), 1 << bits)
    copy = copy_of(original)
    for message in [seen[-chance.randrange(1, 30_000) :] + b"new", *messages(chance)]:
        packed = compressor.compress(message) + compressor.flush(zlib.Z_SYNC_FLUSH)
        assert original.decompress(packed) == copy.decompress(packed) == message
    packed = compressor.compress(b"last") + compressor.flush()
    assert original.decompress(packed + b"rest") == copy.decompress(packed + b"rest") == b"last"
    assert copy.eof and copy.unused_data == b"rest"


def test_a_whole_window() -> None:
    compressor = zlib.compressobj(6, zlib.DEFLATED, -15)
    seen = random.Random(3).randbytes(WINDOW + 7)
    original = zlib.decompressobj(-15)
    original.decompress(compressor.compress(seen) + compressor.flush(zlib.Z_SYNC_FLUSH))
    assert window_of(original) == seen[-WINDOW:]
    packed = compressor.compress(seen[7:40]) + compressor.flush(zlib.Z_SYNC_FLUSH)
    assert make_inflating(seen[-WINDOW:]).decompress(packed) == seen[7:40]


@pytest.mark.parametrize("bits", [-15, 15, 31])
@pytest.mark.parametrize("level, strategy", [(6, 0), (0, 0), (9, zlib.Z_FIXED), (6, zlib.Z_HUFFMAN_ONLY)])
def test_at_every_byte_of_a_stream(bits: int, level: int, strategy: int) -> None:
    """What is said to be between two blocks goes on alike; streams with a checksum never are."""
    chance = random.Random(level)
    compressor = zlib.compressobj(level, zlib.DEFLATED, bits, 8, strategy)
    stream = b""
    for flush in (zlib.Z_SYNC_FLUSH, zlib.Z_PARTIAL_FLUSH, zlib.Z_BLOCK, zlib.Z_SYNC_FLUSH):
        stream += compressor.compress(bytes(chance.choices(b"abcd\0", k=60)) + bytes(5)) + compressor.flush(
            flush
        )
    stream += compressor.flush()
    found = 0
    for cut in range(len(stream)):
        original = zlib.decompressobj(bits)
        original.decompress(stream[:cut])
        window = window_of(original)
        if window is not None:
            copy, found = make_inflating(window), found + 1
            assert copy.decompress(stream[cut:]) == original.decompress(stream[cut:])
            assert copy.eof and original.eof
    assert (found >= 3) == (bits < 0)


def test_what_waits_behind_a_limit_is_refused() -> None:
    original = zlib.decompressobj(-15)
    compressor = zlib.compressobj(6, zlib.DEFLATED, -15)
    original.decompress(compressor.compress(bytes(500)) + compressor.flush(zlib.Z_SYNC_FLUSH), 10)
    assert window_of(original) is None

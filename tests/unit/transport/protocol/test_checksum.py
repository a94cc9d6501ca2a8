"""The checksum of frames: by whichever way this processor takes, it is zlib's crc32."""

from __future__ import annotations

import random
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckpt.transport.protocol.batches import crc32
from tests.seeds import seed_of_the_commit

POLYNOMIAL = 0x104C11DB7
FACTORS = {512: (0x154442BD4, 0x1C6E41596), 128: (0x1751997D0, 0x0CCAA009E)}
"""As in checksum.c: OVER_512 and OVER_128, first the lower half."""


def _factor(power: int) -> int:
    """x^power modulo the polynomial, its 33 bits reversed: as a carry-less product of reversed numbers wants it."""
    rest = 1
    for _ in range(power):
        rest <<= 1
        if rest >> 32:
            rest ^= POLYNOMIAL
    return int(f"{rest:033b}"[::-1], 2)


@pytest.mark.parametrize("bits", FACTORS)
def test_the_factors_of_folding_are_powers_of_x(bits: int) -> None:
    assert FACTORS[bits] == (_factor(bits + 32), _factor(bits - 32))


@given(st.binary(max_size=400))
def test_it_is_that_of_zlib(data: bytes) -> None:
    assert crc32(data) == zlib.crc32(data)


@pytest.mark.parametrize("offset", range(0, 17, 4))
def test_lengths_and_places_round_the_steps_of_each_way(offset: int) -> None:
    data = memoryview(random.Random(seed_of_the_commit()).randbytes(1_200))
    for length in (*range(150), *range(500, 580), 1_000, 1_024, 1_111):
        part = data[offset : offset + length]
        assert crc32(part) == zlib.crc32(part), length


@pytest.mark.parametrize("length", [72, 4_096, 100_000])
def test_each_bit_counts(length: int) -> None:
    data = bytearray(length)
    for bit in random.Random(length).sample(range(8 * length), 200):
        data[bit // 8] ^= 1 << bit % 8
        assert crc32(data) == zlib.crc32(data)


@pytest.mark.parametrize("wrong", ["text", None, 7, memoryview(b"12345678")[::2]])
def test_what_is_no_run_of_bytes_is_refused(wrong: object) -> None:
    with pytest.raises((TypeError, BufferError)):
        crc32(wrong)  # type: ignore[arg-type]

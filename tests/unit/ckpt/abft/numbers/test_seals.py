"""Digests of arrays: any flipped bit is found."""

from __future__ import annotations

import numpy as np
import pytest

from ckpt.abft.numbers.seals import Spoilt, is_whole, opened, room, seal, sealed


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 64, 1000])
def test_what_is_sealed_is_opened_and_any_flipped_bit_in_it_is_found(size: int) -> None:
    memory = np.random.default_rng(size).integers(0, 256, size, dtype=np.uint8)
    travels = sealed(memory)
    assert np.array_equal(opened(travels), memory)
    assert not size or np.shares_memory(opened(travels), travels)
    for bit in range(0, travels.size * 8, max(1, size // 50)):
        travels[bit // 8] ^= np.uint8(1 << bit % 8)
        with pytest.raises(Spoilt, match=f"{size} bytes"):
            opened(travels)
        travels[bit // 8] ^= np.uint8(1 << bit % 8)
    assert is_whole(travels)


def test_words_that_overflow_are_added_up_all_the_same() -> None:
    travels = room(24)
    travels[:] = 255
    seal(travels)
    assert is_whole(travels)

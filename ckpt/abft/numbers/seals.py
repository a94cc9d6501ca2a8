"""Digests of arrays that travel or wait: a bit that flips in them is found before anything is made of it.

A digest is the sum of the array's 64-bit words: any one flipped bit changes it, and it is as fast as memory is read.

    `sealed`      a copy of an array with its digest behind it, to be sent; `opened`: the array again
    `seal`        the digest of what is in memory that has room for it, which is sent more than once; `is_whole`: it still is
    `digest`      of an array that stays, to be compared after its last use

Pure.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Spoilt", "digest", "is_whole", "opened", "room", "seal", "sealed"]

Array = npt.NDArray[Any]

_BYTES = 8
"""What a digest takes behind an array."""


class Spoilt(Exception):
    """An array is not what was sent."""


def digest(memory: Array) -> np.uint64:
    """Of contiguous bytes."""
    words = memory.size // 8 * 8
    total = np.add.reduce(memory[:words].view(np.uint64))
    return np.uint64(total + np.add.reduce(memory[words:], dtype=np.uint64))


def room(size: int) -> Array:
    """Memory for so many bytes and their digest."""
    return np.empty(size + _BYTES, dtype=np.uint8)


def seal(memory: Array) -> None:
    """Put the digest behind what is in this memory."""
    memory[-_BYTES:] = np.frombuffer(digest(memory[:-_BYTES]).tobytes(), dtype=np.uint8)


def is_whole(memory: Array) -> bool:
    """Is in this memory what was sealed there?"""
    return digest(memory[:-_BYTES]).tobytes() == memory[-_BYTES:].tobytes()


def sealed(memory: Array) -> Array:
    """A copy of these bytes, with their digest behind them."""
    found = room(memory.size)
    found[:-_BYTES] = memory
    seal(found)
    return found


def opened(memory: Array) -> Array:
    """The bytes that were sealed, without a copy. Raises Spoilt."""
    if not is_whole(memory):
        raise Spoilt(f"an array of {memory.size - _BYTES} bytes is not what was sent")
    return memory[:-_BYTES]

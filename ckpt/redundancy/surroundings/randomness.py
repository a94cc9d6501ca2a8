"""Random numbers without a seed: the same in all replicas of a rank, and unknown outside, since they follow from the job's
secret and the rank. (driver)

    os.urandom      and getrandom; so uuid4, secrets, random.SystemRandom, and numpy generators without a seed
    random          generators without a seed, the module's own too
    tempfile        names of new files: from numbers of their own, whose count a copy is told, since the library keeps none
                    of its own state in an image

Not here: the hash seed, which is the job's.
"""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Callable
from hashlib import blake2b
from typing import Any

from ckpt.layer import name_temporary_files
from ckpt.redundancy.surroundings.clocks import named

__all__ = ["RANDOM", "Randomness", "install"]


class Randomness:
    """Random bytes that follow from a key: BLAKE2b over a counter. The same in all replicas, unknown outside."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._count = 0

    @property
    def count(self) -> int:
        """So often it has been used; set, it goes on from there."""
        return self._count

    @count.setter
    def count(self, count: int) -> None:
        self._count = count

    def __call__(self, size: int, /) -> bytes:
        """Like `os.urandom`. Raises ValueError for a negative size."""
        if size < 0:
            raise ValueError("negative argument not allowed")
        found = bytearray()
        while len(found) < size:
            self._count += 1
            found += blake2b(self._count.to_bytes(16, "little"), key=self._key).digest()
        return bytes(found[:size])


class Names:
    """Endless names for temporary files, as those of `tempfile`."""

    def __init__(self, numbers: Randomness) -> None:
        self.numbers = numbers

    def __iter__(self) -> Names:
        return self

    def __next__(self) -> str:
        return "".join(_CHARACTERS[byte % len(_CHARACTERS)] for byte in self.numbers(8))


_CHARACTERS = "abcdefghijklmnopqrstuvwxyz0123456789_"


class _Random:
    """Of this process."""

    urandom: Callable[[int], bytes] = os.urandom
    names: Randomness | None = None

    def state(self) -> tuple[int, int]:
        """For an image: how often the generators have been used."""
        return getattr(self.urandom, "count", 0), getattr(self.names, "count", 0)

    def go_on(self, state: tuple[int, int]) -> None:
        """This process is a copy of one that had this `state`."""
        for generator, count in zip((self.urandom, self.names), state, strict=True):
            if isinstance(generator, Randomness):
                generator.count = count


RANDOM = _Random()


def _urandom(size: int, /) -> bytes:
    return RANDOM.urandom(size)


def _getrandom(size: int, flags: int = 0) -> bytes:
    return RANDOM.urandom(size)


_URANDOM = named(globals(), _urandom, "os", "urandom")
_GETRANDOM = named(globals(), _getrandom, "os", "getrandom")
_genuine_seed: Any = random.Random.seed


def _seed(self: random.Random, a: Any = None, version: int = 2) -> None:
    _genuine_seed(self, int.from_bytes(RANDOM.urandom(32), "little") if a is None else a, version)


def _getrandbits(self: random.Random, k: int) -> int:
    if k < 0:
        raise ValueError("number of bits must be non-negative")
    return int.from_bytes(RANDOM.urandom((k + 7) // 8), "big") >> -k % 8


def _random(self: random.Random) -> float:
    return _getrandbits(self, 53) * 2.0**-53


def _randbytes(self: random.Random, n: int) -> bytes:
    return RANDOM.urandom(n)


def install(secret: bytes, rank: int) -> None:
    """`secret`: what all replicas know, and nobody else; at least 32 bytes, of which the last 64 count.

    The module `random` binds the system's function when it is imported: so its classes get methods of their own."""
    generator: Any = random
    key = blake2b(rank.to_bytes(8, "little"), key=secret[-64:]).digest()
    RANDOM.urandom = Randomness(key)
    RANDOM.names = Randomness(blake2b(b"names", key=key).digest())
    name_temporary_files(Names(RANDOM.names))
    system: Any = sys.modules["os"]
    system.urandom, system.getrandom = _URANDOM, _GETRANDOM
    generator.Random.seed = _seed  # without a value, its own would take bytes of the system
    generator.SystemRandom.getrandbits = _getrandbits
    generator.SystemRandom.random = _random
    generator.SystemRandom.randbytes = _randbytes
    generator.seed = random.random.__self__.seed  # type: ignore[attr-defined]
    generator.seed()

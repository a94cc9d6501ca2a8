"""The message of a child whose image has failed, to its rank: one number, in memory that both have.

The child has no other way to the rank; what it reports to the controller comes back as a text for people.

Not here: what the number means (:func:`ckpt.image.learn`).
"""

from __future__ import annotations

import mmap

__all__ = ["Lesson"]

_BYTES = 8


class Lesson:
    """The number, 0 until it is told. Made before the fork."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, _BYTES)  # MAP_SHARED

    def tell(self, number: int) -> None:
        """In the child, or in the rank itself where it writes without fork."""
        self._memory[:] = number.to_bytes(_BYTES, "little")

    def take(self) -> int:
        """In the rank: the number, which is then 0."""
        number = int.from_bytes(self._memory[:], "little")
        if number:
            self.tell(0)
        return number

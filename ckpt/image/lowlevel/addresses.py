"""Numbers that are the address of an object (what ``id()`` returned), which will be elsewhere after a restart.

Programs and libraries keep tables by ``id(obj)``: what has been visited, results by node. In an image such a number is a
persistent id that carries the object itself, ``("address", obj)``; at load it becomes ``id(obj)`` of the new process. It may
stand anywhere: as key, member, entry, attribute, in a variable, within tuples.

Which numbers?
    Those that look like one (:mod:`ckpt.image.lowlevel._addresses`), and are the address of an object that the program can
    reach; what a program remembers of an object that has gone, stays. Known from one walk through everything, which is made
    when the first number is met that looks like an address; most programs have none.

    A number may be the address of an object by accident. How often that is to be expected is known from how many
    others look like addresses and are none: random ones have the chance of *objects* in 2⁴⁴ each. Unless
    addresses are a million times more than that, numbers stay numbers.

Not here: texts and hashes that were made from addresses; they stay what they are.
"""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["ADDRESSES", "Addresses", "Walk"]

ADDRESSES = range(1 << 32, 1 << 47, 8)
"""Numbers that look like one: as in addresses.h."""

_PLACES = 2**44  # of which a number that looks like an address names one
_LEAST_ODDS = 1_000_000

Walk = tuple[dict[int, object], int, int]
"""Numbers with the objects they are the addresses of; how many objects there are; how many numbers look like addresses."""


class Addresses:
    """The persistent ids of numbers. ``walk``: see :func:`ckpt.image.lowlevel._addresses.numbers`; called at most once."""

    def __init__(self, walk: Callable[[], Walk]) -> None:
        self._walk = walk
        self._objects: dict[int, object] | None = None

    def __call__(self, number: int) -> tuple[str, object] | None:
        if self._objects is None:
            self._objects = believed(*self._walk())
        return ("address", self._objects[number]) if number in self._objects else None


def believed(found: dict[int, object], objects: int, numbers: int) -> dict[int, object]:
    """``found``, if it is no accident: ``numbers`` look like addresses, and there are so many ``objects``."""
    by_accident = (numbers - len(found)) * objects / _PLACES
    return found if len(found) >= by_accident * _LEAST_ODDS else {}

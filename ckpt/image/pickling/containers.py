"""Sets and dictionaries that pickle would bring back in another order, or could not bring back at all.

Three problems
    - The order of a set depends on all insertions and removals in its life; adding its members one by one
      gives another one, and a program that iterates over it, or pops from it, would go another way.
    - A key whose ``__hash__`` is the program's may be part of a cycle (a node in the set of neighbours of its
      neighbour): while loading it is asked for its hash before it has its attributes.

    - A ``nan`` is found in a dictionary or list by its identity only, which pickle does not keep for floats.

So these containers and values (:class:`ckpt.image.lowlevel._lookup.Finder` recognises them; all others are left to the C
pickler) are saved as a persistent id that carries their content: ``("fill", number, kind, content)`` where they are met
first, ``("again", number, kind)`` later.

At load (:class:`Filler`)
    A container is filled as soon as its content is there, because constructors that are called while loading
    may read it. If that fails, or if the hashes have changed when everything has been loaded, it is filled
    once more at the end. Inner containers come first.
"""

from __future__ import annotations

import struct
from typing import Any

from ckpt.image.lowlevel import _lookup

__all__ = ["Content", "Filler"]


class Content:
    """The saving side: numbers the special containers of one image and takes them apart."""

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}
        self._kept: list[Any] = []  # so that no address is used twice

    def __call__(self, obj: Any) -> tuple[Any, ...]:
        kind = type(obj).__name__
        number = self._numbers.get(id(obj))
        if number is not None:
            return ("again", number, kind)
        number = self._numbers[id(obj)] = len(self._kept)
        self._kept.append(obj)
        if kind == "float":
            return ("fill", number, kind, struct.pack("<d", obj))
        content: Any = list(obj.items()) if kind == "dict" else _lookup.layout(obj)
        return ("fill", number, kind, content)


class Filler:
    """The loading side."""

    def __init__(self) -> None:
        self._made: dict[int, Any] = {}
        self._filled: list[tuple[Any, Any, list[int] | None]] = []

    def load(self, pid: tuple[Any, ...]) -> Any:
        number, kind = pid[1], pid[2]
        if kind == "float":
            if pid[0] == "fill":
                (self._made[number],) = struct.unpack("<d", pid[3])
            return self._made[number]
        made = self._made.get(number)
        if made is None:
            made = {} if kind == "dict" else set() if kind == "set" else _lookup.new_frozenset()
            self._made[number] = made
        if pid[0] == "fill":
            content = pid[3]
            try:
                hashes = _hashes(content)
                _fill(made, content)
            except Exception:  # a member that is not complete yet, whatever it says about that: see finish()
                hashes = None
            self._filled.append((made, content, hashes))
        return made

    def finish(self) -> list[Any]:
        """Everything so far is loaded: what could not be filled, or was filled too early, is filled now, and returned."""
        again = []
        for made, content, hashes in self._filled:
            if hashes is None or hashes != _hashes(content):
                _fill(made, content)
                again.append(made)
        self._filled.clear()
        return again


def _hashes(content: Any) -> list[int]:
    if isinstance(content, list):
        return [hash(key) for key, _ in content]
    return [hash(member) for member in content[0]]


def _fill(made: Any, content: Any) -> None:
    if isinstance(content, list):
        made.clear()
        made.update(content)
    else:
        _lookup.restore(made, *content)

"""Sets, dictionaries and floats that pickle would restore in another order, as other objects, or not at all.

Four problems
    - The order of a set depends on all insertions and removals in its life. Adding the members one by one gives another
      order, and a program that iterates over the set, or pops from it, would compute something else.
    - A key whose class defines ``__hash__`` in the program may be part of a cycle (a node in the set of neighbours of its
      neighbour). Then pickle asks the key for its hash before the key has its attributes.
    - A weak reference hashes as its referent does, and keeps that hash: also that of a referent whose class has no
      ``__hash__`` yet.
    - A ``nan`` is found in a dictionary or list by its identity only, and pickle does not keep the identity of floats.

So such containers and floats are saved as a persistent id that carries their content: ``("fill", number, kind, content)`` at
the first occurrence, ``("again", number, kind)`` later. :class:`ckpt.image.lowlevel._lookup.Finder` recognises them; all
other containers are left to the C pickler. At load (:class:`Filler`) they are filled by :mod:`ckpt.image.lowlevel.keyed`.

Not here: instances of subclasses of these types, and of ``OrderedDict`` and ``defaultdict``: their reducers see to that
(:mod:`ckpt.image.reducers.raw_instances`).
"""

from __future__ import annotations

import struct
from typing import Any

from ckpt.image.lowlevel import _lookup, keyed

__all__ = ["Content", "Filler"]

_BASES: dict[str, type] = {each.__name__: each for each in (dict, set, frozenset)}


class Content:
    """The saving side: gives each special container or float of one image a number. Calling it with an object returns the
    persistent id.
    """

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}
        self._saved: list[Any] = []  # keeps the objects alive, so that no address is used twice

    def at(self, address: int) -> tuple[Any] | None:
        """The object at this address among those that have been given a number, as a 1-tuple."""
        number = self._numbers.get(address)
        return None if number is None else (self._saved[number],)

    def __call__(self, obj: Any) -> tuple[Any, ...]:
        type_name = type(obj).__name__
        number = self._numbers.get(id(obj))
        if number is not None:
            return ("again", number, type_name)
        number = self._numbers[id(obj)] = len(self._saved)
        self._saved.append(obj)
        if type_name == "float":
            return ("fill", number, type_name, struct.pack("<d", obj))
        return ("fill", number, type_name, keyed.content_of(obj, type(obj)))


class Filler:
    """The loading side: makes and fills the objects of one image."""

    def __init__(self) -> None:
        self._made: dict[int, Any] = {}

    def load(self, pid: tuple[Any, ...]) -> Any:
        """The object of a persistent id; see :meth:`pickle.Unpickler.persistent_load`."""
        number, type_name = pid[1], pid[2]
        if type_name == "float":
            if pid[0] == "fill":
                (self._made[number],) = struct.unpack("<d", pid[3])
            return self._made[number]
        made = self._made.get(number)
        if made is None:
            made = _lookup.new_frozenset() if type_name == "frozenset" else _BASES[type_name]()
            self._made[number] = made
        if pid[0] == "fill":
            keyed.fill(made, _BASES[type_name], pid[3])
        return made

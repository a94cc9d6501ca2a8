"""Numbers that stand for addresses of memory where several processes are one rank.

A displacement in a dynamic window is an address at the target, which the target's program tells the others. Where several
processes compute that program (`--redundancy`), each has its memory elsewhere. So `MPI.Get_address` gives numbers there that
follow from the program's calls alone, and that all of these processes therefore give alike:

    new       memory whose owner is not known gets the next free numbers, one for each of its bytes and some between
    known     a part of it, or a view of it, has the numbers of these bytes
    gone      the owner is not used any more: its numbers are never given again

The owner of memory is the object at the end of the chain of views. It is known by a weak reference, where its class has
such; else it is kept. All of this is part of the image. No process has memory at these addresses (they begin at 2^44, where
Linux maps nothing by itself), so a number and an address are never taken for each other.

Not here: who asks (ckpt/mpi/rma/window.py), attached memory (ckpt/mpi/rma/exposed.py).
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from typing import Any

from ckpt.mpi.datatypes.memory import TOLD_ADDRESSES, address_of

PAGE_BYTES = 4096
"""A number is aligned to so much, and so much is left free behind each piece of memory."""


class Numbers:
    """The numbers of one rank. Every method needs the engine's lock."""

    __slots__ = ("_next", "_owners")

    def __init__(self) -> None:
        self._next = TOLD_ADDRESSES.start
        self._owners: list[tuple[Callable[[], Any], int, int]] = []
        """What gives the owner, its size in bytes, the number of its first byte."""

    def __getstate__(self) -> tuple[int, list[tuple[Any, int, int]]]:
        living = [(owner(), size, number) for owner, size, number in self._owners]
        return self._next, [each for each in living if each[0] is not None]

    def __setstate__(self, state: tuple[int, list[tuple[Any, int, int]]]) -> None:
        self._next, owners = state
        self._owners = [(_reference(owner), size, number) for owner, size, number in owners]

    def of(self, location: Any) -> int:
        """The number of the first byte of a buffer; 0 for an empty one."""
        owner, size, offset = _owner(location)
        if not size:
            return 0
        self._owners = [each for each in self._owners if each[0]() is not None]
        for known, _, number in self._owners:
            if known() is owner:
                return number + offset
        number = self._next
        self._next += (size // PAGE_BYTES + 2) * PAGE_BYTES
        self._owners.append((_reference(owner), size, number))
        return number + offset

    def find(self, number: int, nbytes: int) -> tuple[Any, int] | None:
        """(the owner of so many bytes, their place in it); None: nobody has them."""
        for known, size, first in self._owners:
            owner = known()
            if owner is not None and first <= number and number + nbytes <= first + size:
                return owner, number - first
        return None


def _reference(owner: Any) -> Callable[[], Any]:
    try:
        return weakref.ref(owner)
    except TypeError:
        return lambda: owner


def _owner(location: Any) -> tuple[Any, int, int]:
    """(the owner of the memory, its size in bytes, the place of `location` in it)."""
    at = address_of(location)
    owner, size, offset = location, memoryview(location).nbytes, 0
    while (below := _below(owner)) is not None:
        try:
            below_bytes, below_at = memoryview(below).nbytes, address_of(below)
        except (TypeError, ValueError, BufferError):
            break  # it has the memory, and does not show it
        if not below_at <= at < below_at + below_bytes:
            break
        owner, size, offset = below, below_bytes, at - below_at
    return owner, size if at else 0, offset


def _below(view: Any) -> Any:
    """What this is a view of; None: nothing that is known."""
    if type(view) is memoryview:
        return view.obj
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(view, numpy.ndarray):
        return view.base
    return getattr(view, "_b_base_", None)  # ctypes

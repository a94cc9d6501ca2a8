"""The addresses of memory that a program was told, and where that memory is now.

A program keeps what `MPI.Get_address` tells it: in datatypes for `MPI.BOTTOM`, and as displacements in dynamic windows, also
at other ranks. Two things make such a number wrong: a restart brings the memory to other addresses; and where several
processes compute one rank (`--redundancy`), each has its memory elsewhere. So what was told is remembered with the memory:

    address    the present one is told. After a restart it still leads to the memory
    number     told instead where the answer must be the same in several processes: it follows from the program's calls
               alone. Numbers begin at 2^44, where Linux maps nothing by itself, so none of them is an address

What is told belongs to the owner of the memory, the object at the end of the chain of views: parts and views of it are told
what belongs to their place in it. The owner is known by a weak reference, or, where its class has none (bytearray), as long
as somebody else uses it. All of this is part of the image. A number is never told for other memory; an address may be, after
a restart.

Not here: who asks (ckpt/mpi/environment.py, ckpt/mpi/rma/window.py), attached memory (ckpt/mpi/rma/exposed.py).
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from typing import Any

from ckpt.mpi.base.constants import Marker
from ckpt.mpi.datatypes.memory import TOLD_NUMBERS, address_of

PAGE_BYTES = 4096
"""A number is aligned to so much, and so much is left free behind each piece of memory."""
KEPT_BYTES = 16 << 20
"""So much memory that nobody else uses may be kept."""

_Owner = tuple[Callable[[], Any], tuple[int, ...], int]
"""What gives the owner; what was told of its first byte: before the last restart, or as a number; and its address, if that
was told since (else 0)."""


class Addresses:
    """What one rank was told. `tell` needs the engine's lock."""

    __slots__ = ("_has_moved", "_kept_bytes", "_next", "_owners", "_purge_at")

    def __init__(self) -> None:
        self._next = TOLD_NUMBERS.start
        self._owners: dict[int, _Owner] = {}
        self._purge_at = 64
        self._kept_bytes = 0
        self._has_moved = False
        """What was told may be something else than the present address."""

    def __getstate__(self) -> tuple[int, list[tuple[Any, tuple[int, ...]]]]:
        living = [(known(), told, here) for known, told, here in self._owners.values()]
        return self._next, [
            (owner, (*told, here) if here and here not in told else told)
            for owner, told, here in living
            if owner is not None
        ]

    def __setstate__(self, state: tuple[int, list[tuple[Any, tuple[int, ...]]]]) -> None:
        self.__init__()  # type: ignore[misc]
        self._next, owners = state
        self._owners = {id(owner): (_reference(owner), told, 0) for owner, told in owners}
        self._has_moved = bool(owners)

    def tell(self, location: Any, *, is_number: bool = False) -> int:
        """The address of the first byte of a buffer, or a number; 0 for None and for an empty buffer; for a marker (BOTTOM)
        its number."""
        if location is None or isinstance(location, Marker):
            return address_of(location)
        owner, size, offset = _owner(location)
        if not size:
            return 0
        known, told, here = self._entry(owner, size)
        if is_number:
            first = next((each for each in told if each in TOLD_NUMBERS), 0) or self._new(size)
            told = told if first in told else (*told, first)
        else:
            first = here = address_of(owner)
        self._owners[id(owner)] = known, told, here
        return first + offset

    def find(self, address: int, nbytes: int, *, is_shared: bool = False) -> list[tuple[Any, int]]:
        """(an owner of so many bytes that were told to be at this address, their place in it): one, or several owners.
        is_shared: no address counts that this process alone has told."""
        found = []
        owners = list(self._owners.values()) if self._has_moved else []  # a copy: others may tell meanwhile
        for known, told, here in owners:
            owner = known()
            size = 0 if owner is None else memoryview(owner).nbytes
            counted = told if is_shared or not here or here in told else (*told, here)
            found += [
                (owner, address - first) for first in counted if first <= address <= first + size - nbytes
            ]
        return found

    def present(self, address: int, nbytes: int, *, is_shared: bool = False) -> set[int]:
        """The present addresses of so many bytes that were told to be at this address. is_shared: as of `find`."""
        return {address_of(owner) + place for owner, place in self.find(address, nbytes, is_shared=is_shared)}

    def _entry(self, owner: Any, size: int) -> _Owner:
        entry = self._owners.get(id(owner))
        if entry is not None and entry[0]() is owner:
            return entry
        known = _reference(owner)
        self._purge(size if type(known) is _Kept else 0)
        return known, (), 0

    def _new(self, size: int) -> int:
        number = self._next
        self._next += (size // PAGE_BYTES + 2) * PAGE_BYTES
        self._has_moved = True
        return number

    def _purge(self, kept_bytes: int) -> None:
        self._kept_bytes += kept_bytes
        if len(self._owners) >= self._purge_at or self._kept_bytes > KEPT_BYTES:
            self._kept_bytes = 0
            self._owners = {key: each for key, each in self._owners.items() if each[0]() is not None}
            self._purge_at = 2 * len(self._owners) + 64


class _Kept:
    """In place of a weak reference: the object, as long as somebody else refers to it; then None."""

    __slots__ = ("_owner",)

    def __init__(self, owner: Any) -> None:
        self._owner = owner

    def __call__(self) -> Any:
        return None if sys.getrefcount(self._owner) == 2 else self._owner  # the attribute, and the argument


def addresses_of(windows: Any) -> Addresses:
    """What the rank of these windows (ckpt/mpi/engine/windows.py) was told."""
    if windows.addresses is None:
        windows.addresses = Addresses()
    found: Addresses = windows.addresses
    return found


def tell(windows: Any, location: Any) -> int:
    """What the program is told as the address of a buffer."""
    return addresses_of(windows).tell(location, is_number=windows.tells_numbers)


def _reference(owner: Any) -> Callable[[], Any]:
    try:
        return weakref.ref(owner)
    except TypeError:
        return _Kept(owner)


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

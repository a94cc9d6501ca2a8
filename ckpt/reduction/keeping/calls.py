"""The calls of a rank that are under way, with the address of what it gave: for those that live if it is killed. (driver)

    note     a call begins: what it gives is an array that the program must not write to before the end
    keep     it has this key
    end      it has ended here

The table is a file of the host's memory. Its head names the process that keeps the rank's memory (`_keeper.c`), and a badge:
random bytes at an address there, since numbers of processes are used again. An entry has its address and length, and a
description, which is the caller's to know. It counts once its first word is 1, which is written last. The table holds on to
the arrays of its entries, so that their memory is not used for anything else.

A program that ends by itself clears the table: what others need of it they get by message. Nothing here raises for a reason
of the system's: without the process, or without room, there is no table, and what is lost is lost as before.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import struct
from collections.abc import Iterator
from typing import Any, Final, NamedTuple, TypeAlias

from ckpt.reduction.keeping.mapping import Mapping

try:
    from ckpt.reduction.keeping import _keeper  # type: ignore[attr-defined]
except ImportError:  # an installation without a compiler
    _keeper = None

BADGE_BYTES: Final = 16
_HEAD: Final = struct.Struct(f"<QQ{BADGE_BYTES}s")
_ENTRY: Final = struct.Struct("<QQQQ")  # 1: it counts; address, bytes, bytes of the description
_ENTRY_BYTES: Final = 1024
MOST: Final = 255
"""Calls that are noted at a time."""
LONGEST_BYTES: Final = _ENTRY_BYTES - _ENTRY.size
"""Of a description."""
_FILE_BYTES: Final = (MOST + 1) * _ENTRY_BYTES


Note: TypeAlias = tuple[Any, int] | None
"""A call that was written down: its key, and the number of the entry."""


class Noted(NamedTuple):
    """A call of a dead rank. `address`, `nbytes`: what it gave."""

    description: bytes
    address: int
    nbytes: int


class Table:
    """The file, mapped; or nothing, as in an image: a rank may be in the middle of `note` when one is taken."""

    def __init__(self, mapping: Mapping | None = None) -> None:
        self._mapping = mapping
        self.memory = None if mapping is None else mapping.view()

    def __reduce__(self) -> Any:
        return Table, ()


class Calls:
    """The table of this process. `note` and `forget` may be called by any thread, the others need a lock."""

    def __init__(self, path: str) -> None:
        self.path, self._process = path, os.getpid()
        self._table = Table()
        self._held: dict[int, Any] = {}
        self._notes: dict[Any, int] = {}
        self._free = list(range(MOST, 0, -1))
        self._badge = ctypes.create_string_buffer(os.urandom(BADGE_BYTES), BADGE_BYTES)
        self._keeper = (0, 0)
        self._is_new = bool(path)

    def _open(self) -> None:
        """With the first call: not every program makes one that is noted."""
        self._is_new = False
        if _keeper is None:
            return
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path)
        table = Table(Mapping(self.path, _FILE_BYTES))
        assert table.memory is not None
        try:
            self._keeper = _keeper.start(self.path)
        except (OSError, ValueError):
            os.unlink(self.path)
            return
        _HEAD.pack_into(table.memory, 0, self._keeper[0], ctypes.addressof(self._badge), self._badge.raw)
        self._table = table

    def __reduce__(self) -> Any:
        return Calls, ("",)  # no part of an image: after a restart a new one is made

    def note(self, key: Any, array: Any, description: bytes) -> Note:
        """A call begins, with this contiguous array; None: it could not be written down."""
        if self._is_new:
            with contextlib.suppress(OSError):
                self._open()
        table, free = self._table, self._free
        if table.memory is None or len(description) > LONGEST_BYTES:
            return None
        try:
            entry = free.pop()
        except IndexError:
            return None
        self._held[entry] = array
        at = entry * _ENTRY_BYTES
        _ENTRY.pack_into(table.memory, at, 0, array.ctypes.data, array.nbytes, len(description))
        table.memory[at + _ENTRY.size : at + _ENTRY.size + len(description)] = description
        table.memory[at] = 1
        return key, entry

    def keep(self, key: Any, note: Note) -> None:
        """The call has this key: its note is kept until `end`. Another key, since another thread was faster: it is not."""
        if note is not None and note[0] == key:
            self._notes[key] = note[1]
        else:
            self.forget(note)

    def end(self, key: Any) -> None:
        """The call has ended here: the program may write to the array."""
        self._clear(self._notes.pop(key, 0))

    def forget(self, note: Note) -> None:
        """It has become no call."""
        if note is not None and self._notes.get(note[0]) != note[1]:
            self._clear(note[1])

    def _clear(self, entry: int) -> None:
        table = self._table
        if table.memory is not None and self._held.pop(entry, self) is not self:
            table.memory[entry * _ENTRY_BYTES] = 0
            self._free.append(entry)

    def close(self) -> None:
        """The program ends, or needs no table any more."""
        self._is_new = False
        table, self._table = self._table, Table()
        if table.memory is None or os.getpid() != self._process:
            return
        table.memory[:_ENTRY_BYTES] = bytes(_ENTRY_BYTES)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path)
        _keeper.stop(*self._keeper)


class Kept:
    """The calls of a dead rank, and its memory."""

    def __init__(self, path: str) -> None:
        """Raises OSError: there is no such table."""
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            if os.fstat(descriptor).st_uid != os.geteuid():
                raise PermissionError(f"{path} is another user's")
            self._table = os.pread(descriptor, _FILE_BYTES, 0)
        finally:
            os.close(descriptor)
        if len(self._table) != _FILE_BYTES:
            raise OSError(f"{path} is no table of calls")

    def calls(self) -> Iterator[Noted]:
        """The calls that were under way."""
        for at in range(_ENTRY_BYTES, _FILE_BYTES, _ENTRY_BYTES):
            counts, address, nbytes, length = _ENTRY.unpack_from(self._table, at)
            if counts == 1 and length <= LONGEST_BYTES:
                yield Noted(self._table[at + _ENTRY.size : at + _ENTRY.size + length], address, nbytes)

    def read(self, noted: Noted, into: Any) -> None:
        """Fill an array, contiguous and of as many bytes, with what the rank gave. Raises OSError: it is not there."""
        keeper, at, wanted = _HEAD.unpack_from(self._table)
        if _keeper is None or not keeper:
            raise ProcessLookupError(f"nobody keeps the memory of {noted}")
        seen = bytearray(BADGE_BYTES)
        for buffer, address in ((seen, at), (into.reshape(-1).view("u1"), noted.address), (seen, at)):
            if len(buffer):
                _keeper.read(keeper, address, buffer)
            if seen != wanted:  # the same process before and after
                raise ProcessLookupError(f"process {keeper} is another one")

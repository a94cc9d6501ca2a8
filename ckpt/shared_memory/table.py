"""The table of :mod:`ckpt.shared_memory.rules` in the memory of a host, where all its ranks read and change it. (driver)

::

    bytes 0 … 63         number of slots, first byte that is free, given_up, token
    256 (n + 1) …        the slot of process n
    BEGIN …              memory of windows

Each change is made under a lock of the file (flock(2)), which the kernel releases when its holder dies. A holder may have
been stopped (SIGSTOP), so nobody waits for the lock longer than :data:`_LOCK_S`.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
import time
from collections.abc import Iterator
from typing import Final

from ckpt.shared_memory._mapping import Mapping, extend, open_file
from ckpt.shared_memory.rules import MANY, Slot, Table

__all__ = ["BEGIN", "MOST_SLOTS", "Busy", "HostTable", "Place", "Shared", "opened"]

Place = tuple[int, int]
"""Where the file is: the agent's process id, and the number of its descriptor."""
BEGIN: Final = 4 << 20
_SLOT_BYTES: Final = 256
MOST_SLOTS: Final = BEGIN // _SLOT_BYTES - 1
_HEAD: Final = struct.Struct("<4Q")
_SLOT: Final = struct.Struct("<9Q")
_MOST_FILES: Final = (_SLOT_BYTES - _SLOT.size) // 8
_LOCK_S: Final = 1.0
_PAUSE_S: Final = 0.0005


class Busy(Exception):
    """Another rank has had the lock of the table for too long: it has been stopped, perhaps."""


class Shared(Table):
    """The table, and the memory that is allocated. ``free_at``: the first byte that no window has had."""

    free_at = BEGIN


@contextlib.contextmanager
def opened(place: Place) -> Iterator[int]:
    """A descriptor of the file. It is open for a moment only, so it cannot meet one of the program's. Raises OSError."""
    fd = open_file(f"/proc/{place[0]}/fd/{place[1]}")
    try:
        yield fd
    finally:
        os.close(fd)


class HostTable:
    """The table of a host, as one process sees it."""

    def __init__(self, place: Place) -> None:
        """Raises OSError."""
        self.place = place
        with opened(place) as fd:
            extend(fd, BEGIN)
            self._memory = memoryview(Mapping(fd, 0, BEGIN))

    @contextlib.contextmanager
    def changed(self) -> Iterator[tuple[Shared, int]]:
        """The table, to be changed, and a descriptor of the file. What was changed is written at the end. Raises Busy,
        OSError."""
        with opened(self.place) as fd:
            _lock(fd)
            table = self._read()
            try:
                yield table, fd
            finally:
                self._write(table)

    def _read(self) -> Shared:
        table = Shared()
        count, free_at, table.given_up, table.token = _HEAD.unpack_from(self._memory)
        table.free_at = free_at or BEGIN
        for number in range(count):
            at = (number + 1) * _SLOT_BYTES
            *fields, count = _SLOT.unpack_from(self._memory, at)
            if fields[0]:
                files = struct.unpack_from(f"<{count}Q", self._memory, at + _SLOT.size)
                table.slots[number] = slot = Slot(*fields)
                slot.files = frozenset(files)
        return table

    def _write(self, table: Shared) -> None:
        """The lock is held until the descriptor is closed."""
        for number, slot in table.slots.items():
            at, files = (number + 1) * _SLOT_BYTES, sorted(slot.files)
            if len(files) > _MOST_FILES:
                files = [MANY, *files[: _MOST_FILES - 1]]
            fields = (slot.pid, slot.windows, slot.phase, slot.epoch, slot.done, slot.token, slot.is_slow)
            _SLOT.pack_into(self._memory, at, *fields, slot.is_dead, len(files))
            struct.pack_into(f"<{len(files)}Q", self._memory, at + _SLOT.size, *files)
        head = (max(table.slots, default=-1) + 1, table.free_at, table.given_up, table.token)
        _HEAD.pack_into(self._memory, 0, *head)


def _lock(fd: int) -> None:
    until = time.monotonic() + _LOCK_S
    while True:
        try:
            return fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > until:
                raise Busy from None
        time.sleep(_PAUSE_S)

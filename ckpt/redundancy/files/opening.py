"""`os.open` for writing, for a program with replicas: what it opens is written by all replicas together. (driver)

The leader opens the file, makes or empties it, and closes it: as `open` does (objects.py). The program gets a number for
it (descriptors.py).

    O_TMPFILE       a file without a name, which nobody else sees: each replica has its own, and images hold it
    O_SYNC, O_DSYNC what is written is synced: another change
    not a file      devices, pipes, flags whose meaning replicas would lose (O_DIRECT): refused by name

Not here: what is done with the number (descriptors.py).
"""

from __future__ import annotations

import errno
import os
import stat
from typing import Any

from ckpt.redundancy.files.changes import STATE, RefusedMode, change, is_of_ckpt
from ckpt.redundancy.files.descriptors import TABLE
from ckpt.redundancy.files.objects import ReplicaFile

__all__ = ["os_open"]

_genuine_open = os.open
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_KNOWN = _WRITES | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NOCTTY | os.O_SYNC | os.O_DSYNC


class Descriptor(ReplicaFile):
    """What descriptors of one `os.open` have in common: file, position, and what they may do."""

    _syncs = False  # also of one in an image of before

    def __init__(self, path: str, flags: int, identity: tuple[int, int]) -> None:
        super().__init__(path, path, "ab+" if flags & os.O_APPEND else "rb+", identity)
        self._access = flags & os.O_ACCMODE
        self._syncs = bool(flags & os.O_DSYNC)

    def readable(self) -> bool:
        return self._access != os.O_WRONLY

    def writable(self) -> bool:
        return self._access != os.O_RDONLY

    def write(self, data: Any, /) -> int:
        count = super().write(data)
        if self._syncs and count:
            self.sync()
        return count

    def status(self) -> os.stat_result:
        """As `os.fstat`. Raises OSError if the path leads to another file by now."""
        self._check()
        found = os.stat(self._path)
        if self._identity not in (None, (found.st_dev, found.st_ino)):
            raise OSError(errno.ESTALE, "replaced by another file while the program had it open", self._path)
        return found


def os_open(path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
    """As `os.open`. Raises RefusedMode for what replicas cannot open together."""
    if STATE.meet is None or not isinstance(flags, int) or not flags & _WRITES or is_of_ckpt():
        return _genuine_open(path, flags, mode, dir_fd=dir_fd)
    given = os.fsdecode(path)
    full = os.path.abspath(given)
    if flags & os.O_TMPFILE == os.O_TMPFILE or full.startswith(("/dev/null", "/proc/self/")):
        return _genuine_open(path, flags, mode, dir_fd=dir_fd)
    if dir_fd is not None:
        raise _refusal(full, "with a descriptor of a directory; give a whole path")
    if odd := flags & ~_KNOWN:
        raise _refusal(full, f"with flags that replicas do not know (0o{odd:o})")
    if flags & os.O_CREAT and mode & 0o600 != 0o600:
        raise _refusal(
            full, f"with the mode 0o{mode:o}: they open it again for each change. Use os.chmod at the end"
        )
    if flags & os.O_TRUNC and not flags & os.O_ACCMODE:
        raise _refusal(full, "with O_TRUNC, but not for writing")
    if os.path.exists(full) and not (os.path.isfile(full) or os.path.isdir(full)):
        raise _refusal(full, "and it is no regular file")
    return TABLE.add(Descriptor(full, flags, _begin(full, flags, mode, path)))


def _refusal(path: str, why: str) -> RefusedMode:
    return RefusedMode(
        f"under --redundancy the program opens a file for writing (os.open: {path!r:.200}) {why}"
    )


def _begin(path: str, flags: int, mode: int, given: Any) -> tuple[int, int]:
    is_new = bool(flags & os.O_CREAT and flags & os.O_EXCL)

    def act(seen: bool | None, again: bool) -> tuple[int, int]:
        if is_new or (flags & os.O_CREAT and not os.path.exists(path)):
            STATE.notes.name(path if flags & os.O_NOFOLLOW else os.path.realpath(path))
        elif flags & os.O_TRUNC:
            STATE.notes.content(path, 0)
        opened = flags | os.O_CLOEXEC
        if again and seen is False:  # the former leader may have made it
            opened &= ~os.O_EXCL
        try:
            fd = _genuine_open(path, opened, mode)
        except OSError as failure:
            failure.filename = given
            raise
        status = os.fstat(fd)
        os.close(fd)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "no regular file, which replicas cannot share", given)
        return status.st_dev, status.st_ino

    before = (lambda: os.path.lexists(path)) if is_new else None
    dev, ino = change(f"os.open {path} (flags 0o{flags:o}, mode 0o{mode:o})", act, before)
    return dev, ino

"""Locks on files that the program holds: they are taken again after a restart.

The kernel lists the locks in ``/proc/self/fdinfo`` (recorded before the fork, :mod:`ckpt.image.process.moment`): those of
``flock(2)``, those of ``lockf`` (POSIX record locks), and open file description locks (``F_OFD_SETLK``). All of them are
advisory locks. Leases are not saved, nor are locks of libraries written in C: such a library opens its files again, and
locks them again.

The locks are taken when everything else has been restored, because the process loses a lock of ``lockf`` as soon as it
closes any descriptor of that file. Another process may hold a lock by then. If this is a process of the job before the
restart, it is about to end, so the lock is tried for ``_PATIENCE_S`` seconds. After that a :class:`RestoreError` names the
file and the holder, because a program that went on without its lock would write where it must not.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import struct
import time

from ckpt.image.errors import RestoreError
from ckpt.transport.records import dataclass

__all__ = ["FileLock", "locks_of", "note", "take_again"]

_PATIENCE_S = 10.0
_RETRY_S = 0.01
_FLOCK = struct.Struct("hhqqi4x")  # struct flock of 64-bit systems
_KINDS = ("FLOCK", "POSIX", "OFDLCK")


@dataclass(frozen=True, slots=True)
class FileLock:
    """One lock. ``kind``: "FLOCK", "POSIX" or "OFDLCK", the kernel's words. ``start`` and ``length`` in bytes; length 0: to
    the end of the file, also when the file grows (as in ``fcntl(2)``).
    """

    kind: str
    is_exclusive: bool
    start: int
    length: int


def locks_of(lines: str) -> tuple[FileLock, ...]:
    """The locks in the ``/proc/PID/fdinfo/FD`` of one descriptor, whose lines look like
    ``lock:  1: FLOCK  ADVISORY  WRITE 4711 fe:00:1234 0 EOF``.
    """
    found = []
    for line in lines.splitlines():
        words = line.split()
        if len(words) == 9 and words[0] == "lock:" and words[2] in _KINDS:
            start = int(words[7])
            length = 0 if words[8] == "EOF" else int(words[8]) - start + 1
            found.append(FileLock(words[2], words[4] == "WRITE", start, length))
    return tuple(found)


_noted: list[tuple[int, str, FileLock]] = []


def note(fd: int, path: str, locks: tuple[FileLock, ...]) -> None:
    """Record the locks of a descriptor for :func:`take_again`. An exclusive ``flock`` may be recorded for two descriptors:
    these are duplicates, and share one open file description and its lock.
    """
    _noted.extend((fd, path, lock) for lock in locks)


def take_again() -> None:
    """Take the recorded locks. Raises RestoreError: another process still holds one after ``_PATIENCE_S`` seconds."""
    deadline_s = time.monotonic() + _PATIENCE_S
    noted, _noted[:] = _noted[:], []
    for fd, path, lock in noted:
        while not _try(fd, lock):
            if time.monotonic() > deadline_s:
                raise RestoreError(
                    f"the lock on {path!r} that the program held when the checkpoint was taken is held by "
                    f"{_holder(fd)} now: end that, and restart the job"
                )
            time.sleep(_RETRY_S)


def _try(fd: int, lock: FileLock) -> bool:
    try:
        if lock.kind == "FLOCK":
            fcntl.flock(fd, (fcntl.LOCK_EX if lock.is_exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB)
        else:
            lock_type = fcntl.F_WRLCK if lock.is_exclusive else fcntl.F_RDLCK
            command = fcntl.F_SETLK if lock.kind == "POSIX" else fcntl.F_OFD_SETLK
            fcntl.fcntl(fd, command, _FLOCK.pack(lock_type, os.SEEK_SET, lock.start, lock.length, 0))
    except OSError as failure:
        if failure.errno in (errno.EAGAIN, errno.EACCES, errno.EINTR):
            return False
        raise RestoreError(
            f"the lock on descriptor {fd} cannot be taken again: {failure.strerror}"
        ) from failure
    return True


def _holder(fd: int) -> str:
    """The process that holds a lock on the file, in words; "another process" where the kernel does not say which."""
    inode = str(os.fstat(fd).st_ino)
    with open("/proc/locks") as listing:
        for line in listing:
            words = line.split()
            if "->" not in words and len(words) >= 6 and words[5].endswith(f":{inode}"):
                holder = words[4] if words[4] != "-1" else _find_holder(inode)
                return f"process {holder}" if holder else "another process"
    return "another process"


def _find_holder(inode: str) -> str:
    """The pid of a process whose ``fdinfo`` shows a lock on this inode; "" if no process that may be read shows one."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):  # the process has ended, or belongs to another user
            for fd in os.listdir(f"/proc/{pid}/fdinfo"):
                with open(f"/proc/{pid}/fdinfo/{fd}") as info:
                    if any(line.startswith("lock:") and f":{inode} " in line for line in info):
                        return pid
    return ""

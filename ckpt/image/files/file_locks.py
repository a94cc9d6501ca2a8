"""Locks on files that the program holds: ``flock``, ``lockf`` and those of open files; taken again after a restart.

Which they are the kernel says, in ``/proc/self/fdinfo`` (noted before the fork, :mod:`ckpt.image.process.moment`). Advice
only, as all such locks are; leases and what libraries written in C hold are not among them: those open their files
again, and lock them.

They are taken when everything else is in place, for a lock of ``lockf`` is lost as soon as the process closes any
descriptor of that file. Somebody else may have taken one meanwhile. A process of the job's past is just ending, so it
is tried for some seconds; then it is a :class:`RestoreError` that names file and holder, because a program that went
on without its lock would write where it must not.
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
_AGAIN_S = 0.01
_FLOCK = struct.Struct("hhqqi4x")  # struct flock of 64-bit systems
_KINDS = ("FLOCK", "POSIX", "OFDLCK")


@dataclass(frozen=True, slots=True)
class FileLock:
    """``kind``: "FLOCK", "POSIX" or "OFDLCK"; ``length`` 0: to the end, wherever that is."""

    kind: str
    is_exclusive: bool
    start: int
    length: int


def locks_of(lines: str) -> tuple[FileLock, ...]:
    """Of the lines ``lock:  1: FLOCK  ADVISORY  WRITE 4711 fe:00:1234 0 EOF`` of one descriptor."""
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
    """To be taken again by :func:`take_again`. An exclusive ``flock`` that two descriptors show belongs to both."""
    _noted.extend((fd, path, lock) for lock in locks)


def take_again() -> None:
    """Raises RestoreError: somebody else has one of them."""
    deadline_s = time.monotonic() + _PATIENCE_S
    noted, _noted[:] = _noted[:], []
    for fd, path, lock in noted:
        while not _try(fd, lock):
            if time.monotonic() > deadline_s:
                raise RestoreError(
                    f"the lock on {path!r} that the program held when the checkpoint was taken is held by "
                    f"{_holder(fd)} now: end that, and restart the job"
                )
            time.sleep(_AGAIN_S)


def _try(fd: int, lock: FileLock) -> bool:
    try:
        if lock.kind == "FLOCK":
            fcntl.flock(fd, (fcntl.LOCK_EX if lock.is_exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB)
        else:
            kind = fcntl.F_WRLCK if lock.is_exclusive else fcntl.F_RDLCK
            command = fcntl.F_SETLK if lock.kind == "POSIX" else fcntl.F_OFD_SETLK
            fcntl.fcntl(fd, command, _FLOCK.pack(kind, os.SEEK_SET, lock.start, lock.length, 0))
    except OSError as failure:
        if failure.errno in (errno.EAGAIN, errno.EACCES, errno.EINTR):
            return False
        raise RestoreError(
            f"the lock on descriptor {fd} cannot be taken again: {failure.strerror}"
        ) from failure
    return True


def _holder(fd: int) -> str:
    """In words, as far as the kernel says."""
    inode = str(os.fstat(fd).st_ino)
    with open("/proc/locks") as listing:
        for line in listing:
            words = line.split()
            if "->" not in words and len(words) >= 6 and words[5].endswith(f":{inode}"):
                holder = words[4] if words[4] != "-1" else _who_has_locked(inode)
                return f"process {holder}" if holder else "another process"
    return "another process"


def _who_has_locked(inode: str) -> str:
    """A process that has an open file with a lock on it; "": none that may be looked into."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):  # ended meanwhile, or somebody else's
            for fd in os.listdir(f"/proc/{pid}/fdinfo"):
                with open(f"/proc/{pid}/fdinfo/{fd}") as info:
                    if any(line.startswith("lock:") and f":{inode} " in line for line in info):
                        return pid
    return ""

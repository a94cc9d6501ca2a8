"""Counts how many bytes of copies a job may still keep: one bound for all its ranks and intervals.

    JOB/undo/copies                     locked (flock(2)) while a rank takes bytes
    JOB/undo/epoch-…-…/copied           bytes that ranks have taken in this interval: one decimal number

The number goes with its interval, so what is removed counts no more. A rank takes some bytes more than it needs, so that
many small copies need the lock seldom, and gives back what is left when the interval ends. What a killed process has taken
counts until the interval goes: never more is kept than the bound.

Not here: how a copy is made (:mod:`ckpt.undo.keeping`).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterator

__all__ = ["Allowance", "copied_bytes"]

_LOCK, _COUNT = "copies", "copied"
_DIGITS = 20
_SHARE = 64
"""All ranks together take at most this fraction of the bound in advance."""


class Allowance:
    """What one rank may copy in one interval. ``interval``: the directory of all ranks; ``limit_bytes``: of the job, which
    has so many ``ranks``.
    """

    def __init__(self, interval: str, limit_bytes: int, ranks: int) -> None:
        self.interval = interval
        self._limit_bytes = limit_bytes
        self._chunk_bytes = limit_bytes // (_SHARE * ranks)
        self._left_bytes = 0

    def take(self, nbytes: int) -> bool:
        """``False``: the job may not copy so many bytes any more. Raises OSError: a number cannot be read or written."""
        if nbytes > self._limit_bytes:
            return False
        if nbytes > self._left_bytes:
            with self._locked():
                needed = nbytes - self._left_bytes
                free = self._limit_bytes - copied_bytes(os.path.dirname(self.interval))
                if needed > free:
                    return False
                self._add(needed + min(self._chunk_bytes, free - needed))
        self._left_bytes -= nbytes
        return True

    def give_back(self, nbytes: int) -> None:
        """So many of the bytes taken were not needed."""
        self._left_bytes += nbytes

    def end(self) -> None:
        """The interval ends. Raises OSError."""
        if self._left_bytes:
            with self._locked():
                self._add(-self._left_bytes)

    def _add(self, nbytes: int) -> None:
        path = os.path.join(self.interval, _COUNT)
        number = _number(path) + nbytes
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            os.pwrite(fd, b"%0*d" % (_DIGITS, number), 0)
        finally:
            os.close(fd)
        self._left_bytes += nbytes

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        path = os.path.join(os.path.dirname(self.interval), _LOCK)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield
        finally:
            os.close(fd)


def copied_bytes(undo: str) -> int:
    """How many bytes of copies the intervals in this directory (``JOB/undo``) have, and what ranks have taken in advance.

    Raises OSError.
    """
    return sum(
        _number(os.path.join(undo, name, _COUNT)) for name in os.listdir(undo) if name.startswith("epoch-")
    )


def _number(path: str) -> int:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return 0
    try:
        return int(os.pread(fd, _DIGITS + 1, 0) or b"0")  # empty: a process was killed before its first bytes
    except ValueError as failure:
        raise OSError(errno.EIO, "the number of copied bytes cannot be read", path) from failure
    finally:
        os.close(fd)

"""The numbers of descriptors: after a restart each number that the program had is the same file again, or no file.

A program may keep such numbers in its variables, and nothing distinguishes them from other integers. So while an image is
loaded, a placeholder occupies each number of the program (:func:`reserve`) until the number gets its file again
(:func:`place`); files that libraries and the loader open meanwhile get other numbers. A pipe or socket cannot be restored:
its placeholder stays (a descriptor with ``O_PATH``), so reading and writing fail with EBADF, and no other file can get this
number before the program closes it.

Not here: what is opened (:mod:`ckpt.image.files.reopen`), and which descriptors are the program's
(:mod:`ckpt.image.files.descriptors`).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import resource
from collections.abc import Collection, Iterable

from ckpt.image.errors import RestoreError

__all__ = ["duplicate", "is_placeholder", "place", "release", "reserve"]

_SPARE_NUMBERS = 64  # numbers above the program's, for files that loading itself opens

_reserved: set[int] = set()


def reserve(numbers: Iterable[int]) -> None:
    """Put placeholders where these numbers are free; a number that is not free, or not allowed here, is left alone."""
    _reserved.clear()
    placeholder = os.open(os.devnull, os.O_PATH | os.O_CLOEXEC)
    wanted = sorted(numbers)
    _allow(wanted)
    placeholder = _moved_away(placeholder, set(wanted))
    for number in wanted:
        if not _is_open(number):
            with contextlib.suppress(OSError):  # beyond the limit: place() raises if a file needs this number
                os.dup2(placeholder, number, inheritable=False)
                _reserved.add(number)
    os.close(placeholder)


def _allow(wanted: list[int]) -> None:
    """Raise the soft limit of descriptors as far as these numbers need: the program may have raised its limit, and that
    limit is restored last (:mod:`ckpt.image.process.limits`).
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted[-1] + _SPARE_NUMBERS if wanted else 0
    if soft != resource.RLIM_INFINITY and needed > soft:
        limit = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))


def _moved_away(fd: int, wanted: set[int]) -> int:
    """Move the descriptor to a number that is not in ``wanted``; returns the new number."""
    while fd in wanted:
        other = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, fd + 1)
        os.close(fd)
        fd = other
    return fd


def place(fd: int, number: int, *, is_inheritable: bool = False) -> int:
    """Move the descriptor ``fd`` to ``number``, its number in the image, if that is free or reserved. Returns the
    descriptor's number now. Raises RestoreError: the number is above the limit.
    """
    if fd != number and (number in _reserved or not _is_open(number)):
        try:
            os.dup2(fd, number, inheritable=False)
        except OSError as failure:
            raise RestoreError(
                f"descriptor {number} of the program cannot be had again: {failure.strerror}. Raise the limit of "
                "descriptors (ulimit -n) to what it was"
            ) from failure
        os.close(fd)
        fd = number
    _reserved.discard(fd)
    os.set_inheritable(fd, is_inheritable)
    return fd


def duplicate(fd: int) -> int:
    """A duplicate of ``fd``. As long as the numbers of the image are reserved, the duplicate gets none of them."""
    return os.dup(fd)


def release(lost: Collection[int]) -> None:
    """Loading is over: close the placeholders that no file has replaced, except those of the numbers in ``lost``."""
    for number in _reserved.difference(lost):
        os.close(number)
    _reserved.clear()


def is_placeholder(path: str, flags: int) -> bool:
    """Is a descriptor with this path and these flags a placeholder for a lost pipe or socket?"""
    return path == os.devnull and bool(flags & os.O_PATH)


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True

"""The numbers of descriptors: after a restart each that the program had is the same file again, or none.

A program keeps such numbers, and nobody can tell one from any other integer. So while an image is loaded all of them
are kept free for what belongs there (:func:`reserve`, :func:`place`); what libraries and the loader open meanwhile
gets others. What cannot come back (a pipe, a socket) leaves its number closed to every use: the placeholder there
stays, each call with it fails with EBADF, and no other file ever gets it, before the program closes it.

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

__all__ = ["aside", "is_placeholder", "place", "release", "reserve"]

_ROOM = 64  # for what loading itself opens

_reserved: set[int] = set()


def reserve(numbers: Iterable[int]) -> None:
    """Put placeholders where these numbers are free; a number that is not free, or not allowed here, is left alone."""
    _reserved.clear()
    nothing = os.open(os.devnull, os.O_PATH | os.O_CLOEXEC)
    wanted = sorted(numbers)
    _allow(wanted)
    nothing = _elsewhere(nothing, set(wanted))
    for number in wanted:
        if not _is_open(number):
            with contextlib.suppress(OSError):  # beyond the limit: said by whoever needs it
                os.dup2(nothing, number, inheritable=False)
                _reserved.add(number)
    os.close(nothing)


def _allow(wanted: list[int]) -> None:
    """The program may have raised its limit, which is put back last."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted[-1] + _ROOM if wanted else 0
    if soft != resource.RLIM_INFINITY and needed > soft:
        most = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def _elsewhere(fd: int, wanted: set[int]) -> int:
    """The same file under a number that is not wanted."""
    while fd in wanted:
        other = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, fd + 1)
        os.close(fd)
        fd = other
    return fd


def place(fd: int, number: int, *, is_inheritable: bool = False) -> int:
    """Move a descriptor to the number it has in the image, if that is free or kept for it; the number it has now. Raises
    RestoreError: above the limit.
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


def aside(fd: int) -> int:
    """A duplicate under a number that nothing of the image has."""
    return os.dup(fd)


def release(lost: Collection[int]) -> None:
    """Loading is over: what was kept for nothing is free again, but for the numbers that lost what they stood for."""
    for number in _reserved.difference(lost):
        os.close(number)
    _reserved.clear()


def is_placeholder(path: str, flags: int) -> bool:
    """Is a descriptor, by what the kernel says of it, one that stands for what was lost?"""
    return path == os.devnull and bool(flags & os.O_PATH)


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True

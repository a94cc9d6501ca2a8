"""Numbers of the event descriptors (eventfds, event polls) that are the library's own. (driver)

The kernel does not say whose they are, and a process image has to know: those of the program are numbers that it keeps,
and that mean nothing after a restart. So whoever makes one here notes it, and forgets it when it is closed. ZeroMQ makes its
own in the calling thread, when a context, its first socket, a socket or a monitor is made, and never later (measured with
4.3.5): what is new behind such a call, `making`, is ZeroMQ's.

Another thread that makes one in that very moment has it taken for the library's. A wire is made before the program begins,
and a socket for a peer says its number itself; what is left is the moment of the first large message.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

__all__ = ["forget", "making", "note", "numbers"]

_KINDS = ("anon_inode:[eventfd]", "anon_inode:[eventpoll]")

_own: set[int] = set()


def numbers() -> frozenset[int]:
    """Those that are open and the library's."""
    return frozenset(_own)


def note(*fds: int) -> None:
    """These belong to the library."""
    _own.update(fds)


def forget(*fds: int) -> None:
    """These are about to be closed; their numbers may be anybody's next."""
    _own.difference_update(fds)


@contextlib.contextmanager
def making() -> Iterator[set[int]]:
    """What appears meanwhile belongs to the library; it is in the set at the end."""
    before, made = _open(), set[int]()
    try:
        yield made
    finally:
        made |= _open() - before
        _own.update(made)


def _open() -> set[int]:
    found = set()
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the one that listed the directory
            if os.readlink(f"/proc/self/fd/{name}") in _KINDS:
                found.add(int(name))
    return found

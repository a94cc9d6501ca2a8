"""A registry of the library's own event descriptors (eventfd and epoll file descriptors). (driver)

The kernel does not say which module opened a descriptor, and a process image has to tell the library's descriptors from the
program's: a program keeps the numbers of its own, and these mean nothing after a restart. So each module of the library
registers an event descriptor when it opens one (`note`), and removes it when it closes it (`forget`). ZeroMQ opens its
event descriptors in the calling thread when a context, the first socket, a socket or a monitor is created, and never later
(measured with ZeroMQ 4.3.5). So the descriptors that appear during such a call (`making`) are ZeroMQ's.

Limit: a descriptor that another thread opens during such a call is taken for the library's. A wire is opened before the
program begins, and the socket for a peer reports its descriptor itself; so this can only happen during the first large
message, when pyzmq starts its thread.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

__all__ = ["forget", "making", "note", "numbers"]

_KINDS = ("anon_inode:[eventfd]", "anon_inode:[eventpoll]")

_own: set[int] = set()


def numbers() -> frozenset[int]:
    """Return the numbers of the library's event descriptors that are open."""
    return frozenset(_own)


def note(*fds: int) -> None:
    """Register `fds` as the library's."""
    _own.update(fds)


def forget(*fds: int) -> None:
    """Remove `fds`, which are about to be closed: the program may get the same numbers next."""
    _own.difference_update(fds)


@contextlib.contextmanager
def making() -> Iterator[set[int]]:
    """Register the event descriptors that appear inside the `with` block; at its end the yielded set holds them."""
    before, made = _open(), set[int]()
    try:
        yield made
    finally:
        made |= _open() - before
        _own.update(made)


def _open() -> set[int]:
    found = set()
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the descriptor that listed the directory is closed by now
            if os.readlink(f"/proc/self/fd/{name}") in _KINDS:
                found.add(int(name))
    return found

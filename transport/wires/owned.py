"""A registry of the library's own event descriptors (eventfd and epoll file descriptors) and threads. (driver)

The kernel does not say which module opened a descriptor, and a process image has to tell the library's descriptors from the
program's: a program keeps the numbers of its own, and these mean nothing after a restart. So each module of the library
registers an event descriptor when it opens one (`note`), and removes it when it closes it (`forget`). ZeroMQ opens its
event descriptors in the calling thread when a context, the first socket, a socket or a monitor is created, and never later
(measured with ZeroMQ 4.3.5). So the descriptors that appear during such a call (`making`) are ZeroMQ's.

Neither does the kernel say who started a thread, and Python counts all threads of a process when it forks. ZeroMQ and
pyzmq start theirs in the same calls; a thread in Python is registered by who starts it (`note_thread`).

Limit: what another thread opens or starts during such a call is taken for the library's. A wire is opened before the
program begins, and the socket for a peer reports its descriptor itself; so this can only happen during the first large
message, when pyzmq starts its thread.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator

__all__ = [
    "forget",
    "has_name",
    "has_port",
    "live_numbers",
    "making",
    "note",
    "note_address",
    "note_directory",
    "note_thread",
    "numbers",
    "other_threads",
]

_EVENT_FILES = ("anon_inode:[eventfd]", "anon_inode:[eventpoll]")

_own: set[int] = set()
_directories: set[str] = set()
_ports: set[int] = set()
_threads: set[int] = set()


def numbers() -> frozenset[int]:
    """Return the numbers of the library's event descriptors that are open."""
    return frozenset(_own)


def live_numbers() -> set[int]:
    """Return the set of these numbers itself, which `note` and `forget` change."""
    return _own


def note(*fds: int) -> None:
    """Register `fds` as the library's."""
    _own.update(fds)


def forget(*fds: int) -> None:
    """Remove `fds`, which are about to be closed: the program may get the same numbers next."""
    _own.difference_update(fds)


def note_directory(directory: str) -> None:
    """Register the directory of the library's Unix sockets."""
    _directories.add(directory)


def has_name(name: str | bytes) -> bool:
    """Is this the name of a Unix socket of the library?"""
    return isinstance(name, str) and os.path.dirname(name) in _directories


def note_address(address: str) -> str:
    """Register an address at which the library listens or which it dials, if it is `tcp://HOST:PORT`; return it."""
    port = address.rpartition(":")[2]
    if address.startswith("tcp:") and port.isdecimal():
        _ports.add(int(port))
    return address


def has_port(address: object) -> bool:
    """Is this the address of a TCP socket of the library, or of its peer, as `getsockname` gives it?"""
    return isinstance(address, tuple) and address[1] in _ports


def note_thread(thread: threading.Thread) -> None:
    """Register a thread of the library, which has been started."""
    if thread.native_id is not None:
        _threads.add(thread.native_id)


def other_threads() -> tuple[int, int]:
    """Return how many threads of this process are not the library's, the main thread among them, and how many are."""
    running = _running()
    _threads.intersection_update(running)  # the kernel may give the number of one that has ended to another
    return len(running - _threads), len(_threads)


@contextlib.contextmanager
def making() -> Iterator[set[int]]:
    """Register the event descriptors and threads that appear inside the `with` block; at its end the yielded set holds the
    descriptors."""
    before, made, threads = _open(), set[int](), _running()
    try:
        yield made
    finally:
        made |= _open() - before
        _own.update(made)
        _threads.update(_running() - threads)


def _running() -> set[int]:
    """The kernel's numbers of the threads of this process."""
    return {int(name) for name in os.listdir("/proc/self/task")}


def _open() -> set[int]:
    found = set()
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the descriptor that listed the directory is closed by now
            if os.readlink(f"/proc/self/fd/{name}") in _EVENT_FILES:
                found.add(int(name))
    return found

"""The locks that the program holds while its image is loaded: those that are not reentrant. They are held from when they are
made. Processes that are started meanwhile, such as the workers of pools, have nobody who would release them. And what is
called before a fork (``os.register_at_fork``) may wait for one that the program releases only when it goes on.

Not here: reentrant locks, which get their owners when the threads are there (:mod:`ckpt.image.threads.restart`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

__all__ = ["forget", "locks_set_free", "note"]

_locks: list[Any] = []


def note(lock: Any) -> None:
    """The program holds this lock."""
    _locks.append(lock)


def forget() -> None:
    """All is loaded."""
    _locks.clear()


@contextlib.contextmanager
def locks_set_free() -> Iterator[None]:
    """A context in which none of them is held. No thread of the program runs yet, and none is started within."""
    locks = [lock for lock in _locks if lock.locked()]
    for lock in locks:
        lock.release()
    try:
        yield
    finally:
        for lock in locks:
            lock.acquire()

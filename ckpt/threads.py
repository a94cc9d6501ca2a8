"""Threads of the application: which there are, which are declared harmless, and how a thread object comes back.

A stack is captured for the main thread only, so a rank with another thread of the application cannot be imaged. Such a
thread is refused by name: at :func:`ckpt.enable` if it runs by then, at each image if it starts later. A thread may be
declared *harmless*: the program's result does not depend on it, and it simply does not exist after a restart (an
``on_restart`` hook may start it again). What becomes of its object: :mod:`ckpt.image.thread_objects`.

Threads without a Python thread object (numpy's, OpenBLAS', torch's) are none of ours: they hold no frames and are made anew
by their libraries. Of the Python threads of libraries, those that keep nothing are known here: pyzmq's garbage collector
and tqdm's monitor. A ``concurrent.futures`` pool is *not* harmless, since work given to it would be lost.

Patterns are those of :mod:`fnmatch` and are compared with ``Thread.name``.
"""

from __future__ import annotations

import fnmatch
import threading
import weakref
from collections.abc import Iterable

from ckpt.errors import ThreadsRunning

__all__ = ["HarmlessThreads"]

_OWN_NAMES = ("port-helper",)
_HARMLESS_MODULES = ("zmq.", "tqdm.")


class HarmlessThreads:
    """Which threads may run while an image is taken. Part of the image, but for the thread objects."""

    def __init__(self, patterns: Iterable[str] = ()) -> None:
        self.patterns: list[str] = list(patterns)
        self._threads: weakref.WeakSet[threading.Thread] = weakref.WeakSet()

    def allow(self, *declared: str | threading.Thread) -> None:
        """Declare threads harmless, by name pattern or each by itself."""
        for each in declared:
            if isinstance(each, threading.Thread):
                self._threads.add(each)
            elif each not in self.patterns:
                self.patterns.append(each)

    def others(self) -> list[threading.Thread]:
        """The application's threads that run and are not harmless."""
        if threading.active_count() <= 2:  # the main thread and the port's helper
            return []
        return [thread for thread in threading.enumerate() if not self._is_harmless(thread)]

    def check(self) -> None:
        """Raises :class:`ThreadsRunning` when there are others."""
        names = ", ".join(repr(thread.name) for thread in self.others())
        if names:
            raise ThreadsRunning(
                f"threads of the application are running: {names}. Their stacks cannot be part of a checkpoint: end them "
                "before ckpt.enable(), or, if the result does not depend on them, declare them with "
                "ckpt.enable(harmless_threads=[NAME, ...]) or `ckpt run --harmless-threads NAME`"
            )

    def _is_harmless(self, thread: threading.Thread) -> bool:
        if thread is threading.main_thread() or thread.name in _OWN_NAMES or thread in self._threads:
            return True
        if type(thread).__module__.startswith(_HARMLESS_MODULES):
            return True
        return any(fnmatch.fnmatchcase(thread.name, pattern) for pattern in self.patterns)

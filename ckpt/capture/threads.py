"""Threads of the application: which there are, which are declared harmless, and how a thread object comes back.

A stack is captured for the main thread only, so a rank with another thread of the application cannot be imaged. Such a
thread is refused by name: at :func:`ckpt.enable` if it runs by then, at each image if it starts later. A thread may be
declared *harmless*: the program's result does not depend on it, and it simply does not exist after a restart (an
``on_restart`` hook may start it again). What becomes of its object: :mod:`ckpt.image.reducers.thread_objects`.

Threads without a Python thread object (numpy's, OpenBLAS', torch's) are none of ours: they hold no frames and are made anew
by their libraries. Of its Python threads, each library says which keep nothing
(:attr:`ckpt.image.interface.library.Library.harmless_threads`): pyzmq's garbage collector, tqdm's monitor. A
``concurrent.futures`` pool is *not* harmless, since work given to it would be lost.

Threads of ``_thread.start_new_thread`` have no object, but frames (``sys._current_frames``): they are the application's like
all others, under the name of their first function.

Patterns are those of :mod:`fnmatch` and are compared with ``Thread.name``.
"""

from __future__ import annotations

import fnmatch
import sys
import threading
import weakref
from collections.abc import Iterable
from types import BuiltinFunctionType, FrameType, FunctionType, MethodType
from typing import NamedTuple

from ckpt.compat.stdlib import target_of
from ckpt.errors import ThreadsRunning
from ckpt.image.interface.registry import libraries

__all__ = ["HarmlessThreads"]

_OWN_NAMES = ("port-helper",)
_NOT_THE_APPLICATIONS = ("threading.", "ckpt.")
_FUNCTIONS = (FunctionType, MethodType, BuiltinFunctionType)


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

    def others(self) -> list[threading.Thread | BareThread]:
        """The application's threads that run and are not harmless."""
        bare = [thread for thread in bare_threads() if not self._matches(thread.name)]
        if threading.active_count() <= 2:  # the main thread and the port's helper
            return [*bare]
        declared = libraries.harmless_threads()
        return [*(each for each in threading.enumerate() if not self._is_harmless(each, declared)), *bare]

    def check(self) -> None:
        """Raises :class:`ThreadsRunning` when there are others."""
        names = ", ".join(repr(thread.name) for thread in self.others())
        if names:
            raise ThreadsRunning(
                f"threads of the application are running: {names}. Their stacks cannot be part of a checkpoint: end them "
                "before ckpt.enable(), or, if the result does not depend on them, declare them with "
                "ckpt.enable(harmless_threads=[NAME, ...]) or `ckpt run --harmless-threads NAME`"
            )

    def _is_harmless(self, thread: threading.Thread, declared: tuple[str, ...]) -> bool:
        """``declared``: by libraries, :meth:`ckpt.image.interface.registry.Registry.harmless_threads`."""
        if thread is threading.main_thread() or thread.name in _OWN_NAMES or thread in self._threads:
            return True
        if _path_of(thread).startswith(declared):
            return True
        return self._matches(thread.name)

    def _matches(self, name: str) -> bool:
        return any(fnmatch.fnmatchcase(name, pattern) for pattern in self.patterns)


def _path_of(thread: threading.Thread) -> str:
    """Where its class or, of a plain thread, its function is defined. Nothing of the program is called."""
    kind: object = type(thread)
    if kind is threading.Thread:
        kind = target_of(thread)
        if type(kind) not in _FUNCTIONS:
            return ""
    return f"{getattr(kind, '__module__', None)}.{getattr(kind, '__qualname__', '')}."


class BareThread(NamedTuple):
    """A thread without an object, of `_thread.start_new_thread`; its name is that of its first function."""

    name: str


def bare_threads() -> list[BareThread]:
    """Those of the application that run."""
    running = sys._current_frames()
    # Without our own frame, which would refer to itself by this variable: the program's collector would find garbage.
    own = running.pop(threading.get_ident(), None) is not None
    if len(running) <= 1 and threading.active_count() == len(running) + own:
        return []
    for thread in threading.enumerate():
        running.pop(thread.ident or 0, None)
    found = []
    for frame in running.values():
        first: FrameType = frame
        while first.f_back is not None:
            first = first.f_back
        # one of threading's is known there a moment after it has begun, and until a moment before it ends
        module, name = first.f_globals.get("__name__") or "", first.f_code.co_qualname
        path = f"{module}.{name}."
        if not path.startswith((*_NOT_THE_APPLICATIONS, *libraries.harmless_threads())):
            found.append(BareThread(name))
    return found

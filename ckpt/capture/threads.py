"""Threads of the application: which threads run, which are declared harmless, and which are the application's at all.

The stacks of the application's threads are part of an image. A thread may be declared *harmless*: the program's result does
not depend on it, and it simply does not exist after a restart (an ``on_restart`` hook may start it again). What becomes of
its object: :mod:`ckpt.image.reducers.thread_objects`.

Threads that run no Python code (numpy's, OpenBLAS', torch's) are not counted: they have no Python frames, and their
libraries start them anew. Each library says which of its Python threads have no state that a restart would lose
(:attr:`ckpt.image.interface.library.Library.harmless_threads`): pyzmq's garbage collector, tqdm's monitor.

Threads of ``_thread.start_new_thread`` have frames (``sys._current_frames``) but no thread object. No image can have them:
what has started them may be C code. Such a thread is refused by name: at :func:`ckpt.enable` if it runs by then, at each
image if it starts later. Its name is that of its first function.

Patterns are those of :mod:`fnmatch` and are compared with ``Thread.name``.
"""

from __future__ import annotations

import fnmatch
import sys
import threading
import weakref
from collections.abc import Iterable
from types import BuiltinFunctionType, FrameType, FunctionType, MethodType

from ckpt.compat.stdlib import target_of, threads_by_ident
from ckpt.errors import RegistrationError, ThreadsRunning
from ckpt.image.interface.registry import libraries
from ckpt.transport.records import NamedTuple

__all__ = ["HarmlessThreads", "is_left_out", "is_library"]

_OWN_NAMES = ("port-helper",)
_OWN_PREFIXES = ("threading.", "ckpt.")
_FUNCTIONS = (FunctionType, MethodType, BuiltinFunctionType)


class HarmlessThreads:
    """Which threads may run while an image is taken. Part of the image, but for the thread objects."""

    def __init__(self, patterns: Iterable[str] = ()) -> None:
        self.patterns: list[str] = list(patterns)
        self._threads: weakref.WeakSet[threading.Thread] = weakref.WeakSet()

    def allow(self, *declared: str | threading.Thread) -> None:
        """Declare threads harmless, by name pattern or each by itself."""
        for thread in declared:
            if isinstance(thread, threading.Thread):
                self._threads.add(thread)
            elif not isinstance(thread, str):
                raise RegistrationError(
                    f"a harmless thread is declared by a pattern for its name or as a threading.Thread, not by {thread!r}"
                )
            elif thread not in self.patterns:
                self.patterns.append(thread)

    def others(self) -> list[threading.Thread | BareThread]:
        """The running threads of the application that are not harmless."""
        bare = [thread for thread in bare_threads() if not self._matches(thread.name)]
        if threading.active_count() <= 1:  # the main thread; that of the port is not counted
            return [*bare]
        declared = libraries.harmless_threads()
        return [
            *(thread for thread in threading.enumerate() if not self._is_harmless(thread, declared)),
            *bare,
        ]

    def check(self) -> None:
        """Raise :class:`ThreadsRunning` if there are such threads (:meth:`others`) that no image can have."""
        names = ", ".join(repr(thread.name) for thread in self.others() if isinstance(thread, BareThread))
        if names:
            raise ThreadsRunning(
                f"threads that were not started by threading.Thread are running: {names}. Their stacks cannot be part of a "
                "checkpoint: end them before ckpt.enable(), or, if the result does not depend on them, declare them with "
                "ckpt.enable(harmless_threads=[NAME, ...]) or `ckpt run --harmless-threads NAME`"
            )

    def _is_harmless(self, thread: threading.Thread, declared: tuple[str, ...]) -> bool:
        """``declared``: prefixes of names, from :meth:`ckpt.image.interface.registry.Registry.harmless_threads`."""
        if thread is threading.main_thread() or thread.name in _OWN_NAMES or thread in self._threads:
            return True
        if _path_of(thread).startswith(declared):
            return True
        return self._matches(thread.name)

    def _matches(self, name: str) -> bool:
        return any(fnmatch.fnmatchcase(name, pattern) for pattern in self.patterns)


def is_left_out(thread: threading.Thread) -> bool:
    """Is this a thread that a library starts anew after a restart (``left_out_threads``)?"""
    declared = libraries.left_out_threads()
    return bool(declared) and _path_of(thread).startswith(declared)


def _path_of(thread: threading.Thread) -> str:
    """The dotted name of the thread's class or, for a plain ``threading.Thread``, of its function, with a dot at the end;
    "": not known. No code of the program is called."""
    definition: object = type(thread)
    if definition is threading.Thread:
        definition = target_of(thread)
        if type(definition) not in _FUNCTIONS:
            return ""
    return f"{getattr(definition, '__module__', None)}.{getattr(definition, '__qualname__', '')}."


class BareThread(NamedTuple):
    """A thread without a thread object, of `_thread.start_new_thread`; its name is that of its first function."""

    name: str


def bare_threads() -> list[BareThread]:
    """The running threads of the application that have no thread object."""
    running = sys._current_frames()
    # Without our own frame, which would refer to itself by this variable: the program's collector would find garbage.
    own = running.pop(threading.get_ident(), None) is not None
    known = threads_by_ident()  # with the port's helper, which threading.enumerate() leaves out
    if len(running) <= 1 and len(known) == len(running) + own:
        return []
    for ident in list(known):
        running.pop(ident, None)
    found = []
    for frame in running.values():
        first: FrameType = frame
        while first.f_back is not None:
            first = first.f_back
        # the table has a thread only from a moment after its begin until a moment before its end
        module, name = first.f_globals.get("__name__") or "", first.f_code.co_qualname
        path = f"{module}.{name}."
        if not path.startswith((*_OWN_PREFIXES, *libraries.harmless_threads())):
            found.append(BareThread(name))
    return found


def is_library(frame: FrameType) -> bool:
    """Does this frame run code of the library?"""
    name = frame.f_globals.get("__name__") or ""
    return name == "ckpt" or name.startswith("ckpt.")

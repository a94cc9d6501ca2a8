"""Signals that arrive while a library call holds the port's lock wait until it is safe to raise. (driver)

Python runs a signal's handler in the main thread between any two instructions; a KeyboardInterrupt, or a timeout of the
program's own, raised in the middle of a window or a queue would leave it half changed, or the lock held for ever. So the
gate stands before every handler written in Python, those that are there when it is installed and those set afterwards:

    the lock is free                        the handler runs at once
    the main thread sleeps inside `wait`    the same: everything is consistent there, and the sleep ends
    the lock is held otherwise              the signal is remembered; `wait` delivers it before it looks for anything, or
                                            the helper thread sends it again when it finds the lock free: milliseconds later

Where the lock is held and a handler runs all the same, it is released meanwhile: a handler may call the library as anybody
may. The helper thread may then take what the wait was for, so the waiting thread is told to look again.

To be before handlers that a program sets later, and hidden from it and from images, `install` gives the standard module
`signal` another `_signal` to call, whose `signal` and `getsignal` take and give the program's handlers. The functions that
programs import stay the same objects. In a forked child all is let through.

The hot path pays nothing for it. What does not belong here: what a signal means.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable
from types import FrameType, ModuleType
from typing import Any

Handler = Callable[[int, FrameType | None], Any]


class InterruptGate:
    """Defers signals while `lock` is held and `sleeping` is false."""

    def __init__(
        self, lock: threading.Lock, on_deferred: Callable[[], None], on_interrupted: Callable[[], None]
    ) -> None:
        """`on_deferred` is called in the handler when a signal was remembered: rouse whoever delivers it.
        `on_interrupted`: before and after a handler that runs while the main thread waits, under the lock."""
        self._lock = lock
        self._on_deferred = on_deferred
        self._on_interrupted = on_interrupted
        self._handlers: dict[int, Handler] = {}
        """The program's, by signal."""
        self._main_thread: int | None = None
        self._process: int | None = None
        self.sleeping = False
        self.running = 0
        """Handlers of the program that are at work, one within the other."""
        self.pending: deque[int] = deque()

    def install(self) -> None:
        """Stand before all handlers from now on. From the main thread only (ValueError otherwise)."""
        if threading.current_thread() is not threading.main_thread():
            raise ValueError("signals belong to the main thread")
        self._main_thread = threading.get_ident()
        self._process = os.getpid()
        ours = ModuleType("_signal", "The program's handlers behind an InterruptGate.")
        vars(ours).update(vars(_signal), signal=self._set, getsignal=self._get)
        vars(signal)["_signal"] = ours
        for number in _signal.valid_signals():
            handler = _signal.getsignal(number)
            if callable(handler):
                self._set(number, handler)

    def uninstall(self) -> None:
        """Leave everything as it would be without the gate. In another thread, which cannot, nothing happens."""
        if threading.get_ident() == self._main_thread:
            vars(signal)["_signal"] = _signal
            for number in self._handlers:
                _signal.signal(number, self._get(number))
            self._handlers.clear()
            self._main_thread = None

    def fire(self) -> None:
        """Deliver what was remembered, from the main thread, which holds the lock, at a consistent place.

        May raise what handlers raise.
        """
        while (number := self._next()) is not None:
            self._run(number, sys._getframe(), locked=True)

    def redeliver(self) -> None:
        """From another thread, the lock being free: send the main thread its signals again."""
        while self._main_thread is not None and (number := self._next()) is not None:
            signal.pthread_kill(self._main_thread, number)

    def _next(self) -> int | None:
        try:
            return self.pending.popleft()
        except IndexError:
            return None

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() != self._process or not self._lock.locked():
            self._run(number, frame)
        elif self.sleeping:
            self._run(number, frame, locked=True)
        elif number not in self.pending:
            self.pending.append(number)
            self._on_deferred()

    def _run(self, number: int, frame: FrameType | None, *, locked: bool = False) -> None:
        """`locked`: the main thread holds the lock."""
        handler = self._handlers.get(number)
        if handler is None:
            return
        sleeping, self.sleeping = self.sleeping, False
        self.running += 1
        if locked:
            self._on_interrupted()
            self._lock.release()
        try:
            handler(number, frame)
        finally:
            if locked:
                self._lock.acquire()
            self.running -= 1
            self.sleeping = sleeping
            if locked:
                self._on_interrupted()

    def _get(self, signalnum: int) -> Any:
        """The program's handler."""
        handler = _signal.getsignal(signalnum)
        return self._handlers.get(signalnum) if handler == self._handle else handler

    def _set(self, signalnum: int, handler: Any) -> Any:
        """Set the program's handler; the former one."""
        former = self._get(signalnum)
        known = self._handlers.get(signalnum)
        if callable(handler):
            self._handlers[signalnum] = handler  # first: the signal may come at once
        try:
            _signal.signal(signalnum, self._handle if callable(handler) else handler)
        except BaseException:
            self._restore(signalnum, known)
            raise
        if not callable(handler):
            self._restore(signalnum, None)
        return former

    def _restore(self, number: int, handler: Handler | None) -> None:
        if handler is None:
            self._handlers.pop(number, None)
        else:
            self._handlers[number] = handler

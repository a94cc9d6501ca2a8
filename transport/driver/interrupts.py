"""Defers the program's signal handlers while a library call holds the port's lock. (driver)

CPython runs a signal handler in the main thread between any two bytecode instructions. A KeyboardInterrupt, or a timeout of
the program's own, that is raised in the middle of a change of a send window or a queue would leave the structure half
changed, or the lock held for ever. So `InterruptGate` is called in place of every handler written in Python: those that are
set when it is installed, and those that the program sets afterwards.

    the lock is free                        the handler runs at once
    the main thread sleeps inside `wait`    the handler runs at once (all state is consistent there, and the main thread has
                                            let go of the lock), and the sleep ends
    the helper thread has the lock, and     the handler runs at once: the main thread is outside of the library, or about to
    the main thread runs other code         enter it
    the lock is held otherwise              the signal is remembered. The next `progress` or `wait` delivers it before it
                                            handles anything; or the helper thread sends the signal again when it finds the
                                            lock free, some milliseconds later. A signal whose handler
                                            does nothing is not deferred

When a remembered handler runs under the lock, the lock is released for as long as the handler runs, since a handler may
call the library. Another thread may then handle what the wait was for, so the waiting thread is told to look again. While
the main thread takes the lock again (`returning`), no handler runs: an exception there would leave it without the lock.

The gate must also come before handlers that the program sets later, and neither the program nor an image may see it.
Therefore `install` gives the standard module `signal` other functions to call; `signal` and `getsignal` among them
take and return the program's handlers. The functions that programs import from `signal` stay the same objects.
In a forked child no signal is deferred.

The hot path pays nothing for this. What does not belong here: what a signal means.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable
from types import FrameType
from typing import Any

from ckpt.compat import asyncio_names, signals
from ckpt.compat.accelerators import signal as signal_in_c

Handler = Callable[[int, FrameType | None], Any]


class InterruptGate:
    """Defers signals while `lock` is held, or taken again, and `sleeping` is false."""

    def __init__(
        self, lock: threading.Lock, on_deferred: Callable[[], None], on_interrupted: Callable[[], None]
    ) -> None:
        """`lock`: the port's. `on_deferred` is called, inside the signal handler, when a signal was remembered: it has to
        wake the thread that delivers the signal. `on_interrupted` is called before and after a handler that runs while the
        main thread waits."""
        self._lock = lock
        self._on_deferred = on_deferred
        self._on_interrupted = on_interrupted
        self._handlers: dict[int, Handler] = {}
        """The program's handlers, by signal number."""
        self._main_thread: int | None = None
        self._process: int | None = None
        self.sleeping = False
        """The main thread sleeps, without the lock."""
        self.returning = False
        """The main thread takes the lock again."""
        self.held_beside = False
        """The helper thread has the lock."""
        self.running = 0
        """Number of the program's handlers that are running now, nested in each other."""
        self.pending: deque[int] = deque()

    def install(self) -> None:
        """Come before all handlers from now on. Raises ValueError outside the main thread."""
        if threading.current_thread() is not threading.main_thread():
            raise ValueError("signals belong to the main thread")
        self._main_thread = threading.get_ident()
        self._process = os.getpid()
        signals.replace_signal_functions(signal=self._set, getsignal=self._get)
        for number in signal_in_c.valid_signals():
            handler = signal_in_c.getsignal(number)
            if callable(handler) and not signals.is_hidden(handler):
                self._set(number, handler)

    def uninstall(self) -> None:
        """Set the program's handlers directly again. Does nothing outside the main thread, which alone may set handlers."""
        if threading.get_ident() == self._main_thread:
            signals.replace_signal_functions()
            for number in self._handlers:
                signal_in_c.signal(number, self._get(number))
            self._handlers.clear()
            self._main_thread = None

    def fire(self) -> None:
        """Run the handlers of the remembered signals, in the main thread; in another one do nothing. The caller holds the
        lock, or is `sleeping`, and has left all state consistent. Raises what the handlers raise.
        """
        if not self.pending or threading.get_ident() != self._main_thread:
            return
        while (number := self._next()) is not None:
            self._run(number, sys._getframe(), waits=True, locked=not self.sleeping)

    def redeliver(self) -> None:
        """Send the remembered signals to the main thread again. Called by another thread when the lock is free."""
        while self._main_thread is not None and (number := self._next()) is not None:
            signal.pthread_kill(self._main_thread, number)

    def _next(self) -> int | None:
        try:
            return self.pending.popleft()
        except IndexError:
            return None

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() != self._process:
            self._run(number, frame)
        elif self.sleeping:
            self._run(number, frame, waits=True)
        elif not self.returning and (not self._lock.locked() or self._is_outside(frame)):
            self._run(number, frame)
        elif asyncio_names.does_nothing(self._handlers.get(number)):
            return  # asyncio's: its loop has got the number of the signal already, and would get that of another signal, too
        elif number not in self.pending:
            self.pending.append(number)
            self._on_deferred()

    def _is_outside(self, frame: FrameType | None) -> bool:
        """Does the helper thread have the lock, while the main thread runs code of the program? So what a program sends to
        itself is handled before ``os.kill`` returns, as without ckpt."""
        if not self.held_beside or frame is None:
            return False
        return str(frame.f_globals.get("__name__")).partition(".")[0] != "ckpt"

    def _run(
        self, number: int, frame: FrameType | None, *, waits: bool = False, locked: bool = False
    ) -> None:
        """Run the program's handler of a signal. `waits`: the main thread is in a wait, which has to look again. `locked`:
        it holds the lock, which is released meanwhile."""
        handler = self._handlers.get(number)
        if handler is None:
            return
        sleeping, self.sleeping = self.sleeping, False
        self.running += 1
        if waits:
            self._on_interrupted()
        try:
            if locked:
                self._lock.release()
            handler(number, frame)
        finally:
            if locked:
                self.returning = True
                self._lock.acquire()
                self.returning = False
            self.running -= 1
            self.sleeping = sleeping
            if waits:
                self._on_interrupted()

    def _get(self, signalnum: int) -> Any:
        """Return the program's handler, as `signal.getsignal` would without the gate."""
        handler = signal_in_c.getsignal(signalnum)
        if signals.is_hidden(handler):
            return signal.SIG_DFL
        return self._handlers.get(signalnum) if handler == self._handle else handler

    def _set(self, signalnum: int, handler: Any) -> Any:
        """Set the program's handler and return the former one, as `signal.signal` would without the gate."""
        former = self._get(signalnum)
        known = self._handlers.get(signalnum)
        if callable(handler):
            self._handlers[signalnum] = handler  # before the system call: the signal may arrive at once
        try:
            signal_in_c.signal(signalnum, self._handle if callable(handler) else handler)
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

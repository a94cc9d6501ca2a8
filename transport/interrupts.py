"""Signals that arrive while a library call holds the port's lock wait until it is safe to raise. (driver)

Python runs a signal's handler in the main thread between any two instructions; a KeyboardInterrupt raised in
the middle of a window or a queue would leave it half changed. So `InterruptGate.install` puts a handler
before the one in force:

    the lock is free                        the former handler runs at once
    the main thread sleeps inside `wait`    the same: everything is consistent there, and the sleep ends
    the lock is held otherwise              the signal is remembered; `wait` delivers it before it sleeps or
                                            returns, or the helper thread delivers it again when it finds the
                                            lock free: milliseconds later

The hot path pays nothing for it. What does not belong here: what a signal means.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

Handler = Callable[[int, FrameType | None], Any]


class InterruptGate:
    """Defers signals while `lock` is held and `sleeping` is false."""

    def __init__(self, lock: threading.Lock, on_deferred: Callable[[], None]) -> None:
        """`on_deferred` is called in the handler when a signal was remembered: rouse whoever delivers it."""
        self._lock = lock
        self._on_deferred = on_deferred
        self._former: dict[int, Handler] = {}
        self._main_thread: int | None = None
        self.sleeping = False
        self.pending: list[int] = []

    def install(self, *signals: int) -> None:
        """Stand before the present handlers of these signals; those set to default or ignored are left alone.

        From the main thread only (ValueError otherwise, by `signal.signal`).
        """
        self._main_thread = threading.get_ident()
        for number in signals:
            former = signal.getsignal(number)
            if callable(former) and former != self._handle:
                signal.signal(number, self._handle)
                self._former[number] = former

    def uninstall(self) -> None:
        """Put the former handlers back, unless somebody else replaced ours since."""
        for number, former in self._former.items():
            if signal.getsignal(number) == self._handle:
                signal.signal(number, former)
        self._former.clear()

    def fire(self) -> None:
        """Deliver what was remembered, from the main thread at a consistent place.

        May raise what handlers raise.
        """
        while self.pending:
            number = self.pending.pop(0)
            former = self._former.get(number)
            if former is not None:
                former(number, None)

    def redeliver(self) -> None:
        """From another thread, the lock being free: send the main thread its signals again."""
        if self._main_thread is not None:
            while self.pending:
                signal.pthread_kill(self._main_thread, self.pending.pop(0))

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.sleeping or not self._lock.locked():
            self._former[number](number, frame)
        elif number not in self.pending:
            self.pending.append(number)
            self._on_deferred()

"""The thread that makes progress while the application computes. (driver)

It only tries the port's lock. Its states, and what ends each:

    ticking    the application was in the library since the last tick: look again in 5 ms
    watching   it was not: everything is drained, so sleep on the wire's, the control and the rouse descriptor
               until the next deadline. The application rouses it on its way into the library, since two
               sleepers on one descriptor would both wake for every message; from then on it is ticking
    parked     the lock was taken at many ticks in a row and the application sleeps inside wait(): it serves
               the port itself. Sleep until it rouses us on its way out

So it costs nothing while all is idle, two hundred short wake-ups a second while the application communicates,
and answers at once while the application computes for long. A wire's descriptor tells of a frame only after a
look that found none; that holds when watching begins, since the helper has just drained the wire and nobody
was in the library since.

What a callback raises is kept for the application's thread. Not for forked children: a fork has no helper.
"""

from __future__ import annotations

import os
import select
import threading
import time
from typing import TYPE_CHECKING

from ckpt.transport.wires import owned

if TYPE_CHECKING:
    from ckpt.transport.driver.port import Port

TICK_NS = 5_000_000
WATCH_LONGEST_NS = 1_000_000_000
PARK_AFTER_TICKS = 8
PARK_LONGEST_NS = 100_000_000
MOST_ROUNDS = 8
"""Rounds of progress in one tick: the application may be waiting for the lock."""


class _Thread(threading.Thread):
    """A program that has its threads renumbered (gevent) is not told of the end of this one by a traceback."""

    def _delete(self) -> None:
        threading._active.pop(self.ident, None)  # type: ignore[attr-defined]


class ProgressHelper:
    """The helper of one port."""

    def __init__(self, port: Port, wire_fd: int, control_fd: int | None) -> None:
        self._port = port
        self._rouse_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._everything = select.epoll()
        self._everything.register(wire_fd, select.EPOLLIN)
        self._rousing = select.epoll()
        for poller in (self._everything, self._rousing):
            poller.register(self._rouse_fd, select.EPOLLIN)
        self._made = (self._rouse_fd, self._everything.fileno(), self._rousing.fileno())
        owned.note(*self._made)
        self.watch(None, control_fd)
        self._stopping = False
        self._thread = _Thread(target=self._run, name="port-helper", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread and wait for it."""
        self._stopping = True
        self.rouse()
        if threading.current_thread() is not self._thread:
            self._thread.join()
            owned.forget(*self._made)
            self._everything.close()
            self._rousing.close()
            os.close(self._rouse_fd)

    def rouse(self) -> None:
        """End the thread's present sleep."""
        os.eventfd_write(self._rouse_fd, 1)

    def watch(self, former_fd: int | None, fd: int | None) -> None:
        """Replace the control descriptor."""
        if former_fd is not None:
            self._everything.unregister(former_fd)
        if fd is not None:
            self._everything.register(fd, select.EPOLLIN)

    def _run(self) -> None:
        port = self._port
        seen_entries = -1
        busy_ticks = 0
        while not self._stopping:
            if not port.lock.acquire(blocking=False):
                busy_ticks += 1
                if port.on_idle_tick is not None:
                    port.on_idle_tick()
                self._rest(parked=busy_ticks >= PARK_AFTER_TICKS)
                continue
            busy_ticks = 0
            quiet = port.entries == seen_entries
            seen_entries = port.entries
            try:
                quiet = self._tick() and quiet
                watch_ns = port.next_deadline_ns()
                port.helper_watching = quiet
            finally:
                port.lock.release()
            if port.interrupts.pending:
                port.interrupts.redeliver()
            if port.on_idle_tick is not None:
                port.on_idle_tick()
            if quiet:
                longest_ns = port.attentive_ns or WATCH_LONGEST_NS
                self._nap(self._everything, min(watch_ns - time.monotonic_ns(), longest_ns))
                port.helper_watching = False
            else:
                self._nap(self._rousing, TICK_NS)

    def _tick(self) -> bool:
        """Make progress until nothing is left to do; False when there is still more."""
        port = self._port
        port.counts["helper_ticks"] += 1
        try:
            for _ in range(MOST_ROUNDS):
                if not port.pump():
                    return True
        except BaseException as failure:
            # Raised again where somebody can see it: in the application's next call.
            port.fail(failure)
        return False

    def _rest(self, *, parked: bool) -> None:
        """The application is in the library: stay out of its way."""
        port = self._port
        if parked and port.interrupts.sleeping:
            port.helper_parked = True
            if port.interrupts.sleeping:  # still: it will see the flag on its way out
                self._nap(self._rousing, PARK_LONGEST_NS)
            port.helper_parked = False
        else:
            self._nap(self._rousing, TICK_NS)

    def _nap(self, poller: select.epoll, sleep_ns: int) -> None:
        if self._stopping or sleep_ns <= 0:
            return
        for fd, _ in poller.poll(sleep_ns / 1e9):
            if fd == self._rouse_fd:
                try:
                    os.eventfd_read(fd)
                except BlockingIOError:
                    pass  # read already

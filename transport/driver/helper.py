"""The thread that makes progress while the application computes. (driver)

The helper thread only tries to take the port's lock, so that the application never waits for a hand-off. Its states, and
what ends each:

    ticking    the application was in the library since the last tick. The helper looks again in 5 ms
    watching   the application was not in the library and the wire is drained. The helper sleeps on the wire's, the
               control and its own wake-up descriptor (`wake`) until the next deadline. The application wakes it when it
               enters the library, since two threads that sleep on one descriptor would both wake for every message.
               The next state is ticking
    parked     the application was in the library at many ticks in a row and sleeps inside wait(), so the application
               itself makes progress. The helper sleeps until the application wakes it when it leaves the library,
               at most 100 ms
    starving   the application held the lock at many ticks in a row, and has made no progress since the last tick: one
               that reads memory of others all the time gives up the interpreter's lock only in the reads, and so while it
               holds the port's. The helper waits for the port's lock, one tick at most. The next state is ticking

Where the application has several threads the helper ticks while one of them sleeps inside wait(): others may send
meanwhile, and need their timers. Where threads wait and none sleeps inside wait(), the helper watches at once.

So the helper costs nothing while all is idle and two hundred short wake-ups a second while the application communicates,
and it answers peers at once while the application computes for long. A wire's descriptor becomes readable for a frame only
after a `receive` that returned None. That holds when watching begins: the helper has just drained the wire, and no other
thread was in the library since.

An exception of a callback is kept and raised in the application's thread. A forked child has no helper thread.
"""

from __future__ import annotations

import os
import select
import threading
import time
from typing import TYPE_CHECKING

from ckpt.compat.accelerators import signal
from ckpt.compat.stdlib import OwnThread
from ckpt.compat.threads import running_count
from ckpt.transport.wires import owned

if TYPE_CHECKING:
    from ckpt.transport.driver.port import Port

TICK_NS = 5_000_000
WATCH_LONGEST_NS = 1_000_000_000
PARK_AFTER_TICKS = 8
PARK_LONGEST_NS = 100_000_000
_ALONE = 1
"""So many threads of Python run beside the main thread in an application that has none: the helper."""
MOST_ROUNDS = 8
"""Rounds of progress in one tick: the application may be waiting for the lock."""


class ProgressHelper:
    """The helper thread of one port, and the descriptors that it sleeps on."""

    def __init__(self, port: Port, wire_fd: int, control_fd: int | None) -> None:
        self._port = port
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._all_poller = select.epoll()
        self._all_poller.register(wire_fd, select.EPOLLIN)
        self._wake_poller = select.epoll()
        for poller in (self._all_poller, self._wake_poller):
            poller.register(self._wake_fd, select.EPOLLIN)
        self._event_fds = (self._wake_fd, self._all_poller.fileno(), self._wake_poller.fileno())
        owned.note(*self._event_fds)
        self.watch(None, control_fd)
        self._stopping = False
        self._thread = OwnThread(target=self._run, name="port-helper", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()
        owned.note_thread(self._thread)

    def stop(self) -> None:
        """End the thread and wait for it."""
        self._stopping = True
        self.wake()
        if threading.current_thread() is not self._thread:
            self._thread.join()
            owned.forget(*self._event_fds)
            self._all_poller.close()
            self._wake_poller.close()
            os.close(self._wake_fd)

    def wake(self) -> None:
        """End the thread's present sleep."""
        os.eventfd_write(self._wake_fd, 1)

    def watch(self, former_fd: int | None, fd: int | None) -> None:
        """Watch the control descriptor `fd` instead of `former_fd` (None: no descriptor)."""
        if former_fd is not None:
            self._all_poller.unregister(former_fd)
        if fd is not None:
            self._all_poller.register(fd, select.EPOLLIN)

    def _run(self) -> None:
        # A signal that came here would be in the pipe of an event loop some time after the program has sent it to itself.
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        port = self._port
        seen_entries = -1
        busy_ticks = 0
        progressed_ns = 0
        while not self._stopping:
            # Two threads that sleep on one descriptor would both wake for every message.
            sleeps = port.interrupts.sleeping
            alone = sleeps and running_count() <= _ALONE
            long = busy_ticks >= PARK_AFTER_TICKS
            starving = long and not sleeps and port.control_checked_ns == progressed_ns
            progressed_ns = port.control_checked_ns
            if alone or not port.lock.acquire(timeout=TICK_NS / 1e9 if starving else 0):
                busy_ticks += 1
                if port.on_idle_tick is not None:
                    port.on_idle_tick()
                self._sleep_while_locked(parked=long)
                continue
            busy_ticks = 0
            port.interrupts.held_beside = True
            idle = not sleeps and (port.entries == seen_entries or bool(port.waiters.entries))
            seen_entries = port.entries
            try:
                idle = self._tick() and idle
                watch_ns = port.next_deadline_ns()
                port.helper_watching = idle
            finally:
                port.interrupts.held_beside = False
                port.lock.release()
            if port.interrupts.pending:
                port.interrupts.redeliver()
            if port.on_idle_tick is not None:
                port.on_idle_tick()
            if idle:
                longest_ns = port.attentive_ns or WATCH_LONGEST_NS
                self._sleep(self._all_poller, min(watch_ns - time.monotonic_ns(), longest_ns))
                port.helper_watching = False
            else:
                self._sleep(self._wake_poller, TICK_NS)

    def _tick(self) -> bool:
        """Make progress until nothing is left to do; False when there may be more, or when progress raised."""
        port = self._port
        port.counts["helper_ticks"] += 1
        try:
            for _ in range(MOST_ROUNDS):
                if not port.pump():
                    return True
                if port.on_helped is not None:
                    port.on_helped()
        except BaseException as failure:
            # An exception in this thread would go unseen: the application's next call raises it again.
            port.fail(failure)
        return False

    def _sleep_while_locked(self, *, parked: bool) -> None:
        """Sleep while the application holds the lock: for one tick or, when `parked`, until the application's wait ends."""
        port = self._port
        if parked and port.interrupts.sleeping:
            port.helper_parked = True
            if port.interrupts.sleeping:  # it still sleeps, so it will see the flag when it wakes
                self._sleep(self._wake_poller, PARK_LONGEST_NS)
            port.helper_parked = False
        else:
            self._sleep(self._wake_poller, TICK_NS)

    def _sleep(self, poller: select.epoll, sleep_ns: int) -> None:
        if self._stopping or sleep_ns <= 0:
            return
        for fd, _ in poller.poll(sleep_ns / 1e9):
            if fd == self._wake_fd:
                try:
                    os.eventfd_read(fd)
                except BlockingIOError:
                    pass  # read already

"""Deadlines and warnings of the reductions that are under way: what the thread waits for beside its work. (driver)

A reduction has a timer until it is done. The thread sleeps until the first of them; it is woken for a new one only if that
comes before: to wake it for each call costs more than a short reduction.

Not here: what is done when one has run out (posted.py), the thread (service.py).
"""

from __future__ import annotations

import time

from ckpt.reduction.messages import Key

AWAKE = 1 << 63
"""For `wakes_ns`: the thread has not looked at the timers since; it may have to be woken."""


class Timers:
    """Moments of the monotonic clock, in nanoseconds. `add` and `drop` need the lock, the others are the thread's."""

    def __init__(self) -> None:
        self.due_ns: dict[tuple[Key, str], int] = {}
        self.wakes_ns = AWAKE

    def add(self, key: Key, what: str, after_ns: int) -> bool:
        """A new one; True: the thread is to be woken, since it sleeps for longer."""
        self.due_ns[key, what] = due_ns = time.monotonic_ns() + after_ns
        return due_ns < self.wakes_ns

    def drop(self, key: Key) -> None:
        """A reduction is done."""
        for each in [each for each in self.due_ns if each[0] == key]:
            del self.due_ns[each]

    def sleep_s(self) -> float | None:
        """How long the thread may sleep; None: until it is woken. What is added from now on before that wakes it."""
        self.wakes_ns = AWAKE  # before the look: what is added meanwhile wakes the thread in any case
        first_ns = min(list(self.due_ns.values()), default=AWAKE)
        if first_ns == AWAKE:
            return None
        self.wakes_ns = first_ns
        return max(0.0, (first_ns - time.monotonic_ns()) / 1e9)

    def take(self) -> list[tuple[Key, str]]:
        """Those that have run out, once each."""
        now_ns = time.monotonic_ns()
        found = [each for each, due_ns in list(self.due_ns.items()) if due_ns <= now_ns]
        for each in found:
            self.due_ns.pop(each, None)
        return found

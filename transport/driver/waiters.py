"""Threads of a program that wait inside of the library at once: who is woken when one of them has made progress. Pure.

One thread at a time makes progress: it *leads*. The main thread leads while it waits in the library, the port's helper
thread while the main thread is elsewhere. All other threads wait *beside*, each at a bell of its own.

::

    (lock held, condition false) ──enter──▶ waits (lock free) ──wake, or time over──▶ (lock held) ──leave──▶ looks again
                                              ▲        │
                                              └────────┘  progress that is not what it awaits

Rules

- A thread enters under the port's lock, in the same hold of it in which its condition was false, and lets go of the lock
  only then. Whoever makes progress has the lock. So nothing can become true between look and wait: no wake-up is lost.
- Whoever has made progress calls :meth:`Waiters.wake` before it lets go of the lock.
- A bell is rung once for each wait, however much progress is made before its thread comes to the lock.
- Who is woken looks at its condition again. Being woken in vain is right, but costs time.

The main thread enters, too, while it sleeps on the port's descriptors: another thread that enters the library meanwhile may
handle what it waits for.

Not here: locks, descriptors and time (port.py), what a thread waits for (the owner of the port knows).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

__all__ = ["Bell", "Wait", "Waiters"]


class Bell(Protocol):
    """What wakes one thread: a lock that is held until then, or something like it."""

    def release(self) -> None: ...


class Wait:
    """One wait of a thread. ``is_woken``: its bell has been rung."""

    __slots__ = ("awaited", "is_hungry", "is_woken")

    def __init__(self, awaited: Any = None, is_hungry: bool = False) -> None:
        self.awaited = awaited
        self.is_hungry = is_hungry
        self.is_woken = False


class Waiters:
    """The threads that wait, in the order in which they came. The caller of every method holds the port's lock."""

    __slots__ = ("entries",)

    def __init__(self) -> None:
        self.entries: dict[Bell, Wait] = {}

    def enter(self, bell: Bell, awaited: Any = None, *, is_hungry: bool = False) -> None:
        """A thread is about to wait. ``awaited``: what for; None: any progress. ``is_hungry``: for a message that is not in
        the mailbox."""
        self.entries[bell] = Wait(awaited, is_hungry)

    def enter_again(self, bell: Bell, wait: Wait) -> None:
        """The same for a thread that waits often, with an object of its own: quicker."""
        wait.is_woken = False
        self.entries[bell] = wait

    def leave(self, bell: Bell) -> None:
        """A thread has come back. One that has not entered may leave: it waits since before a restart."""
        self.entries.pop(bell, None)

    def wake(self, is_due: Callable[[Any], bool]) -> None:
        """Progress was made. ``is_due(awaited)``: may a thread that waits for this go on?"""
        for bell, wait in self.entries.items():
            if not wait.is_woken and (wait.awaited is None or is_due(wait.awaited)):
                wait.is_woken = True
                bell.release()

    @property
    def are_coming(self) -> bool:
        """Has one of them been woken that has not come back yet? It needs the lock: nobody is to look for long now."""
        return any(wait.is_woken for wait in self.entries.values())

    @property
    def are_hungry(self) -> bool:
        """Does one of them wait for a message that is not in the mailbox?"""
        return any(wait.is_hungry for wait in self.entries.values())

"""Requests to the windows and parallel files of one rank, which all its replicas handle in one order. Pure.

What a window holds, who has its lock, and what a `Get` or `Fetch_and_op` brings follow from the order in which the
target has handled requests. Those of one rank come in the order of its program, so what has to be agreed on is of which
rank the next one is. The leader takes them as they come; a follower keeps each until it is its turn. Requests of a rank
to itself have their turn, too, and so have those to windows that are not open yet. From equal orders follow equal
memory, locks and answers; and a program that looks at its own memory only where it is synchronized with those who
change it (a fence, `Wait`, a lock that excludes them) finds the same.

A program may also wait until its memory changes: it calls `Sync`, or locks itself, and looks, again and again. How often
must be the same in all replicas. So such a call asks how many requests have been handled, a follower handles as many,
and from then on all are *still*, until the program's next call: then a new period begins. A choice tells the leader's
period, and a follower does not handle the request before its program is there. A new leader takes no request of its
own choice before it has come to all questions that are answered: an answer may say how many requests there were.

A request to write to a parallel file (`pending`) waits, with all behind it, until every replica of the rank has come to it:
see :class:`ckpt.redundancy.agreement.requests.Serves`.

Not here: who leads (order.py), what a request does (ckpt/mpi/rma/target.py, ckpt/mpi/io/writer.py).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from ckpt.redundancy.agreement.order import MISSING, REQUEST, Key

__all__ = ["Turns"]

Turn = tuple[Key, int, bytes, bool]
"""The key of a choice, the source of the request, the request; is the choice to be made?"""


class Turns:
    """Requests to windows of this rank that have come. `handled`: how many of them have been handled; `period`: how often
    the program has looked at its memory (see the header); `still`: it looks now; `pending`: a write whose turn it is, with
    its digest; `written`: how many there were before."""

    pending: tuple[int, bytes, str] | None = None
    written = 0

    def __init__(self) -> None:
        self.handled = 0
        self.period = 0
        self.still = False
        self._waiting: dict[int, deque[tuple[int, bytes]]] = {}
        self._serial = 0

    def add(self, source: int, data: bytes) -> None:
        """A request has come."""
        self._serial += 1
        self._waiting.setdefault(source, deque()).append((self._serial, data))

    def take(self, look_up: Callable[[Key], Any], *, leads: bool) -> Turn | None:
        """The request that is to be handled now, by the choices that are known, or by the first that has come where this
        replica leads; None: it is not here, not known yet, or it is not the time."""
        if self.pending is not None:
            return None
        key = REQUEST, self.handled
        choice = look_up(key)
        if self.still or (choice is MISSING and not (leads and self._waiting)):
            return None
        is_new = choice is MISSING
        if is_new:
            choice = min(self._waiting, key=lambda each: self._waiting[each][0][0]), self.period
        source, period = choice
        if period > self.period or source not in self._waiting:
            return None
        queue = self._waiting[source]
        _, data = queue.popleft()
        if not queue:
            del self._waiting[source]
        self.handled += 1
        return key, source, data, is_new

    def take_all(self) -> list[tuple[int, bytes]]:
        """All of them, with their sources, in the order in which they have come: there are no other replicas any more."""
        found = [(serial, source, data) for source, queue in self._waiting.items() for serial, data in queue]
        self._waiting, self.still = {}, False
        first = [] if self.pending is None else [self.pending[:2]]
        self.pending = None
        return first + [(source, data) for _, source, data in sorted(found)]

    def begin_period(self) -> bool:
        """The program does something else than to look at its memory. Had it looked?"""
        was_still, self.still = self.still, False
        self.period += was_still
        return was_still

    @property
    def has_waiting(self) -> bool:
        """Is a request here that has not been handled?"""
        return bool(self._waiting) or self.pending is not None

    def is_behind(self, look_up: Callable[[Key], Any]) -> bool:
        """Is there a choice of the next request, which others may have handled already?"""
        choice = look_up((REQUEST, self.handled))
        return choice is not MISSING and choice[1] <= self.period

    def awaits(self, look_up: Callable[[Key], Any]) -> bool:
        """Has the next request been chosen, and has not come?"""
        choice = look_up((REQUEST, self.handled))
        return choice is not MISSING and choice[0] not in self._waiting

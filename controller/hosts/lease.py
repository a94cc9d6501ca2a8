"""The lease of a host: so long its ranks may run without a word of the controller. Pure.

    agent        counts from when it *sent* its last renewal that was answered; when the lease is over, it kills its ranks
    controller   answers a renewal only while it has not given the host up; it starts other ranks only when the lease is over
                 by its own clock, counted from when the last renewal that it answered *came*, which is later, and a margin

The margin covers clocks whose rates are wrong by up to one percent each, and the time that the agent needs to kill its
ranks (a second). Both clocks go on while a machine is suspended (CLOCK_BOOTTIME).

Limit: processes of a host that was frozen for longer than its lease may run for an instant when it wakes, before its agent
does. What they send to other ranks is refused (an older incarnation), and they can commit nothing; what they write into
files and to others outside the job in that instant cannot be prevented from here.

Source: Gray and Cheriton, "Leases: an efficient fault-tolerant mechanism for distributed file cache consistency" (1989).
"""

from __future__ import annotations

from collections import deque

__all__ = ["LEAST_LEASE_NS", "AgentLease", "margin_ns", "over_ns"]

LEAST_LEASE_NS = 1_000_000_000
_KILL_NS = 1_100_000_000
_RENEWALS = 5
"""So many renewals are sent in the time of one lease."""


def margin_ns(lease_ns: int) -> int:
    """What the controller adds to the lease."""
    return lease_ns // 40 + _KILL_NS


def over_ns(came_ns: int, lease_ns: int) -> int:
    """When, by the controller's clock, no rank of a host runs whose last answered renewal came at `came_ns`."""
    return came_ns + lease_ns + margin_ns(lease_ns)


class AgentLease:
    """The agent's side. All times are of its own clock."""

    def __init__(self, lease_ns: int, now_ns: int, first: int = 0) -> None:
        """`now_ns`: when the agent asked to join, which is the renewal of number `first`."""
        self.lease_ns = lease_ns
        self.first = first
        self._sent: deque[tuple[int, int]] = deque([(first, now_ns)])
        self._valid_from_ns: int | None = None
        self._next = first + 1
        self._due_ns = now_ns + lease_ns // _RENEWALS

    def again(self, now_ns: int) -> AgentLease:
        """A new lease after this one, which is over, asked for now. Its renewals have higher numbers, so that answers to
        earlier ones, which may come late, do not begin it."""
        return AgentLease(self.lease_ns, now_ns, self._next)

    @property
    def has_begun(self) -> bool:
        """Has the controller answered once? Before that, there are no ranks."""
        return self._valid_from_ns is not None

    def renewal(self, now_ns: int) -> int | None:
        """The number of the renewal that is to be sent now; None: none is due."""
        if now_ns < self._due_ns:
            return None
        number = self._next
        self._next += 1
        self._sent.append((number, now_ns))
        self._due_ns = now_ns + self.lease_ns // _RENEWALS
        return number

    def answered(self, number: int) -> None:
        """The controller has answered the renewal of this number."""
        while self._sent and self._sent[0][0] <= number:
            sent_ns = self._sent.popleft()[1]
            self._valid_from_ns = max(sent_ns, self._valid_from_ns or 0)

    def is_over(self, now_ns: int) -> bool:
        """Must all ranks be killed now?"""
        return self._valid_from_ns is not None and now_ns >= self._valid_from_ns + self.lease_ns

    def deadline_ns(self) -> int:
        """When `renewal` or `is_over` is to be asked next."""
        if self._valid_from_ns is None:
            return self._due_ns
        return min(self._due_ns, self._valid_from_ns + self.lease_ns)

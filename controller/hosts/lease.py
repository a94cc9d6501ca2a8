"""The lease of a host: for how long its ranks may run without a word from the controller. Pure.

    agent        counts from when it *sent* its last renewal that was answered; when the lease is over, it kills its ranks
    controller   answers a renewal only while it has not given the host up; it starts other ranks only when the lease is over
                 by its own clock, counted from when the last renewal that it answered *came*, which is later, and a margin

An agent whose controller does not answer may look into the job's journal, too: a look that finds neither that another
controller has taken over nor that its host was given up lets its ranks run until *half* a lease after its beginning
(`look_is_due` says when, and for how long it goes on so). A controller whose agents do that writes a record before it counts
on the end of a host that it has not heard of (`Fleet`), after half a lease of silence: so a host that is silent costs no
more time than without. A look counts for nothing before this very controller has answered once. The first look that finds
that another controller has taken over counts for half a lease, too: in that time the other one has to answer.

The margin covers clocks whose rates are wrong by up to one percent each, and the time that the agent needs to kill its
ranks (a second). Both clocks go on while a machine is suspended (CLOCK_BOOTTIME).

The agent's fork server is told of each new end, and kills its ranks by itself when that has passed (`until_ns`): an agent
may stand still alone, stopped or in a read of a file system that hangs, and its ranks not.

A renewal that is sent late shows that the host, or the agent alone, stood still: frozen, suspended, without a core. The
longest such time is kept (`stall`): with a lease that is not much longer the host will be given up one day.

Limit: processes of a host that was frozen for longer than its lease may run for an instant when it wakes, before its agent
does. What they send to other ranks is refused (an older incarnation), and they can commit nothing; what they write into
files and to others outside the job in that instant cannot be prevented from here.

Source: Gray and Cheriton, "Leases: an efficient fault-tolerant mechanism for distributed file cache consistency" (1989).
"""

from __future__ import annotations

from collections import deque

__all__ = ["JOIN_LIMIT_LEASES", "LEAST_LEASE_NS", "AgentLease", "alone_ns", "look_ns", "margin_ns", "over_ns"]

LEAST_LEASE_NS = 1_000_000_000
JOIN_LIMIT_LEASES = 10
"""So long an agent asks for its first lease, or for a new one."""
_KILL_NS = 1_100_000_000
_RENEWALS = 5
"""So many renewals are sent in the time of one lease."""
_UNANSWERED = 2
"""After so many of these times without an answer the agent looks into the journal."""
_ALONE_LEASES = 40
"""So long ranks go on without a controller."""


def margin_ns(lease_ns: int) -> int:
    """What the controller adds to the lease."""
    return lease_ns // 40 + _KILL_NS


def look_ns(lease_ns: int) -> int:
    """So long a look into the journal counts, from its beginning. After such a silence a controller records that the ranks
    of a host may not go on."""
    return lease_ns // 2


def over_ns(came_ns: int, lease_ns: int, recorded_ns: int | None = None) -> int:
    """When, by the controller's clock, no rank of a host runs whose last answered renewal came at `came_ns`.

    `recorded_ns`: when the journal said that its ranks may not go on; None: its agent does not look there."""
    until = came_ns + lease_ns
    if recorded_ns is not None:
        until = max(until, recorded_ns + look_ns(lease_ns))
    return until + margin_ns(lease_ns)


def alone_ns(came_ns: int, lease_ns: int) -> int:
    """The same where that could not be written down: when the agent has looked into the journal for as long as it may."""
    longest = _ALONE_LEASES * lease_ns + look_ns(lease_ns)
    return came_ns + longest + margin_ns(longest)


class AgentLease:
    """The agent's side. All times are of its own clock."""

    def __init__(self, lease_ns: int, now_ns: int, first: int = 0) -> None:
        """`now_ns`: when the agent asked to join, which is the renewal of number `first`."""
        self.lease_ns = lease_ns
        self.first = first
        self._sent: deque[tuple[int, int]] = deque([(first, now_ns)])
        self._valid_from_ns: int | None = None
        self._kept_ns: int | None = (
            None  # until then ranks may run, by a look or by the controller before this one
        )
        self._next = first + 1
        self._longest_stall_ns = 2 * lease_ns // _RENEWALS
        self._asked_ns = now_ns
        self._due_ns = now_ns + lease_ns // _RENEWALS

    def again(self, now_ns: int) -> AgentLease:
        """A new lease after this one, which is over, asked for now. Its renewals have higher numbers, so that answers to
        earlier ones, which may come late, do not begin it."""
        return self._next_one(now_ns, self._next)

    def handed_on(self, now_ns: int) -> AgentLease:
        """The lease of the next controller, which is asked for it now. Until it has answered, ranks may run as long as
        before."""
        lease = self._next_one(now_ns, 0)
        lease._kept_ns = self.until_ns()
        return lease

    def _next_one(self, now_ns: int, first: int) -> AgentLease:
        lease = AgentLease(self.lease_ns, now_ns, first)
        lease._longest_stall_ns = self._longest_stall_ns
        return lease

    @property
    def has_begun(self) -> bool:
        """Has the controller answered once? Before that, there are no ranks."""
        return self._valid_from_ns is not None

    def stall(self, now_ns: int) -> int | None:
        """For how long this agent has stood still, if that is two fifths of the lease or more, and longer than ever before;
        else None. To be asked before `renewal`."""
        late_ns = now_ns - self._due_ns
        if late_ns < self._longest_stall_ns:
            return None
        self._longest_stall_ns = late_ns + 1
        return late_ns

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

    @property
    def heard_ns(self) -> int:
        """When the last renewal was sent that is answered; before there is one: when the lease was asked for."""
        return self._asked_ns if self._valid_from_ns is None else self._valid_from_ns

    def look_is_due(self, now_ns: int) -> bool:
        """Is the controller silent, so that the agent is to look into the journal?"""
        if self.until_ns() is None:
            return False
        silent_ns = now_ns - self.heard_ns
        return (
            _UNANSWERED * self.lease_ns // _RENEWALS <= silent_ns < _ALONE_LEASES * self.lease_ns
            and not self.is_over(now_ns)
        )

    def looked(self, began_ns: int) -> None:
        """A look into the journal that began then has found neither a takeover nor that this host was given up."""
        if self._valid_from_ns is not None:
            self._kept_ns = max(began_ns + look_ns(self.lease_ns), self._kept_ns or 0)

    def taken_over(self, began_ns: int) -> None:
        """A look that began then has found another controller; to be called once for each."""
        until_ns = self.until_ns()
        if until_ns is not None:
            self._kept_ns = max(began_ns + look_ns(self.lease_ns), until_ns)

    def is_over(self, now_ns: int) -> bool:
        """Must all ranks be killed now?"""
        until_ns = self.until_ns()
        return until_ns is not None and now_ns >= until_ns

    def deadline_ns(self) -> int:
        """When `renewal` or `is_over` is to be asked next."""
        until_ns = self.until_ns()
        return self._due_ns if until_ns is None else min(self._due_ns, until_ns)

    def until_ns(self) -> int | None:
        """When ranks have to be killed, as it stands now; None: the lease has not begun."""
        leased_ns = None if self._valid_from_ns is None else self._valid_from_ns + self.lease_ns
        return max((each for each in (leased_ns, self._kept_ns) if each is not None), default=None)

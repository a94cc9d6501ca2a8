"""Agreement of the members of a communicator on one value, while members may die at any moment. Pure.

Every member contributes one value. All members that stay alive decide the same result, and the result is combined from
the contributions of at least all these members. The *coordinator* combines: it is the member with the lowest rank that is
not known to have failed. If the coordinator dies, the next member takes its place. That is safe, because a value is decided
only when every living member has accepted it:

    member ──report──▶ coordinator        the member's contribution, last proposal seen, and decision
    coordinator ──propose──▶ members      when every living member has reported
    member ──accepted──▶ coordinator
    coordinator ──decide──▶ members       when every living member has accepted

Rules
- Failure reports are true and final: a member that is reported dead is dead, and in the end every living member gets
  the report.
- A member that hears of its coordinator's death reports to the next coordinator, and from then on ignores messages of the
  dead one. The member does so even when it has decided, as long as it remembers the agreement.
- A new coordinator proposes the newest proposal in its reports. Only if no report holds a proposal, the coordinator
  combines a value. If a report holds a decision, the coordinator passes on the decision.

Why all survivors agree: before a coordinator decided value v, all living members had accepted v. So every report to a
later coordinator holds v, as the newest proposal or as a decision. Why no member waits for ever: a member that others wait
for answers, or is reported dead.

A member may forget a decision once all members have it. For that, a report says up to which number its sender has decided
every agreement (`low`), and a decision carries the smallest of these numbers.

Not here: sending, the meaning of contributions (`combine`), the numbering of agreements (failures.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

REPORT = "report"
PROPOSE = "propose"
ACCEPTED = "accepted"
DECIDE = "decide"

Message = tuple[Any, ...]
Outgoing = list[tuple[int, Message]]
Combine = Callable[[dict[int, Any], frozenset[int]], Any]
"""(contributions by member, members known to have failed) -> value. Called at the coordinator only."""


class Agreement:
    """One agreement at one member. The methods return the messages to send, as (member, message).

    Reports may come before this member takes part (`start`). No other message can come before, because a coordinator
    proposes only when it has the reports of all members.
    """

    __slots__ = (
        "accepted",
        "ballot",
        "combine",
        "decided",
        "failed",
        "low",
        "me",
        "members",
        "mine",
        "proposal",
        "reports",
        "started",
        "value",
    )

    def __init__(self, me: int, failed: set[int]) -> None:
        self.me = me
        self.failed = set(failed)
        self.members: tuple[int, ...] = ()
        self.started = self.decided = False
        self.value: Any = None
        self.mine: Any = None
        self.combine: Combine | None = None
        self.reports: dict[int, tuple[Any, Any, bool, Any, int]] = {}
        """Reports by member: (contribution, proposal as (ballot, value) or None, whether decided, decision, low)."""
        self.proposal: tuple[int, Any] | None = None
        self.ballot: int | None = None
        """Ballot number of this member's own proposal; None: this member has proposed nothing."""
        self.accepted: set[int] = set()
        self.low = 0

    def start(self, members: tuple[int, ...], mine: Any, combine: Combine, low: int) -> Outgoing:
        """Take part with the contribution `mine`.

        low: this member has decided every agreement of the communicator with a smaller number."""
        self.members = tuple(sorted(members))
        self.mine, self.combine, self.low, self.started = mine, combine, low, True
        return self._report()

    def receive(self, src: int, message: Message) -> Outgoing:
        """Handle a message of the member `src`."""
        if src in self.failed:
            return []
        kind = message[0]
        if kind == REPORT:
            self.reports[src] = message[1:]
            if self.started and self.decided:
                return [] if message[3] else [(src, (DECIDE, self.value, self.low))]
            return self._lead() if self.started else []
        if kind == PROPOSE:
            self.proposal = (message[1], message[2])
            return [(src, (ACCEPTED, message[1]))]
        if kind == ACCEPTED:
            if message[1] == self.ballot:
                self.accepted.add(src)
            return self._lead()
        self._decide(message[1], message[2])
        return []

    def lost(self, member: int) -> Outgoing:
        """Handle the report that a member has failed."""
        if member in self.failed:
            return []
        before = self.coordinator() if self.started else None
        self.failed.add(member)
        if not self.started:
            return []
        return self._report() if before == member else self._lead()

    def coordinator(self) -> int:
        """The coordinator, as far as this member knows of failures."""
        for member in self.members:
            if member not in self.failed:
                return member
        return self.me

    # -- the inside --------------------------------------------------------------------------------

    def _report(self) -> Outgoing:
        coordinator = self.coordinator()
        if coordinator == self.me:
            if self.decided:
                # Answer reports that came before the decision, or before this member became the coordinator.
                waiting = [
                    other for other in self._others() if other in self.reports and not self.reports[other][2]
                ]
                return [(other, (DECIDE, self.value, self.low)) for other in waiting]
            return self._lead()
        return [(coordinator, (REPORT, self.mine, self.proposal, self.decided, self.value, self.low))]

    def _others(self) -> list[int]:
        return [member for member in self.members if member != self.me and member not in self.failed]

    def _lead(self) -> Outgoing:
        """If this member is the coordinator: propose when all reports are here, decide when all have accepted."""
        if self.coordinator() != self.me:
            return []
        others = self._others()
        out: Outgoing = []
        if not self.decided and self.ballot is None:
            for other in others:
                if other not in self.reports:
                    return []
            out += self._propose(others)
        if not self.decided and self.accepted.issuperset(others):
            assert self.proposal is not None
            self._decide(self.proposal[1], self._lowest(others))
            out += [(other, (DECIDE, self.value, self.low)) for other in others]
        return out

    def _propose(self, others: list[int]) -> Outgoing:
        newest = self.proposal
        for _, proposal, decided, value, _ in self.reports.values():
            if decided:
                self._decide(value, self._lowest(others))
                return [(other, (DECIDE, value, self.low)) for other in others]
            if proposal is not None and (newest is None or proposal[0] > newest[0]):
                newest = proposal
        if newest is None:
            contributions = {member: report[0] for member, report in self.reports.items()}
            contributions[self.me] = self.mine
            assert self.combine is not None
            newest = (0, self.combine(contributions, frozenset(self.failed.intersection(self.members))))
        self.ballot = self.members.index(self.me) + 1
        self.proposal = (self.ballot, newest[1])
        self.accepted = set()
        return [(other, (PROPOSE, *self.proposal)) for other in others]

    def _lowest(self, others: list[int]) -> int:
        return min([self.low, *(self.reports[other][4] for other in others if other in self.reports)])

    def _decide(self, value: Any, low: int) -> None:
        if not self.decided:
            self.decided, self.value, self.low = True, value, low

"""Agreement of the members of a communicator on one value, while members may die at any moment. Pure.

Every member contributes once; all that live on get the same value, and it is made of the contributions of at
least all of them. The one who combines is the *coordinator*: the lowest member that is not known to have
failed. Its death is survived by the next one, because nobody takes a value for decided before everybody
alive holds it:

    member ──report──▶ coordinator        its contribution, the last proposal it has seen, what it has decided
    coordinator ──propose──▶ members      when everybody alive has reported
    member ──accepted──▶ coordinator
    coordinator ──decide──▶ members       when everybody alive has accepted

Rules
- Failures are true and final: who is reported dead is dead, and in the end everybody alive hears of it.
- A member that hears of its coordinator's death reports to the next one, and takes nothing of the dead one
  from then on. It does so even when it has decided, for as long as it remembers the agreement.
- A new coordinator proposes the newest proposal that any report holds; only if there is none, a value of its
  own. A decision in a report is passed on as it is.

Why all survivors agree: a coordinator that decided value v had v accepted by all who were alive, so every
report to a later coordinator holds v, as the newest proposal or as a decision. Why nobody hangs: whoever is
waited for either answers or is found dead.

A decision may be forgotten once all members have it: reports say up to where their sender has decided every
agreement (`low`), and decisions carry the smallest of these.

Not here: sending, what contributions mean (`combine`), numbering of agreements (`losses`).
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
    """One agreement at one member. Methods return messages to send, as (member, message).

    Reports may come before this member takes part (`start`); nothing else can, since nobody proposes without
    everybody's report.
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
        """By member: contribution, proposal as (ballot, value) or None, decided or not, decision, low."""
        self.proposal: tuple[int, Any] | None = None
        self.ballot: int | None = None
        """Of my own proposal; None: I have proposed nothing."""
        self.accepted: set[int] = set()
        self.low = 0

    def start(self, members: tuple[int, ...], mine: Any, combine: Combine, low: int) -> Outgoing:
        """Take part. `low`: number below which this member has decided every agreement of the communicator."""
        self.members = tuple(sorted(members))
        self.mine, self.combine, self.low, self.started = mine, combine, low, True
        return self._report()

    def receive(self, src: int, message: Message) -> Outgoing:
        """A message of another member."""
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
        """A member has failed."""
        if member in self.failed:
            return []
        before = self.coordinator() if self.started else None
        self.failed.add(member)
        if not self.started:
            return []
        return self._report() if before == member else self._lead()

    def coordinator(self) -> int:
        """Who combines, as far as is known here."""
        for member in self.members:
            if member not in self.failed:
                return member
        return self.me

    # -- the inside --------------------------------------------------------------------------------

    def _report(self) -> Outgoing:
        coordinator = self.coordinator()
        if coordinator == self.me:
            if self.decided:  # reports may have come before the decision, and before I knew that I lead
                waiting = [
                    other for other in self._others() if other in self.reports and not self.reports[other][2]
                ]
                return [(other, (DECIDE, self.value, self.low)) for other in waiting]
            return self._lead()
        return [(coordinator, (REPORT, self.mine, self.proposal, self.decided, self.value, self.low))]

    def _others(self) -> list[int]:
        return [member for member in self.members if member != self.me and member not in self.failed]

    def _lead(self) -> Outgoing:
        """Go on as coordinator, as far as what has come allows."""
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

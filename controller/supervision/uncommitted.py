"""The time without a commit: its length, the growing interval between rounds (back-off), and the messages to the user. Pure.

A *gap* begins with the first round after a commit (or after a start) and ends with a commit. During a gap:

- each failed round doubles the time until the schedule's next round, beginning with the schedule's interval; at most
  `_DOUBLINGS` times, and up to `_LONGEST_NS`;
- after a round that has held the program up, there is no scheduled round for `_SHARE` times as long;
- the first failure is printed; the others are in the event log only. After `_SAY_AFTER_NS`, or after `_SAY_AFTER_ROUNDS`
  rounds, one message says that nothing has been committed, which rank prevents it and why, and what the user can do. So does
  the end of the job if nothing was committed at all: it names what was met most often, how often, and at which ranks. A
  reason that was printed already is not printed again.

Not here: rounds themselves (`coordinator`).
"""

from __future__ import annotations

import re
from collections import Counter

from ckpt.controller.supervision import remedies
from ckpt.transport.records import dataclass, field

_NS = 1_000_000_000
_DOUBLINGS = 6
_LONGEST_NS = 120 * _NS
_SHARE = 33
_SAY_AFTER_NS = 10 * _NS
_SAY_AFTER_ROUNDS = 3
_PLACE = re.compile(r" \([^()]*\)$")  # at the end of a refusal: where the rank was
_SAYS_LITTLE = "has not come to a place between two instructions"


@dataclass(slots=True)
class _Met:
    """One kind of reason. ``reason``, ``remedy``, ``cause``: as for a :class:`CommitGap`, of the newest of this kind.
    ``at``: its place among all that were met; ``ranks``: how often each rank has met it (-1: it is not of one rank)."""

    reason: str = ""
    remedy: str = ""
    cause: str = ""
    at: int = 0
    ranks: Counter[int] = field(default_factory=Counter)

    def weight(self) -> tuple[int, bool, int]:
        """What matters more is greater."""
        return self.ranks.total(), _SAYS_LITTLE not in self.cause, self.at


class CommitGap:
    """The gaps of one job under one controller. All times are in nanoseconds, on one monotonic clock."""

    def __init__(self) -> None:
        self.since_ns: int | None = (
            None  # when the gap's first round began; None: no round has begun since the last commit
        )
        self.rounds = 0  # number of failed rounds
        self.is_said = False
        self.reason = ""  # why the newest round failed or cannot go on
        self.remedy = ""
        self._cause = ""  # the part of `reason` that other messages about it have, too
        self._printed = ""  # all that was printed in this gap
        self._is_refused = False  # a rank has said in this round that it cannot be captured
        self._met: dict[str, _Met] = {}  # since the last commit, by kind
        self.has_committed = False  # a line has been committed under this controller

    def round_begins(self, now_ns: int) -> None:
        """A round begins: ranks are asked, or told to take their images."""
        if self.since_ns is None:
            self.since_ns = now_ns

    def ends(self) -> None:
        """A line is committed."""
        self.since_ns, self.rounds, self.is_said = None, 0, False
        self.reason = self.remedy = self._cause = self._printed = ""
        self._met.clear()
        self.has_committed = True

    def incarnation_begins(self) -> None:
        """A new incarnation takes part from now on."""
        self.since_ns, self.rounds = None, 0

    def round_fails(self, reason: str) -> bool:
        """A round has failed. True: it is the gap's first, and the failure is to be printed."""
        self.rounds += 1
        if not self._is_refused or not self.remedy:  # a refusal says more; an earlier one may be over
            self.reason = self._cause = reason
            self.remedy = "`ckpt doctor` tells what a checkpoint of the program would meet"
            self._meets(reason, -1)
        self._is_refused = False
        if self.rounds == 1:
            self._printed += reason
        return self.rounds == 1

    def refused(self, rank: int, reason: str) -> None:
        """A rank reports that it cannot be captured where it is."""
        self._is_refused = True
        self._cause = reason
        self.reason = f"rank {rank} cannot be captured: {reason}"
        self.remedy = remedies.for_refusal(reason)
        self._meets(_PLACE.sub("", reason), rank)

    def _meets(self, kind: str, rank: int) -> None:
        met = self._met.setdefault(kind, _Met())
        met.reason, met.remedy, met.cause = self.reason, self.remedy, self._cause
        met.at = sum(each.ranks.total() for each in self._met.values()) + 1
        met.ranks[rank] += 1

    def interval_ns(self, every_ns: int, held_ns: int = 0) -> int:
        """The time until the schedule's next round, after a failed round that has held the program up for `held_ns`."""
        longer_ns = every_ns << min(self.rounds, _DOUBLINGS)
        return max(every_ns, min(longer_ns, _LONGEST_NS), _SHARE * held_ns)

    def deadline_ns(self) -> int | None:
        """When `notice` may return a message; None: not before another event."""
        if self.since_ns is None or self.is_said or not self.reason:
            return None
        return self.since_ns + _SAY_AFTER_NS

    def notice(self, now_ns: int) -> str | None:
        """The message about the gap, if it is due now; returned once in a gap."""
        if self.since_ns is None or self.is_said or not self.reason:
            return None
        waited_ns = now_ns - self.since_ns
        if waited_ns < _SAY_AFTER_NS and self.rounds < _SAY_AFTER_ROUNDS:
            return None
        self.is_said = True
        tries = f" and {self.rounds} tries" if self.rounds > 1 else ""
        return self._with_reason(f"no checkpoint for {waited_ns / _NS:.0f} s{tries}", ": ")

    def final_notice(self) -> str | None:
        """The message at the end of a job in which nothing was committed; returned once."""
        if self.has_committed or self.since_ns is None or not self.reason:
            return None
        self.since_ns = None
        most = max(self._met.values(), key=_Met.weight)
        self.reason, self.remedy, self._cause = most.reason, most.remedy, most.cause
        return self._with_reason("nothing was committed", ", because ", self._how_often(most))

    def _how_often(self, most: _Met) -> str:
        """In brackets; nothing where it is one reason, met once or by a single rank: there is no other that it could be."""
        times, all_times = most.ranks.total(), sum(each.ranks.total() for each in self._met.values())
        ranks = ", ".join(f"rank {rank}: {count}" for rank, count in sorted(most.ranks.items()) if rank >= 0)
        if times == all_times:
            return f" ({ranks})" if len(most.ranks) > 1 else ""
        return f" ({times} of {all_times} times{f'; {ranks}' if len(most.ranks) > 1 else ''})"

    def _with_reason(self, text: str, link: str, how_often: str = "") -> str:
        """The message, with the reason and what the user can do, as far as these were not printed before."""
        text += ", for the reason above" if self._cause in self._printed else link + self.reason
        text += how_often
        if self.remedy not in self._printed:
            text += f". What to do: {self.remedy}"
        self._printed += text
        return text

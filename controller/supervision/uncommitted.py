"""How long nothing has been committed, how much rarer the tries get meanwhile, and what the user is told about it. Pure.

A *drought* begins with the first round after a commit (or a start) and ends with a commit. In it

- every round that comes to nothing doubles the time to the next one that the schedule begins, in units of the schedule's
  interval, up to `_DOUBLINGS` times and `_LONGEST_NS`;
- a round that has held the program up is followed by `_SHARE` times as long without any;
- the first failure is said, the others are in the event log only; after `_SAY_AFTER_NS`, or `_SAY_AFTER_ROUNDS` rounds, it
  is said once that nothing has been committed, who stands in the way, where, and what to do about it; and again at the end
  of the job, if it has ended without any.

Not here: rounds themselves (`coordinator`).
"""

from __future__ import annotations

from ckpt.controller.supervision import remedies

_NS = 1_000_000_000
_DOUBLINGS = 6
_LONGEST_NS = 120 * _NS
_SHARE = 33
_SAY_AFTER_NS = 10 * _NS
_SAY_AFTER_ROUNDS = 3


class Drought:
    """Of one job under one controller."""

    def __init__(self) -> None:
        self.since_ns: int | None = (
            None  # begin of its first round; None: there was none since the last commit
        )
        self.rounds = 0  # that have come to nothing
        self.is_said = False
        self.reason = ""  # the newest one known
        self.remedy = ""
        self._is_refused = False  # in this round
        self.was_fruitful = False  # something has been committed under this controller

    def round_begins(self, now_ns: int) -> None:
        """A round is begun, or asked for."""
        if self.since_ns is None:
            self.since_ns = now_ns

    def ends(self) -> None:
        """A line is committed."""
        self.since_ns, self.rounds, self.is_said = None, 0, False
        self.reason = self.remedy = ""
        self.was_fruitful = True

    def starts_anew(self) -> None:
        """Other processes take part from now on."""
        self.since_ns, self.rounds = None, 0

    def round_fails(self, reason: str) -> bool:
        """A round has come to nothing. True: it is the first one, to be said."""
        self.rounds += 1
        if not self._is_refused or not self.remedy:  # a refusal says more; an earlier one may be over
            self.reason = reason
            self.remedy = "`ckpt doctor` tells what a checkpoint of the program would meet"
        self._is_refused = False
        return self.rounds == 1

    def refused(self, rank: int, reason: str) -> None:
        """A rank cannot be captured where it is."""
        self._is_refused = True
        self.reason = f"rank {rank} cannot be captured: {reason}"
        self.remedy = remedies.for_refusal(reason)

    def interval_ns(self, every_ns: int, held_ns: int = 0) -> int:
        """How long the schedule leaves the ranks alone after a round that came to nothing and has held them up so long."""
        longer_ns = every_ns << min(self.rounds, _DOUBLINGS)
        return max(every_ns, min(longer_ns, _LONGEST_NS), _SHARE * held_ns)

    def deadline_ns(self) -> int | None:
        """When `notice` may have something to say."""
        if self.since_ns is None or self.is_said or not self.reason:
            return None
        return self.since_ns + _SAY_AFTER_NS

    def notice(self, now_ns: int) -> str | None:
        """What is to be said now, once."""
        if self.since_ns is None or self.is_said or not self.reason:
            return None
        waited_ns = now_ns - self.since_ns
        if waited_ns < _SAY_AFTER_NS and self.rounds < _SAY_AFTER_ROUNDS:
            return None
        self.is_said = True
        tries = f" and {self.rounds} tries" if self.rounds > 1 else ""
        return f"no checkpoint for {waited_ns / _NS:.0f} s{tries}: {self._why()}"

    def epitaph(self) -> str | None:
        """What is to be said at the end of the job, once."""
        if self.was_fruitful or self.since_ns is None or not self.reason:
            return None
        self.since_ns = None
        return f"nothing was committed, because {self._why()}"

    def _why(self) -> str:
        return f"{self.reason}. What to do: {self.remedy}"

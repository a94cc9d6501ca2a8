"""Processes that are started while an operation goes on, to form columns of checksums: how many, and what they are. Pure.

A meeting of all living ranks goes on so, when its decision leaves too few columns of checksums and too few idle ranks:

    met ──wanted──▶ asked (Spawn; the lowest living rank is its root) ──all have the communicator──▶ merged ──▶ decided anew
     ▲ │                 │                      │                                                    (with the new ranks)
     │ │                 │ a member has died    │ refused: nobody has it
     └─┼─────────────────┘                      │
       ▼                                        ▼
     decided  ◀──twice in turn, of an operation──

Each arrow is one agreement of all that live, so all of them take the same one, whoever dies in it: nobody is left in a call
that the others do not make. Deaths:

- the root, or another member, while it is asked: either nobody has the communicator, and all meet again; or all have it.
- a new process before all were there: refused. After that, before the merge: it is missing in the merge, as a member is
  that dies there; the decision is made for those that are in it. It may ask for others.
- all members: the new processes are alone in the merge, and end.

New ranks have the numbers from `Course.began` on, each used once. They have none of the program's functions, so no place
that has to be filled is theirs (plan.py), and they look at no share of a residual. If they alone are left, they end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from ckpt.abft.decisions.course import Course, Decision, State
from ckpt.abft.decisions.plan import decide
from ckpt.abft.errors import TooManyLost

__all__ = ["REFUSALS", "Meeting", "Reserve", "joined", "wanted"]

REFUSALS = 2
"""Refused so many times in turn, an operation does without: one refusal may be the death of a new process."""


class Reserve(NamedTuple):
    """Whether an operation may ask for processes. `refused`: so many times in turn it was refused them."""

    has: bool
    refused: int = 0

    def after(self, refused: bool) -> Reserve:
        return self._replace(refused=self.refused + 1 if refused else 0)

    def wanted(self, decision: Decision) -> tuple[int, ...]:
        """The numbers of processes to be asked for at this meeting: any of them is good, the largest best. (): none."""
        if not self.has or self.refused >= REFUSALS or decision.what != "go on":
            return ()
        return wanted(decision.course)

    def ends_early(self, decision: Decision) -> bool:
        """Is this a start after whose first panel all meet again? Then nobody needs the program's functions any more."""
        may = self.has and self.refused < REFUSALS and decision.what == "start"
        return may and bool(wanted(replace(decision.course, base=1)))


class Meeting:
    """One meeting at one rank, from the agreement on. `action` is what the rank does next: "ask" for any of the
    numbers `counts` of processes, which calls `asked` or, interrupted, `met` after another agreement; "merge",
    which calls `merged`; or "follow" the `decision`. Raises TooManyLost."""

    def __init__(
        self, course: Course, states: Mapping[int, State], reserve: Reserve, restore: bool = True
    ) -> None:
        self.course, self.reserve, self._restore = course, reserve, restore
        self._count = 0
        self.met(states)

    def met(self, states: Mapping[int, State]) -> None:
        """All that live have said this."""
        self.states = states
        self._decide()

    def asked(self, count: int | None) -> None:
        """All that live have been told that so many processes are there; None: that they were refused."""
        self.reserve = self.reserve.after(refused=count is None)
        if count is None:
            self._decide()
        else:
            self.action, self._count = "merge", count

    def merged(self, said: Sequence[State | int]) -> None:
        """All that live, new processes too, have said this."""
        self.course, self.states = joined(self.course, said, self._count)
        self._decide()

    def _decide(self) -> None:
        if not self.course.having(self.states):
            raise TooManyLost("all ranks that have begun this are dead")
        self.decision = decide(self.course, self.states, self._restore)
        self.counts = self.reserve.wanted(self.decision)
        self.action = "ask" if self.counts else "follow"


def wanted(course: Course) -> tuple[int, ...]:
    """The numbers of idle ranks that are missing for one more column of checksums, two more, …: as many as are lacking."""
    if course.base >= course.shape.blocks:
        return ()
    lacking = course.redundant - len(course.roles.checks)
    found = (count * course.shape.P - len(course.roles.idle) for count in range(1, lacking + 1))
    return tuple(number for number in found if number > 0)


def joined(course: Course, said: Sequence[State | int], count: int) -> tuple[Course, Mapping[int, State]]:
    """After a merge with `count` new processes: the course that is to be gone on from, and what all ranks say of themselves,
    in the order of `said`: the states of members, and the places of the new processes among each other."""
    first = course.began + course.started
    signature = next(each.signature for each in said if isinstance(each, State))
    states = [each if isinstance(each, State) else State(first + each, signature=signature) for each in said]
    return replace(course, started=course.started + count), {state.rank: state for state in states}

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

New ranks have the numbers from `began` on, each used once. They have none of the program's functions, so no place that
has to be filled is theirs (plan.py, product.py), and they look at no share of a residual. If they alone are left, they end.

What all ranks know alike (`Course` here) and what each says of itself are the operation's own, and so is the decision.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, NamedTuple, Protocol, Self, TypeVar

from ckpt.abft.errors import TooManyLost

__all__ = ["REFUSALS", "Course", "Lack", "Meeting", "Reserve", "Said", "joined", "wanted"]

REFUSALS = 2
"""Refused so many times in turn, an operation does without: one refusal may be the death of a new process."""


class Lack(NamedTuple):
    """So many columns of checksums, of so many ranks each, are lacking, and so many ranks are idle."""

    columns: int
    ranks: int
    idle: int


class Course(Protocol):
    """What all ranks know alike. `began`: lower ranks have begun the operation; `started`: how many processes were started
    meanwhile, dead ones too."""

    @property
    def began(self) -> int: ...
    @property
    def started(self) -> int: ...
    def having(self, ranks: Iterable[int]) -> tuple[int, ...]:
        """Those of these ranks that have the program's functions."""
        ...

    def lack(self) -> Lack:
        """What processes are to be started for."""
        ...

    def with_started(self, count: int) -> Self:
        """So many processes more were started."""
        ...


class Said(Protocol):
    """What a rank says of itself at a meeting."""

    @property
    def rank(self) -> int: ...
    def of_new(self, rank: int) -> Self:
        """What is said of a process that was started for this meeting."""
        ...


C = TypeVar("C", bound=Course)
S = TypeVar("S", bound=Said)
D = TypeVar("D", bound="_Decision")


class _Decision(Protocol):
    @property
    def what(self) -> str: ...
    @property
    def course(self) -> Any: ...


class Reserve(NamedTuple):
    """Whether an operation may ask for processes. `refused`: so many times in turn it was refused them."""

    has: bool
    refused: int = 0

    def after(self, refused: bool) -> Reserve:
        return self._replace(refused=self.refused + 1 if refused else 0)

    def wanted(self, decision: _Decision) -> tuple[int, ...]:
        """The numbers of processes to be asked for at this meeting: any of them is good, the largest best. (): none."""
        return wanted(decision.course.lack()) if self.may and decision.what == "go on" else ()

    @property
    def may(self) -> bool:
        """May the operation still ask?"""
        return self.has and self.refused < REFUSALS


class Meeting(Generic[C, S, D]):
    """One meeting at one rank, from the agreement on. `action` is what the rank does next: "ask" for any of the
    numbers `counts` of processes, which calls `asked` or, interrupted, `met` after another agreement; "merge",
    which calls `merged`; or "follow" the `decision`. `decide`: what comes of what all say. Raises TooManyLost."""

    def __init__(
        self, course: C, states: Mapping[int, S], reserve: Reserve, decide: Callable[[C, Mapping[int, S]], D]
    ) -> None:
        self.course, self.reserve, self._deciding = course, reserve, decide
        self._count = 0
        self.met(states)

    def met(self, states: Mapping[int, S]) -> None:
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

    def merged(self, said: Sequence[S | int]) -> None:
        """All that live, new processes too, have said this."""
        self.course, self.states = joined(self.course, said, self._count)
        self._decide()

    def _decide(self) -> None:
        if not self.course.having(self.states):
            raise TooManyLost("all ranks that have begun this are dead")
        self.decision = self._deciding(self.course, self.states)
        self.counts = self.reserve.wanted(self.decision)
        self.action = "ask" if self.counts else "follow"


def wanted(lack: Lack) -> tuple[int, ...]:
    """The numbers of idle ranks that are missing for one more column of checksums, two more, …: as many as are lacking."""
    found = (count * lack.ranks - lack.idle for count in range(1, lack.columns + 1))
    return tuple(number for number in found if number > 0)


def joined(course: C, said: Sequence[S | int], count: int) -> tuple[C, Mapping[int, S]]:
    """After a merge with `count` new processes: the course that is to be gone on from, and what all ranks say of themselves,
    in the order of `said`: the states of members, and the places of the new processes among each other."""
    first = course.began + course.started
    member = next(each for each in said if not isinstance(each, int))
    states = [member.of_new(first + each) if isinstance(each, int) else each for each in said]
    return course.with_started(count), {state.rank: state for state in states}

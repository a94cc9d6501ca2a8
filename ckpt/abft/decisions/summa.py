"""Decides what all ranks of a product on the grid do after a death, from what each of them says of itself.

A *course* is what all know alike: the layout (columns.py), how many steps everybody has added, and which columns of
checksums are formed first. `decide` makes the next one:

1. Nobody has added anything: places are given anew, to those that can fill them from the program's functions.
2. Somebody has the result: it is only given to the others. Should nobody have it any more, all go on from the layout
   before.
3. Else lost columns of data are replaced by columns of checksums (`Layout.after`), and ranks that are behind get the panels
   of their steps from the owners.

In 1 and 3 idle ranks form new columns of checksums while there is a step left. These get what they hold from the columns of
data, so a process that was started meanwhile (joining.py) can be in one. If it comes to be in a column of data, A's blocks
of its place are given to it, by a rank that can fill them (`givers`), at each meeting anew.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from ckpt.abft.decisions.columns import Layout, first_layout
from ckpt.abft.decisions.joining import Lack
from ckpt.abft.decisions.progress import Progress

__all__ = ["Course", "Decision", "decide"]


@dataclass(frozen=True)
class Course:
    """What all ranks know alike. `P`, `Q`, `redundant`: of the grid; `blocks`: so many steps there are. `began`, `started`:
    see `joining.Course`."""

    P: int
    Q: int
    redundant: int
    blocks: int
    began: int
    started: int = 0
    layout: Layout | None = None
    """None: nobody has a place yet."""
    former: Layout | None = None
    """Before somebody had the result: what all still hold."""
    joining: tuple[int, ...] = ()
    """The columns of checksums that are formed first."""
    steps: Mapping[int, int] = field(default_factory=dict)
    """How many steps each rank has added."""
    top: int = 0
    """The most of them."""

    def having(self, ranks: Iterable[int]) -> tuple[int, ...]:
        """Those of these ranks that have the program's functions, sorted."""
        return tuple(sorted(rank for rank in ranks if rank < self.began))

    def lack(self) -> Lack:
        """What processes are to be started for."""
        layout = self.layout
        if layout is None or self.top >= self.blocks:
            return Lack(0, self.P, 0)
        return Lack(self.redundant - len(layout.checks), self.P, len(layout.idle))

    def with_started(self, count: int) -> Course:
        """So many processes more were started."""
        return replace(self, started=self.started + count)

    def givers(self) -> dict[int, int]:
        """Ranks in columns of data that cannot fill A's blocks: who gives them to each."""
        assert self.layout is not None
        able = self.having(self.layout.ranks)
        lacking = [rank for column in self.layout.data for rank in column if rank >= self.began]
        return {rank: able[at % len(able)] for at, rank in enumerate(lacking)}


class Decision(NamedTuple):
    """What all ranks do after a meeting. `what`: "go on", or "finish" (only the result is to be given). `is_new`: what
    anybody holds is of no use. `died`: since the meeting before. `happened`: as in `Loss`."""

    what: str
    course: Course
    is_new: bool
    died: tuple[int, ...]
    happened: tuple[tuple[str, int], ...]

    def drops(self, rank: int) -> bool:
        """Is what this rank holds of no use to the place that it gets? Then it holds nothing from now on, and says so at the
        next meeting, however soon that comes."""
        assert self.course.layout is not None
        place = self.course.layout.place(rank)
        goes_on = self.what == "go on"
        return goes_on and (self.is_new or place is None or place.v in self.course.joining)


def decide(course: Course, states: Mapping[int, Progress]) -> Decision:
    """The next course. `states`: of all living ranks. Raises TooManyLost."""
    before, former = course.layout, course.former
    died = () if before is None else tuple(rank for rank in before.ranks if rank not in states)
    is_done = any(state.done for state in states.values())
    if not is_done and former is not None:  # nobody has the result any more
        before, former = former, None
    steps = {rank: state.step for rank, state in states.items()}
    course = replace(course, former=former, joining=(), steps=steps, top=max(0, *steps.values()))
    if is_done:
        assert before is not None
        return _finish(course, before, states, died)
    happened: tuple[tuple[str, int], ...]
    is_new = before is None or course.top == 0
    if before is None or is_new:
        able = course.having(states)
        layout = first_layout(able, course.P, course.Q, course.redundant, before)
        layout = layout.with_idle(rank for rank in states if rank not in able)
        happened = (("again", -1),) if died else ()
        steps = dict.fromkeys(states, -1)
    else:
        before = before.with_idle(rank for rank in states if rank not in before.ranks)
        complete = {
            v for v, column in enumerate(before.columns) if all(steps.get(rank, -1) >= 0 for rank in column)
        }
        layout, happened = before.after(states, complete)
    steps |= {
        rank: max(0, steps[rank]) for column in layout.columns for rank in column
    }  # it begins with nothing
    formed = layout.formed() if course.top < course.blocks else layout
    joining = tuple(range(len(layout.columns), len(formed.columns)))
    happened = (*happened, *(("encoding", v) for v in joining))
    course = replace(course, layout=formed, joining=joining, steps=steps)
    return Decision("go on", course, is_new, died, happened)


def _finish(
    course: Course, before: Layout, states: Mapping[int, Progress], died: tuple[int, ...]
) -> Decision:
    former = before if course.former is None else course.former
    layout = replace(
        before,
        data=tuple(() for _ in before.data),
        checks=(),
        idle=tuple(sorted(states)),
        lost=(*before.lost, *died),
    )
    happened = (("idle lost", -1),) if died else ()
    return Decision("finish", replace(course, layout=layout, former=former), False, died, happened)

"""Decides what all survivors do after a death, from what each of them says of itself: so all decide the same.

A *course* is what all ranks of a solve know alike: roles, replacements, shares of background work. A rank that meets
a failure ends all communication; all living ranks of the grid meet, idle ones too, and every one learns the `State`
of all others. `decide` makes the next course of that, and the transfers that lead to it:

1. In a column without a death all processes are at the same step or one apart (steps.py). Those that are behind get
   the update of that step once more from its root, which keeps it (`align`).
2. The step that the foremost intact column has reached is the `base` of the new course. Every panel below it is held by that
   column, in every row; whoever lacks one gets it (`panels`). Columns that are behind then catch up by themselves. A
   panel that nobody has applied is dropped: its owner factorises again.
3. One column of data that has lost a process is replaced by the column of checksums, from step `base` on: at that step the
   checksums hold, since all columns reach it with the same panels. No data moves. Groups whose block column d was already
   factorised still hold checksums there; they are recovered by subtraction in shares of the following steps.
4. Who is left of a lost column is idle. As soon as there are P idle ranks they form a new column of checksums, which is
   encoded in shares too; what was replaced is turned back by subtraction first, as far as it is not factorised,
   because every replacement that stays doubles the rounding error (encoding.py).
5. More lost than that: `TooManyLost`, at everybody.

If no panel has been applied by anybody, nothing is lost: places are given anew, and filled again from the program's
function. If somebody has the whole solution, it is given to those that lack it.

A course that a further death interrupts is corrected by the next meeting. Shares of a step count only once the column
that recovers its blocks has applied the step's panel, or the new column of checksums has (which then contains the
recovered blocks), or anybody has if the panel is that column's own (made of the recovered blocks): each of these means
that all rows have done them. All others are undone (`Course.counted`) and planned
anew. A column of checksums that is not complete is given up and formed anew.

Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from ckpt.abft.decisions.broadcast import resend
from ckpt.abft.decisions.copies import missing
from ckpt.abft.decisions.encoding import Replacement
from ckpt.abft.decisions.grid import Column, Roles, Shape, assign
from ckpt.abft.decisions.steps import Share
from ckpt.abft.errors import TooManyLost

__all__ = ["Course", "Decision", "State", "Transfer", "decide", "first_course", "transformations"]


class State(NamedTuple):
    """What a rank says of itself at a meeting.

    `step`: it has applied the panels below this number; -1: it is idle, or has no matrix yet. `update`: the last step of
    which it has the update as root; -1: none. `low`, `high`: it has the panels from `low` to below `high`. `solved`: it
    has the whole solution. `checked`: the number of meetings before it looked at its share of the residual. `corrupt`:
    its numbers were wrong, and it has dropped them; `corrected`: how many it has put right. `kept`: the panels of which
    it keeps a copy, if the course is one of those. `problem`: an error of this rank that ends the solve for all.
    `signature`: of its arguments. `remarks`: numbers for the report.
    """

    rank: int
    step: int = -1
    update: int = -1
    low: int = 0
    high: int = 0
    solved: bool = False
    checked: int = 0
    corrupt: bool = False
    corrected: int = 0
    kept: tuple[int, ...] = ()
    problem: str | None = None
    signature: str = ""
    remarks: tuple[float, ...] = ()


class Transfer(NamedTuple):
    """One transfer of data between two ranks before all go on. `source` gives `target` something. kind "update", "panel" (of
    step k), "kept" (a copy of panel k), "right" (right-hand sides at step k) or "solution"."""

    kind: str
    source: int
    target: int
    k: int


@dataclass(frozen=True)
class Course:
    """What all ranks know alike. `ready`: the column of checksums is complete once it has applied the panels below this
    step. `shares`: by step; those at step `shape.blocks` are done after the last panel. `counted`: shares before this step
    count, later ones are undone by who has begun them."""

    shape: Shape
    roles: Roles
    protected: bool
    on_loss: str = "hot"
    base: int = 0
    encoding: int = 0
    ready: int = 0
    counted: int = 0
    replacements: tuple[Replacement, ...] = ()
    shares: Mapping[int, tuple[Share, ...]] = field(default_factory=dict)
    open_groups: frozenset[int] = frozenset()
    """Groups of the last replaced column in which it holds checksums of a block column that is factorised."""
    keep: bool = False
    """Copies of panels are kept (copies.py)."""
    meetings: int = 0
    lost: tuple[int, ...] = ()
    """All ranks that have died so far, in the order in which it was agreed."""

    def open_at(self, k: int, v: int) -> frozenset[int]:
        """The open groups of column v when the panel of step k is applied, its shares done."""
        if not self.replacements or self.replacements[-1].column != v:
            return frozenset()
        closed = {
            share.group
            for step, shares in self.shares.items()
            if step <= k
            for share in shares
            if share.kind == "subtract"
        }
        return self.open_groups - closed


class Decision(NamedTuple):
    """What all ranks do after a meeting. `what`: "go on", "start" (fill the matrix first), "finish" (only the solution is to
    be given) or "solved"."""

    what: str
    course: Course
    transfers: tuple[Transfer, ...] = ()
    happened: tuple[tuple[str, int], ...] = ()
    """("replaced" | "checksums lost" | "encoding" | "idle lost" | "again", column), for the report."""


def first_course(
    shape: Shape, living: tuple[int, ...], protected: bool, on_loss: str = "hot", keep: bool = False
) -> Course:
    """The course of a solve that begins with these ranks. Raises TooManyLost: not enough of them."""
    roles = assign(living, shape.P, shape.Q, protected)
    if roles is None:
        raise TooManyLost(
            f"{len(living)} ranks are left of the {shape.P} × {shape.Q} that the grid needs at the least"
        )
    return Course(shape, roles, protected, on_loss, keep=keep, meetings=1)


def decide(course: Course, states: Mapping[int, State], restore: bool = True) -> Decision:
    """The next course. `states`: of all living ranks of the grid, by rank. Raises TooManyLost.

    `restore`: turn replaced columns back by subtraction before they are encoded again.
    """
    shape, roles = course.shape, course.roles
    died = tuple(rank for rank in roles.ranks() if rank not in states)
    course = replace(course, meetings=course.meetings + 1, lost=(*course.lost, *died))
    if any(state.solved for state in states.values()):
        return _finish(course, states, died)
    useless = {*died, *(rank for rank, state in states.items() if state.corrupt)}
    whole = {v: column for v, column in roles.columns() if not useless.intersection(column.ranks)}
    if max((state.step for state in states.values()), default=-1) <= 0:
        return _again(course, states, died)
    gone = [v for v in range(shape.Q) if v not in whole]
    steps = {v: max(states[rank].step for rank in column.ranks) for v, column in whole.items()}
    if steps.get(shape.Q, course.ready) < course.ready:  # not complete
        del whole[shape.Q], steps[shape.Q]
    if gone and course.on_loss == "stop":
        raise TooManyLost(
            f"rank {min(useless)} of the grid has lost its data, and the solve was to stop at that (on_loss)"
        )
    if len(gone) > 1 or (gone and shape.Q not in whole):
        raise TooManyLost(_explain(course, gone, useless))
    base = max(steps.values())
    transfers = _align(course, whole, steps, states)
    transfers += _panels(course, whole, steps, base, states)
    course = _settle(course, steps, base)
    happened: list[tuple[str, int]] = [("idle lost", -1)] if set(died) & set(roles.idle) else []
    if gone:
        course = _replace_column(course, gone[0], base)
        happened.append(("replaced", gone[0]))
    elif roles.check is not None and shape.Q not in whole:
        course = replace(course, roles=replace(roles, check=None))
        happened.append(("checksums lost", shape.Q))
    busy = {rank for _, column in course.roles.columns() for rank in column.ranks}
    idle = tuple(sorted(set(states) - busy))
    course = replace(course, base=base, roles=replace(course.roles, idle=idle))
    forming = course.protected and course.roles.check is None and len(idle) >= shape.P and base < shape.blocks
    if forming:
        course = _new_check(course)
        transfers += _right_hand_sides(course, whole, steps, base)
        happened.append(("encoding", shape.Q))
    if course.keep:
        transfers += _copies(course, states, forming)
    shares = _spread(course, forming, restore)
    if forming:
        course = replace(course, ready=max(shares) + 1)
    return Decision("go on", replace(course, shares=shares), tuple(transfers), tuple(happened))


def transformations(course: Course) -> tuple[Replacement, ...]:
    """The replacements that are left at the end, when all shares are done: what was turned back is none."""
    if not course.replacements:
        return ()
    last = course.replacements[-1]
    back = {
        share.group
        for shares in course.shares.values()
        for share in shares
        if share.kind == "subtract" and share.column == last.column
    }
    return (*course.replacements[:-1], last._replace(groups=last.groups - back))


def _finish(course: Course, states: Mapping[int, State], died: tuple[int, ...]) -> Decision:
    """Somebody has the solution. It counts when all have it, and all have looked at their shares of the residual."""
    living = tuple(sorted(states))
    having = [rank for rank in living if states[rank].solved]
    lacking = [rank for rank in living if not states[rank].solved]
    if not (died or lacking) and all(state.checked == course.meetings - 1 for state in states.values()):
        return Decision("solved", course)
    transfers = tuple(Transfer("solution", having[0], rank, 0) for rank in lacking)
    course = replace(course, roles=Roles((), None, living))
    return Decision("finish", course, transfers, (("idle lost", -1),) if died else ())


def _again(course: Course, states: Mapping[int, State], died: tuple[int, ...]) -> Decision:
    """Nobody has applied a panel: places are given anew."""
    shape = course.shape
    roles = assign(tuple(sorted(states)), shape.P, shape.Q, course.protected, course.roles)
    if roles is None:
        raise TooManyLost(_explain(course, [], set(died)))
    course = Course(
        *(shape, roles, course.protected, course.on_loss),
        encoding=course.encoding,
        keep=course.keep,
        meetings=course.meetings,
        lost=course.lost,
    )
    return Decision("start", course, (), (("again", -1),) if died else ())


def _explain(course: Course, gone: list[int], useless: set[int]) -> str:
    who = ", ".join(map(str, sorted({*course.lost, *useless})))
    check = "there is no complete column of checksums" if course.protected else "the grid has no checksums"
    why = check if len(gone) <= 1 else f"columns {gone} of data lost processes at once"
    return (
        f"ranks {who} of the grid are dead, or have wrong numbers, and {why}: their data is gone. Start again; spare "
        f"ranks (more than P·(Q+1)) form new checksums after a failure"
    )


def _align(
    course: Course, whole: Mapping[int, Column], steps: Mapping[int, int], states: Mapping[int, State]
) -> list[Transfer]:
    found = []
    for v, column in whole.items():
        k = steps[v] - 1
        for rank in column.ranks:
            if states[rank].step == steps[v]:
                continue
            root = column.ranks[course.shape.root(k)]
            own = states[rank]
            if own.step != k or states[root].update != k or not own.low <= k < own.high:
                raise AssertionError(f"rank {rank} at step {own.step} cannot follow its column to {steps[v]}")
            found.append(Transfer("update", root, rank, k))
    return found


def _panels(
    course: Course,
    whole: Mapping[int, Column],
    steps: Mapping[int, int],
    base: int,
    states: Mapping[int, State],
) -> list[Transfer]:
    found = []
    for p in range(course.shape.P):
        for k in range(min(steps.values()), base):
            row = {v: states[column.ranks[p]] for v, column in whole.items()}
            have = [state.rank for state in row.values() if state.low <= k < state.high]
            lack = [s.rank for v, s in row.items() if steps[v] <= k and not s.low <= k < s.high]
            pairs = resend(have, lack)
            if pairs is None:
                raise AssertionError(f"nobody in process row {p} has panel {k}")
            found += [Transfer("panel", source, target, k) for source, target in pairs]
    return found


def _copies(course: Course, states: Mapping[int, State], forming: bool) -> list[Transfer]:
    """`forming`: the column of checksums begins with nothing."""
    held = {rank: {*state.kept, *range(state.low, state.high)} for rank, state in states.items()}
    if forming and course.roles.check is not None:
        held |= {rank: set() for rank in course.roles.check.ranks}
    return [Transfer("kept", *each) for each in missing(course.shape, course.roles, held, course.base)]


def _settle(course: Course, steps: Mapping[int, int], base: int) -> Course:
    """Count what was done of the shares; what was not is planned anew (`_spread`)."""
    if not course.replacements:
        return course
    last = course.replacements[-1]
    counted = max(  # what once counted, counts: later shares are of later steps
        course.counted,
        steps.get(last.column, 0),
        steps.get(course.shape.Q, 0) if course.ready else 0,
        *(k + 1 for k in range(base) if course.shape.owner(k) == last.column),
    )
    done = {
        share.group
        for k, shares in course.shares.items()
        for share in shares
        if share.kind == "subtract" and k < counted
    }
    kept = last._replace(groups=last.groups - done)
    return replace(
        course,
        replacements=(*course.replacements[:-1], kept),
        open_groups=course.open_groups - done,
        counted=counted,
    )


def _replace_column(course: Course, d: int, base: int) -> Course:
    """The column of checksums takes the place of column d."""
    shape, roles = course.shape, course.roles
    assert roles.check is not None
    data = list(roles.data)
    data[d] = Column(roles.check.ranks, base)
    ahead = frozenset(group for group in range(shape.groups) if group * shape.Q + d >= base)
    return replace(
        course,
        roles=Roles(tuple(data), None, roles.idle),
        replacements=(*course.replacements, Replacement(d, base, course.encoding, ahead)),
        open_groups=frozenset(range(shape.groups)) - ahead,
    )


def _new_check(course: Course) -> Course:
    """P idle ranks become the column of checksums; `_spread` says when it is encoded."""
    P, idle = course.shape.P, course.roles.idle
    roles = replace(course.roles, check=Column(idle[:P]), idle=idle[P:])
    return replace(course, roles=roles, encoding=course.encoding + 1)


def _right_hand_sides(
    course: Course, whole: Mapping[int, Column], steps: Mapping[int, int], base: int
) -> list[Transfer]:
    """The new column gets the right-hand sides as they are at step `base`, which every column has a copy of."""
    assert course.roles.check is not None
    source = next(column for v, column in whole.items() if steps[v] == base)
    return [
        Transfer("right", giver, rank, base)
        for giver, rank in zip(source.ranks, course.roles.check.ranks, strict=True)
    ]


def _spread(course: Course, forming: bool, restore: bool) -> dict[int, tuple[Share, ...]]:
    """What is to be recovered and encoded, spread over the steps from `base` on, the last groups first.

    `forming`: there is a new column of checksums.
    """
    shape, base = course.shape, course.base
    last = course.replacements[-1] if course.replacements else None
    recover = course.on_loss == "recover"
    wanted = set(range(shape.groups)) if forming else set(course.open_groups)
    if recover and last is not None:
        wanted |= last.groups
    groups = sorted(wanted, reverse=True)
    shares: dict[int, tuple[Share, ...]] = {}
    for number, group in enumerate(groups):
        k = base if recover else _when(shape, base, number, len(groups), forming)
        mine = []
        if last is not None:
            ahead = group in last.groups and group * shape.Q + last.column >= k
            if group in course.open_groups or (ahead and (recover or (restore and forming))):
                mine.append(Share("subtract", group, last.column, last.encoding))
        if forming:
            mine.append(Share("encode", group, shape.Q, course.encoding))
        shares[k] = (*shares.get(k, ()), *mine)
    return shares


def _when(shape: Shape, base: int, number: int, total: int, urgent: bool) -> int:
    """The step of share `number` of `total`: over the first half of what is left, or after the last panel. `urgent`: two
    in each step, as long as they are not through by then: the next failure is borne only after that."""
    left = (shape.blocks - base + 1) // 2
    if urgent:
        left = min(left, (total + 1) // 2)
    return base + number * left // total if left else shape.blocks

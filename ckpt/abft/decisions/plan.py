"""Decides what all survivors do after a death, from what each of them says of itself: so all decide the same.

A *course* is what all ranks of a solve know alike: roles, replacements, shares of background work. A rank that meets
a failure ends all communication; all living ranks of the grid meet, idle ones too, and every one learns the `State`
of all others. `decide` makes the next course of that, and the transfers that lead to it:

1. In a column without a death all processes are at the same step or one apart (steps.py). Those that are behind get
   the update of that step once more from its root, which keeps it (`align`).
2. The step that the foremost intact column has reached is the `base` of the new course. Every panel below it is held by that
   column, in every row; whoever lacks one gets it (`panels`). Columns that are behind then catch up by themselves. A
   panel that nobody has applied is dropped: its owner factorises again.
3. Columns of data that have lost a process are replaced by columns of checksums, from step `base` on: at that step the
   checksums hold, since all columns reach it with the same panels. No data moves. Of several columns of checksums those are
   taken with which the condition number of what is held is least (encoding.py). Groups whose block column d was already
   factorised still hold checksums there; they are recovered by subtraction in shares of the following steps (shares.py).
4. Who is left of a lost column is idle. As soon as there are P idle ranks they form a new column of checksums, which is
   encoded in shares too; what was replaced is turned back by subtraction first, as far as it is not factorised,
   because every replacement that stays doubles the rounding error.
5. More lost than that, or a hopeless condition number: `TooManyLost`, at everybody.

If no panel has been applied by anybody, nothing is lost: places are given anew, and filled again from the program's
function. If somebody has the whole solution, it is given to those that lack it. Until they have it, all keep what they
hold: should nobody have the solution any more, all go on from the course before.

A course that a further death interrupts is corrected by the next meeting. A column of checksums that is not complete is
given up and formed anew.

Pure.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations

from ckpt.abft.decisions import shares
from ckpt.abft.decisions.broadcast import resend
from ckpt.abft.decisions.columns import HOPELESS
from ckpt.abft.decisions.copies import missing
from ckpt.abft.decisions.course import Course, Decision, State, Transfer, encoded, replaced
from ckpt.abft.decisions.encoding import condition
from ckpt.abft.decisions.grid import Column, Roles, Shape, assign
from ckpt.abft.decisions.joining import Reserve, wanted
from ckpt.abft.errors import TooManyLost

__all__ = ["decide", "ends_early", "first_course"]


def first_course(
    shape: Shape,
    living: tuple[int, ...],
    redundant: int,
    on_loss: str = "hot",
    keep: bool = False,
    ahead: int = 0,
    began: int = sys.maxsize,
) -> Course:
    """The course of a solve that begins with these ranks. Raises TooManyLost: not enough. `began`: as in `Course`."""
    roles = assign(living, shape.P, shape.Q, redundant)
    if roles is None:
        raise TooManyLost(
            f"{len(living)} ranks are left of the {shape.P} × {shape.Q} that the grid needs at the least"
        )
    course = Course(shape, encoded(shape, roles, 0), redundant, on_loss, keep=keep, ahead=ahead, began=began)
    return replace(course, meetings=1)


def decide(course: Course, states: Mapping[int, State], restore: bool = True) -> Decision:
    """The next course. `states`: of all living ranks of the grid, by rank. Raises TooManyLost.

    `restore`: turn replaced columns back by subtraction before they are encoded again.
    """
    shape = course.shape
    died = tuple(rank for rank in course.roles.ranks() if rank not in states)
    course = replace(course, meetings=course.meetings + 1, lost=(*course.lost, *died))
    if any(state.solved for state in states.values()):
        return _finish(course, states, died)
    if course.former is not None:
        before = course.former
        course = replace(before, meetings=course.meetings, lost=course.lost, started=course.started)
    roles = course.roles
    dead = tuple(rank for rank in roles.ranks() if rank not in states)
    useless = {*dead, *(rank for rank, state in states.items() if state.corrupt)}
    whole = {v: column for v, column in roles.columns() if not useless.intersection(column.ranks)}
    if max((state.step for state in states.values()), default=-1) <= 0:
        return _again(course, states, died)
    gone = [v for v in range(shape.Q) if v not in whole]
    steps = {v: max(states[rank].step for rank in column.ranks) for v, column in whole.items()}
    for v in [v for v in whole if steps[v] < whole[v].ready and v >= shape.Q]:  # not complete
        del whole[v], steps[v]
    able = [v for v in whole if v >= shape.Q]
    if gone and course.on_loss == "stop":
        raise TooManyLost(
            f"rank {min(useless)} of the grid has lost its data, and the solve was to stop at that (on_loss)"
        )
    if len(gone) > len(able):
        raise TooManyLost(_explain(course, gone, able, useless))
    base = max(steps.values())
    transfers = _align(course, whole, steps, states)
    transfers += _panels(course, whole, steps, base, states)
    course = _receded(shares.settle(course, steps, base), base)
    happened = [("idle lost", -1)] if set(dead) & set(roles.idle) else []
    happened += [("replaced", d) for d in gone]
    happened += [("checksums lost", v) for v, _ in enumerate(roles.checks, shape.Q) if v not in able]
    course = _without(replace(course, base=base), gone, able, useless)
    busy = {rank for _, column in course.roles.columns() for rank in column.ranks}
    idle = tuple(sorted(set(states) - busy))
    course = replace(course, roles=replace(course.roles, idle=idle))
    forming: tuple[int, ...] = ()
    if base < shape.blocks:
        course, forming = _new_checks(course)
        transfers += _right_hand_sides(course, forming, whole, steps)
        happened += [("encoding", v) for v in forming]
    if course.keep:
        transfers += _copies(course, states, forming)
    return Decision("go on", shares.spread(course, forming, restore), tuple(transfers), tuple(happened))


def ends_early(reserve: Reserve, decision: Decision) -> bool:
    """Is this a start after whose first panel all meet again, to ask for processes? Then nobody needs the program's
    functions any more."""
    return reserve.may and decision.what == "start" and bool(wanted(decision.course.lack(base=1)))


def _finish(course: Course, states: Mapping[int, State], died: tuple[int, ...]) -> Decision:
    """Somebody has the solution. It counts when all have it, and all have looked at their shares of the residual."""
    living = tuple(sorted(states))
    having = [rank for rank in living if states[rank].solved]
    lacking = [rank for rank in living if not states[rank].solved]
    if not (died or lacking) and all(state.checked == course.meetings - 1 for state in states.values()):
        return Decision("solved", course)
    transfers = tuple(Transfer("solution", having[0], rank, 0) for rank in lacking)
    former = course if course.former is None else course.former
    course = replace(course, replaced=replaced(course), roles=Roles((), (), living), former=former)
    return Decision("finish", course, transfers, (("idle lost", -1),) if died else ())


def _again(course: Course, states: Mapping[int, State], died: tuple[int, ...]) -> Decision:
    """Nobody has applied a panel: places are given anew, to those that can fill them."""
    shape, able = course.shape, course.having(states)
    roles = assign(able, shape.P, shape.Q, course.redundant, course.roles)
    if roles is None:
        raise TooManyLost(_explain(course, [], [], set(died)))
    roles = replace(roles, idle=(*roles.idle, *sorted(set(states).difference(able))))
    course = Course(
        *(shape, encoded(shape, roles, course.encoding), course.redundant, course.on_loss),
        encoding=course.encoding,
        keep=course.keep,
        ahead=course.ahead,
        meetings=course.meetings,
        lost=course.lost,
        began=course.began,
        started=course.started,
    )
    return Decision("start", course, (), (("again", -1),) if died else ())


def _explain(course: Course, gone: list[int], able: list[int], useless: set[int]) -> str:
    who = ", ".join(map(str, sorted({*course.lost, *useless})))
    if not course.redundant:
        why = "the grid has no checksums"
    elif not able:
        why = "there is no complete column of checksums"
    else:
        why = f"only {len(able)} complete column{'s' * (len(able) > 1)} of checksums"
    if len(gone) > 1:
        why = f"columns {gone} of data lost processes at once, and {why}"
    return (
        f"ranks {who} of the grid are dead, or have wrong numbers, and {why}: their data is gone. Start again; spare "
        f"ranks (more than P·(Q+redundant)), or processes of `ckpt run --spares K`, form new checksums after a failure, and "
        f"Grid(..., redundant=f) bears f at once"
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


def _copies(course: Course, states: Mapping[int, State], forming: Sequence[int]) -> list[Transfer]:
    """`forming`: new columns of checksums, which begin with nothing."""
    held = {rank: {*state.kept, *range(state.low, state.high)} for rank, state in states.items()}
    for v in forming:
        held |= {rank: set() for rank in course.roles.column(v).ranks}
    return [
        Transfer("kept", *each)
        for each in missing(course.shape, course.roles, held, course.base, course.redundant)
    ]


def _receded(course: Course, base: int) -> Course:
    """The foremost column is lost before the others have its panels: these are factorised again, and what was replaced
    is replaced from the earlier step on."""
    data = tuple(column._replace(since=min(column.since, base)) for column in course.roles.data)
    behind = {(v, group): row for (v, group), row in course.open.items() if group * course.shape.Q + v < base}
    return replace(course, roles=replace(course.roles, data=data), open=behind)


def _without(course: Course, gone: list[int], able: list[int], useless: set[int]) -> Course:
    """Columns of checksums take the places of the columns of data that are gone; incomplete ones are given up."""
    shape, roles, base = course.shape, course.roles, course.base
    chosen, worst = _best(course, gone, able, useless)
    data, behind = list(roles.data), dict(course.open)
    for d, v in zip(gone, chosen, strict=True):
        check = roles.column(v)
        for group in range(shape.groups):
            if group * shape.Q + d < base:  # factorised: what it was made of is wanted back
                behind.setdefault((d, group), roles.rows(group)[d])
        data[d] = Column(check.ranks, base, check.rows)
    checks = tuple(roles.column(v) for v in able if v not in chosen)
    return replace(
        course,
        roles=Roles(tuple(data), checks, roles.idle),
        open=behind,
        condition=max(course.condition, worst),
    )


def _best(
    course: Course, gone: list[int], able: list[int], useless: set[int]
) -> tuple[tuple[int, ...], float]:
    """Which columns of checksums replace which of the lost ones, and the condition number that this has."""
    if not gone:
        return (), 1.0
    best: tuple[int, ...] = ()
    least = float("inf")
    for chosen in combinations(able, len(gone)):
        worst = 1.0
        for group in range(course.shape.groups):
            rows = list(course.roles.rows(group))
            for d, v in zip(gone, chosen, strict=True):
                rows[d] = course.roles.column(v).rows[group]
            worst = max(worst, condition(tuple(rows)))
        if worst < least:
            best, least = chosen, worst
    if not least < HOPELESS:
        who = ", ".join(map(str, sorted({*course.lost, *useless})))
        raise TooManyLost(
            f"ranks {who} of the grid are dead, or have wrong numbers, and what is left cannot be told apart: the weights "
            f"of what is held have the condition number {least:.1e}. Start again"
        )
    return best, least


def _new_checks(course: Course) -> tuple[Course, tuple[int, ...]]:
    """Idle ranks become columns of checksums, as many as are wanted and there are enough for; and their numbers.
    `shares.spread` says when they are encoded."""
    P, idle, checks = course.shape.P, course.roles.idle, list(course.roles.checks)
    before = len(checks)
    while len(checks) < course.redundant and len(idle) >= P:
        degree = min(set(range(course.redundant)).difference(check.degree for check in checks))
        checks.append(Column(idle[:P], degree=degree))
        idle = idle[P:]
    forming = tuple(range(course.shape.Q + before, course.shape.Q + len(checks)))
    roles = replace(course.roles, checks=tuple(checks), idle=idle)
    return replace(course, roles=roles, encoding=course.encoding + bool(forming)), forming


def _right_hand_sides(
    course: Course, forming: Sequence[int], whole: Mapping[int, Column], steps: Mapping[int, int]
) -> list[Transfer]:
    """New columns get the right-hand sides as they are at step `base`, which every column has a copy of."""
    source = next(column for v, column in whole.items() if steps[v] == course.base)
    return [
        Transfer("right", giver, rank, course.base)
        for v in forming
        for giver, rank in zip(source.ranks, course.roles.column(v).ranks, strict=True)
    ]

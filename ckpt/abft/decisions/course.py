"""Data that is the same at all ranks of a solve (`Course`), what ranks say at a meeting, and its result (plan.py decides).

Pure: data only.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from ckpt.abft.decisions.encoding import Row, unit, weights
from ckpt.abft.decisions.grid import Column, Roles, Shape
from ckpt.abft.decisions.joining import Lack
from ckpt.abft.decisions.steps import Share

__all__ = [
    "Course",
    "Decision",
    "State",
    "Transfer",
    "encoded",
    "final_rows",
    "is_protected",
    "replaced",
    "with_rows",
]


class State(NamedTuple):
    """What a rank says of itself at a meeting.

    `step`: it has applied the panels below this number; -1: it is idle, or has no matrix yet. `update`: the last step of
    which it has the update as root; -1: none. `low`, `high`: it has the panels from `low` to below `high`. `solved`: it
    has the whole solution. `checked`: the number of meetings before it looked at its share of the residual. `corrupt`:
    its numbers were wrong, and it has dropped them; `corrected`: how many it has put right; `redone`: how often it has made
    something again. `kept`: the panels of which it keeps a copy, if the course is one of those. `problem`: an error of this
    rank that ends the solve for all. `signature`: of its arguments. `remarks`: numbers for the report.
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
    redone: int = 0
    kept: tuple[int, ...] = ()
    problem: str | None = None
    signature: str = ""
    remarks: tuple[float, ...] = ()

    def of_new(self, rank: int) -> State:
        """What is said of a process that was started for this meeting."""
        return State(rank, signature=self.signature)


class Transfer(NamedTuple):
    """One transfer of data between two ranks before all go on. `source` gives `target` something. kind "update", "panel" (of
    step k), "kept" (a copy of panel k), "right" (right-hand sides at step k) or "solution"."""

    kind: str
    source: int
    target: int
    k: int


@dataclass(frozen=True)
class Course:
    """What all ranks know alike. `redundant`: as many columns of checksums are wanted. `encoding`: the number of the last
    one. `shares`: by step; those at step `shape.blocks` are done after the last panel. `settled`: (column, group) of what
    was computed back before the last meeting and counts; other shares are undone by who has begun them."""

    shape: Shape
    roles: Roles
    redundant: int
    on_loss: str = "hot"
    base: int = 0
    encoding: int = 0
    settled: frozenset[tuple[int, int]] = frozenset()
    shares: Mapping[int, tuple[Share, ...]] = field(default_factory=dict)
    open: Mapping[tuple[int, int], Row] = field(default_factory=dict)
    """(column, group) in which a column of data holds checksums of a block column that is factorised, and what it should
    hold: what the panel was made of."""
    keep: bool = False
    """Copies of panels are kept (copies.py)."""
    ahead: int = 0
    """The look-ahead (steps.py)."""
    meetings: int = 0
    lost: tuple[int, ...] = ()
    """All ranks that have died so far, in the order in which it was agreed."""
    replaced: int = 0
    """How many columns of data held checksums when somebody had the solution."""
    former: Course | None = None
    """If only the solution is to be given: the course before that, from which all go on if nobody has it any more."""
    condition: float = 1.0
    """The largest condition number of what was held after a replacement."""
    began: int = sys.maxsize
    """Lower ranks have begun the operation, and have the program's functions. Others were started meanwhile (joining.py)."""
    started: int = 0
    """How many processes were started meanwhile, dead ones too."""

    def having(self, ranks: Iterable[int]) -> tuple[int, ...]:
        """Those of these ranks that have the program's functions, sorted."""
        return tuple(sorted(rank for rank in ranks if rank < self.began))

    def lack(self, base: int | None = None) -> Lack:
        """What processes are to be started for, when the foremost column is at step `base` (None: as it is now)."""
        is_over = (self.base if base is None else base) >= self.shape.blocks
        columns = 0 if is_over else self.redundant - len(self.roles.checks)
        return Lack(columns, self.shape.P, len(self.roles.idle))

    def with_started(self, count: int) -> Course:
        """So many processes more were started."""
        return replace(self, started=self.started + count)

    def rows_at(self, k: int, v: int) -> tuple[Row, ...]:
        """What column v holds of every group when the panel of step k is applied, its shares done; zeros: nothing yet."""
        rows = list(self.roles.column(v).rows or (unit(v, self.shape.Q),) * self.shape.groups)
        for step, shares in self.shares.items():
            for share in shares:
                if share.column == v and step <= k:
                    rows[share.group] = share.row
                elif share.column == v and share.kind == "encode":
                    rows[share.group] = (0.0,) * self.shape.Q
        return tuple(rows)

    def open_at(self, k: int, v: int) -> frozenset[int]:
        """The open groups of column v when the panel of step k is applied, its shares done."""
        found = {group for column, group in self.open if column == v}
        if found:
            for step, shares in self.shares.items():
                if step <= k:
                    found.difference_update(share.group for share in shares if share.column == v)
        return frozenset(found)


class Decision(NamedTuple):
    """What all ranks do after a meeting. `what`: "go on", "start" (fill the matrix first), "finish" (only the solution is to
    be given) or "solved"."""

    what: str
    course: Course
    transfers: tuple[Transfer, ...] = ()
    happened: tuple[tuple[str, int], ...] = ()
    """("replaced" | "checksums lost" | "encoding" | "idle lost" | "again", column), for the report."""


def encoded(shape: Shape, roles: Roles, encoding: int) -> Roles:
    """The roles of ranks that fill their columns of checksums themselves, with the rows of this encoding."""
    checks = tuple(
        column._replace(
            rows=tuple(weights(encoding, group, shape.Q, degree) for group in range(shape.groups)),
            degree=degree,
        )
        for degree, column in enumerate(roles.checks)
    )
    return replace(roles, checks=checks)


def with_rows(shape: Shape, v: int, column: Column, changed: Mapping[int, Row]) -> Column:
    """A column of data that holds these rows of these groups."""
    rows = list(column.rows or (unit(v, shape.Q),) * shape.groups)
    for group, row in changed.items():
        rows[group] = row
    return column._replace(rows=tuple(rows))


def final_rows(course: Course) -> dict[int, tuple[Row, ...]]:
    """What the columns of data hold when all shares are done, for each group in which not all of them hold true columns."""
    Q = course.shape.Q
    back = {
        (share.group, share.column): share.row
        for shares in course.shares.values()
        for share in shares
        if share.kind == "subtract"
    }
    true = tuple(unit(v, Q) for v in range(Q))
    found = {}
    for group in range(course.shape.groups):
        rows = tuple(back.get((group, v), row) for v, row in enumerate(course.roles.rows(group)))
        if rows != true:
            found[group] = rows
    return found


def replaced(course: Course) -> int:
    """How many columns of data hold checksums to the end, of some group."""
    if not course.roles.data:  # only the solution is given
        return course.replaced
    Q = course.shape.Q
    return len({v for rows in final_rows(course).values() for v, row in enumerate(rows) if row != unit(v, Q)})


def is_protected(course: Course) -> bool:
    """Are there more complete columns of checksums at the end than columns of data that have lost a rank since somebody had
    the solution?"""
    roles, lost = (course.former or course).roles, {*course.lost}
    able = [
        check for check in roles.checks if check.ready <= course.shape.blocks and not lost & {*check.ranks}
    ]
    return len(able) > sum(bool(lost & {*column.ranks}) for column in roles.data)

"""Decides which blocks are computed back and encoded in the background, at which steps, and which of that counts after a
death.

A share (steps.py) is one block of a group that one column of data computes back by subtraction, or that a new column of
checksums encodes. Several of a group are done in the order of the list, in every process: each of them knows what the
columns hold by then. What a column is to hold again:

    open groups    its block column was factorised before it was replaced: what the panel was made of, always
    other groups   the true column, before the group is encoded anew (`restore`), or at once (on_loss "recover")

The group that the next panel is of comes first, then those after it: two in each step, so every block is turned back before
its panel is made. What is factorised as checksums stays so to the end, and each such block doubles the rounding
error of its group: after 16 deaths, with the last groups first, 13 of 100 blocks had (residual 3.6 times that without a
death; 1.9 times in this order). Finished groups come last, since nothing but the next death waits for them.

Shares are of steps. A share is done in all process rows if a column that did its own one at that place, or later, has
applied the panel of its step, or if anybody has applied a panel that this column has made in a later step: processes do
everything in order, and every column of data gives its block to every share. All others are undone by who has begun them,
and planned anew.

Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ckpt.abft.decisions.course import Course, with_rows
from ckpt.abft.decisions.encoding import Row, row_of, subtraction, unit, weights
from ckpt.abft.decisions.grid import Column, Shape
from ckpt.abft.decisions.steps import Share, made_in

__all__ = ["settle", "spread", "turned_back"]


def settle(course: Course, steps: Mapping[int, int], base: int) -> Course:
    """Count what was done of the shares; what was not is planned anew. `steps`: how far the intact columns are."""
    shape = course.shape
    known = dict(steps)
    for k in range(base):
        made = made_in(k, course.base, course.ahead)
        known[shape.owner(k)] = max(known.get(shape.owner(k), 0), made + 1)
    places = [
        (k, number, share) for k, shares in course.shares.items() for number, share in enumerate(shares)
    ]
    last = max(
        ((k, number) for k, number, share in places if k < known.get(share.column, 0)), default=(-1, -1)
    )
    done = {
        (share.column, share.group): share.row
        for k, number, share in places
        if share.kind == "subtract" and (k, number) <= last
    }
    data = list(course.roles.data)
    for v, column in enumerate(data):
        changed = {group: row for (of, group), row in done.items() if of == v}
        if changed:
            data[v] = with_rows(shape, v, column, changed)
    return replace(
        course,
        roles=replace(course.roles, data=tuple(data)),
        open={place: row for place, row in course.open.items() if place not in done},
        settled=frozenset(done),
    )


def spread(course: Course, forming: Sequence[int], restore: bool) -> Course:
    """Plan what is to be computed back and encoded, over the steps from `base` on: first what is factorised first.

    `forming`: the numbers of new columns of checksums, which get their rows here.
    """
    shape, base = course.shape, course.base
    recover = course.on_loss == "recover"
    wanted = set(range(shape.groups)) if forming else {group for _, group in course.open}
    if recover:
        wanted |= {group for group in range(shape.groups) if turned_back(course, group, base)}
    groups = sorted(wanted, key=lambda group: (_is_finished(shape, group, base), group))
    shares: dict[int, tuple[Share, ...]] = {}
    new: dict[int, dict[int, Row]] = {c: {} for c in forming}
    for number, group in enumerate(groups):
        k = base if recover else _when(shape, base, number, len(groups), bool(forming))
        rows = list(course.roles.rows(group))
        back = {v: row for (v, of), row in course.open.items() if of == group}
        if recover or (restore and forming):
            back |= turned_back(course, group, k)
        mine = []
        for v, row in sorted(back.items()):
            mine.append(Share("subtract", group, v, subtraction(tuple(rows), row), row))
            rows[v] = row
        for c in forming:
            much = weights(course.encoding, group, shape.Q, course.roles.column(c).degree)
            new[c][group] = row_of(much, rows)
            mine.append(Share("encode", group, c, much, new[c][group]))
        shares[k] = (*shares.get(k, ()), *mine)
    checks = tuple(
        _formed(column, new[c], max(shares) + 1) if c in new else column
        for c, column in enumerate(course.roles.checks, shape.Q)
    )
    return replace(course, shares=shares, roles=replace(course.roles, checks=checks))


def _formed(column: Column, rows: Mapping[int, Row], ready: int) -> Column:
    return column._replace(rows=tuple(row for _, row in sorted(rows.items())), ready=ready)


def _is_finished(shape: Shape, group: int, base: int) -> bool:
    return (group + 1) * shape.Q <= base


def turned_back(course: Course, group: int, k: int) -> dict[int, Row]:
    """The true rows of the columns that hold others and do not make a panel of their block of the group before step k."""
    Q = course.shape.Q
    rows = course.roles.rows(group)
    return {
        v: unit(v, Q)
        for v in range(Q)
        if rows[v] != unit(v, Q) and made_in(group * Q + v, course.base, course.ahead) >= k
    }


def _when(shape: Shape, base: int, number: int, total: int, urgent: bool) -> int:
    """The step of share `number` of `total`: over the first half of what is left, or after the last panel. `urgent`: two
    in each step, as long as they are not through by then: the next failure is borne only after that."""
    left = (shape.blocks - base + 1) // 2
    if urgent:
        left = min(left, (total + 1) // 2)
    return base + number * left // total if left else shape.blocks

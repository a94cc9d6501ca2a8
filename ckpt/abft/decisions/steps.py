"""One step of the factorisation as a list of operations, for every place of the grid.

Step k, at a process in row p of column v:

    shares      what is due of recovery and encoding at this step (plan.py): blocks of one group go from all columns of data
                to one column, which combines them
    panel       the column that owns block column k gathers the rows k… of it at its root (process row k mod P), which
                factorises them and gives every row of the column its rows of L, with the pivots; from there they go along
                the process row (broadcast.py)
    update      the rows that the pivots move are exchanged within the column: every other row sends the root what moves
                into block row k; the root solves for block row k of U and sends it back with the rows that move out of
                it. Only then does a process change its matrix ("apply"), and that takes no communication.

With look-ahead the owner of panel k+1 makes it in step k, between the exchange of rows and "apply": it computes what its
block column will be ("ahead") beside the matrix, which stays as it is, and the others have the panel when they come to
step k+1, instead of waiting until the owner has changed all of its matrix. Panel `base` of a course, which no step of the
course comes before, is made in its own step.

So a process is always between two steps: it has applied the panels below its step number, and no other. And since the root
needs the rows of all before it answers one, processes of one column differ by one step at most. Both are what a death leaves
behind is repaired by; neither costs a message.

Operations between two processes come in pairs with the same (kind, k) and are matched in the order of the lists.

Flow control: columns of checksums own no panel, and would fall behind without bound. Each of them tells the owner of the
first panel of every group when it is through with the group before the last (`token`). So a panel is needed by others for at
most `WINDOW`·Q steps.

Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from ckpt.abft.decisions.broadcast import ways
from ckpt.abft.decisions.encoding import Row
from ckpt.abft.decisions.grid import Shape

__all__ = [
    "Op",
    "Share",
    "WINDOW",
    "made_in",
    "operations",
    "share_operations",
    "share_rows",
    "token_is_due",
    "trailing_group",
]

WINDOW = 4
"""Panels are kept for so many times Q steps."""


class Op(NamedTuple):
    """One operation. `kind`: see `operations`. `peer`: the virtual place (p, v) at the other end, or None: it is local."""

    kind: str
    k: int
    peer: tuple[int, int] | None = None
    detail: int = 0


class Share(NamedTuple):
    """A share of background work: column `column` gets the blocks of `group` from all (other) columns of data.

    kind "subtract": it computes its own block back; "encode": it becomes a column of checksums for this group. `much`: how
    much the block of each column of data counts in what it then has, its own one too. `row`: what that is (encoding.py).
    """

    kind: str
    group: int
    column: int
    much: Row
    row: Row


def trailing_group(shape: Shape, k: int, v: int, open_groups: Collection[int]) -> int:
    """The first group that step k changes at column v.

    `open_groups`: those in which a column of data still holds checksums, since block column v was factorised before it
    came. While such a group is under way they change as all checksums do.
    """
    group = k // shape.Q
    if v > k % shape.Q or group in open_groups:
        return group
    return group + 1


def made_in(k: int, base: int, ahead: int) -> int:
    """The step in which the owner makes panel k, in a course that begins at `base`."""
    return k - ahead if k > base else k


def token_is_due(shape: Shape, k: int, base: int) -> bool:
    """Must the owner of panel k hear from the columns of checksums first? `base`: the step of the last meeting."""
    done = k // shape.Q - 1  # the group whose end is told of
    return k % shape.Q == 0 and done >= 1 and done * shape.Q - 1 >= base


def share_rows(shape: Shape, k: int, group: int, p: int) -> int:
    """How many rows of process row p a share of this group needs in step k: those that are not zero in all columns, from the
    first one on. Below the diagonal blocks of a finished group all are."""
    last = (group + 1) * shape.Q
    return shape.rows_before(p, last) if last <= k else shape.local_rows(p)


def share_operations(shape: Shape, k: int, p: int, v: int, shares: Sequence[Share]) -> list[Op]:
    """The operations of a process for the shares of work of step k. `detail`: the number of the share in this step."""
    found = []
    for number, share in enumerate(shares):
        if v == share.column:
            found += [Op("get block", k, (p, q), number) for q in range(shape.Q) if q != v]
            found.append(Op("combine", k, None, number))
        elif v < shape.Q:
            found.append(Op("give block", k, (p, share.column), number))
    return found


def operations(
    shape: Shape,
    columns: Sequence[int],
    base: int,
    k: int,
    p: int,
    v: int,
    shares: Mapping[int, Sequence[Share]],
    ahead: int = 0,
) -> list[Op]:
    """All operations of step k at process row p of column v, in order. `columns`: the virtual numbers that take part.
    `ahead`: the look-ahead, 0 or 1.

    Panels below `base` are in everybody's hands (the last meeting saw to it).
    """
    found = share_operations(shape, k, p, v, shares.get(k, ()))
    if k >= base and v != shape.owner(k):
        found += _panel_from_others(shape, columns, k, p, v)
    elif k >= base and made_in(k, base, ahead) == k:
        found += _panel(shape, columns, base, k, p, v)
    others = [row for row in range(shape.P) if row != shape.root(k)]
    if p == shape.root(k):
        found += [Op("get rows", k, (row, v)) for row in others]
        found.append(Op("solve", k))
        found += [Op("give update", k, (row, v)) for row in others]
    else:
        found += [Op("give rows", k, (shape.root(k), v)), Op("get update", k, (shape.root(k), v))]
    following = k + 1
    if (
        base < following < shape.blocks
        and v == shape.owner(following)
        and made_in(following, base, ahead) == k
    ):
        found.append(Op("ahead", following))
        found += _panel(shape, columns, base, following, p, v)
    found.append(Op("apply", k))
    first = k + 1 + shape.Q  # the panel before which this is to be heard
    if v >= shape.Q and first < shape.blocks and token_is_due(shape, first, base):
        found.append(Op("give token", k, (p, shape.owner(first))))
    return found


def _panel(shape: Shape, columns: Sequence[int], base: int, k: int, p: int, v: int) -> list[Op]:
    """The owner's part."""
    root, found = shape.root(k), []
    if token_is_due(shape, k, base):
        found += [Op("get token", k - 1 - shape.Q, (p, check)) for check in columns if check >= shape.Q]
    others = [row for row in range(shape.P) if row != root]
    if p == root:
        found += [Op("get part", k, (row, v)) for row in others]
        found.append(Op("factorise", k))
        found += [Op("give piece", k, (row, v)) for row in others]
    else:
        found += [Op("give part", k, (root, v)), Op("get piece", k, (root, v))]
    return found + [Op("give panel", k, (p, son)) for son in ways(columns, v)[v].sons]


def _panel_from_others(shape: Shape, columns: Sequence[int], k: int, p: int, v: int) -> list[Op]:
    way = ways(columns, shape.owner(k))[v]
    assert way.father is not None
    return [Op("get panel", k, (p, way.father)), *(Op("give panel", k, (p, son)) for son in way.sons)]

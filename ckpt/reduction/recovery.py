"""Decides after a death who is master and root, where copies lie, and from which items a reduction goes on. (pure)

    next_master      the lowest rank that lives
    next_root        the next one above the dead root, around the ring
    amended          a report, and what its sender says after it
    copy_places      who is to hold an original beside its owner: the master, who hears of it anyhow, then the ranks that
                     live from the other side of the ring on
    cover            disjoint items of the living, from which the reduction goes on, and the originals that complete them

Source of the copies' places: equation (4) of Li, Zhao, Yan et al. (2018), (i + 1) mod p, of one rank a host. Here the next
rank is on the same host mostly, and the one across the ring is not, if no host has more than half of the ranks. That the
master comes first is ours: its copy comes with the call, so both are out at once. The cover is ours: its master never dies.

Not here: when to ask the living (member.py), how tasks are made of the items (scheduler.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from ckpt.reduction.messages import Call, Copied, Expired, Have, Kept, Message, Path, Report, ranks_of


def next_master(size: int, dead: Path) -> int:
    """The master: the lowest rank that is not among the dead. ValueError: nobody lives."""
    for rank in range(size):
        if not dead >> rank & 1:
            return rank
    raise ValueError(f"all {size} ranks are dead")


def next_root(root: int, size: int, dead: Path) -> int:
    """The rank that gets the result in place of a dead root: the next one that lives, around the ring."""
    for step in range(size):
        rank = (root + step) % size
        if not dead >> rank & 1:
            return rank
    raise ValueError(f"all {size} ranks are dead")


def copy_places(owner: int, size: int, dead: Path, copies: int) -> list[int]:
    """The ranks that are to hold `owner`'s original beside itself: so many that live, one more if the owner is dead."""
    wanted = copies + (dead >> owner & 1 if copies else 0)
    living = [
        rank
        for step in range(size)
        if (rank := (owner + size // 2 + step) % size) != owner and not dead >> rank & 1
    ]
    master = next_master(size, dead)
    if owner != master:
        living = [master, *(rank for rank in living if rank != master)]
    return living[:wanted]


def amended(report: Report, source: int, message: Message) -> Report:
    """A report, and what `source` says while others are still asked: the report has all that it said before."""
    if isinstance(message, Call):
        kept = Kept(message.weight, message.where)
        items = report.items if message.problem else {**report.items, 1 << source: kept}
        return report._replace(call=message, contract=message.contract, items=items)
    if isinstance(message, Copied):
        kept = Kept(message.weight, message.where)
        return report._replace(items={**report.items, 1 << message.owner: kept})
    if isinstance(message, Expired):
        return report._replace(expired=True)
    return report._replace(complete=True) if isinstance(message, Have) else report


class Cover(NamedTuple):
    """The items from which a reduction goes on after a death. `items`: disjoint paths of intermediate results, with who
    holds each. `originals`: the same for single ranks. `lost`: ranks in none of them."""

    items: dict[Path, tuple[int, ...]]
    originals: dict[int, tuple[int, ...]]
    lost: Path


def cover(
    held: Mapping[int, Iterable[Path]], wanted: Path, usable: Callable[[Path], bool] = lambda path: True
) -> Cover:
    """Cover the ranks of `wanted` by disjoint items out of those `held` (living rank → paths).

    Items with a rank that is nowhere else come first, then the larger ones; ties by the lower path. `usable` says whether
    an intermediate result can be part of the reduction at all (its order may forbid it). One with ranks that are not wanted
    is not used.
    """
    holders: dict[Path, list[int]] = {}
    for rank in sorted(held):
        for path in held[rank]:
            holders.setdefault(path, []).append(rank)
    single = 0
    for path in holders:
        if not path & (path - 1):
            single |= path
    larger = [path for path in holders if path & (path - 1) and not path & ~wanted and usable(path)]
    larger.sort(key=lambda path: (-(path & ~single).bit_count(), -path.bit_count(), path))
    items: dict[Path, tuple[int, ...]] = {}
    used = 0
    for path in larger:
        if not path & used:
            used |= path
            items[path] = tuple(holders[path])
    originals = {rank: tuple(holders[1 << rank]) for rank in ranks_of(wanted & ~used) if 1 << rank in holders}
    return Cover(items, originals, wanted & ~used & ~single)

"""Which processes compute which rank, which of them are copies of others, and how many copies there may be. Pure.

    numbers     process N·h + k is replica k of rank h, for the N replicas that a rank begins with. Numbers from N·n on are
                reserved for copies: of the planes N, N+1, …, each with one process for every rank. A number is used once.
    lineage     a plane that was started from an image of another one has all errors that this had in its memory then
    budget      so many copies for each of the N places of a rank within an hour

Who is right? More than half of the replicas agree, and no error can have come to all of them from one that they are
copies of. Replica 3 is a copy of 1: if 1 and 3 agree and 2 differs, then either 2 is wrong now, or 1 had an error in its
memory when it was copied, and 3 has it, too. Nobody can tell (`Lineage.decides`). If 2 and 3 agree, 1 is wrong; if 1 and 2
do, 3 is.

Not here: how a copy is made (:mod:`ckpt.controller.replicas.clones`).
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import combinations

__all__ = ["HOUR_NS", "Budget", "Lineage", "Numbering"]

HOUR_NS = 3_600_000_000_000
_FOREVER = 1 << 62


class Numbering:
    """The numbers of processes of `ranks` ranks that begin with `replicas` replicas each."""

    def __init__(self, ranks: int, replicas: int) -> None:
        self.ranks, self.replicas = ranks, replicas

    def parts(self, process: int) -> tuple[int, int]:
        """Rank and plane of a process."""
        first = self.ranks * self.replicas
        if process < first:
            return divmod(process, self.replicas)
        later, rank = divmod(process - first, self.ranks)
        return rank, self.replicas + later

    def process(self, rank: int, plane: int) -> int:
        """The inverse of `parts`."""
        if plane < self.replicas:
            return rank * self.replicas + plane
        return plane * self.ranks + rank

    def of_plane(self, plane: int) -> tuple[int, ...]:
        """The processes of a plane, by rank."""
        return tuple(self.process(rank, plane) for rank in range(self.ranks))


class Lineage:
    """Which planes are copies of which, in one incarnation. All that it began with are independent."""

    def __init__(self) -> None:
        self.origins: dict[int, tuple[int, int]] = {}

    def begin(self) -> None:
        """All planes are started anew, from one image."""
        self.origins.clear()

    def copied(self, plane: int, donor: int, epoch: int) -> None:
        """`plane` begins with the image of `epoch` that `donor` has given. Epochs grow."""
        self.origins[plane] = donor, epoch

    def shared(self, one: int, other: int) -> int:
        """The epoch until which both were one plane; 0: they have been apart since all began."""
        first, second = self._history(one), self._history(other)
        return max((min(first[plane], second[plane]) for plane in first.keys() & second.keys()), default=0)

    def decides(self, agree: Collection[int], others: Collection[int]) -> bool:
        """Do these planes, which agree, count against the others? Not if all of them were one plane at a time when one of
        the others was another already: an error of then would be in all of them."""
        if not self.origins:
            return True
        root = min((self.shared(*pair) for pair in combinations(sorted(agree), 2)), default=0)
        return all(self.shared(each, other) >= root for other in others for each in agree)

    def _history(self, plane: int) -> dict[int, int]:
        """Planes that this one was, each with the epoch until which it was that."""
        found, until = {plane: _FOREVER}, _FOREVER
        while plane in self.origins:
            plane, epoch = self.origins[plane]
            until = found[plane] = min(until, epoch)
        return found


class Budget:
    """So many copies for each place, within an hour."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.spent: dict[int, list[int]] = {}

    def free_ns(self, place: int, now_ns: int) -> int | None:
        """From when on this place may be filled again, in ns of the clock of `now_ns`; None: never."""
        if self.most <= 0:
            return None
        recent = [when for when in self.spent.get(place, ()) if now_ns - when < HOUR_NS]
        return now_ns if len(recent) < self.most else recent[-self.most] + HOUR_NS

    def spend(self, place: int, now_ns: int) -> None:
        recent = [when for when in self.spent.get(place, ()) if now_ns - when < HOUR_NS]
        self.spent[place] = [*recent, now_ns]

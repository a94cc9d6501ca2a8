"""Planes that do not come on while another one has: one may wait for a message that its others never make. Pure.

A plane that is wrong may send nothing wrong: it waits for what does not come. Each process tells how many messages it has
sent. A plane is *behind* if one of its processes has sent less than the same rank of another plane, or has not ended where
that has. It is *stalled* if for long none of its processes has sent anything, though all of them answer:

    long    PATIENCE_NS, or twice the longest time that any process has needed from one message to the next, if that is
            longer

Only time in which all processes of the plane answer counts (`look`, about once a second): a machine that sleeps stalls
nobody.

Not here: planes that do not answer, and what follows (`supervisor`).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

__all__ = ["Stalls"]

PATIENCE_NS: Final = 60_000_000_000
STEP_NS: Final = 2_000_000_000
"""From one look to the next not more than this counts."""

ALL: Final = 1 << 62
"""More messages than any process sends: its program has ended."""


class Stalls:
    """`planes`: those that compute."""

    def __init__(self, ranks: int, planes: Collection[int], now_ns: int) -> None:
        self.planes = set(planes)
        self.counts: list[dict[int, int]] = [dict.fromkeys(planes, 0) for _ in range(ranks)]
        self.longest_ns = 0
        self._changed_ns: list[dict[int, int]] = [dict.fromkeys(planes, now_ns) for _ in range(ranks)]
        self._still_ns = dict.fromkeys(planes, 0)
        self._looked_ns = now_ns

    def sent(self, rank: int, plane: int, count: int, now_ns: int) -> None:
        """A process has sent so many messages."""
        if plane not in self.planes or count <= self.counts[rank].get(plane, 0):
            return
        self.longest_ns = max(self.longest_ns, now_ns - self._changed_ns[rank][plane])
        self.counts[rank][plane], self._changed_ns[rank][plane] = count, now_ns
        self._still_ns[plane] = 0

    def finished(self, rank: int, plane: int, now_ns: int) -> None:
        """The program of a process has ended."""
        self.sent(rank, plane, ALL, now_ns)

    def joined(self, plane: int, now_ns: int) -> None:
        """A copy is there. It is behind until it has come as far as the others."""
        self.planes.add(plane)
        self._still_ns[plane] = 0
        for counts, changed_ns in zip(self.counts, self._changed_ns, strict=True):
            counts[plane], changed_ns[plane] = 0, now_ns

    def left(self, planes: Collection[int]) -> None:
        """Only these planes compute."""
        self.planes = set(planes)

    def look(self, well: Collection[int], now_ns: int) -> set[int]:
        """The planes that are stalled. `well`: those of which all processes answer."""
        step_ns, self._looked_ns = min(now_ns - self._looked_ns, STEP_NS), now_ns
        behind = {plane for plane in self.planes if self._is_behind(plane)}
        for plane in behind.intersection(well):
            self._still_ns[plane] += step_ns
        long_ns = max(PATIENCE_NS, 2 * self.longest_ns)
        return {plane for plane in behind if self._still_ns[plane] >= long_ns}

    def alike(self, planes: Collection[int]) -> set[int]:
        """Most of these planes that have sent as many messages in each rank."""
        places: dict[tuple[int, ...], set[int]] = {}
        for plane in planes:
            places.setdefault(tuple(counts[plane] for counts in self.counts), set()).add(plane)
        return max(places.values(), key=len, default=set())

    def came_on_ns(self, plane: int) -> int:
        """When a process of this plane last sent something, or its program ended."""
        return max(changed_ns[plane] for changed_ns in self._changed_ns)

    def _is_behind(self, plane: int) -> bool:
        return any(counts[plane] < counts[other] for counts in self.counts for other in self.planes)

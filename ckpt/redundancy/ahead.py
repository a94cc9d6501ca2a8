"""How far the replicas of a rank may run ahead of the slowest one: at most AHEAD_MAX messages. Pure.

Each process tells how many messages it has sent. Of every rank the count of the slowest replica is the *floor*; who is more
than AHEAD_MAX messages above it waits where the program waits anyway, or sends much (:mod:`ckpt.redundancy.layer`). So what
a replica remembers of its messages (:data:`ckpt.redundancy.digest.RING`) reaches back to where the slowest one is, and a
verified checkpoint does not wait for long.

    a floor is told     only where the replicas of a rank are apart by half of that, or were
    slow                a replica that is stopped holds the others up, until it is taken out (`SILENT_NS` of the controller)
    stalled             one whose count does not change for STALLED_NS holds nobody up: it may wait for what never comes

Nobody waits for ever. Take the slowest replica of each rank: it does not wait for the bound. What one of them is to receive
was sent in its plane as soon as the sender is as far as the slowest replica of that rank, if the program can go on at all.

Not here: who is lost (:mod:`ckpt.controller.replicas`).
"""

from __future__ import annotations

from collections.abc import Collection

__all__ = ["AHEAD_MAX", "STALLED_NS", "Floors"]

AHEAD_MAX = 8192
STALLED_NS = 10_000_000_000


class Floors:
    """The floors of all ranks. Methods return those that have to be told: (rank, floor); None: nobody has to wait."""

    def __init__(self, ranks: int, planes: Collection[int], now_ns: int) -> None:
        self.planes = set(planes)
        self.counts: list[dict[int, int]] = [dict.fromkeys(planes, 0) for _ in range(ranks)]
        self.changed_ns: list[dict[int, int]] = [dict.fromkeys(planes, now_ns) for _ in range(ranks)]
        self.told: list[int | None] = [None] * ranks

    def sent(self, rank: int, plane: int, count: int, now_ns: int) -> list[tuple[int, int | None]]:
        """A replica has sent so many messages."""
        if plane in self.planes and count > self.counts[rank].get(plane, -1):
            self.counts[rank][plane], self.changed_ns[rank][plane] = count, now_ns
        return self._look(rank, now_ns)

    def joined(self, plane: int) -> None:
        """A copy is there. It holds nobody up before it has told how far its image was."""
        self.planes.add(plane)

    def left(self, planes: Collection[int], now_ns: int) -> list[tuple[int, int | None]]:
        """Only these planes are left."""
        self.planes = set(planes)
        return self.look(now_ns)

    def look(self, now_ns: int) -> list[tuple[int, int | None]]:
        """To be called about once a second."""
        return [each for rank in range(len(self.counts)) for each in self._look(rank, now_ns)]

    def _look(self, rank: int, now_ns: int) -> list[tuple[int, int | None]]:
        counts = {plane: count for plane, count in self.counts[rank].items() if plane in self.planes}
        most = max(counts.values(), default=0)
        moving = [
            count
            for plane, count in counts.items()
            if count == most or now_ns - self.changed_ns[rank][plane] < STALLED_NS
        ]
        least = min(moving, default=0)
        floor = least if most - least > AHEAD_MAX // 2 else None
        if floor == self.told[rank]:
            return []
        self.told[rank] = floor
        return [(rank, floor)]

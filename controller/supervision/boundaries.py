"""Where explicit ranks take their images: the agreement of one round. Pure.

A rank that saves itself explicitly (`ckpt.loop`) can be imaged between two steps only, and in the middle of a step it may
need a message that another rank sends before its own image. So all stop at the same boundary, in two steps::

    rank → controller   boundary{epoch, count}            "I have passed so many boundaries, and wait at the next one"
    controller → ranks  cut{epoch, at}                    at = the most that anybody has passed + 1: go on up to there
    rank → controller   boundary{epoch, count, reached}   "I am there, and wait"
    controller → ranks  cut{epoch, at, take: true}        all are there: take the image

Programs whose ranks loop in step get to the agreed boundary without a message from behind it, so nothing waits for ever. A
rank that has no more boundaries (its program has ended) says so with count −1 and has reached every boundary. Ranks
that are imaged wherever they are do not take part; their images count as reached.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from ckpt.transport.records import dataclass, field

__all__ = ["Agreement"]


@dataclass(slots=True)
class Agreement:
    """Of one round. `counts`: rank → boundaries passed; −1: there will be none."""

    counts: dict[int, int] = field(default_factory=dict)
    reached: set[int] = field(default_factory=set)
    at: int | None = None
    take: bool = False

    def heard(
        self, rank: int, count: int, reached: bool, *, captured: Collection[int], size: int
    ) -> dict[str, Any] | None:
        """What a rank says; the fields of the `cut` that is due now, None: none is."""
        self.counts.setdefault(rank, count)
        if reached:
            self.reached.add(rank)
        if self.at is None and len(self.counts.keys() | set(captured)) >= size:
            self.at = max(self.counts.values()) + 1
            if not self._all_reached(captured, size):
                return {"at": self.at, "take": False}
        if self.at is not None and not self.take and self._all_reached(captured, size):
            self.take = True
            return {"at": self.at, "take": True}
        return None

    def _all_reached(self, captured: Collection[int], size: int) -> bool:
        return len(self.reached | set(captured)) >= size

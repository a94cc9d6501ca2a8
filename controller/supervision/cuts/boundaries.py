"""The boundary at which explicit ranks take their images: the agreement of one round. Pure.

An explicit rank (`ckpt.loop`, :mod:`ckpt.replay.program`) can take its image only at a *boundary*, between two steps. In the
middle of a step it may need a message that another rank sends before that rank's image. So all ranks stop at the same
boundary. They agree on it in two exchanges::

    rank → controller   boundary{epoch, count}            the rank has passed `count` boundaries, and waits at the next one
    controller → ranks  cut{epoch, at}                    at = the highest count of any rank + 1: go on up to this boundary
    rank → controller   boundary{epoch, count, reached}   the rank has reached the boundary `at`, and waits
    controller → ranks  cut{epoch, at, take: true}        all ranks have reached it: take the image

If the ranks of a program loop in step, each rank gets to the agreed boundary without a message that is sent after it, so no
rank waits for ever. A rank without further boundaries (its program has ended) sends count −1, and counts as having reached
every boundary. Ranks that can be captured anywhere do not take part; they count as having reached the boundary when they
have captured their image.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from ckpt.transport.records import dataclass, field

__all__ = ["Agreement"]


@dataclass(slots=True)
class Agreement:
    """The agreement of one round. `counts`: number of boundaries passed by rank; −1: the rank will pass no more.

    `reached`: the ranks that wait at the agreed boundary; `at`: that boundary; `take`: the image may be taken.
    """

    counts: dict[int, int] = field(default_factory=dict)
    reached: set[int] = field(default_factory=set)
    at: int | None = None
    take: bool = False

    def heard(
        self, rank: int, count: int, reached: bool, *, captured: Collection[int], size: int
    ) -> dict[str, Any] | None:
        """A `boundary` packet of a rank. Returns the fields of the `cut` packet that is due now; None: none is due.

        `captured`: the ranks that have captured their image; `size`: the number of ranks.
        """
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

"""Which committed lines are the job's past, when not simply all of them. Pure.

Numbers of lines only grow, so after `ckpt restart JOB@1` of a job that had come to epoch 3, lines 2 and 3 are newer than
what the job goes on from, and no part of its past any more. The same when the newest line could not be loaded. Once
ranks run from an older line than the newest on disk, that is recorded (`lock.py`), durably and before they go on:

    origin     the line they run from; 0: the start of the program
    lineage    `origin` and the lines before it that it goes back to, as far as they are known
    above      the highest epoch there was: all later lines are of the new branch

The other lines stay until they are pruned; who names one (`JOB@3`) turns to its branch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from ckpt.transport.records import dataclass

__all__ = ["Branch", "turn_to"]

_LINEAGE_MOST: Final = 100


@dataclass(frozen=True)
class Branch:
    """See the module's header."""

    origin: int
    lineage: tuple[int, ...]
    above: int

    def holds(self, epoch: int) -> bool:
        """Whether a line is the job's past."""
        return epoch > self.above or epoch in self.lineage

    def to_json(self) -> dict[str, Any]:
        return {"origin": self.origin, "lineage": list(self.lineage), "above": self.above}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Branch:
        """The inverse of `to_json`. Raises KeyError, TypeError, ValueError on values of another shape."""
        return cls(int(value["origin"]), tuple(int(epoch) for epoch in value["lineage"]), int(value["above"]))


def turn_to(origin: int | None, above: int, previous: Mapping[int, int], before: Iterable[int]) -> Branch:
    """The branch that begins at the line `origin` (None: at the start).

    Args:
        above: the highest epoch in use.
        previous: of each line that can be read, the line before it.
        before: the job's past as it was until now, for where `previous` is not known.
    """
    if origin is None:
        return Branch(0, (), above)
    lineage = [origin]
    known = sorted(before, reverse=True)
    while len(lineage) < _LINEAGE_MOST:
        last = lineage[-1]
        older = previous.get(last)
        if older is None and origin in known:
            older = next((epoch for epoch in known if epoch < last), 0)
        if not older:
            break
        lineage.append(older)
    return Branch(origin, tuple(sorted(lineage)), above)

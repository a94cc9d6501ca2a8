"""A branch: the committed lines that are the job's past, when these are not all lines on disk. Pure.

Epoch numbers only grow. So after `ckpt restart JOB@1` of a job that had reached epoch 3, the lines 2 and 3 are newer than
the line that the job goes on from, and they are not part of its past any more. The same holds when the newest line could
not be loaded. When ranks run from a line that is not the newest on disk, the branch is recorded (`lock.py`), durably and
before the ranks go on:

    origin     the line that the ranks were restored from; 0: the program started from its beginning
    lineage    `origin` and the earlier lines of the same past, as far as they are known (at most 100)
    above      the highest epoch in use at that time: all lines with a higher epoch belong to the new branch

The other lines stay until they are pruned. A restart that names one of them (`JOB@3`) makes its branch the job's past.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from ckpt.transport.records import dataclass

__all__ = ["Branch", "new_branch"]

_LINEAGE_MOST: Final = 100


@dataclass(frozen=True)
class Branch:
    """One branch of the job's lines; see the module's header."""

    origin: int
    lineage: tuple[int, ...]
    above: int

    def holds(self, epoch: int) -> bool:
        """Does the line of this epoch belong to this branch?"""
        return epoch > self.above or epoch in self.lineage

    def to_json(self) -> dict[str, Any]:
        return {"origin": self.origin, "lineage": list(self.lineage), "above": self.above}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Branch:
        """The inverse of `to_json`, for what `formats.GENERATION` has checked."""
        return cls(value["origin"], tuple(value["lineage"]), value["above"])


def new_branch(origin: int | None, above: int, previous: Mapping[int, int], before: Iterable[int]) -> Branch:
    """Return the branch that begins at the line `origin` (None: at the beginning of the program).

    Args:
        above: the highest epoch in use.
        previous: {epoch of a line that can be read: epoch of the line before it}.
        before: the epochs of the job's past until now, used for lines that are not in `previous`.
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

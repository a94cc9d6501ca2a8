"""The exceptions of reductions, drawn as a tree.

::

    CkptError
    └── ReductionError           `name`: of the reduction; `ranks`: those that the error is about
        ├── ContributionLost     a rank died, and nothing that the living hold has its contribution
        │   └── RootLost         the rank that was to have the result died
        ├── QuorumNotReached     fewer ranks than asked for can contribute
        ├── Mismatch             the ranks do not ask for the same reduction
        ├── InvalidInput         what a rank gave cannot be reduced
        ├── InputChanged         an array was written to before its reduction had ended (found in debug mode); at the rank
        │                        that wrote alone if nobody needed the array any more
        ├── CombineFailed        the operation raised, or returned what is not of the kind of its arguments
        ├── LateContribution     the reduction had ended without this rank (`late="raise"`); only this rank is told so
        ├── NameInUse            this rank has a reduction of this name under way
        └── WouldDeadlock        the result was waited for by the thread that has to compute it

All but the last three are raised at every rank alike, by `Future.result`.
"""

from __future__ import annotations

from ckpt.errors import CkptError

__all__ = [
    "CombineFailed",
    "ContributionLost",
    "InputChanged",
    "InvalidInput",
    "LateContribution",
    "Mismatch",
    "NameInUse",
    "QuorumNotReached",
    "ReductionError",
    "RootLost",
    "WouldDeadlock",
]


class ReductionError(CkptError):
    """A reduction has no result; the message says why, and at which ranks."""

    def __init__(self, text: str, name: str = "", ranks: tuple[int, ...] = ()) -> None:
        super().__init__(text, name, ranks)
        self.name, self.ranks = name, ranks

    def __str__(self) -> str:
        return str(self.args[0])


class ContributionLost(ReductionError):
    """Ranks died, and neither a copy of what they gave nor a result that contains it is left."""


class RootLost(ContributionLost):
    """The root died before it had the result."""


class QuorumNotReached(ReductionError):
    """So many ranks died that those left are fewer than the quorum, or fewer had called by the deadline."""


class Mismatch(ReductionError):
    """Shapes, types, operations or options differ between ranks; the message says which and where."""


class InvalidInput(ReductionError):
    """What a rank gave is not an array of numbers, nor a body; or the operation is not defined for it."""


class InputChanged(ReductionError):
    """A rank has written to what it gave before the end of the reduction."""


class CombineFailed(ReductionError):
    """The operation raised; or its result is of another shape or type; or it changed its argument."""


class LateContribution(ReductionError):
    """The reduction had ended without this rank's contribution."""


class NameInUse(ReductionError):
    """A reduction of this name has not ended yet at this rank."""


class WouldDeadlock(ReductionError):
    """`result` was called in a callback or in `combine`: the thread that runs these is the one that computes the result."""

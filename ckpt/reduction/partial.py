"""Who takes part: reductions that do not wait for everybody. (pure)

    open       everybody who lives may still call
    closed     who has called by then takes part, and nobody else: the quorum is reached, the deadline has passed, or
               everybody who lives has called

`Attendance` is the master's book about that. Who contributed is part of the outcome, so it is the same at every rank.
Source: partial collectives and eager-SGD (arXiv 1908.04207): solo and majority are `quorum=1` and `quorum=0.5`.

Not here: clocks (the driver says when a deadline has passed), what is done with a late contribution (service.py).
"""

from __future__ import annotations

import math

from ckpt.reduction.messages import Path


def quorum_of(quorum: int | float | None, size: int) -> int:
    """A quorum as a number of ranks; 0: none. A float is a fraction of `size` in (0, 1], rounded up.

    Raises ValueError if there cannot be so many ranks.
    """
    if quorum is None:
        return 0
    if isinstance(quorum, bool) or not isinstance(quorum, (int, float)):
        raise ValueError(f"quorum is a number of ranks or a fraction, not {quorum!r}")
    if isinstance(quorum, float) and not 0 < quorum <= 1:
        raise ValueError(f"quorum as a fraction is above 0 and at most 1, not {quorum!r}")
    count = math.ceil(quorum * size) if isinstance(quorum, float) else quorum
    if not 1 <= count <= size:
        raise ValueError(f"quorum is a number of ranks from 1 to {size}, not {quorum!r}")
    return count


class Attendance:
    """Who may still contribute and who has. All sets of ranks are paths."""

    __slots__ = ("closed", "deadline", "gone", "joined", "quorum", "size")

    def __init__(self, size: int, quorum: int = 0, deadline: bool = False) -> None:
        self.size, self.quorum, self.deadline = size, quorum, deadline
        self.joined = 0
        self.gone = 0
        """Ranks whose contribution cannot come any more, or is lost."""
        self.closed = False

    @property
    def possible(self) -> Path:
        """Who is, or may still be, a contributor."""
        return self.joined if self.closed else ((1 << self.size) - 1) & ~self.gone

    @property
    def complete(self) -> bool:
        """Nobody is waited for any more."""
        return self.possible == self.joined

    @property
    def tolerant(self) -> bool:
        """Ranks that never come are not an error."""
        return bool(self.quorum) or self.deadline

    def join(self, rank: int) -> bool:
        """A rank has called. False: it is late, or gone."""
        if self.closed or self.gone >> rank & 1:
            return bool(self.joined >> rank & 1)
        self.joined |= 1 << rank
        if self.quorum and self.joined.bit_count() >= self.quorum:
            self.closed = True
        return True

    def leave(self, path: Path) -> None:
        """The contributions of these ranks are lost, or will never come."""
        self.joined &= ~path
        self.gone |= path

    def expire(self) -> None:
        """The deadline has passed. If nobody has called, the first one to call is the only one."""
        if self.joined:
            self.closed = True
        else:
            self.quorum = 1

    @property
    def short(self) -> bool:
        """The quorum cannot be reached: all that can contribute have, and they are fewer."""
        return self.complete and self.joined.bit_count() < self.quorum

"""One process of the model (model.py): what it is, without numbers."""

from __future__ import annotations

import copy
from typing import Any

from ckpt.abft.decisions.course import State
from ckpt.abft.decisions.grid import Place


class Wrong(AssertionError):
    """The model has found what must not be."""


def expect(truth: bool, *what: object) -> None:
    if not truth:
        raise Wrong(" ".join(map(str, what)))


def close(one: Any, other: Any) -> bool:
    """Two rows, but for rounding."""
    return all(abs(a - b) <= 1e-9 * max(1, abs(a)) for a, b in zip(one, other, strict=True))


class Process:
    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.place: Place | None = None
        self.step = -1
        self.update: tuple[int, int] | None = None  # step, width
        self.panels: dict[int, Any] = {}
        self.kept: dict[int, Any] = {}
        self.applied: tuple[Any, ...] = ()
        self.blocks: dict[int, Any] = {}
        # By group: the panels below this number have changed it, each in its turn
        self.updated: dict[int, int] = {}
        self.backups: list[tuple[int, Any, set[int]]] = []
        self.upper: set[int] = set()  # groups of which the block is zero below the diagonal
        self.right = self.solved = False
        self.ahead: Any = None
        self.given: dict[Any, Any] = {}

    def copy(self) -> Process:
        other = copy.copy(self)
        other.panels, other.blocks, other.kept = dict(self.panels), dict(self.blocks), dict(self.kept)
        other.updated, other.upper = dict(self.updated), set(self.upper)
        other.backups, other.given = list(self.backups), dict(self.given)
        return other

    def state(self) -> State:
        low, high = (min(self.panels), max(self.panels) + 1) if self.panels else (0, 0)
        update = -1 if self.update is None else self.update[0]
        kept = tuple(sorted(self.kept))
        return State(self.rank, self.step, update, low, high, solved=self.solved, kept=kept)

    def content(self) -> Any:
        """All that it is, to be compared and counted."""
        found = (sorted(each.items()) for each in (self.panels, self.kept, self.blocks, self.updated))
        backups = ((group, block, tuple(sorted(upper))) for group, block, upper in self.backups)
        return (
            *(self.place, self.step, self.update, self.applied, tuple(sorted(self.upper)), self.right),
            *(self.solved, *map(tuple, found), *backups),
        )

"""Remembers where ranks ran, so that a restart leaves them there. (driver)

Not here: the rule itself (`ckpt.controller.supervision.plan`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from ckpt.controller.launch.launcher import Launcher
from ckpt.controller.supervision import plan


class Placer:
    """Places the ranks of a job again and again. `log`: writes a line of the event log."""

    def __init__(self, size: int, launcher: Launcher, log: Callable[[str, dict[str, Any]], None]) -> None:
        self._size = size
        self._launcher = launcher
        self._log = log
        self._placed: dict[int, str] = {}

    def found(self, rank: int, host: str) -> None:
        """The rank was found running on this host."""
        self._placed[rank] = host

    def place(self, absent: Collection[int] = ()) -> list[plan.Placement]:
        """Where the ranks that are not `absent` are to run now; says which have moved. Raises NoHostLeft."""
        nodes = self._launcher.nodes(self._size - len(absent))
        placed = plan.place(self._size, nodes, self._placed, absent)
        before, self._placed = self._placed, {each.rank: each.node for each in placed}
        moved = {rank: node for rank, node in self._placed.items() if before.get(rank, node) != node}
        if moved:
            self._log("ranks-moved", {"to": moved})
        return placed

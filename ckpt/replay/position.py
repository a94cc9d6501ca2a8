"""The position of an explicit program: which loops have ended, which loops run, and at which step. Pure.

A position is a list of levels. Level 0 is the program outside of all loops; each loop that runs adds a level below. A
level holds the names of the loops that have ended on it, in order, and the running loop with its number of finished steps::

    for round in ckpt.loop(range(9)):             levels = [ended (), in "round" after 3 steps,
        for batch in ckpt.loop(range(100)):                 ended ("batch",), in "check" after 12 steps]
            …
        for sample in ckpt.loop(range(20)):       # "check", step 12

After a restart the script runs again from its start and *replays*: a loop that had ended gives no items, and a loop that
was running goes on at its saved step, until the deepest saved level is reached. There the state is restored, and the
program goes on. During the replay the program must enter the same loops in the same order as before; otherwise
:class:`ckpt.errors.LoopError` is raised.

Loops are identified by name and order: a loop that runs twice on one level has two entries.
"""

from __future__ import annotations

from collections.abc import Sequence

from ckpt.errors import LoopError
from ckpt.transport.records import dataclass, field

__all__ = ["Entry", "Level", "Tracker"]


@dataclass(slots=True)
class Level:
    """One level of a position. ``ended``: names of the loops that have ended on this level; ``running``: the name of the
    running loop, if any; ``done``: its number of finished steps.
    """

    ended: list[str] = field(default_factory=list)
    running: str | None = None
    done: int = 0

    def copy(self) -> Level:
        return Level(list(self.ended), self.running, self.done)


@dataclass(frozen=True, slots=True)
class Entry:
    """Instructions for a loop that the program enters.

    ``depth``: the level on which the loop runs; ``skip``: the number of steps to skip; ``is_over``: the loop had ended and
    gives no items; ``restores``: the saved place is reached with this loop, so the state is to be restored.
    """

    depth: int
    skip: int = 0
    is_over: bool = False
    restores: bool = False


class Tracker:
    """Follows a program through its loops. ``target``: the saved position to replay to; ``None``: no replay."""

    def __init__(self, target: Sequence[Level] | None = None) -> None:
        self.levels = [Level()]
        self._target = [level.copy() for level in target] if target is not None else None

    @property
    def is_replaying(self) -> bool:
        return self._target is not None

    @property
    def awaited(self) -> str:
        """The name of the loop that a replay has to enter next; empty when there is no replay."""
        if self._target is None:
            return ""
        at = self._target[len(self.levels) - 1]
        ended = len(self.levels[-1].ended)
        return at.ended[ended] if ended < len(at.ended) else (at.running or "")

    def position(self) -> list[Level]:
        """A copy of the present position."""
        return [level.copy() for level in self.levels]

    def enter(self, name: str) -> Entry:
        """The program enters the loop ``name``. Raises LoopError if a replay expects another loop here."""
        depth = len(self.levels) - 1
        here = self.levels[depth]
        if self._target is None:
            here.running, here.done = name, 0
            self.levels.append(Level())
            return Entry(depth)
        if name != self.awaited:
            raise LoopError(
                f"after the restart the program came to the loop {name}, where it had come to {self.awaited} before the "
                "checkpoint: what is outside of loops must do the same each time"
            )
        goal, is_deepest = self._target[depth], depth == len(self._target) - 1
        if len(here.ended) < len(goal.ended):
            here.ended.append(name)
            restores = is_deepest and goal.running is None and len(here.ended) == len(goal.ended)
            if restores:
                self._target = None
            return Entry(depth, is_over=True, restores=restores)
        here.running, here.done = name, goal.done
        self.levels.append(Level())
        restores = (
            depth + 2 == len(self._target) and not self._target[-1].ended and self._target[-1].running is None
        )
        if restores:
            self._target = None
        return Entry(depth, skip=goal.done, restores=restores)

    def step_done(self, depth: int) -> None:
        """A step of the loop at ``depth`` has ended, and so have all loops inside it. Raises LoopError during a replay."""
        self._check(depth)
        del self.levels[depth + 2 :]
        self.levels[depth + 1] = Level()
        self.levels[depth].done += 1

    def leave(self, depth: int) -> None:
        """The loop at ``depth`` has ended, by itself or by ``break``. Raises LoopError during a replay."""
        self._check(depth)
        here = self.levels[depth]
        del self.levels[depth + 1 :]
        assert here.running is not None
        here.ended.append(here.running)
        here.running, here.done = None, 0

    def _check(self, depth: int) -> None:
        if self._target is not None:
            raise LoopError(
                f"after the restart the program went on with the loop {self.levels[depth].running} without coming to the "
                f"loop {self.awaited}, as it had before the checkpoint"
            )

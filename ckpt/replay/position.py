"""Where an explicit program is: which loops it has finished, which it is in, and how far. Pure.

A position is a list of levels. Level 0 is the program outside of all loops; each loop that is running adds a level
below. A level holds the loops that have ended on it, in order, and the running one with its number of finished steps::

    for round in ckpt.loop(range(9)):             levels = [ended (), in "round" after 3 steps,
        for batch in ckpt.loop(range(100)):                 ended ("batch",), in "check" after 12 steps]
            …
        for sample in ckpt.loop(range(20)):       # "check", step 12

After a restart the script runs again from its start and *replays*: a loop that had ended gives nothing, a loop that
was running goes on at its saved step, until the deepest saved level is reached. There the state is restored, and the
program goes on. On the way it must enter the very loops it had entered before; anything else is a
:class:`ckpt.errors.LoopError`.

Loops are told apart by name and order, so a loop that runs twice on one level is two entries.
"""

from __future__ import annotations

from collections.abc import Sequence

from ckpt.errors import LoopError
from ckpt.transport.records import dataclass, field

__all__ = ["Entry", "Level", "Tracker"]


@dataclass(slots=True)
class Level:
    """``ended``: loops that have run to their end here; ``running``: the one in progress, with ``done`` finished steps."""

    ended: list[str] = field(default_factory=list)
    running: str | None = None
    done: int = 0

    def copy(self) -> Level:
        return Level(list(self.ended), self.running, self.done)


@dataclass(frozen=True, slots=True)
class Entry:
    """What a loop is to do. ``skip``: steps that have been done; ``is_over``: give nothing; ``restores``: put the
    state back.
    """

    depth: int
    skip: int = 0
    is_over: bool = False
    restores: bool = False


class Tracker:
    """Follows a program through its loops; with a ``target`` it first replays up to there."""

    def __init__(self, target: Sequence[Level] | None = None) -> None:
        self.levels = [Level()]
        self._target = [level.copy() for level in target] if target is not None else None

    @property
    def is_replaying(self) -> bool:
        return self._target is not None

    @property
    def awaited(self) -> str:
        """The loop that a replay has to come to next; empty when there is no replay."""
        if self._target is None:
            return ""
        at = self._target[len(self.levels) - 1]
        ended = len(self.levels[-1].ended)
        return at.ended[ended] if ended < len(at.ended) else (at.running or "")

    def position(self) -> list[Level]:
        """A copy of where the program is."""
        return [level.copy() for level in self.levels]

    def enter(self, name: str) -> Entry:
        """The program comes to a loop. Raises LoopError where a replay expects another one."""
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
        """A step of the loop at this depth has ended (so have all loops inside it)."""
        self._check(depth)
        del self.levels[depth + 2 :]
        self.levels[depth + 1] = Level()
        self.levels[depth].done += 1

    def leave(self, depth: int) -> None:
        """The loop at this depth has ended, by itself or by ``break``."""
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

"""★ What an agent does to end ranks for good: every process of theirs is killed, and reaped.

    groups      those of ranks, of which something may still live; that of a rank that died by itself goes at once
    pending     the incarnation that is being fenced: until none is left of its ranks and of all that any rank has
                started, whatever group or session that is in (`strays`); None: nothing is asked for

A process that may not be killed (another user's, through a set-user-id program) is said once, and not waited for.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Collection, Iterable

from ckpt.controller.launch import strays
from ckpt.controller.launch.forked import ForkedRank


class Fencing:
    """Of one agent. Whoever owns it reaps, and calls `step` after that."""

    def __init__(self) -> None:
        self.groups: set[int] = set()
        self.pending: int | None = None
        self._beyond_us: set[int] = set()

    def is_busy(self, living: Collection[int]) -> bool:
        """Whether something is being killed; `living`: the ranks that are alive."""
        return self.pending is not None or bool(self.groups - set(living))

    def begin(self, incarnation: int, ranks: Iterable[ForkedRank]) -> None:
        """All of this incarnation and before."""
        self.pending = incarnation
        for rank in ranks:
            if rank.is_alive and rank.incarnation <= incarnation:
                rank.kill(signal.SIGKILL)
                self._kill_group(rank.pid)

    def step(self, ranks: Iterable[ForkedRank]) -> int | None:
        """Kill what is left; the incarnation that was asked for, once nothing of it is."""
        living = [rank for rank in ranks if rank.is_alive]
        for group in self.groups - {rank.pid for rank in living}:
            self._kill_group(group)  # image children, subprocesses: they go with their rank
        if self.pending is None:
            return None
        newer = {rank.pid for rank in living if rank.incarnation > self.pending}
        refused = strays.kill_children(but=newer)
        for pid in refused - self._beyond_us:
            print(f"process {pid}, which a rank has started, is another user's: it goes on", file=sys.stderr)
        self._beyond_us |= refused
        spared = newer | refused
        if not (strays.children() <= spared if spared else not strays.any_child()):
            return None
        done, self.pending = self.pending, None
        self.groups &= newer
        return done

    def _kill_group(self, group: int) -> None:
        try:
            os.killpg(group, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            self.groups.discard(group)

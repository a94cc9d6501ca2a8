"""Fencing: how an agent ends ranks for good. It kills and reaps the ranks and every process that they have started.

    groups      process groups of ranks in which a process may still live; the group of a rank that died by itself is
                killed at once
    pending     the incarnation that is being fenced; None: no fencing is asked for. Fencing lasts until no rank of this
                incarnation or an earlier one lives, and no process that any of them has started, in whatever process
                group or session (`strays`)

A process that the agent may not kill (of another user, through a set-user-id program) is reported once, and fencing does not
wait for it.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Collection, Iterable

from ckpt.controller.launch import strays
from ckpt.controller.launch.forked import ForkedRank


class Fencing:
    """The fencing of one agent. The agent reaps children, and calls `step` after that."""

    def __init__(self) -> None:
        self.groups: set[int] = set()
        self.pending: int | None = None
        self._beyond_us: set[int] = set()

    def is_busy(self, living: Collection[int]) -> bool:
        """Is a process being killed? `living`: pids of the ranks that are alive."""
        return self.pending is not None or bool(self.groups - set(living))

    def begin(self, incarnation: int, ranks: Iterable[ForkedRank]) -> None:
        """Kill the ranks of this incarnation and of all earlier ones."""
        self.pending = incarnation
        for rank in ranks:
            if rank.is_alive and rank.incarnation <= incarnation:
                rank.kill(signal.SIGKILL)
                self._kill_group(rank.pid)

    def step(self, ranks: Iterable[ForkedRank]) -> int | None:
        """Kill processes that are left; returns the fenced incarnation once none of its processes lives, else None."""
        living = [rank for rank in ranks if rank.is_alive]
        for group in self.groups - {rank.pid for rank in living}:
            self._kill_group(group)  # image children and subprocesses of a dead rank
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

"""`ckpt verify`: checks that the undo logs, and what was kept of files, are whole. Nothing is changed; ranks may be at work.

Not here: what is wrong with one copy or link (:mod:`ckpt.undo.restart.kept_files`).
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from ckpt.undo.chain import Interval, intervals
from ckpt.undo.errors import UndoError
from ckpt.undo.planning.plan import make_plan
from ckpt.undo.records import Content
from ckpt.undo.restart.checking import whole_logs
from ckpt.undo.restart.kept_files import check_kept, what_is_wrong
from ckpt.undo.restart.line_notes import LineNote
from ckpt.undo.restart.restoring import can_put_back, shared_then
from ckpt.undo.restart.state import load
from ckpt.undo.shared import Shared

__all__ = ["Verifier"]


class Verifier:
    """For the lines of one job. ``lines``: what they say of files. Each copy is read once."""

    def __init__(self, job: str, key: bytes, lines: Sequence[LineNote] = ()) -> None:
        self._job, self._key, self._lines = os.path.realpath(job), key, lines
        self._read: dict[str, str] = {}
        self._knows_file_systems = False

    def failure(self, line: int) -> UndoError | None:
        """Why a restart from this line would be refused for its files; None: it would not, or not for something damaged.
        Raises OSError."""
        due = self._due(line)
        try:
            if can_put_back(self._job, self._key, line, from_start=True):
                return None
            self._know_file_systems()
            state = load(self._job, self._key, from_start=True)
            if state.since is not None:
                logs = whole_logs(self._job, self._key, line, state, self._lines)
                chain = [(interval, make_plan(of_ranks)) for interval, of_ranks in logs]
                check_kept(chain, state.renumbered, wrong_copy=self._what_is_wrong)
        except (FileNotFoundError, UndoError) as failure:
            if due != self._due(line):
                return None  # it has been pruned, or gone back from, meanwhile
            if isinstance(failure, UndoError):
                return failure
            raise
        return None

    def _know_file_systems(self) -> None:
        """Where ranks are on several hosts, files are known by the numbers of the file systems that all share."""
        if not self._knows_file_systems and (numbers := shared_then(self._job, self._key)):
            Shared(numbers, "").use()
        self._knows_file_systems = True

    def _due(self, line: int) -> list[Interval]:
        return [interval for interval in reversed(intervals(self._job)) if interval.epoch >= line]

    def _what_is_wrong(self, copy: str, record: Content) -> str:
        if copy not in self._read:
            self._read[copy] = what_is_wrong(copy, record)
        return self._read[copy]

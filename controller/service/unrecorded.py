"""Changes of files that no rank has recorded: told, because a restart does not undo them. (driver)

Watched are the directory in which the job works and those in which ranks change files (:mod:`ckpt.undo.unrecorded`). The
changes are compared with the undo logs of all ranks at each commit, before a restart puts files back, and at the job's end:

    begin                  processes are about to start: what is changed from now on counts, since this line
    committed              what has changed since the line before is told: ``files-not-undone``
    before_putting_back    likewise; and what was told since the line of the restart is told again: ``files-not-put-back``
    ended                  likewise; printed where the job can be restarted

Who has made a change the kernel does not say. Ranks say where the program starts processes; else it was another program, or
a system call that the rank's watch does not see. What was changed while there was no controller is not told.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from typing import Any

from ckpt.store import JobDirectory, StoreError
from ckpt.undo.selection.patterns import Patterns
from ckpt.undo.unrecorded import Change, DirectoryWatch, changes_since_now, unrecorded

__all__ = ["UnrecordedChanges"]

_SHOWN = 3
_LOGGED = 100
_CACHE = "__pycache__"
_EVENT = "files-not-undone"


class UnrecordedChanges:
    """The changes of one job under one controller. ``directory``: in which it works. ``covers``: is this path one of the
    files that go back? None: all are. ``say``: prints a message; ``log``: writes a line of the event log.
    """

    def __init__(
        self,
        job: JobDirectory,
        directory: str,
        covers: Callable[[str], bool] | None,
        say: Callable[[str], None],
        log: Callable[[str, dict[str, Any]], None],
    ) -> None:
        self._job = job
        self._path = os.path.realpath(job.path)
        self._say = say
        self._log = log
        self._line = 0
        self._since_ns = changes_since_now()
        self._put_back_ns: int | None = None  # since then no processes have been started
        self._covers = covers
        self._kept = Patterns(())  # what the program wants to stay
        self._started: list[str] = []  # where ranks have started processes
        # line, path, reason; None: the event log has them
        self._told: list[tuple[int, str, str]] | None = None
        self._shown: set[str] = set()  # each path is printed once
        self._is_full = False
        self._watch: DirectoryWatch | None = None
        try:
            self._watch = DirectoryWatch()
        except OSError as failure:
            self._not_watched(directory, failure.strerror or str(failure))
        self._add(os.path.realpath(directory))

    def read(self) -> None:
        """Take what the kernel has, at any time, before its queue is full. Not whenever there is something: a program that
        opens files all the time would wake the controller each time."""
        if self._watch is not None:
            self._watch.read()

    def note(self, rank: int, packet: dict[str, Any]) -> None:
        """A packet of a rank, of whatever kind."""
        if packet["m"] == "changes":
            self._add(packet["directory"])
        elif packet.get("event") == "files-kept":
            self._kept = Patterns(dict.fromkeys([*self._kept.texts, *packet.get("patterns", ())]))
        elif packet.get("event") == "process-started":
            started = f"{packet.get('where')}: {packet.get('command') or 'a forked copy of the program'}"
            if started not in self._started:
                self._started.append(started)

    def have_put_back(self) -> None:
        """Files have just been put back. A rank will open some of them again, and may be killed before it records that."""
        self._put_back_ns = time.time_ns()

    def forget_changes(self) -> None:
        """The controller itself has changed files, and nobody else has meanwhile."""
        self._since_ns = changes_since_now()
        if self._watch is not None:
            self._watch.take()

    def begin(self, line: int) -> None:
        """Processes are about to start, from this line; all that has happened until now is dealt with."""
        self._since_ns, self._put_back_ns = changes_since_now(after_ns=self._put_back_ns), None
        if self._watch is not None:
            self._watch.take()
        self._line = line

    def committed(self, line: int) -> None:
        """The line has been committed, and logs of old ones are still there."""
        self._tell()
        self._line = line

    def before_putting_back(self, line: int) -> None:
        """A restart is about to put files back to this line. No process of the job is alive."""
        self._tell(is_shown=False)
        again = sorted({(path, reason) for since, path, reason in self._all_told() if since >= line})
        for path, reason in again:
            self._log("files-not-put-back", {"path": path, "reason": reason})
        self._show(
            [f"not put back: {path or 'files'}: {reason}" for path, reason in again], "files-not-put-back"
        )

    def ended(self, *, is_well: bool) -> None:
        """The job has ended."""
        self._tell(is_shown=not is_well)
        if self._watch is not None:
            self._watch.end()
            self._watch = None

    # ------------------------------------------------------------------ watching

    def _add(self, directory: str) -> None:
        is_ours = directory == self._path or directory.startswith(self._path + "/")
        if self._watch is None or is_ours or os.path.basename(directory) == _CACHE:
            return
        if reason := self._watch.add(directory):
            self._not_watched(directory, reason)

    def _not_watched(self, directory: str, reason: str) -> None:
        if not self._is_full:
            self._is_full = True
            self._log("files-not-watched", {"path": directory, "reason": reason})
            self._say(
                f"changes of files by other processes are not noticed in {directory}, and maybe others: {reason}"
            )

    # ------------------------------------------------------------------ telling

    def _tell(self, *, is_shown: bool = True) -> None:
        """Compare what has changed since the last time with what the ranks have recorded since the line."""
        if self._watch is None:
            return
        since_ns = changes_since_now()
        changes, is_lost = self._watch.take()
        if is_lost:
            reason = "there were too many changes of files to notice all that no rank has made"
            self._not_undone("", reason)
            self._say(reason)
        ours = {path: change for path, change in changes.items() if not self._is_left_alone(path)}
        found = self._compare(ours) if ours else []
        self._since_ns = since_ns
        for path, what in found[:_LOGGED]:
            self._not_undone(path, f"{what} {self._by()}")
        if len(found) > _LOGGED:
            self._not_undone("", f"{len(found) - _LOGGED} more paths were changed {self._by()}")
        if is_shown:
            new = [(path, what) for path, what in found if path not in self._shown]
            self._shown.update(path for path, _ in new[:_LOGGED])
            self._show(
                [f"not undone by a restart: {path}: {what} {self._by()}" for path, what in new], _EVENT
            )

    def _compare(self, changes: dict[str, Change]) -> list[tuple[str, str]]:
        try:
            return unrecorded(changes, self._logs(), self._since_ns)
        except (
            OSError,
            ValueError,
            LookupError,
            TypeError,
        ) as failure:  # a log is damaged: a restart will say which
            self._say(f"changes of files that no rank has recorded could not be found: {failure}")
            return []

    def _logs(self) -> list[str]:
        from ckpt.undo.chain import intervals, log_directories  # few jobs need them

        found = []
        for interval in intervals(self._job.path):
            if interval.epoch >= self._line:
                found += [os.path.join(each, "log") for each in log_directories(interval)]
        return found

    def _not_undone(self, path: str, reason: str) -> None:
        self._log(_EVENT, {"epoch": self._line, "path": path, "reason": reason})
        self._all_told().append((self._line, path, reason))

    def _all_told(self) -> list[tuple[int, str, str]]:
        """Also by the controllers before this one."""
        if self._told is None:
            self._told = []
            with contextlib.suppress(StoreError):  # the log is unreadable, which is said elsewhere
                for event in self._job.events.read().events:
                    if event.get("event") == _EVENT and isinstance(event.get("epoch"), int):
                        self._told.append((event["epoch"], str(event.get("path")), str(event.get("reason"))))
        return self._told

    def _is_left_alone(self, path: str) -> bool:
        if self._kept.match(path) or (self._covers is not None and not self._covers(path)):
            return True
        return os.path.basename(path) == _CACHE or path == self._path or self._path.startswith(path + "/")

    def _by(self) -> str:
        if not self._started:
            return "by another program, or by system calls that are not watched"
        more = f" and {len(self._started) - 1} more places" if len(self._started) > 1 else ""
        return f"by a process that the program has started ({self._started[0]}{more}), or by another program"

    def _show(self, lines: list[str], event: str) -> None:
        for line in lines[:_SHOWN]:
            self._say(line)
        if len(lines) > _SHOWN:
            self._say(f"{len(lines) - _SHOWN} more ({event} in the event log)")

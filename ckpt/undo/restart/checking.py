"""Checks before a restart changes anything that it may go back to the line, and has all it needs for that.

Not here: copies and hard links (:mod:`ckpt.undo.restart.kept_files`), changes of others (:mod:`ckpt.undo.restart.others`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from ckpt.undo.chain import Interval, intervals
from ckpt.undo.errors import NotRecorded, NotUndone
from ckpt.undo.keeping import look
from ckpt.undo.logs import boot_id
from ckpt.undo.planning.plan import Log, Plan
from ckpt.undo.restart.ending import ends_noted
from ckpt.undo.restart.intervals import logs_of
from ckpt.undo.restart.line_notes import (
    LineNote,
    host_was_restarted,
    not_covered,
    refuse_missing,
    that_count,
)
from ckpt.undo.restart.others import Touched, differing, notes_of
from ckpt.undo.restart.putting_back import Problem
from ckpt.undo.restart.state import State, read_record, write_record
from ckpt.undo.shared import Numbers

__all__ = [
    "Logs",
    "check_line",
    "known_problems",
    "note_shared",
    "refuse_copies",
    "refuse_elsewhere",
    "refuse_without",
    "shared_then",
    "whole_logs",
]

_RESTARTED = "the host was restarted since: what was changed behind epoch {} may not be covered"
_LOST_HOST = (
    "a host was restarted since, or is lost: what its ranks changed behind epoch {} may not be covered"
)
_ONE_HOST = "files were recorded with ranks on several hosts, and can be put back by a restart with hosts only (--hosts)"
_MORE_HOSTS = (
    "files were recorded with ranks on one host, and can be put back by a restart there only (--engine local)"
)
_ANOTHER = "another file system is mounted there now, or all hosts do not share it any more"
_CHANGED_BEFORE = (
    "the program cannot start over here: it had changed files before epoch {}, the oldest one that is kept, and what these "
    "were at its start is not known any more. Start it in another job directory, with its files as it needs them"
)
_SHARED = "shared"
_LOST = "it is not what it was at the checkpoint: the host was restarted, or somebody else has changed the file since"

Logs = list[tuple[Interval, list[Log]]]


def whole_logs(job: str, key: bytes, line: int, state: State, lines: Sequence[LineNote]) -> Logs:
    """The intervals that a restart from this line undoes, newest first, with their logs. Raises LogDamaged: one is damaged,
    or not whole, or gone. Raises OSError."""
    assert state.since is not None
    due = [interval for interval in reversed(intervals(job)) if interval.epoch >= line]
    ends = [note.end for note in that_count(lines, state) if note.line > line] + ends_noted(job, key)
    refuse_missing(job, due, ends, line, state.since)
    return [(interval, logs_of(interval, key, state.moved, ends)) for interval in due]


def known_problems(
    job: str,
    key: bytes,
    line: int,
    state: State,
    lines: Sequence[LineNote],
    logs: Logs,
    boots: frozenset[str] = frozenset(),
) -> list[Problem]:
    """What is known not to come back. Where the host was restarted, the state says so from now on. ``boots``: of other hosts
    that are there."""
    notes, due = that_count(lines, state), [interval for interval, _ in logs]
    found = not_covered(notes, line)
    if host_was_restarted(due, key, notes, ends_noted(job, key), line, state.booted, boots):
        state.booted = (line, boot_id())
        found.append(Problem("", (_LOST_HOST if boots else _RESTARTED).format(line), is_final=True))
        found += _lost(job, key, line, state, [of_ranks for _, of_ranks in logs])
    return found


def _lost(job: str, key: bytes, line: int, state: State, logs: list[list[Log]]) -> Iterator[Problem]:
    """The host was restarted: files of the line that are not what they were then, and that no rank has changed since."""
    touched = Touched()
    for of_ranks in logs:
        touched.add(of_ranks)
    before = [interval for interval in intervals(job) if interval.epoch < line]
    notes = notes_of(logs_of(before[-1], key, state.moved), key) if before else None
    if notes is not None:
        for path, _ in differing(notes, touched, state.renumbered):
            yield Problem(path, _LOST, is_final=True)


def note_shared(job: str, key: bytes, numbers: Numbers) -> None:
    """Ranks on several hosts begin to record files: remember the file systems for who puts them back. Raises LogDamaged,
    NotUndone."""
    try:
        known = read_record(job, key, _SHARED)
        if known is None or any(known.get(path) != number for path, number in numbers.items()):
            write_record(job, key, _SHARED, {**(known or {}), **numbers})
    except OSError as failure:
        raise NotUndone(failure.strerror or str(failure), path=str(failure.filename or job)) from failure


def shared_then(job: str, key: bytes) -> dict[str, int] | None:
    """The file systems by whose numbers files are known; None: ranks were on one host. Raises LogDamaged, OSError."""
    found = read_record(job, key, _SHARED)
    return None if found is None else dict(found)


def refuse_elsewhere(job: str, key: bytes, logs: list[list[Log]], numbers: Numbers | None) -> None:
    """Raise NotRecorded if the files in these logs are on file systems that are not here. ``numbers``: of those that all
    hosts share, where ranks are on several."""
    paths = {record.path for of_ranks in logs for log in of_ranks for record in log.records}
    then = shared_then(job, key)
    if then is None or numbers is None:
        if paths and (then is None) != (numbers is None):
            raise NotRecorded(_ONE_HOST if numbers is None else _MORE_HOSTS, path=job)
        return
    for path in filter(None, paths):
        at = max(
            (each for each in then if path == each or path.startswith(each.rstrip("/") + "/")),
            key=len,
            default="",
        )
        if at and numbers.get(at) != then[at]:
            raise NotRecorded(_ANOTHER, path=at)


def refuse_without(directory: str, logs: list[list[Log]]) -> None:
    """The directory of the program is not there, and the program has not removed it: nothing in it could be put back."""
    if os.path.isdir(directory):
        return
    paths = {record.path for of_ranks in logs for log in of_ranks for record in log.records}
    if any(path == directory or directory.startswith(path + os.sep) for path in paths):
        return
    if any(path.startswith(directory + os.sep) for path in paths):
        raise NotRecorded(
            "the directory of the program is gone (moved? --chdir DIR says where to)", path=directory
        )


def refuse_copies(plans: list[Plan], state: State) -> None:
    """Files are known by their inodes: a copy of the directory has other ones. The newest interval shows it."""
    plan = next((plan for plan in plans if plan.names or plan.files), Plan())
    for path in plan.names:
        parent = os.path.dirname(path)
        if not (parent in plan.names or parent in plan.directories or os.path.isdir(parent)):
            raise NotRecorded("there is no such directory where the program's has moved to", path=parent)
    for file, each in plan.files.items():
        found = [binding for path in (each.link, *each.names) if path and (binding := look(path)) is not None]
        numbers = (file, state.renumbered.get(file, file))
        if found and each.has_attributes and not any(binding.file in numbers for binding in found):
            raise NotRecorded(
                "it is not the file that was there, the directory may be a copy", path=each.path
            )


def check_line(state: State, line: int, job: str) -> None:
    """Raise NotRecorded if the files of this line are not known. Line 0 is the job's start: where no rank had changed a file
    before the oldest line that is known, files are there what they were at the start."""
    if state.since is not None and line < state.since and not (line == 0 and state.untouched):
        if line == 0:
            raise NotRecorded(_CHANGED_BEFORE.format(state.since), path=job)
        raise NotRecorded(f"what files were before epoch {state.since} is not known", path=job)
    for low, high in state.left:
        if low < line <= high:
            raise NotRecorded(f"the files of epoch {line} have been put back to epoch {low} since", path=job)

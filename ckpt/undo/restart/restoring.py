"""A restart undoes the intervals that have begun since its line; what of them is on disk, and what must survive a kill.

    JOB/undo/epoch-00000007-00002/    an interval: epoch of the checkpoint before it, incarnation; a log for each rank in it
    JOB/undo/done-…                   an interval that has been undone, or is not needed any more: to be removed
    JOB/undo/copies                   see :mod:`ckpt.undo.allowance`
    JOB/undo/state                    see :mod:`ckpt.undo.restart.state`
    JOB/undo/end                      see :mod:`ckpt.undo.restart.ending`
    JOB/undone/                       what stood in the way of what was put back; until the next line is committed

All intervals are one chain, ordered by epoch and incarnation; a restart undoes its end, newest first. An interval leaves the
chain by one rename, when it is undone whole. A restart that is killed goes on with the newest interval that is still there.

Not here: what one interval needs (:mod:`ckpt.undo.restart.plan`), how it is done (:mod:`ckpt.undo.restart.putting_back`).
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Iterable
from typing import Any

from ckpt.transport.records import dataclass, field, replace
from ckpt.undo.chain import Interval, intervals, log_directories, undo_path
from ckpt.undo.errors import NotRecorded
from ckpt.undo.logs import forget_unmade, unmade
from ckpt.undo.records import FileId
from ckpt.undo.restart import code_for_loading as code
from ckpt.undo.restart.checking import (
    Logs,
    check_line,
    known_problems,
    note_shared,
    refuse_copies,
    refuse_elsewhere,
    refuse_without,
    shared_then,
    whole_logs,
)
from ckpt.undo.restart.ending import changed_since, ends_noted, forget_end, leave_out, note_end
from ckpt.undo.restart.intervals import describe, has_changes, logs_of
from ckpt.undo.restart.kept_files import check_kept
from ckpt.undo.restart.line_notes import LineNote
from ckpt.undo.restart.others import changed_by_others
from ckpt.undo.restart.plan import Clocks, Plan, make_plan
from ckpt.undo.restart.putting_back import Problem, put_back
from ckpt.undo.restart.state import (
    DONE,
    Moved,
    State,
    follow,
    free_name,
    is_there,
    load,
    named,
    retire,
    save,
    sync_file_systems,
)
from ckpt.undo.sealing import make_durable, read_notes
from ckpt.undo.selection.patterns import AUTO, Choices, Chosen
from ckpt.undo.shared import Numbers

__all__ = [
    "LineNote",
    "Moved",
    "Prepared",
    "Problem",
    "Restored",
    "can_put_back",
    "describe",
    "empty_undone",
    "ended",
    "forget",
    "give_up",
    "has_chain",
    "has_done",
    "leave_code",
    "note_shared",
    "prepare",
    "remove_done",
    "shared_then",
    "take_code_back",
    "undo",
]

_UNDONE = "undone"
_FOREIGN = "somebody else has changed the file since; it is left as it is"
_LOOK_AGAIN_NS = 1_000_000_000  # files are looked at once more if loading has taken longer
_UNMADE = "an undo log could not be made, so some changes may not be put back"


@dataclass(slots=True)
class Restored:
    """What a restart has put back. ``is_recorded``: False if files have not been recorded until now, so nothing could be.
    ``chosen``: which files have been recorded.
    """

    is_recorded: bool = True
    chosen: list[Chosen] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    intervals: int = 0
    names: int = 0
    files: int = 0


_AUTO = Chosen([AUTO], "/")


def undo(job: str, key: bytes, line: int, **told: Any) -> Restored:
    """Put files back to what they were at ``line``: :func:`prepare`, and all of it at once."""
    return prepare(job, key, line, **told).apply()


def prepare(
    job: str,
    key: bytes,
    line: int,
    *,
    highest: int,
    from_start: bool,
    directory: str = os.sep,
    moved: Moved | None = None,
    told: Iterable[Problem] = (),
    lines: Iterable[LineNote] = (),
    first: Chosen = _AUTO,
    now: Chosen = _AUTO,
    numbers: Numbers | None = None,
    clocks: Clocks | None = None,
    boots: frozenset[str] = frozenset(),
) -> Prepared:
    """Look at all that is needed to put files back to what they were at ``line`` (0: the job's start), and change nothing.
    No process of the job may be alive, until all is put back, that changes files.

    ``highest``: the highest epoch in use. ``from_start``: files are recorded since the job's start, if no state says
    otherwise. ``directory``: where the program works. ``moved``: a directory that the user has renamed. ``told``: what
    ranks have said not to be covered; a log on a disk that has failed does not say it. ``lines``: what this line and later
    ones say of files. ``first``, ``now``: which files were covered at first, and which will be. Where ranks are on several
    hosts, ``numbers``: of the file systems that all of them share; ``clocks``: theirs; ``boots``: of those that are there.
    Can be done again after it was killed, or has raised.

    Raises NotRecorded: the files of this line are not known, those in the renamed directory are other ones (a copy), or the
    directory is gone. LogDamaged, CopyDamaged (another line may do without that copy).
    """
    job = os.path.realpath(job)  # files are reached through no symbolic link
    with named(job):
        state = load(job, key, from_start)
        prepared = Prepared(job, key, line, highest, first, now, moved, state)
        if state.since is None:
            return prepared
        if moved is not None and moved not in state.moved:
            state.moved.append(moved)
        check_line(state, line, job)
        lines = list(lines)
        logs = prepared.logs = whole_logs(job, key, line, state, lines)
        refuse_elsewhere(job, key, [of_ranks for _, of_ranks in logs], numbers)
        refuse_without(directory, [of_ranks for _, of_ranks in logs])
        prepared.problems += known_problems(job, key, line, state, lines, logs, boots)
        plans = [make_plan(of_ranks, clocks) for _, of_ranks in logs]
        if moved is not None:
            refuse_copies(plans, state)
        prepared.chain = [(interval, plan) for (interval, _), plan in zip(logs, plans, strict=True)]
        prepared.foreign = prepared.of_others()
        foreign = {file for _, file in (*state.foreign, *prepared.foreign)}
        prepared.problems += check_kept(prepared.chain, state.renumbered, foreign)
        prepared.told = list(told)
        return prepared


@dataclass(slots=True)
class Prepared:
    """A restart of which all is known, and nothing is done. ``foreign``: what somebody else has changed since, as found at
    ``looked_ns``."""

    job: str
    key: bytes
    line: int
    highest: int
    first: Chosen
    now: Chosen
    moved: Moved | None
    state: State
    logs: Logs = field(default_factory=list)
    chain: list[tuple[Interval, Plan]] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    told: list[Problem] = field(default_factory=list)
    foreign: list[tuple[str, FileId]] = field(default_factory=list)
    looked_ns: int = 0

    def give_code(self) -> bool:
        """Give code the state of the line, for ranks that load their images: see
        :mod:`ckpt.undo.restart.code_for_loading`. Returns whether any is another one now. Raises NotUndone, LogDamaged."""
        with named(self.job):
            foreign = [*self.state.foreign, *self.foreign]
            return code.give(self.job, self.key, [plan for _, plan in self.chain], foreign, self.state)

    def of_others(self) -> list[tuple[str, FileId]]:
        """What somebody else has changed since, and which files it was."""
        self.looked_ns = time.monotonic_ns()
        found = changed_since(self.job, self.key, self.moved)
        if (self.line, self.highest) not in self.state.left:
            # else ranks, or a restart that was killed, have changed files since the notes
            chain = [(of_ranks, plan) for (_, of_ranks), (_, plan) in zip(self.logs, self.chain, strict=True)]
            found += changed_by_others(chain, self.key, self.state.renumbered)
        return found

    def apply(self) -> Restored:
        """Put all files back. Can be done again, from :func:`prepare` on, after it was killed, or has raised. Raises
        NotUndone: the file system refuses a step. What ranks had been given for loading has been taken back before."""
        with named(self.job):
            return self._apply()

    def _apply(self) -> Restored:
        job, line, highest, state = self.job, self.line, self.highest, self.state
        choices = Choices(self.first, state.chosen)
        if state.since is None:
            later = Choices(self.first).go_on(line, self.now)
            _begin_to_record(job, self.key, line, highest, later)
            return Restored(is_recorded=False)
        if time.monotonic_ns() - self.looked_ns > _LOOK_AGAIN_NS:
            self.foreign = self.of_others()
        state.foreign += self.foreign
        if highest > line:
            state.left = [*((low, high) for low, high in state.left if low < line), (line, highest)]
        if highest > line or self.moved is not None or state.foreign:
            save(job, self.key, state)
        forget_end(job)
        restored = Restored(problems=self.problems, intervals=len(self.chain), chosen=choices.since(line))
        restored.problems += self.told
        without_log = unmade(job)
        restored.problems += [Problem("", f"{_UNMADE}: {path}", is_final=True) for path in without_log]
        for interval, plan in self.chain:
            _undo_interval(job, self.key, state, interval, plan, restored)
        restored.problems = [each for each in dict.fromkeys(restored.problems) if each.nameless is None]
        _note_done(job, self.key, line, state, choices.go_on(line, self.now).later)
        forget_unmade(without_log)
        return restored


def _note_done(job: str, key: bytes, line: int, state: State, later: list[tuple[int, Chosen]]) -> None:
    """All is put back. ``later``: which files are covered since which line."""
    assert state.since is not None
    since = min(state.since, line) if line == 0 else state.since  # the start that is known is this one
    renumbered = state.renumbered if intervals(job) else {}
    done = replace(state, since=since, renumbered=renumbered, chosen=later, foreign=[])
    if done != state:
        save(job, key, done)


def _undo_interval(
    job: str, key: bytes, state: State, interval: Interval, plan: Plan, restored: Restored
) -> None:
    restored.problems += [
        Problem(path, _FOREIGN, is_final=True) for path in leave_out(plan, state.foreign, state.renumbered)
    ]
    restored.problems = [
        replace(each, nameless=None) if each.nameless in plan.files else each for each in restored.problems
    ]
    known = dict(state.renumbered)
    undone = os.path.join(job, _UNDONE)
    restored.problems += put_back(plan, undone, state.renumbered, restored.problems)
    restored.names += len(plan.names)
    restored.files += len(plan.files)
    if plan.names or plan.files:
        sync_file_systems(plan.touched(undone))  # before the interval leaves the chain
    if state.renumbered != known:
        follow(known, state.renumbered)
        save(job, key, state)
    retire(interval.path)


def can_put_back(job: str, key: bytes, line: int, *, from_start: bool) -> str:
    """Why files cannot be put back to this line; "": they can, or files have not been recorded until now.

    Raises LogDamaged, NotUndone.
    """
    with named(job):
        state = load(job, key, from_start)
        try:
            if state.since is not None:
                check_line(state, line, job)
        except NotRecorded as failure:
            return failure.what
        return ""


def ended(job: str, key: bytes, *, again: bool = True) -> None:
    """The job has ended, and none of its processes is alive: note what its files are. ``again``: also if that is noted
    already. Raises LogDamaged, NotUndone."""
    with named(job):
        if not again and ends_noted(job, key):
            return
        if chain := intervals(job):
            moved = load(job, key, from_start=True).moved
            known = ends_noted(job, key)
            plans = [make_plan(logs_of(interval, key, moved, known)) for interval in chain]
            for directory in [each for interval in chain for each in log_directories(interval)]:
                if read_notes(directory, key) is None:  # else it is durable since the image behind it
                    make_durable(directory)
            note_end(job, key, plans, [each for interval in chain for each in log_directories(interval)])


def has_chain(job: str) -> bool:
    """Has anything been recorded?"""
    return is_there(job) or bool(intervals(job))


def _begin_to_record(job: str, key: bytes, line: int, highest: int, choices: Choices) -> None:
    _move_chain(job)
    left = [(line, highest)] if highest > line else []
    save(job, key, State(since=line, left=left, chosen=choices.later))


def take_code_back(job: str, key: bytes, moved: Moved | None = None) -> bool:
    """See :func:`ckpt.undo.restart.code_for_loading.take_back`."""
    job = os.path.realpath(job)
    return code.is_given(job) and code.take_back(job, key, moved)


def leave_code(job: str) -> None:
    """What ranks were given for loading stays. Raises NotUndone."""
    with named(job):
        code.leave(os.path.realpath(job))


def give_up(job: str, key: bytes) -> bool:
    """The job goes on without putting files back, and without recording. What was kept lies in ``undone`` until the next
    line is committed. Returns whether anything was. Raises NotUndone.
    """
    with named(job):
        save(job, key, State())
        return _move_chain(job)


def _move_chain(job: str) -> bool:
    """Take all intervals out of the chain, and keep them for a while. Returns whether there was one."""
    chain = intervals(job)
    forget_end(job)  # the job goes on without it
    for interval in chain:
        undone = os.path.join(job, _UNDONE)
        os.makedirs(undone, mode=0o700, exist_ok=True)
        os.rename(interval.path, free_name(os.path.join(undone, os.path.basename(interval.path))))
    return bool(chain)


def forget(job: str, key: bytes, oldest: int, *, from_start: bool) -> None:
    """No line before ``oldest`` is left: what only those need is out of the chain. Raises LogDamaged, NotUndone."""
    with named(job):
        chain = intervals(job)
        old = [interval for interval in chain if interval.epoch < oldest]
        if old or is_there(job):
            state = load(job, key, from_start)
            since = oldest if old and state.since is not None else state.since
            left = [(low, high) for low, high in state.left if high >= oldest]
            renumbered, moved = (state.renumbered, state.moved) if len(old) < len(chain) else ({}, [])
            now = replace(state, since=since, left=left, renumbered=renumbered, moved=moved, foreign=[])
            if old and (state.since == 0 or state.untouched):
                now.untouched = not any(has_changes(interval, key, state.moved) for interval in old)
            if now != state:
                save(job, key, now)
        for interval in old:
            retire(interval.path)


def empty_undone(job: str) -> None:
    """A line has been committed: what the last restart has moved out of the way is not needed any more. Raises NotUndone."""
    with named(job):
        undone = os.path.join(job, _UNDONE)
        if not os.path.lexists(undone):
            return
        os.makedirs(undo_path(job), mode=0o700, exist_ok=True)
        os.rename(undone, free_name(undo_path(job, f"{DONE}{_UNDONE}")))


def has_done(job: str) -> bool:
    """Is there anything to be removed?"""
    return any(_done(job))


def remove_done(job: str) -> None:
    """Remove what is out of the chain, at any time. What cannot be removed stays, and does no harm."""
    for path in _done(job):
        shutil.rmtree(path, ignore_errors=True)


def _done(job: str) -> list[str]:
    with contextlib.suppress(OSError):
        return [undo_path(job, name) for name in os.listdir(undo_path(job)) if name.startswith(DONE)]
    return []

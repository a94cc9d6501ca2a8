"""A restart undoes the intervals that have begun since its line; what of them is on disk, and what must survive a kill.

    JOB/undo/epoch-00000007-00002/    an interval: epoch of the checkpoint before it, incarnation; a log for each rank in it
    JOB/undo/done-…                   an interval that has been undone, or is not needed any more: to be removed
    JOB/undo/copies                   see :mod:`ckpt.undo.allowance`
    JOB/undo/state                    see :mod:`ckpt.undo.restart.state`
    JOB/undo/end                      see :mod:`ckpt.undo.restart.ending`
    JOB/undone/                       what stood in the way of what was put back; until the next line is committed

    JOB/undo/loading, JOB/undo/kept   see :mod:`ckpt.undo.restart.provisional`

All intervals are one chain, ordered by epoch and incarnation; a restart undoes its end, newest first. An interval leaves the
chain by one rename: when it is undone whole, and a restart that is killed goes on with the newest interval that is still
there (:meth:`Prepared.apply`); or all together, when all ranks have loaded (:meth:`Prepared.give`, :meth:`Prepared.keep`).

Not here: what one interval needs (:mod:`ckpt.undo.planning.plan`), how it is done (:mod:`ckpt.undo.restart.putting_back`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from typing import Any

from ckpt.transport.records import dataclass, field, replace
from ckpt.undo.allowance import copied_bytes
from ckpt.undo.chain import Interval, intervals, log_directories, undo_path
from ckpt.undo.errors import NotRecorded
from ckpt.undo.logs import forget_unmade, unmade
from ckpt.undo.planning.plan import Clocks, Plan, make_plan
from ckpt.undo.records import FileId
from ckpt.undo.restart import provisional
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
from ckpt.undo.restart.intervals import (
    begin_to_record,
    describe,
    empty_undone,
    forget,
    give_up,
    has_done,
    logs_of,
    remove_done,
    undone_path,
)
from ckpt.undo.restart.kept_files import check_kept
from ckpt.undo.restart.line_notes import LineNote, changes_at, note_of, that_count
from ckpt.undo.restart.others import changed_by_others
from ckpt.undo.restart.places import Recording
from ckpt.undo.restart.putting_back import Problem, put_back
from ckpt.undo.restart.state import (
    Moved,
    State,
    follow,
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
    "is_given",
    "leave",
    "note_of",
    "note_shared",
    "prepare",
    "remove_done",
    "shared_then",
    "take_back",
    "undo",
]

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
        changes = changes_at(that_count(lines, state), line, state.moved)
        plans = [
            make_plan(of_ranks, clocks, changes if interval.epoch == line else ())
            for interval, of_ranks in logs
        ]
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
    given: tuple[State, Recording] | None = None
    without_log: list[str] = field(default_factory=list)

    def give_code(self) -> bool:
        """Give code the state of the line, for ranks that load their images: see
        :mod:`ckpt.undo.restart.provisional`. Returns whether any is another one now. Raises NotUndone, LogDamaged."""
        with named(self.job):
            foreign = [*self.state.foreign, *self.foreign]
            return provisional.give_code(
                self.job, self.key, [plan for _, plan in self.chain], foreign, self.state
            )

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
        """Put all files back, for good. Can be done again, from :func:`prepare` on, after it was killed, or has raised.
        Raises NotUndone: the file system refuses a step. What ranks had been given for loading has been taken back before.
        """
        with named(self.job):
            if self.state.since is None:
                later = Choices(self.first).go_on(self.line, self.now)
                begin_to_record(self.job, self.key, self.line, self.highest, later)
                return Restored(is_recorded=False)
            state, restored = self._begun()
            if self.highest > self.line or self.moved is not None or state.foreign:
                save(self.job, self.key, state)
            forget_end(self.job)
            for interval, plan in self.chain:
                if _undo(self.job, state, plan, restored):
                    save(self.job, self.key, state)
                if plan.names or plan.files:
                    # Before the interval leaves the chain.
                    sync_file_systems(plan.touched(undone_path(self.job)))
                retire(interval.path)
            if (done := self._done(state)) != state:
                save(self.job, self.key, done)
            forget_unmade(self.without_log)
            return _told_once(restored)

    def give(self, limit_bytes: int) -> Restored:
        """Put all files back, so that it can be taken back (:func:`take_back`), also where this process is killed, until
        :meth:`keep`. ``limit_bytes``: for the copies that this may need, beside those that ranks have made. Raises NotUndone
        (NotKept), and all has been taken back, unless this is not possible, either (:func:`is_given`).
        """
        with named(self.job):
            if self.state.since is None:
                return Restored(is_recorded=False)
            state, restored = self._begun()
            if not self.chain:
                return _told_once(restored)
            plans = [plan for _, plan in self.chain]
            limit_bytes += copied_bytes(undo_path(self.job))
            with provisional.recorded(self.job, self.key, plans, state.renumbered, limit_bytes) as recording:
                for plan in plans:
                    _undo(self.job, state, plan, restored, recording)
            self.given = state, recording
            return _told_once(restored)

    def keep(self) -> None:
        """What was given stays. Raises NotUndone."""
        if self.given is None:  # no file had to be changed
            self.apply()
            return
        state, recording = self.given
        with named(self.job):
            plans = [plan for _, plan in self.chain if plan.names or plan.files]
            sync_file_systems(path for plan in plans for path in plan.touched(undone_path(self.job)))
            names = [os.path.basename(interval.path) for interval, _ in self.chain]
            provisional.keep(self.job, self.key, self._done(state), names, recording)
            forget_unmade(self.without_log)

    def _begun(self) -> tuple[State, Restored]:
        """The state while files are put back, and what is known before."""
        line, highest = self.line, self.highest
        if time.monotonic_ns() - self.looked_ns > _LOOK_AGAIN_NS:
            self.foreign = self.of_others()
        left = self.state.left
        if highest > line:
            left = [*((low, high) for low, high in left if low < line), (line, highest)]
        foreign = [*self.state.foreign, *self.foreign]
        state = replace(self.state, left=left, foreign=foreign, renumbered=dict(self.state.renumbered))
        self.without_log = unmade(self.job)
        unmade_logs = [Problem("", f"{_UNMADE}: {path}", is_final=True) for path in self.without_log]
        problems = [*self.problems, *self.told, *unmade_logs]
        return state, Restored(
            chosen=Choices(self.first, state.chosen).since(line), problems=problems, intervals=len(self.chain)
        )

    def _done(self, state: State) -> State:
        """The state when all is put back."""
        assert state.since is not None
        # The start that is known is this one
        since = min(state.since, self.line) if self.line == 0 else state.since
        undone = {interval.path for interval, _ in self.chain}
        is_needed = any(interval.path not in undone for interval in intervals(self.job))
        later = Choices(self.first, state.chosen).go_on(self.line, self.now).later
        renumbered = state.renumbered if is_needed else {}
        return replace(state, since=since, renumbered=renumbered, chosen=later, foreign=[])


def _undo(job: str, state: State, plan: Plan, restored: Restored, recording: Recording | None = None) -> bool:
    """Undo one interval. Returns whether files have other numbers now."""
    restored.problems += [
        Problem(path, _FOREIGN, is_final=True) for path in leave_out(plan, state.foreign, state.renumbered)
    ]
    restored.problems = [
        replace(each, nameless=None) if each.nameless in plan.files else each for each in restored.problems
    ]
    known = dict(state.renumbered)
    restored.problems += put_back(plan, undone_path(job), state.renumbered, restored.problems, recording)
    restored.names += len(plan.names)
    restored.files += len(plan.files)
    if state.renumbered == known:
        return False
    follow(known, state.renumbered)
    return True


def _told_once(restored: Restored) -> Restored:
    restored.problems = [each for each in dict.fromkeys(restored.problems) if each.nameless is None]
    return restored


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


def is_given(job: str) -> bool:
    """See :func:`ckpt.undo.restart.provisional.is_given`."""
    return provisional.is_given(os.path.realpath(job))


def take_back(job: str, key: bytes, moved: Moved | None = None) -> bool:
    """See :func:`ckpt.undo.restart.provisional.take_back`."""
    return provisional.take_back(os.path.realpath(job), key, moved)


def leave(job: str) -> None:
    """What ranks were given stays. Raises NotUndone."""
    with named(job):
        provisional.leave(os.path.realpath(job))

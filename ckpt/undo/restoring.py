"""A restart undoes the intervals that have begun since its line; what of them is on disk, and what must survive a kill.

    JOB/undo/epoch-00000007-00002/    an interval: epoch of the checkpoint before it, incarnation; a log for each rank in it
    JOB/undo/done-…                   an interval that has been undone, or is not needed any more: to be removed
    JOB/undo/state                    MAC, line feed, JSON: what is below
    JOB/undone/                       what stood in the way of what was put back; until the next line is committed

All intervals are one chain, ordered by epoch and incarnation; a restart undoes its end, newest first. An interval leaves the
chain by one rename, when it is undone whole. A restart that is killed goes on with the newest interval that is still there.

The state:

since       the oldest line that a restart can put files back to: from there on they are recorded; None: they are not
left        ranges (L, H): a restart has gone back to line L when H was the highest epoch in use. The files of the lines
            above L, up to H, are not known any more. Written before the first change of such a restart
renumbered  files that had to be made again -> the numbers that they have now; older intervals know them by the old ones

Without the file, files are recorded from the job's start or not at all, as the job's options say. Files that are not put
back at one restart are not recorded either, so the chain ends there (:func:`give_up`).

Not here: what one interval needs (:mod:`ckpt.undo.plan`), how it is done (:mod:`ckpt.undo.putting_back`).
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
from collections.abc import Iterator
from typing import Any, NamedTuple

from blake3 import blake3

from ckpt.transport import jsontext
from ckpt.transport.records import dataclass, field
from ckpt.undo.errors import LogDamaged, NotRecorded, NotUndone
from ckpt.undo.keeping import read_log
from ckpt.undo.plan import Log, make_plan
from ckpt.undo.putting_back import Problem, put_back
from ckpt.undo.records import Content, FileId, Name, Uncovered

__all__ = [
    "Restored",
    "can_put_back",
    "describe",
    "empty_undone",
    "forget",
    "give_up",
    "has_chain",
    "has_done",
    "intervals",
    "remove_done",
    "undo",
]

_UNDO, _UNDONE, _STATE, _DONE = "undo", "undone", "state", "done-"
_INTERVAL = re.compile(r"epoch-(\d{8,})-(\d{5,})")
_MAC_DIGITS = 32


class Interval(NamedTuple):
    """One interval of all ranks. They are ordered as they were recorded."""

    epoch: int
    incarnation: int
    path: str


@dataclass(slots=True)
class Restored:
    """What a restart has put back. ``is_recorded``: False if files have not been recorded until now, so nothing could be."""

    is_recorded: bool = True
    problems: list[Problem] = field(default_factory=list)
    intervals: int = 0
    names: int = 0
    files: int = 0


@dataclass(slots=True)
class _State:
    since: int | None = None
    left: list[tuple[int, int]] = field(default_factory=list)
    renumbered: dict[FileId, FileId] = field(default_factory=dict)


def undo(job: str, key: bytes, line: int, *, highest: int, from_start: bool) -> Restored:
    """Put files back to what they were at ``line`` (0: the job's start). No process of the job may be alive.

    ``highest``: the highest epoch in use. ``from_start``: files are recorded since the job's start, if no state says
    otherwise. Can be done again after it was killed, or has raised.

    Raises NotRecorded: the files of this line are not known. LogDamaged: nothing has been changed. NotUndone: the file
    system refuses a step.
    """
    with _named(job):
        state = _load(job, key, from_start)
        if state.since is None:
            _begin_to_record(job, key, line)
            return Restored(is_recorded=False)
        _check(state, line, job)
        due = [interval for interval in reversed(intervals(job)) if interval.epoch >= line]
        logs = [_logs(interval, key) for interval in due]
        if highest > line:
            state.left = [*((low, high) for low, high in state.left if low < line), (line, highest)]
            _save(job, key, state)
        restored = Restored(intervals=len(due))
        for interval, of_ranks in zip(due, logs, strict=True):
            _undo_interval(job, key, state, interval, of_ranks, restored)
        if state.renumbered and not intervals(job):
            state.renumbered = {}
            _save(job, key, state)
        return restored


def _undo_interval(
    job: str, key: bytes, state: _State, interval: Interval, logs: list[Log], restored: Restored
) -> None:
    plan = make_plan(logs)
    known = dict(state.renumbered)
    restored.problems += put_back(plan, os.path.join(job, _UNDONE), state.renumbered)
    restored.names += len(plan.names)
    restored.files += len(plan.files)
    if plan.names or plan.files:
        os.sync()  # all of it is durable before the interval leaves the chain
    if state.renumbered != known:
        _follow(known, state.renumbered)
        _save(job, key, state)
    _retire(interval)


def _follow(known: dict[FileId, FileId], renumbered: dict[FileId, FileId]) -> None:
    """A file that had been made again has been made another time: all its numbers lead to the last one."""
    firsts: dict[FileId, list[FileId]] = {}
    for first, now in known.items():
        firsts.setdefault(now, []).append(first)
    again = [(old, now) for old, now in renumbered.items() if known.get(old) != now]
    for old, now in again:
        for number in (old, known.get(old, old)):
            for first in firsts.get(number, ()):
                if renumbered[first] == number:
                    renumbered[first] = now


def _check(state: _State, line: int, job: str) -> None:
    if state.since is not None and line < state.since:
        raise NotRecorded(f"what files were before epoch {state.since} is not known", path=job)
    for low, high in state.left:
        if low < line <= high:
            raise NotRecorded(f"the files of epoch {line} have been put back to epoch {low} since", path=job)


def can_put_back(job: str, key: bytes, line: int, *, from_start: bool) -> str:
    """Why files cannot be put back to this line; "": they can, or files have not been recorded until now.

    Raises LogDamaged, NotUndone.
    """
    with _named(job):
        state = _load(job, key, from_start)
        try:
            if state.since is not None:
                _check(state, line, job)
        except NotRecorded as failure:
            return failure.what
        return ""


def has_chain(job: str) -> bool:
    """Has anything been recorded?"""
    return os.path.lexists(_path(job, _STATE)) or bool(intervals(job))


def _begin_to_record(job: str, key: bytes, line: int) -> None:
    _move_chain(job)
    _save(job, key, _State(since=line))


def give_up(job: str, key: bytes) -> bool:
    """The job goes on without putting files back, and without recording. What was kept lies in ``undone`` until the next
    line is committed. Returns whether anything was. Raises NotUndone.
    """
    with _named(job):
        _save(job, key, _State())
        return _move_chain(job)


def _move_chain(job: str) -> bool:
    """Take all intervals out of the chain, and keep them for a while. Returns whether there was one."""
    chain = intervals(job)
    for interval in chain:
        undone = os.path.join(job, _UNDONE)
        os.makedirs(undone, mode=0o700, exist_ok=True)
        target = os.path.join(undone, os.path.basename(interval.path))
        while os.path.lexists(target):
            target += "+"
        os.rename(interval.path, target)
    return bool(chain)


def forget(job: str, key: bytes, oldest: int, *, from_start: bool) -> None:
    """No line before ``oldest`` is left: what only those need is out of the chain. Raises LogDamaged, NotUndone."""
    with _named(job):
        chain = intervals(job)
        old = [interval for interval in chain if interval.epoch < oldest]
        if old or os.path.lexists(_path(job, _STATE)):
            state = _load(job, key, from_start)
            since = oldest if old and state.since is not None else state.since
            left = [(low, high) for low, high in state.left if high >= oldest]
            renumbered = state.renumbered if len(old) < len(chain) else {}
            if (since, left, renumbered) != (state.since, state.left, state.renumbered):
                _save(job, key, _State(since, left, renumbered))
        for interval in old:
            _retire(interval)


def empty_undone(job: str) -> None:
    """A line has been committed: what the last restart has moved out of the way is not needed any more. Raises NotUndone."""
    with _named(job):
        undone = os.path.join(job, _UNDONE)
        if not os.path.lexists(undone):
            return
        os.makedirs(os.path.join(job, _UNDO), mode=0o700, exist_ok=True)
        target = _path(job, f"{_DONE}{_UNDONE}")
        while os.path.lexists(target):
            target += "+"
        os.rename(undone, target)


def has_done(job: str) -> bool:
    """Is there anything to be removed?"""
    return any(_done(job))


def remove_done(job: str) -> None:
    """Remove what is out of the chain, at any time. What cannot be removed stays, and does no harm."""
    for path in _done(job):
        shutil.rmtree(path, ignore_errors=True)


def _done(job: str) -> list[str]:
    with contextlib.suppress(OSError):
        return [_path(job, name) for name in os.listdir(os.path.join(job, _UNDO)) if name.startswith(_DONE)]
    return []


def intervals(job: str) -> list[Interval]:
    """The chain, oldest first. Raises OSError."""
    try:
        names = os.listdir(os.path.join(job, _UNDO))
    except FileNotFoundError:
        return []
    found = [(match, name) for name in names if (match := _INTERVAL.fullmatch(name))]
    return sorted(Interval(int(match[1]), int(match[2]), _path(job, name)) for match, name in found)


def describe(job: str, key: bytes, line: int) -> list[dict[str, Any]]:
    """What a restart from this line would undo: for each interval ``epoch``, ``incarnation``, the numbers of ``records``,
    ``links`` and ``copies``, the ``bytes`` of the copies, and ``uncovered`` changes. Raises LogDamaged, NotUndone.
    """
    with _named(job):
        return [_described(interval, key) for interval in intervals(job) if interval.epoch >= line]


def _described(interval: Interval, key: bytes) -> dict[str, Any]:
    logs = _logs(interval, key)
    copies = [
        os.path.join(log.directory, str(record.copy))
        for log in logs
        for record in log.records
        if isinstance(record, Content) and record.copy
    ]
    records = [record for log in logs for record in log.records]
    return {
        "epoch": interval.epoch,
        "incarnation": interval.incarnation,
        "records": len(records),
        "links": sum(isinstance(record, Name) and record.kept > 0 for record in records),
        "copies": len(copies),
        "bytes": sum(os.lstat(copy).st_blocks * 512 for copy in copies),
        "uncovered": [[each.path, each.reason] for each in records if isinstance(each, Uncovered)],
    }


def _logs(interval: Interval, key: bytes) -> list[Log]:
    return [
        Log(directory, list(read_log(directory, key)))
        for name in sorted(os.listdir(interval.path))
        if name.startswith("rank-") and os.path.isdir(directory := os.path.join(interval.path, name))
    ]


def _retire(interval: Interval) -> None:
    """Take an interval out of the chain, for all ranks at once, durably."""
    above, name = os.path.split(interval.path)
    target = os.path.join(above, _DONE + name)
    while os.path.lexists(target):
        target += "+"
    os.rename(interval.path, target)
    _sync_directory(above)


# ---------------------------------------------------------------------- the state


def _load(job: str, key: bytes, from_start: bool) -> _State:
    path = _path(job, _STATE)
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            mac, _, text = file.read().decode("latin-1").partition("\n")
    except FileNotFoundError:
        return _State(since=0 if from_start else None)
    if mac != _mac(key, text):
        raise LogDamaged("the record of what has been put back does not verify", path=path)
    try:
        plain = jsontext.parse(text)
        return _State(
            plain["since"],
            [(low, high) for low, high in plain["left"]],
            {FileId(*old): FileId(*now) for old, now in plain["renumbered"]},
        )
    except (KeyError, TypeError, ValueError) as failure:
        raise LogDamaged(f"it verifies, and is no record ({failure})", path=path) from failure


def _save(job: str, key: bytes, state: _State) -> None:
    plain = {
        "since": state.since,
        "left": state.left,
        "renumbered": [[old, now] for old, now in state.renumbered.items()],
    }
    text = json.dumps(plain, separators=(",", ":"))
    directory = os.path.join(job, _UNDO)
    os.makedirs(directory, mode=0o700, exist_ok=True)
    temporary = _path(job, f".{_STATE}")
    with open(temporary, "wb") as file:
        file.write(f"{_mac(key, text)}\n{text}".encode("ascii"))
        file.flush()
        os.fsync(file.fileno())
    os.rename(temporary, _path(job, _STATE))
    _sync_directory(directory)
    _sync_directory(job)


def _mac(key: bytes, text: str) -> str:
    derived = blake3(key, derive_key_context="checkpoint toolkit, undo state").digest()
    return blake3(text.encode("latin-1"), key=derived).hexdigest(length=_MAC_DIGITS // 2)


def _path(job: str, name: str) -> str:
    return os.path.join(job, _UNDO, name)


def _sync_directory(path: str) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


@contextlib.contextmanager
def _named(job: str) -> Iterator[None]:
    """An OSError of the job directory becomes a NotUndone."""
    try:
        yield
    except OSError as failure:
        raise NotUndone(failure.strerror or str(failure), path=str(failure.filename or job)) from failure

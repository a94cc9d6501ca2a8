"""The intervals of a job: the logs of all ranks in each, and how intervals leave the chain without being undone.

Not here: which intervals there are (:mod:`ckpt.undo.chain`), how a log is written (:mod:`ckpt.undo.keeping`), when an
interval has been undone (:mod:`ckpt.undo.restart.restoring`).
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterable, Iterator
from typing import Any

from ckpt.transport.records import replace
from ckpt.undo.chain import Interval, intervals, log_directories, undo_path
from ckpt.undo.errors import LogDamaged
from ckpt.undo.logs import LOG, host_of, line_key, name_of, read_log
from ckpt.undo.planning.plan import Log
from ckpt.undo.records import Attributes, Content, Name, Record, Status, Uncovered, below_another
from ckpt.undo.records import Moved as MovedDirectory
from ckpt.undo.restart.ending import forget_end
from ckpt.undo.restart.state import DONE, Moved, State, free_name, is_there, load, named, retire, save
from ckpt.undo.selection.patterns import Choices

__all__ = [
    "begin_to_record",
    "describe",
    "empty_undone",
    "forget",
    "give_up",
    "has_changes",
    "has_done",
    "kept_of",
    "logs_of",
    "remove_done",
    "undone_path",
]


def logs_of(
    interval: Interval, key: bytes, moved: list[Moved], ends: Iterable[tuple[str, int, str]] = ()
) -> list[Log]:
    """Of all ranks. ``ends``: see :func:`ckpt.undo.restart.restoring.undo`. Raises
    LogDamaged: one is damaged, or not whole, or gone."""
    known: dict[str, set[tuple[int, str]]] = {}
    for name, nbytes, mac in ends:
        if os.path.dirname(name) == os.path.basename(interval.path) and nbytes:
            known.setdefault(name, set()).add((nbytes, mac))

    def records(directory: str) -> Iterator[Record]:
        for record in read_log(directory, key, known):
            for each in moved:
                if interval.incarnation < each.incarnation:
                    record = below_another(record, each.source, each.target)
            yield record

    directories = log_directories(interval)
    for gone in known.keys() - set(map(name_of, directories)):
        raise LogDamaged("it is gone", path=os.path.join(os.path.dirname(interval.path), gone, LOG))
    return [
        Log(directory, list(records(directory)), host_of(directory, line_key(key)))
        for directory in directories
    ]


def has_changes(interval: Interval, key: bytes, moved: list[Moved]) -> bool:
    """Has a rank changed a file in this interval, as far as that can still be seen? What was made and has been removed is no
    change. Raises LogDamaged, OSError."""
    return any(_is_change(record) for log in logs_of(interval, key, moved) for record in log.records)


def _is_change(record: Record) -> bool:
    if isinstance(record, Name) and record.binding is None:
        return os.path.lexists(record.path)
    return isinstance(record, Name | Content | Attributes | MovedDirectory | Uncovered)


def kept_of(log: Log) -> Iterator[dict[str, Any]]:
    """What a rank has kept, for people: the ``path``, what is ``kept`` of it, of how many ``bytes``, ``where``."""
    for record in log.records:
        kept, nbytes, number = "", 0, 0
        match record:
            case Name(_, None):
                kept = "there was none"
            case Name(_, binding, number) if binding is not None:
                kept = "hard link" if number else _kind_of(binding)
                nbytes = binding.nbytes if binding.is_file else 0
            case Content(_, status, number):
                kept = ("shared blocks" if record.clone else "copy") if number else "length"
                nbytes = status.nbytes
            case Attributes():
                kept = "mode, owner and times"
            case MovedDirectory():
                kept = "name of a directory"
        if kept:
            yield {"path": record.path, "kept": kept, "bytes": nbytes, "where": log.kept(number)}


def _kind_of(status: Status) -> str:
    if status.is_directory:
        return "directory"
    return "symbolic link" if status.is_symlink else "name"


def describe(job: str, key: bytes, line: int) -> list[dict[str, Any]]:
    """What a restart from this line would undo: for each interval ``epoch``, ``incarnation``, the numbers of ``records``,
    ``links`` and ``copies``, the ``bytes`` of the copies, what is ``kept`` of each path (:func:`.intervals.kept_of`),
    ``uncovered`` changes, and of which ``hosts``, where ranks are on several. Raises LogDamaged, NotUndone.
    """
    with named(job):
        moved = load(job, key, from_start=True).moved
        return [_described(interval, key, moved) for interval in intervals(job) if interval.epoch >= line]


def _described(interval: Interval, key: bytes, moved: list[Moved]) -> dict[str, Any]:
    logs = logs_of(interval, key, moved)
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
        "hosts": ", ".join(sorted({log.host for log in logs if log.host})),
        "links": sum(isinstance(record, Name) and record.kept > 0 for record in records),
        "copies": len(copies),
        "bytes": sum(os.lstat(copy).st_blocks * 512 for copy in copies),
        "kept": [each for log in logs for each in kept_of(log)],
        "uncovered": [[each.path, each.reason] for each in records if isinstance(each, Uncovered)],
    }


def undone_path(job: str) -> str:
    """The directory for what stood in the way of what was put back, until the next line is committed."""
    return os.path.join(job, "undone")


def begin_to_record(job: str, key: bytes, line: int, highest: int, choices: Choices) -> None:
    """From this line on, files are recorded, of which nothing is known from before. Raises OSError."""
    _move_chain(job)
    left = [(line, highest)] if highest > line else []
    save(job, key, State(since=line, left=left, chosen=choices.later))


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
        os.makedirs(undone := undone_path(job), mode=0o700, exist_ok=True)
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
        undone = undone_path(job)
        if not os.path.lexists(undone):
            return
        os.makedirs(undo_path(job), mode=0o700, exist_ok=True)
        os.rename(undone, free_name(undo_path(job, f"{DONE}undone")))


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

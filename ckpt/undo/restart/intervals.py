"""The chain of intervals of a job, and the logs of all ranks in each of them.

Not here: how a log is written (:mod:`ckpt.undo.keeping`), when an interval leaves the chain
(:mod:`ckpt.undo.restart.restoring`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator

from ckpt.transport.records import NamedTuple
from ckpt.undo.errors import LogDamaged
from ckpt.undo.logs import LOG, host_of, line_key, name_of, read_log
from ckpt.undo.records import Record, below_another
from ckpt.undo.restart.plan import Log
from ckpt.undo.restart.state import Moved, undo_path

__all__ = ["Interval", "intervals", "log_directories", "logs_of"]

_INTERVAL = re.compile(r"epoch-(\d{8,})-(\d{5,})")


class Interval(NamedTuple):
    """One interval of all ranks. They are ordered as they were recorded."""

    epoch: int
    incarnation: int
    path: str


def intervals(job: str) -> list[Interval]:
    """The chain, oldest first. Raises OSError."""
    try:
        names = os.listdir(undo_path(job))
    except FileNotFoundError:
        return []
    found = [(match, name) for name in names if (match := _INTERVAL.fullmatch(name))]
    return sorted(Interval(int(match[1]), int(match[2]), undo_path(job, name)) for match, name in found)


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


def log_directories(interval: Interval) -> list[str]:
    """The directories of the logs of an interval, one for each rank."""
    return [
        directory
        for name in sorted(os.listdir(interval.path))
        if name.startswith("rank-") and os.path.isdir(directory := os.path.join(interval.path, name))
    ]

"""The intervals of a job, in the order in which they were recorded, and where the logs of each are.

Not here: how a log is written (:mod:`ckpt.undo.keeping`) and read (:mod:`ckpt.undo.logs`). Whoever only compares the logs
with what has changed (:mod:`ckpt.undo.unrecorded`) imports neither.
"""

from __future__ import annotations

import os
import re

from ckpt.transport.records import NamedTuple
from ckpt.undo import DIRECTORY

__all__ = ["Interval", "intervals", "log_directories", "undo_path"]

_INTERVAL = re.compile(r"epoch-(\d{8,})-(\d{5,})")


class Interval(NamedTuple):
    """One interval of all ranks. They are ordered as they were recorded."""

    epoch: int
    incarnation: int
    path: str


def undo_path(job: str, name: str = "") -> str:
    """The path of something that belongs to the undo log of the job; no name: of its directory."""
    return os.path.join(job, DIRECTORY, name) if name else os.path.join(job, DIRECTORY)


def intervals(job: str) -> list[Interval]:
    """The chain, oldest first. Raises OSError."""
    try:
        names = os.listdir(undo_path(job))
    except FileNotFoundError:
        return []
    found = [(match, name) for name in names if (match := _INTERVAL.fullmatch(name))]
    return sorted(Interval(int(match[1]), int(match[2]), undo_path(job, name)) for match, name in found)


def log_directories(interval: Interval) -> list[str]:
    """The directories of the logs of an interval, one for each rank."""
    return [
        directory
        for name in sorted(os.listdir(interval.path))
        if name.startswith("rank-") and os.path.isdir(directory := os.path.join(interval.path, name))
    ]

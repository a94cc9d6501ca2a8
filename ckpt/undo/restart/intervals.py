"""The logs of all ranks in each interval of a job.

Not here: which intervals there are (:mod:`ckpt.undo.chain`), how a log is written (:mod:`ckpt.undo.keeping`), when an
interval leaves the chain (:mod:`ckpt.undo.restart.restoring`).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

from ckpt.undo.chain import Interval, log_directories
from ckpt.undo.errors import LogDamaged
from ckpt.undo.logs import LOG, host_of, line_key, name_of, read_log
from ckpt.undo.records import Record, below_another
from ckpt.undo.restart.plan import Log
from ckpt.undo.restart.state import Moved

__all__ = ["logs_of"]


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

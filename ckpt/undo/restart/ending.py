"""Notes what the job's files were when its last process had ended: what is different at a restart was changed by somebody
else.

    JOB/undo/end    MAC, line feed, JSON: {path: [device, inode, birth, mode, bytes, mtime]}
    JOB/undo/logs   likewise: [[name, length in bytes, last MAC]], where each undo log ends (:mod:`ckpt.undo.logs`)

Noted by the controller for every name and file in the undo logs, when the job has ended and can be restarted. Such a change
is not undone, whatever the logs say: the file is left as it is, and named. Something that is gone is put back all the same,
because nothing is lost by that. Not found: what is changed while the job runs, and when there was no controller at its end.

Not here: how this is left out of a restart (:mod:`ckpt.undo.restart.restoring`).
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Mapping
from typing import Any

from ckpt.undo.chain import undo_path
from ckpt.undo.errors import LogDamaged
from ckpt.undo.keeping import look
from ckpt.undo.logs import end_of, name_of
from ckpt.undo.planning.plan import Plan
from ckpt.undo.records import Binding, FileId, Status, renamed
from ckpt.undo.restart.state import Moved, read_record, write_record

__all__ = ["changed_since", "ends_noted", "forget_end", "leave_out", "note_again", "note_end"]

_END, _LOGS = "end", "logs"


def note_end(job: str, key: bytes, plans: Iterable[Plan], logs: Iterable[str]) -> None:
    """The job has ended. ``plans``: of all intervals; ``logs``: the directories of all logs. Raises OSError."""
    write_record(job, key, _LOGS, [[name_of(log), *end_of(log)] for log in logs])
    paths = {path for plan in plans for path in (*plan.names, *_names(plan))}
    write_record(job, key, _END, {path: _told(look(path)) for path in sorted(paths)})


def ends_noted(job: str, key: bytes) -> list[tuple[str, int, str]]:
    """Where undo logs had ended when the job had ended: name, length in bytes, last MAC. Raises LogDamaged, OSError."""
    try:
        return [
            (str(name), int(nbytes), str(mac)) for name, nbytes, mac in read_record(job, key, _LOGS) or ()
        ]
    except (TypeError, ValueError) as failure:
        raise LogDamaged(
            f"it verifies, and is no record ({failure})", path=undo_path(job, _LOGS)
        ) from failure


def changed_since(job: str, key: bytes, moved: Moved | None = None) -> list[tuple[str, FileId]]:
    """What somebody else has changed since the job ended: paths, and what files they were. Raises LogDamaged, OSError."""
    noted = read_record(job, key, _END)
    if noted is None:
        return []
    found = []
    try:
        for path, then in noted.items():
            if moved is not None:
                path = renamed(path, moved.source, moved.target)
            now = look(path)
            if now is not None and _told(now) != then:
                found.append((path, FileId(*then[:3]) if then is not None else now.file))
    except (AttributeError, TypeError, ValueError) as failure:
        raise LogDamaged(f"it verifies, and is no record ({failure})", path=undo_path(job, _END)) from failure
    return found


def note_again(job: str, key: bytes, then: Iterable[Status]) -> None:
    """Some of this was made again. Where it was as noted, nobody else has changed it. A path that leads through a symbolic
    link to it counts, too. Raises LogDamaged, OSError."""
    noted = read_record(job, key, _END)
    if noted is None:
        return
    told = {json.dumps(_told(status)) for status in then}
    for path, each in noted.items():
        if json.dumps(each) in told:
            noted[path] = _told(look(path))
    write_record(job, key, _END, noted)


def forget_end(job: str) -> None:
    """The restart changes files now. Raises OSError."""
    for name in (_END, _LOGS):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(undo_path(job, name))


def leave_out(
    plan: Plan, changed: Iterable[tuple[str, FileId]], renumbered: Mapping[FileId, FileId]
) -> list[str]:
    """Take out of the plan what would change these paths and files. Returns the paths that are not put back for that reason.
    ``renumbered``: numbers that files have now.
    """
    paths, numbers = {path for path, _ in changed}, {file for _, file in changed}
    files = {
        file
        for file, each in plan.files.items()
        if not each.status.is_directory
        and (not paths.isdisjoint(each.names) or not numbers.isdisjoint((file, renumbered.get(file, file))))
    }
    paths.update(name for file in files for name in plan.files[file].names)
    touched = paths.intersection([*plan.names, *_names(plan)])
    for file in files:
        del plan.files[file]
    for path in paths:
        plan.names.pop(path, None)
        plan.directories.pop(path, None)
    return sorted(touched)


def _names(plan: Plan) -> list[str]:
    return [name for each in plan.files.values() for name in each.names]


def _told(binding: Binding) -> list[Any] | None:
    """What tells whether it has been changed; of a directory, its entries say that themselves."""
    if binding is None:
        return None
    if binding.is_directory:
        return [*binding.file, binding.mode]
    return [*binding.file, binding.mode, binding.nbytes, binding.mtime_ns]

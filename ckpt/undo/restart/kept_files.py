"""Checks that copies and hard links are still what was kept. Asked for all copies and hard links that a restart needs,
before it changes anything.

A copy is known by the digest in its record. A copy that shares its blocks with the file has not been read: it is known by
its inode, length and time. A hard link *is* the file of the checkpoint, and is known by its inode; where no rank has changed
the file since, its length and time tell whether somebody else has, and then that is told.

What is gone, or is something else, makes the restart impossible, unless an older interval that is undone, too, has the whole
contents of the same file: what the newer one kept of it does not matter then. So an older line may be possible.

Not here: what each interval needs (:mod:`ckpt.undo.planning.plan`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Container, Mapping, Sequence

from ckpt.undo.chain import Interval
from ckpt.undo.copying import content_digest
from ckpt.undo.errors import CopyDamaged
from ckpt.undo.keeping import look
from ckpt.undo.planning.plan import FilePlan, Plan
from ckpt.undo.records import Content, FileId, Status
from ckpt.undo.restart.putting_back import Problem

__all__ = ["check_kept", "what_is_wrong"]

_CHANGED_LINK = (
    "somebody else has changed the file since it was kept: its contents may be others than at the checkpoint"
)


def check_kept(
    chain: Sequence[tuple[Interval, Plan]],
    renumbered: Mapping[FileId, FileId],
    left_alone: Container[FileId] = (),
    wrong_copy: Callable[[str, Content], str] | None = None,
) -> list[Problem]:
    """Look at all that these intervals, newest first, need. ``renumbered``: see :mod:`ckpt.undo.restart.state`.
    ``left_alone``: files that are not put back. ``wrong_copy``: as :func:`what_is_wrong`.

    Returns files that come back with other contents. Plans lose copies that are damaged and not needed. Raises CopyDamaged,
    OSError.
    """
    problems: list[Problem] = []
    changed: set[FileId] = set()  # by ranks, in these intervals
    wrong_copy = wrong_copy or what_is_wrong
    for place, (interval, plan) in enumerate(chain):
        changed.update(file for file, each in plan.files.items() if each.has_attributes)
        older = [each for _, each in chain[place + 1 :]]
        needed = {binding.file for binding in plan.names.values() if binding is not None and binding.is_file}
        for file, each in plan.files.items():
            if each.copy and each.copied is not None and (what := wrong_copy(each.copy, each.copied)):
                if not _has_whole(older, file, renumbered):
                    raise _damaged("copy", each, each.copy, interval, what)
                each.copy, each.nbytes, each.tail = "", 0, ""
            if each.link and each.linked is not None and file in needed:
                now = look(each.link)
                if now is None or now.file != each.linked.file:
                    what = "is gone" if now is None else "is another file"
                    raise _damaged("hard link", each, each.link, interval, what)
                if file in changed or file in left_alone or _told(now) == _told(each.linked):
                    continue
                if not _has_whole(older, file, renumbered):
                    problems.append(Problem(each.path, _CHANGED_LINK))
    return problems


def _damaged(kind: str, file: FilePlan, path: str, interval: Interval, what: str) -> CopyDamaged:
    which = f"the {kind} of {file.path} that was kept for epoch {interval.epoch}"
    return CopyDamaged(f"{which} {what}", path=path)


def _told(status: Status) -> tuple[int, int]:
    return status.nbytes, status.mtime_ns


def _has_whole(older: Sequence[Plan], file: FileId, renumbered: Mapping[FileId, FileId]) -> bool:
    """Does an older interval put back the whole contents of the file, which it may know by an older number?"""
    return any(
        each.copy or each.nbytes == 0
        for plan in older
        for known, each in plan.files.items()
        if file in (known, renumbered.get(known))
    )


def what_is_wrong(copy: str, record: Content) -> str:
    """What is wrong with a copy; "": nothing, or (of an earlier version) it cannot be known. Raises OSError."""
    now = look(copy)
    if now is None:
        return "is gone"
    if not now.is_file:
        return "is no file any more"
    if record.clone is not None:
        return (
            "" if (now.file, *_told(now)) == (record.clone.file, *_told(record.clone)) else "has been changed"
        )
    if not record.digest:
        return ""
    fd = os.open(copy, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        return "" if content_digest(fd) == record.digest else "does not match its digest"
    finally:
        os.close(fd)

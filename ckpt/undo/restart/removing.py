"""What a restart has moved out of the way, and what has left the chain, is removed."""

from __future__ import annotations

import contextlib
import os
import shutil

from ckpt.undo.chain import undo_path
from ckpt.undo.restart.state import named

__all__ = ["DONE", "UNDONE", "empty_undone", "has_done", "remove_done"]

UNDONE, DONE = "undone", "done-"


def empty_undone(job: str) -> None:
    """A line has been committed: what the last restart has moved out of the way is not needed any more. Raises NotUndone."""
    with named(job):
        undone = os.path.join(job, UNDONE)
        if not os.path.lexists(undone):
            return
        os.makedirs(undo_path(job), mode=0o700, exist_ok=True)
        target = undo_path(job, f"{DONE}{UNDONE}")
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
        return [undo_path(job, name) for name in os.listdir(undo_path(job)) if name.startswith(DONE)]
    return []

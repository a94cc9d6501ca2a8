"""Why a job does not go on where its files cannot be put back, in words and as an exit code. Pure."""

from __future__ import annotations

from ckpt.controller.errors import (
    EXIT_DAMAGED,
    EXIT_FAILURE,
    EXIT_INCOMPATIBLE,
    EXIT_UNRECOVERABLE,
    FilesNotPutBack,
)
from ckpt.store import JobDirectory
from ckpt.undo.errors import CopyDamaged, LogDamaged, NotRecorded, UndoError

__all__ = ["refusal"]

_WITHOUT = "`ckpt restart --files off` goes on with the files as they are"
_START_WITHOUT = "`ckpt run --resume auto --files off` starts it with the files as they are"


def refusal(job: JobDirectory, failure: UndoError | str, *, starts: bool) -> FilesNotPutBack:
    """``failure``: a text says why no line can be used. ``starts``: there is no line yet."""
    if isinstance(failure, str):
        return FilesNotPutBack(f"{failure}; {_WITHOUT}", EXIT_INCOMPATIBLE)
    if starts and isinstance(failure, NotRecorded) and failure.path == job.path:
        return FilesNotPutBack(f"{failure.what}; {_START_WITHOUT}", EXIT_UNRECOVERABLE)
    match failure:
        case NotRecorded():
            where = "" if failure.path == job.path else f"{failure.path}: "
            return FilesNotPutBack(
                f"files cannot be put back: {where}{failure.what}; {_WITHOUT}", EXIT_INCOMPATIBLE
            )
        case CopyDamaged():
            text = (
                f"files are not put back, and none was changed: {failure}. Restore that file from a backup, or go on from "
                f"another checkpoint (`ckpt verify` says from which); {_WITHOUT}"
            )
            return FilesNotPutBack(text, EXIT_DAMAGED)
        case LogDamaged():
            text = f"files are not put back, and none was changed: {failure}. Restore that file from a backup; {_WITHOUT}"
            return FilesNotPutBack(text, EXIT_DAMAGED)
    text = f"a file cannot be put back: {failure}. Once that is mended, `ckpt restart` can be tried again; {_WITHOUT}"
    return FilesNotPutBack(text, EXIT_FAILURE)

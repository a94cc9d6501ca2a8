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

__all__ = ["WITHOUT", "no_start", "refusal"]

WITHOUT = "`ckpt restart --files off` goes on with the files as they are"
_START_WITHOUT = "`ckpt run --resume auto --files off` starts it with the files as they are"


def no_start(job: JobDirectory, failure: UndoError) -> FilesNotPutBack:
    if isinstance(failure, NotRecorded) and failure.path == job.path:
        return FilesNotPutBack(f"{failure.what}; {_START_WITHOUT}", EXIT_UNRECOVERABLE)
    return refusal(job, failure)


def refusal(job: JobDirectory, failure: UndoError) -> FilesNotPutBack:
    match failure:
        case NotRecorded():
            where = "" if failure.path == job.path else f"{failure.path}: "
            return FilesNotPutBack(
                f"files cannot be put back: {where}{failure.what}; {WITHOUT}", EXIT_INCOMPATIBLE
            )
        case CopyDamaged():
            text = (
                f"files are not put back, and none was changed: {failure}. Restore that file from a backup, or go on from "
                f"another checkpoint (`ckpt verify` says from which); {WITHOUT}"
            )
            return FilesNotPutBack(text, EXIT_DAMAGED)
        case LogDamaged():
            text = f"files are not put back, and none was changed: {failure}. Restore that file from a backup; {WITHOUT}"
            return FilesNotPutBack(text, EXIT_DAMAGED)
    text = f"a file cannot be put back: {failure}. Once that is mended, `ckpt restart` can be tried again; {WITHOUT}"
    return FilesNotPutBack(text, EXIT_FAILURE)

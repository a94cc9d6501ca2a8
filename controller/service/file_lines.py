"""What the checkpoints of a job say of the program's files: to which of them files can be put back.

Not here: when files are put back (:mod:`.files`), the words of a refusal (:mod:`.file_refusals`).
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterable

from ckpt.controller.errors import ControllerError, FilesNotPutBack
from ckpt.store import JobDirectory, StoreError, list_epochs, load_control, load_manifest
from ckpt.undo import DIRECTORY, restart
from ckpt.undo.errors import UndoError
from ckpt.undo.selection.patterns import OFF, is_recorded

__all__ = [
    "forget_files",
    "from_start",
    "has_chain",
    "lines_with_files",
    "notes_of_lines",
    "refusal_of",
    "sweep",
]


def notes_of_lines(job: JobDirectory, first: int) -> list[restart.restoring.LineNote]:
    """What this line and later ones say of files, all ranks' of each. A manifest that cannot be read says nothing."""
    found = []
    for epoch in (each for each in list_epochs(job) if each >= first):
        with contextlib.suppress(StoreError):
            for entry in load_control(job, epoch).ranks:
                with contextlib.suppress(StoreError):
                    said = load_manifest(job, entry).files
                    if said is not None:
                        found.append(restart.restoring.note_of(epoch, said))
    return found


def has_chain(job: JobDirectory) -> bool:
    """Has anything been recorded? Nothing has at the start of most jobs: what undoes it is not imported then."""
    return os.path.isdir(os.path.join(job.path, DIRECTORY)) and restart.restoring.has_chain(job.path)


def sweep(job: JobDirectory) -> None:
    """Nobody waits for the removal of many files; what is left of it at the end of this process is removed by the next."""
    if restart.restoring.has_done(job.path):
        threading.Thread(target=restart.restoring.remove_done, args=(job.path,), daemon=True).start()


def forget_files(job: JobDirectory) -> None:
    """Remove what was kept for lines that are not there any more. The program's start is one of them once there are two
    others: a line may prove to be unusable. Raises ControllerError."""
    try:
        if has_chain(job):
            epochs, recorded = list_epochs(job), from_start(job)
            if len(epochs) == 1 and not restart.restoring.can_put_back(
                job.path, job.key, 0, from_start=recorded
            ):
                return
            restart.restoring.forget(job.path, job.key, min(epochs, default=0), from_start=recorded)
    except UndoError as failure:
        text = f"files that are kept for restarts could not be removed: {failure}"
        raise ControllerError(text) from failure


def refusal_of(job: JobDirectory, failure: UndoError | str, *, starts: bool = False) -> FilesNotPutBack:
    """See :func:`.file_refusals.refusal`."""
    from ckpt.controller.service.file_refusals import refusal  # a start does not need it

    return refusal(job, failure, starts=starts)


def lines_with_files(
    job: JobDirectory, epochs: Iterable[int], say: Callable[[str], None], *, required: bool
) -> list[int]:
    """Those lines to which files can be put back; others are told. ``required``: it has to be all.

    Raises FilesNotPutBack: none is left, or one that is required.
    """
    found: list[int] = []
    failure = ""
    for epoch in sorted(epochs, reverse=True):
        try:
            reason = restart.restoring.can_put_back(job.path, job.key, epoch, from_start=from_start(job))
        except UndoError as error:
            raise refusal_of(job, error) from error
        if not reason:
            found.insert(0, epoch)
            continue
        failure = failure or reason
        if not found and not required:
            job.events.append("line-unusable", epoch=epoch, rank=None, reason=reason)
            say(f"epoch {epoch} cannot be used: {reason}")
    if failure and (required or not found):
        raise refusal_of(job, failure)
    return found


def from_start(job: JobDirectory) -> bool:
    """Are files recorded since the job's start?"""
    return is_recorded(job.options.get("files") or OFF)

"""A job's past, as former controllers have recorded it: in the event log, and in the job's record (`generation.json`).

A restart needs three facts: which numbers (incarnations, epochs) have been used, which processes may still live, and whether
the job has ended. The event log has all three. But the log can be lost: by a damaged disk, a line that could not be written,
or a user's mistake. So the incarnation and the mark of all processes are in the job's record as well
(`ckpt.store.job.lock`), which is written before an incarnation is started. A number in the record has been used, whatever
the log says. Facts that only the log has are lost with the log: the numbers of failed rounds that left no image, times, and
the end of a job that had ended (a restart lets it end once more).

An event log that cannot be read is renamed, and a new log begins with the facts that are known (`begin_anew`).
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Final

from ckpt.controller.errors import Unrecoverable
from ckpt.controller.supervision.history import CONTINUED, History, dump, summarise

if TYPE_CHECKING:
    from ckpt.store import JobDirectory, LockHandle, StorageFailed
    from ckpt.store.job.lock import LockRecord

LOG_BYTES_MAX: Final = 4 << 20
"""When the event log is longer than this (some thousand commits), a new log replaces it."""

_OURS: Final = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
"""These errors are faults of this process or machine, not of the file."""


def known(job: JobDirectory, record: LockRecord) -> tuple[History, StorageFailed | None]:
    """The job's past, and the error for which the event log could not be read (None: it was read).

    Raises Unrecoverable when neither log nor record says which incarnation was the last. Raises StorageFailed for an error
    of `_OURS`.
    """
    from ckpt.store import StorageFailed

    trouble = None
    try:
        history = summarise(job.events.read().events)
    except StorageFailed as error:
        if error.errno in _OURS:
            raise
        trouble, history = error, _without_log(job)
    if record.life is not None:
        history.incarnation = max(history.incarnation, record.life.incarnation)
    elif trouble is None:
        history.incarnation = max(history.incarnation, job.highest_incarnation())
    else:
        raise Unrecoverable(
            f"neither the event log nor generation.json says which incarnation was the last ({trouble}). Bring one of them "
            f"back from a backup; or, if no process of the job lives anywhere, remove {job.events.path}: the images say then"
        )
    if record.branch is not None:  # a line with such a number would not count as a line of this job
        history.highest_epoch = max(history.highest_epoch, record.branch.above)
    return history, trouble


def _without_log(job: JobDirectory) -> History:
    """The job's past from its control files alone."""
    history = History()
    add_lines(job, history)
    return history


def add_lines(job: JobDirectory, history: History) -> None:
    """Add the newer lines, which the log does not have: it was lost, or its writer was killed just then."""
    from ckpt.store import list_lines

    newest = max(history.committed, default=0)
    for line in list_lines(job):
        if line.control is not None and line.epoch > newest:
            history.committed[line.epoch] = {"event": "committed", "bytes": line.control.bytes_raw}
            history.highest_epoch = max(history.highest_epoch, line.epoch)
            history.commits += 1
            history.incarnation = max(history.incarnation, line.control.incarnation)


def begin_anew(job: JobDirectory, history: History, trouble: StorageFailed) -> str:
    """Begin a new event log with `history`, in the place of a log that cannot be read. Call it with the lock held.

    Returns a message for the user.
    """
    new_path = job.events.rename_unreadable()
    job.events.append(CONTINUED, **dump(history))
    job.events.append("log-unreadable", reason=str(trouble), kept=new_path)
    where = "it stays in its place" if new_path is None else f"it is {new_path} now"
    return f"the event log cannot be read, and the job goes on without it ({where}): {trouble}"


def shorten(job: JobDirectory, lock: LockHandle) -> str | None:
    """Replace the event log by a summary if it is longer than `LOG_BYTES_MAX`. Returns a message for the user, or None."""
    if job.events.length <= LOG_BYTES_MAX:
        return None
    job.events.length = 0  # if this fails, do not try again at every line
    from ckpt.store import StoreError

    try:
        history, trouble = known(job, lock.record)
    except (StoreError, Unrecoverable) as error:
        return f"the event log cannot be read: {error}"
    if trouble is not None:
        return begin_anew(job, history, trouble)
    job.events.begin_anew(CONTINUED, **dump(history))
    return None


def record(lock: LockHandle, incarnation: int, mark: str) -> str | None:
    """Record durably which incarnation is about to be started. Returns a message for the user, or None. Raises LockLost."""
    from ckpt.store import LockLost, StoreError
    from ckpt.store.job.lock import Life

    try:
        lock.record_incarnation(Life(incarnation, mark))
    except LockLost:
        raise
    except StoreError as error:
        return f"incarnation {incarnation} is in the event log only: {error}"
    return None

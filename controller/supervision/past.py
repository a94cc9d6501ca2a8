"""★ What a job's former controllers have left behind to know: in the event log, and beside it.

A restart needs three things of the past: which numbers are used (incarnations, epochs), what lives still, and whether the
job has come to its end. The log says all of it, and may be lost: a damaged disk, a line that was refused, a hand. So the
numbers and the mark of all processes are in the job's record as well (`ckpt.store.job.lock`), which is written before an
incarnation is started; a number that is there is used, whatever the log says. What only the log knows is lost with it: the
numbers of rounds that were burnt and left nothing, times, and the end of a job that had ended: it ends once more.

A log that cannot be read is put beside, and a new one begins with what is known (`begin_anew`).
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
"""Longer than this the event log is begun anew: some thousand commits."""

_OURS: Final = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
"""What these say is said of this process or machine, and not of the file."""


def known(job: JobDirectory, record: LockRecord) -> tuple[History, StorageFailed | None]:
    """The job's past, and why the event log could not be read (None: it was).

    Raises Unrecoverable when nothing says which incarnation was the last.
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
    if record.branch is not None:  # lines with such numbers would not count as the job's past
        history.highest_epoch = max(history.highest_epoch, record.branch.above)
    return history, trouble


def _without_log(job: JobDirectory) -> History:
    """What the control files say."""
    from ckpt.store import list_lines

    history = History()
    for line in list_lines(job):
        if line.control is not None:
            history.committed[line.epoch] = {"event": "committed", "bytes": line.control.bytes_raw}
            history.highest_epoch, history.commits = line.epoch, history.commits + 1
            history.incarnation = max(history.incarnation, line.control.incarnation)
    return history


def begin_anew(job: JobDirectory, history: History, trouble: StorageFailed) -> str:
    """A new event log in the place of one that cannot be read, with what is known; in words. With the lock held."""
    aside = job.events.set_aside()
    job.events.append(CONTINUED, **dump(history))
    job.events.append("log-unreadable", reason=str(trouble), kept=aside)
    where = "it stays in its place" if aside is None else f"it is {aside} now"
    return f"the event log cannot be read, and the job goes on without it ({where}): {trouble}"


def shorten(job: JobDirectory, lock: LockHandle) -> str | None:
    """Begin the log anew if it has grown long. Returns what there is to say."""
    if job.events.length <= LOG_BYTES_MAX:
        return None
    job.events.length = 0  # not at every line, where this fails
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
    """Write down which incarnation is about to be started. Returns what there is to say. Raises LockLost."""
    from ckpt.store import LockLost, StoreError
    from ckpt.store.job.lock import Life

    try:
        lock.begin(Life(incarnation, mark))
    except LockLost:
        raise
    except StoreError as error:
        return f"incarnation {incarnation} is in the event log only: {error}"
    return None

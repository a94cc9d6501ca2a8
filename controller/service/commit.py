"""The commit of one line: from the votes of all ranks to a durable control file. Also the removal of images that are of no
use any more (images of failed rounds, old lines).

The commit is synchronous: nothing else may happen between the last vote and the commit. An error of the disk fails the
round. LockLost is raised: another controller has the job, and this one must end.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterable

from ckpt.controller.supervision.events import ControlFailed, ControlWritten, WriteControl
from ckpt.store import (
    ControlFile,
    JobDirectory,
    LockHandle,
    LockLost,
    RankEntry,
    StoreError,
    list_epochs,
    list_lines,
    prune,
    write_control,
)
from ckpt.store.disk.fsio import TEMPORARY_PREFIX
from ckpt.store.job.branch import Branch, new_branch
from ckpt.store.job.directory import epoch_of_image
from ckpt.store.job.eventlog import iso_time


def commit_line(
    job: JobDirectory, lock: LockHandle, line: WriteControl, *, previous: int | None
) -> ControlWritten | ControlFailed:
    """Write the control file of `line`. `previous`: the epoch of the last committed line, if any.

    Raises LockLost when another controller has taken the job.
    """
    present = [rank for rank in range(job.size) if rank not in line.absent]
    entries = [
        RankEntry(
            rank=rank,
            incarnation=vote.incarnation,
            label=vote.label,
            manifest=os.path.relpath(os.path.join(job.path, vote.manifest), job.path),
            digest=vote.digest,
            bytes_raw=vote.bytes_raw,
            bytes_written=vote.bytes_written,
            vectors=vote.vectors,
        )
        for rank, vote in zip(present, line.votes, strict=True)
    ]
    control = ControlFile(
        epoch=line.epoch,
        previous=previous or 0,
        incarnation=line.incarnation,
        generation=lock.generation,
        ranks=entries,
        committed_at=iso_time(time.time_ns(), "milliseconds"),
        meta={
            "not_covered": sum(vote.not_covered for vote in line.votes),
            **({} if line.verified is None else {"verified": line.verified}),
        },
        absent=line.absent,
    )
    try:
        write_control(job, control, lock=lock)
    except LockLost:
        raise
    except (StoreError, OSError, ValueError) as error:
        return ControlFailed(line.epoch, f"{type(error).__name__}: {error}")
    return ControlWritten(line.epoch)


def remove_burnt(job: JobDirectory, *, committed: int, upto: int, fenced: bool = False) -> str | None:
    """Remove the images of epochs above `committed` and up to `upto`: no line will ever refer to them.

    `fenced`: no process that could write an image is alive, so half-written files are removed too. Returns why the removal
    failed, or None.

    A commit can fail after the control file was renamed into place; then the control file was removed again. After a crash
    it must not be there without its images: so its removal is made durable before the first image is removed.
    """
    problem = None
    synced = False
    for rank in range(job.size):
        directory = job.rank_directory(rank)
        try:
            for name in job.fs.list_directory(directory):
                epoch = epoch_of_image(name)
                temporary = name.startswith(TEMPORARY_PREFIX)
                if epoch is not None and committed < epoch <= upto and (fenced or not temporary):
                    if not synced:
                        job.fs.sync_directory(job.control_directory)
                        synced = True
                    job.fs.unlink(os.path.join(directory, name))
        except FileNotFoundError:
            continue  # its writer removed it at the same moment
        except OSError as error:
            problem = str(error)
    return problem


def set_branch(job: JobDirectory, lock: LockHandle, epoch: int | None, *, above: int) -> None:
    """Record durably that the job goes on from `epoch` (None: from its start), and that newer lines do not count any more.

    `above`: the highest epoch number used so far. Raises LockLost.
    """
    previous = {line.epoch: line.control.previous for line in list_lines(job) if line.control is not None}
    lock.set_branch(new_branch(epoch, above, previous, past(list_epochs(job), lock.record.branch)))


def past(epochs: Iterable[int], branch: Branch | None) -> list[int]:
    """The epochs from which the job may go on: those that `branch` does not exclude."""
    return [epoch for epoch in epochs if branch is None or branch.holds(epoch)]


def remove_old_lines(
    job: JobDirectory, lock: LockHandle, keep: int, also: Collection[int] = ()
) -> tuple[list[int], str | None]:
    """Remove all lines but the newest `keep` and those of the epochs `also`. Returns the epochs that are left, and why the
    removal failed, or None.

    Raises LockLost.
    """
    problem = None
    try:
        prune(job, keep, lock=lock, also=also)
    except LockLost:
        raise
    except (StoreError, OSError) as error:
        problem = str(error)
    return list_epochs(job), problem

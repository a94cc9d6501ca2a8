"""Removes the files that no kept line needs. A crash at any moment leaves every kept line complete.

The steps, in this order, and their reasons:

1. The control directory is synced: the newest lines are durable before an older file is removed.
2. The `keep_last` newest lines of the job's past (`job/branch.py`) whose control file and manifests verify are kept, at
   least two, and all lines newer than the oldest of them.
3. The control files of older lines are removed, and the directory is synced: so after a crash there is no control
   file whose images are gone. Then the journal's records of these lines are removed.
4. Manifests and packs to which no kept line refers are removed. If a manifest of a rank in a line not
   older than the kept ones cannot be read, no manifest and no pack of that rank is removed, since the packs that the
   image needs are not known. If a control file cannot be read, this holds for all ranks.
5. Images newer than the newest committed line may belong to a round under way: they stay, unless the caller
   guarantees that no writer lives (`fenced`). A temporary file is removed when its epoch is not above the newest line's (or
   when `fenced`) and no writer holds its lock.

A file that comes back after a crash between two removals is garbage, which the next prune removes.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence

from ckpt.store.disk.fsio import TEMPORARY_PREFIX, close_quietly, sync_directory
from ckpt.store.errors import Damaged, Incompatible, StorageFailed
from ckpt.store.job.branch import Branch
from ckpt.store.job.directory import JobDirectory, epoch_of_image, image_directory
from ckpt.store.job.lines import Line, list_lines, load_manifest
from ckpt.store.job.lock import LockHandle
from ckpt.store.records.control import control_name
from ckpt.store.records.manifest import Manifest
from ckpt.transport.records import dataclass, field

__all__ = ["KEEP_LEAST", "PruneReport", "prune"]

KEEP_LEAST = 2


@dataclass
class PruneReport:
    """The result of `prune`: epochs kept and removed, files removed (relative to the job directory), bytes that they took,
    and the ranks of which no manifest and no pack was removed (`unknown_ranks`)."""

    kept: list[int] = field(default_factory=list)
    removed: list[int] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    bytes_freed: int = 0
    unknown_ranks: list[int] = field(default_factory=list)


@dataclass
class _Needs:
    """The files that must stay (paths relative to the job directory), and the ranks of which no manifest and no pack may
    be removed."""

    paths: set[str] = field(default_factory=set)
    unknown_ranks: set[int] = field(default_factory=set)


def prune(
    job: JobDirectory,
    keep_last: int = KEEP_LEAST,
    *,
    fenced: bool = False,
    lock: LockHandle | None = None,
    also: Collection[int] = (),
) -> PruneReport:
    """Keep the `keep_last` newest good lines (at least two), and remove the files that they do not need.

    Args:
        fenced: no process that could write an image of this job is alive.
        lock: the controller's lock, which is checked first.
        also: epochs of older lines to keep, too.

    Raises:
        ValueError: `keep_last` is below two.
        LockLost: another controller took over; no file was removed.
        RecordDamaged: without `lock`: the record of the lock does not verify; no file was removed.
        StorageFailed: the system refused; every kept line is complete.
    """
    if keep_last < KEEP_LEAST:
        raise ValueError(f"at least {KEEP_LEAST} lines are kept, not {keep_last}")
    if lock is not None:
        lock.check()
    sync_directory(job.fs, job.control_directory)
    report = PruneReport()
    lines = list_lines(job)
    branch = job.record().branch if lock is None else lock.record.branch
    needs, oldest_kept = _lines_to_keep(job, lines, keep_last, branch, also, report)
    newest = max((line.epoch for line in lines if line.control is not None), default=0)
    removed = [line.epoch for line in lines if line.epoch < oldest_kept and line.epoch not in also]
    for epoch in removed:
        _remove(job, f"control/{control_name(epoch)}", report)
    if removed:
        sync_directory(job.fs, job.control_directory)
        if lock is not None and lock.journal is not None:
            gone = [line.control for line in lines if line.epoch in removed and line.control is not None]
            lock.journal.remove(control.record for control in gone)
    report.removed = removed
    for rank in range(job.size):
        _prune_rank(job, rank, needs, newest, fenced, report)
    _prune_temporary(job, "control", newest, fenced, report)
    if fenced:
        _prune_temporary(job, ".", newest, fenced, report)
    report.unknown_ranks = sorted(needs.unknown_ranks)
    return report


def _lines_to_keep(
    job: JobDirectory,
    lines: Sequence[Line],
    keep_last: int,
    branch: Branch | None,
    also: Collection[int],
    report: PruneReport,
) -> tuple[_Needs, int]:
    """Return the files that must stay, and the epoch of the oldest of the newest lines to keep (0: remove no line)."""
    needs, oldest = _Needs(), 0
    for line in reversed(lines):
        if oldest and line.epoch not in also:
            continue
        if line.control is None:
            # A newer control file that does not verify: a user may still restore it, so its images must stay.
            needs.unknown_ranks.update(range(job.size))
            continue
        manifests: list[Manifest] = []
        for entry in line.control.ranks:
            needs.paths.add(entry.manifest)
            try:
                manifests.append(load_manifest(job, entry))
            except (Damaged, Incompatible, StorageFailed):
                needs.unknown_ranks.add(entry.rank)
        for manifest in manifests:
            needs.paths.update(pack.path for pack in manifest.packs)
        if len(manifests) == len(line.control.ranks) and (branch is None or branch.holds(line.epoch)):
            report.kept.insert(0, line.epoch)
            if len(report.kept) == keep_last:
                oldest = line.epoch
    return needs, oldest


def _prune_rank(
    job: JobDirectory, rank: int, needs: _Needs, newest: int, fenced: bool, report: PruneReport
) -> None:
    directory = image_directory(rank)
    if rank not in needs.unknown_ranks:
        for name in _list(job, directory):
            path = f"{directory}/{name}"
            epoch = epoch_of_image(name)
            ours = epoch is not None and not name.startswith(TEMPORARY_PREFIX)
            if ours and path not in needs.paths and (fenced or (epoch or 0) <= newest):
                _remove(job, path, report)
    _prune_temporary(job, directory, newest, fenced, report)


def _prune_temporary(
    job: JobDirectory, directory: str, newest: int, fenced: bool, report: PruneReport
) -> None:
    for name in _list(job, directory):
        if name.startswith(TEMPORARY_PREFIX):
            epoch = epoch_of_image(name)
            path = f"{directory}/{name}"
            over = fenced or (epoch is not None and epoch <= newest)
            if over and _is_abandoned(job, path):
                _remove(job, path, report)


def _is_abandoned(job: JobDirectory, path: str) -> bool:
    """Is the temporary file unlocked? A living writer holds a lock on its temporary file."""
    try:
        fd = job.fs.open_read(os.path.join(job.path, path))
    except OSError:
        return False
    try:
        return job.fs.try_lock(fd)
    except OSError:
        return False
    finally:
        close_quietly(job.fs, fd)


def _list(job: JobDirectory, directory: str) -> list[str]:
    path = os.path.join(job.path, directory)
    try:
        return sorted(job.fs.list_directory(path))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise StorageFailed("list", path, error) from error


def _remove(job: JobDirectory, path: str, report: PruneReport) -> None:
    full = os.path.join(job.path, path)
    try:
        length = job.fs.file_size(full)
        job.fs.unlink(full)
    except FileNotFoundError:
        return
    except OSError as error:
        raise StorageFailed("unlink", full, error) from error
    report.files.append(path)
    report.bytes_freed += length

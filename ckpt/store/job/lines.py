"""Lines on disk: writing the control file that commits one, and finding those that were committed.

`write_control` is the last step of a commit and the only one that makes an epoch count. Before it writes, it
looks at what it is about to promise: every manifest verifies, is the very file that was voted for (digest,
rank, epoch, incarnation), and every pack it needs is there in full length. Only then: temporary file, fsync,
rename, directory fsync. When it returns, the line outlives any crash; when it raises, the round is burnt.
After a failed *directory* sync the file is taken back, and if even that fails it does no harm: it describes
a whole and consistent line.

`latest_committed` walks from the newest control file down to the first that verifies; what it had to skip is
reported, because a damaged newest line is "damaged but recoverable", not "never was".
"""

from __future__ import annotations

import os

from ckpt.store.disk.fsio import FileSystem, commit_file
from ckpt.store.errors import BlockDamaged, Damaged, EpochMissing, Incompatible, RecordDamaged, StorageFailed
from ckpt.store.job.directory import JobDirectory
from ckpt.store.job.lock import LockHandle
from ckpt.store.records.authenticated import digest
from ckpt.store.records.control import ControlFile, RankEntry, control_name, epoch_of_name
from ckpt.store.records.manifest import Manifest
from ckpt.transport.records import dataclass

__all__ = [
    "Line",
    "highest_generation",
    "latest_committed",
    "list_epochs",
    "list_lines",
    "load_control",
    "load_manifest",
    "write_control",
]


@dataclass(frozen=True)
class Line:
    """One entry of `list_lines`: `control` is None when the control file does not verify (see `error`)."""

    epoch: int
    path: str
    control: ControlFile | None
    error: Damaged | Incompatible | StorageFailed | None = None


def list_epochs(job: JobDirectory) -> list[int]:
    """Epochs that have a control file, verified or not, ascending."""
    try:
        names = job.fs.list_directory(job.control_directory)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise StorageFailed("list", job.control_directory, error) from error
    return sorted(epoch for name in names if (epoch := epoch_of_name(name)) is not None)


def list_lines(job: JobDirectory) -> list[Line]:
    """All control files, ascending by epoch; damaged ones are listed with their error, never raised."""
    return [_line(job, epoch) for epoch in list_epochs(job)]


def _line(job: JobDirectory, epoch: int) -> Line:
    path = os.path.join(job.control_directory, control_name(epoch))
    try:
        return Line(epoch, path, _read_control(job, epoch, path))
    except (Damaged, Incompatible, StorageFailed) as error:
        return Line(epoch, path, None, error)


def _read_control(job: JobDirectory, epoch: int, path: str) -> ControlFile:
    try:
        data = job.fs.read_file(path)
    except OSError as error:
        raise StorageFailed("read", path, error) from error
    return ControlFile.decode(job.key, job.job_id, data, path, epoch=epoch)


def load_control(job: JobDirectory, epoch: int | None = None) -> ControlFile:
    """The control file of `epoch`, or of the newest line that verifies.

    Raises:
        EpochMissing: never committed, or pruned.
        Damaged: it does not verify; `fallback_epoch` is another line that does, if any.
        Incompatible: another format.
    """
    if epoch is None:
        found = latest_committed(job)
        if found is None:
            raise EpochMissing("nothing was committed yet", path=job.path, hint="Start the job anew.")
        return found
    path = os.path.join(job.control_directory, control_name(epoch))
    if epoch not in list_epochs(job):
        known = ", ".join(map(str, list_epochs(job))) or "none"
        raise EpochMissing(f"no committed epoch {epoch}", path=job.path, hint=f"Committed epochs: {known}.")
    try:
        return _read_control(job, epoch, path)
    except Damaged as error:
        error.fallback_epoch = newest_good_epoch(job, without=epoch)
        raise


def newest_good_epoch(job: JobDirectory, *, without: int) -> int | None:
    for epoch in reversed(list_epochs(job)):
        if epoch != without and _line(job, epoch).control is not None:
            return epoch
    return None


def latest_committed(job: JobDirectory, *, skipped: list[Line] | None = None) -> ControlFile | None:
    """The newest line whose control file verifies; None when nothing was ever committed.

    Args:
        skipped: newer lines that had to be passed over are appended here, newest first.

    Raises:
        Damaged: there are control files, and none verifies.
        Incompatible: the newest one is of another format.
    """
    first: Damaged | StorageFailed | None = None
    for epoch in reversed(list_epochs(job)):
        line = _line(job, epoch)
        if line.control is not None:
            return line.control
        if isinstance(line.error, Incompatible):
            raise line.error
        assert line.error is not None
        first = first or line.error
        if skipped is not None:
            skipped.append(line)
    if first is not None:
        raise first
    return None


def highest_generation(job: JobDirectory) -> int:
    """The highest controller generation in any control file that verifies; 0 if none."""
    return max((line.control.generation for line in list_lines(job) if line.control is not None), default=0)


def load_manifest(job: JobDirectory, entry: RankEntry, *, fs: FileSystem | None = None) -> Manifest:
    """The manifest that a control file names: MAC, digest, job, rank, epoch and incarnation verified.

    Raises:
        Damaged: missing, changed, or of something else.
    """
    system = job.fs if fs is None else fs
    path = os.path.join(job.path, entry.manifest)
    try:
        data = system.read_file(path)
    except FileNotFoundError as error:
        raise RecordDamaged(f"the manifest of rank {entry.rank} is missing", path=path) from error
    except OSError as error:
        raise StorageFailed("read", path, error) from error
    manifest = Manifest.decode(job.key, job.job_id, data, path)
    manifest.expect(rank=entry.rank, epoch=entry.label[1], incarnation=entry.incarnation, path=path)
    if digest(data) != entry.digest:
        raise RecordDamaged(f"the manifest of rank {entry.rank} is not the one that was committed", path=path)
    return manifest


def check_packs(job: JobDirectory, manifest: Manifest, *, fs: FileSystem | None = None) -> None:
    """Raise BlockDamaged unless every pack the manifest needs is there in its full length."""
    system = job.fs if fs is None else fs
    for pack in manifest.packs:
        path = os.path.join(job.path, pack.path)
        try:
            length = system.file_size(path)
        except FileNotFoundError as error:
            raise BlockDamaged(f"a pack of rank {manifest.rank} is missing", path=path) from error
        except OSError as error:
            raise StorageFailed("stat", path, error) from error
        if length != pack.length:
            raise BlockDamaged(f"a pack has {length} bytes instead of {pack.length}", path=path)


def write_control(
    job: JobDirectory, control: ControlFile, *, lock: LockHandle | None = None, fs: FileSystem | None = None
) -> str:
    """Commit a line; returns the path of its control file. When it returns, the line is durable.

    Args:
        lock: the controller's lock; it must still be held (tests and one-process uses may leave it out).

    Raises:
        ValueError: ranks missing, or the epoch is not above all earlier ones.
        LockLost: another controller took over.
        Damaged: a manifest or pack is not what was voted for.
        StorageFailed: the system refused. Nothing is committed, the number is burnt.
    """
    system = job.fs if fs is None else fs
    if control.size != job.size:
        raise ValueError(f"the line has {control.size} ranks, the job has {job.size}")
    newest = max(list_epochs(job), default=0)
    if control.epoch <= newest:
        raise ValueError(f"epoch {control.epoch} is not above {newest}: numbers only grow")
    data = control.encode(job.key, job.job_id)
    for entry in control.ranks:
        check_packs(job, load_manifest(job, entry, fs=system), fs=system)
    if lock is not None:
        lock.check()
    name = control_name(control.epoch)
    commit_file(system, job.control_directory, name, data)
    return os.path.join(job.control_directory, name)

"""Lines on disk: writes the control file that commits a line (one image of every rank), and finds committed lines.

`write_control` is the last step of a commit, and the only one that makes a line count. Before it writes, it
checks the images: every manifest verifies and is the very file that was voted for (digest,
rank, epoch, incarnation), and every pack that the manifest needs is there in full length. Only then: temporary file, fsync,
rename, directory fsync. When it returns, the line survives any crash; when it raises, the round is aborted and its number
is not used again. After a failed *directory* sync the control file is removed. If the removal fails too, that does no
harm: the file describes a complete and consistent line.

With a controller's lock there is one step more, and that is the commit: the journal's record (`journal.py`), written
create-only, names the control file's digest. Both files are synced at once, then both directories, which takes as long as
one of each. A control file that no record names is none: its controller died before the record, or was superseded. (Control
files without the field `record` count by themselves: those of earlier versions, and of file systems without links.)

A record that names a control file which is not there means that this file has been lost: the line is damaged.

`latest_committed` goes from the newest control file down to the first that verifies. It reports the lines that it had to
skip, because a damaged newest line means "damaged but recoverable", not "never committed".
"""

from __future__ import annotations

import contextlib
import errno
import os
from typing import TYPE_CHECKING, Final

from ckpt.store.disk.fsio import FileSystem, PendingFile, commit_file, sync_directory
from ckpt.store.errors import (
    BlockDamaged,
    Damaged,
    EpochMissing,
    Incompatible,
    LockLost,
    NotCommitted,
    RankMissing,
    RecordDamaged,
    StorageFailed,
    StoreError,
)
from ckpt.store.job.directory import JOURNAL, JobDirectory, read_journal
from ckpt.store.job.epochs import committed_epochs, list_epochs
from ckpt.store.records.authenticated import digest
from ckpt.store.records.control import ControlFile, RankEntry, control_name
from ckpt.store.records.manifest import Manifest
from ckpt.transport.records import dataclass, replace

if TYPE_CHECKING:
    from ckpt.store.job.journal_files import Journal
    from ckpt.store.job.lock import LockHandle

__all__ = [
    "Line",
    "entry_of",
    "highest_generation",
    "latest_committed",
    "list_lines",
    "load_control",
    "load_manifest",
    "ranks_left",
    "write_control",
]


_ATTEMPTS: Final = 10


@dataclass(frozen=True)
class Line:
    """One line on disk. `control` is None if its control file does not verify; `error` says why."""

    epoch: int
    path: str
    control: ControlFile | None
    error: Damaged | Incompatible | StorageFailed | None = None


def list_lines(job: JobDirectory) -> list[Line]:
    """Return all lines, ascending by epoch; a damaged control file is listed with its error, which is not raised."""
    lines = (_line(job, epoch) for epoch in committed_epochs(job))
    return [line for line in lines if not isinstance(line.error, NotCommitted)]


def remove_not_committed(job: JobDirectory) -> None:
    """Remove the control files that no record of the journal names. The caller has just taken the job over in the journal:
    so no record will. Raises StorageFailed."""
    removed = False
    for epoch in list_epochs(job):
        line = _line(job, epoch)
        if isinstance(line.error, NotCommitted):
            try:
                job.fs.unlink(line.path)
            except OSError as error:
                raise StorageFailed("unlink", line.path, error) from error
            removed = True
    if removed:
        sync_directory(job.fs, job.control_directory)


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
        if epoch not in list_epochs(job):
            what = "the control file is missing, and the job's journal says that the checkpoint was committed"
            raise RecordDamaged(what, path=path, hint="Restore that file from a backup.") from error
        raise StorageFailed("read", path, error) from error
    control = ControlFile.decode(job.key, job.job_id, data, path, epoch=epoch)
    if control.record and not _is_recorded(job, control, digest(data)):
        if not _has_forerunner(job, control):
            raise RecordDamaged(
                "the job's journal has lost its records, so it is not known whether the line was committed",
                path=os.path.join(job.path, JOURNAL),
                hint="Restore that directory from a backup.",
            )
        raise NotCommitted(
            "the line was not committed: its controller died, or another one took over, before the commit was recorded",
            path=path,
        )
    return control


def _is_recorded(job: JobDirectory, control: ControlFile, control_digest: str) -> bool:
    found = read_journal(job.path, job.key, job.job_id, job.fs, control.record)
    return found is not None and (found[0].what, found[0].epoch, found[0].digest) == (
        "commit",
        control.epoch,
        control_digest,
    )


def _has_forerunner(job: JobDirectory, control: ControlFile) -> bool:
    """Is the record before that of the line there? A controller writes one right behind the other, the first one when it
    takes the job over."""
    found = read_journal(job.path, job.key, job.job_id, job.fs, control.record - 1)
    return found is not None and found[0].generation == control.generation


def load_control(job: JobDirectory, epoch: int | None = None) -> ControlFile:
    """Return the control file of `epoch`, or (None) of the newest line whose control file verifies.

    Raises:
        EpochMissing: the epoch was never committed, or was pruned.
        Damaged: the control file does not verify; `fallback_epoch` names another line whose file does, if any.
        Incompatible: it has another format.
        StorageFailed: the system refused.
    """
    if epoch is None:
        found = latest_committed(job)
        if found is None:
            raise EpochMissing("nothing was committed yet", path=job.path, hint="Start the job anew.")
        return found
    path = os.path.join(job.control_directory, control_name(epoch))
    committed = committed_epochs(job)
    if epoch not in committed:
        known = ", ".join(map(str, committed)) or "none"
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
    """Return the control file of the newest line that verifies; None if there is no control file.

    Args:
        skipped: newer lines that do not verify are appended here, newest first.

    Raises:
        Damaged, StorageFailed: there are control files, and none can be used (the error of the newest is raised).
        Incompatible: the newest one that is not damaged has another format.
    """
    first: Damaged | StorageFailed | None = None
    for epoch in reversed(committed_epochs(job)):
        line = _line(job, epoch)
        if line.control is not None:
            return line.control
        if isinstance(line.error, NotCommitted):
            continue
        if isinstance(line.error, Incompatible):
            raise line.error
        assert line.error is not None
        first = first or line.error
        if skipped is not None:
            skipped.append(line)
    if first is not None:
        raise first
    return None


def ranks_left(job: JobDirectory) -> int:
    """Return how many ranks the newest line has images of; all of the job's if there is no line that can be read."""
    try:
        control = latest_committed(job)
    except StoreError:
        return job.size
    return job.size if control is None else len(control.ranks)


def highest_generation(job: JobDirectory) -> int:
    """Return the highest controller generation in any control file that verifies; 0 if there is none."""
    return max((line.control.generation for line in list_lines(job) if line.control is not None), default=0)


def entry_of(job: JobDirectory, control: ControlFile, rank: int) -> RankEntry:
    """Return the vote of `rank`. Raises RankMissing if it was dead for good when the line was taken."""
    entry = control.entry(rank)
    if entry is None:
        raise RankMissing(
            f"rank {rank} was dead before epoch {control.epoch}, which has no image of it",
            path=job.path,
            hint="An older checkpoint may have one: `ckpt ls JOB` tells.",
        )
    return entry


def load_manifest(job: JobDirectory, entry: RankEntry, *, fs: FileSystem | None = None) -> Manifest:
    """Read the manifest that a control file names; verify MAC, digest, job, rank, epoch and incarnation.

    Raises:
        Damaged: the manifest is missing, changed, or of another image.
        Incompatible: it has another format.
        StorageFailed: the system refused.
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
    """Raise BlockDamaged unless every pack that the manifest needs is there in its full length. Raises StorageFailed."""
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
    """Commit a line; return the path of its control file. When this returns, the line is durable.

    Args:
        lock: the controller's lock; it must still be held (tests and programs of one process may leave it out).

    Raises:
        ValueError: ranks are missing, or the epoch is not above all earlier ones.
        LockLost: another controller took over.
        Damaged: a manifest or pack differs from the image that was voted for.
        StorageFailed: the system refused. The line is not committed, and its number must not be used again.
    """
    system = job.fs if fs is None else fs
    if control.size != job.size:
        raise ValueError(f"the line has {control.size} ranks, the job has {job.size}")
    journal = None if lock is None else lock.journal
    # With a journal, a file of this epoch may be there that was never committed: see `_record_control`.
    newest = max(
        (epoch for epoch in list_epochs(job) if journal is None or epoch != control.epoch), default=0
    )
    if control.epoch <= newest:
        raise ValueError(f"epoch {control.epoch} is not above {newest}: numbers only grow")
    for entry in control.ranks:
        check_packs(job, load_manifest(job, entry, fs=system), fs=system)
    if lock is not None:
        lock.check()
    if journal is not None:
        return _record_control(job, control, journal, system)
    name = control_name(control.epoch)
    commit_file(system, job.control_directory, name, control.encode(job.key, job.job_id))
    return os.path.join(job.control_directory, name)


def _record_control(job: JobDirectory, control: ControlFile, journal: Journal, fs: FileSystem) -> str:
    """Write the control file, then the journal's record that makes it count. A superseded controller may have written a
    control file for this epoch that no record names, or may do so now: that one gives way."""
    path = os.path.join(job.control_directory, control_name(control.epoch))
    number = journal.next_number
    data = replace(control, record=number).encode(job.key, job.job_id)
    beside = _BesideRecord(job, control, data, fs)
    try:
        journal.commit(control.epoch, digest(data), beside)
    except StorageFailed:
        # The record may have been written. Only then is it certain that no other controller has put its file there.
        with contextlib.suppress(OSError, StoreError):
            if _is_recorded(job, replace(control, record=number), digest(data)):
                fs.unlink(path)
        raise
    finally:
        beside.drop()
    return path


class _BesideRecord:
    """Makes a control file durable together with its record: see :class:`~ckpt.store.job.journal_files.Beside`. `data`: its
    content. Raises StorageFailed."""

    def __init__(self, job: JobDirectory, control: ControlFile, data: bytes, fs: FileSystem) -> None:
        self._job, self._control, self._data, self._fs = job, control, data, fs
        self._path = os.path.join(job.control_directory, control_name(control.epoch))
        self._file = self._pending()

    def _pending(self) -> PendingFile:
        file = PendingFile(self._fs, self._job.control_directory, control_name(self._control.epoch))
        file.write(self._data, 0)
        return file

    def seal(self, record: PendingFile) -> None:
        """See Beside. Raises LockLost: a later controller has written this epoch."""
        self._fs.at_once((self._file.seal, record.seal))
        for _ in range(_ATTEMPTS):
            if self._file.link():
                return
            _give_way(self._job, self._control, self._path, self._fs)
            self._file = self._pending()
            self._file.seal()
        raise StorageFailed(
            "link", self._path, FileExistsError(errno.EEXIST, "written by others, over and over")
        )

    def drop(self) -> None:
        """Remove the temporary file, if it is there still."""
        self._file.drop()

    def sync(self, directory: str) -> None:
        """See Beside."""
        control_directory, fs = self._job.control_directory, self._fs
        fs.at_once((lambda: sync_directory(fs, control_directory), lambda: sync_directory(fs, directory)))


def _give_way(job: JobDirectory, control: ControlFile, path: str, fs: FileSystem) -> None:
    """Remove the control file of an earlier generation, which was never committed. Raises LockLost for one of a later."""
    try:
        data = fs.read_file(path)
    except FileNotFoundError:
        return
    other = ControlFile.decode(job.key, job.job_id, data, path, epoch=control.epoch)
    if other.generation > control.generation or not other.record or _is_recorded(job, other, digest(data)):
        raise LockLost(
            f"generation {other.generation} has written this epoch, ours is {control.generation}",
            path=path,
            hint="Another controller has taken the job: this one must stop.",
        )
    fs.unlink(path)

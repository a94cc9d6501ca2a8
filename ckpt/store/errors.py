"""The errors of a job directory, as one tree of exceptions.

    StoreError                      exit code
    ├── StorageFailed               1    a write, sync or read was refused by the system: disk full, I/O error
    ├── JobExists                   2    `create` on a directory that already holds something
    ├── NotFound                    10
    │   ├── JobMissing                   no job in this directory
    │   ├── EpochMissing                 the job has no committed line, or none of that epoch
    │   └── RankMissing                  the line has no such rank
    ├── JobLocked                   11   another controller holds the job
    ├── LockLost                    11   this controller no longer holds the job: it must stop
    ├── Damaged                     3 while another committed line remains, else 12
    │   ├── RecordDamaged                job.json, key, a manifest or a control file does not verify
    │   │   ├── NotCommitted             a control file that no record of the journal names: there is no such line
    │   │   └── KeyUnreadable            the job's key may not be read here
    │   ├── BlockDamaged                 a pack is missing, cut short, or does not match its digests
    │   └── Misplaced                    a genuine record, but of another job, rank, epoch or incarnation
    ├── Incompatible                13   another format, Python version, number of ranks; `reason` says which
    └── NotPrivate                  13   owned by, or open to, another user; a symbolic link where none may be

Every message says what failed, which file is concerned, and what to do next; `exit_code` is the exit code of the command
line. A bug in this package raises none of these, but AssertionError, TypeError, and so on.
"""

from __future__ import annotations

import errno
from os import PathLike, fspath, strerror

__all__ = [
    "BlockDamaged",
    "Damaged",
    "EpochMissing",
    "Incompatible",
    "JobExists",
    "JobLocked",
    "JobMissing",
    "LockLost",
    "Misplaced",
    "NotCommitted",
    "NotFound",
    "NotPrivate",
    "RankMissing",
    "RecordDamaged",
    "StorageFailed",
    "StoreError",
]


class StoreError(Exception):
    """Base of the store's errors.

    Args:
        what: what failed, one clause.
        path: the file or directory concerned, if there is one.
        hint: what the user can do next, one sentence.
    """

    exit_code = 1

    def __init__(self, what: str, *, path: str | PathLike[str] | None = None, hint: str = "") -> None:
        self.what = what
        self.path = None if path is None else fspath(path)
        self.hint = hint
        super().__init__(what)

    def __str__(self) -> str:
        text = self.what if self.path is None else f"{self.what}: {self.path}"
        return f"{text}. {self.hint}" if self.hint else text


_HINTS = {
    errno.ENOSPC: "The disk is full: free space, or keep fewer checkpoints (--keep N; of stopped jobs: `ckpt prune`).",
    errno.EDQUOT: "The quota is used up: free space, or keep fewer checkpoints (--keep N; of stopped jobs: `ckpt prune`).",
    errno.EFBIG: "The file size limit is too low for this image (see `ulimit -f`).",
    errno.EIO: "The device reports an error: check it (dmesg) and move the job directory to another disk.",
    errno.EROFS: "The file system is mounted read-only: remount it or use another job directory.",
    errno.EACCES: "Check the permissions of the job directory.",
    errno.EPERM: "Check the permissions of the job directory.",
    errno.EMFILE: "Too many open files: raise `ulimit -n`.",
    errno.ENFILE: "Too many open files on this machine.",
}


class StorageFailed(StoreError):
    """The operating system refused an operation; lines that were committed before are not affected.

    `errno`: the system's error number (0: not known). `operation`: the name of the system call.
    """

    def __init__(
        self, operation: str, path: str | PathLike[str] | None, error: OSError, *, hint: str | None = None
    ) -> None:
        self.errno = error.errno or 0
        self.operation = operation
        reason = strerror(self.errno) if self.errno else str(error)
        if hint is None:
            hint = _HINTS.get(self.errno, "Nothing that was committed before is affected.")
        super().__init__(f"{operation} failed ({reason})", path=path, hint=hint)


class JobExists(StoreError):
    """The directory already holds a job, or files that do not belong to a job that is being created."""

    exit_code = 2


class NotFound(StoreError):
    """A job, an epoch or a rank that the caller named does not exist."""

    exit_code = 10


class JobMissing(NotFound):
    """No job in this directory."""


class EpochMissing(NotFound):
    """There is no committed line, or none of the epoch that the caller named."""


class RankMissing(NotFound):
    """The line has no rank of that number."""


class JobLocked(StoreError):
    """Another controller holds the job's lock; `holder` is the content of the lock file (pid, host, …)."""

    exit_code = 11

    def __init__(self, what: str, *, path: str | PathLike[str], holder: dict[str, object], hint: str) -> None:
        self.holder = holder
        super().__init__(what, path=path, hint=hint)


class LockLost(StoreError):
    """Another controller took the lock (the lock file was replaced, or another generation is on disk)."""

    exit_code = 11


class Damaged(StoreError):
    """A file was changed, cut short or lost after it had been committed.

    `fallback_epoch`: the newest other committed epoch that can be used instead; None: there is none.
    """

    fallback_epoch: int | None = None

    @property
    def recoverable(self) -> bool:
        """Whether another committed line remains."""
        return self.fallback_epoch is not None

    @property
    def exit_code(self) -> int:  # type: ignore[override]
        """3: another line remains; 12: none does."""
        return 3 if self.recoverable else 12

    def __str__(self) -> str:
        text = super().__str__()
        if self.fallback_epoch is None:
            return text
        epoch = self.fallback_epoch
        return f"{text} Epoch {epoch} can be used instead: `ckpt restart JOB@{epoch}`."


class RecordDamaged(Damaged):
    """A JSON record (job.json, manifest, control file) or the key does not verify."""


class KeyUnreadable(RecordDamaged):
    """The job's key is not there, or may not be read here."""


class NotCommitted(RecordDamaged):
    """A control file that no record of the journal names: its controller died, or was superseded, before the commit."""


class BlockDamaged(Damaged):
    """A pack is missing or has another length, or a block in it does not match its digest."""


class Misplaced(Damaged):
    """A record that verifies, but stands in the place of another one (other job, rank, epoch, incarnation)."""


class Incompatible(StoreError):
    """The image cannot be used by this program or interpreter; `reason` is the text that names the difference."""

    exit_code = 13

    def __init__(self, reason: str, *, path: str | PathLike[str] | None = None, hint: str = "") -> None:
        self.reason = reason
        super().__init__(reason, path=path, hint=hint)


class NotPrivate(StoreError):
    """Another user owns a directory or file of the job, or may write to it. It is refused, since images are code."""

    exit_code = 13

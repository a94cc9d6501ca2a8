"""Everything that can go wrong in a job directory, as one tree.

    StoreError                      exit code
    ├── StorageFailed               1    a write, sync or read was refused by the system: disk full, I/O error
    ├── JobExists                   2    `create` on a directory that already holds something
    ├── NotFound                    10
    │   ├── JobMissing                   no job in this directory
    │   ├── EpochMissing                 the job has no committed line (of that epoch)
    │   └── RankMissing                  the line has no such rank
    ├── JobLocked                   11   another controller holds the job
    ├── LockLost                    11   this controller no longer holds the job: it must stop
    ├── Damaged                     3 while another committed line remains, else 12
    │   ├── RecordDamaged                job.json, key, a manifest or a control file does not verify
    │   ├── BlockDamaged                 a pack is missing, cut short, or does not match its digests
    │   └── Misplaced                    genuine, but of another job, rank, epoch or incarnation
    ├── Incompatible                13   another format, Python version, number of ranks; `reason` says which
    └── NotPrivate                  13   owned by, or open to, another user; a symbolic link where none may be

Every message says what failed, which file, and what to do next; `exit_code` is the command line's.
Nothing here is raised for a bug in this package: those stay AssertionError, TypeError, and so on.
"""

from __future__ import annotations

import errno
import os

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
    "NotFound",
    "NotPrivate",
    "RankMissing",
    "RecordDamaged",
    "StorageFailed",
    "StoreError",
]


class StoreError(Exception):
    """Base of the tree.

    Args:
        what: what failed, one clause.
        path: the file or directory concerned, if there is one.
        hint: what the user can do next, one sentence.
    """

    exit_code = 1

    def __init__(self, what: str, *, path: str | os.PathLike[str] | None = None, hint: str = "") -> None:
        self.what = what
        self.path = None if path is None else os.fspath(path)
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
    """The operating system refused an operation; nothing that was committed before is affected.

    `errno` is the system's number (0: not known), `operation` the name of the call.
    """

    def __init__(
        self, operation: str, path: str | os.PathLike[str] | None, error: OSError, *, hint: str | None = None
    ) -> None:
        self.errno = error.errno or 0
        self.operation = operation
        reason = os.strerror(self.errno) if self.errno else str(error)
        if hint is None:
            hint = _HINTS.get(self.errno, "Nothing that was committed before is affected.")
        super().__init__(f"{operation} failed ({reason})", path=path, hint=hint)


class JobExists(StoreError):
    """The directory already holds a job, or files that are not ours."""

    exit_code = 2


class NotFound(StoreError):
    """What was asked for is not there."""

    exit_code = 10


class JobMissing(NotFound):
    """No job in this directory."""


class EpochMissing(NotFound):
    """No committed line, or none of the epoch asked for."""


class RankMissing(NotFound):
    """The line has no rank of that number."""


class JobLocked(StoreError):
    """Another controller holds the job; `holder` is what it wrote into the lock file (pid, host, …)."""

    exit_code = 11

    def __init__(
        self, what: str, *, path: str | os.PathLike[str], holder: dict[str, object], hint: str
    ) -> None:
        self.holder = holder
        super().__init__(what, path=path, hint=hint)


class LockLost(StoreError):
    """The lock was taken over (the lock file was replaced or a higher generation is on disk)."""

    exit_code = 11


class Damaged(StoreError):
    """Something was changed, cut short or lost after it had been committed.

    `fallback_epoch` is the newest other committed epoch that can be used instead, or None: nothing is left.
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


class BlockDamaged(Damaged):
    """A pack is missing or has another length, or a block in it does not match its digest."""


class Misplaced(Damaged):
    """A record that verifies, but stands where another one belongs (other job, rank, epoch, incarnation)."""


class Incompatible(StoreError):
    """The image cannot be used here; `reason` is the part of the message that names the difference."""

    exit_code = 13

    def __init__(self, reason: str, *, path: str | os.PathLike[str] | None = None, hint: str = "") -> None:
        self.reason = reason
        super().__init__(reason, path=path, hint=hint)


class NotPrivate(StoreError):
    """Images are code: a directory or file that another user owns or may write to is refused."""

    exit_code = 13

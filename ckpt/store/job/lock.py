"""The controller's lock on a job: there are never two controllers, and a killed one leaves no lock behind.

Three parts:

- `flock` on the file `lock`: the kernel drops it with the last descriptor, so a `kill -9` leaves no lock
  behind. The content (pid, host) is only used in the error message of the next process.
- the *journal* (`journal.py`): correctness does not depend on the flock, which on some file systems does not reach other
  hosts. A controller that was superseded there cannot commit. `LockHandle.journal`; None where the file system has no links.
- the *record*, `generation.json` (MAC, commit sequence), which only the holder of the lock writes:
    generation  grows with every lock taken. Control files and events contain it. `LockHandle.check` raises LockLost, so
                that no line is committed, when another generation is on disk or the lock file was replaced. That covers
                file systems whose flock does not reach other machines, and users who delete lock files
    seat        machine, directory and sockets of the controller and its ranks (`location.py`); null: no process lives
    branch      the lines that a restart may use, if not all (`branch.py`); null: all
    life        the last incarnation of the ranks: its number, and the mark in the environment of all processes that its
                agent starts. It is written before they are started, so that an incarnation's number is not used twice even
                if the event log is lost; null: no incarnation was started yet

`fork` inherits the descriptor: a process that forks without exec while it holds the lock must call
`LockHandle.forget()` in the child, or the lock is held as long as the child lives. (exec closes the descriptor.)
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Final

from ckpt.store.disk.fsio import FileSystem, close_quietly, commit_file
from ckpt.store.errors import JobLocked, LockLost, RecordDamaged, StorageFailed, StoreError
from ckpt.store.job.branch import Branch
from ckpt.store.job.journal_files import Journal, open_journal
from ckpt.store.job.location import Location
from ckpt.store.records import formats
from ckpt.transport import jsontext
from ckpt.transport.records import dataclass, replace

__all__ = ["Life", "LockHandle", "LockRecord", "acquire_flock", "read_generation", "read_record", "take_lock"]

_LOCK_NAME: Final = "lock"
_GENERATION_NAME: Final = "generation.json"
_ATTEMPTS: Final = 10


@dataclass(frozen=True)
class Life:
    """One incarnation of the ranks. `mark`: the text in the environment of all processes that its agent has started, by
    which they are found (`ckpt.controller.launch.strays`)."""

    incarnation: int
    mark: str

    def to_json(self) -> dict[str, Any]:
        return {"incarnation": self.incarnation, "mark": self.mark}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Life:
        """The inverse of `to_json`, for what `formats.GENERATION` has checked."""
        return cls(value["incarnation"], value["mark"])


@dataclass(frozen=True)
class LockRecord:
    """The content of `generation.json`; see the module's header."""

    generation: int = 0
    location: Location | None = None
    branch: Branch | None = None
    life: Life | None = None


class LockHandle:
    """A lock that this process holds; use it as a context manager. No other holder has or had the same `generation`.

    `found`: the record that the previous holder left; `record`: the present record.
    """

    def __init__(
        self,
        path: str,
        fd: int,
        key: bytes,
        job_id: str,
        found: LockRecord,
        record: LockRecord,
        fs: FileSystem,
    ) -> None:
        self.path = path
        self.found = found
        self.journal: Journal | None = None
        self.record = record
        self._fd = fd
        self._key = key
        self._job_id = job_id
        self._fs = fs

    @property
    def generation(self) -> int:
        return self.record.generation

    def __enter__(self) -> LockHandle:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.release()

    @property
    def is_held(self) -> bool:
        """Is this handle not released yet? It does not see whether another process took the lock: see `check`."""
        return self._fd >= 0

    def check(self) -> None:
        """Raise LockLost unless this handle still holds the job's lock. May raise RecordDamaged, StorageFailed."""
        if self._fd < 0:
            raise LockLost("the lock was released", path=os.path.join(self.path, _LOCK_NAME))
        if not self._fs.is_same_file(self._fd, os.path.join(self.path, _LOCK_NAME)):
            raise LockLost(
                "the lock file was replaced or removed",
                path=os.path.join(self.path, _LOCK_NAME),
                hint="Another controller may have taken the job: this one must stop.",
            )
        generation = read_generation(self.path, self._key, self._job_id, self._fs)
        if generation != self.generation:
            raise LockLost(
                f"generation {generation} is on disk, ours is {self.generation}",
                path=os.path.join(self.path, _GENERATION_NAME),
                hint="Another controller has taken the job: this one must stop.",
            )

    def claim(self, location: Location) -> None:
        """Record where the job's processes run from now on. The caller calls it when no process at an earlier
        location lives, and before it starts the first process. Raises LockLost, StorageFailed.
        """
        self._write(replace(self.record, location=location))

    def clear_location(self) -> None:
        """Record that no process of the job lives any more. If the disk refuses, the location stays in the record, and
        the next controller checks whether processes live. Raises nothing for that.
        """
        if self.record.location is not None and self.is_held:
            try:
                self._write(replace(self.record, location=None))
            except StoreError:
                pass

    def set_branch(self, branch: Branch) -> None:
        """Record the lines that a restart may use from now on. Raises LockLost, StorageFailed."""
        self._write(replace(self.record, branch=branch))

    def record_incarnation(self, life: Life) -> None:
        """Record the incarnation that is about to be started. Raises LockLost, StorageFailed."""
        if life != self.record.life:
            self._write(replace(self.record, life=life))

    def _write(self, record: LockRecord) -> None:
        self.check()
        _commit(self.path, self._key, self._job_id, self._fs, record)
        self.record = record

    def release(self) -> None:
        """Release the lock. Idempotent."""
        self.forget()

    def forget(self) -> None:
        """Close the descriptor without unlocking: when a forked child does this, the parent still holds the lock."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            close_quietly(self._fs, fd)


def read_generation(job_path: str, key: bytes, job_id: str, fs: FileSystem) -> int:
    """Return the generation in `generation.json`; 0 if the job was never locked. Raises RecordDamaged, StorageFailed."""
    return read_record(job_path, key, job_id, fs).generation


def read_record(job_path: str, key: bytes, job_id: str, fs: FileSystem) -> LockRecord:
    """Return the record on disk; the empty record if the job was never locked. Raises RecordDamaged, StorageFailed."""
    path = os.path.join(job_path, _GENERATION_NAME)
    try:
        data = fs.read_file(path, 1 << 20)
    except FileNotFoundError:
        return LockRecord()
    except OSError as error:
        raise StorageFailed("read", path, error) from error
    content = formats.read(key, formats.GENERATION, job_id, data, path)
    # an earlier version may have written the record without these fields
    location, branch, life = (content.get(name) for name in ("seat", "branch", "life"))
    return LockRecord(
        generation=content["generation"],
        location=None if location is None else Location.from_json(location),
        branch=None if branch is None else Branch.from_json(branch),
        life=None if life is None else Life.from_json(life),
    )


def _commit(job_path: str, key: bytes, job_id: str, fs: FileSystem, record: LockRecord) -> None:
    fields = {
        "generation": record.generation,
        "seat": None if record.location is None else record.location.to_json(),
        "branch": None if record.branch is None else record.branch.to_json(),
        "life": None if record.life is None else record.life.to_json(),
    }
    commit_file(
        fs, job_path, _GENERATION_NAME, formats.write(key, formats.GENERATION, job_id, fields), replaces=True
    )


def take_lock(
    job_path: str,
    key: bytes,
    job_id: str,
    fs: FileSystem,
    *,
    floor: int = 0,
    lock_fd: int | None = None,
    location: Location | None = None,
    life: Life | None = None,
    journal: bool = False,
) -> LockHandle:
    """Take the lock, or raise JobLocked at once. The record keeps location, branch and life of the previous holder.

    Args:
        floor: the highest generation in control files; the new one is above it even when `generation.json` was lost.
        lock_fd: the descriptor of the lock, if the caller holds it already (see `acquire_flock`).
        location, life: as in `LockHandle.claim` and `record_incarnation`, written together with the generation.
        journal: take the job over in its journal, too.

    Raises:
        JobLocked: another process holds the lock.
        NotPrivate: other users can reach the lock file.
        StorageFailed: the system refused.
    """
    fd = acquire_flock(job_path, fs) if lock_fd is None else lock_fd
    try:
        try:
            found = read_record(job_path, key, job_id, fs)
        except RecordDamaged:
            found = LockRecord()  # `floor` keeps the new generation above those in all control files
        floor = max(found.generation, floor)
        contact = f"process {os.getpid()} on {socket.gethostname()}"
        taken = open_journal(job_path, key, job_id, fs, floor=floor, contact=contact) if journal else None
        generation = floor + 1 if taken is None else taken.position.generation
        record = replace(
            found, generation=generation, location=location or found.location, life=life or found.life
        )
        _commit(job_path, key, job_id, fs, record)
    except BaseException:
        close_quietly(fs, fd)
        raise
    handle = LockHandle(job_path, fd, key, job_id, found, record, fs)
    handle.journal = taken
    return handle


def acquire_flock(job_path: str, fs: FileSystem) -> int:
    """Take the flock only, without a new generation; return the descriptor that holds it. Raises JobLocked at once,
    NotPrivate, StorageFailed."""
    path = os.path.join(job_path, _LOCK_NAME)
    for _ in range(_ATTEMPTS):
        try:
            fd = fs.open_lock(path)
        except OSError as error:
            raise StorageFailed("open", path, error) from error
        try:
            locked = fs.try_lock(fd)
        except OSError as error:
            close_quietly(fs, fd)
            raise StorageFailed("flock", path, error) from error
        except BaseException:
            close_quietly(fs, fd)
            raise
        if not locked:
            holder = _read_holder(fs, fd)
            close_quietly(fs, fd)
            raise JobLocked(
                f"another controller holds it (pid {holder.get('pid', '?')} on {holder.get('host', '?')})",
                path=job_path,
                holder=holder,
                hint="Use `ckpt status`, or `ckpt stop` to end it.",
            )
        if fs.is_same_file(fd, path):
            fs.sign(fd, json.dumps({"pid": os.getpid(), "host": socket.gethostname()}).encode() + b"\n")
            return fd
        close_quietly(fs, fd)  # the file was replaced between open and lock: try the new one
    raise JobLocked(
        "the lock file is being replaced over and over",
        path=path,
        holder={},
        hint="See who else uses this job.",
    )


def _read_holder(fs: FileSystem, fd: int) -> dict[str, Any]:
    """Read pid and host of the holder for an error message. They are not authenticated, so they serve for nothing else."""
    data = bytearray(4096)
    try:
        length = fs.preadv(fd, [data], 0)
        value = jsontext.parse(bytes(data[:length]))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}

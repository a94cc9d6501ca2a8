"""The controller's lock on a job (★): never two controllers, and nothing left behind by one that was killed.

Two parts:

- `flock` on the file `lock`: the kernel drops it with the last descriptor, so a `kill -9` leaves nothing
  behind. The content (pid, host, time) is only for the message that the next one gets.
- a *generation*, one more with every lock taken, kept durably in `generation.json` (MAC, commit sequence).
  It goes into control files and events, and `LockHandle.check` refuses to commit once a higher one is on
  disk or the lock file was replaced: that covers file systems whose flock does not reach other machines, and
  people who delete lock files.

A descriptor is inherited by `fork`: a process that forks without exec while it holds the lock must call
`LockHandle.forget()` in the child, or the lock lives as long as the child does. (exec closes it.)
"""

from __future__ import annotations

import json
import os
import socket
from types import TracebackType
from typing import Any, Final

from . import records
from .errors import JobLocked, LockLost, RecordDamaged, StorageFailed
from .fsio import FileSystem, commit_file
from .privacy import check_private_file

__all__ = ["LockHandle", "read_generation", "take_lock"]

_LOCK_NAME: Final = "lock"
_GENERATION_NAME: Final = "generation.json"
_KIND: Final = "generation"
_ATTEMPTS: Final = 10


class LockHandle:
    """A lock that is held; use it as a context. `generation` is unique among all holders, ever."""

    def __init__(self, path: str, fd: int, key: bytes, job_id: str, generation: int, fs: FileSystem) -> None:
        self.path = path
        self.generation = generation
        self._fd = fd
        self._key = key
        self._job_id = job_id
        self._fs = fs

    def __enter__(self) -> LockHandle:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    @property
    def held(self) -> bool:
        """Whether this handle has not been released (says nothing about others: see `check`)."""
        return self._fd >= 0

    def check(self) -> None:
        """Raise LockLost unless this is still the one lock on the job."""
        if self._fd < 0:
            raise LockLost("the lock was released", path=os.path.join(self.path, _LOCK_NAME))
        if not _is_same_file(self._fd, os.path.join(self.path, _LOCK_NAME)):
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

    def release(self) -> None:
        """Let go of it; harmless when done twice."""
        self.forget()

    def forget(self) -> None:
        """Close the descriptor. In a forked child: the parent's lock is not touched."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)


def _is_same_file(fd: int, path: str) -> bool:
    try:
        there = os.lstat(path)
    except FileNotFoundError:
        return False
    here = os.fstat(fd)
    return (here.st_dev, here.st_ino) == (there.st_dev, there.st_ino)


def read_generation(job_path: str, key: bytes, job_id: str, fs: FileSystem) -> int:
    """The highest generation on disk; 0 when the job was never locked. May raise RecordDamaged."""
    path = os.path.join(job_path, _GENERATION_NAME)
    try:
        data = fs.read_file(path, 1 << 16)
    except FileNotFoundError:
        return 0
    except OSError as error:
        raise StorageFailed("read", path, error) from error
    value = records.decode(key, _KIND, job_id, data, path).get("generation")
    if not isinstance(value, int):
        raise RecordDamaged("generation is no number", path=path)
    return value


def take_lock(job_path: str, key: bytes, job_id: str, fs: FileSystem, *, floor: int = 0) -> LockHandle:
    """Take the lock or raise JobLocked at once.

    Args:
        floor: the highest generation seen elsewhere (control files); the new one is above it in any case,
            even when `generation.json` was lost.
    """
    fd = _flock(job_path, fs)
    try:
        try:
            known = read_generation(job_path, key, job_id, fs)
        except RecordDamaged:
            known = 0  # `floor` keeps it above everything that was ever committed
        generation = max(known, floor) + 1
        data = records.encode(key, _KIND, job_id, {"generation": generation})
        commit_file(fs, job_path, _GENERATION_NAME, data, replaces=True)
        _sign(fd, generation)
    except BaseException:
        os.close(fd)
        raise
    return LockHandle(job_path, fd, key, job_id, generation, fs)


def _flock(job_path: str, fs: FileSystem) -> int:
    path = os.path.join(job_path, _LOCK_NAME)
    for _ in range(_ATTEMPTS):
        try:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise StorageFailed("open", path, error) from error
        try:
            check_private_file(fd, path)
            locked = fs.try_lock(fd)
        except OSError as error:
            os.close(fd)
            raise StorageFailed("flock", path, error) from error
        except BaseException:
            os.close(fd)
            raise
        if not locked:
            holder = _read_holder(fd)
            os.close(fd)
            raise JobLocked(
                f"another controller holds it (pid {holder.get('pid', '?')} on {holder.get('host', '?')})",
                path=job_path,
                holder=holder,
                hint="Use `ckpt status`, or `ckpt stop` to end it.",
            )
        if _is_same_file(fd, path):
            return fd
        os.close(fd)  # the file was replaced between open and lock: try the new one
    raise JobLocked(
        "the lock file is being replaced over and over",
        path=path,
        holder={},
        hint="See who else uses this job.",
    )


def _read_holder(fd: int) -> dict[str, Any]:
    try:
        value = json.loads(os.pread(fd, 4096, 0))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def _sign(fd: int, generation: int) -> None:
    text = json.dumps({"pid": os.getpid(), "host": socket.gethostname(), "generation": generation}) + "\n"
    try:
        os.ftruncate(fd, 0)
        os.pwrite(fd, text.encode(), 0)
    except OSError:
        return  # only the next one's message is poorer for it

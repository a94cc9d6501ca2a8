"""The location of a job: the machine, directory and sockets of its controller and ranks. Another controller learns from it
whether processes of the job may live, and how to reach them.

A location is part of the controller's record (see `lock.py`). It is written before the first process is started, and removed
when the last one is known to be dead. A job without a location has no processes. `compare` returns what a recorded location
means to the process that reads it; facts that the kernel knows are asked from the kernel.

    free        no process can live: there is no location, or this machine was booted again since
    ours        this machine, this PID namespace, this very directory: `runtime` has the sockets of living processes
    copied      this machine, another directory: the job directory is a copy, and the processes belong to the original
    hidden      this machine, another PID namespace (a container): the processes cannot be ended from here
    elsewhere   another machine: whether the processes live cannot be known from here

A directory is identified by the device and inode of its `job.json`, which is written once and never replaced. A machine
is identified by its host name and its machine id, a boot of it by the kernel's boot id.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Mapping
from typing import Any, Final, Literal

from ckpt.store.disk.privacy import open_regular
from ckpt.transport.records import asdict, dataclass, names

__all__ = ["Relation", "Location", "compare", "directory_id", "this_location", "is_locked", "open_locked"]

_TRIES: Final = 100
_PAUSE_S: Final = 0.002

Relation = Literal["free", "ours", "copied", "hidden", "elsewhere"]


@dataclass(frozen=True)
class Location:
    """Where a job's controller and ranks run.

    Attributes:
        host, machine: host name, and machine id (/etc/machine-id; "" if unknown).
        boot: the kernel's boot id.
        namespace: the PID namespace, as /proc/self/ns/pid names it.
        directory: identity of the job directory, see `directory_id`.
        path: path of the job directory when the location was written.
        runtime: the private directory with the sockets.
        pid: process id of the controller.
        contact: where `ckpt status`, `checkpoint` and `stop` reach it from another host (HOST:PORT, as words); "": nowhere.
    """

    host: str
    machine: str
    boot: str
    namespace: str
    directory: str
    path: str
    runtime: str
    pid: int
    contact: str = ""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Location:
        """The inverse of `to_json`, for what `formats.GENERATION` has checked."""
        return cls(**{name: value[name] for name in names(cls) if name in value})


def this_location(job_path: str, runtime: str) -> Location:
    """Return the location of this process as the controller of the job in `job_path`."""
    return Location(
        host=os.uname().nodename,
        machine=_line("/etc/machine-id"),
        boot=_line("/proc/sys/kernel/random/boot_id"),
        namespace=_namespace(),
        directory=directory_id(job_path),
        path=job_path,
        runtime=runtime,
        pid=os.getpid(),
    )


def directory_id(job_path: str) -> str:
    """Return an identity that differs between a job directory and a copy of it; "" if there is no `job.json`."""
    try:
        info = os.lstat(os.path.join(job_path, "job.json"))
    except OSError:
        return ""
    return f"{info.st_dev}:{info.st_ino}"


def compare(location: Location | None, mine: Location) -> Relation:
    """Return what a recorded location means to this process; see the module's header. `mine`: from `this_location`."""
    if location is None:
        return "free"
    if location.host != mine.host or (location.machine and mine.machine and location.machine != mine.machine):
        return "elsewhere"
    if location.boot != mine.boot:
        return "free"
    if location.namespace != mine.namespace:
        return "hidden"
    return "ours" if location.directory == mine.directory else "copied"


def open_locked(log: str) -> int:
    """Open the agent's log for appending and lock it (flock) as long as it is open; return the descriptor.

    `is_locked` sees this lock, so other processes on this machine know that a process of the job lives.
    """
    fd = open_regular(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    for _ in range(_TRIES):
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_PAUSE_S)  # another process holds the lock for a moment, in `is_locked`
        except OSError:
            break  # this file system has no locks: then only the record shows whether processes live
        else:
            break
    return fd


def is_locked(path: str) -> bool:
    """Does another open file hold a lock on this file? False also if it cannot be opened or locked. Raises NotPrivate if
    it is not a regular file."""
    try:
        fd = open_regular(path, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        with contextlib.suppress(OSError):  # nothing was written through it
            os.close(fd)
    return False


def _line(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(200).strip()
    except OSError:
        return ""


def _namespace() -> str:
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""

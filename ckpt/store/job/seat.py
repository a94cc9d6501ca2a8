"""Where a job's controller and ranks are, so that another one knows whether they can live, and where to ask (★).

A seat is part of the controller's record (see `lock.py`): written before the first process is started, taken back
when the last one is known to be dead. A job without a seat has no processes. `compare` says what a seat means to
who reads it; nothing is guessed where the kernel can be asked.

    free        nobody: no seat, or this machine has been started anew since
    ours        this machine, this process namespace, this very directory: `runtime` leads to who lives
    copied      this machine, another directory: the seat came with a copy, its processes are the original's
    hidden      this machine, another process namespace (a container): they cannot be ended from here
    elsewhere   another machine: whether they live cannot be known from here

A directory is known by the device and inode of its `job.json`, which is written once and never replaced. A machine
is known by its name and its id, a start of it by the kernel's boot id.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Mapping
from typing import Any, Final, Literal

from ckpt.store.disk.privacy import open_regular
from ckpt.transport.records import asdict, dataclass

__all__ = ["Relation", "Seat", "compare", "directory_id", "here", "is_occupied", "occupy"]

_TRIES: Final = 100
_PAUSE_S: Final = 0.002

Relation = Literal["free", "ours", "copied", "hidden", "elsewhere"]


@dataclass(frozen=True)
class Seat:
    """Attributes:
    host, machine: name and id of the machine.
    boot: id of its start.
    namespace: of process numbers.
    directory: which directory it is the seat of, see `directory_id`.
    path: where that was.
    runtime: the private directory with the sockets.
    pid: of the controller.
    """

    host: str
    machine: str
    boot: str
    namespace: str
    directory: str
    path: str
    runtime: str
    pid: int

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Seat:
        """The inverse of `to_json`. Raises KeyError, TypeError, ValueError on values of another shape."""
        names = ("host", "machine", "boot", "namespace", "directory", "path", "runtime")
        return cls(pid=int(value["pid"]), **{name: str(value[name]) for name in names})


def here(job_path: str, runtime: str) -> Seat:
    """The seat of this process as the controller of the job in `job_path`."""
    return Seat(
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
    """Tells a job directory from a copy of it; "" when there is no `job.json` (yet)."""
    try:
        info = os.lstat(os.path.join(job_path, "job.json"))
    except OSError:
        return ""
    return f"{info.st_dev}:{info.st_ino}"


def compare(seat: Seat | None, mine: Seat) -> Relation:
    """What a recorded seat means to `mine`, which is `here`; see the module's header."""
    if seat is None:
        return "free"
    if seat.host != mine.host or (seat.machine and mine.machine and seat.machine != mine.machine):
        return "elsewhere"
    if seat.boot != mine.boot:
        return "free"
    if seat.namespace != mine.namespace:
        return "hidden"
    return "ours" if seat.directory == mine.directory else "copied"


def occupy(log: str) -> int:
    """Open the agent's log to append to, and keep it locked for as long as it is open: who asks (`is_occupied`) knows then
    that somebody lives in this directory, on this machine.
    """
    fd = open_regular(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    for _ in range(_TRIES):
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_PAUSE_S)  # somebody is just asking
        except OSError:
            break  # no locks here; who lives is then told by the record alone
        else:
            break
    return fd


def is_occupied(path: str) -> bool:
    """Whether somebody holds this file locked."""
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
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read(200).strip()
    except OSError:
        return ""


def _namespace() -> str:
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""

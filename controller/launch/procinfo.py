"""Facts about processes from Linux: identity that survives the reuse of pids, state, handlers, parent-death signals, and
how many there may be.

A pid alone does not identify a process, since the kernel reuses pids; a pid with its start time (clock ticks since boot)
does. Code that kills by a recorded pid uses `kill_exactly`, except `strays`, which identifies processes otherwise.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36

_libc = ctypes.CDLL(None, use_errno=True)


def start_ticks(pid: int) -> int | None:
    """Start time of `pid` in clock ticks since boot; None when there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            fields = stat.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return int(fields[19])  # field 22 of proc(5), counted after the command name


def state(pid: int) -> str | None:
    """One letter as in proc(5) (R, S, D, T, Z, …); None when there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            return stat.read().rpartition(b")")[2].split()[0].decode()
    except OSError:
        return None


def catches(pid: int, number: int) -> bool:
    """Does the process have a handler for the signal (``SigCgt`` of proc(5))? False when there is no such process."""
    try:
        with open(f"/proc/{pid}/status", "rb") as status:
            caught = next(line for line in status if line.startswith(b"SigCgt:"))
    except (OSError, StopIteration):
        return False
    return bool(int(caught.split()[1], 16) >> (number - 1) & 1)


def is_alive(pid: int, ticks: int | None) -> bool:
    """Does the process with this pid and start time run? A zombie does not. `ticks` None: any start time."""
    now = start_ticks(pid)
    return now is not None and (ticks is None or now == ticks) and state(pid) not in ("Z", "X", None)


def kill_exactly(pid: int, ticks: int, signum: int = signal.SIGKILL, *, group: bool = False) -> bool:
    """Send a signal to the process with this pid and start time; `group`: to its whole process group, if it is the leader.

    Returns whether the process existed. The pidfd is opened before the start time is compared, so that the pid cannot be
    reused in between.
    """
    try:
        fd = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        if start_ticks(pid) != ticks:
            return False
        if group and _group_of(pid) == pid:
            os.killpg(pid, signum)
        else:
            signal.pidfd_send_signal(fd, signum)
        return True
    except ProcessLookupError:
        return False
    finally:
        os.close(fd)


def _group_of(pid: int) -> int | None:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return None


def die_with_parent(parent_pid: int) -> None:
    """Ask the kernel for SIGKILL when the parent dies (prctl(2), PR_SET_PDEATHSIG); if it has died already, exit now."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent_pid:
        os._exit(70)


def become_subreaper() -> None:
    """Make orphaned descendants (image children of a killed rank) children of this process, not of init (prctl(2))."""
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


RANK_BYTES = 6 << 20
"""A process of a rank has more than this for itself (measured: 7.7 MB) before it has loaded the program."""


def most_processes(bytes_each: int = RANK_BYTES, root: str = "/") -> tuple[int, str]:
    """More processes than this can certainly not run on this host at once, and what says so. ``bytes_each``: each needs as
    much memory. ``root``: of the file system that is read."""
    found = [
        (_number(root, f"proc/sys/kernel/{name}"), f"kernel.{name}") for name in ("pid_max", "threads-max")
    ]
    if os.geteuid() != 0:  # not asked of root (setrlimit(2))
        soft = resource.getrlimit(resource.RLIMIT_NPROC)[0]
        found.append((None if soft == resource.RLIM_INFINITY else soft, "ulimit -u"))
    for directory in _control_groups(root):
        found.append((_number(root, f"{directory}/pids.max"), f"/{directory}/pids.max"))
        for name in ("memory.max", "memory.limit_in_bytes"):
            nbytes = _number(root, f"{directory}/{name}")
            found.append((None if nbytes is None else nbytes // bytes_each, f"/{directory}/{name}"))
    sizes = _memory(root)
    found.append((sum(sizes) // bytes_each if sizes else None, "memory and swap"))
    known = [(count, what) for count, what in found if count is not None]
    return min(known, default=(1 << 31, "the type pid_t"))


def _number(root: str, name: str) -> int | None:
    """What the file holds; None: no number ("max"), or there is no such file."""
    try:
        with open(os.path.join(root, name), encoding="ascii") as file:
            return int(file.read())
    except (OSError, ValueError):
        return None


def _memory(root: str) -> list[int]:
    """Bytes of memory and of swap; empty: they are not known."""
    try:
        with open(os.path.join(root, "proc/meminfo"), encoding="ascii") as file:
            rows = [line.split() for line in file]
        return [int(row[1]) << 10 for row in rows if row[0] in ("MemTotal:", "SwapTotal:")]
    except (OSError, ValueError, IndexError):
        return []


def _control_groups(root: str) -> list[str]:
    """Directories of the control groups of this process that may limit it, and of those above them (cgroups(7))."""
    try:
        with open(os.path.join(root, "proc/self/cgroup"), encoding="utf-8") as file:
            rows = [line.rstrip("\n").split(":", 2) for line in file]
    except OSError:
        return []
    found = []
    for _, controllers, path in (row for row in rows if len(row) == 3):
        hierarchies = [each for each in controllers.split(",") if each in ("pids", "memory", "")]
        for hierarchy in hierarchies:
            directory = os.path.join("sys/fs/cgroup", hierarchy, path.lstrip("/")).rstrip("/")
            while directory != "sys/fs":
                found.append(directory)
                directory = os.path.dirname(directory)
    return found

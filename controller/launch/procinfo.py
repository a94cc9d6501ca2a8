"""Facts about processes from Linux: identity that survives the reuse of pids, state, handlers, parent-death signals.

A pid alone does not identify a process, since the kernel reuses pids; a pid with its start time (clock ticks since boot)
does. Code that kills by a recorded pid uses `kill_exactly`, except `strays`, which identifies processes otherwise.
"""

from __future__ import annotations

import ctypes
import os
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

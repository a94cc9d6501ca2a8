"""★ Processes that ranks have started, found again wherever they went: another group, another session, adopted by init.

Two ways, because each has a hole that the other closes:

    children       of a subreaper: a process whose parent has died is its child, whatever group or session it is in.
                   Complete, but only the agent can ask, and only while it lives
    the mark       a word of its own that every agent carries in its environment (`MARK`), and with it all that it
                   forks and all that these execute. Found by whoever may read it, after the agent's death too; not
                   in a process that was given an environment without it

Who has several agents above it (a job inside a rank of another) carries all their words.

Not here: when something is to be ended (`agent`, `local`).
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Collection
from typing import Final

from ckpt.controller.launch.spawning import MARK

_PATIENCE_S: Final = 5.0
_PAUSE_S: Final = 0.002


def mark_of_this_agent() -> str:
    """The word that the agent which runs this has got from `spawning`; empty: it was started otherwise."""
    return os.environ.get(MARK, "").rpartition(":")[2]


def children() -> set[int]:
    """Processes whose parent this process is, zombies included; one that comes or goes meanwhile may be missed."""
    try:
        with open(f"/proc/self/task/{os.getpid()}/children", "rb") as file:
            return set(map(int, file.read().split()))
    except OSError:
        return _children_by_looking()  # a kernel without that file


def _children_by_looking() -> set[int]:
    own, found = os.getpid(), set()
    for name in os.listdir("/proc"):
        if name.isdecimal():
            with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as stat:
                if int(stat.read().rpartition(b")")[2].split()[1]) == own:
                    found.add(int(name))
    return found


def any_child() -> bool:
    """Whether there is a child at all: exact, where `children` may miss one."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def kill_children(but: Collection[int]) -> set[int]:
    """SIGKILL to all children but these, whose numbers are theirs until we reap them. Returns those that we may not kill."""
    refused = set()
    for pid in children() - set(but):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue  # cannot be: only we reap it
        except PermissionError:
            refused.add(pid)
    return refused


def kill_marked(mark: str, patience_s: float = _PATIENCE_S) -> bool:
    """SIGKILL to whatever carries the mark, until nothing is left that can be killed; whether there was anything."""
    if not mark:
        return False
    found = False
    deadline = time.monotonic() + patience_s
    while killed := [pid for pid in _marked(mark.encode()) if _killed(pid, mark.encode())]:
        found = bool(killed)
        if time.monotonic() > deadline:
            break
        time.sleep(_PAUSE_S)  # they take a moment to go, and may have started others
    return found


def reap_adopted() -> None:
    """As the first process of a container we get the orphans of an agent that was killed. Only when that has been reaped."""
    if os.getpid() == 1:
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def _marked(mark: bytes) -> list[int]:
    own = str(os.getpid())
    return [
        int(name) for name in os.listdir("/proc") if name.isdecimal() and name != own and _carries(name, mark)
    ]


def _carries(pid: str, mark: bytes) -> bool:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return mark in file.read()
    except OSError:
        return False  # gone, or another user's


def _killed(pid: int, mark: bytes) -> bool:
    """Opened first and looked at again: the number cannot have become another process's in between."""
    try:
        fd = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        if not _carries(str(pid), mark):
            return False
        signal.pidfd_send_signal(fd, signal.SIGKILL)
        return True
    except OSError:
        return False
    finally:
        os.close(fd)

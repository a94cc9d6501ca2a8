"""Strays: processes that ranks have started, found in whatever process group or session, also when init has adopted them.

There are two ways to find them, since neither finds all:

    children       The agent is a subreaper: a process whose parent has died becomes the agent's child, in whatever group
                   or session. This finds all, but only the agent can ask, and only while it lives
    the mark       Each agent has a word of its own in its environment (`MARK`). All processes that the agent or its ranks
                   fork and execute inherit the word. Any process with permission can look for the word, also after the
                   agent's death. This does not find a process that was started with an environment without the word

A process below several agents (a job inside a rank of another job) has the words of all of them.

Not here: when processes are ended (`agent`, `local`).
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
    """The word that `spawning` has given to this agent; empty: this process is no agent, or was started otherwise."""
    return os.environ.get(MARK, "").rpartition(":")[2]


def children() -> set[int]:
    """Pids of the children of this process, zombies included. A child that starts or ends meanwhile may be missing."""
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
    """Does this process have any child? The answer is exact, while `children` may miss one."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def kill_children(but: Collection[int]) -> set[int]:
    """Send SIGKILL to all children except `but`. Returns the pids of those that this process may not kill.

    The kernel does not reuse the pid of a child before this process has reaped it.
    """
    refused = set()
    for pid in children() - set(but):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue  # cannot happen: only this process reaps the child
        except PermissionError:
            refused.add(pid)
    return refused


def kill_marked(mark: str, patience_s: float = _PATIENCE_S) -> bool:
    """Send SIGKILL to all processes with the mark until none is left that can be killed; returns whether there was one."""
    if not mark:
        return False
    found = False
    deadline = time.monotonic() + patience_s
    while killed := [pid for pid in _marked(mark.encode()) if _killed(pid, mark.encode())]:
        found = bool(killed)
        if time.monotonic() > deadline:
            break
        time.sleep(_PAUSE_S)  # processes need a moment to end, and may have started others
    return found


def is_there(mark: str) -> bool:
    """Is there a process with the mark, as far as this process may look?"""
    return bool(mark) and bool(_marked(mark.encode()))


def reap_adopted() -> None:
    """Reap the orphans of an agent that was killed, if this process is pid 1 of a container, which gets all orphans.

    Call it only after the agent itself has been reaped.
    """
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
        return False  # the process has ended, or belongs to another user


def _killed(pid: int, mark: bytes) -> bool:
    """Kill the process if it has the mark; returns whether it was killed.

    The pidfd is opened before the mark is read, so that the pid cannot be reused in between.
    """
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

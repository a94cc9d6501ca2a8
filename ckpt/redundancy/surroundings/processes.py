"""The program's number of its process: the leader's, in all replicas. (driver)

    os.getpid       asked for once
    os.kill         a signal that the program sends to itself comes to each replica, and not to the leader only

Not here: signals to other processes, which are refused (refusals.py).
"""

from __future__ import annotations

import os
import sys
from typing import Any

from ckpt.redundancy.surroundings.clocks import ASKED, named

__all__ = ["install", "known"]

known: list[int] = []
"""The leader's pid, once the program has asked for it."""


def _pid() -> int:
    if ASKED.ask is None:
        return os.getpid()
    if not known:
        if not ASKED.may_ask():
            return os.getpid()
        known.append(ASKED.ask(os.getpid))
    return known[0]


def _kill(pid: Any, signal: Any, /) -> None:
    own = ASKED.ask is not None and known and pid == known[0]
    os.kill(os.getpid() if own else pid, signal)


_GETPID = named(globals(), _pid, "os", "getpid")
_KILL = named(globals(), _kill, "os", "kill")


def install() -> None:
    """From now on these functions of `os` are the program's."""
    system: Any = sys.modules["os"]
    system.getpid, system.kill = _GETPID, _KILL

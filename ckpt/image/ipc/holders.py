"""Which process has the address that a socket of the program needs again. Asked only when an address is taken at a restart.

Of processes of this user only: the descriptors of others cannot be read (proc(5)).

Not here: waiting for the address (socket_options.py).
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator

from ckpt.transport.records import NamedTuple

__all__ = ["Holder", "holders"]

_LISTEN = "0A"
_PORT_AT, _STATE_AT, _INODE_AT = 1, 3, 9  # columns of /proc/net/tcp


class Holder(NamedTuple):
    """A process that has a listening socket. ``is_ending``: it was killed, and is not gone yet: it may wait for the disk."""

    pid: int
    name: str
    is_ending: bool


def holders(port: int, proc: str = "/proc") -> list[Holder]:
    """The processes that have a TCP socket which listens at this port, at whatever address."""
    wanted = {f"socket:[{inode}]" for inode in _listening(port, proc)}
    return [] if not wanted else [_of(pid, proc) for pid in _processes(proc) if _has(pid, wanted, proc)]


def _listening(port: int, proc: str) -> Iterator[str]:
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(OSError), open(f"{proc}/net/{table}") as lines:
            for line in list(lines)[1:]:
                words = line.split()
                if words[_STATE_AT] == _LISTEN and int(words[_PORT_AT].rpartition(":")[2], 16) == port:
                    yield words[_INODE_AT]


def _processes(proc: str) -> list[int]:
    return sorted(int(name) for name in os.listdir(proc) if name.isdecimal())


def _has(pid: int, wanted: set[str], proc: str) -> bool:
    directory = f"{proc}/{pid}/fd"
    try:
        names = os.listdir(directory)
    except OSError:  # gone, or another user's
        return False
    for name in names:
        with contextlib.suppress(OSError):
            if os.readlink(f"{directory}/{name}") in wanted:
                return True
    return False


def _of(pid: int, proc: str) -> Holder:
    fields: dict[str, str] = {}
    with contextlib.suppress(OSError), open(f"{proc}/{pid}/status") as lines:
        fields = {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}
    pending = [int(fields.get(name, "0"), 16) for name in ("SigPnd", "ShdPnd")]
    killed = any(each >> (signal.SIGKILL - 1) & 1 for each in pending)
    return Holder(pid, fields.get("Name", "?"), killed or fields.get("State", "").startswith(("Z", "X")))

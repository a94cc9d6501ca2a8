"""Can the hosts reach each other by tcp? Asked once, before ranks start: they would wait for each other for ever. (driver)

Every agent has a *door*, a socket that accepts connections and closes them. Told of the others' doors, it knocks at all of
them at once, and reports those that did not answer. With many hosts each knocks at the `MOST` that follow it only.
When a link is down, all hosts are asked to knock once more: what they say together tells which host it is.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import socket
import time
from collections.abc import Mapping

from ckpt.controller.errors import LaunchFailed
from ckpt.transport.wires.addresses import family_of, joined, split
from ckpt.transport.wires.zmqsettings import ports_of

__all__ = ["MOST", "TOKEN", "Door", "errors_of", "knock", "others_of", "twice"]

TOKEN = "token"
"""The file in the job directory by which an agent knows that it sees the controller's."""
MOST = 64
KNOCK_LIMIT_S = 5.0


class Door:
    """A listening socket at this host's address."""

    def __init__(self, address: str, ports: str | None = None) -> None:
        """`ports`: a range, A-B; None: any port. Raises LaunchFailed: none of them is free."""
        for port in ports_of(ports or "0"):
            try:
                family = family_of(address)
                self._socket = socket.create_server((address, int(port)), family=family, backlog=MOST)
                break
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
        else:
            raise LaunchFailed(f"host {socket.gethostname()}: none of the ports {ports} is free at {address}")
        self._socket.setblocking(False)
        self.address = joined(address, self._socket.getsockname()[1])

    def fileno(self) -> int:
        return self._socket.fileno()

    def open(self) -> None:
        """Accept who knocks, and close."""
        with contextlib.suppress(OSError):
            self._socket.accept()[0].close()

    def close(self) -> None:
        self._socket.close()


def others_of(index: int, doors: Mapping[int, str]) -> dict[str, str]:
    """The doors at which host `index` is to knock, by index as text."""
    order = sorted(doors)
    place = order.index(index)
    following = [*order[place + 1 :], *order[:place]]
    return {str(other): doors[other] for other in following[:MOST]}


def knock(doors: Mapping[str, str], limit_s: float = KNOCK_LIMIT_S) -> dict[str, str]:
    """Connect to all doors at once; return the reason for each that could not be reached. Waits `limit_s` at most."""
    return {
        name: f"no answer within {limit_s:g} s" if code is None else os.strerror(code)
        for name, code in errors_of(doors, limit_s).items()
    }


def twice(doors: Mapping[str, str], limit_s: float) -> dict[str, int | None]:
    """As `errors_of`, and at those that did not answer once more: a network that loses packets may lose one at the first."""
    first = errors_of(doors, limit_s)
    again = errors_of({name: doors[name] for name, code in first.items() if code is None}, limit_s)
    return {name: code for name, code in first.items() if code is not None} | again


def errors_of(doors: Mapping[str, str], limit_s: float) -> dict[str, int | None]:
    """As `knock`, with the error numbers; None: no answer."""
    failed: dict[str, int | None] = {}
    waiting: dict[int, tuple[str, socket.socket]] = {}
    poller = select.poll()
    for name, door in doors.items():
        host, port = split(door)
        knocking = socket.socket(family_of(host), socket.SOCK_STREAM)
        knocking.setblocking(False)
        code = knocking.connect_ex((host, int(port)))
        if code in (0, errno.EINPROGRESS):
            waiting[knocking.fileno()] = name, knocking
            poller.register(knocking, select.POLLOUT)
        else:
            failed[name] = code
            knocking.close()
    deadline = time.monotonic() + limit_s
    while waiting and (left_s := deadline - time.monotonic()) > 0:
        for fd, _ in poller.poll(left_s * 1000):
            name, knocking = waiting.pop(fd)
            poller.unregister(fd)
            code = knocking.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if code:
                failed[name] = code
            knocking.close()
    for name, knocking in waiting.values():
        failed[name] = None
        knocking.close()
    return failed

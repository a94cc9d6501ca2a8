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
_AGAIN_S = 0.2  # for the second knock; the first was given more already


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
    """As `errors_of`, and at those that did not answer once more, while the first knock still waits: a network that loses
    packets may lose one at the first."""
    return errors_of(doors, limit_s, _AGAIN_S)


def errors_of(doors: Mapping[str, str], limit_s: float, again_s: float = 0.0) -> dict[str, int | None]:
    """As `knock`, with the error numbers; None: no answer. `again_s`: for so much longer, with a second knock."""
    with contextlib.closing(_Knocks()) as knocks:
        knocks.at(doors)
        knocks.wait(limit_s)
        if again_s and knocks.unanswered:
            knocks.at({name: doors[name] for name in knocks.unanswered})
            knocks.wait(again_s)
        return {**knocks.failed, **dict.fromkeys(knocks.unanswered)}


class _Knocks:
    """Connections that are being made. `failed`: the error of each name for which there was one."""

    def __init__(self) -> None:
        self.failed: dict[str, int | None] = {}
        self.unanswered: dict[str, None] = {}
        self._sockets: dict[int, tuple[str, socket.socket]] = {}
        self._poller = select.poll()

    def at(self, doors: Mapping[str, str]) -> None:
        """Knock at all of them."""
        for name, door in doors.items():
            host, port = split(door)
            knocking = socket.socket(family_of(host), socket.SOCK_STREAM)
            knocking.setblocking(False)
            code = knocking.connect_ex((host, int(port)))
            if code in (0, errno.EINPROGRESS):
                self.unanswered[name] = None
                self._sockets[knocking.fileno()] = name, knocking
                self._poller.register(knocking, select.POLLOUT)
            else:
                knocking.close()
                self._answered(name, code)

    def wait(self, limit_s: float) -> None:
        """Until all have answered, or for so long."""
        deadline = time.monotonic() + limit_s
        left_s = limit_s
        while self.unanswered and left_s > 0:
            left_s = deadline - time.monotonic()
            # in the end once more without waiting: on a busy machine this process may have slept while answers came
            for fd, _ in self._poller.poll(max(left_s, 0.0) * 1000):
                name, knocking = self._sockets.pop(fd)
                self._poller.unregister(fd)
                code = knocking.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                knocking.close()
                self._answered(name, code)

    def _answered(self, name: str, code: int) -> None:
        """A connection counts more than an error of the other knock."""
        self.unanswered.pop(name, None)
        if not code:
            self.failed.pop(name, None)
        else:
            self.failed[name] = code

    def close(self) -> None:
        for _, knocking in self._sockets.values():
            knocking.close()

"""Connections whose both ends are in the program, or whose other end is gone, are made again: over TCP, or over Unix
sockets with names. Called while an image is loaded, right after the pipes and pairs.

One end connects to the other through a socket that listens meanwhile at the address that the program's own server had, so
both ends have the addresses that they had. Where the kernel still keeps one of these for the process that has died, or
another process has it, the ends get others.

The names of this module are part of the image format.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import select
import socket
import struct
import termios
import time
from collections.abc import Iterator
from typing import Any

from ckpt.image.errors import RestoreError
from ckpt.image.ipc import remake, socket_options
from ckpt.image.ipc.remake import End
from ckpt.image.ipc.socket_options import SavedSocket
from ckpt.transport.records import dataclass

__all__ = ["SHUT_READ", "SHUT_WRITE", "Connection", "Side", "make_connections"]

SHUT_READ, SHUT_WRITE = 1, 2
_BIND_S, _CONNECT_S = 0.3, 2.0
"""So long addresses are waited for. The connection of a process that was killed keeps its two addresses for a second
(TIME_WAIT, over the loopback interface). Each of them by itself can be had at once, since ``SO_REUSEADDR`` was set when the
image was taken."""
_ROOM_S = 10.0
_SETTLE_S = 0.2
_RESET = struct.pack("ii", 1, 0)
_LOOPBACK = {socket.AF_INET: "127.0.0.1", socket.AF_INET6: "::1"}


@dataclass(frozen=True, slots=True)
class Side:
    """One end, under all of its numbers. ``content``: what waits to be read there. ``shut``: what it does no more."""

    ends: tuple[End, ...]
    saved: SavedSocket
    content: bytes
    shut: int


@dataclass(frozen=True, slots=True)
class Connection:
    """``client``: the other side of ``server``; None: it is gone. ``is_reset``: it has reset the connection."""

    server: Side
    client: Side | None
    is_reset: bool


def make_connections(connections: list[Connection]) -> None:
    """Raises RestoreError, OSError."""
    for each in connections:
        server, client = _joined(each)
        for made, side in ((server, each.server), (client, each.client)):
            if side is not None:
                socket_options.adjust(made, side.saved)
        _send(client, each.server.content)
        if each.client is None:
            _leave(server, client, each)
        else:
            _send(server, each.client.content)
            _settle(client, each.client.content)
        _settle(server, each.server.content)
        for made, side in ((server, each.server), (client, each.client)):
            if side is not None:
                _shut(made, side.shut)
                remake.put(made.detach(), side.ends)


def _leave(kept: socket.socket, gone: socket.socket, connection: Connection) -> None:
    if connection.is_reset:
        gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        _settle(kept, connection.server.content)
    gone.close()


def _shut(made: socket.socket, shut: int) -> None:
    for bit, how in ((SHUT_WRITE, socket.SHUT_WR), (SHUT_READ, socket.SHUT_RD)):
        if shut & bit:
            with contextlib.suppress(OSError):  # the connection has ended, and with it both
                made.shutdown(how)


def _send(made: socket.socket, content: bytes) -> None:
    """Into the receiver's queue and, where that is full, into the sender's, from which it goes on."""
    view, until_s = memoryview(content), time.monotonic() + _ROOM_S
    made.setblocking(False)
    while view:
        try:
            view = view[made.send(view) :]
        except BlockingIOError:
            if time.monotonic() > until_s:
                raise RestoreError(
                    f"{len(view)} of {len(content)} bytes, which waited in a connection of the program, do not fit "
                    "into a new one"
                ) from None
            select.select([], [made], [], 0.1)
    made.setblocking(True)


def _settle(made: socket.socket, content: bytes) -> None:
    """Wait until all has arrived, or until there is no room for more."""
    until_s = time.monotonic() + _SETTLE_S
    while _waiting_bytes(made) < len(content) and time.monotonic() < until_s:
        time.sleep(0.001)


def _waiting_bytes(made: socket.socket) -> int:
    found: int = struct.unpack("i", fcntl.ioctl(made, termios.FIONREAD, bytes(4)))[0]
    return found


# ---------------------------------------------------------------------- two ends


def _joined(connection: Connection) -> tuple[socket.socket, socket.socket]:
    """Two sockets that are connected, with the addresses of the connection where these can be had."""
    server = connection.server.saved
    client = connection.client.saved if connection.client is not None else None
    if server.family != socket.AF_UNIX:
        return _joined_by_tcp(server, client)
    return _joined_by_path(server, client)


def _joined_by_tcp(server: SavedSocket, client: SavedSocket | None) -> tuple[socket.socket, socket.socket]:
    family = client.family if client is not None else server.family
    with socket.socket(server.family, socket.SOCK_STREAM, server.protocol) as listener:
        socket_options.adjust_early(listener, server)
        is_bound = _bound(listener, server.name)
        listener.listen(8)
        listener.settimeout(_ROOM_S)
        port = listener.getsockname()[1]
        loopback = (_LOOPBACK[socket.AddressFamily(family)], port)
        towards = (server.name if client is None else client.peer) if is_bound else loopback
        made = _connected(family, server.peer if client is None else client.name, towards, client)
        while True:
            accepted, _ = listener.accept()
            if accepted.getpeername()[1] == made.getsockname()[1]:
                return accepted, made
            accepted.close()  # somebody else's, who came to this address just now


def _bound(new: socket.socket, name: Any) -> bool:
    if name is None:
        return False
    for _ in _tries(_BIND_S):
        try:
            new.bind(name)
        except OSError as failure:
            if failure.errno != errno.EADDRINUSE:
                return False
        else:
            return True
    return False


def _connected(family: int, name: Any, towards: Any, saved: SavedSocket | None) -> socket.socket:
    """Raises RestoreError."""
    for _ in _tries(_CONNECT_S):
        new = socket.socket(family, socket.SOCK_STREAM)
        if saved is not None:
            socket_options.adjust_early(new, saved)
        new.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if not _bound(new, name):
            new.close()
            break
        try:
            new.connect(towards)
        except OSError as failure:
            new.close()
            if failure.errno not in (errno.EADDRINUSE, errno.EADDRNOTAVAIL):
                break
        else:
            return new
    new = socket.socket(family, socket.SOCK_STREAM)
    try:
        new.connect(towards)
    except OSError as failure:
        new.close()
        raise RestoreError(
            f"a connection within the program, to {towards!r}, cannot be made again: {failure.strerror}"
        ) from failure
    return new


def _tries(patience_s: float) -> Iterator[None]:
    until_s = time.monotonic() + patience_s
    yield None
    while time.monotonic() < until_s:
        time.sleep(0.02)
        yield None


def _joined_by_path(server: SavedSocket, client: SavedSocket | None) -> tuple[socket.socket, socket.socket]:
    pair: Any = socket.socketpair(socket.AF_UNIX, server.kind)
    if client is None or client.name is None:
        listening, other = server, client
    else:
        listening, other = (server, client) if server.name is not None else (client, server)
    if listening.name is None:
        return pair  # type: ignore[no-any-return]
    with socket.socket(socket.AF_UNIX, server.kind) as listener:
        if not _bound_to_path(listener, listening):
            return pair  # type: ignore[no-any-return]
        try:
            listener.listen(1)
            made = socket.socket(socket.AF_UNIX, server.kind)
            if other is not None and other.name is not None and _bound_to_path(made, other):
                _remove(other.name)
            made.connect(listening.name)
            accepted, _ = listener.accept()
        finally:
            _remove(listening.name)
    for each in pair:
        each.close()
    return (accepted, made) if listening is server else (made, accepted)


def _bound_to_path(new: socket.socket, saved: SavedSocket) -> bool:
    """False: another socket has the name."""
    socket_options.remove_dead(saved.name, saved.kind)
    try:
        new.bind(saved.name)
    except OSError:
        return False
    return True


def _remove(name: Any) -> None:
    """The program's own socket that listens there makes it again."""
    if name[:1] not in ("\0", b"\0"):
        with contextlib.suppress(OSError):
            os.unlink(name)

"""Pipes and pairs of sockets are made again, with what waited in them: called first of all while an image is loaded.

The names of this module are part of the image format.
"""

from __future__ import annotations

import fcntl
import os
import socket
from collections.abc import Sequence
from typing import Any

from ckpt.image.errors import RestoreError
from ckpt.image.files import numbers
from ckpt.transport.records import NamedTuple, dataclass

__all__ = ["End", "Pair", "Pipe", "make_channels", "place", "put", "sockets"]

_STATUS_FLAGS = os.O_NONBLOCK | os.O_DIRECT
_SHUT_READ, _SHUT_WRITE = 1, 2

sockets: dict[int, int] = {}
"""Inode in the image → a descriptor of the new socket: the others are its duplicates."""


class End(NamedTuple):
    """A descriptor. ``flags``: of ``fcntl(F_GETFL)``."""

    number: int
    flags: int
    is_inheritable: bool


@dataclass(frozen=True, slots=True)
class Pipe:
    """A pipe of the program, with both of its sides. ``content``: bytes that wait to be read. ``size_bytes``: its capacity.
    A side without ends has been closed."""

    readers: tuple[End, ...]
    writers: tuple[End, ...]
    content: bytes
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Pair:
    """Two Unix sockets without names. ``contents``: bytes that wait at each side. ``shut``: what the first side does no more
    (see :class:`ckpt.image.ipc.unix_peers.UnixSocket`)."""

    kind: int
    sides: tuple[tuple[End, ...], tuple[End, ...]]
    contents: tuple[bytes, bytes]
    shut: int
    options: tuple[tuple[int, int, int], ...]


def place(fd: int, number: int, *, is_inheritable: bool = False, what: str = "a pipe or socket") -> int:
    """As :func:`ckpt.image.files.numbers.place`; a number that is in use is an error. Raises RestoreError."""
    placed = numbers.place(fd, number, is_inheritable=is_inheritable)
    if placed != number:
        os.close(placed)
        raise RestoreError(f"descriptor {number} of {what} of the program is in use in this process")
    return placed


def make_channels(pipes: list[Pipe], pairs: list[Pair], connections: Sequence[Any] = ()) -> None:
    """``connections``: of :class:`ckpt.image.ipc.connections.Connection`. Raises RestoreError, OSError."""
    sockets.clear()
    for pipe in pipes:
        _make_pipe(pipe)
    for pair in pairs:
        _make_pair(pair)
    if connections:
        from ckpt.image.ipc.connections import make_connections

        make_connections([*connections])


def _make_pipe(pipe: Pipe) -> None:
    reader, writer = os.pipe()
    if fcntl.fcntl(writer, fcntl.F_GETPIPE_SZ) != pipe.size_bytes:
        fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, pipe.size_bytes)
    _write(writer, pipe.content)
    for fd, ends in ((reader, pipe.readers), (writer, pipe.writers)):
        put(fd, ends)


def _write(fd: int, content: bytes) -> None:
    """All of it fits, as it did before; if this kernel packs it less tightly, that is an error and no hang."""
    os.set_blocking(fd, False)
    try:
        if content and os.write(fd, content) != len(content):
            raise BlockingIOError
    except BlockingIOError:
        raise RestoreError(
            f"{len(content)} bytes, which waited in a pipe or socket of the program, do not fit into a new one"
        ) from None
    finally:
        os.set_blocking(fd, True)


def put(fd: int, ends: tuple[End, ...]) -> None:
    """Put the descriptor under all of its numbers; without any, close it."""
    for end in ends:
        copy = place(numbers.duplicate(fd), end.number, is_inheritable=end.is_inheritable)
        fcntl.fcntl(copy, fcntl.F_SETFL, end.flags & _STATUS_FLAGS)
    os.close(fd)


def _make_pair(pair: Pair) -> None:
    sides: Any = socket.socketpair(socket.AF_UNIX, pair.kind)
    for side in sides:
        for level, option, value in pair.options:
            if side.getsockopt(level, option) != value:
                side.setsockopt(level, option, value)
    for side, content in zip(sides, reversed(pair.contents), strict=True):
        _write(side.fileno(), content)
    if pair.shut and pair.sides[1]:
        sides[0].shutdown(
            {_SHUT_READ: socket.SHUT_RD, _SHUT_WRITE: socket.SHUT_WR}.get(pair.shut, socket.SHUT_RDWR)
        )
    for side, ends in zip(sides, pair.sides, strict=True):
        put(side.detach(), ends)

"""Reads from a socket, for an image, its options, address and backlog, and sets them on the new one.

Only options that a program may set and that can be read again. The sizes of the buffers of TCP sockets are left to the
kernel, which tunes them. Memberships in multicast groups cannot be read: join them again in ``ckpt.on_restart``.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import stat
import struct
import time
from collections.abc import Iterable
from typing import Any

from ckpt.image.errors import RestoreError
from ckpt.image.ipc import unix_peers
from ckpt.image.ipc.holders import holders
from ckpt.image.ipc.unix_peers import UnixSocket
from ckpt.transport.records import dataclass

__all__ = [
    "SavedSocket",
    "SocketState",
    "adjust",
    "adjust_early",
    "make",
    "read",
    "read_all",
    "remove_dead",
    "reset_connection",
]

_INTERNET = (socket.AF_INET, socket.AF_INET6)
_CLOSE, _LISTEN = 7, 10  # states in TCP_INFO
_BACKLOG_AT = 8 + 5 * 4  # tcpi_sacked: for a socket that listens, its backlog
_ENDING_S = 10.0
_TIME_WAIT_S = 65
_LINGER = struct.Struct("ii")

_BEFORE_BIND = (
    (socket.SOL_SOCKET, "SO_REUSEADDR"),
    (socket.SOL_SOCKET, "SO_REUSEPORT"),
    (getattr(socket, "IPPROTO_IPV6", 41), "IPV6_V6ONLY"),
)
_OPTIONS = (
    (socket.SOL_SOCKET, "SO_KEEPALIVE"),
    (socket.SOL_SOCKET, "SO_BROADCAST"),
    (socket.SOL_SOCKET, "SO_OOBINLINE"),
    (socket.SOL_SOCKET, "SO_DONTROUTE"),
    (socket.SOL_SOCKET, "SO_PASSCRED"),
    (socket.IPPROTO_TCP, "TCP_NODELAY"),
    (socket.IPPROTO_TCP, "TCP_KEEPIDLE"),
    (socket.IPPROTO_TCP, "TCP_KEEPINTVL"),
    (socket.IPPROTO_TCP, "TCP_KEEPCNT"),
    (socket.IPPROTO_TCP, "TCP_DEFER_ACCEPT"),
    (socket.IPPROTO_IP, "IP_TTL"),
    (socket.IPPROTO_IP, "IP_TOS"),
    (socket.IPPROTO_IP, "IP_MULTICAST_TTL"),
    (socket.IPPROTO_IP, "IP_MULTICAST_LOOP"),
)
_BUFFERS = ((socket.SOL_SOCKET, "SO_RCVBUF"), (socket.SOL_SOCKET, "SO_SNDBUF"))

_Option = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class SavedSocket:
    """One socket in an image, without objects of the program.

    ``inode``: the same for duplicates. ``name``: the address that it is bound to; ``peer``: the one that it is connected to;
    None: there is none. ``backlog``: -1: it does not listen.
    ``is_connection``: it is, or is about to be, connected to a peer.
    """

    inode: int
    family: int
    kind: int
    protocol: int
    is_inheritable: bool
    name: Any
    peer: Any
    backlog: int
    is_connection: bool
    early: tuple[_Option, ...]
    options: tuple[_Option, ...]
    linger: bytes


SocketState = tuple[SavedSocket, UnixSocket | None]


def read_all(descriptors: Iterable[int]) -> dict[int, SocketState]:
    """Those of them that can be read."""
    found = {}
    for fd in descriptors:
        with contextlib.suppress(OSError):
            found[fd] = read(fd)
    return found


def read(fd: int) -> SocketState:
    """Of a socket of this process; and, of a Unix socket, what the kernel tells of it. Raises OSError."""
    with socket.socket(fileno=os.dup(fd)) as duplicate:
        family, kind, protocol = duplicate.family, duplicate.type, duplicate.proto
        name, peer = _address(duplicate.getsockname), _address(duplicate.getpeername)
        listens = bool(duplicate.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))
        unix = unix_peers.look_up(os.fstat(fd).st_ino) if family == socket.AF_UNIX else None
        is_connection, backlog = _connected(duplicate, listens, unix)
        buffers = _BUFFERS if kind == socket.SOCK_DGRAM else ()
        saved = SavedSocket(
            os.fstat(fd).st_ino,
            int(family),
            int(kind),
            protocol,
            os.get_inheritable(fd),
            name,
            peer,
            backlog if listens else -1,
            is_connection,
            _options(duplicate, _BEFORE_BIND),
            (
                *_options(duplicate, _OPTIONS),
                *((a, b, size // 2) for a, b, size in _options(duplicate, buffers)),
            ),
            duplicate.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER.size),
        )
        return saved, unix


def _address(get: Any) -> Any:
    """An address; None: none, an empty name, or port 0."""
    try:
        address = get()
    except OSError:
        return None
    if isinstance(address, tuple) and len(address) >= 2 and address[1] == 0:
        return None
    return address or None


def _connected(duplicate: socket.socket, listens: bool, unix: UnixSocket | None) -> tuple[bool, int]:
    """Is it a connection, and its backlog. ``unix``: of a Unix socket."""
    if unix is not None:
        return unix.peer is not None and not listens and duplicate.type != socket.SOCK_DGRAM, unix.backlog
    if duplicate.type != socket.SOCK_STREAM:
        return False, 0
    try:
        info = duplicate.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _BACKLOG_AT + 4)
    except OSError:  # another protocol than TCP
        return _address(duplicate.getpeername) is not None, 128
    return info[0] not in (_CLOSE, _LISTEN), struct.unpack_from("=I", info, _BACKLOG_AT)[0]


def _options(duplicate: socket.socket, wanted: tuple[tuple[int, str], ...]) -> tuple[_Option, ...]:
    found = []
    for level, name in wanted:
        option = getattr(socket, name, None)
        if option is not None:
            with contextlib.suppress(OSError):  # not of this family or protocol
                found.append((level, option, duplicate.getsockopt(level, option)))
    return tuple(found)


# ---------------------------------------------------------------------- called while loading


def make(saved: SavedSocket) -> int:
    """A new socket, bound, listening or connected as the saved one. Returns its descriptor. Raises RestoreError."""
    if saved.is_connection:
        return reset_connection(saved.family, saved.kind)
    new = socket.socket(saved.family, saved.kind, saved.protocol)
    try:
        _set(new, saved.early)
        reused = new.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR)
        if saved.name is not None:
            _bind(new, saved)
        adjust(new, saved)
        if saved.backlog >= 0:
            new.listen(saved.backlog)
        new.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, reused)
        if saved.peer is not None:
            with contextlib.suppress(OSError):  # nobody is there now: the program hears of it when it sends
                new.connect(saved.peer)
    except BaseException:
        new.close()
        raise
    return new.detach()


def adjust(new: socket.socket, saved: SavedSocket) -> None:
    """Set the options of a socket that is bound or connected."""
    _set(new, saved.options)
    new.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, saved.linger)


def adjust_early(new: socket.socket, saved: SavedSocket) -> None:
    """Set those that count when it is bound; its address may be in use by sockets that do not listen."""
    _set(new, saved.early)
    new.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)


def _set(new: socket.socket, options: tuple[_Option, ...]) -> None:
    for level, option, value in options:
        if new.getsockopt(level, option) != value:
            with contextlib.suppress(OSError):  # what needs a privilege that this process has not
                new.setsockopt(level, option, value)


def _bind(new: socket.socket, saved: SavedSocket) -> None:
    """``SO_REUSEADDR`` until the socket listens: connections of the process that has died may still be in TIME_WAIT, and
    those within the program are there again."""
    if _has_port(saved):
        new.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if saved.family == socket.AF_UNIX:
        remove_dead(saved.name, saved.kind)
    try:
        _bind_when_free(new, saved)
    except OSError as failure:
        remedy = "Restart it where this address exists"
        if failure.errno == errno.EADDRINUSE:
            known = holders(saved.name[1]) if _has_port(saved) else []
            who = ", ".join(f"process {each.pid} ({each.name})" for each in known) or "Another process"
            remedy = f"{who} has it: stop that process, and run `ckpt restart`"
        raise RestoreError(
            f"the socket of the program cannot have its address {saved.name!r} again: {failure.strerror}. {remedy}"
        ) from failure


def _bind_when_free(new: socket.socket, saved: SavedSocket) -> None:
    """Who wrote the image of the process that has died may still have the socket: it ends when the disk has answered it.
    Connections in TIME_WAIT of a socket that did not set ``SO_REUSEADDR`` keep its address for a minute: nobody answers
    there meanwhile."""
    began_s = time.monotonic()
    while True:
        try:
            return new.bind(saved.name)
        except OSError as failure:
            waited_s = time.monotonic() - began_s
            if failure.errno != errno.EADDRINUSE or waited_s > _TIME_WAIT_S:
                raise
            if waited_s > _ENDING_S and not (_has_port(saved) and _is_free_soon(saved)):
                raise
        time.sleep(0.02 if waited_s < _ENDING_S else 0.1)


def _has_port(saved: SavedSocket) -> bool:
    return saved.family in _INTERNET and saved.kind == socket.SOCK_STREAM


def _is_free_soon(saved: SavedSocket) -> bool:
    """Nobody answers there, or who has the address is being ended: on a busy disk that takes longer."""
    return not _answers(saved) or any(each.is_ending for each in holders(saved.name[1]))


def _answers(saved: SavedSocket) -> bool:
    """Does a process listen at the address?"""
    with socket.socket(saved.family, saved.kind) as probe:
        probe.settimeout(1)
        return probe.connect_ex(saved.name) == 0


def remove_dead(path: Any, kind: int) -> None:
    """Remove the file of a Unix socket that no process has any more."""
    if not path or path[:1] in ("\0", b"\0"):
        return
    with contextlib.suppress(OSError):
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            return
        with socket.socket(socket.AF_UNIX, kind) as probe:
            probe.setblocking(False)
            try:
                probe.connect(path)
            except ConnectionRefusedError:
                os.unlink(path)


def reset_connection(family: int, kind: int) -> int:
    """The descriptor of a connection that its peer has reset: reading raises ConnectionResetError once, and gives the end of
    the data from then on; writing raises BrokenPipeError."""
    if family == socket.AF_UNIX:
        ours, peer = socket.socketpair(socket.AF_UNIX, kind)
        ours.send(b"-")
        peer.close()  # with data that it has not read
        return ours.detach()
    for domain, host in (
        (family, "::1" if family == socket.AF_INET6 else "127.0.0.1"),
        (socket.AF_INET, "127.0.0.1"),
    ):
        with contextlib.suppress(OSError), socket.socket(domain, socket.SOCK_STREAM) as listener:
            listener.bind((host, 0))
            listener.listen(1)
            ours = socket.socket(domain, socket.SOCK_STREAM)
            ours.connect(listener.getsockname())
            peer, _ = listener.accept()
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER.pack(1, 0))
            peer.close()
            return ours.detach()
    raise RestoreError(
        "a connection cannot be made on the loopback interface, which this machine seems to lack"
    )

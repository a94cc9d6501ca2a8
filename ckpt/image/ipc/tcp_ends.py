"""Which ends of TCP connections belong together, by what was noted of each while the program stood still. Pure, but for
:func:`reason_against`, :func:`refuse_unfinished` and :func:`is_held`, which ask the kernel.

A connection comes back if this process has both of its ends, or if there is nobody at the other one any more. Bytes that
have been sent and have not arrived are in no queue that could be read: then the image waits. That is the case for
microseconds, or as long as the receiver has no room.

Not here: the record of one end (``frames_connections.c``), and how a connection is made again
(:mod:`ckpt.image.ipc.connections`).
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import select
import socket
import stat
import struct
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from ckpt.image.errors import Refused
from ckpt.image.files.file_notes import FileNote
from ckpt.image.ipc.connections import SHUT_READ, SHUT_WRITE, Connection, Side
from ckpt.image.ipc.library import CONNECTED, are_reset
from ckpt.image.ipc.remake import End
from ckpt.image.ipc.socket_options import SavedSocket
from ckpt.transport.records import NamedTuple

__all__ = [
    "NOT_ACCEPTED",
    "UNFINISHED",
    "TcpEnd",
    "connections_of",
    "end_of",
    "is_held",
    "reason_against",
    "refuse_unfinished",
]

_HEAD = struct.Struct("=BBHIQQ")  # TcpHead in frames.h
_ESTABLISHED, _CLOSE, _CLOSE_WAIT, _LAST_ACK = 1, 7, 8, 9
_HAS_SHUT = (4, 5)  # FIN_WAIT1, FIN_WAIT2: the end has told its peer that it sends no more
_READS_NO_MORE, _HAS_ERROR, _IS_URGENT = select.POLLRDHUP, select.POLLERR, select.POLLPRI
_TABLES = ("tcp", "tcp6")
_LOCAL_AT, _PEER_AT, _STATE_AT, _INODE_AT = 1, 2, 3, 9  # columns of /proc/net/tcp

UNFINISHED = (
    "bytes of a connection within the program, between {} and {}, have not arrived yet, or more than 1 MiB wait there: "
    "checkpoints wait until the program has taken them"
)
NOT_ACCEPTED = (
    "a socket that is connected to {}, where the program itself listens and has not accepted it yet: "
    "checkpoints wait until it has"
)

_NEW_S, _FORGOTTEN_S = 2.0, 60.0

Address = tuple[str, int]
_met_first: dict[tuple[Address, Address], float] = {}
"""When a connection that was not accepted yet was met for the first time, in the seconds of ``time.monotonic``."""


class TcpEnd(NamedTuple):
    """One end: the fields of TcpHead in frames.h, and what waits there. ``state``: of tcp(7), as a number."""

    fds: list[int]
    saved: SavedSocket
    state: int
    is_unread: bool
    events: int
    unacknowledged: int
    given_bytes: int
    received_bytes: int
    content: bytes

    def side(self, ends: tuple[End, ...]) -> Side:
        is_shut = self.state in (*_HAS_SHUT, _CLOSE)
        is_deaf = self.state in (*_HAS_SHUT, _ESTABLISHED) and self.events & _READS_NO_MORE
        return Side(
            ends, self.saved, self.content, (SHUT_WRITE if is_shut else 0) | (SHUT_READ if is_deaf else 0)
        )

    def addresses(self) -> tuple[Address | None, Address | None]:
        return plain(self.saved.name), plain(self.saved.peer)


def end_of(note: FileNote, fds: list[int], saved: SavedSocket) -> TcpEnd | None:
    """None: nothing was noted, so it is no such end."""
    if not note.length or len(note.content) < _HEAD.size:
        return None
    state, is_unread, *numbers = _HEAD.unpack_from(note.content)
    return TcpEnd._make((fds, saved, state, bool(is_unread), *numbers, note.content[_HEAD.size :]))


def plain(address: Any) -> Address | None:
    """Address and port, the same whether a socket of IPv4 or of IPv6 names it."""
    if not isinstance(address, tuple):
        return None
    host = ipaddress.ip_address(address[0].partition("%")[0])
    mapped = host.ipv4_mapped if isinstance(host, ipaddress.IPv6Address) else None
    return str(mapped or host), address[1]


class Found(NamedTuple):
    """``connections``: those that come back. ``reasons``: descriptor → why its connection cannot. ``elsewhere``: ends whose
    other end another process has."""

    connections: list[Connection]
    reasons: dict[int, str]
    elsewhere: list[TcpEnd]


def connections_of(
    ends: Iterable[TcpEnd],
    listening: Collection[int],
    placed: Mapping[int, End],
    is_gone: Any = lambda end: not is_held(end),
) -> Found:
    """``listening``: ports at which the program listens. ``placed``: descriptor → its record. ``is_gone(end)``: has nobody
    the other end of this one any more?"""
    found = Found([], {}, [])
    ends = list(ends)
    by_address = {end.addresses(): end for end in ends if end.saved.peer is not None}
    done: set[int] = set()
    for end in ends:
        name, peer = end.addresses()
        other = by_address.get((peer, name)) if name and peer else None
        if end.fds[0] in done or other is end:
            continue
        both = (end, other) if other is not None else (end,)
        done.update(each.fds[0] for each in both)
        reason = _reason_against(end, other)
        is_alone = end.state == _CLOSE or (other is None and end.state == _CLOSE_WAIT and is_gone(end))
        if other is None and not is_alone:
            if peer and peer[1] in listening and is_gone(end):
                found.reasons.update(dict.fromkeys(end.fds, NOT_ACCEPTED.format(_text(peer))))
            elif end.state == _LAST_ACK:
                found.reasons.update(dict.fromkeys(end.fds, UNFINISHED.format(_text(name), _text(peer))))
            else:
                found.elsewhere.append(end)
        elif reason:
            found.reasons.update(dict.fromkeys((fd for each in both for fd in each.fds), reason))
        else:
            found.connections.append(_connection(end, other, listening, placed))
    return found


def _reason_against(end: TcpEnd, other: TcpEnd | None) -> str:
    both = (end, other) if other is not None else (end,)
    name, peer = map(_text, end.addresses())
    if any(each.is_unread or each.events & _IS_URGENT for each in both):
        return UNFINISHED.format(name, peer)
    is_whole = other is None or (_has_arrived(end, other) and _has_arrived(other, end))
    return "" if is_whole else UNFINISHED.format(name, peer)


def _has_arrived(end: TcpEnd, other: TcpEnd) -> bool:
    """Has the other end got all that this one was given to send, its end included?"""
    is_open = end.state in (_ESTABLISHED, _CLOSE_WAIT) and other.state in (*_HAS_SHUT, _ESTABLISHED)
    is_told = end.state in _HAS_SHUT and other.state == _CLOSE_WAIT
    return (is_open or is_told) and (not end.unacknowledged or end.given_bytes == other.received_bytes)


def _connection(
    end: TcpEnd, other: TcpEnd | None, listening: Collection[int], placed: Mapping[int, End]
) -> Connection:
    def side(each: TcpEnd) -> Side:
        return each.side(tuple(placed[fd] for fd in each.fds))

    if other is None:
        return Connection(side(end), None, is_reset=bool(end.state == _CLOSE and end.events & _HAS_ERROR))
    server, client = sorted(
        (end, other), key=lambda each: (each.saved.name[1] not in listening, each.saved.name[1])
    )
    return Connection(side(server), side(client), is_reset=False)


def _text(address: Address | None) -> str:
    return "a peer that is gone" if address is None else f"{address[0]} port {address[1]}"


# ---------------------------------------------------------------------- asked of the kernel


def is_held(end: TcpEnd, proc: str = "/proc") -> bool:
    """Has a process the other end of this one? Only of a connection within this host."""
    name, peer = end.addresses()
    return name is None or peer is None or _is_in_table(peer, name, proc)


def _is_in_table(name: Address, peer: Address, proc: str) -> bool:
    """Is the connection from ``name`` to ``peer`` one of a process? True also where that cannot be read."""
    was_read = False
    for table in _TABLES:
        with contextlib.suppress(OSError), open(f"{proc}/net/{table}") as lines:
            was_read = True
            for line in list(lines)[1:]:
                words = line.split()
                if words[_INODE_AT] != "0" and (_parsed(words[_LOCAL_AT]), _parsed(words[_PEER_AT])) == (
                    name,
                    peer,
                ):
                    return True
    return not was_read


def _parsed(word: str) -> Address | None:
    """An address as the table has it: words of four bytes, as the processor has them, in hexadecimal."""
    host, _, port = word.partition(":")
    data = b"".join(struct.pack("=I", int(host[i : i + 8], 16)) for i in range(0, len(host), 8))
    return plain((str(ipaddress.ip_address(data)), int(port, 16)))


def reason_against(connected: Any) -> str | None:
    """Why no image can be taken while this socket (``socket.socket``) is connected; None: this process has the other end, or
    nobody has it. Asked while the program runs: :func:`connections_of` decides."""
    peer, name = _names(connected, "getpeername"), _names(connected, "getsockname")
    if name is None or peer is None:
        return None
    to_another = CONNECTED.format(f"{peer[0]} port {peer[1]}")
    if peer[0] != name[0] and not ipaddress.ip_address(peer[0]).is_loopback:
        return to_another
    if _has_other_end(name, peer):
        return None
    if _is_in_table(peer, name, "/proc"):
        return to_another
    if connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] != _ESTABLISHED:
        return None
    return NOT_ACCEPTED.format(_text(peer)) if _listens_at(peer[1]) else to_another


def _is_new(name: Address, peer: Address) -> bool:
    """Was this connection met first a short time ago? If nobody accepts it, the image is tried all the same, and fails by
    its name where an object of the program holds it."""
    now_s = time.monotonic()
    for known, since_s in [*_met_first.items()]:
        if now_s - since_s > _FORGOTTEN_S:
            del _met_first[known]
    return now_s - _met_first.setdefault((name, peer), now_s) < _NEW_S


def _own_sockets() -> Iterator[socket.socket]:
    """A duplicate of each socket of this process, closed behind it."""
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if stat.S_ISSOCK(os.fstat(int(fd)).st_mode):
                with socket.socket(fileno=os.dup(int(fd))) as own:
                    yield own


def _has_other_end(name: Address, peer: Address) -> bool:
    """Has this process the other end of this connection?"""
    return any(
        (_names(own, "getsockname"), _names(own, "getpeername")) == (peer, name) for own in _own_sockets()
    )


def _listens_at(port: int) -> bool:
    """Does this process listen there? Else another one has not accepted the connection yet."""
    names = (
        _names(own, "getsockname")
        for own in _own_sockets()
        if own.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    )
    return any(name is not None and name[1] == port for name in names)


def refuse_unfinished(fds: Iterable[int]) -> None:
    """Raise Refused if one of these descriptors is a connection within the program of which bytes are on their way or cannot
    be read, or which has just not been accepted yet. ``fds``: of ``_frames.unfinished``, when everything had been noted."""
    if are_reset():
        return
    for fd in fds:
        with socket.socket(fileno=os.dup(fd)) as end:
            name, peer = _names(end, "getsockname"), _names(end, "getpeername")
            if name is None or peer is None:
                continue
            if _has_other_end(name, peer):
                raise Refused(UNFINISHED.format(_text(name), _text(peer)))
            if reason_against(end) == NOT_ACCEPTED.format(_text(peer)) and _is_new(name, peer):
                raise Refused(NOT_ACCEPTED.format(_text(peer)))


def _names(connected: Any, method: str) -> Address | None:
    try:
        address = getattr(socket.socket, method)(connected)
    except OSError:
        return None
    return plain(address) if isinstance(address, tuple) and len(address) in (2, 4) else None

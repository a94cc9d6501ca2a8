"""Asks the kernel which Unix sockets belong together (``sock_diag(7)``, over netlink).

No system call on a socket tells its peer if neither has a name.
"""

from __future__ import annotations

import errno
import socket
import struct
import sys

from ckpt.transport.records import NamedTuple

__all__ = ["UnixSocket", "look_up"]

_SOCK_DIAG = 4  # NETLINK_SOCK_DIAG
_BY_FAMILY = 20  # SOCK_DIAG_BY_FAMILY
_REQUEST = 1  # NLM_F_REQUEST
_ERROR = 2  # NLMSG_ERROR
_SHOW = 4 | 16  # UDIAG_SHOW_PEER, UDIAG_SHOW_RQLEN
_PEER, _QUEUES, _SHUTDOWN = 2, 4, 6  # UNIX_DIAG_PEER, UNIX_DIAG_RQLEN, UNIX_DIAG_SHUTDOWN
_ANY = 0xFFFFFFFF
_HEADER = struct.Struct("=IHHII")  # nlmsghdr
_ASKED = struct.Struct("=BBHIIIII")  # unix_diag_req
_FOUND = struct.Struct("=BBBBIII")  # unix_diag_msg
_ATTRIBUTE = struct.Struct("=HH")  # nlattr


class UnixSocket(NamedTuple):
    """A Unix socket as the kernel describes it. ``peer``: inode of the socket at the other end; 0: it has been closed; None:
    there never was one. ``shut``: bit 0: it reads no more; bit 1: it writes no more. ``backlog``: of a socket that
    listens."""

    peer: int | None
    shut: int
    backlog: int


def look_up(inode: int) -> UnixSocket:
    """The Unix socket with this inode number (``st_ino``) in this network namespace. Raises OSError: the kernel does not
    say."""
    request = _ASKED.pack(socket.AF_UNIX, 0, 0, _ANY, inode & _ANY, _SHOW, _ANY, _ANY)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC, _SOCK_DIAG) as netlink:
        netlink.send(_HEADER.pack(_HEADER.size + len(request), _BY_FAMILY, _REQUEST, 1, 0) + request)
        answer = netlink.recv(1 << 16)
    length, kind, *_ = _HEADER.unpack_from(answer)
    if kind == _ERROR:
        code = -struct.unpack_from("=i", answer, _HEADER.size)[0]
        raise OSError(code or errno.EIO, "the kernel does not show its Unix sockets (sock_diag)")
    peer, shut, backlog = None, 0, 0
    at = _HEADER.size + _FOUND.size
    while at + _ATTRIBUTE.size <= length:
        size, name = _ATTRIBUTE.unpack_from(answer, at)
        value = answer[at + _ATTRIBUTE.size : at + size]
        if name == _PEER:
            peer = int.from_bytes(value[:4], sys.byteorder)
        elif name == _QUEUES:
            backlog = int.from_bytes(value[4:8], sys.byteorder)
        elif name == _SHUTDOWN:
            shut = value[0]
        at += (size + 3) & ~3
    return UnixSocket(peer, shut, backlog)

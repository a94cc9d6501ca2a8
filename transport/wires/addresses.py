"""Addresses of wires, `ipc://PATH` and `tcp://HOST:PORT`: their form, and the socket file that a dead process left.

An IPv6 address stands in brackets where a port follows: `tcp://[fd00::1]:5000` (RFC 3986). Without a port it has none.

Not here: the sockets themselves (`zmqwire.py`).
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat

import zmq

from ckpt.transport.errors import AddressError, AddressInUse, WireError

__all__ = ["allow_ipv6", "clear_stale_socket", "family_of", "joined", "path_of", "split"]


def joined(host: str, port: object) -> str:
    """`HOST:PORT`, with an IPv6 address in brackets. The port may be a range, or `*`."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def split(text: str) -> tuple[str, str]:
    """The inverse of `joined`: the host without brackets, and the port. Without a port it is ""."""
    if text.startswith("[") and (end := text.find("]")) > 0:
        return text[1:end], text[end + 1 :].removeprefix(":")
    host, _, port = text.rpartition(":")
    return (host, port) if host else (text, "")


def family_of(host: str) -> socket.AddressFamily:
    """Of sockets that reach this address, or this host by a name (then of IPv4)."""
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def allow_ipv6(zmq_socket: zmq.Socket[bytes], address: str) -> None:
    """Before this socket binds or connects to `address`. Of IPv6 only where it is needed: ZeroMQ would else reach IPv4
    addresses through IPv6, too, which a kernel may not have."""
    if address.startswith("tcp://["):
        zmq_socket.setsockopt(zmq.IPV6, 1)


def path_of(address: str) -> str | None:
    """Return the path of an ipc address, None for tcp. Raises AddressError, whose text says what to use instead."""
    scheme, separator, rest = address.partition("://")
    if not separator or not rest or scheme not in ("ipc", "tcp"):
        raise AddressError(f"{address!r} is no address: use ipc://PATH or tcp://HOST:PORT")
    if scheme == "tcp":
        if not split(rest)[1]:
            raise AddressError(f"{address!r} has no port: use tcp://HOST:PORT")
        return None
    if rest.startswith("@"):
        raise AddressError(f"{address!r}: abstract sockets have no owner and no mode; use a path")
    length = len(os.fsencode(rest))
    if length > zmq.IPC_PATH_MAX_LEN:
        raise AddressError(
            f"the socket path is {length} bytes long, the system allows {zmq.IPC_PATH_MAX_LEN}: {rest}"
        )
    directory = os.path.dirname(rest) or "."
    if not os.path.isdir(directory):
        raise AddressError(f"no such directory for the socket: {directory}")
    return rest


def clear_stale_socket(path: str) -> None:
    """Remove the socket that a killed process left at `path`. Raises AddressInUse if a process listens there.

    Why: ZeroMQ would also remove the socket of a living process and so take over its address.
    """
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise AddressError(f"cannot listen at {path}: something that is not a socket is there")
    probe = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        probe.setblocking(False)
        probe.connect(path)
    except (ConnectionRefusedError, FileNotFoundError):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        return
    except BlockingIOError:
        pass  # the backlog is full: a living process listens there
    except OSError as error:
        raise WireError(f"cannot tell whether somebody listens at {path}: {error}") from error
    finally:
        probe.close()
    raise AddressInUse(98, f"cannot listen at {path}: another process listens there")

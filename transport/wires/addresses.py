"""Addresses of wires, `ipc://PATH` and `tcp://HOST:PORT`: their form, and the socket file that a dead process left.

Not here: the sockets themselves (`zmqwire.py`).
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat

import zmq

from ckpt.transport.errors import AddressError, AddressInUse, WireError

__all__ = ["clear_stale_socket", "path_of"]


def path_of(address: str) -> str | None:
    """Return the path of an ipc address, None for tcp. Raises AddressError, whose text says what to use instead."""
    scheme, separator, rest = address.partition("://")
    if not separator or not rest or scheme not in ("ipc", "tcp"):
        raise AddressError(f"{address!r} is no address: use ipc://PATH or tcp://HOST:PORT")
    if scheme == "tcp":
        if ":" not in rest:
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

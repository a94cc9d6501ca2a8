"""What a wire over ZeroMQ is made with: the job's CURVE keys, bounds, its port, and how many peers fit. (driver)

Not here: the sockets (`zmqwire.py`).
"""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Callable, Iterator

import zmq
from zmq.utils import z85

from ckpt.compat.accelerators import blake2b
from ckpt.transport.errors import AddressError, TooManyConnections
from ckpt.transport.records import dataclass

__all__ = ["CurveKeys", "ZmqLimits", "bind_one", "ports_of", "sockets_of", "too_many"]

_SOCKETS_BY_DEFAULT = 1023
_SOCKETS_OF_A_PEER = 3
"""Over tcp: the peer's own, and both ends of its monitor."""
_SOCKETS_AT_MOST = 65535


@dataclass(frozen=True, slots=True)
class CurveKeys:
    """A job's CURVE key pair in Z85.

    `from_secret` derives the pair from the job's key, so that the pair need not be distributed.
    """

    public: bytes
    secret: bytes

    @classmethod
    def from_secret(cls, job_key: bytes) -> CurveKeys:
        """Derive the pair from the job's key (any length, from the job's key file) by BLAKE2b."""
        raw = blake2b(job_key, digest_size=32, person=b"transport-curve").digest()
        secret = z85.encode(raw)
        return cls(public=zmq.curve_public(secret), secret=secret)

    def __repr__(self) -> str:
        return "CurveKeys(…)"


@dataclass(frozen=True, slots=True)
class ZmqLimits:
    """Bounds of one wire. Frames and bytes."""

    queue_frames: int = 64
    """Frames queued per direction and peer before `send` says False."""
    frame_bytes: int = 16 << 20
    """A part larger than this makes ZeroMQ drop the connection that sent it."""
    copy_below_bytes: int = 64 << 10
    """A first part shorter than this is copied: that costs less than sending it from the caller's memory."""
    ipc_buffer_bytes: int = 1 << 20
    """Kernel buffer of an ipc connection; the usual 208 KiB cost a context switch each time they are full. TCP sizes
    its own buffers."""
    backlog: int = 1024
    reconnect_ms: int = 5
    reconnect_max_ms: int = 500
    renew_after_ms: int = 5_000
    handshake_ms: int = 10_000
    """A handshake that takes longer is started again: damaged bytes may make one side wait for bytes that never come."""
    peers: int = 340
    """To so many peers connections can be open at once; over tcp each needs three of ZeroMQ's sockets."""


def sockets_of(peers: int) -> int:
    """ZeroMQ's MAX_SOCKETS for a wire that may be connected to `peers` peers at once."""
    return min(max(_SOCKETS_BY_DEFAULT, _SOCKETS_OF_A_PEER * (peers + 1)), _SOCKETS_AT_MOST)


def too_many(rank: int, connected: int, error: Exception) -> TooManyConnections:
    """The error for a connection to `rank` for which there is no room any more, beside `connected` others."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return TooManyConnections(
        errno.EMFILE,
        f"no connection to rank {rank}: {error}. {connected} other ranks are connected. This process may open {soft} files "
        f"(`ulimit -n`; here at most {hard}); a connection needs 3 of them, or 5 over tcp",
    )


def ports_of(text: str) -> Iterator[str]:
    """The ports of `*` (any), `5000`, or `5000-5100`: of a range all, from another one in each process on."""
    first, dash, last = text.partition("-")
    if not dash:
        yield text
        return
    low, count = int(first), int(last) - int(first) + 1
    for step in range(count):
        yield str(low + (os.getpid() + step) % count)


def bind_one(bind: Callable[[str], object], address: str) -> None:
    """Bind at `tcp://HOST:PORTS` (see `ports_of`), at the first port that is free. Raises AddressError."""
    host, _, ports = address.rpartition(":")
    for port in ports_of(ports):
        try:
            bind(f"{host}:{port}")
        except zmq.ZMQError as error:
            if error.errno != errno.EADDRINUSE or "-" not in ports:
                raise AddressError(f"cannot listen at {host}:{port}: {error}") from error
        else:
            return
    raise AddressError(f"cannot listen at {host}: none of the ports {ports} is free")

"""Settings of a wire over ZeroMQ: the job's CURVE keys, bounds, ports, how many peers fit, and monitors. (driver)

A monitor says what becomes of the connections of a socket. Its events carry no error number. CONNECTED has the descriptor of
the connection; after DISCONNECTED and CLOSED there is none.

Not here: the sockets (`zmqwire.py`).
"""

from __future__ import annotations

import errno
import os
import resource
import struct
from collections.abc import Callable, Iterator

import zmq
from zmq.utils import z85

from ckpt.compat.accelerators import blake2b
from ckpt.transport.errors import AddressError, TooManyConnections
from ckpt.transport.records import dataclass

__all__ = [
    "CONNECTION",
    "HANDSHAKE_FAILED",
    "CurveKeys",
    "ZmqLimits",
    "bind_one",
    "ports_of",
    "read",
    "sockets_of",
    "too_many",
    "watch",
]

HANDSHAKE_FAILED = (
    zmq.Event.HANDSHAKE_FAILED_NO_DETAIL
    | zmq.Event.HANDSHAKE_FAILED_PROTOCOL
    | zmq.Event.HANDSHAKE_FAILED_AUTH
)
CONNECTION = zmq.Event.CONNECTED | zmq.Event.DISCONNECTED | zmq.Event.CLOSED
_HEAD = struct.Struct("=HI")
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


def watch(
    context: zmq.Context[zmq.Socket[bytes]], watched: zmq.Socket[bytes], events: int, number: int
) -> zmq.Socket[bytes]:
    """A monitor socket that reports these events of `watched`; `number`: another one for each. Raises zmq.ZMQError."""
    monitor = context.socket(zmq.PAIR)
    monitor.rcvhwm = 0  # a full queue would stop ZeroMQ's thread
    address = f"inproc://monitor-{number}"
    try:
        watched.monitor(address, events)
        monitor.connect(address)
    except zmq.ZMQError:
        monitor.close(linger=0)
        raise
    return monitor


def read(monitor: zmq.Socket[bytes]) -> Iterator[tuple[int, int]]:
    """The events that have come, with their values."""
    while monitor.poll(0):
        yield _HEAD.unpack(monitor.recv_multipart()[0])

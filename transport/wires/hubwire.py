"""A star of wires over tcp: a *hub*, which listens, and *spokes*, which dial in and are never dialled. (driver)

Peers of a port usually dial each other (`zmqwire.py`). Hosts of a job dial their controller only: a host may have no address
that the controller can reach. So each spoke has one DEALER socket, whose identity is its rank; the hub has one ROUTER
socket, which knows by the identity over which connection a frame goes to a rank. The hub is rank 0.

ZeroMQ connects again by itself. What a broken connection has lost, or what was sent before a spoke has dialled in, the
endpoints send again. ZeroMQ's descriptor is edge-triggered, and a `send` may use up the edge of a frame that has arrived
meanwhile; so after a `send` the next `receive` is due at once (`deadline_ns`).

A *caller* (`call`) asks the hub one question, gets one answer, and is no peer: `HubWire.on_question`, `HubWire.answer`.

Authentication is as in `zmqwire.py`: both sides have the job's CURVE keys, and so nobody else takes part.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import Any, cast

import zmq

from ckpt.transport.errors import AddressError, TransportError, WireClosed
from ckpt.transport.wires.addresses import allow_ipv6
from ckpt.transport.wires.wire import Frame, ProcessGuard
from ckpt.transport.wires.zmqsettings import CurveKeys, ZmqLimits, bind_one

__all__ = ["CallFailed", "HubWire", "SpokeWire", "call"]

_NOBLOCK = int(zmq.NOBLOCK)
_CALLER = b"c"
_CALL_LINGER_MS = 500
_CALL_BEAT_MS, _CALL_SILENCE_MS = 2_000, 10_000
_CALL_LOOK_MS = 100


class CallFailed(TransportError):
    """The hub was not reached, or the connection to it was lost before it has answered (`was_asked`)."""

    def __init__(self, reason: str, *, was_asked: bool) -> None:
        super().__init__(reason)
        self.was_asked = was_asked


class _StarWire:
    """What both kinds have in common."""

    def __init__(self, kind: int, curve: CurveKeys, limits: ZmqLimits | None) -> None:
        limits = limits or ZmqLimits()
        self._guard = ProcessGuard("this wire")
        self._closed = False
        self._is_due = True
        self._refused = 0
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._socket = self._context.socket(kind)
        self._socket.linger = 0
        self._socket.sndhwm = self._socket.rcvhwm = limits.queue_frames
        self._socket.maxmsgsize = limits.frame_bytes
        self._socket.reconnect_ivl = limits.reconnect_ms
        self._socket.reconnect_ivl_max = limits.reconnect_max_ms
        self._socket.handshake_ivl = limits.handshake_ms
        self._socket.curve_publickey = curve.public
        self._socket.curve_secretkey = curve.secret

    def renew(self, rank: int) -> None:
        """Does nothing: ZeroMQ connects again by itself."""

    def spin(self, end_ns: int) -> None:
        """Let other processes, and ZeroMQ's own threads, run."""
        os.sched_yield()

    def fileno(self) -> int:
        """ZeroMQ's descriptor of the socket."""
        return cast(int, self._socket.get(zmq.FD))

    def deadline_ns(self) -> int | None:
        """At once after a `send`; else None."""
        return 0 if self._is_due else None

    def counters(self) -> dict[str, int]:
        """`frames_unsent`: frames that the socket did not take."""
        return {"frames_unsent": self._refused}

    def close(self) -> None:
        """Close the socket; queued frames are lost. In a forked child this does nothing. Idempotent."""
        if self._closed or not self._guard.mine():
            return
        self._closed = True
        self._socket.close()
        self._context.term()

    def _receive(self) -> list[bytes] | None:
        if not self._socket.poll(0):
            self._is_due = False
            return None
        try:
            return self._socket.recv_multipart(_NOBLOCK)
        except zmq.Again:
            return None

    def _send(self, parts: list[Any]) -> bool:
        if self._closed:
            raise WireClosed("this wire is closed")
        self._guard.check()
        self._is_due = True
        try:
            self._socket.send_multipart(parts, _NOBLOCK)
        except zmq.ZMQError:  # congested, or (of a hub) that spoke has not dialled in
            self._refused += 1
            return False
        return True


class HubWire(_StarWire):
    """The wire of rank 0: listens at `tcp://HOST:PORT` (port `*`: any free one; A-B: one of these). Raises AddressError."""

    def __init__(self, address: str, *, curve: CurveKeys, limits: ZmqLimits | None = None) -> None:
        super().__init__(zmq.ROUTER, curve, limits)
        self.on_question: Callable[[bytes, bytes], None] | None = None
        """Called with a caller's name and its question, where frames are received."""
        self._socket.curve_server = True
        self._socket.router_mandatory = 1
        self._socket.router_handover = 1
        try:
            bind_one(self._socket, address)
        except AddressError:
            self.close()
            raise
        self._address = bytes(self._socket.get(zmq.LAST_ENDPOINT)).rstrip(b"\0").decode()

    @property
    def address(self) -> str:
        """The address that spokes dial."""
        return self._address

    def connect(self, rank: int, address: str) -> None:
        """Does nothing: spokes dial in."""

    def send(self, rank: int, parts: Frame) -> bool:
        """Take one frame. False: congested, or that spoke has not dialled in."""
        return self._send([_identity(rank), *parts])

    def receive(self) -> Frame | None:
        """One frame, or None when there is none."""
        while (parts := self._receive()) is not None:
            if len(parts) < 2:
                continue
            if not parts[0].startswith(_CALLER):
                return parts[1:]
            if self.on_question is not None:
                self.on_question(parts[0], parts[1])
        return None

    def answer(self, caller: bytes, data: bytes) -> None:
        """Answer a question. Nothing, if the caller has gone."""
        self._socket.linger = _CALL_LINGER_MS  # the hub may be closed at once
        self._send([caller, data])


class SpokeWire(_StarWire):
    """The wire of another rank: dials the hub at `address`. Raises AddressError."""

    def __init__(self, rank: int, address: str, *, curve: CurveKeys, limits: ZmqLimits | None = None) -> None:
        super().__init__(zmq.DEALER, curve, limits)
        self._socket.routing_id = _identity(rank)
        self._socket.curve_serverkey = curve.public
        self._socket.immediate = 1
        try:
            allow_ipv6(self._socket, address)
            self._socket.connect(address)
        except zmq.ZMQError as error:
            self.close()
            raise AddressError(f"cannot connect to {address}: {error}") from error

    @property
    def address(self) -> str:
        """None that could be dialled."""
        return ""

    def connect(self, rank: int, address: str) -> None:
        """Does nothing: there is one peer, the hub."""

    def send(self, rank: int, parts: Frame) -> bool:
        """Take one frame for the hub. False: congested or not connected yet."""
        return self._send(list(parts))

    def receive(self) -> Frame | None:
        """One frame, or None when there is none."""
        return self._receive()


def _identity(rank: int) -> bytes:
    return b"s%d" % rank


def call(
    addresses: Sequence[str],
    question: bytes,
    *,
    curve: CurveKeys,
    reach_s: float,
    limit_s: float | None = None,
) -> bytes:
    """Ask the hub at `tcp://HOST:PORT`, at whichever of these addresses it is reached first; returns its answer.

    `reach_s`: so long it may take to reach it; `limit_s`: and so long to answer, None: as long as the connection lasts.
    Raises CallFailed, and TimeoutError for an answer that has not come in time.
    """
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    sockets: list[zmq.Socket[bytes]] = []
    try:
        sockets += [_calling(context, address, curve) for address in addresses]
        reached = _first(sockets, reach_s)
        if reached is None:
            raise CallFailed(
                f"nobody answers at {', '.join(addresses)} within {reach_s:g} s", was_asked=False
            )
        reached.send(question)
        deadline = None if limit_s is None else time.monotonic() + limit_s
        while not reached.poll(_CALL_LOOK_MS):
            if deadline is not None and time.monotonic() > deadline:
                raise TimeoutError(f"no answer within {limit_s:g} s")
            # Without a connection there is nothing to write to (`immediate`), and there will be no other one.
            if not reached.poll(0, zmq.POLLOUT) and not reached.poll(0):
                raise CallFailed("the connection was lost", was_asked=True)
        return reached.recv()
    finally:
        for each in sockets:
            each.close(linger=0)
        context.term()


def _calling(context: zmq.Context[zmq.Socket[bytes]], address: str, curve: CurveKeys) -> zmq.Socket[bytes]:
    calling = context.socket(zmq.DEALER)
    calling.routing_id = _CALLER + os.urandom(12)
    calling.curve_publickey = calling.curve_serverkey = curve.public
    calling.curve_secretkey = curve.secret
    calling.immediate = 1
    calling.reconnect_ivl = -1
    calling.heartbeat_ivl, calling.heartbeat_timeout = _CALL_BEAT_MS, _CALL_SILENCE_MS
    try:
        allow_ipv6(calling, address)
        calling.connect(address)
    except zmq.ZMQError:
        pass  # it is not reached
    return calling


def _first(sockets: Sequence[zmq.Socket[bytes]], limit_s: float) -> zmq.Socket[bytes] | None:
    """The one that is connected first."""
    poller = zmq.Poller()
    for each in sockets:
        poller.register(each, zmq.POLLOUT)
    for found, _ in poller.poll(round(limit_s * 1000)):
        return cast("zmq.Socket[bytes]", found)
    return None

"""A wire over ZeroMQ: one bound PULL socket for arriving frames, one PUSH socket per peer for leaving frames. (driver)

Why these sockets. One PULL socket is one descriptor to wait for, however many peers there are. It does not identify peers,
so it drops no frames of unknown or reconnecting peers, as a ROUTER socket would. The PUSH socket of each peer has its own
queue, so a congested peer does not hold up the others, and the queue for a dead process goes when its socket is closed.
ZeroMQ's own threads do the reading and writing, so data flows while the interpreter computes.

Settings that matter:
    LINGER 0           closing never waits for a dead peer
    IMMEDIATE          nothing is queued before a connection stands; a peer that died takes its queue with it
    SNDHWM, RCVHWM     a slow receiver fills bounded queues and then `send` says False
    MAXMSGSIZE         a foreign process cannot make us allocate without limit
    heartbeats off     they lose messages silently at every outage; TCP alone loses none in a short one

ZeroMQ's descriptor is edge-triggered: it becomes readable for a message only after a poll of the socket that found none.
`receive` keeps track of that (`_armed`): after such a poll, a poll of the descriptor (0.3 µs) takes the place of the
poll of the socket (1.2 µs, and 3 µs for a failing recv). pyzmq's socket classes add a layer of Python to every call;
the hot path calls the base class.

Copies: ZeroMQ copies a frame's first part when it is shorter than `copy_below_bytes`, and the last part when it is shorter
than 4 KiB. A longer last part is sent from the caller's memory (pyzmq keeps the buffer alive until the network has it) and
received as a view of ZeroMQ's buffer. That costs page faults instead of copies unless malloc keeps freed memory, which
`keep_freed_memory` tells it to do. pyzmq keeps buffers alive by a thread, and ends that thread in an `atexit` function.
pyzmq would register this function when the first buffer is sent. The import of `zmq.utils.garbage` here registers it before
the owner of a wire can register a function that waits for messages under way (`atexit` calls the last registered function
first).

Authentication: with `curve`, both sides use the job's CURVE key pair, and the public key is as secret as the job's
key file: a process without that key can neither connect nor accept connections. Every connection has short-term keys of
its own, so a recorded handshake or a recorded frame is worth nothing later. Connections that were turned away are
counted (`handshakes_refused`); ZeroMQ reports them through a monitor socket, whose queue is emptied now and then.

A connection is opened by the first `send` to its peer: a handshake costs both sides together 2 ms of CPU time, and most
ranks of a large job never talk to most others.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import zmq
import zmq.utils.garbage
from zmq import backend

from ckpt.transport.errors import AddressError, AddressInUse, UnknownRank
from ckpt.transport.protocol.state import Buffer
from ckpt.transport.wires import owned
from ckpt.transport.wires.addresses import allow_ipv6, clear_stale_socket, path_of
from ckpt.transport.wires.bufferpool import keep_freed_memory
from ckpt.transport.wires.wire import Frame, ProcessGuard, refuse_closed
from ckpt.transport.wires.zmqsettings import (
    CONNECTION,
    HANDSHAKE_FAILED,
    CurveKeys,
    ZmqLimits,
    bind_one,
    read,
    sockets_of,
    too_many,
    watch,
)

__all__ = ["CurveKeys", "ZmqLimits", "ZmqWire"]

_NOBLOCK = int(zmq.NOBLOCK)
_MORE = int(zmq.NOBLOCK | zmq.SNDMORE)
_POLLIN = int(zmq.POLLIN)
_TRACKED_FROM_BYTES = 4 << 10
"""A last part shorter than this is copied: that costs less than keeping the caller's buffer alive."""
_POLLS_PER_AUDIT = 16
"""The monitor is read after so many polls of the socket that found no frame."""


class ZmqWire:
    """The wire of one rank over `ipc://PATH` or `tcp://HOST:PORT` (port 0 or `*`: any free one)."""

    def __init__(
        self,
        address: str,
        *,
        curve: CurveKeys | None = None,
        limits: ZmqLimits | None = None,
        io_threads: int = 1,
        on_refused: Callable[[int], None] | None = None,
    ) -> None:
        """Listen at `address`. Raises AddressError or AddressInUse; nothing is left behind then.

        `on_refused` is called with the number of connections turned away so far, each time that number has doubled (1, 2,
        4, …), so that a process which keeps trying cannot fill a log. It is called under the port's lock.
        """
        self._on_refused = on_refused
        self._refusals_to_report = 1
        self._limits = limits or ZmqLimits()
        self._curve = curve
        self._guard = ProcessGuard("this wire")
        self._path = path_of(address)
        if self._path is not None:
            owned.note_directory(os.path.dirname(self._path))
        self._senders: dict[int, Callable[..., Any]] = {}
        self._sockets: dict[int, zmq.Socket[bytes]] = {}
        self._addresses: dict[int, str] = {}
        self._connected_ns: dict[int, int] = {}
        self._monitors: dict[int, zmq.Socket[bytes]] = {}
        self._descriptors: dict[int, int] = {}
        self._armed = False
        self.threads = 0
        """Threads of pyzmq that Python knows."""
        self._closed = False
        self._polls_to_audit = _POLLS_PER_AUDIT
        self._handshakes_refused = self._renewed = self._monitors_made = 0
        keep_freed_memory()
        with owned.making() as self._made:
            self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context(io_threads)
            self._context.set(zmq.MAX_SOCKETS, sockets_of(self._limits.peers))
            try:
                self._inbox = self._listen(address)
            except BaseException:
                self._context.destroy(linger=0)
                raise
            self._signal = select.epoll()
        self._fd = int(self._inbox.get(zmq.FD))
        self._signal.register(self._fd, select.EPOLLIN)
        self._signalled: Callable[[float, int], object] = self._signal.poll
        self._poll_items = [(self._inbox, _POLLIN)]
        self._recv: Callable[..., Any] = partial(backend.Socket.recv, self._inbox)

    # -- what a port uses

    @property
    def address(self) -> str:
        """The address at which peers reach this wire."""
        return self._address

    def connect(self, rank: int, address: str) -> None:
        """Send to `rank` at `address` from now on; the first `send` opens the connection. Raises AddressError."""
        self._check_usable()
        path_of(address)
        self._disconnect(rank)
        self._addresses[rank] = address

    def _open(self, rank: int) -> None:
        """Begin to connect. Raises AddressError, TooManyConnections."""
        limits, address = self._limits, self._addresses[rank]
        try:
            peer = self._context.socket(zmq.PUSH)
        except zmq.ZMQError as error:
            raise too_many(rank, len(self._sockets), error) from error
        owned.note(int(peer.get(zmq.FD)))
        peer.linger = 0
        peer.immediate = 1
        peer.sndhwm = limits.queue_frames
        if address.startswith("ipc:"):
            peer.sndbuf = limits.ipc_buffer_bytes
        peer.reconnect_ivl = limits.reconnect_ms
        peer.reconnect_ivl_max = limits.reconnect_max_ms
        peer.handshake_ivl = limits.handshake_ms
        if self._curve is not None:
            peer.curve_serverkey = self._curve.public
            peer.curve_publickey = self._curve.public
            peer.curve_secretkey = self._curve.secret
        if address.startswith("tcp:"):
            try:
                with owned.making():
                    self._monitors[rank] = self._watch(peer, HANDSHAKE_FAILED | CONNECTION)
            except (zmq.ZMQError, OSError) as error:
                self._close(peer, self._monitors.pop(rank, None))
                raise too_many(rank, len(self._sockets), error) from error
        try:
            allow_ipv6(peer, address)
            peer.connect(owned.note_address(address))
            os.close(os.dup(self._fd))  # ZeroMQ's thread needs a descriptor, and would say nothing
        except (zmq.ZMQError, OSError) as error:
            self._close(peer, self._monitors.pop(rank, None))
            if error.errno == errno.EMFILE:
                raise too_many(rank, len(self._sockets), error) from error
            raise AddressError(f"cannot connect to {address}: {error}") from error
        self._sockets[rank] = peer
        self._connected_ns[rank] = time.monotonic_ns()
        self._senders[rank] = partial(backend.Socket.send, peer)

    def listen_also(self, address: str) -> str:
        """Listen at `address`, too (its port may be a range, A-B); return it with its port. Raises AddressError."""
        self._check_usable()
        bind_one(self._inbox, address)
        return owned.note_address(bytes(self._inbox.get(zmq.LAST_ENDPOINT)).rstrip(b"\0").decode())

    def descriptor(self, rank: int) -> int | None:
        """The descriptor of the tcp connection over which frames to `rank` leave; None: there is none now. It is ZeroMQ's,
        whose thread may close it at any moment: who reads of it has to see whose it is."""
        if rank in self._monitors:
            self._read_monitor(rank)
        return self._descriptors.get(rank)

    def renew(self, rank: int) -> None:
        """Close the connection and open it again, unless it was opened within the last `renew_after_ms`: its handshake may
        still be under way over a slow network.

        Why: after damage to a length field ZeroMQ waits for ever for bytes that never come.
        """
        if (
            rank in self._sockets
            and time.monotonic_ns() - self._connected_ns[rank] >= self._limits.renew_after_ms * 1_000_000
        ):
            self._reconnect(rank)

    def send(self, rank: int, parts: Frame) -> bool:
        """Take one frame. False: congested or not connected yet. Raises AddressError, TooManyConnections."""
        try:
            send = self._senders[rank]
        except KeyError:
            self._check_usable()
            if rank not in self._addresses:
                raise UnknownRank(f"rank {rank} was never connected") from None
            self._open(rank)
            return False
        head = parts[0]
        copied = len(head) < self._limits.copy_below_bytes
        if not self.threads and (not copied or (len(parts) > 1 and len(parts[-1]) >= _TRACKED_FROM_BYTES)):
            self.threads = 1
            with owned.making():  # pyzmq starts its thread that keeps buffers alive with the first buffer
                is_taken = self.send(rank, parts)
            self.threads = int(is_taken)
            return is_taken
        try:
            if len(parts) == 1:
                send(head, _NOBLOCK, copied)
            else:
                # When ZeroMQ has taken the first part it takes the others too: its queue bounds count whole messages.
                send(head, _MORE, copied)
                for part in parts[1:-1]:
                    send(part, _MORE, True)
                last = parts[-1]
                send(last, _NOBLOCK, len(last) < _TRACKED_FROM_BYTES)
        except zmq.Again:
            return False
        return True

    def receive(self) -> Frame | None:
        """One frame, or None when there is none."""
        if self._armed:
            if not self._signalled(0, 1):
                return None
        elif not backend.zmq_poll(self._poll_items, 0):
            self._armed = True
            self._polls_to_audit -= 1
            if not self._polls_to_audit:
                self._audit()
            return None
        return self.take()

    def take(self) -> Frame | None:
        """As `receive`, where the descriptor is known to be readable."""
        try:
            head = self._recv(_NOBLOCK, False)
        except zmq.Again:  # the descriptor is also readable for events of connections
            self._armed = True
            return None
        self._armed = False
        if not head.more:
            return (head.bytes,)
        parts: list[Buffer] = [head.bytes]
        part = head
        while part.more:
            part = self._recv(_NOBLOCK, False)
            parts.append(part.buffer.toreadonly())
        return parts

    def spin(self, end_ns: int) -> None:
        """Let other processes, and ZeroMQ's own threads, run."""
        os.sched_yield()

    def fileno(self) -> int:
        """ZeroMQ's descriptor of the PULL socket."""
        return self._fd

    def deadline_ns(self) -> int | None:
        """None: this wire has no timer."""
        return None

    def counters(self) -> dict[str, int]:
        """`handshakes_refused`: connections of processes without the job's key; `connections_renewed`: own, reopened."""
        if not self._closed:
            self._audit()
        return {"handshakes_refused": self._handshakes_refused, "connections_renewed": self._renewed}

    def close(self) -> None:
        """Close all sockets; queued frames are lost. In a forked child this does nothing. Idempotent."""
        if self._closed or not self._guard.mine():
            return
        self._closed = self._armed = True
        owned.forget(*self._made)
        self._signal.close()
        self._signalled = refuse_closed
        for rank in list(self._sockets):
            self._disconnect(rank)
        self._inbox.disable_monitor()
        self._monitor.close(linger=0)
        self._inbox.close(linger=0)
        self._context.term()
        if self._path is not None:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._path)

    # -- inside

    def _watch(self, watched: zmq.Socket[bytes], events: int = HANDSHAKE_FAILED) -> zmq.Socket[bytes]:
        # A new name each time: ZeroMQ's own thread frees the name of a closed socket only some time later.
        self._monitors_made += 1
        return watch(self._context, watched, events, self._monitors_made)

    def _reconnect(self, rank: int) -> None:
        self._renewed += 1
        self._disconnect(rank)
        self._open(rank)

    def _disconnect(self, rank: int) -> None:
        self._senders.pop(rank, None)
        self._descriptors.pop(rank, None)
        peer, monitor = self._sockets.pop(rank, None), self._monitors.pop(rank, None)
        if peer is not None:
            self._close(peer, monitor)

    def _close(self, peer: zmq.Socket[bytes], monitor: zmq.Socket[bytes] | None) -> None:
        if monitor is not None:
            owned.forget(int(monitor.get(zmq.FD)))
            peer.disable_monitor()
            monitor.close(linger=0)
        owned.forget(int(peer.get(zmq.FD)))
        peer.close(linger=0)

    def _audit(self) -> None:
        """Count the failed handshakes, and connect again where a handshake of this wire was damaged on the way.

        Why again: after a violation of its protocol ZeroMQ gives a connection up for good.
        """
        self._polls_to_audit = _POLLS_PER_AUDIT
        while self._monitor.poll(0):
            self._monitor.recv_multipart()
            self._handshakes_refused += 1
        for rank in list(self._monitors):
            self._read_monitor(rank)
        if self._handshakes_refused >= self._refusals_to_report:
            self._refusals_to_report = 2 * self._handshakes_refused
            if self._on_refused is not None:
                self._on_refused(self._handshakes_refused)

    def _read_monitor(self, rank: int) -> None:
        for event, value in read(self._monitors[rank]):
            if event == zmq.Event.CONNECTED:
                self._descriptors[rank] = value
            elif event & CONNECTION:
                self._descriptors.pop(rank, None)
            else:
                self._reconnect(rank)
                return

    def _check_usable(self) -> None:
        if self._closed:
            refuse_closed()
        self._guard.check()

    def _listen(self, address: str) -> zmq.Socket[bytes]:
        limits = self._limits
        inbox = self._context.socket(zmq.PULL)
        try:
            inbox.linger = 0
            inbox.handshake_ivl = limits.handshake_ms
            inbox.rcvhwm = limits.queue_frames
            inbox.backlog = limits.backlog
            inbox.maxmsgsize = limits.frame_bytes
            if self._path is not None:
                inbox.rcvbuf = limits.ipc_buffer_bytes
            if self._curve is not None:
                inbox.curve_server = True
                inbox.curve_publickey = self._curve.public
                inbox.curve_secretkey = self._curve.secret
            if self._path is not None:
                clear_stale_socket(self._path)
            self._monitor = self._watch(inbox)
            allow_ipv6(inbox, address)
            inbox.bind(address)
            self._address = owned.note_address(bytes(inbox.get(zmq.LAST_ENDPOINT)).rstrip(b"\0").decode())
        except zmq.ZMQError as error:
            inbox.close(linger=0)
            if error.errno == zmq.EADDRINUSE:
                raise AddressInUse(
                    error.errno, f"cannot listen at {address}: the address is in use"
                ) from error
            raise AddressError(f"cannot listen at {address}: {error}") from error
        except BaseException:
            inbox.close(linger=0)
            raise
        return inbox

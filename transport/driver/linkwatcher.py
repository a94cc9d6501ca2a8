"""Looks after the links to other hosts that are late: reads TCP_INFO, and connects once where nothing is answered. (driver)

Decisions are `LinkWatch`'s. Nothing is done while no link is late. All methods are called under the port's lock, and never
block: a raw connect goes on while the port does other things.

The descriptor of a connection belongs to ZeroMQ, whose thread may have closed it: what is read counts only if the descriptor
is connected to the peer's address. Nothing is ever sent over a raw connection.
"""

from __future__ import annotations

import contextlib
import errno
import select
import socket
import struct
import sys
import time
from collections.abc import Callable

from ckpt.transport.protocol.events import Event
from ckpt.transport.protocol.watch import GIVE_UP_NS, LinkWatch, TcpState
from ckpt.transport.records import dataclass
from ckpt.transport.wires import owned

__all__ = ["LinkWatcher", "tcp_counts", "tcp_state"]

PROBE_NS = 800_000_000
"""So long a raw connect may take: then it is ETIMEDOUT."""
_POLL_NS = 20_000_000
_ESTABLISHED = 1
_TCP_INFO = struct.Struct("=8B24I")
_PROBES, _STATE, _RETRANSMITS = 3, 0, 2
_SENT_AT = 136
_LAST_ACK_MS, _RTT_US, _ALL_RETRANSMITS = 8 + 12, 8 + 15, 8 + 23


def _info(descriptor: int, peer: tuple[str, int], nbytes: int) -> bytes | None:
    try:
        connection = socket.socket(fileno=descriptor)
    except OSError:
        return None
    try:
        if connection.getpeername() != peer:
            return None
        data = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, nbytes)
    except OSError:
        return None
    finally:
        connection.detach()  # it is ZeroMQ's
    return data if len(data) == nbytes else None


def tcp_state(descriptor: int, peer: tuple[str, int]) -> TcpState | None:
    """What the kernel says of this connection; None: it is none to `peer`, or not established."""
    data = _info(descriptor, peer, _TCP_INFO.size)
    if data is None:
        return None
    values = _TCP_INFO.unpack(data)
    if values[_STATE] != _ESTABLISHED:
        return None
    return TcpState(
        retransmits=values[_RETRANSMITS],
        probes=values[_PROBES],
        silent_ns=values[_LAST_ACK_MS] * 1_000_000,
        rtt_ns=values[_RTT_US] * 1000,
        retransmits_in_all=values[_ALL_RETRANSMITS],
    )


def tcp_counts(descriptor: int, peer: tuple[str, int]) -> tuple[int, int, int] | None:
    """Smoothed round trip (ns), segments sent again, and segments sent, of this connection; None: it is none to `peer`, or
    the kernel does not count segments."""
    data = _info(descriptor, peer, _SENT_AT + 4)
    if data is None:
        return None
    values = _TCP_INFO.unpack_from(data)
    return (
        values[_RTT_US] * 1000,
        values[_ALL_RETRANSMITS],
        int.from_bytes(data[_SENT_AT : _SENT_AT + 4], sys.byteorder),
    )


@dataclass(slots=True)
class _Probe:
    socket: socket.socket
    until_ns: int


class LinkWatcher:
    """Looks after the links of one rank to other hosts. `descriptor(rank)`: of the connection to a rank, if there is one
    (`ZmqWire.descriptor`). `on_event` gets LinkDown and LinkUp."""

    def __init__(
        self,
        descriptor: Callable[[int], int | None],
        *,
        give_up_ns: int = GIVE_UP_NS,
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self.on_event: Callable[[Event], None] = lambda event: None
        self._descriptor = descriptor
        self._clock = clock
        self._watch = LinkWatch(give_up_ns)
        self._peers: dict[int, tuple[str, int]] = {}
        self._probes: dict[int, _Probe] = {}

    def forget(self, rank: int, address: str | None) -> None:
        """`rank` has this address (tcp://HOST:PORT) from now on; None: it is on this host."""
        self._watch.forget(rank)
        self._end_probe(rank)
        self._peers.pop(rank, None)
        if address is not None:
            host, _, port = address.removeprefix("tcp://").rpartition(":")
            self._peers[rank] = host, int(port)

    def late(self, rank: int, silent_ns: int) -> None:
        """The link to `rank` is late."""
        if rank in self._peers:
            self._watch.late(rank, silent_ns, self._clock())

    def attend(self) -> int | None:
        """Do what is due; returns when to come again, or None."""
        deadline_ns = self._watch.deadline_ns()
        if deadline_ns is None and not self._probes:
            return None
        now_ns = self._clock()
        for rank in list(self._probes):
            self._look_at_probe(rank, now_ns)
        for rank in self._watch.due(now_ns):
            descriptor = self._descriptor(rank)
            tcp = None if descriptor is None else tcp_state(descriptor, self._peers[rank])
            what = self._watch.looked(rank, tcp, now_ns)
            if isinstance(what, Event):
                self.on_event(what)
            elif what:
                self._begin_probe(rank, now_ns)
        times = [now_ns + _POLL_NS] if self._probes else []
        deadline_ns = self._watch.deadline_ns()
        return min(times if deadline_ns is None else [*times, deadline_ns], default=None)

    def counts(self) -> dict[int, tuple[int, int, int]]:
        """What the kernel has counted of each connection (`tcp_counts`), by rank."""
        found = {}
        for rank, peer in self._peers.items():
            descriptor = self._descriptor(rank)
            counts = None if descriptor is None else tcp_counts(descriptor, peer)
            if counts is not None:
                found[rank] = counts
        return found

    def close(self) -> None:
        """End what is under way."""
        for rank in list(self._probes):
            self._end_probe(rank)

    def _begin_probe(self, rank: int, now_ns: int) -> None:
        try:
            probing = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        except OSError:  # no descriptor is left: that says nothing of the peer
            self._probed(rank, None, now_ns)
            return
        owned.note(probing.fileno())
        self._probes[rank] = _Probe(probing, now_ns + PROBE_NS)
        number = probing.connect_ex(self._peers[rank])
        if number != errno.EINPROGRESS:
            self._probed(rank, number or None, now_ns)

    def _look_at_probe(self, rank: int, now_ns: int) -> None:
        probe = self._probes[rank]
        poller = select.poll()
        poller.register(probe.socket, select.POLLOUT)
        if poller.poll(0):
            number = probe.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            self._probed(rank, number or None, now_ns)
        elif now_ns >= probe.until_ns:
            self._probed(rank, errno.ETIMEDOUT, now_ns)

    def _probed(self, rank: int, number: int | None, now_ns: int) -> None:
        self._end_probe(rank)
        has_route = number is None or _has_route(self._peers[rank])
        event = self._watch.probed(rank, number, now_ns, has_route=has_route)
        if event is not None:
            self.on_event(event)

    def _end_probe(self, rank: int) -> None:
        probe = self._probes.pop(rank, None)
        if probe is not None:
            owned.forget(probe.socket.fileno())
            probe.socket.close()


def _has_route(peer: tuple[str, int]) -> bool:
    """Does the own host know a way? Asks its table only: connecting a datagram socket sends nothing."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        asking.connect(peer)
        return True
    return False

"""A wire between the processes of one host: frames in rings of shared memory, beside an inner wire. (driver)

`RingWire` stands on any wire. For each peer that it sends to it makes one ring (`ring.py`) and offers it to the peer.
Frames go into that ring, without a system call unless the peer sleeps. The first ones are in it before the peer has taken
it: so between ranks with rings the inner wire needs no connection, whose handshake would take longer than many messages. A
peer that has not taken the ring after EARLY_NS, and one that has none, gets its frames by the inner wire: a ring is a
shorter way and nothing else. A frame in a ring that nobody reads, or whose writer died, counts as lost, and the endpoint
above sends it again.

A process takes a ring only from the bell (`bell.py`) that `connect` has named for the sender's rank, if it has named one.
So a zombie's rings are not those of its successor. A new ring of a rank takes the place of its former one, whose writer
sees that nobody reads any more and uses the inner wire.

    out   none ──send──▶ offered ──the peer reads──▶ ready       in an offered one: for EARLY_NS
            ▲               │                          │
            └── later ──────┴── no answer, damaged, closed, `renew`: the inner wire, counted and reported

Sleeping.  A port calls `deadline_ns` before it sleeps: there all rings are marked ASLEEP (`ring.py` says why no
wake-up is lost). The descriptor to sleep on is an epoll set of the inner wire's descriptor and the bell.

In a forked process the rings are not there (`_ring.c`), and `close` does nothing.

What does not belong here: the layout of a ring, repair of losses, how long to wait before sleeping.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ckpt.transport.errors import WireError
from ckpt.transport.records import dataclass
from ckpt.transport.rings import ring
from ckpt.transport.rings.bell import Bell, Offer, bell_of
from ckpt.transport.wires.wire import Frame, ProcessGuard, Wire

if TYPE_CHECKING:
    from ckpt.transport.rings._ring import Inbox, Reader, Writer

ANSWER_NS: Final = 10_000_000_000
"""An offer that is not taken for so long is given up."""
EARLY_NS: Final = 200_000_000
"""For so long after a ring was offered frames are put into it, whether the peer has taken it or not. If they are lost there,
the endpoint above sends them again, and not before."""
RETRY_NS: Final = 1_000_000_000
RETRY_LONGEST_NS: Final = 300_000_000_000
LOOKS_PER_BELL: Final = 64
"""A process that never sleeps looks at its bell after so many looks that found no frame."""

_SEPARATOR: Final = "#ring="


@dataclass(slots=True)
class Peer:
    """A peer as a target."""

    path: str | None
    """Of its bell; None: it has none."""
    writer: Writer | None = None
    offered_ns: int = 0
    early_until_ns: int = 0
    """Until then frames are put into a ring that the peer has not taken yet."""
    retry_ns: int = 0
    wait_ns: int = RETRY_NS


class RingWire:
    """Any wire, with rings of shared memory to the peers on this host. See the module."""

    def __init__(
        self,
        inner: Wire,
        rank: int,
        key: bytes,
        *,
        capacity: int = ring.RING_BYTES,
        pause_ns: int = 0,
        on_fallback: Callable[[int | None, str], None] | None = None,
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        """`key`: of the job. `pause_ns`: `spin` yields the core after so long a look. `on_fallback(peer, reason)` is
        called, under the port's lock, when frames to (or from) a peer take the inner wire again, or (peer None) all frames
        will; for each peer and reason once.

        Raises nothing when rings cannot be had: then this is the inner wire.
        """
        self._inner = inner
        self._rank = rank
        self._capacity = capacity
        self._pause_ns = pause_ns
        self._on_fallback = on_fallback
        self._clock = clock
        self._guard = ProcessGuard("this wire")
        self._peers: dict[int, Peer] = {}
        self._ready: dict[int, Callable[[Frame], int]] = {}
        self.writers: dict[int, Writer] = {}
        """The rings that peers read, by rank: for `ckpt.transport.driver.port.Port.use_rings`."""
        self.on_board: Callable[[int, int, int], None] | None = None
        """Called with rank, number of the group and descriptor of an area of a board, which is closed afterwards."""
        self.unread: list[Frame] = []
        """Frames that were taken out of a ring and are to be received next."""
        self._readers: dict[str, tuple[int, Reader]] = {}
        self._reported: set[tuple[int | None, str]] = set()
        self._armed = self._closed = False
        self._looks = 0
        self._passed = [0, 0]
        self._counts = dict.fromkeys(
            ("ring_bells", "ring_full", "ring_fallbacks", "ring_damaged", "ring_offers_refused"), 0
        )
        self._inner_send, self._inner_receive = inner.send, inner.receive
        self._inbox: Inbox
        self._ring_receive: Callable[[], Frame | None]
        self._bell: Bell | None = None
        self._why_not = "" if ring.available() else "the C module of rings is not built"
        if not self._why_not:
            try:
                self._bell = Bell(inner.address, inner.fileno(), key)
            except (OSError, WireError) as failure:
                self._why_not = str(failure)
        if self._bell is not None:
            from ckpt.transport.rings._ring import Inbox

            self._inbox = Inbox()
            self._ring_receive = self._inbox.receive

    @property
    def inbox(self) -> Inbox | None:
        """The rings that this process reads; None: it has no bell."""
        return None if self._bell is None else self._inbox

    @property
    def pause_ns(self) -> int:
        """`spin` yields the core after so long a look."""
        return self._pause_ns

    # -- what a port uses

    @property
    def address(self) -> str:
        """The inner wire's address, and whether this process has a bell."""
        return self._inner.address if self._bell is None else f"{self._inner.address}{_SEPARATOR}1"

    def connect(self, rank: int, address: str) -> None:
        """As the inner wire. Rings to and from the rank's former address are closed."""
        if self._why_not:
            self._report(None, self._why_not)
        address, _, has_bell = address.partition(_SEPARATOR)
        self._inner.connect(rank, address)
        bell = bell_of(address) if has_bell and self._bell is not None else None
        former = self._peers.get(rank)
        if former is not None and former.path == bell:
            return
        if former is not None:
            self._close_writer(rank, former)
        for from_path in [at for at, (source, _) in self._readers.items() if source == rank and at != bell]:
            self._close_reader(from_path)
        self._peers[rank] = Peer(bell)

    def renew(self, rank: int) -> None:
        """As the inner wire; a ring is given up."""
        peer = self._peers.get(rank)
        if peer is not None and peer.writer is not None:
            self._fall_back(rank, peer, "nothing comes back from the peer")
        self._inner.renew(rank)

    def send(self, rank: int, parts: Frame) -> bool:
        """As the inner wire."""
        write = self._ready.get(rank)
        if write is None:
            return self._send_below(rank, parts)
        code = write(parts)
        if code == ring.TAKEN:
            return True
        if code == ring.TAKEN_ASLEEP:
            self.wake(rank)
            return True
        if code == ring.FULL:
            self._counts["ring_full"] += 1
            return False
        if code == ring.BROKEN:
            self._on_broken(rank, self._peers[rank])
        return self._inner_send(rank, parts)

    def receive(self) -> Frame | None:
        """As the inner wire: the rings first, each in turn."""
        if self._bell is None:
            return self._inner_receive()
        if self.unread:
            return self.unread.pop(0)
        frame = self._ring_receive()
        if frame is not None:
            return frame
        self._looks += 1
        if self._armed or self._looks >= LOOKS_PER_BELL:
            self._attend()
            frame = self._ring_receive()  # a ring that has just been taken may have frames
            if frame is not None:
                return frame
        return self._inner_receive()

    def copy_shared(self, rank: int, own: bytes, badge: bytes, address: int, into: memoryview) -> bool:
        """Copy a payload of a rank, which may help with it, if this process reads a ring of that rank (`ring_share.c`).
        `own`, `badge`: of this process and of the rank's. False: there is no such ring, or it cannot be."""
        for source, reader in self._readers.values():
            if source == rank and not reader.damaged:
                return reader.copy(own, badge, address, into)
        return False

    def spin(self, end_ns: int) -> None:
        """Look at the rings, and yield the core now and then; without rings as the inner wire."""
        if self._bell is None or not self._inbox.count:
            self._inner.spin(end_ns)
        else:
            self._inbox.spin(end_ns, self._pause_ns)

    def fileno(self) -> int:
        """A set of the inner wire's descriptor and the bell."""
        return self._inner.fileno() if self._bell is None else self._bell.fd

    def deadline_ns(self) -> int | None:
        """As the inner wire; 0 when a frame is in a ring. Afterwards a writer rings the bell."""
        if self._bell is None:
            return self._inner.deadline_ns()
        self._armed = True
        return self._inner.deadline_ns() if self._inbox.arm() and not self.unread else 0

    def counters(self) -> dict[str, int]:
        """The inner wire's counters, and `ring_`: frames sent and received; peers written to and read from that way;
        bells rung; frames refused since a ring was full; fallbacks to the inner wire; damaged rings; offers
        refused; how often the core was yielded, and another process had it then."""
        writers = [peer.writer for peer in self._peers.values() if peer.writer is not None]
        readers = [reader for _, reader in self._readers.values()]
        return (
            self._inner.counters()
            | self._counts
            | {
                "ring_sent": self._passed[0] + sum(writer.records for writer in writers),
                "ring_received": self._passed[1] + sum(reader.records for reader in readers),
                "ring_peers_out": len(self._ready),
                "ring_peers_in": len(readers),
                "ring_yields": self._inbox.yields if self._bell is not None else 0,
                "ring_yields_long": self._inbox.crowded if self._bell is not None else 0,
            }
        )

    def close(self) -> None:
        """Close the rings, the bell and the inner wire. In a forked child this does nothing. Idempotent."""
        if self._closed or not self._guard.mine():
            return
        self._closed = True
        for rank, peer in self._peers.items():
            self._close_writer(rank, peer)
        for path in list(self._readers):
            self._close_reader(path)
        if self._bell is not None:
            self._bell.close()
        self._inner.close()

    # -- as a writer

    def _send_below(self, rank: int, parts: Frame) -> bool:
        """A frame to a rank that has no ring yet: offer one, or see whether it reads it."""
        peer = self._peers.get(rank)
        if peer is not None and peer.path is not None:
            if peer.writer is not None:
                word = peer.writer.word()
                if word in (ring.AWAKE, ring.ASLEEP):
                    peer.wait_ns = RETRY_NS
                    self._ready[rank] = peer.writer.send
                    self.writers[rank] = peer.writer
                    return self.send(rank, parts)
                if word != ring.OFFERED:
                    self._on_broken(rank, peer)
                elif self._clock() - peer.offered_ns > ANSWER_NS:
                    self._fall_back(rank, peer, "the peer does not take the ring")
            elif self._clock() >= peer.retry_ns:
                self._offer(rank, peer)
            if peer.writer is not None and self._clock() < peer.early_until_ns:
                code = peer.writer.send(parts)
                if code == ring.TAKEN_ASLEEP:  # it has taken the ring meanwhile
                    self.wake(rank)
                if code in (ring.TAKEN, ring.TAKEN_ASLEEP):
                    return True
        return self._inner_send(rank, parts)

    def _offer(self, rank: int, peer: Peer) -> None:
        from ckpt.transport.rings._ring import Writer

        assert self._bell is not None and peer.path is not None
        try:
            peer.writer = writer = Writer(self._capacity)
            self._bell.offer(self._rank, self._capacity, writer.fd, peer.path)
            writer.forget_fd()
            peer.offered_ns = self._clock()
            if peer.wait_ns == RETRY_NS:  # no ring of this peer has come to nothing
                peer.early_until_ns = peer.offered_ns + EARLY_NS
        except (BlockingIOError, ConnectionRefusedError, FileNotFoundError):
            self._close_writer(rank, peer)  # its queue is full, or it is gone: no failure of rings
            peer.retry_ns = self._clock() + RETRY_NS
        except OSError as failure:
            self._fall_back(rank, peer, f"no ring can be made: {failure.strerror}")

    def wake(self, rank: int) -> None:
        """Wake a peer that sleeps."""
        assert self._bell is not None
        self._counts["ring_bells"] += 1
        path = self._peers[rank].path
        assert path is not None
        self._bell.wake(path)

    def offer_board(self, rank: int, number: int, fd: int) -> None:
        """Offer the area of a board to a peer. It may be lost: then it is offered again."""
        peer = self._peers.get(rank)
        if self._bell is not None and peer is not None and peer.path is not None:
            with contextlib.suppress(OSError):
                self._bell.offer(self._rank, number, fd, peer.path, is_board=True)

    def _on_broken(self, rank: int, peer: Peer) -> None:
        """The ring to a peer that had one is closed by its reader, or has numbers that cannot be."""
        assert peer.writer is not None
        closed = peer.writer.word() == ring.CLOSED and not peer.writer.damaged
        self._counts["ring_damaged"] += not closed
        # A peer closes its rings when it ends, and one that it has found damaged, which it reports itself.
        self._fall_back(rank, peer, "" if closed else "the ring is damaged")

    def _fall_back(self, rank: int, peer: Peer, reason: str) -> None:
        self._close_writer(rank, peer)
        peer.retry_ns = self._clock() + peer.wait_ns
        peer.wait_ns = min(2 * peer.wait_ns, RETRY_LONGEST_NS)
        self._report(rank, reason)

    def _report(self, rank: int | None, reason: str) -> None:
        if rank is not None:
            self._counts["ring_fallbacks"] += 1
        if reason and (rank, reason) not in self._reported:
            self._reported.add((rank, reason))
            if self._on_fallback is not None:
                self._on_fallback(rank, reason)

    def _close_writer(self, rank: int, peer: Peer) -> None:
        self._ready.pop(rank, None)
        self.writers.pop(rank, None)
        writer, peer.writer = peer.writer, None
        if writer is not None:
            self._passed[0] += writer.records
            writer.close()

    # -- as a reader

    def _attend(self) -> None:
        """Look at the bell, and for damaged rings. Afterwards writers need not ring."""
        self._looks = 0
        self._armed = False
        self._inbox.disarm()
        assert self._bell is not None
        for offer in self._bell.offers():
            try:
                self._on_offer(offer)
            finally:
                for fd in offer.fds:
                    os.close(fd)
        for path, (rank, reader) in list(self._readers.items()):
            if reader.damaged:
                self._counts["ring_damaged"] += 1
                self._close_reader(path)
                self._report(rank, "the ring from the peer is damaged")

    def _on_offer(self, offer: Offer) -> None:
        from ckpt.transport.rings._ring import Reader

        rank, known = offer.rank, self._peers.get(offer.rank)
        if rank < 0 or (known is not None and known.path != offer.sender):
            self._counts["ring_offers_refused"] += 1
            return
        if offer.is_board:
            if self.on_board is not None:
                self.on_board(rank, offer.capacity, offer.fds[0])
            return
        try:
            reader = Reader(offer.fds[0], offer.capacity)
        except (ValueError, OSError) as failure:
            self._counts["ring_offers_refused"] += 1
            self._report(rank, f"a ring cannot be mapped: {failure}")
            return
        for path in [at for at, (source, _) in self._readers.items() if source == rank]:
            self._close_reader(path)
        self._readers[offer.sender] = (rank, reader)
        self._inbox.add(reader)

    def _close_reader(self, path: str) -> None:
        _, reader = self._readers.pop(path)
        self._passed[1] += reader.records
        self._inbox.remove(reader)
        reader.close()

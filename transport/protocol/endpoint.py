"""All links of one rank: the transport's core, a value without clock, socket, thread, file or random number.

The owner (a port, a simulation, a model checker) passes frames and the time, and takes frames, messages and
events:

    receive(parts, now)   one frame from the wire        send(dst, data, payload)   a message of the program
    tick(now)             timers, see deadline_ns()      transmit(now)              frames for the wire
    delivered()           messages in order              events()                   see `events.py`

States: running; frozen (between `freeze` and `thaw`: frames that come are held, no message is delivered, and only NACKs,
the negative acknowledgements, are sent); zombie (this process was replaced by a later incarnation: no frame is processed or
sent any more, for ever).

What happens to a frame, in this order:

    malformed, corrupted, other job, other target rank     counted, dropped
    target incarnation below mine                          counted, dropped: meant for my predecessor
    target incarnation above mine                          Zombie
    source incarnation below the known one                 counted, dropped: its sender is dead (the same for
                                                           a peer that `drop_peer` has dropped)
    source incarnation above the known one                 PeerRestarted, dropped, until `set_peer` is called
    frozen                                                 held, NACK
    NACK                                                   the link pauses (a hint)
    epoch above mine                                       ImageDue, held until `advance` reaches it: THE
                                                           EPOCH RULE, for messages and acks alike
    else                                                   ack, window, messages

Held frames are bounded in bytes and number; frames beyond the bounds are dropped, and the peer sends them again.

To take an image: freeze, snapshot (in one step with the application's state), advance(epoch), thaw. When an image
fails, the owner does not advance, so held frames stay held until the next attempt succeeds. The next attempt may have any
higher epoch: epochs may jump.

Messages of a rank to itself never become frames: they wait in their window until `delivered` returns them.

This module is long because every frame and every message passes through one table of links under these rules; the links' own
rules are in link.py.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence

from ckpt.transport.errors import EpochError, FrameError, StateMismatch, UnknownRank, UsageError
from ckpt.transport.integers import integers
from ckpt.transport.protocol import frames
from ckpt.transport.protocol.config import EndpointConfig
from ckpt.transport.protocol.events import Event, ImageDue, PeerRestarted, Zombie
from ckpt.transport.protocol.frames import Remote
from ckpt.transport.protocol.ledger import Ledger, Place
from ckpt.transport.protocol.link import COUNTERS, NEVER, Link, LinkContext
from ckpt.transport.protocol.state import Buffer, LinkState, PortState
from ckpt.transport.protocol.timeout import Timeout
from ckpt.transport.protocol.units import FLIGHT, Large
from ckpt.transport.protocol.window import SendWindow

__all__ = ["Endpoint", "EndpointConfig"]

DROPS = (
    "malformed",
    "foreign",
    "misrouted",
    "stale",
    "later_incarnation",
    "zombie",
    "held_overflow",
    "oversized",
)


@integers("_clock_ns")
class Endpoint:
    """All links of one rank. Not thread-safe: the owner's lock guards it. See the module."""

    __slots__ = (
        "_allocate",
        "_clock_ns",
        "_coalesce",
        "_common",
        "_drops",
        "_due",
        "_fresh",
        "_frozen",
        "_held",
        "_held_bytes",
        "_large",
        "_links",
        "_nacked",
        "_nacks",
        "_overhead",
        "_self_window",
        "_windows",
        "_zombie",
        "config",
        "on_flush_due",
        "place",
    )

    def __init__(
        self,
        config: EndpointConfig,
        state: PortState | None = None,
        *,
        allocate: Callable[[int], bytearray] = bytearray,
    ) -> None:
        """Make a new endpoint, or restore one from `state`; incarnation and epoch come from `config` in both cases.

        `allocate(n)` returns the buffer of n bytes in which a long message is reassembled; its content need not be zero.
        Raises StateMismatch if `state` is of another job, rank or size, of a later epoch or incarnation, or incomplete.
        """
        self.config = config
        self.on_flush_due: Callable[[], None] | None = None
        """Called at the end of a `send` that leaves `flush_due` true, so that the owner need not check after each `send`."""
        self.place: Place | None = None
        """Where a whole message that is to be read should go (ledger.py). Set only during a `receive` before and after
        which the caller takes what is delivered."""
        self._allocate = allocate
        self._coalesce = config.coalesce_bytes
        self._large = config.large_bytes
        self._overhead = config.message_overhead_bytes
        self._common = _common(config)
        self._clock_ns = 0
        self._due = 0
        self._drops = dict.fromkeys(DROPS, 0)
        self._fresh: list[Link] = []
        self._frozen = False
        self._zombie = False
        self._held: list[tuple[int, Sequence[Buffer], int]] = []
        self._held_bytes = 0
        self._nacks: dict[int, Link] = {}
        self._nacked: dict[int, Link] = {}
        self._links: dict[int, Link] = {}
        self._windows: dict[int, SendWindow] = {}
        for peer in {*range(config.size - config.reserved), config.rank}:
            self._connect(peer)
        self._self_window = self._windows[config.rank]
        if state is not None:
            self._restore(state)

    def _restore(self, state: PortState) -> None:
        mine = self.config
        if (state.job, state.rank, state.size) != (mine.job, mine.rank, mine.size):
            raise StateMismatch(
                f"saved port of job {state.job:016x} rank {state.rank} of {state.size}, "
                f"wanted job {mine.job:016x} rank {mine.rank} of {mine.size}"
            )
        if state.epoch > mine.epoch or state.incarnation > mine.incarnation:
            raise StateMismatch(
                f"saved port of epoch {state.epoch}, incarnation {state.incarnation} "
                f"is later than epoch {mine.epoch}, incarnation {mine.incarnation}"
            )
        for peer, saved in state.links.items():
            if not 0 <= peer < mine.size or saved.base + len(saved.messages) != saved.tx:
                raise StateMismatch(
                    f"saved link to rank {peer}: {len(saved.messages)} messages, "
                    f"base {saved.base}, tx {saved.tx}"
                )
            link = self._link(peer)
            link.window.base = link.window.tx = saved.base
            link.ledger.rx = link.ledger.arrived = saved.rx
            link.ledger.unconsumed = saved.unconsumed_bytes
            for message in saved.messages:
                if isinstance(message, tuple):
                    self.send(peer, *message)
                else:
                    self.send(peer, message)

    # ---- the program's side ----------------------------------------------------------------------

    def send(self, dst: int, data: Buffer, payload: Buffer | None = None) -> int:
        """Enqueue `data` followed by `payload` as one message to `dst`; never blocks. Returns its sequence number.

        A long payload (or long data without payload) is kept by reference: the caller leaves it unchanged until base(dst)
        is above the returned number. A short message is copied unless it is one `bytes` object. Raises UnknownRank, and
        UsageError for a message above max_message_bytes.
        """
        try:
            window = self._windows[dst]
        except KeyError:
            link = self._link(dst)
            if dst not in self._windows:
                return link.window.tx - 1  # the peer was dropped: the message is discarded
            window = link.window
        if payload is not None or data.__class__ is not bytes or len(data) > self._large:
            return self._send_other(dst, window, data, payload)
        window.queue.append(data)
        sequence = window.tx
        window.tx = sequence + 1
        window.queued = queued = window.queued + len(data) + self._overhead
        if queued >= self._coalesce:
            window.seal()
            self._common.flush_due = True
            self._enqueued(dst, window)
        elif window.clean:
            self._enqueued(dst, window)
        return sequence

    def _send_other(self, dst: int, window: SendWindow, data: Buffer, payload: Buffer | None) -> int:
        if payload is None:
            payload, data = data, b""
        view = memoryview(payload)
        if view.format != "B" or view.ndim != 1:
            view = view.cast("B")
        if len(data) + len(view) <= self._large:
            message = b"".join((data, view))
            sequence = window.add_small(message)
            if window.queued >= self._coalesce:
                window.seal()
                self._common.flush_due = True
        else:
            if len(data) + len(view) > self.config.max_message_bytes:
                raise UsageError(f"message of {len(data) + len(view)} bytes: above max_message_bytes")
            if len(data) > self._large:
                data, view = b"", memoryview(b"".join((data, view)))
            elif data.__class__ is not bytes:
                data = bytes(data)
            sequence = window.add_large(data, view)
            self._common.flush_due = True
        if window.clean or self._common.flush_due:
            self._enqueued(dst, window)
        return sequence

    def _enqueued(self, dst: int, window: SendWindow) -> None:
        """A message is enqueued, and the window was clean or there is a reason to transmit at once."""
        common = self._common
        if window is self._self_window:
            window.clean = False
            common.flush_due = True
            common.deadline_ns = 0
        elif window.clean:
            self._links[dst].enqueued()
        if common.flush_due and self.on_flush_due is not None:
            self.on_flush_due()

    @property
    def flush_due(self) -> bool:
        """Should the owner call transmit at once? An idle link has a message, a batch is full, an ACK is due, or the last
        transmit was not all. A message on a busy link waits, to share a frame with others, until the owner's next
        regular transmit."""
        return self._common.flush_due

    @property
    def marks(self) -> LinkContext:
        """For the owner's hot path, which reads these without a call: deadline_ns, dirty, events and flush_due. The owner
        must not change them."""
        return self._common

    @property
    def deliverable(self) -> bool:
        """Would `delivered` return any message?"""
        return not self._frozen and not self._zombie and bool(self._fresh or not self._self_window.clean)

    def delivered(self) -> list[tuple[int, list[Buffer]]]:
        """Return the messages that have come in order, per source rank. From here on they count as part of the
        application's state (rx moves, acks follow): the caller must put them where an image captures them before it does
        anything else.

        Short messages are bytes; long ones are bytearray, bytes or a read-only memoryview.
        """
        taken: list[tuple[int, list[Buffer]]] = []
        if self._frozen or self._zombie:
            return taken
        window = self._self_window
        if not window.clean:
            taken.append((self.config.rank, self._take_own(window)))
        fresh = self._fresh
        if fresh:
            self._fresh = []
            now_ns = self._clock_ns
            taken += [(link.peer, link.take(now_ns)) for link in fresh if link.ledger.inbox]
        return taken

    def _take_own(self, window: SendWindow) -> list[Buffer]:
        messages: list[Buffer] = [
            bytearray().join(message) if isinstance(message, tuple) else bytes(message)
            for message in window.messages()
        ]
        ledger = self._links[self.config.rank].ledger
        tx = window.tx
        window.acknowledge(tx, 0)
        window.clean = True
        ledger.rx = ledger.arrived = tx
        return messages

    def consumed(self, src: int, nbytes: int, nmessages: int) -> None:
        """The application took `nmessages` messages of `nbytes` in all out of its mailbox: the peer gets their credit
        back. Raises UnknownRank."""
        link = self._links.get(src) or self._link(src)
        if link.window is not self._self_window:
            link.consumed(nbytes + self._overhead * nmessages)

    def hungry(self, yes: bool, now_ns: int) -> None:
        """Tell whether the receiver is *hungry*: blocked in a receive that no message in its mailbox matches.

        While it is hungry, every peer gets at least hungry_credit_bytes, so that a mailbox full of other messages
        cannot keep the awaited one away. A repeated call with the same value is cheap.
        """
        common = self._common
        if not yes:
            common.floor = 0
        elif not common.floor:
            common.floor = common.hungry_floor
            if common.tight:
                for link in list(common.tight):
                    link.grant()

    def base(self, dst: int) -> int:
        """Lowest sequence number to `dst` that is not acknowledged; the buffers of messages below it are free."""
        link = self._links.get(dst) or self._link(dst)
        return link.window.base

    def tx(self, dst: int) -> int:
        """Number of messages enqueued to `dst` so far."""
        return self._link(dst).window.tx

    def rx(self, src: int) -> int:
        """Number of messages of `src` delivered so far."""
        return self._link(src).ledger.rx

    def backlog_bytes(self, dst: int) -> int:
        """Charge of the messages to `dst` that are not acknowledged: length + message_overhead_bytes of each."""
        try:
            window = self._windows[dst]
        except KeyError:
            return self._link(dst).window.backlog()  # the peer was dropped: 0
        return window.queued + window.sealed_charge + window.sent_charge - window.acked_charge

    def release(self, dst: int, sequence: int) -> bool:
        """Keep a copy of this message instead of a reference, since the program wants its memory back before the ack.

        False: frames of the message are in flight and the wire may still read that memory; the caller tries again later.
        """
        window = self._link(dst).window
        for entry in (*window.unacked, *window.sealed):
            if isinstance(entry, Large) and entry.first == sequence:
                if any(piece.state == FLIGHT for piece in entry.pieces):
                    return False
                entry.payload = memoryview(bytes(entry.payload))
        return True

    def set_fragment(self, dst: int, nbytes: int | None) -> None:
        """Cut long messages to `dst` into fragments of `nbytes` from now on (None: `fragment_bytes`), also those that are
        not acknowledged yet, if theirs are longer."""
        link = self._link(dst)
        link.window.set_fragment(self.config.fragment_bytes if nbytes is None else nbytes)
        if link.window.resend:
            link.request_transmit(now=True)

    def idle(self) -> bool:
        """Are all messages on all links acknowledged?"""
        return all(window.base == window.tx for window in self._windows.values())

    def _link(self, rank: int) -> Link:
        try:
            return self._links[rank]
        except KeyError:
            size = self.config.size
            if not size - self.config.reserved <= rank < size:
                raise UnknownRank(f"rank {rank!r} of {size}") from None
            return self._connect(rank)

    def _connect(self, peer: int) -> Link:
        config = self.config
        ident = (config.job, config.rank, peer, config.incarnation, 0)
        link = Link(peer, ident, self._common, _window(config), _ledger(config), _timeout(config))
        self._links[peer], self._windows[peer] = link, link.window
        return link

    # ---- the wire's side -------------------------------------------------------------------------

    def set_peer(self, rank: int, incarnation: int, now_ns: int) -> None:
        """Tell that `rank` can be reached, as `incarnation`. Nothing is sent to a peer before this call. A lower
        incarnation than the known one is ignored. Raises UnknownRank."""
        link = self._link(rank)
        if link.window is self._self_window or incarnation < link.incarnation:
            return
        if incarnation != link.incarnation:
            link.set_incarnation(incarnation)
        link.set_reachable(now_ns)

    def drop_peer(self, rank: int) -> None:
        """Tell that `rank` is dead and will not be restarted.

        Messages to it, present and future, count as acknowledged, so their buffers are free. No frame is sent to
        it any more, and frames of it that come later are stale. Idempotent. Raises UnknownRank; UsageError
        for this rank itself.
        """
        link = self._link(rank)
        if link.window is self._self_window:
            raise UsageError("a port cannot drop itself")
        if self._windows.pop(rank, None) is not None:
            link.drop()
            self._nacks.pop(rank, None)
            self._nacked.pop(rank, None)

    def receive(self, parts: Sequence[Buffer], now_ns: int) -> None:
        """Process one frame from the wire. Never raises because of the frame's content.

        parts[0] is best passed as bytes; parts[1] may be any buffer. The caller must not reuse the buffers: the endpoint
        may keep the frame (it is held), or keep a read-only payload as the message.
        """
        self._clock_ns = now_ns
        if self._zombie:
            self._drops["zombie"] += 1
            return
        try:
            self._take_frame(parts, now_ns)
        except FrameError:
            self._drops["malformed"] += 1

    def _take_frame(self, parts: Sequence[Buffer], now_ns: int) -> None:
        header, head = frames.open_frame(parts)
        (_, _, kind, flags, job, source, target, src_inc, dst_inc, epoch, ack, room, first, count, length) = (
            header
        )
        config = self.config
        link = self._links.get(source)
        if job != config.job:
            self._drops["foreign"] += 1
            return
        if link is None or target != config.rank or source == config.rank:
            self._drops["misrouted"] += 1
            return
        usual = dst_inc == config.incarnation and src_inc == link.incarnation
        if not usual and not self._check_incarnations(link, source, src_inc, dst_inc):
            return
        if self._frozen:
            if kind != frames.NACK:
                self._nacks[source] = link
                self._common.flush_due = True
                self._hold(epoch, parts)
            return
        common = self._common
        if kind == frames.NACK:
            link.on_nack(epoch, now_ns)
            if epoch > common.epoch:
                self._image_due(epoch, source)
            return
        if epoch > common.epoch:
            self._image_due(epoch, source)
            self._hold(epoch, parts)
            return
        if kind == frames.MESSAGES:
            messages = frames.decode_messages(head, count, length)
            link.on_control(epoch, ack, room, flags, now_ns)
            body = len(head) - frames.BODY - (4 * count if length == frames.VARIED else 0)
            if link.on_messages(first, messages, body + self._overhead * count):
                self._fresh.append(link)
        elif kind == frames.FRAGMENT:
            piece = frames.decode_fragment(parts, head, flags, count, length)
            link.on_control(epoch, ack, room, flags, now_ns)
            self._on_piece(link, first, piece, now_ns)
        elif kind == frames.ACK:
            ranges, pieces = frames.decode_hints(head, count, length)
            link.on_control(epoch, ack, room, flags, now_ns)
            link.on_hints(ranges, pieces, now_ns)
        else:
            link.on_control(epoch, ack, room, flags, now_ns)

    def _on_piece(
        self, link: Link, sequence: int, piece: tuple[int, int, memoryview, memoryview | Remote], now_ns: int
    ) -> None:
        total, offset, inline, payload = piece
        if total > self.config.max_message_bytes:
            self._drops["oversized"] += 1
            return
        if isinstance(payload, Remote):
            verdict = link.ledger.accept_remote(
                sequence, total, offset, inline, payload, self._allocate, self.place
            )
        else:
            verdict = link.ledger.accept_piece(sequence, total, offset, inline, payload, self._allocate)
        if link.on_piece(verdict, len(inline) + len(payload), now_ns):
            self._fresh.append(link)

    def _check_incarnations(self, link: Link, source: int, src_inc: int, dst_inc: int) -> bool:
        if dst_inc > self.config.incarnation:
            self._zombie = True
            self._held.clear()
            self._common.events.append(Zombie(dst_inc, source))
            self._drops["zombie"] += 1
            return False
        if dst_inc < self.config.incarnation or src_inc < link.incarnation:
            self._drops["stale"] += 1
            return False
        if link.incarnation < 0:
            link.set_incarnation(src_inc)
            return True
        self._drops["later_incarnation"] += 1
        event = PeerRestarted(source, src_inc)
        if event not in self._common.events:
            self._common.events.append(event)
        return False

    def _image_due(self, epoch: int, source: int) -> None:
        if epoch > self._due:
            self._due = epoch
            self._common.events.append(ImageDue(epoch, source))

    def _hold(self, epoch: int, parts: Sequence[Buffer]) -> None:
        size = sum(len(part) for part in parts if not isinstance(part, Remote))
        config = self.config
        if self._held_bytes + size > config.held_bytes or len(self._held) >= config.held_frames:
            self._drops["held_overflow"] += 1
            return
        self._held.append((epoch, parts, size))
        self._held_bytes += size

    def _release_held(self, now_ns: int) -> None:
        held = self._held
        self._held = []
        self._held_bytes = 0
        for epoch, parts, size in held:
            if epoch > self._common.epoch:
                self._held.append((epoch, parts, size))
                self._held_bytes += size
                self._image_due(epoch, frames.open_frame(parts)[0][5])
            else:
                self.receive(parts, now_ns)

    def transmit(self, now_ns: int, blocked: Container[int] = ()) -> list[tuple[int, tuple[Buffer, ...]]]:
        """Return the frames to put on the wire now: (rank, (head,)) or (rank, (head, payload)). A frame that is returned
        counts as sent. No frame is built for ranks in `blocked`, whose connection is congested: their messages wait."""
        out: list[tuple[int, tuple[Buffer, ...]]] = []
        common = self._common
        common.flush_due = False
        if self._frozen or self._zombie:
            if self._nacks and not self._zombie:
                for link in self._nacks.values():
                    link.emit_nack(out)
                self._nacked.update(self._nacks)
                self._nacks = {}
            return out
        dirty = common.dirty
        if dirty:
            common.dirty = []
            for link in dirty:
                if blocked and link.peer in blocked:
                    common.dirty.append(link)
                else:
                    link.emit(out, now_ns)
        return out

    def tick(self, now_ns: int) -> None:
        """Act on the timers that have passed; the owner calls transmit afterwards. Cheap when no timer has passed."""
        common = self._common
        if now_ns < common.deadline_ns or self._frozen or self._zombie:
            return
        self._clock_ns = max(self._clock_ns, now_ns)
        common.deadline_ns = NEVER
        deadline_ns = min(link.tick(now_ns) for link in self._links.values())
        common.deadline_ns = min(common.deadline_ns, deadline_ns)

    def deadline_ns(self) -> int | None:
        """Time at which tick is needed next; it may be too early, never too late. None: no timer runs."""
        deadline_ns = self._common.deadline_ns
        return None if deadline_ns == NEVER or self._frozen or self._zombie else deadline_ns

    def events(self) -> list[Event]:
        """Return the events since the last call."""
        events = self._common.events
        if events:
            self._common.events = []
            return events
        return []

    # ---- images ----------------------------------------------------------------------------------

    @property
    def epoch(self) -> int:
        """The epoch that frames are stamped with."""
        return self._common.epoch

    @property
    def held(self) -> int:
        """Number of held frames: frames of a later epoch, which wait for the image, and frames that came while frozen."""
        return len(self._held)

    @property
    def frozen(self) -> bool:
        """Is the endpoint between freeze and thaw?"""
        return self._frozen

    def freeze(self) -> None:
        """Stop: frames that come are held and answered by NACKs, no message is delivered, no other frame is sent."""
        self._frozen = True

    def thaw(self, now_ns: int) -> None:
        """Go on after `freeze`: process the held frames, and send an ACK to the peers that got a NACK."""
        if not self._frozen:
            return
        self._frozen = False
        if self._nacks or self._nacked:
            self._nacked.update(self._nacks)
            for link in self._nacked.values():
                link.answer()
            self._nacks, self._nacked = {}, {}
        common = self._common
        common.deadline_ns = min(common.deadline_ns, now_ns)
        if common.dirty:
            common.flush_due = True
        if self._held:
            self._release_held(now_ns)

    def advance(self, epoch: int, now_ns: int) -> None:
        """The image of `epoch` is captured: from now on frames are stamped with it; held frames up to it are
        processed.

        Raises EpochError unless `epoch` is above the present one.
        """
        if epoch <= self._common.epoch:
            raise EpochError(f"epoch {epoch} after {self._common.epoch}: epochs only grow")
        self._common.epoch = epoch
        if self._held and not self._frozen:
            self._release_held(now_ns)

    def snapshot(self) -> PortState:
        """Return the state that the image keeps; messages are in it by reference. The caller takes it in one step with the
        capture of the application's state, and before `advance`."""
        config = self.config
        links: dict[int, LinkState] = {}
        for peer, link in self._links.items():
            window, ledger = link.window, link.ledger
            if window.tx or ledger.rx:
                messages = window.messages() if window.base != window.tx else []
                links[peer] = LinkState(window.base, window.tx, ledger.rx, ledger.unconsumed, messages)
        return PortState(config.job, config.rank, config.size, self._common.epoch, config.incarnation, links)

    # ---- for people and tests --------------------------------------------------------------------

    def peer_counters(self) -> dict[int, dict[str, int]]:
        """Counters by peer: those of link.COUNTERS, and messages_sent, messages_acked, messages_delivered,
        backlog_bytes, unconsumed_bytes, srtt_ns."""
        counters = {}
        for peer, link in self._links.items():
            counters[peer] = link.counts.by_name() | {
                "messages_sent": link.window.tx,
                "messages_acked": link.window.base,
                "messages_delivered": link.ledger.rx,
                "backlog_bytes": link.window.backlog(),
                "unconsumed_bytes": link.ledger.unconsumed,
                "srtt_ns": link.timeout.srtt_ns,
            }
        return counters

    def counters(self) -> dict[str, int]:
        """Totals over all peers, and the frames dropped before they reached a link, by reason (`dropped_*`)."""
        peers = self.peer_counters().values()
        total = {
            name: sum(peer[name] for peer in peers)
            for name in (*COUNTERS, "messages_sent", "messages_acked", "messages_delivered", "backlog_bytes")
        }
        total |= {f"dropped_{name}": count for name, count in self._drops.items()}
        return total | {
            "held_frames": len(self._held),
            "held_bytes": self._held_bytes,
            "epoch": self._common.epoch,
        }

    def clone(self) -> Endpoint:
        """An independent copy; it shares the messages, which are immutable."""
        new = Endpoint.__new__(Endpoint)
        for name in self.__slots__:
            setattr(new, name, getattr(self, name))
        new.on_flush_due = new.place = None
        old = self._common
        common = new._common = _common(self.config)
        common.epoch, common.deadline_ns, common.floor = old.epoch, old.deadline_ns, old.floor
        common.flush_due, common.events = old.flush_due, old.events.copy()
        new._links = {peer: link.clone(common) for peer, link in self._links.items()}
        new._windows = {peer: new._links[peer].window for peer in self._windows}
        new._self_window = new._windows[self.config.rank]
        common.dirty = [new._links[link.peer] for link in old.dirty]
        common.tight = {new._links[link.peer] for link in old.tight}
        new._fresh = [new._links[link.peer] for link in self._fresh]
        new._drops = self._drops.copy()
        new._held = self._held.copy()
        new._nacks = {peer: new._links[peer] for peer in self._nacks}
        new._nacked = {peer: new._links[peer] for peer in self._nacked}
        return new

    def key(self, *, credit: bool = True, nacks: bool = True, timing: bool = True) -> tuple[object, ...]:
        """The protocol state as a hashable value, without times, estimates and counters. Endpoints with equal keys behave
        alike apart from timing. Without `credit` that holds while no credit limit is reached; without `nacks`, while no
        peer sends a NACK; without `timing`, if every timer has passed before each transmission."""
        common = self._common
        held = frozenset((epoch, tuple(map(bytes, parts))) for epoch, parts, _ in self._held)
        return (
            common.epoch,
            common.floor,
            max(self._due, common.epoch),  # an ImageDue at or below the epoch has no effect any more
            self._frozen,
            self._zombie,
            held,
            frozenset(self._nacks),
            frozenset(self._nacked),
            tuple(common.events),
            tuple(link.key(credit, nacks, timing) for link in self._links.values()),
        )


def _common(config: EndpointConfig) -> LinkContext:
    common = LinkContext()
    common.epoch = config.epoch
    common.ack_bytes = max(1, config.credit_bytes // 4)
    common.ack_delay_ns = config.ack_delay_ns
    common.burst_bytes = config.burst_bytes
    common.checksum_payload = config.checksum_payload
    common.hungry_floor = config.hungry_credit_bytes
    common.probe_ns, common.probe_max_ns = config.probe_ns, config.probe_max_ns
    common.silent_ns = config.silent_ns
    common.update_bytes = max(1, config.credit_bytes // 4)
    return common


def _window(config: EndpointConfig) -> SendWindow:
    return SendWindow(
        overhead=config.message_overhead_bytes,
        fragment=config.fragment_bytes,
        pipeline=config.pipeline_bytes,
        edge=config.initial_credit_bytes,
    )


def _ledger(config: EndpointConfig) -> Ledger:
    ledger = Ledger(
        credit=config.credit_bytes, limit=2 * config.credit_bytes, overhead=config.message_overhead_bytes
    )
    ledger.offered = config.credit_bytes
    return ledger


def _timeout(config: EndpointConfig) -> Timeout:
    return Timeout(config.rto_initial_ns, config.rto_min_ns, config.rto_max_ns)

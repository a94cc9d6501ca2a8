"""State machine of one link: this rank and one peer, in one incarnation each.

It joins a SendWindow and a Ledger, owns the link's three timers and builds frames. It never reads a clock.

    state of the peer     unknown     the peer's incarnation is not known. Nothing is sent.
                          learnt      a frame that names this rank's incarnation has shown the peer's. Its frames are
                                      processed; nothing is sent.
                          reachable   the owner has called `set_peer`. Frames are sent.
    paused                the peer's port is frozen (it sent a NACK): no messages, no retransmission; ACKs are still
                          sent. Any other frame of the peer ends this state. Meanwhile the probe timer runs, so a lost
                          or late NACK can never stop a link.

    timer     runs while                                                  when it passes
    rto       messages are unacked and the link is not paused             the oldest unit in flight is sent
                                                                          again, alone; the ack that follows
                                                                          shows which others are lost. With
                                                                          none in flight (all hinted): a PROBE,
                                                                          and all again from the third time on
    ack       messages are delivered, or pieces have come, unacked        an ACK is sent
    probe     paused, or messages wait for credit and nothing is unacked  a PROBE is sent, at longer and longer
                                                                          intervals

Rules kept here: ack value, window and epoch are read together when a frame is built (`_stamp`); every
duplicate is acknowledged again; a gap is acknowledged at once with hints; a cumulative ack below base or above tx changes
nothing. What does not belong here: the decision whether a frame may be processed at all (endpoint), and anything about
images.

This module is long because one link is one state machine: what comes in decides what goes out next. Its parts with a life of
their own are window.py (sender), ledger.py (receiver) and timeout.py.
"""

from __future__ import annotations

from ckpt.transport.integers import END_OF_NUMBERS, integers
from ckpt.transport.protocol import frames
from ckpt.transport.protocol.events import Event, LinkLate, LinkStalled, PeerHeard, PeerSilent
from ckpt.transport.protocol.frames import ANSWER, CHECKED, MAX_HINTS, Buffer, Ident, Stamp
from ckpt.transport.protocol.ledger import DUPLICATE, NEW, PIECE, REFUSED, Ledger
from ckpt.transport.protocol.timeout import Timeout
from ckpt.transport.protocol.units import Batch
from ckpt.transport.protocol.window import SendWindow

NEVER = END_OF_NUMBERS
"""The deadline of a timer that does not run."""

STALLED_TIMEOUTS = 6
"""After so many timeouts in a row (some seconds) without an ack, or duplicates in a row, LinkStalled is reported."""
LATE_TIMEOUTS = 2
"""From so many timeouts or probes in a row on, each without an answer is reported (LinkLate)."""
UNPROVEN_TIMEOUTS = 3
"""After so many timeouts in a row the peer's hints are ignored and all hinted units are sent again."""

BULK_CHARGE = 64 << 10
"""The ack for at least this much charge is delayed only an eighth as long as usual, since senders of long messages wait
for it."""

NO_ACK, PLAIN_ACK, HINTS_ACK = 0, 1, 2

COUNTERS = (
    *("frames_sent", "frames_received", "retransmitted", "timeouts", "duplicates", "early", "refused"),
    *("acks_sent", "acks_received", "probes_sent", "nacks_sent", "nacks_received"),
    *("old_acks", "invalid_acks"),
)


@integers(*COUNTERS)
class Counts:
    """What has happened on a link, and how often."""

    __slots__ = COUNTERS

    def __init__(self) -> None:
        self.frames_sent = self.frames_received = self.retransmitted = self.timeouts = self.duplicates = 0
        self.early = self.refused = self.acks_sent = self.acks_received = self.probes_sent = 0
        self.nacks_sent = self.nacks_received = self.old_acks = self.invalid_acks = 0

    def by_name(self) -> dict[str, int]:
        """The counters in the order of COUNTERS."""
        return {name: getattr(self, name) for name in COUNTERS}

    def copy(self) -> Counts:
        """An independent copy."""
        new = Counts()
        for name in COUNTERS:
            setattr(new, name, getattr(self, name))
        return new


@integers(
    *("ack_bytes", "ack_delay_ns", "burst_bytes", "deadline_ns", "epoch", "floor", "hungry_floor"),
    *("probe_max_ns", "probe_ns", "silent_ns", "update_bytes"),
)
class LinkContext:
    """Data that all links of an endpoint share: configuration, epoch, and marks that say what the endpoint has to do."""

    __slots__ = (
        "ack_bytes",
        "ack_delay_ns",
        "burst_bytes",
        "checksum_payload",
        "deadline_ns",
        "dirty",
        "epoch",
        "events",
        "floor",
        "flush_due",
        "hungry_floor",
        "probe_max_ns",
        "probe_ns",
        "silent_ns",
        "tight",
        "update_bytes",
    )

    def __init__(self) -> None:
        self.epoch = 0
        self.deadline_ns = NEVER
        """No timer of any link passes before this."""
        self.dirty: list[Link] = []
        """Links with something to transmit."""
        self.tight: set[Link] = set()
        """Links whose last frame granted the peer less credit than a hungry receiver grants."""
        self.events: list[Event] = []
        self.floor = 0
        self.flush_due = False
        self.hungry_floor = 0
        self.ack_bytes = self.ack_delay_ns = self.burst_bytes = 0
        self.checksum_payload = False
        self.probe_ns = self.probe_max_ns = self.silent_ns = self.update_bytes = 0


@integers(
    *("_ack_at", "_ack_due", "_acked_charge", "_asked_credit_order", "_probe_at", "_probe_wait_ns"),
    *("_repeated", "_repeated_at", "_rto_at", "_waiting_since_ns"),
    *("heard_ns", "incarnation", "peer", "peer_epoch", "timeouts"),
)
class Link:
    """One link: this rank and one peer; see the module."""

    __slots__ = (
        "_ack_at",
        "_ack_due",
        "_acked_charge",
        "_asked_credit_order",
        "_common",
        "_ident",
        "_probe_at",
        "_probe_due",
        "_probe_wait_ns",
        "_repeated",
        "_repeated_at",
        "_rto_at",
        "_silence_reported",
        "_waiting_since_ns",
        "counts",
        "heard_ns",
        "incarnation",
        "ledger",
        "paused",
        "peer",
        "peer_epoch",
        "reachable",
        "timeout",
        "timeouts",
        "window",
    )

    def __init__(
        self,
        peer: int,
        ident: Ident,
        common: LinkContext,
        window: SendWindow,
        ledger: Ledger,
        timeout: Timeout,
    ) -> None:
        self.peer = peer
        self._ident = ident
        self._common = common
        self.window = window
        self.ledger = ledger
        self.timeout = timeout
        self.incarnation = -1
        self.reachable = False
        self.paused = False
        self.peer_epoch = 0
        self.heard_ns = 0
        self.timeouts = 0
        self._silence_reported = False
        self._repeated = 0
        self._repeated_at = -1
        self._waiting_since_ns = 0
        self._asked_credit_order = -1
        self._ack_due = NO_ACK
        self._acked_charge = 0
        self._probe_due = False
        self._probe_wait_ns = common.probe_ns
        self._rto_at = self._ack_at = self._probe_at = NEVER
        self.counts = Counts()

    # ---- the peer --------------------------------------------------------------------------------

    def set_incarnation(self, incarnation: int) -> None:
        """Set the peer's incarnation, the first one known or another one. Another one makes all hints and undelivered
        messages of the earlier one invalid."""
        if self.incarnation >= 0 and incarnation != self.incarnation:
            window = self.window
            window.requeue()
            window.edge = max(window.edge, window.sent_charge)
            self.ledger.forget_undelivered()
            self.ledger.offered = self.ledger.delivered_charge + self.ledger.credit
            self.paused = False
            self.peer_epoch = 0
            self.timeout.progress()
            self._rto_at = self._probe_at = NEVER
        self.incarnation = incarnation
        job, source, target, mine, _ = self._ident
        self._ident = (job, source, target, mine, incarnation)

    def set_reachable(self, now_ns: int) -> None:
        """Frames can be sent to the peer from now on."""
        self.reachable = True
        self.heard_ns = max(self.heard_ns, now_ns)
        self.request_transmit(now=True)

    def drop(self) -> None:
        """The peer is gone for ever: messages to it are freed, and its later frames are stale. Messages that it had sent
        completely, in order, are still delivered."""
        window = self.window
        if window.base != window.tx:
            window.acknowledge(window.tx, 0)
        window.resend.clear()
        self.ledger.early.clear()
        self.ledger.partials.clear()
        self.ledger.early_charge = 0
        self.incarnation = NEVER
        self.reachable = self.paused = self._probe_due = False
        self._ack_due = NO_ACK
        self._rto_at = self._ack_at = self._probe_at = NEVER
        self._common.tight.discard(self)

    def request_transmit(self, *, now: bool = False) -> None:
        """Mark that transmit has something to do for this link; `now`: it should not wait for more messages."""
        common = self._common
        if self.window.clean:
            self.window.clean = False
            common.dirty.append(self)
        if now:
            common.flush_due = True

    def enqueued(self) -> None:
        """The first message since the last transmit was enqueued: an idle link sends at once, a busy one
        waits for more messages, to send them in one frame."""
        self.request_transmit(now=not self.window.flight)

    def _heard(self, now_ns: int) -> None:
        self.heard_ns = now_ns
        self.timeouts = 0
        if self._silence_reported:
            self._silence_reported = False
            self._common.events.append(PeerHeard(self.peer))

    # ---- frames that came (the endpoint has checked job, ranks, incarnations and epoch) ----------

    def on_control(self, epoch: int, ack: int, window: int, flags: int, now_ns: int) -> None:
        """Process the header fields that every frame but a NACK has: epoch, ack, window and flags."""
        self.counts.frames_received += 1
        self.heard_ns = now_ns
        if self.timeouts or self._silence_reported:
            self._heard(now_ns)
        if epoch > self.peer_epoch:
            self.peer_epoch = epoch
        if self.paused:
            self.resume(now_ns)
        mine = self.window
        if ack != mine.base:
            if ack > mine.tx:
                self.counts.invalid_acks += 1
                return
            if ack > mine.base:
                self._on_ack(ack, now_ns)
            else:
                self.counts.old_acks += 1
        if ack == mine.base:
            edge = mine.acked_charge + window
            if edge > mine.edge:
                mine.edge = edge
                if mine.clean and (mine.sealed or mine.queue):
                    self.request_transmit(now=True)
        if flags & ANSWER:
            self.answer()

    def _on_ack(self, ack: int, now_ns: int) -> None:
        window, timeout = self.window, self.timeout
        sample = window.acknowledge(ack, now_ns)
        if sample:
            timeout.sample(sample)
        timeout.backoff = 0
        if window.unacked:
            self._arm_rto(now_ns)
            self._detect_loss(now_ns)
        else:
            self._rto_at = NEVER
        if window.queue or window.sealed or window.current:
            self.request_transmit(now=not window.flight)

    def _detect_loss(self, now_ns: int) -> None:
        window = self.window
        for order in window.flight:
            if order < window.top_order and window.find_lost(now_ns, self.timeout.reorder_ns()):
                self.request_transmit(now=True)
            break

    def on_messages(self, first: int, messages: list[bytes], charge: int) -> bool:
        """Process the small messages of a MESSAGES frame. True: the inbox has new messages."""
        verdict = self.ledger.accept(first, messages, charge)  # type: ignore[arg-type]
        if verdict == NEW and not self.ledger.early:
            return True
        self._on_disorder(verdict)
        return verdict == NEW

    def on_piece(self, verdict: int, length: int, now_ns: int) -> bool:
        """A piece of `length` bytes has come and the ledger returned `verdict`. True: the inbox has a new message."""
        if verdict == PIECE:
            self._acked_charge += length
            if self._acked_charge >= self._common.ack_bytes:
                self._request_ack(HINTS_ACK, now=True)
            else:
                self._schedule_ack(now_ns)
            return False
        if verdict == NEW and not self.ledger.early:
            return True
        self._on_disorder(verdict)
        return verdict == NEW

    def _on_disorder(self, verdict: int) -> None:
        """Acknowledge a duplicate again with the current value, and a gap with hints about what has come beyond it."""
        if verdict == DUPLICATE:
            self.counts.duplicates += 1
            self._check_acks()
        elif verdict == REFUSED:
            self.counts.refused += 1
        elif verdict != NEW:
            self.counts.early += 1
        self._request_ack(HINTS_ACK, now=True)

    def _check_acks(self) -> None:
        """The peer has sent again what is acknowledged. If it does nothing else, no ACK gets through: this link has no timer
        that would notice, because an ACK is not acknowledged."""
        if self._repeated_at != self.ledger.rx:
            self._repeated, self._repeated_at = 0, self.ledger.rx
        self._repeated += 1
        if self._repeated % STALLED_TIMEOUTS == 0:
            self._common.events.append(LinkStalled(self.peer, self._repeated))

    def on_hints(
        self, ranges: list[tuple[int, int]], pieces: list[tuple[int, int, int]], now_ns: int
    ) -> None:
        """Process the hints of an ACK frame."""
        self.counts.acks_received += 1
        if not ranges and not pieces:
            return
        window = self.window
        marked, sample = window.hint(ranges, pieces, now_ns)
        if sample:
            self.timeout.sample(sample)
        if marked:
            self.timeout.progress()
            self._arm_rto(now_ns)
            if window.current or window.resend or window.sealed or window.queue:
                self.request_transmit(now=True)
        self._detect_loss(now_ns)

    def on_nack(self, epoch: int, now_ns: int) -> None:
        """Process a NACK: the peer was frozen when it sent it. A NACK with a lower epoch than a frame that came since is
        ignored."""
        self.counts.nacks_received += 1
        self.heard_ns = now_ns
        if epoch < self.peer_epoch:
            return
        if not self.paused:
            self.paused = True
            self._rto_at = NEVER
            self._waiting_since_ns = now_ns
            self._probe_wait_ns = self._common.probe_ns
            self._set_probe(now_ns)

    def resume(self, now_ns: int) -> None:
        """End the pause, because a frame of the peer that is not a NACK has come."""
        self.paused = False
        self._probe_at = NEVER
        window = self.window
        if window.unacked:
            self._arm_rto(now_ns)
        if window.unacked or window.sealed or window.queue:
            self.request_transmit(now=True)

    # ---- acknowledgements and credit -------------------------------------------------------------

    def answer(self) -> None:
        """Send an ACK at once: the peer asked for it, or got a NACK and this port has thawed."""
        self._request_ack(PLAIN_ACK, now=True)

    def _request_ack(self, kind: int, *, now: bool = False) -> None:
        if kind > self._ack_due:
            self._ack_due = kind
        self.request_transmit(now=now)

    def _schedule_ack(self, now_ns: int) -> None:
        delay_ns = self._common.ack_delay_ns
        if self._acked_charge >= BULK_CHARGE:
            delay_ns >>= 3
        at = now_ns + delay_ns
        if at < self._ack_at:
            self._ack_at = at
            if at < self._common.deadline_ns:
                self._common.deadline_ns = at

    def take(self, now_ns: int) -> list[Buffer]:
        """Deliver the messages of the inbox; an ACK follows after a delay, or at once when much was delivered."""
        ledger = self.ledger
        self._acked_charge += ledger.inbox_charge
        messages = ledger.take()
        if self._acked_charge >= self._common.ack_bytes:
            self._request_ack(PLAIN_ACK, now=True)
        elif self._ack_at == NEVER or self._acked_charge >= BULK_CHARGE:
            self._schedule_ack(now_ns)
        return messages

    def consumed(self, charge: int) -> None:
        """The application has consumed messages of this charge; an ACK tells the peer when `update_bytes` are free again."""
        ledger = self.ledger
        ledger.unconsumed -= charge
        edge = ledger.delivered_charge + ledger.credit - ledger.unconsumed
        if edge - ledger.offered >= self._common.update_bytes:
            self._request_ack(PLAIN_ACK, now=True)

    def grant(self) -> None:
        """The receiver is hungry now: if that means more credit for the peer, send it in an ACK."""
        ledger = self.ledger
        if ledger.delivered_charge + ledger.window(self._common.floor) > ledger.offered:
            self._request_ack(PLAIN_ACK, now=True)

    # ---- timers ----------------------------------------------------------------------------------

    def _arm_rto(self, now_ns: int) -> None:
        if self._rto_at == NEVER:
            self._waiting_since_ns = now_ns
        self._rto_at = at = now_ns + self.timeout.rto_ns()
        if at < self._common.deadline_ns:
            self._common.deadline_ns = at

    def _set_probe(self, now_ns: int) -> None:
        self._probe_at = at = now_ns + self._probe_wait_ns
        if at < self._common.deadline_ns:
            self._common.deadline_ns = at

    def deadline_ns(self) -> int:
        """The earliest of the link's timers."""
        return min(self._rto_at, self._ack_at, self._probe_at)

    def tick(self, now_ns: int) -> int:
        """Act on the timers that have passed; returns the next deadline."""
        if now_ns >= self._ack_at:
            self._ack_at = NEVER
            self._request_ack(HINTS_ACK if self.ledger.partials else PLAIN_ACK, now=True)
        if now_ns >= self._rto_at:
            self._on_timeout(now_ns)
        if now_ns >= self._probe_at:
            self._probe_at = NEVER
            if self.paused or self.window.starved():
                self._probe_due = True
                self._probe_wait_ns = min(2 * self._probe_wait_ns, self._common.probe_max_ns)
                self._set_probe(now_ns)
                self._check_silence(now_ns, self._probe_wait_ns > self._common.probe_ns << LATE_TIMEOUTS)
                self.request_transmit(now=True)
        return self.deadline_ns()

    def _on_timeout(self, now_ns: int) -> None:
        window = self.window
        self._rto_at = NEVER
        if not window.unacked or not self.reachable:
            return
        self.counts.timeouts += 1
        self.timeouts += 1
        self.timeout.expired()
        asked_ns = self._waiting_since_ns
        if not window.expire() and not window.resend:
            if self.timeout.backoff >= UNPROVEN_TIMEOUTS:
                window.requeue()
            else:
                self._probe_due = True
        self._arm_rto(now_ns)
        self._waiting_since_ns = asked_ns
        if self.timeout.backoff % STALLED_TIMEOUTS == 0:
            self._common.events.append(LinkStalled(self.peer, self.timeout.backoff))
        self._check_silence(now_ns, self.timeouts >= LATE_TIMEOUTS)
        self.request_transmit(now=True)

    def _check_silence(self, now_ns: int, is_late: bool) -> None:
        silent_ns = now_ns - max(self.heard_ns, self._waiting_since_ns)
        if is_late:
            self._common.events.append(LinkLate(self.peer, silent_ns))
        if silent_ns >= self._common.silent_ns and not self._silence_reported:
            self._silence_reported = True
            self._common.events.append(PeerSilent(self.peer, silent_ns, self.timeouts))

    # ---- building frames -------------------------------------------------------------------------

    def _stamp(self) -> Stamp:
        """Epoch, ack and window, read together."""
        common, ledger = self._common, self.ledger
        window = ledger.window(common.floor)
        ledger.offered = ledger.delivered_charge + window
        if window < common.hungry_floor:
            common.tight.add(self)
        elif common.tight:
            common.tight.discard(self)
        return common.epoch, ledger.rx, window

    def _acked(self) -> None:
        """A frame with the current ack value is sent: no other ACK is owed."""
        self._ack_at = NEVER
        self._acked_charge = 0
        if self._ack_due == PLAIN_ACK:
            self._ack_due = NO_ACK

    def emit(self, out: list[tuple[int, tuple[Buffer, ...]]], now_ns: int) -> None:
        """Append (peer, parts) of each frame to transmit now to `out`. If `burst_bytes` are reached before all is sent, the
        link marks itself again (`request_transmit`)."""
        window = self.window
        window.clean = True
        if not self.reachable:
            return
        if not self.paused:
            batch = window.take_batch(now_ns) if window.queue else None
            if batch is not None:
                frame = frames.encode_messages(self._ident, self._stamp(), batch.first, batch.messages)
                out.append((self.peer, (frame,)))
                self.counts.frames_sent += 1
                self._acked()
                if self._rto_at == NEVER:
                    self._arm_rto(now_ns)
            elif window.queue or window.sealed or window.current or window.resend:
                self._emit_messages(out, now_ns)
        if self._ack_due:
            self._ack_due = NO_ACK
            ranges, pieces = self.ledger.hints(MAX_HINTS)
            frame = frames.encode_ack(self._ident, self._stamp(), ranges, pieces)
            self._acked()
            self.counts.acks_sent += 1
            out.append((self.peer, (frame,)))
        if self._probe_due:
            self._probe_due = False
            self.counts.probes_sent += 1
            out.append((self.peer, (frames.encode_probe(self._ident, self._stamp()),)))

    def emit_nack(self, out: list[tuple[int, tuple[Buffer, ...]]]) -> None:
        """Append a NACK to `out`: this port is frozen and a frame of the peer has come."""
        if self.reachable:
            self.counts.nacks_sent += 1
            out.append((self.peer, (frames.encode_nack(self._ident, self._common.epoch),)))

    def _emit_messages(self, out: list[tuple[int, tuple[Buffer, ...]]], now_ns: int) -> None:
        window, counts = self.window, self.counts
        budget = self._common.burst_bytes
        parts: tuple[Buffer, ...]
        before = len(out)
        while True:
            unit = window.next_unit()
            if unit is None:
                if window.sealed or window.queue:
                    self._ask_credit(now_ns)
                break
            flags = 0
            if unit.sends:
                flags = ANSWER
                counts.retransmitted += 1
            if isinstance(unit, Batch):
                parts = (
                    frames.encode_messages(self._ident, self._stamp(), unit.first, unit.messages, flags),
                )
            else:
                if self._common.checksum_payload:
                    flags |= CHECKED
                large = unit.large
                if unit.offset + unit.charge == large.size and window.flight_charge <= unit.offset:
                    # The last fragment of the only message in flight: the program may wait to use its buffer again. In
                    # a stream of messages, ACKs come by volume and, at its end, after the shorter delay.
                    flags |= ANSWER
                inline, payload = unit.parts()
                parts = frames.encode_fragment(
                    self._ident, self._stamp(), large.first, large.size, unit.offset, inline, payload, flags
                )
            window.sent(unit, now_ns)
            out.append((self.peer, parts))
            budget -= unit.charge
            if budget <= 0:
                self.request_transmit(now=True)
                break
        if len(out) > before:
            counts.frames_sent += len(out) - before
            self._acked()
            if self._rto_at == NEVER:
                self._arm_rto(now_ns)

    def _ask_credit(self, now_ns: int) -> None:
        """Messages wait for credit: ask for an ACK, once after each transmission, instead of waiting for the delayed one."""
        window = self.window
        if window.current is None and self._asked_credit_order != window.order:
            self._asked_credit_order = window.order
            self._probe_due = True
        if not window.unacked and self._probe_at == NEVER:
            self._waiting_since_ns = now_ns
            self._probe_wait_ns = self._common.probe_ns
            self._set_probe(now_ns)

    # ---- as a value ------------------------------------------------------------------------------

    def clone(self, common: LinkContext) -> Link:
        """An independent copy that belongs to `common`."""
        new = Link(
            self.peer, self._ident, common, self.window.clone(), self.ledger.clone(), self.timeout.copy()
        )
        shared = {"_common", "_ident", "counts", "ledger", "peer", "timeout", "window"}
        for name in self.__slots__:
            if name not in shared:
                setattr(new, name, getattr(self, name))
        new.counts = self.counts.copy()
        return new

    def key(self, credit: bool = True, nacks: bool = True, timing: bool = True) -> tuple[object, ...]:
        """The protocol state as a hashable value: which timers run, but not when they pass; no estimates, no counters.

        The timer of an ACK that is due anyhow is left out, since it changes nothing. The peer's epoch is left out without
        `nacks`, since only a NACK is compared with it.
        """
        window = self.window
        ack_due, ack_later, clean = self._ack_due, self._ack_at < NEVER, window.clean
        if ack_due == HINTS_ACK or (ack_due == PLAIN_ACK and not self.ledger.partials):
            ack_later = False
        elif ack_later and not timing and not self.ledger.partials:
            ack_due, ack_later, clean = PLAIN_ACK, False, False
        all_hinted = bool(window.unacked) and not window.flight and not window.resend
        return (
            self._rto_at < NEVER,
            ack_later,
            self._probe_at < NEVER,
            self.incarnation,
            self.reachable,
            self.paused,
            self.peer_epoch if nacks else 0,
            ack_due,
            clean,
            self._probe_due,
            min(self.timeout.backoff, UNPROVEN_TIMEOUTS) if all_hinted else 0,
            window.key(credit),
            self.ledger.key(credit),
        )

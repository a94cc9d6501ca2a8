"""Sender's side of one link: what was enqueued and is not acked yet.

A message goes through: queue → sealed → unacked → gone.

    queue     small messages since the last seal, one list; the hot path only appends here
    sealed    entries that wait for credit: a Batch (small messages that will share a frame) or a Large (one
              long message)
    unacked   entries handed to the wire at least once, in order; freed only when the cumulative ack passes
              them whole
    current   the Large that is being cut; what follows it in `sealed` waits

What is transmitted is a *unit*: a Batch, or a Fragment of a Large. A unit is READY, in FLIGHT, LOST (will be
sent again), HINTED (the peer says it has it: not sent again for now, not freed either) or DONE. Every
transmission gets a number (order); a unit counts as lost when something transmitted REORDER later arrived, or
something later arrived and it was sent long ago.

Credit is counted in charge: length + overhead of each message. `edge` is the charge that may have been sent
in total; it only grows. A single entry may always go when nothing is unacked and the edge has not been
reached, however large it is.

Not here: time (the caller passes it), timers, frames, epochs. Invariants: base ≤ first of unacked ≤ … ≤ tx;
acked_charge ≤ sent_charge; flight_charge is the charge of the units in `flight`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

from ckpt.transport.protocol.state import Buffer, Message

READY, FLIGHT, LOST, HINTED, DONE = 0, 1, 2, 3, 4
REORDER = 3


_COPIED = (
    "acked_charge",
    "base",
    "flight_charge",
    "order",
    "queued",
    "quiet",
    "sealed_charge",
    "sent_charge",
    "top_order",
    "tx",
    "urgent",
)


class Batch:
    """Small messages first … end-1 that share a frame."""

    __slots__ = ("charge", "end", "first", "messages", "order", "sends", "sent_ns", "state")

    def __init__(self, first: int, messages: list[bytes], charge: int) -> None:
        self.first = first
        self.end = first + len(messages)
        self.messages = messages
        self.charge = charge
        self.order = self.sends = self.sent_ns = 0
        self.state = READY


class Large:
    """One long message: data (travels inside heads) and payload (travels in parts of its own, never
    copied)."""

    __slots__ = ("charge", "cursor", "data", "end", "first", "payload", "pieces", "size")

    def __init__(self, first: int, data: Buffer, payload: memoryview, charge: int) -> None:
        self.first = first
        self.end = first + 1
        self.data = data
        self.payload = payload
        self.size = len(data) + len(payload)
        self.charge = charge
        self.cursor = 0
        self.pieces: list[Fragment] = []


class Fragment:
    """Bytes [offset, offset + charge) of a Large."""

    __slots__ = ("charge", "large", "offset", "order", "sends", "sent_ns", "state")

    def __init__(self, large: Large, offset: int, length: int) -> None:
        self.large = large
        self.offset = offset
        self.charge = length
        self.order = self.sends = self.sent_ns = 0
        self.state = READY

    def parts(self) -> tuple[Buffer, memoryview]:
        """Inline bytes and payload slice."""
        large = self.large
        start, stop, split = self.offset, self.offset + self.charge, len(large.data)
        inline = memoryview(large.data)[start:stop] if start < split else b""
        return inline, large.payload[max(start - split, 0) : max(stop - split, 0)]


Unit = Batch | Fragment
Entry = Batch | Large


class SendWindow:
    """See the module. `overhead`, `fragment` and `pipeline` in bytes; `edge` the credit presumed before the
    first ack."""

    __slots__ = (
        "acked_charge",
        "base",
        "current",
        "edge",
        "flight",
        "flight_charge",
        "fragment",
        "order",
        "overhead",
        "pipeline",
        "queue",
        "queued",
        "quiet",
        "resend",
        "sealed",
        "sealed_charge",
        "sent_charge",
        "top_order",
        "tx",
        "unacked",
        "urgent",
    )

    def __init__(self, *, overhead: int, fragment: int, pipeline: int, edge: int) -> None:
        self.overhead = overhead
        self.fragment = fragment
        self.pipeline = pipeline
        self.base = 0
        self.tx = 0
        self.queue: list[bytes] = []
        self.queued = 0
        self.sealed: deque[Entry] = deque()
        self.sealed_charge = 0
        self.unacked: deque[Entry] = deque()
        self.current: Large | None = None
        self.flight: dict[int, Unit] = {}
        self.flight_charge = 0
        self.resend: deque[Unit] = deque()
        self.order = 0
        self.top_order = 0
        self.sent_charge = 0
        self.acked_charge = 0
        self.edge = edge
        self.urgent = False
        """The first unit to send again goes out however much is in flight."""
        self.quiet = True
        """The endpoint does not know yet that this window has something to do (its mark, kept here for
        speed)."""

    # ---- enqueueing ------------------------------------------------------------------------------

    def seal(self) -> None:
        """Close the open batch: what comes next goes into another frame."""
        queue = self.queue
        if queue:
            self.sealed.append(Batch(self.tx - len(queue), queue, self.queued))
            self.sealed_charge += self.queued
            self.queue = []
            self.queued = 0

    def add_small(self, message: bytes) -> int:
        """Enqueue a message that shares a frame (`Endpoint.send` has this inline)."""
        self.queue.append(message)
        self.queued += len(message) + self.overhead
        self.tx += 1
        return self.tx - 1

    def add_large(self, data: Buffer, payload: memoryview) -> int:
        """Enqueue a message that travels in fragments; both buffers are kept by reference."""
        self.seal()
        large = Large(self.tx, data, payload, len(data) + len(payload) + self.overhead)
        self.sealed.append(large)
        self.sealed_charge += large.charge
        self.tx += 1
        return large.first

    def backlog(self) -> int:
        """Charge of everything that is not acked."""
        return self.queued + self.sealed_charge + self.sent_charge - self.acked_charge

    def messages(self) -> list[Message]:
        """base … tx-1, by reference."""
        found: list[Message] = []
        for entry in (*self.unacked, *self.sealed):
            if isinstance(entry, Batch):
                found += entry.messages
            elif len(entry.data):
                found.append((entry.data, entry.payload))
            else:
                found.append(entry.payload)
        found += self.queue
        return found

    # ---- transmission ----------------------------------------------------------------------------

    def next_unit(self) -> Unit | None:
        """What to put on the wire next, or None when there is nothing or no credit. Follow by `sent`."""
        resend = self.resend
        while resend:
            unit = resend[0]
            if unit.state == LOST:
                if self.flight_charge >= self.pipeline and not self.urgent:
                    return None
                self.urgent = False
                return resend.popleft()
            resend.popleft()
        large = self.current
        if large is None:
            sealed = self.sealed
            if not sealed:
                if not self.queue:
                    return None
                self.seal()
            entry = sealed[0]
            sent = self.sent_charge
            if sent + entry.charge > self.edge and (self.unacked or self.edge <= sent):
                return None
            sealed.popleft()
            self.sealed_charge -= entry.charge
            self.sent_charge = sent + entry.charge
            self.unacked.append(entry)
            if isinstance(entry, Batch):
                return entry
            self.current = large = entry
        if self.flight_charge >= self.pipeline:
            return None
        return self._cut(large)

    def take_batch(self, now_ns: int) -> Batch | None:
        """The common case in one step: nothing waits but the open batch, and its credit is there.

        What `next_unit` and `sent` would do; None when they have to.
        """
        charge = self.queued
        sent_charge = self.sent_charge + charge
        if self.sealed or self.current is not None or self.resend or sent_charge > self.edge:
            return None
        queue = self.queue
        batch = Batch(self.tx - len(queue), queue, charge)
        self.queue = []
        self.queued = 0
        self.sent_charge = sent_charge
        self.order = order = self.order + 1
        batch.order = order
        batch.sends = 1
        batch.sent_ns = now_ns
        batch.state = FLIGHT
        self.flight[order] = batch
        self.flight_charge += charge
        self.unacked.append(batch)
        return batch

    def _cut(self, large: Large) -> Fragment:
        offset = large.cursor
        stop = offset + self.fragment
        if offset < len(large.data):
            stop += len(large.data)  # the inline bytes do not count: payload slices stay aligned
        stop = min(stop, large.size)
        unit = Fragment(large, offset, stop - offset)
        large.pieces.append(unit)
        large.cursor = stop
        if stop == large.size:
            self.current = None
        return unit

    def sent(self, unit: Unit, now_ns: int) -> None:
        """The unit went out."""
        self.order = order = self.order + 1
        unit.order = order
        unit.sends += 1
        unit.sent_ns = now_ns
        unit.state = FLIGHT
        self.flight[order] = unit
        self.flight_charge += unit.charge

    def starved(self) -> bool:
        """Something waits and only the peer's credit is missing, with nothing on the way that would bring
        news of it."""
        return not self.unacked and bool(self.sealed or self.queue)

    # ---- news from the peer ----------------------------------------------------------------------

    def acknowledge(self, ack: int, now_ns: int) -> int:
        """Free everything below `ack` (base < ack ≤ tx). Returns a round-trip sample in ns, or 0."""
        sample = 0
        unacked = self.unacked
        while unacked and unacked[0].end <= ack:
            entry = unacked.popleft()
            self.acked_charge += entry.charge
            if isinstance(entry, Batch):
                if entry.state == FLIGHT:
                    del self.flight[entry.order]
                    self.flight_charge -= entry.charge
                    if entry.sends == 1:
                        sample = now_ns - entry.sent_ns
                entry.state = DONE
                if entry.order > self.top_order:
                    self.top_order = entry.order
            else:
                sample = self._settle(entry.pieces, DONE, now_ns) or sample
                entry.pieces.clear()  # they refer back to it: only a collection would free the payload
                if entry is self.current:
                    self.current = None
        self.base = ack
        if unacked:
            if unacked[0].first < ack:
                self._trim(unacked[0], ack, sent=True)
        elif self.sealed or self.queue:
            self._skip(ack)
        return sample

    def _skip(self, ack: int) -> None:
        """Messages acked before they were sent: the peer's image had them when this state was restored."""
        if self.queue and self.tx - len(self.queue) < ack:
            self.seal()
        sealed = self.sealed
        while sealed and sealed[0].end <= ack:
            entry = sealed.popleft()
            self.sealed_charge -= entry.charge
        if sealed and sealed[0].first < ack:
            self._trim(sealed[0], ack, sent=False)

    def _trim(self, entry: Entry, ack: int, *, sent: bool) -> None:
        assert isinstance(entry, Batch)
        gone = entry.messages[: ack - entry.first]
        entry.messages = entry.messages[ack - entry.first :]
        entry.first = ack
        charge = sum(map(len, gone)) + self.overhead * len(gone)
        entry.charge -= charge
        if sent:
            self.acked_charge += charge
            if entry.state == FLIGHT:
                self.flight_charge -= charge
        else:
            self.sealed_charge -= charge

    def _settle(self, units: Iterable[Unit], state: int, now_ns: int) -> int:
        sample = 0
        for unit in units:
            if unit.state == FLIGHT:
                del self.flight[unit.order]
                self.flight_charge -= unit.charge
                if unit.sends == 1:
                    sample = now_ns - unit.sent_ns
            unit.state = state
            if unit.order > self.top_order:
                self.top_order = unit.order
        return sample

    def hint(
        self, ranges: Sequence[tuple[int, int]], pieces: Sequence[tuple[int, int, int]], now_ns: int
    ) -> tuple[bool, int]:
        """The peer holds these already: do not send them again for now. Returns (anything new, round-trip
        sample or 0)."""
        units: list[Unit] = []
        for unit in (*self.flight.values(), *self.resend):
            if isinstance(unit, Batch):
                if any(a <= unit.first and unit.end <= b for a, b in ranges):
                    units.append(unit)
            else:
                first, a, b = unit.large.first, unit.offset, unit.offset + unit.charge
                if any(x <= first < y for x, y in ranges) or any(
                    s == first and x <= a and b <= y for s, x, y in pieces
                ):
                    units.append(unit)
        return bool(units), self._settle(units, HINTED, now_ns)

    def find_lost(self, now_ns: int, reorder_ns: int) -> int:
        """Mark as lost what later transmissions overtook. Returns how many units."""
        top = self.top_order
        lost: list[Unit] = []
        for order, unit in self.flight.items():
            if order + REORDER <= top or (order < top and unit.sent_ns + reorder_ns <= now_ns):
                lost.append(unit)
            else:
                break
        for unit in lost:
            self._lose(unit)
        return len(lost)

    def _lose(self, unit: Unit) -> None:
        del self.flight[unit.order]
        self.flight_charge -= unit.charge
        unit.state = LOST
        self.resend.append(unit)

    def expire(self) -> bool:
        """The retransmission timeout passed: send the oldest unit in flight again. False: nothing is in
        flight."""
        for unit in self.flight.values():
            self._lose(unit)
            self.resend.rotate(1)
            self.urgent = True
            return True
        return False

    def requeue(self) -> None:
        """Nothing the peer hinted at holds any more: send everything unacked again."""
        self.flight.clear()
        self.flight_charge = 0
        self.resend.clear()
        for entry in self.unacked:
            for unit in (entry,) if isinstance(entry, Batch) else entry.pieces:
                unit.state = LOST
                self.resend.append(unit)

    # ---- as a value ------------------------------------------------------------------------------

    def clone(self) -> SendWindow:
        """An independent copy; messages are shared, being immutable."""
        new = SendWindow(
            overhead=self.overhead, fragment=self.fragment, pipeline=self.pipeline, edge=self.edge
        )
        for name in _COPIED:
            setattr(new, name, getattr(self, name))
        new.queue = self.queue.copy()
        copies: dict[int, Unit] = {}
        new.sealed.extend(_copy_entry(entry, copies) for entry in self.sealed)
        for entry in self.unacked:
            copy = _copy_entry(entry, copies)
            new.unacked.append(copy)
            if entry is self.current:
                assert isinstance(copy, Large)
                new.current = copy
        new.flight = {order: copies[id(unit)] for order, unit in self.flight.items()}
        new.resend.extend(copies[id(unit)] for unit in self.resend if unit.state == LOST)
        return new

    def key(self, credit: bool = True) -> tuple[object, ...]:
        """Hashable: contents and states, without times and numbers of transmissions."""
        return (
            self.base,
            self.tx,
            tuple(self.queue),
            tuple(map(_entry_key, self.sealed)),
            tuple(map(_entry_key, self.unacked)),
            self.edge - self.acked_charge if credit else 0,
        )


def _copy_entry(entry: Entry, copies: dict[int, Unit]) -> Entry:
    new: Entry
    if isinstance(entry, Batch):
        new = Batch(entry.first, entry.messages, entry.charge)
        _copy_unit(entry, new, copies)
        return new
    new = Large(entry.first, entry.data, entry.payload, entry.charge)
    new.cursor = entry.cursor
    for piece in entry.pieces:
        copy = Fragment(new, piece.offset, piece.charge)
        _copy_unit(piece, copy, copies)
        new.pieces.append(copy)
    return new


def _copy_unit(unit: Unit, copy: Unit, copies: dict[int, Unit]) -> None:
    copy.order, copy.sends, copy.sent_ns, copy.state = unit.order, unit.sends, unit.sent_ns, unit.state
    copies[id(unit)] = copy


def _entry_key(entry: Entry) -> tuple[object, ...]:
    if isinstance(entry, Batch):
        return entry.first, entry.state, tuple(entry.messages)
    states = tuple((piece.offset, piece.state) for piece in entry.pieces)
    return entry.first, bytes(entry.data), bytes(entry.payload), states

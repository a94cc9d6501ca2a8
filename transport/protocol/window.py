"""Sender's side of one link: the messages that are enqueued and not acknowledged yet.

A message goes through: queue → sealed → unacked → gone.

    queue     small messages since the last seal, one list; the hot path only appends here
    sealed    entries that wait for credit: a Batch (small messages that will share a frame) or a Large (one
              long message)
    unacked   entries handed to the wire at least once, in order; an entry is freed only when the cumulative
              acknowledgement covers all of it
    current   the Large that is being cut into fragments; the entries after it in `sealed` wait

A *unit* is transmitted as one frame: a Batch, or a Fragment of a Large (units.py). A unit is READY, in FLIGHT, LOST (it
will be sent again), HINTED (the peer reports that it has the unit, which is not sent again for now, and not freed either) or
DONE. Every transmission gets a number (its order). A unit counts as lost when a transmission at least REORDER numbers later
has arrived, or when any later one has arrived and the unit was sent more than `reorder_ns` ago (like RACK, RFC 8985).

Credit is counted in charge: length + overhead of each message. `edge` is the total charge that may have been sent since
the link's start; it only grows. One entry of any size may be sent when nothing is unacknowledged and less than the edge
has been sent.

This module is long because a message changes its state only here, from its sending to its acknowledgement.

What does not belong here: time (the caller passes it), timers, frames, epochs. Invariants: base ≤ first of unacked ≤ … ≤
tx; acked_charge ≤ sent_charge; flight_charge is the charge of the units in `flight`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

from ckpt.transport.integers import integers
from ckpt.transport.protocol.state import Buffer, Message
from ckpt.transport.protocol.units import (
    DONE,
    FLIGHT,
    HINTED,
    LOST,
    Batch,
    Entry,
    Fragment,
    Large,
    Unit,
    copy_entry,
    entry_key,
)

REORDER = 3

_COPIED = (
    *("acked_charge", "base", "clean", "flight_charge", "order", "queued"),
    *("sealed_charge", "sent_charge", "top_order", "tx", "urgent"),
)
"""Numbers and flags of a window, which `clone` takes as they are."""


@integers(
    *("acked_charge", "base", "edge", "flight_charge", "fragment", "order", "overhead", "pipeline", "queued"),
    *("sealed_charge", "sent_charge", "top_order", "tx"),
)
class SendWindow:
    """Sender's side of one link; see the module. `overhead`, `fragment` and `pipeline` in bytes; `edge`: the credit
    assumed before the first acknowledgement."""

    __slots__ = (
        "acked_charge",
        "base",
        "clean",
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
        """The next LOST unit is sent even if `flight_charge` has reached `pipeline`."""
        self.clean = True
        """The link is not in the endpoint's `dirty` list, the links with something to transmit (kept here for speed)."""

    # ---- enqueueing ------------------------------------------------------------------------------

    def seal(self) -> None:
        """Close the open batch: later messages go into another frame."""
        queue = self.queue
        if queue:
            self.sealed.append(Batch(self.tx - len(queue), queue, self.queued))
            self.sealed_charge += self.queued
            self.queue = []
            self.queued = 0

    def add_small(self, message: bytes) -> int:
        """Enqueue a message that shares a frame; return its sequence number (`Endpoint.send` has this code inline)."""
        self.queue.append(message)
        self.queued += len(message) + self.overhead
        self.tx += 1
        return self.tx - 1

    def add_large(self, data: Buffer, payload: memoryview) -> int:
        """Enqueue a message that is sent in fragments; return its sequence number. Both buffers are kept by reference."""
        self.seal()
        large = Large(self.tx, data, payload, len(data) + len(payload) + self.overhead)
        self.sealed.append(large)
        self.sealed_charge += large.charge
        self.tx += 1
        return large.first

    def backlog(self) -> int:
        """Charge of all messages that are not acknowledged."""
        return self.queued + self.sealed_charge + self.sent_charge - self.acked_charge

    def messages(self) -> list[Message]:
        """The messages with the sequence numbers base … tx-1, by reference."""
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
        """The unit to send next; None when there is none, no credit, or too much in flight. The caller then calls `sent`."""
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
        """Do `next_unit` and `sent` in one step in the common case: only the open batch waits, and there is credit for it.

        None in all other cases: the caller then uses these two.
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
        """Take note that `unit` was handed to the wire."""
        self.order = order = self.order + 1
        unit.order = order
        unit.sends += 1
        unit.sent_ns = now_ns
        unit.state = FLIGHT
        self.flight[order] = unit
        self.flight_charge += unit.charge

    def starved(self) -> bool:
        """Do messages wait for credit while nothing is unacknowledged? Then no acknowledgement is under way that could
        bring credit."""
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
                sample = self._mark(entry.pieces, DONE, now_ns) or sample
                entry.pieces.clear()  # a reference cycle: without this, only the garbage collector would free the payload
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
        """Free messages that are acknowledged before they were sent: after a restart the peer's image had them already."""
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

    def _mark(self, units: Iterable[Unit], state: int, now_ns: int) -> int:
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
        """Mark units that the peer reports to have as HINTED. Returns (was any unit marked, round-trip sample in ns or 0).

        `ranges`: (start, stop) of sequence numbers; `pieces`: (sequence, start, stop) in bytes.
        """
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
        return bool(units), self._mark(units, HINTED, now_ns)

    def find_lost(self, now_ns: int, reorder_ns: int) -> int:
        """Mark the units that later transmissions overtook as LOST; return their number. See the module for the rule."""
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
        """The retransmission timeout passed: mark the oldest unit in flight as LOST, first in the queue to send again.
        False: nothing is in flight."""
        for unit in self.flight.values():
            self._lose(unit)
            self.resend.rotate(1)
            self.urgent = True
            return True
        return False

    def requeue(self) -> None:
        """The peer's hints are no longer valid: send all unacknowledged units again."""
        self.flight.clear()
        self.flight_charge = 0
        self.resend.clear()
        for entry in self.unacked:
            for unit in (entry,) if isinstance(entry, Batch) else entry.pieces:
                unit.state = LOST
                self.resend.append(unit)

    def set_fragment(self, nbytes: int) -> None:
        """Cut long messages into fragments of `nbytes` from now on; those that were cut into longer ones are cut again, and
        sent again."""
        self.fragment = nbytes
        for entry in self.unacked:
            if isinstance(entry, Large) and any(
                piece.charge > nbytes + len(entry.data) for piece in entry.pieces
            ):
                self._cut_again(entry)

    def _cut_again(self, large: Large) -> None:
        for piece in large.pieces:
            if piece.state == FLIGHT:
                del self.flight[piece.order]
                self.flight_charge -= piece.charge
            piece.state = DONE
        large.pieces.clear()
        current, upto, large.cursor = self.current, large.cursor, 0
        while large.cursor < upto:
            unit = self._cut(large)
            unit.state = LOST
            self.resend.append(unit)
        self.current = None if current is large and large.cursor == large.size else current

    # ---- as a value ------------------------------------------------------------------------------

    def clone(self) -> SendWindow:
        """An independent copy; it shares the messages, which are immutable."""
        new = SendWindow(
            overhead=self.overhead, fragment=self.fragment, pipeline=self.pipeline, edge=self.edge
        )
        for name in _COPIED:
            setattr(new, name, getattr(self, name))
        new.queue = self.queue.copy()
        copies: dict[int, Unit] = {}
        new.sealed.extend(copy_entry(entry, copies) for entry in self.sealed)
        for entry in self.unacked:
            copy = copy_entry(entry, copies)
            new.unacked.append(copy)
            if entry is self.current:
                assert isinstance(copy, Large)
                new.current = copy
        new.flight = {order: copies[id(unit)] for order, unit in self.flight.items()}
        new.resend.extend(copies[id(unit)] for unit in self.resend if unit.state == LOST)
        return new

    def key(self, credit: bool = True) -> tuple[object, ...]:
        """Contents and states as a hashable value, to compare states; without times and numbers of transmissions."""
        return (
            self.base,
            self.tx,
            tuple(self.queue),
            tuple(map(entry_key, self.sealed)),
            tuple(map(entry_key, self.unacked)),
            self.edge - self.acked_charge if credit else 0,
        )

"""One direction of a link, its sender's window and its receiver's ledger, against an oracle that keeps everything.

Hypothesis draws what happens: messages are enqueued, frames and acks are sent, arrive in any order, twice or never,
timers pass, the receiver takes, the sender's knowledge is thrown away as when its peer begins a new life. The oracle
is a list of all that was ever enqueued. At the end the network behaves, and everything has to arrive.
"""

from __future__ import annotations

from random import Random
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ckpt.transport.protocol.ledger import Ledger
from ckpt.transport.protocol.units import FLIGHT, HINTED, LOST, Batch, Unit
from ckpt.transport.protocol.window import SendWindow

OVERHEAD, FRAGMENT, CREDIT = 10, 64, 900
places = st.integers(0, 1 << 16)


class LinkMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.window = SendWindow(overhead=OVERHEAD, fragment=FRAGMENT, pipeline=400, edge=CREDIT)
        self.ledger = Ledger(credit=CREDIT, limit=CREDIT, overhead=OVERHEAD)
        self.enqueued: list[bytes] = []
        self.taken: list[bytes] = []
        self.frames: list[tuple[Any, ...]] = []
        self.acks: list[tuple[int, int, Any, Any]] = []
        self.now_ns = 0

    # ---- the sender

    def _content(self, length: int) -> bytes:
        return (len(self.enqueued).to_bytes(4, "little") * (length // 4 + 1))[:length]

    @rule(lengths=st.lists(st.integers(0, 40), min_size=1, max_size=5))
    def enqueue_short_messages(self, lengths: list[int]) -> None:
        for length in lengths:
            message = self._content(length)
            assert self.window.add_small(message) == len(self.enqueued)
            self.enqueued.append(message)

    @rule(length=st.integers(1, 300), inline=st.integers(0, 50))
    def enqueue_a_long_message(self, length: int, inline: int) -> None:
        message = self._content(length + inline)
        assert self.window.add_large(message[:inline], memoryview(message)[inline:]) == len(self.enqueued)
        self.enqueued.append(message)

    @precondition(lambda self: self.window.base < self.window.tx)
    @rule(most=st.integers(1, 6))
    def transmit(self, most: int) -> None:
        for _ in range(most):
            if self.window.queue and most % 2:
                batch = self.window.take_batch(self.now_ns)
                if batch is not None:
                    self._put_on_the_wire(batch)
            unit = self.window.next_unit()
            if unit is not None:
                self.window.sent(unit, self.now_ns)
                self._put_on_the_wire(unit)

    def _put_on_the_wire(self, unit: Any) -> None:
        if isinstance(unit, Batch):
            self.frames.append(("batch", unit.first, list(unit.messages)))
        else:
            inline, payload = map(bytes, unit.parts())
            self.frames.append(("piece", unit.large.first, unit.large.size, unit.offset, inline, payload))

    @rule()
    def the_timeout_passes(self) -> None:
        in_flight = bool(self.window.flight)
        assert self.window.expire() is in_flight

    @rule(later_ns=st.integers(0, 100))
    def time_passes(self, later_ns: int) -> None:
        self.now_ns += later_ns
        self.window.find_lost(self.now_ns, 50)

    @precondition(lambda self: self.acks)
    @rule(place=places, again=st.booleans())
    def an_ack_arrives(self, place: int, again: bool) -> None:
        self._acknowledge(self.acks[place % len(self.acks)])
        if not again:
            del self.acks[place % len(self.acks)]

    def _acknowledge(self, ack: tuple[int, int, Any, Any]) -> None:
        value, room, ranges, pieces = ack
        window = self.window
        if value > window.base:
            window.acknowledge(value, self.now_ns)
        if value == window.base:
            window.edge = max(window.edge, window.acked_charge + room)
        window.hint(ranges, pieces, self.now_ns)

    # ---- the receiver

    @precondition(lambda self: self.frames)
    @rule(
        chosen=st.lists(places, min_size=1, max_size=6),
        again=st.booleans(),
        take=st.booleans(),
        ack=st.booleans(),
    )
    def frames_arrive(self, chosen: list[int], again: bool, take: bool, ack: bool) -> None:
        for place in chosen:
            if self.frames:
                self._deliver(self.frames[place % len(self.frames)])
                if not again:
                    del self.frames[place % len(self.frames)]
        if take:
            self.taken += map(bytes, self.ledger.take())
        if ack:
            self.an_ack_is_sent(4)

    def _deliver(self, frame: tuple[Any, ...]) -> None:
        ledger = self.ledger
        if frame[0] == "batch":
            ledger.accept(frame[1], list(frame[2]), ledger.charge(frame[2]))
        else:
            ledger.accept_piece(*frame[1:], bytearray)

    @precondition(lambda self: self.frames)
    @rule(chosen=st.lists(places, min_size=1, max_size=3))
    def frames_are_lost(self, chosen: list[int]) -> None:
        for place in chosen:
            if self.frames:
                del self.frames[place % len(self.frames)]

    @rule()
    def take(self) -> None:
        self.taken += map(bytes, self.ledger.take())

    @precondition(lambda self: self.ledger.unconsumed)
    @rule()
    def the_program_consumes_all(self) -> None:
        self.ledger.unconsumed = 0

    @rule(most=st.integers(0, 4))
    def an_ack_is_sent(self, most: int) -> None:
        ranges, pieces = self.ledger.hints(most)
        self.acks.append((self.ledger.rx, self.ledger.window(0), ranges, pieces))

    # ---- both

    @rule(seed=st.integers(0, 1 << 32), rounds=st.integers(1, 12))
    def traffic(self, seed: int, rounds: int) -> None:
        """A stretch of ordinary life on a bad network, so that the other rules meet links in the middle of things."""
        random = Random(seed)
        for _ in range(rounds):
            if random.random() < 0.5:
                self.enqueue_short_messages([random.randrange(41) for _ in range(random.randrange(1, 4))])
            if random.random() < 0.3:
                self.enqueue_a_long_message(random.randrange(1, 301), random.randrange(51))
            self.transmit(random.randrange(1, 7))
            if self.frames:
                chosen = [random.randrange(1 << 16) for _ in range(random.randrange(1, 8))]
                self.frames_arrive(
                    chosen, random.random() < 0.3, random.random() < 0.4, random.random() < 0.7
                )
            if self.acks and random.random() < 0.6:
                self.an_ack_arrives(random.randrange(1 << 16), random.random() < 0.3)
            if self.frames and random.random() < 0.2:
                self.frames_are_lost([random.randrange(1 << 16)])
            if random.random() < 0.3:
                self.the_timeout_passes()
            if random.random() < 0.5:
                self.time_passes(random.randrange(60))
            if random.random() < 0.5:
                self.ledger.unconsumed = 0
            if random.random() < 0.1:
                self.the_sender_goes_on_from_an_image()
            self.nothing_is_lost_doubled_reordered_or_changed()
            self.what_is_counted_is_what_is_there()

    @rule()
    def the_peers_next_incarnation(self) -> None:
        """What `Link.meet` does at both ends; what is under way is dropped by its incarnation."""
        self.ledger.forget_undelivered()
        self.window.requeue()
        self.window.edge = max(self.window.edge, self.window.sent_charge)
        self.frames.clear()
        self.acks.clear()

    @rule()
    def the_sender_goes_on_from_an_image(self) -> None:
        """A new window, in which messages share frames otherwise than before: acks may end in the middle of one."""
        old = self.window
        new = SendWindow(overhead=OVERHEAD, fragment=FRAGMENT, pipeline=400, edge=CREDIT)
        new.base = new.tx = old.base
        for message in old.messages():
            if isinstance(message, tuple):
                new.add_large(message[0], memoryview(message[1]))
            elif len(message) > 40:
                new.add_large(b"", memoryview(message))
            else:
                new.add_small(bytes(message))
        self.window = new
        self.ledger.forget_undelivered()
        self.frames.clear()
        self.acks.clear()

    @rule()
    def go_on_with_copies(self) -> None:
        window, ledger = self.window.clone(), self.ledger.clone()
        assert window.key() == self.window.key() and ledger.key() == self.ledger.key()
        self.window, self.ledger = window, ledger

    # ---- what holds

    @invariant()
    def nothing_is_lost_doubled_reordered_or_changed(self) -> None:
        window, ledger = self.window, self.ledger
        assert self.taken == self.enqueued[: len(self.taken)]
        assert len(self.taken) == ledger.rx
        assert window.base <= ledger.rx <= ledger.arrived <= window.tx == len(self.enqueued)
        kept = [
            b"".join(map(bytes, message)) if isinstance(message, tuple) else bytes(message)
            for message in window.messages()
        ]
        assert kept == self.enqueued[window.base :]

    @invariant()
    def what_is_counted_is_what_is_there(self) -> None:
        window, ledger = self.window, self.ledger
        assert window.backlog() == sum(map(len, self.enqueued[window.base :])) + OVERHEAD * (
            window.tx - window.base
        )
        assert window.flight_charge == sum(unit.charge for unit in window.flight.values())
        assert all(unit.state == FLIGHT for unit in window.flight.values())
        for unit in self._units():
            assert unit.state != LOST or unit in window.resend, "it is never sent again"
            assert unit.state != FLIGHT or window.flight[unit.order] is unit
        assert window.acked_charge <= window.sent_charge
        assert all(sequence >= ledger.arrived for sequence in ledger.partials)
        assert ledger.inbox_charge == ledger.charge(ledger.inbox)
        assert ledger.early_charge == sum(ledger.charge(messages) for messages in ledger.early.values())
        assert ledger.early_charge <= CREDIT + 350 + OVERHEAD, "what waits beyond a gap is bounded"

    def _units(self) -> list[Unit]:
        return [
            unit
            for entry in self.window.unacked
            for unit in ((entry,) if isinstance(entry, Batch) else entry.pieces)
        ]

    def teardown(self) -> None:
        """From here on nothing is lost, and the receiver takes what comes: all of it arrives, and is acked."""
        for _ in range(20 * len(self.enqueued) + 40):
            for frame in self.frames:
                self._deliver(frame)
            self.frames.clear()
            self.take()
            self.ledger.unconsumed = 0
            self._acknowledge((self.ledger.rx, self.ledger.window(0), *self.ledger.hints(8)))
            if self.window.base == self.window.tx:
                break
            while (unit := self.window.next_unit()) is not None:
                self.window.sent(unit, self.now_ns)
                self._put_on_the_wire(unit)
            if not self.frames and not self.window.expire():
                assert all(unit.state == HINTED for unit in self._units()), "nothing will ever move again"
                self.window.requeue()  # as `Link` does when all that is left was only hinted at
        assert self.taken == self.enqueued and self.window.base == self.window.tx
        self.what_is_counted_is_what_is_there()


TestLink = LinkMachine.TestCase
TestLink.settings = settings(max_examples=120, stateful_step_count=30, deadline=None)

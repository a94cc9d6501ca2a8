"""The port over a wire in memory and a clock moved by hand.

Flushing, congestion, timers, images, failures.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from ckpt.compat import stdlib
from ckpt.transport.driver.port import Port
from ckpt.transport.errors import TransportError, UnknownRank
from ckpt.transport.protocol.endpoint import EndpointConfig
from ckpt.transport.protocol.events import Event, ImageDue, LinkStalled
from tests.unit.transport.wires.memory_wire import Clock, MemoryNetwork, MemoryWire

SMALL = {"ack_delay_ns": 10_000_000, "rto_min_ns": 100_000_000, "rto_initial_ns": 100_000_000}


@dataclass
class Pair:
    """Ports of ranks 0 and 1, connected, with what they were told."""

    clock: Clock = field(default_factory=Clock)
    network: MemoryNetwork = field(default_factory=MemoryNetwork)
    capacity: int = 1000
    config: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.wires = [MemoryWire(self.network, str(rank), self.capacity) for rank in range(2)]
        self.ports = [self._open(rank) for rank in range(2)]
        self.received: list[list[bytes]] = [[], []]
        self.events: list[list[Event]] = [[], []]
        for rank, port in enumerate(self.ports):
            port.on_messages = lambda source, messages, rank=rank: self._take(rank, source, messages)
            port.on_event = self.events[rank].append
            port.lock.acquire()
            port.set_peer(1 - rank, str(1 - rank), 0)

    def _open(self, rank: int) -> Port:
        config = EndpointConfig(job=1, rank=rank, size=2, **(SMALL | self.config))
        return Port(config, self.wires[rank], clock=self.clock, spin_longest_ns=0)

    def _take(self, rank: int, source: int, messages: list[Any]) -> None:
        self.received[rank] += map(bytes, messages)
        self.ports[rank].endpoint.consumed(source, sum(map(len, messages)), len(messages))

    def settle(self, milliseconds: int = 0) -> None:
        """Both make progress until nothing changes, then again every 5 ms for a while."""
        for _ in range(1 + milliseconds // 5):
            while self.ports[0].progress() | self.ports[1].progress():
                pass
            self.clock.advance_ms(5)


def test_a_message_on_an_idle_link_leaves_at_once() -> None:
    pair = Pair()
    pair.ports[0].send(1, b"hello")
    assert len(pair.wires[0].sent) == 1


def test_messages_on_a_busy_link_gather_until_somebody_makes_progress() -> None:
    pair = Pair()
    for index in range(32):
        pair.ports[0].send(1, b"%d" % index)
    assert len(pair.wires[0].sent) == 1
    pair.ports[0].progress()
    assert len(pair.wires[0].sent) == 2
    pair.settle()
    assert pair.received[1] == [b"%d" % index for index in range(32)]


def test_a_full_frame_leaves_without_progress() -> None:
    pair = Pair()
    for _ in range(200):
        pair.ports[0].send(1, bytes(1000))
    assert len(pair.wires[0].sent) >= 2


def test_long_messages_and_two_part_messages_arrive_whole() -> None:
    pair = Pair()
    data, payload = os.urandom(40), bytearray(os.urandom(2_000_000))
    pair.ports[0].send(1, data, payload)
    pair.ports[0].send(1, b"short", b" and sweet")
    pair.settle(50)
    assert pair.received[1] == [data + payload, b"short and sweet"]


def test_a_message_to_oneself_is_delivered_by_the_next_progress() -> None:
    pair = Pair()
    pair.ports[0].send(0, b"me")
    assert pair.ports[0].progress()
    assert pair.received[0] == [b"me"]
    assert pair.wires[0].sent == []


def test_a_congested_wire_delays_and_keeps_the_order() -> None:
    pair = Pair(capacity=1)
    messages = [b"%d" % index for index in range(20)]
    for message in messages:
        pair.ports[0].send(1, message)
        pair.ports[0].progress()
    assert pair.ports[0].counters()["frames_refused"] > 0
    pair.settle(200)
    assert pair.received[1] == messages
    assert pair.ports[0].endpoint.idle()


def test_what_was_refused_is_forgotten_when_the_peer_moves_and_sent_again_by_the_protocol() -> None:
    pair = Pair(capacity=1)
    pair.ports[0].send(1, b"first")
    pair.ports[0].send(1, b"second")
    pair.ports[0].progress()
    pair.network.boxes["1"].clear()
    pair.ports[0].set_peer(1, "1", 0)
    pair.settle(400)
    assert pair.received[1] == [b"first", b"second"]


def test_a_lost_frame_is_sent_again_when_its_time_has_come() -> None:
    pair = Pair()
    pair.ports[0].send(1, b"lost")
    pair.network.boxes["1"].clear()
    pair.settle(50)
    assert pair.received[1] == []
    pair.settle(100)
    assert pair.received[1] == [b"lost"]
    assert pair.ports[0].counters()["retransmitted"] == 1


def test_acks_are_delayed_but_not_forgotten() -> None:
    pair = Pair()
    pair.ports[0].send(1, b"x")
    pair.ports[1].progress()
    assert pair.wires[1].sent == []
    pair.clock.advance_ms(11)
    pair.ports[1].progress()
    pair.ports[0].progress()
    assert pair.ports[0].endpoint.idle()


def test_an_epoch_stamp_asks_for_the_image_and_holds_the_message_until_it_is_taken() -> None:
    pair = Pair()
    pair.ports[0].advance(1)
    pair.ports[0].send(1, b"from the future")
    pair.settle()
    assert pair.received[1] == []
    assert pair.events[1] == [ImageDue(1, 0)]
    port = pair.ports[1]
    port.freeze()
    assert port.snapshot().vectors() == {}
    port.thaw(1)
    assert port.endpoint.epoch == 1
    pair.settle(50)
    assert pair.received[1] == [b"from the future"]


def test_an_epoch_is_published_before_its_first_message_is_delivered() -> None:
    pair = Pair()
    port = pair.ports[1]
    seen: list[int] = []
    port.on_messages = lambda source, messages: seen.append(port.published_epoch.value)
    pair.ports[0].advance(1)
    pair.ports[0].send(1, b"from the future")
    pair.settle()
    assert port.published_epoch.value == 0
    port.publish(1)  # the image is about to be captured
    port.freeze()
    assert (port.published_epoch.value, port.endpoint.epoch) == (1, 0)
    port.thaw()  # it could not be
    port.advance(1)
    pair.settle(50)
    assert seen == [1]
    port.thaw(2)
    assert port.published_epoch.value == port.endpoint.epoch == 2


def test_a_frozen_port_delivers_nothing_and_loses_nothing() -> None:
    pair = Pair()
    pair.ports[1].freeze()
    pair.ports[0].send(1, b"x")
    pair.settle()
    assert pair.received[1] == []
    pair.ports[1].thaw()
    pair.settle(20)
    assert pair.received[1] == [b"x"]
    assert pair.ports[0].endpoint.idle()


def test_a_restored_port_sends_again_what_was_not_acked() -> None:
    pair = Pair()
    pair.ports[0].send(1, b"one")
    pair.settle(50)
    pair.ports[0].send(1, b"two")
    state = pair.ports[0].snapshot()
    pair.network.boxes["1"].clear()
    config = EndpointConfig(job=1, rank=0, size=2, incarnation=1, **SMALL)
    restored = Port(config, pair.wires[0], state=state, clock=pair.clock, spin_longest_ns=0)
    restored.lock.acquire()
    restored.set_peer(1, "1", 0)
    pair.ports[1].set_peer(0, "0", 1)
    restored.on_messages = lambda source, messages: None
    pair.ports[0] = restored
    pair.settle(20)
    assert pair.received[1] == [b"one", b"two"]


def test_the_control_descriptor_is_served_by_progress() -> None:
    pair = Pair()
    read_fd, write_fd = os.pipe()
    port = pair.ports[0]
    told: list[bytes] = []
    port.on_control = lambda: told.append(os.read(read_fd, 100))
    port.control_fd = read_fd
    os.write(write_fd, b"checkpoint")
    pair.clock.advance_ms(3)
    assert port.progress()
    assert told == [b"checkpoint"]
    port.control_fd = None
    os.write(write_fd, b"unheard")
    pair.clock.advance_ms(3)
    assert not port.progress()


def test_a_failure_told_by_the_helper_is_raised_once() -> None:
    port = Pair().ports[0]
    port.fail(ValueError("in the helper"))
    with pytest.raises(ValueError, match="in the helper"):
        port.progress()
    port.progress()


def test_a_failure_of_the_helper_does_not_swallow_a_deferred_signal() -> None:
    port = Pair().ports[0]
    fired: list[str] = []
    port.interrupts.fire = lambda: fired.append("handler")  # type: ignore[method-assign]
    port.fail(ValueError("in the helper"))
    with pytest.raises(ValueError, match="in the helper"):
        port.progress()
    assert not fired
    port.progress()
    assert fired == ["handler"]


def test_messages_nobody_takes_are_an_error() -> None:
    pair = Pair()
    port = Port(EndpointConfig(job=1, rank=0, size=1), pair.wires[0], clock=pair.clock)
    port.send(0, b"x")
    with pytest.raises(TransportError, match=r"nobody set Port\.on_messages"):
        port.progress()


def test_a_rank_that_does_not_exist() -> None:
    with pytest.raises(UnknownRank):
        Pair().ports[0].send(2, b"x")


def test_close_is_idempotent_and_ends_the_helper() -> None:
    port = Pair().ports[0]
    port.lock.release()
    before = set(stdlib.threads_by_ident().values())
    port.start_helper()
    port.start_helper()
    [helper] = set(stdlib.threads_by_ident().values()) - before
    port.close()
    port.close()
    port.wake()  # harmless
    assert not helper.is_alive() and set(stdlib.threads_by_ident().values()) == before


def test_a_thread_that_gives_up_the_interpreter_only_with_the_lock_does_not_starve_the_helper() -> None:
    """One that only read windows of others did: no image of its rank, and no message of it, left any more."""
    port = Pair().ports[0]
    port.start_helper()
    for _ in range(20_000):
        if port.counts["helper_ticks"]:
            break
        time.sleep(0.001)  # a read: under the lock, which is held from the start
        port.lock.release()
        sum(range(2_000))  # what the program does with what it has read
        port.lock.acquire()
    assert port.counts["helper_ticks"]
    port.lock.release()
    port.close()


def test_signals_come_to_the_threads_of_the_program_only() -> None:
    """One that the program had sent to itself came to the helper, and into an image that was taken then it did not come."""
    port = Pair().ports[0]
    port.lock.release()
    before = set(stdlib.threads_by_ident().values())
    port.start_helper()
    [helper] = set(stdlib.threads_by_ident().values()) - before
    status, usual = Path(f"/proc/self/task/{helper.native_id}/status"), 1 << (signal.SIGUSR1 - 1)
    while not any(
        line.startswith("SigBlk:") and int(line.split()[1], 16) & usual
        for line in status.read_text().splitlines()
    ):
        time.sleep(0.001)
    port.close()


def test_a_link_that_nothing_gets_through_has_its_connection_begun_anew_again_and_again() -> None:
    pair = Pair()
    pair.ports[0].send(1, b"x")
    pair.settle()
    assert pair.wires[0].renewed == []
    pair.network.boxes["1"] = deque(maxlen=0)  # frames are taken, and never arrive
    pair.ports[0].send(1, b"y")
    for _ in range(400):
        pair.ports[0].progress()
        pair.clock.advance_ms(100)
    stalled = [event for event in pair.events[0] if isinstance(event, LinkStalled)]
    assert len(stalled) >= 2 and [event.rank for event in stalled] == pair.wires[0].renewed
    pair.network.boxes["1"] = deque()
    pair.settle(8000)
    assert pair.received[1] == [b"x", b"y"]


def test_a_rank_whose_acknowledgements_are_lost_begins_its_connection_anew() -> None:
    """It has sent all it had to send, so none of its timers runs: both ranks waited for ever for a damaged connection."""
    pair = Pair()
    pair.network.boxes["0"] = deque(maxlen=0)  # what rank 1 sends never arrives
    pair.ports[0].send(1, b"x")
    for _ in range(400):
        for port in pair.ports:
            port.progress()
        pair.clock.advance_ms(100)
    assert pair.received[1] == [b"x"]
    assert len(pair.wires[1].renewed) >= 2 and set(pair.wires[1].renewed) == {0}
    pair.network.boxes["0"] = deque()
    pair.settle(8000)
    assert pair.ports[0].endpoint.idle()


@pytest.mark.parametrize("has_come", [False, True])
def test_a_thread_that_looks_at_the_wire_does_not_make_the_sleeping_one_deaf(has_come: bool) -> None:
    """The look had told the ring's writer that nobody sleeps: messages waited for the helper's next tick, 5 ms."""
    pair = Pair()
    port, wire = pair.ports[0], pair.wires[0]
    asked: list[int] = []
    wire.deadline_ns = lambda: asked.append(1) or (0 if has_come else None)  # type: ignore[method-assign, func-returns-value]
    port.progress()
    assert not asked, "nobody sleeps"
    port.interrupts.sleeping = True
    port.progress()
    port.interrupts.sleeping = False
    assert asked
    began_s = time.monotonic()
    port.clock = time.monotonic_ns
    port.wait(10_000_000_000 if has_come else 0)
    assert not has_come or time.monotonic() - began_s < 10


def test_the_lock_is_free_while_the_port_sleeps() -> None:
    pair = Pair()
    port = pair.ports[0]
    port.clock = time.monotonic_ns
    seen: list[bool] = []

    def visit() -> None:
        with port.lock:
            seen.append(port.interrupts.sleeping and bool(port.waiters.entries))
            port.waiters.wake(lambda awaited: False)

    visitor = threading.Thread(target=visit)
    visitor.start()
    while not seen:
        port.wait()
    visitor.join()
    assert seen == [True] and port.lock.locked() and not port.waiters.entries

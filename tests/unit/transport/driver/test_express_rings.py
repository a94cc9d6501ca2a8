"""Ordinary frames, written into rings and read out of them piece by piece.

What was sent arrives, round the end of a ring, too. No frame of short messages is too long for a ring of any size. What a
hostile process writes into a ring changes no message.
"""

from __future__ import annotations

import mmap
import random
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ckpt.transport.driver.port import Port
from ckpt.transport.protocol.endpoint import Endpoint, EndpointConfig
from ckpt.transport.rings import ring
from ckpt.transport.rings.ring import frame_limits, ring_bytes
from ckpt.transport.rings.ringwire import RingWire
from ckpt.transport.wires.directwire import DirectWire
from ckpt.transport.wires.wire import Frame
from ckpt.transport.wires.zmqwire import ZmqWire
from tests.seeds import seed_of_the_commit

pytest.importorskip("ckpt.transport.driver._express", reason="the C modules are not built")

LIMIT_S = 60
HEAD_AT = 64
"""Where the writer's position is in the memory of a ring (ring.py)."""


class Socket(ZmqWire):
    """Notes the longest frame that it takes: on a busy machine it takes what a ring would that nobody reads yet."""

    longest = 0

    def send(self, rank: int, parts: Frame) -> bool:
        self.longest = max(self.longest, sum(map(len, parts)))
        return super().send(rank, parts)


class Two:
    """Two ports, rank 0 and rank 1, with rings of `capacity` between them, as those of a job."""

    def __init__(self, directory: Path, capacity: int) -> None:
        self.capacity = capacity
        self.came: list[bytes] = []
        self.ports: list[Port] = []
        self.sockets = [Socket(f"ipc://{directory}/{rank}") for rank in range(2)]
        limits = frame_limits(capacity)
        for rank, socket in enumerate(self.sockets):
            wire = RingWire(socket, rank, b"key" * 10, capacity=capacity)
            config = EndpointConfig(
                job=1, rank=rank, size=2, coalesce_bytes=limits.coalesce, large_bytes=limits.large
            )
            direct = DirectWire(wire, rank, from_bytes=limits.payload)
            port = Port(config, direct, spin_longest_ns=20_000)
            port.use_rings(wire, None, direct)
            direct.on_direct = port.set_direct
            port.lock.acquire()
            self.ports.append(port)
        for rank, port in enumerate(self.ports):
            port.on_messages = lambda source, messages, rank=rank: self._take(rank, source, messages)
            port.set_peer(1 - rank, self.ports[1 - rank].wire.address, 0)
        self.sender, self.reader = self.ports

    def _take(self, rank: int, source: int, messages: list[Any]) -> None:
        if rank == 1:
            self.came += map(bytes, messages)
        self.ports[rank].endpoint.consumed(source, sum(map(len, messages)), len(messages))

    def settle(self) -> None:
        deadline_s = time.monotonic() + LIMIT_S
        while not all(port.endpoint.idle() for port in self.ports):
            self.reader.glance()
            for port in self.ports:
                port.progress()
            assert time.monotonic() < deadline_s

    def settle_reader(self) -> None:
        """Until something has come, which is acknowledged; the sender is left alone."""
        deadline_s = time.monotonic() + LIMIT_S
        while not self.came:
            self.reader.progress()
            assert time.monotonic() < deadline_s

    def close(self) -> None:
        for port in self.ports:
            port.lock.release()
            port.close()


@pytest.fixture(params=[ring.LEAST_BYTES, 128 << 10, 1 << 20], ids=lambda capacity: f"{capacity >> 10} KiB")
def two(request: Any, tmp_path: Path) -> Iterator[Two]:
    pair = Two(tmp_path, request.param)
    pair.sender.send(1, b"the first makes the ring")
    pair.settle()
    pair.came.clear()
    yield pair
    pair.close()


def test_what_is_written_piece_by_piece_arrives_and_never_takes_the_socket(two: Two) -> None:
    """A job of 16 ranks has rings of 128 KiB: batches and messages of more than 64 KiB took the socket, encrypted."""
    chance = random.Random(seed_of_the_commit())
    longest = two.sender.endpoint.config.large_bytes
    sent: list[bytes] = []
    for _ in range(60):
        lengths = [chance.choice([0, 1, 8, 100, 5_000, longest // 3, longest - 1, longest, longest + 1])]
        for length in lengths * chance.choice([1, 1, 2, 7]):
            sent.append(chance.randbytes(length))
            two.sender.send(1, sent[-1])
            if chance.random() < 0.5:
                two.reader.glance()
        if chance.random() < 0.7:
            two.settle()
    two.settle()
    assert two.came == sent
    assert two.sender.counters()["express_sent"] > 10 < two.reader.counters()["express_received"]
    assert max(socket.longest for socket in two.sockets) + 16 <= two.capacity // 2


def test_a_long_message_stays_in_the_ring_for_the_receive_that_is_about_to_be_posted(two: Two) -> None:
    """It was copied once more, by Python: streams of messages of 16 MiB took twice as long."""
    message = random.Random(seed_of_the_commit()).randbytes(200_000)
    spot = SimpleNamespace(memory=memoryview(bytearray(len(message))))
    soon = SimpleNamespace(memory=None)
    places: list[Any] = [spot, soon, soon, soon]
    placed: list[Any] = []
    reader = two.reader
    reader.on_place = lambda head, nbytes: places.pop()
    reader.on_placed = lambda source, whole: placed.append((source, whole.head, whole.spot, len(whole)))
    reader._spin_ns = 10**9
    for port in (reader, two.sender):  # no look at the control descriptor between, which Python does
        port.control_checked_ns = time.monotonic_ns() + 10**12
    two.sender.send(1, b"head" * 8, memoryview(message))
    for _ in range(3):
        assert not reader.glance() and not placed
    assert reader.glance()
    assert placed == [(0, b"head" * 8, spot, 32 + len(message))] and spot.memory == message
    reader.endpoint.consumed(0, 32 + len(message), 1)
    assert two.sender.glance(), "it is acknowledged at once"
    assert two.sender.endpoint.base(1) == two.sender.endpoint.tx(1)
    counts = two.sender.counters(), reader.counters()
    assert [each["direct_sent"] for each in counts] == [1, 0]
    assert [(each["direct_read"], each["messages_placed"]) for each in counts] == [(0, 0), (1, 1)]
    assert not two.came


def test_who_has_sent_a_long_message_looks_for_a_reader_that_asks_for_help(two: Two) -> None:
    """A rank whose waits had been long slept at once, so nobody helped, and all of its waits were long."""
    sender, message = two.sender, random.Random(seed_of_the_commit()).randbytes(700_000)
    assert sender.express is not None
    assert not sender.express.may_be_asked
    sender.send(1, b"head", memoryview(message))
    sender._spin_ns, sender._spin_longest_ns = 0, 50_000_000
    began_s = time.monotonic()
    assert sender.express.may_be_asked and not sender.glance()
    assert time.monotonic() - began_s >= 0.05
    helping = threading.Thread(target=sender.glance)
    sender._spin_longest_ns = 10**9
    helping.start()
    two.settle_reader()
    helping.join()
    assert two.came == [b"head" + message]
    assert not sender.express.may_be_asked


def test_a_long_message_without_a_place_holds_nothing_up(two: Two) -> None:
    """It is read into other memory, and what comes behind it is taken, too."""
    reader = two.reader
    reader._spin_ns = 10**9
    reader.on_place = lambda head, nbytes: None
    two.sender.send(1, b"head", memoryview(bytes(200_000)))
    two.sender.send(1, b"behind")
    deadline_s = time.monotonic() + LIMIT_S
    while len(two.came) < 2:
        reader.glance() or reader.wait()
        two.sender.progress()
        assert time.monotonic() < deadline_s
    assert two.came == [b"head" + bytes(200_000), b"behind"]
    counts = reader.counters()
    assert (counts["direct_read"], counts["messages_placed"]) == (1, 0)


@pytest.mark.parametrize("size", [2, 3, 7, 8, 11, 16, 32, 48])
def test_the_longest_frame_of_short_messages_fits_into_half_a_ring(size: int) -> None:
    capacity = ring_bytes(size)
    config = EndpointConfig(job=1, rank=0, size=size)
    limits = frame_limits(capacity)
    # The batch is just not full when the longest message comes; a table has 4 bytes for each message, its charge has more
    charge = limits.coalesce - 1 + limits.large + config.message_overhead_bytes
    assert 16 + 72 + charge <= capacity // 2
    assert 16 + 92 + 1024 + limits.payload <= capacity // 2
    assert (limits.coalesce, limits.large) <= (config.coalesce_bytes, config.large_bytes)


def test_whatever_is_written_to_a_ring_meanwhile_no_message_changes() -> None:
    """The frame lies in memory that another process may write to, while it is read, too."""
    from ckpt.transport.driver._express import Express
    from ckpt.transport.rings._ring import Inbox, Reader, Writer

    chance = random.Random(seed_of_the_commit())
    came: list[bytes] = []
    outcomes = dict.fromkeys(("taken", "left to Python", "damaged ring"), 0)
    for _ in range(60):
        sender, receiver = (Endpoint(EndpointConfig(job=1, rank=rank, size=2)) for rank in (0, 1))
        sender.set_peer(1, 0, 1)
        receiver.set_peer(0, 0, 1)
        writer = Writer(ring.LEAST_BYTES)
        inbox, unread = Inbox(), []
        reader = Reader(writer.fd, ring.LEAST_BYTES)
        inbox.add(reader)
        port = SimpleNamespace(
            endpoint=receiver,
            _refused=SimpleNamespace(by_rank={}),
            helper_watching=False,
            glance=None,
            on_messages=lambda _source, messages: came.extend(messages),
            on_place=None,
        )
        express = Express(port, inbox, {}, unread)
        mapped = mmap.mmap(writer.fd, ring.DATA_AT + ring.LEAST_BYTES)
        sent: list[bytes] = []
        came.clear()
        for step in range(30):
            for message in [chance.randbytes(chance.choice([0, 8, 100, 2_000]))] * chance.choice([1, 1, 3]):
                sender.send(1, message)
                sent.append(message)
            (begin,) = struct.unpack_from("<Q", mapped, HEAD_AT)
            frames = [frame for _, frame in sender.transmit(step)]
            for frame in frames:
                writer.send(frame)
            if frames and chance.random() < 0.3:  # the record's head, the frame's, or anything
                at = begin + chance.randrange(chance.choice([16, 100, ring.LEAST_BYTES]))
                mapped[ring.DATA_AT + at % ring.LEAST_BYTES] ^= 1 << chance.randrange(8)
            is_ordinary = express.look(0, 0)
            outcomes["taken"] += is_ordinary
            outcomes["left to Python"] += len(unread)
            if unread or reader.damaged:
                break
        outcomes["damaged ring"] += reader.damaged
        assert came == sent[: len(came)]
        mapped.close()
    assert all(outcomes.values()), outcomes

"""Large payloads read from the sender's memory: what travels, what is dropped, when it is not used."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from ckpt.transport.errors import AddressError
from ckpt.transport.wires import crossmemory
from ckpt.transport.wires.directwire import DIRECT_FROM_BYTES, SHARED_FROM_BYTES, DirectWire
from tests.unit.transport.wires.memory_wire import MemoryNetwork, MemoryWire

pytestmark = pytest.mark.skipif(not crossmemory.available(), reason="no process_vm_readv on this system")

PAYLOAD = bytes(range(256)) * (DIRECT_FROM_BYTES // 128)


class Pair:
    """Two direct wires over one memory network; sender is rank 0."""

    def __init__(self) -> None:
        network = MemoryNetwork()
        self.below = [MemoryWire(network, f"ipc://{rank}") for rank in (0, 1)]
        self.wires = [DirectWire(below, rank) for rank, below in enumerate(self.below)]
        for rank, wire in enumerate(self.wires):
            wire.connect(1 - rank, self.wires[1 - rank].address)

    def close(self) -> None:
        for wire in self.wires:
            wire.close()


def cannot_read(wire: DirectWire) -> bool:
    """Is the next frame one whose payload cannot be read?"""
    frame = wire.receive()
    assert frame is not None
    with pytest.raises(OSError):
        bytes(frame[1])
    return True


@pytest.fixture
def pair() -> Iterator[Pair]:
    made = Pair()
    yield made
    made.close()


@pytest.mark.parametrize(
    "wrap", [bytes, bytearray, memoryview, lambda data: memoryview(bytearray(data))[:-1]]
)
def test_a_large_payload_arrives_as_it_was_sent_and_never_travels(pair: Pair, wrap) -> None:
    payload = wrap(PAYLOAD)
    assert pair.wires[0].send(1, (b"head", payload))
    travelled = pair.below[0].sent[-1][1]
    assert sum(map(len, travelled)) < 200
    head, received = pair.wires[1].receive()
    assert (head, bytes(received)) == (b"head", bytes(payload))
    assert len(received) == len(payload)
    assert pair.wires[1].counters()["direct_read"] == 1


@pytest.mark.parametrize("works", [True, False])
def test_a_long_payload_is_copied_by_both_where_the_pointer_is_of_the_peers_process(
    pair: Pair, works: bool
) -> None:
    """Else the successor of a process that has died would write what lies at the same address in its own memory."""
    asked: list[tuple[int, bytes, int]] = []
    payload = os.urandom(SHARED_FROM_BYTES)

    def copy_shared(rank: int, own: bytes, badge: bytes, address: int, into: memoryview) -> bool:
        asked.append((rank, badge, len(into)))
        if works:
            into[:] = payload
        return works

    sender, receiver = pair.wires
    receiver.copy_shared = copy_shared
    for data in (PAYLOAD, payload):
        assert sender.send(1, (b"head", data))
        assert bytes(receiver.receive()[1]) == data
    assert asked == [(0, sender._badge.packed, len(payload))]
    sender._badge = crossmemory.Badge()  # the process that has died had the former one
    assert sender.send(1, (b"head", payload))
    assert bytes(receiver.receive()[1]) == payload
    assert len(asked) == 1


def test_small_frames_and_short_payloads_take_the_wire_below(pair: Pair) -> None:
    frames = [(b"one part",), (b"head", PAYLOAD[: DIRECT_FROM_BYTES - 1])]
    for frame in frames:
        assert pair.wires[0].send(1, frame)
        assert pair.below[0].sent[-1][1] is frame
        assert tuple(pair.wires[1].receive()) == frame
    assert pair.wires[0].counters()["direct_sent"] == 0


def test_congestion_is_told_and_nothing_is_counted_as_sent() -> None:
    network = MemoryNetwork()
    sender = DirectWire(MemoryWire(network, "ipc://0"), 0)
    receiver = DirectWire(MemoryWire(network, "ipc://1", capacity=0), 1)
    narrow = MemoryWire(network, "ipc://narrow", capacity=0)
    wire = DirectWire(narrow, 2)
    wire.connect(1, receiver.address)
    assert wire.reads_directly(1)
    assert not wire.send(1, (b"head", PAYLOAD))
    assert wire.counters()["direct_sent"] == 0
    for each in (sender, receiver, wire):
        each.close()


@pytest.mark.parametrize("index", range(0, 69, 4))
def test_a_damaged_pointer_is_dropped(pair: Pair, index: int) -> None:
    pair.wires[0].send(1, (b"head", PAYLOAD))
    box = pair.below[1]._network.boxes["ipc://1"]
    head, pointer, empty = box.pop()
    damaged = bytearray(pointer)
    damaged[min(index, len(damaged) - 1)] ^= 0x10
    box.append((head, bytes(damaged), empty))
    assert pair.wires[1].receive() is None
    assert pair.wires[1].counters()["direct_failed"] == 1


def test_a_frame_behind_a_dropped_one_is_still_found(pair: Pair) -> None:
    box = pair.below[1]._network.boxes["ipc://1"]
    box.append((b"head", b"no pointer at all", b""))
    box.append((b"ordinary",))
    assert tuple(pair.wires[1].receive()) == (b"ordinary",)


def test_a_sender_that_died_counts_as_a_lost_frame(pair: Pair) -> None:
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    wire = pair.wires[0]
    _, badge_at, seen = crossmemory._BADGE.unpack(wire._badge.packed)
    wire._badge.packed = crossmemory._BADGE.pack(child, badge_at, seen)
    wire.send(1, (b"head", PAYLOAD))
    assert cannot_read(pair.wires[1])
    assert pair.wires[1].counters()["direct_failed"] == 1
    assert wire.reads_directly(1), "one dead process says nothing about permissions"


def test_a_process_with_another_badge_is_not_read(pair: Pair) -> None:
    wire = pair.wires[0]
    pid, badge_at, seen = crossmemory._BADGE.unpack(wire._badge.packed)
    wire._badge.packed = crossmemory._BADGE.pack(pid, badge_at, bytes(len(seen)))
    wire.send(1, (b"head", PAYLOAD))
    assert cannot_read(pair.wires[1])


def test_memory_that_is_gone_counts_as_a_lost_frame(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crossmemory, "address_of", lambda buffer: 4096)
    pair.wires[0].send(1, (b"head", PAYLOAD))
    monkeypatch.undo()
    assert cannot_read(pair.wires[1])
    assert pair.wires[1].counters()["direct_failed"] == 1


def test_a_receiver_that_may_not_read_says_so_and_the_wire_below_brings_it(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forbidden(*_: object) -> None:
        raise PermissionError(errno.EPERM, "not permitted")

    monkeypatch.setattr(pair.wires[1]._reader, "read", forbidden)
    told: list[tuple[int, bool]] = []
    pair.wires[0].on_direct = lambda rank, yes: told.append((rank, yes))
    frame = (b"head", PAYLOAD)
    pair.wires[0].send(1, frame)
    assert cannot_read(pair.wires[1])
    assert pair.wires[0].receive() is None
    assert not pair.wires[0].reads_directly(1)
    assert told == [(1, False)]
    assert pair.wires[0].counters()["direct_refused"] == 1
    pair.wires[0].send(1, frame)
    assert tuple(pair.wires[1].receive()) == frame


def test_a_pointer_to_too_much_is_refused() -> None:
    network = MemoryNetwork()
    sender = DirectWire(MemoryWire(network, "ipc://0"), 0)
    receiver = DirectWire(MemoryWire(network, "ipc://1"), 1, limit_bytes=len(PAYLOAD) - 1)
    sender.connect(1, receiver.address)
    receiver.connect(0, sender.address)
    sender.send(1, (b"head", PAYLOAD))
    assert receiver.receive() is None
    assert sender.receive() is None and not sender.reads_directly(1)
    sender.close()
    receiver.close()


def test_peers_without_a_badge_or_elsewhere_are_reached_below(pair: Pair) -> None:
    wire = pair.wires[0]
    wire.connect(1, "ipc://1")
    assert not wire.reads_directly(1)
    badge = pair.wires[1].address.partition("#memory=")[2]
    wire.connect(1, f"tcp://elsewhere:1#memory={badge}")
    assert not wire.reads_directly(1)
    gone = crossmemory._BADGE.pack(2**22 - 1, 4096, bytes(crossmemory.BADGE_BYTES)).hex()
    wire.connect(1, f"ipc://1#memory={gone}")
    assert not wire.reads_directly(1)
    with pytest.raises(AddressError, match="no badge"):
        wire.connect(1, "ipc://1#memory=xyz")


def test_bytes_of_another_process_are_read_and_only_with_its_badge(tmp_path: Path) -> None:
    parent_reads, child_writes = os.pipe()
    child_reads, parent_writes = os.pipe()
    child = os.fork()
    if child == 0:
        crossmemory.consent()
        data = os.urandom(100_000)
        (tmp_path / "data").write_bytes(data)
        badge = crossmemory.Badge()
        address = crossmemory.address_of(data)
        os.write(child_writes, badge.packed + address.to_bytes(8, "little"))
        os.read(child_reads, 1)
        os._exit(0)
    try:
        told = os.read(parent_reads, 100)
        badge, address = told[:-8], int.from_bytes(told[-8:], "little")
        into = bytearray(100_000)
        reader = crossmemory.Reader()
        reader.read(badge, address, into)
        assert bytes(into) == (tmp_path / "data").read_bytes()
        with pytest.raises(ProcessLookupError):
            reader.read(badge[:-1] + bytes([badge[-1] ^ 1]), address, into)
        with pytest.raises(OSError):
            reader.read(badge, 8, into)
    finally:
        os.write(parent_writes, b"x")
        os.waitpid(child, 0)
        for fd in (parent_reads, child_writes, child_reads, parent_writes):
            os.close(fd)

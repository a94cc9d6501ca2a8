"""A wire with rings: when frames take a ring, when the inner wire; what wakes whom; who is believed."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import select
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ckpt.compat.memory import address_of
from ckpt.transport.rings import ring
from ckpt.transport.rings.ring import ALL_RINGS_BYTES, ring_bytes
from ckpt.transport.rings.ringwire import (
    ANSWER_NS,
    EARLY_NS,
    RETRY_LONGEST_NS,
    RETRY_NS,
    RingWire,
)
from ckpt.transport.wires import crossmemory
from tests.unit.transport.wires.memory_wire import Clock, MemoryNetwork, MemoryWire

pytestmark = pytest.mark.skipif(not ring.available(), reason="the C module of rings is not built")

KEY = b"the job's key"


class Host:
    """Wires of one host over one memory network, and what they report. A rank's later incarnation has another name."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.network = MemoryNetwork()
        self.clock = Clock()
        self.below: list[MemoryWire] = []
        self.wires: list[RingWire] = []
        self.told: list[tuple[int, int | None, str]] = []

    def add(
        self, rank: int, *, incarnation: int = 1, key: bytes = KEY, capacity: int = ring.LEAST_BYTES
    ) -> RingWire:
        below = MemoryWire(self.network, f"ipc://{self.directory}/r{rank}.{incarnation}")
        wire = RingWire(
            below,
            rank,
            key,
            capacity=capacity,
            on_fallback=lambda peer, why: self.told.append((rank, peer, why)),
            clock=self.clock,
        )
        self.below.append(below)
        self.wires.append(wire)
        return wire

    def pair(self) -> tuple[RingWire, RingWire]:
        """Ranks 0 and 1, each with a ring to the other that is in use."""
        mine, peer = self.add(0), self.add(1)
        for wire, other, rank in ((mine, peer, 1), (peer, mine, 0)):
            wire.connect(rank, other.address)
        for wire, other, rank in ((mine, peer, 1), (peer, mine, 0)):
            introduce(wire, other, rank)
            assert wire.send(rank, (b"second",)) and taken(other) == [(b"second",)]
        return mine, peer


def introduce(wire: RingWire, other: RingWire, rank: int) -> None:
    """A first frame, which offers a ring; and the peer looks at its bell, as before a sleep."""
    assert wire.send(rank, (b"first",))
    taken(other)


def taken(wire: RingWire) -> list[tuple[bytes, ...]]:
    """All frames that have come; the port's order of calls."""
    wire.deadline_ns()
    found = []
    while (frame := wire.receive()) is not None:
        found.append(tuple(map(bytes, frame)))
    return found


def readable(wire: RingWire) -> bool:
    return bool(select.select([wire.fileno()], [], [], 0)[0])


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    made = Host(tmp_path)
    yield made
    for wire in made.wires:
        wire.close()
    assert not [name for name in os.listdir(tmp_path) if name.endswith(".ring")]


def test_the_first_frames_wait_in_the_ring_that_is_offered(host: Host) -> None:
    """So the inner wire needs no connection, whose handshake takes longer than many messages."""
    mine, peer = host.add(0), host.add(1)
    mine.connect(1, peer.address)
    assert mine.send(1, (b"first",))
    assert mine.send(1, (b"second",))
    assert taken(peer) == [(b"first",), (b"second",)]
    assert mine.send(1, (b"head", b"payload", b""))
    assert taken(peer) == [(b"head", b"payload", b"")]
    assert not host.below[0].sent
    assert mine.counters()["ring_sent"] == peer.counters()["ring_received"] == 3


def test_frames_to_a_peer_that_is_slow_to_take_the_ring_take_the_inner_wire(host: Host) -> None:
    mine, peer = host.add(0), host.add(1)
    mine.connect(1, peer.address)
    assert mine.send(1, (b"in the ring",))
    host.clock.now_ns += EARLY_NS
    assert mine.send(1, (b"below",))
    assert [frame for _, frame in host.below[0].sent] == [(b"below",)]
    assert sorted(taken(peer)) == [(b"below",), (b"in the ring",)]
    assert mine.send(1, (b"again in the ring",)) and len(host.below[0].sent) == 1
    assert taken(peer) == [(b"again in the ring",)]


def test_a_frame_that_comes_as_the_peer_takes_the_ring_and_sleeps_wakes_the_peer(host: Host) -> None:
    mine, peer = host.add(0), host.add(1)
    mine.connect(1, peer.address)
    introduce(mine, peer, 1)
    assert peer.deadline_ns() is None and not readable(peer)
    assert mine.send(1, (b"second",)) and readable(peer)


def test_nothing_is_made_for_a_peer_that_is_never_sent_to(host: Host) -> None:
    mine, peer = host.add(0), host.add(1)
    mine.connect(1, peer.address)
    peer.connect(0, mine.address)
    introduce(mine, peer, 1)
    assert (peer.counters()["ring_peers_in"], peer.counters()["ring_peers_out"]) == (1, 0)


def test_only_a_peer_that_sleeps_is_woken_and_once(host: Host) -> None:
    mine, peer = host.pair()
    assert mine.send(1, (b"it spins",))
    assert (mine.counters()["ring_bells"], readable(peer)) == (0, False)
    assert peer.deadline_ns() == 0, "a frame is there: no sleep"
    assert taken(peer) == [(b"it spins",)]
    assert peer.deadline_ns() is None
    for number in range(3):
        assert mine.send(1, (b"%d" % number,))
    assert (mine.counters()["ring_bells"], readable(peer)) == (1, True)
    assert taken(peer) == [(b"0",), (b"1",), (b"2",)]
    assert not readable(peer)


def test_a_full_ring_is_congestion_and_nothing_is_lost(host: Host) -> None:
    """A peer that is stopped: the ring fills, and goes on when the peer does."""
    mine, peer = host.pair()
    frames = [(b"%06d" % number * 100,) for number in range(1000)]
    count = 0
    while mine.send(1, frames[count]):
        count += 1
    assert 0 < count < ring.LEAST_BYTES // 600
    assert not mine.send(1, frames[count])
    assert mine.counters()["ring_full"] == 2
    received = []
    while len(received) < len(frames):
        received += taken(peer)
        while count < len(frames) and mine.send(1, frames[count]):
            count += 1
    assert received == frames


def test_a_frame_that_is_too_long_for_the_ring_takes_the_inner_wire(host: Host) -> None:
    mine, peer = host.pair()
    before = len(host.below[0].sent)
    assert mine.send(1, (bytes(ring.LEAST_BYTES),))
    assert len(host.below[0].sent) == before + 1
    assert taken(peer) == [(bytes(ring.LEAST_BYTES),)]


def test_a_peer_without_rings_is_reached_as_ever(host: Host) -> None:
    mine = host.add(0)
    other = MemoryWire(host.network, f"ipc://{host.directory}/other")
    mine.connect(1, other.address)
    for _ in range(3):
        assert mine.send(1, (b"x",))
        assert other.receive() == (b"x",)
    assert mine.counters()["ring_fallbacks"] == 0
    other.close()


def test_where_no_bell_can_be_made_it_is_the_inner_wire_and_says_so(tmp_path: Path) -> None:
    host = Host(tmp_path)
    deep = tmp_path / ("d" * (103 - len(str(tmp_path)) - 4))
    deep.mkdir()
    host.directory = deep  # the inner wire's name is just short enough, and the bell's is not
    mine, peer = host.add(0), host.add(1)
    assert mine.address == host.below[0].address
    assert mine.fileno() == host.below[0].fileno()
    mine.connect(1, peer.address)
    mine.connect(1, peer.address)
    assert mine.send(1, (b"x",)) and taken(peer) == [(b"x",)]
    ((rank, whom, why),) = host.told
    assert (rank, whom) == (0, None) and "path is" in why
    for wire in host.wires:
        wire.close()


def test_an_offer_that_nobody_takes_is_given_up_and_made_again_later(host: Host) -> None:
    mine, peer = host.add(0), host.add(1)
    mine.connect(1, peer.address)
    assert mine.send(1, (b"0",))
    host.clock.now_ns += ANSWER_NS + 1
    assert mine.send(1, (b"1",))
    assert host.told == [(0, 1, "the peer does not take the ring")]
    assert mine.send(1, (b"2",))
    host.clock.now_ns += RETRY_NS
    assert mine.send(1, (b"3",))
    assert taken(peer) == [(b"%d" % number,) for number in (1, 2, 3)], "0 was in the ring that was given up"
    assert mine.send(1, (b"4",)) and len(host.below[0].sent) == 3
    assert taken(peer) == [(b"4",)]
    assert peer.counters()["ring_peers_in"] == 1, "the ring that was given up is not kept"


def test_the_time_to_the_next_offer_grows_to_five_minutes(host: Host) -> None:
    mine, peer = host.add(0), host.add(1)
    mine.connect(1, peer.address)
    for _ in range(9):
        mine.send(1, (b"x",))
        host.clock.now_ns += ANSWER_NS + 1
        mine.send(1, (b"x",))
        host.clock.now_ns += RETRY_LONGEST_NS
    assert mine._peers[1].wait_ns == RETRY_LONGEST_NS
    assert host.told == [(0, 1, "the peer does not take the ring")], "said once"
    assert mine.counters()["ring_fallbacks"] == 9


@pytest.mark.parametrize("damage", ["head", "record"])
def test_garbage_in_a_ring_ends_that_ring_and_names_the_rank(host: Host, damage: str) -> None:
    mine, peer = host.pair()
    memory = memory_of(mine, 1)
    if damage == "head":
        memory[64:72] = b"\xff" * 8
    else:
        memory[ring.DATA_AT :] = b"\xa5" * ring.LEAST_BYTES
        mine.send(1, (b"a",))
        memory[ring.DATA_AT :] = b"\xa5" * ring.LEAST_BYTES
    memory.release()
    assert taken(peer) == []
    assert peer.counters()["ring_damaged"] == 1
    assert mine.send(1, (b"b",)), "it takes the inner wire"
    assert taken(peer) == [(b"b",)]
    assert host.told == [(1, 0, "the ring from the peer is damaged")], "said by the one that has found it"
    assert mine.counters()["ring_fallbacks"] == 1


def memory_of(wire: RingWire, rank: int) -> memoryview:
    """The bytes of a ring, as another process would get at them: by /proc/PID/mem of one that maps it."""
    spans = []
    with open("/proc/self/maps") as maps:
        spans = [line.split()[0] for line in maps if "ckpt-ring" in line]
    writer = wire._peers[rank].writer
    assert writer is not None
    sent = writer.records
    for span in spans:
        begin, end = (int(bound, 16) for bound in span.split("-"))
        found = (ctypes.c_ubyte * (end - begin)).from_address(begin)
        memory = memoryview(found).cast("B")
        word = bytes(memory[192:196])
        memory[192:196] = (77).to_bytes(4, "little")
        mine = writer.word() == 77
        memory[192:196] = word
        if mine:
            assert writer.records == sent
            return memory
    raise AssertionError("no such ring")


def test_an_impossible_word_of_the_reader_ends_the_ring(host: Host) -> None:
    mine, peer = host.pair()
    memory = memory_of(mine, 1)
    memory[192:196] = (77).to_bytes(4, "little")
    memory.release()
    assert mine.send(1, (b"x",))
    assert host.told == [(0, 1, "the ring is damaged")]
    assert (b"x",) in taken(peer)


def test_an_offer_without_the_jobs_key_is_refused(host: Host) -> None:
    stranger, peer = host.add(0, key=b"another key"), host.add(1)
    stranger.connect(1, peer.address)
    stranger.send(1, (b"x",))
    taken(peer)
    assert (peer.counters()["ring_offers_refused"], peer.counters()["ring_peers_in"]) == (1, 0)


@pytest.mark.parametrize("packet", [b"x", b"ckptring" + bytes(40), bytes(256), bytes(1000)])
def test_what_strangers_send_to_a_bell_is_refused_and_its_descriptors_are_closed(
    host: Host, packet: bytes
) -> None:
    wire = host.add(1)
    before = len(os.listdir("/proc/self/fd"))
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as stranger:
        for _ in range(5):
            rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, wire.fileno().to_bytes(4, "little") * 3)
            stranger.sendmsg([packet], [rights], 0, f"{host.directory}/r1.1.ring")
            taken(wire)
    assert wire.counters()["ring_offers_refused"] == 5
    assert len(os.listdir("/proc/self/fd")) == before


def test_the_rings_of_a_zombie_are_not_those_of_its_successor(host: Host) -> None:
    zombie, peer = host.pair()
    successor = host.add(0, incarnation=2)
    successor.connect(1, peer.address)
    peer.connect(0, successor.address)
    introduce(successor, peer, 1)
    assert zombie.send(1, (b"from the dead",)), "nobody reads its ring any more: the inner wire"
    assert len(host.below[0].sent) == 1
    host.clock.now_ns += RETRY_NS
    assert zombie.send(1, (b"offers again",))
    assert successor.send(1, (b"alive",))
    assert (b"alive",) in taken(peer)
    assert peer.counters()["ring_offers_refused"] == 1
    assert successor.send(1, (b"still the ring",)) and successor.counters()["ring_sent"] == 3
    assert peer.counters()["ring_peers_in"] == 1


def test_a_peer_at_another_address_gets_another_ring(host: Host) -> None:
    mine, _ = host.pair()
    mine.send(1, (b"in a ring that nobody will read",))
    later = host.add(1, incarnation=2)
    later.connect(0, mine.address)
    mine.connect(1, later.address)
    introduce(mine, later, 1)
    assert mine.send(1, (b"new",))
    assert taken(later) == [(b"new",)]
    assert mine.counters()["ring_peers_out"] == 1


def test_the_same_address_again_keeps_the_rings(host: Host) -> None:
    mine, peer = host.pair()
    mine.connect(1, peer.address)
    assert mine.send(1, (b"x",))
    assert mine.counters()["ring_sent"] == 3


def test_a_link_that_stalls_leaves_its_ring(host: Host) -> None:
    mine, peer = host.pair()
    mine.renew(1)
    assert host.below[0].renewed == [1]
    assert host.told == [(0, 1, "nothing comes back from the peer")]
    assert mine.send(1, (b"x",))
    assert (b"x",) in taken(peer)


def test_every_ring_gets_its_turn(host: Host) -> None:
    """A peer that fills its ring again and again does not keep others away."""
    receiver = host.add(0)
    senders = [host.add(rank) for rank in (1, 2, 3)]
    for sender in senders:
        sender.connect(0, receiver.address)
        introduce(sender, receiver, 0)
    for number in range(30):
        for rank, sender in enumerate(senders, 1):
            assert sender.send(0, (b"%d" % rank, b"%d" % number))
    order = [frame[0] for frame in taken(receiver)]
    assert all(set(order[at : at + 3]) == {b"1", b"2", b"3"} for at in range(0, 90, 3))


def use_all_descriptors() -> None:
    most = max(map(int, os.listdir("/proc/self/fd"))) + 1
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with contextlib.suppress(OSError):
        while True:
            os.dup(0)


def in_a_child(work: Callable[[], object]) -> int:
    child = os.fork()
    if child == 0:
        code = 99
        try:
            code = int(bool(work()))
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.parametrize("limit", ["memory", "descriptors"])
def test_where_a_limit_leaves_no_room_for_a_ring_frames_take_the_inner_wire(host: Host, limit: str) -> None:
    def work() -> bool:
        mine, peer = host.add(0, capacity=ring.MOST_BYTES), host.add(1)
        mine.connect(1, peer.address)
        if limit == "memory":
            used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (used + (4 << 20),) * 2)
        else:
            use_all_descriptors()
        for number in range(3):
            assert mine.send(1, (b"%d" % number,))
        assert taken(peer) == [(b"0",), (b"1",), (b"2",)]
        ((_, whom, why),) = host.told
        return whom == 1 and "no ring can be made" in why

    assert in_a_child(work) == 1
    for name in os.listdir(host.directory):
        os.unlink(host.directory / name)


def test_a_reader_without_a_free_descriptor_is_reached_by_the_inner_wire(host: Host) -> None:
    """More ranks than descriptors."""

    def work() -> bool:
        mine, peer = host.add(0), host.add(1)
        mine.connect(1, peer.address)
        assert mine.send(1, (b"x",))
        use_all_descriptors()
        assert taken(peer) == []
        host.clock.now_ns += EARLY_NS
        assert mine.send(1, (b"y",))
        return taken(peer) == [(b"y",)] and peer.counters()["ring_offers_refused"] == 1

    assert in_a_child(work) == 1
    for name in os.listdir(host.directory):
        os.unlink(host.directory / name)


def test_a_peer_that_is_killed_while_it_sends_leaves_whole_frames(host: Host) -> None:
    mine = host.add(0)
    child = os.fork()
    if child == 0:
        sender = host.add(1)
        sender.connect(0, mine.address)
        number = 0
        while True:
            if sender.send(0, (b"%08d" % number * 100,)):
                number += 1
    received: list[bytes] = []
    until = time.monotonic() + 60
    while len(received) < 2000 and time.monotonic() < until:
        received += [frame[0] for frame in taken(mine) if frame]
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    received += [frame[0] for frame in taken(mine)]
    in_ring = received[received.index(next(data for data in received)) :]
    assert all(data == data[:8] * 100 for data in in_ring)
    assert mine.counters()["ring_received"] > 0
    assert mine.counters()["ring_damaged"] == 0
    os.unlink(host.directory / "r1.1.ring")


def test_a_forked_child_closes_nothing(host: Host) -> None:
    mine, peer = host.pair()

    def work() -> bool:
        mine.close()
        return True

    assert in_a_child(work) == 1
    assert mine.send(1, (b"x",)) and taken(peer) == [(b"x",)]


def test_descriptors_and_maps_stay_as_many_while_peers_come_and_go(host: Host) -> None:
    mine = host.add(0)

    def held() -> tuple[int, int]:
        maps = Path("/proc/self/maps").read_text()
        return len(os.listdir("/proc/self/fd")), maps.count("ckpt-ring")

    counts = []
    for incarnation in range(1, 6):
        peer = host.add(1, incarnation=incarnation)
        mine.connect(1, peer.address)
        peer.connect(0, mine.address)
        introduce(mine, peer, 1)
        introduce(peer, mine, 0)
        mine.send(1, (b"x",))
        counts.append(held())
        host.wires.remove(peer)
        peer.close()
    assert len(set(counts)) == 1 and counts[0][1] == 4


def test_the_rings_of_a_job_take_less_than_64_mib() -> None:
    for size in (1, 2, 3, 4, 8, 16, 32, 48):
        capacity = ring_bytes(size)
        assert capacity >= ring.LEAST_BYTES and capacity & (capacity - 1) == 0
        assert capacity * size * (size - 1) <= max(ALL_RINGS_BYTES, ring.LEAST_BYTES * size * (size - 1))
    assert (ring.LEAST_BYTES + ring.DATA_AT) * 48 * 47 < 64 << 20


def test_a_payload_is_copied_by_way_of_the_senders_ring_if_there_is_one(host: Host) -> None:
    mine, _ = host.pair()
    payload, into, badge = os.urandom(300_000), bytearray(300_000), crossmemory.Badge()
    copied = badge.packed, badge.packed, address_of(payload), memoryview(into)
    assert not mine.copy_shared(2, *copied), "no ring of that rank"
    assert mine.copy_shared(1, *copied)
    assert into == payload

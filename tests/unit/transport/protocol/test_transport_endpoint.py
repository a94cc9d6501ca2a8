"""The endpoint as a value, its counters, and what its hot path keeps."""

from __future__ import annotations

import gc
import tracemalloc
from random import Random

from ckpt.transport.integers import END_OF_NUMBERS
from ckpt.transport.protocol.endpoint import Endpoint, EndpointConfig
from ckpt.transport.protocol.link import COUNTERS

SMALL = {
    "large_bytes": 100,
    "fragment_bytes": 64,
    "coalesce_bytes": 300,
    "credit_bytes": 3000,
    "initial_credit_bytes": 1000,
    "burst_bytes": 500,
}


def pair() -> list[Endpoint]:
    ports = [Endpoint(EndpointConfig(1, rank, 2, **SMALL)) for rank in range(2)]  # type: ignore[arg-type]
    for port in ports:
        port.set_peer(1 - port.config.rank, 0, 0)
    return ports


def stir(ports: list[Endpoint], random: Random, now_ns: int) -> tuple[object, ...]:
    """One random step on a pair; what came of it."""
    port = ports[random.randrange(2)]
    other = ports[1 - port.config.rank]
    what = random.randrange(7)
    if what == 0:
        port.send(1 - port.config.rank, random.randbytes(random.choice([0, 8, 8, 60, 400])))
    elif what == 1:
        for _, parts in port.transmit(now_ns):
            if random.random() < 0.8:
                other.receive(parts, now_ns)
    elif what == 2:
        found = port.delivered()
        for source, messages in found:
            port.consumed(source, sum(map(len, messages)), len(messages))
        return tuple((source, tuple(map(bytes, messages))) for source, messages in found)
    elif what == 3:
        port.tick(now_ns)
    elif what == 4 and random.random() < 0.2:
        port.freeze()
    elif what == 5:
        port.thaw(now_ns)
    elif what == 6 and random.random() < 0.2:
        port.advance(port.epoch + 1, now_ns)
    return (port.deadline_ns(), port.flush_due, tuple(port.events()), port.key())


def test_a_clone_goes_on_exactly_like_its_original() -> None:
    for seed in range(30):
        random = Random(seed)
        ports = pair()
        now_ns = 0
        for _ in range(150):
            now_ns += random.randrange(50_000_000)
            stir(ports, random, now_ns)
        copies = [port.clone() for port in ports]
        keys = [port.key() for port in ports]
        assert [copy.key() for copy in copies] == keys
        assert [hash(copy.key()) for copy in copies] == [hash(key) for key in keys]
        branches = []
        for side in (ports, copies):
            again, then_ns, seen = Random(seed + 1), now_ns, []
            for _ in range(100):
                then_ns += again.randrange(50_000_000)
                seen.append(stir(side, again, then_ns))
            branches.append((seen, [port.counters() for port in side]))
        assert branches[0] == branches[1], seed


def test_a_clone_shares_nothing_that_changes() -> None:
    random = Random(3)
    ports = pair()
    for step in range(200):
        stir(ports, random, step * 1_000_000)
    keys = [port.key() for port in ports]
    counters = [port.counters() for port in ports]
    copies = [port.clone() for port in ports]
    for step in range(200, 400):
        stir(copies, random, step * 1_000_000)
    assert [port.key() for port in ports] == keys
    assert [port.counters() for port in ports] == counters


def test_keys_tell_ports_apart_that_owe_answers() -> None:
    """Ports that had a frame while frozen, and ones that had none, had equal keys: what nobody visited is what
    one of them says, or keeps to itself, afterwards."""
    a = pair()[0]
    silent = Endpoint(EndpointConfig(1, 1, 2, held_bytes=1))  # a frame that comes leaves nothing but the debt
    silent.set_peer(0, 0, 0)
    silent.transmit(0)
    silent.freeze()
    owes_nack = silent.clone()
    a.send(1, b"m")
    for _, parts in a.transmit(0):
        owes_nack.receive(parts, 0)
    owes_notice = owes_nack.clone()
    assert len(owes_notice.transmit(0)) == 1
    ports = [silent, owes_nack, owes_notice]
    assert len({port.key() for port in ports}) == 3
    said = []
    for port in [port.clone() for port in ports]:
        frozen = len(port.transmit(0))
        port.thaw(0)
        said.append((frozen, len(port.transmit(0))))
    assert said == [(0, 0), (1, 1), (0, 1)]


def test_keys_of_ports_that_behave_alike_are_equal() -> None:
    """What exploration lives on: an image that is taken is asked for no more; the timer of an ack that is due
    anyhow, and the peer's epoch where no NACK comes, change nothing."""
    a, b = pair()
    a.advance(1, 0)
    a.send(1, b"m")
    ((_, parts),) = a.transmit(0)
    asked, unasked = b, b.clone()
    asked.receive(parts, 0)
    asked.advance(1, 0)
    unasked.advance(1, 0)
    unasked.receive(parts, 0)
    asked.events()
    assert asked.key() == unasked.key()
    asked.delivered()
    unasked.delivered()
    unasked.tick(1 << 40)
    assert asked.key(timing=False) == unasked.key(timing=False) != asked.key()
    assert asked.key(nacks=False) != asked.key()


def test_counters_have_a_total_and_a_share_of_each_peer() -> None:
    a, b = pair()
    a.send(1, b"12345678")
    for _, parts in a.transmit(0):
        b.receive(parts, 0)
    b.delivered()
    assert a.peer_counters()[1]["messages_sent"] == a.counters()["messages_sent"] == 1
    assert b.peer_counters()[0]["messages_delivered"] == b.counters()["messages_delivered"] == 1
    assert a.backlog_bytes(1) == a.counters()["backlog_bytes"] == 8 + a.config.message_overhead_bytes
    assert set(COUNTERS) <= a.counters().keys()


def test_mutable_short_messages_are_copied() -> None:
    a, b = pair()
    data = bytearray(b"before")
    a.send(1, data)
    a.send(1, memoryview(data), bytearray(b"!"))
    data[:] = b"after!"
    for _, parts in a.transmit(0):
        b.receive(parts, 0)
    assert b.delivered() == [(0, [b"before", b"before!"])]


def test_sequences_have_62_bits() -> None:
    a, b = pair()
    start = END_OF_NUMBERS - 4
    for port, window, ledger in ((a, True, False), (b, False, True)):
        link = port._links[1 - port.config.rank]
        if window:
            link.window.base = link.window.tx = start
        if ledger:
            link.ledger.rx = link.ledger.arrived = start
    for number in range(3):
        assert a.send(1, b"%d" % number) == start + number
        for _, parts in a.transmit(0):
            b.receive(parts, 0)
    assert b.delivered() == [(0, [b"0", b"1", b"2"])]
    assert b.rx(0) == start + 3


def test_what_is_acked_is_let_go() -> None:
    """No buffer, batch or piece stays behind in a long exchange."""
    a, b = pair()
    now_ns = 0

    def exchange(rounds: int) -> None:
        nonlocal now_ns
        for _ in range(rounds):
            now_ns += 20_000_000
            a.send(1, bytes(50))
            a.send(1, bytes(1000))
            for x, y in ((a, b), (b, a)) * 3:
                x.tick(now_ns)
                for _, parts in x.transmit(now_ns):
                    y.receive(parts, now_ns)
                for source, messages in y.delivered():
                    y.consumed(source, sum(map(len, messages)), len(messages))

    exchange(50)
    tracemalloc.start()
    exchange(20)
    gc.collect()
    before = tracemalloc.get_traced_memory()[0]
    exchange(300)
    gc.collect()  # what a session of tests has left may become garbage meanwhile, or wait for being noticed
    after = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    now_ns += 1_000_000_000
    exchange(1)
    assert a.base(1) >= a.tx(1) - 4
    assert after - before < 20_000


# ---- a peer that is gone for ever ------------------------------------------------------------------------


def test_what_waits_for_a_dropped_peer_counts_as_acknowledged_and_later_sends_vanish() -> None:
    port = pair()[0]
    buffer = bytearray(5000)
    for data in (b"queued", bytes(200), buffer):
        port.send(1, data)
    port.transmit(0)
    port.send(1, b"after")
    port.drop_peer(1)
    assert port.base(1) == port.tx(1) and port.backlog_bytes(1) == 0 and port.idle()
    buffer.extend(b"free again")
    before = port.tx(1)
    assert port.base(1) > port.send(1, b"nobody reads this")
    assert port.tx(1) == before and port.transmit(0) == []
    port.tick(10**9)
    assert port.transmit(10**9) == [] and port.deadline_ns() is None, "no timer of that link runs"


def test_a_dropped_peers_complete_messages_are_delivered_and_its_late_frames_are_stale() -> None:
    mine, other = pair()
    other.send(0, b"before")
    for _, parts in other.transmit(0):
        mine.receive(parts, 0)
    mine.drop_peer(1)
    assert mine.delivered() == [(1, [b"before"])]
    other.send(0, b"late")
    for now_ns in range(0, 10**9, 10**8):
        other.tick(now_ns)
        for _, parts in other.transmit(now_ns):
            mine.receive(parts, now_ns)
    assert mine.delivered() == [] and mine.counters()["dropped_stale"] > 0
    mine.set_peer(1, 0, 0)
    mine.send(1, b"x")
    assert mine.transmit(0) == [], "its address, heard late, changes nothing"


def test_a_port_that_dropped_a_peer_serves_the_others() -> None:
    ports = [Endpoint(EndpointConfig(1, rank, 3, **SMALL)) for rank in range(3)]  # type: ignore[arg-type]
    for port in ports:
        for peer in range(3):
            port.set_peer(peer, 0, 0)
    ports[0].drop_peer(1)
    copy = ports[0].clone()
    for port in (ports[0], copy):
        port.send(2, b"hello")
        port.send(1, b"nobody")
        assert [rank for rank, _ in port.transmit(0)] == [2]


def test_the_programs_memory_can_be_had_back_before_the_ack() -> None:
    mine, other = pair()
    buffer = bytearray(b"a" * 5000)
    sequence = mine.send(1, b"head", buffer)
    assert mine.release(1, sequence), "nothing of it was sent yet"
    buffer[:] = b"b" * 5000
    got = []
    for now_ns in range(0, 10**8, 10**6):
        for at, to in ((mine, other), (other, mine)):
            at.tick(now_ns)
            for _, parts in at.transmit(now_ns):
                to.receive(parts, now_ns)
        got += other.delivered()
    assert [bytes(message) for _, messages in got for message in messages] == [b"head" + b"a" * 5000]


def test_memory_that_frames_under_way_refer_to_is_not_released() -> None:
    mine, _ = pair()
    sequence = mine.send(1, b"head", bytearray(5000))
    assert mine.transmit(0)
    assert not mine.release(1, sequence)
    assert mine.release(1, sequence - 1), "of a message that is acked or small there is nothing to release"

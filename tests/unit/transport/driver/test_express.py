"""The ordinary frame in C against the state machines in Python: the same frames, the same messages, the same state.

Whole histories of two endpoints are run both ways, with loss, duplication, reordering, acknowledgements of all kinds, long
messages that are read from their sender's memory, images and little credit, and compared after every step.
"""

from __future__ import annotations

import struct
import zlib
from typing import Any

import pytest

from tests.seeds import seed_of_the_commit

pytest.importorskip("ckpt.transport.driver._express", reason="the C modules are not built")

from tests.unit.transport.driver.express_sides import WAYS, History, Side


@pytest.mark.parametrize("part", range(4))
def test_whole_histories_are_the_same_both_ways(part: int, figures: Any) -> None:
    ways = dict.fromkeys(WAYS, 0)
    for seed in range(35):
        seed = 1000 * (seed_of_the_commit() % 1_000_000) + 100 * part + seed
        mine, short = History(seed, hot=True).run(100)
        other, _ = History(seed, hot=False).run(100)
        for number, (one, two) in enumerate(zip(mine, other, strict=True)):
            assert one == two, f"seed {seed}, step {number}"
        ways = {way: ways[way] + short[way] for way in WAYS}
    assert min(ways.values()) > 20, ways
    figures("ordinary frames, both ways", sum(ways.values()))


def pair(**limits: int) -> tuple[Side, Side]:
    sides = Side(0, limits, hot=True, job=7), Side(1, limits, hot=True, job=7)
    for side in sides:
        side.endpoint.set_peer(side.peer, 0, 1)
        side.flush(1)
    return sides


def taken(side: Side) -> dict[str, int]:
    return {way: count for way, count in side.ways.items() if count}


def test_a_round_trip_is_ordinary_at_every_step() -> None:
    one, two = pair()
    for number in range(20):
        (frame,) = one.send(b"ping %d" % number, 10 * number + 2)
        assert two.receive(frame, 10 * number + 3) == [(0, [b"ping %d" % number])]
        (frame,) = two.send(b"pong", 10 * number + 4)
        assert one.receive(frame, 10 * number + 5) == [(1, [b"pong"])]
    assert [taken(side) for side in (one, two)] == [{"emitted": 20, "accepted": 20}] * 2
    assert one.endpoint.base(1) == 20 and one.endpoint._links[1].timeout.srtt_ns > 0


def test_messages_that_cross_are_ordinary_at_every_step() -> None:
    """A frame that crosses another one acknowledges nothing of it: the next message found the link busy, and each step of a
    barrier or a halo exchange went through Python."""
    both = pair()
    for number in range(20):
        frames = [side.send(b"%d" % number, 10 * number + 2) or side.flush(10 * number + 3) for side in both]
        for side, ((frame,),) in zip(reversed(both), frames, strict=True):
            assert side.receive((frame,), 10 * number + 4) == [(both.index(side) ^ 1, [b"%d" % number])]
    expected = {"emitted": 1, "accepted": 20, "appended": 19, "open batch": 19}
    assert [taken(side) for side in both] == [expected] * 2
    assert [side.endpoint.base(1 - rank) for rank, side in enumerate(both)] == [19, 19]


def test_what_waits_on_a_link_shares_a_frame() -> None:
    one, two = pair()
    first = one.send(b"0", 2)
    assert [one.send(b"%d" % number, 3) for number in range(1, 4)] == [[], [], []]
    (second,) = one.flush(4)
    assert taken(one) == {"emitted": 1, "appended": 3, "open batch": 1}
    assert two.receive(first[0], 5) == [(0, [b"0"])]
    assert two.receive(second, 6) == [(0, [b"1", b"2", b"3"])]


def test_a_long_message_that_is_awaited_is_ordinary_at_every_step() -> None:
    """Each message of 256 KiB cost 60 calls of Python at its sender, and 78 at its receiver: two thirds of its time."""
    one, two = pair()
    two.awaits = True
    for number in range(20):
        payload = memoryview(b"%4d" % number * 65_536)
        (frame,) = one.send_long(b"e" * 32, payload, 10 * number + 2)
        assert two.receive(frame, 10 * number + 3) == [(0, [b"e" * 32 + payload])]
        (ack,) = two.flush(10 * number + 4)
        assert one.receive(ack, 10 * number + 5) == []
        assert one.endpoint.base(1) == number + 1 and one.endpoint.backlog_bytes(1) == 0
        two.endpoint.consumed(0, 32 + len(payload), 1)
    assert taken(one) == {"pointer": 20, "ACK accepted": 20}
    assert taken(two) == {"placed": 20, "ACK": 20}


@pytest.mark.parametrize("change", ["process", "badge", "address"])
def test_a_payload_that_cannot_be_read_is_left_to_python(change: str) -> None:
    one, two = pair()
    two.awaits = True
    ((head, pointer, _),) = one.send_long(b"e" * 32, memoryview(bytes(200_000)), 2)
    fields = list(struct.unpack("<BIQQQQ16s", pointer[4:]))
    at = {"address": 2, "process": 4, "badge": 6}[change]
    fields[at] = bytes(16) if change == "badge" else 1
    rest = struct.pack("<BIQQQQ16s", *fields)
    before = two.state()
    assert two.express.accept_remote(head, zlib.crc32(rest).to_bytes(4, "little") + rest, 3) is None
    assert two.state() == before
    assert two.express.accept_remote(head, pointer, 4)[0] == 0


def test_what_place_raises_is_raised_and_nothing_has_changed() -> None:
    one, two = pair()
    ((head, pointer, _),) = one.send_long(b"e" * 32, memoryview(bytes(200_000)), 2)

    def raise_it(head: bytes, nbytes: int) -> None:
        raise ZeroDivisionError

    before, two.on_place = two.state(), raise_it
    with pytest.raises(ZeroDivisionError):
        two.express.accept_remote(head, pointer, 3)
    assert two.state() == before


@pytest.mark.parametrize("bit", [*range(0, 8 * 124, 13), *range(8 * 124, 8 * (124 + 57), 5)])
def test_a_damaged_frame_with_a_pointer_is_left_to_python(bit: int) -> None:
    one, two = pair()
    two.awaits = True
    ((head, pointer, _),) = one.send_long(b"e" * 32, memoryview(bytes(200_000)), 2)
    frame = bytearray(head + pointer)
    frame[bit // 8] ^= 1 << bit % 8
    before = two.state()
    assert two.express.accept_remote(bytes(frame[: len(head)]), bytes(frame[len(head) :]), 3) is None
    assert two.state() == before


@pytest.mark.parametrize("bit", range(0, 8 * 80, 7))
def test_a_damaged_frame_is_left_to_python(bit: int) -> None:
    one, two = pair()
    ((frame,),) = one.send(b"12345678", 2)
    damaged = bytearray(frame)
    damaged[bit // 8] ^= 1 << bit % 8
    before = two.state()
    assert two.express.accept(bytes(damaged), 3) is None
    assert two.state() == before


@pytest.mark.parametrize("frame", [b"", b"x", bytes(71), bytes(72), "text", None, bytearray(80)])
def test_what_is_no_frame_is_left_to_python(frame: Any) -> None:
    one, _ = pair()
    assert one.express.accept(frame, 3) is None


@pytest.mark.parametrize("message", ["text", None, bytearray(8), memoryview(b"x"), bytes(150_000)])
def test_what_is_no_short_message_of_bytes_is_left_to_python(message: Any) -> None:
    one, _ = pair()
    assert one.express.emit(1, message, 3) is None and one.express.append(1, message) is None


@pytest.mark.parametrize("rank", [0, 2, -1, "1", None, 1.5, [], 1 << 70])
def test_what_is_no_other_rank_is_left_to_python(rank: Any) -> None:
    one, _ = pair()
    assert one.express.emit(rank, b"x", 3) is None and one.express.append(rank, b"x") is None


def test_a_frozen_or_replaced_or_dropped_rank_is_left_to_python() -> None:
    one, two = pair()
    (frame,) = one.send(b"x", 2)
    two.endpoint.freeze()
    assert two.express.accept(frame[0], 3) is None and two.express.emit(0, b"y", 3) is None
    two.endpoint.thaw(4)
    assert two.express.accept(frame[0], 5) == (0, [b"x"])
    assert two.express.accept(frame[0], 6) is None, "a duplicate"
    two.endpoint.drop_peer(0)
    assert two.express.emit(0, b"y", 7) is None


def test_nothing_is_leaked() -> None:
    import gc
    import tracemalloc

    one, two = pair()
    two.awaits, payload = True, memoryview(bytes(200_000))

    def exchange(count: int) -> None:
        for number in range(count):
            (frame,) = one.send(b"%d" % number, 2)
            two.receive(frame, 3)
            two.endpoint.consumed(0, len(b"%d" % number), 1)
            (frame,) = two.send(b"back", 4)
            one.receive(frame, 5)
            one.endpoint.consumed(1, 4, 1)
            (frame,) = one.send_long(b"e" * 32, payload, 6)
            two.receive(frame, 7)
            two.endpoint.consumed(0, 32 + len(payload), 1)
            (frame,) = two.flush(8)
            one.receive(frame, 9)

    exchange(300)
    gc.collect()
    tracemalloc.start()
    exchange(100)
    gc.collect()
    first, _ = tracemalloc.get_traced_memory()
    exchange(2_000)
    gc.collect()
    later, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert later - first < 4_000

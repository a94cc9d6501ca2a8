"""The ordinary frame in C against the state machines in Python: the same frames, the same messages, the same state.

Whole histories of two endpoints are run both ways, with loss, duplication, reordering, acknowledgements of all kinds,
images and little credit, and compared after every step.
"""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest

from ckpt.transport.protocol.endpoint import Endpoint, EndpointConfig
from ckpt.transport.protocol.link import Link
from ckpt.transport.protocol.timeout import Timeout
from ckpt.transport.protocol.window import SendWindow
from tests.seeds import seed_of_the_commit

_express = pytest.importorskip("ckpt.transport.driver._express", reason="the C modules are not built")

STEP_NS = 1_000_000


class Side:
    """One endpoint. `hot`: ordinary frames go the short way."""

    def __init__(
        self, rank: int, limits: dict[str, int], *, hot: bool, job: int, incarnation: int = 0
    ) -> None:
        config = EndpointConfig(job=job, rank=rank, size=2, incarnation=incarnation, epoch=0, **limits)
        self.endpoint = Endpoint(config)
        self.express = express_of(self.endpoint) if hot else None
        self.ways = [0, 0, 0, 0, 0]

    def send(self, message: bytes, now_ns: int) -> list[tuple[bytes, ...]]:
        peer = 1 - self.endpoint.config.rank
        if self.express is not None:
            if self.express.append(peer, message) is not None:
                self.ways[2] += 1
                return self.flush(now_ns) if self.endpoint.flush_due else []
            frame = self.express.emit(peer, message, now_ns)
            if frame is not None:
                self.ways[0] += 1
                return [(frame,)]
        self.endpoint.send(peer, message)
        return self.flush(now_ns) if self.endpoint.flush_due else []

    def flush(self, now_ns: int) -> list[tuple[bytes, ...]]:
        frames: list[tuple[bytes, ...]] = []
        sealed = self.endpoint._links[1 - self.endpoint.config.rank].window.sealed
        while self.express is not None:
            has_closed = bool(sealed)
            found = self.express.transmit(now_ns)
            if found is None:
                break
            assert found[0] == 1 - self.endpoint.config.rank
            self.ways[3 + has_closed] += 1
            frames.append((found[1],))
        if frames and not self.endpoint.marks.dirty:
            assert not self.endpoint.flush_due
            return frames
        return frames + [tuple(map(bytes, parts)) for _, parts in self.endpoint.transmit(now_ns)]

    def receive(self, frame: tuple[bytes, ...], now_ns: int) -> list[Any]:
        if self.express is not None and len(frame) == 1:
            found = self.express.accept(frame[0], now_ns)
            if found is not None:
                self.ways[1] += 1
                return [found]
        self.endpoint.receive(frame, now_ns)
        return [(source, list(map(bytes, messages))) for source, messages in self.endpoint.delivered()]

    def state(self) -> Any:
        link = self.endpoint._links[1 - self.endpoint.config.rank]
        own = [getattr(link, name) for name in Link.__slots__ if name not in _OBJECTS]
        window = [getattr(link.window, name) for name in SendWindow.__slots__ if name not in _OBJECTS]
        batches = [
            (batch.first, batch.end, batch.charge, batch.order, batch.sends, batch.sent_ns, batch.state)
            for batch in link.window.unacked
            if hasattr(batch, "messages")
        ]
        timeout = [getattr(link.timeout, name) for name in Timeout.__slots__]
        ledger = (
            link.ledger.unconsumed,
            link.ledger.offered,
            link.ledger.delivered_charge,
            link.ledger.inbox_charge,
        )
        marks = self.endpoint.marks
        common = (marks.deadline_ns, marks.flush_due, len(marks.dirty), len(marks.tight), list(marks.events))
        window.append(list(link.window.queue))
        return self.endpoint.key(), self.endpoint.counters(), own, window, batches, timeout, ledger, common


_OBJECTS = {
    "_common",
    "_ident",
    "counts",
    "ledger",
    "timeout",
    "window",
    "unacked",
    "sealed",
    "flight",
    "resend",
    "current",
    "queue",
}


def express_of(endpoint: Endpoint) -> Any:
    refused = SimpleNamespace(by_rank={})
    port = SimpleNamespace(endpoint=endpoint, _refused=refused, helper_watching=False, glance=None)
    return _express.Express(port, None, {}, [])


def history(seed: int, *, hot: bool, steps: int) -> tuple[list[Any], list[int]]:
    """What happened in a history, step by step, and how often each short way was taken."""
    chance = random.Random(seed)
    limits = chance.choice(
        [{}, {}, {"coalesce_bytes": 600, "large_bytes": 400, "fragment_bytes": 300}, {"credit_bytes": 4096}]
    )
    limits |= chance.choice(
        [{}, {"initial_credit_bytes": 500}, {"hungry_credit_bytes": 2000}, {"message_overhead_bytes": 0}]
    )
    job = chance.choice([1, (1 << 64) - 1])
    faults = chance.choice([0.0, 0.0, 0.05, 0.3])
    sides = [Side(rank, limits, hot=hot, job=job) for rank in (0, 1)]
    now_ns = 1_000
    for side in sides:
        side.endpoint.set_peer(1 - side.endpoint.config.rank, 0, now_ns)
    flying: list[list[tuple[bytes, ...]]] = [[], []]  # by target
    story: list[Any] = []
    unconsumed = [[0, 0], [0, 0]]
    for step in range(steps):
        now_ns += chance.choice([1, 1_000, STEP_NS, 30 * STEP_NS, 400 * STEP_NS])
        rank = chance.randrange(2)
        side = sides[rank]
        happened: Any = None
        match chance.randrange(24):
            case 0 | 1 | 2:
                size = chance.choice([0, 1, 8, 100, 1000, 9000, 70_000, 140_000])
                happened = side.send(chance.randbytes(chance.randint(0, size)), now_ns)
                flying[1 - rank] += happened
            case 3 | 4 | 5 | 6 if flying[rank]:
                at = chance.randrange(len(flying[rank])) if chance.random() < faults else 0
                frame = flying[rank][at]
                if chance.random() >= faults:
                    del flying[rank][at]
                if chance.random() < faults / 3:
                    frame = (frame[0][: chance.randrange(len(frame[0]))] + b"?", *frame[1:])
                happened = side.receive(frame, now_ns)
                for _, messages in happened:
                    unconsumed[rank][0] += sum(map(len, messages))
                    unconsumed[rank][1] += len(messages)
            case 7:
                side.endpoint.tick(now_ns)
                happened = side.flush(now_ns)
                flying[1 - rank] += happened
            case 8:
                side.endpoint.consumed(1 - rank, *unconsumed[rank])
                unconsumed[rank] = [0, 0]
            case 9 if chance.random() < 0.2:
                side.endpoint.freeze()
                happened = side.flush(now_ns)
                flying[1 - rank] += happened
                side.endpoint.advance(side.endpoint.epoch + 1, now_ns)
                side.endpoint.thaw(now_ns)
            case 10:
                side.endpoint.hungry(chance.random() < 0.5, now_ns)
            case 11 if chance.random() < faults:
                flying[rank].clear()
            case kind if kind > 11:  # a message, and all that flies arrives
                flying[1 - rank] += side.send(b"%d" % now_ns, now_ns)
                happened = [sides[1 - rank].receive(frame, now_ns + 1) for frame in flying[1 - rank]]
                flying[1 - rank].clear()
        states = [each.state() for each in sides] if step % 4 == 3 else []
        story.append((happened, states, [each.endpoint.events() for each in sides]))
    return story, [a + b for a, b in zip(sides[0].ways, sides[1].ways, strict=True)]


@pytest.mark.parametrize("part", range(4))
def test_whole_histories_are_the_same_both_ways(part: int, figures: Any) -> None:
    ways = [0, 0, 0, 0, 0]
    for seed in range(100):
        seed = 1000 * (seed_of_the_commit() % 1_000_000) + 100 * part + seed
        mine, short = history(seed, hot=True, steps=100)
        other, _ = history(seed, hot=False, steps=100)
        for number, (one, two) in enumerate(zip(mine, other, strict=True)):
            assert one == two, f"seed {seed}, step {number}"
        ways = [sum(both) for both in zip(ways, short, strict=True)]
    assert min(ways) > 20, ways
    figures("ordinary frames, both ways", sum(ways))


def pair(**limits: int) -> tuple[Side, Side]:
    sides = Side(0, limits, hot=True, job=7), Side(1, limits, hot=True, job=7)
    for side in sides:
        side.endpoint.set_peer(1 - side.endpoint.config.rank, 0, 1)
        side.flush(1)
    return sides


def test_a_round_trip_is_ordinary_at_every_step() -> None:
    one, two = pair()
    for number in range(20):
        (frame,) = one.send(b"ping %d" % number, 10 * number + 2)
        assert two.receive(frame, 10 * number + 3) == [(0, [b"ping %d" % number])]
        (frame,) = two.send(b"pong", 10 * number + 4)
        assert one.receive(frame, 10 * number + 5) == [(1, [b"pong"])]
    assert (one.ways, two.ways) == ([20, 20, 0, 0, 0], [20, 20, 0, 0, 0])
    assert one.endpoint.base(1) == 20 and one.endpoint._links[1].timeout.srtt_ns > 0


def test_messages_that_cross_are_ordinary_at_every_step() -> None:
    """A frame that crosses another one acknowledges nothing of it: the next message found the link busy, and each step of a
    barrier or a halo exchange went through Python."""
    both = pair()
    for number in range(20):
        frames = [side.send(b"%d" % number, 10 * number + 2) or side.flush(10 * number + 3) for side in both]
        for side, ((frame,),) in zip(reversed(both), frames, strict=True):
            assert side.receive((frame,), 10 * number + 4) == [(both.index(side) ^ 1, [b"%d" % number])]
    assert [side.ways for side in both] == [[1, 20, 19, 19, 0]] * 2
    assert [side.endpoint.base(1 - rank) for rank, side in enumerate(both)] == [19, 19]


def test_what_waits_on_a_link_shares_a_frame() -> None:
    one, two = pair()
    first = one.send(b"0", 2)
    assert [one.send(b"%d" % number, 3) for number in range(1, 4)] == [[], [], []]
    (second,) = one.flush(4)
    assert one.ways == [1, 0, 3, 1, 0]
    assert two.receive(first[0], 5) == [(0, [b"0"])]
    assert two.receive(second, 6) == [(0, [b"1", b"2", b"3"])]


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

    def exchange(count: int) -> None:
        for number in range(count):
            (frame,) = one.send(b"%d" % number, 2)
            two.receive(frame, 3)
            two.endpoint.consumed(0, len(b"%d" % number), 1)
            (frame,) = two.send(b"back", 4)
            one.receive(frame, 5)
            one.endpoint.consumed(1, 4, 1)

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

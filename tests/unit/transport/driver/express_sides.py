"""Two endpoints whose ordinary frames go the short way in C, or none of them, and random histories of both."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

from ckpt.transport.driver import _express
from ckpt.transport.protocol.endpoint import Endpoint, EndpointConfig
from ckpt.transport.protocol.ledger import Placed
from ckpt.transport.protocol.link import Link
from ckpt.transport.protocol.timeout import Timeout
from ckpt.transport.protocol.units import Large
from ckpt.transport.protocol.window import SendWindow
from ckpt.transport.wires.directwire import DIRECT_PIECE_BYTES, DirectWire

STEP_NS = 1_000_000
DIRECT_FROM = 500
"""Payloads from this length on are read."""


class Memory:
    """Where a receive wants a long message."""

    def __init__(self, nbytes: int) -> None:
        self.memory = memoryview(bytearray(nbytes))


class Below:
    """Stands for the wire below a DirectWire."""

    def __init__(self) -> None:
        self.sent: list[tuple[Any, ...]] = []

    def send(self, rank: int, parts: tuple[Any, ...]) -> bool:
        self.sent.append(parts)
        return True

    def receive(self) -> None:
        return None


WAYS = (
    *("emitted", "accepted", "appended", "open batch", "closed batch"),
    *("ACK", "ACK accepted", "pointer", "placed", "read elsewhere"),
)


class Side:
    """One endpoint. `hot`: ordinary frames go the short way."""

    def __init__(
        self, rank: int, limits: dict[str, int], *, hot: bool, job: int, incarnation: int = 0
    ) -> None:
        config = EndpointConfig(job=job, rank=rank, size=2, incarnation=incarnation, epoch=0, **limits)
        self.endpoint = Endpoint(config)
        self.endpoint.set_fragment(1 - rank, limits.get("fragment_bytes", DIRECT_PIECE_BYTES))
        self.peer = 1 - rank
        self.below = Below()
        self.wire = DirectWire(self.below, rank, from_bytes=DIRECT_FROM)  # type: ignore[arg-type]
        self.wire._direct.add(self.peer)
        self.awaits = False
        """A receive waits, which has memory for any long message."""
        self.express = express_of(self, self.wire.readers) if hot else None
        self.ways = dict.fromkeys(WAYS, 0)

    def on_place(self, head: bytes, nbytes: int) -> Memory | None:
        return Memory(nbytes) if self.awaits else None

    def send(self, message: bytes, now_ns: int) -> list[tuple[bytes, ...]]:
        if self.express is not None:
            if self.express.append(self.peer, message) is not None:
                self.ways["appended"] += 1
                return self.flush(now_ns) if self.endpoint.flush_due else []
            frame = self.express.emit(self.peer, message, now_ns)
            if frame is not None:
                self.ways["emitted"] += 1
                return [frame]
        self.endpoint.send(self.peer, message)
        return self.flush(now_ns) if self.endpoint.flush_due else []

    def send_long(self, data: bytes, payload: memoryview, now_ns: int) -> list[tuple[bytes, ...]]:
        if self.express is not None:
            frame = self.express.emit_large(self.peer, data, payload, now_ns)
            if frame is not None:
                self.ways["pointer"] += 1
                return [(*frame, b"")]
        self.endpoint.send(self.peer, data, payload)
        return self.flush(now_ns) if self.endpoint.flush_due else []

    def on_wire(self, parts: tuple[Any, ...]) -> tuple[bytes, ...]:
        """What DirectWire makes of a frame of the endpoint."""
        self.wire.send(self.peer, parts)
        return tuple(map(bytes, self.below.sent.pop()))

    def flush(self, now_ns: int) -> list[tuple[bytes, ...]]:
        frames: list[tuple[bytes, ...]] = []
        window = self.endpoint._links[self.peer].window
        while self.express is not None:
            way = "closed batch" if window.sealed else "open batch" if window.queue else "ACK"
            found = self.express.transmit(now_ns)
            if found is None:
                break
            assert found[0] == self.peer
            self.ways[way] += 1
            frames.append(found[1])
        if frames and not self.endpoint.marks.dirty:
            assert not self.endpoint.flush_due
            return frames
        return frames + [self.on_wire(parts) for _, parts in self.endpoint.transmit(now_ns)]

    def receive(self, frame: tuple[bytes, ...], now_ns: int) -> list[Any]:
        if self.express is not None:
            found = self._receive_fast(frame, now_ns)
            if found is not None:
                return found
        return self._receive_slowly(frame, now_ns)

    def _receive_fast(self, frame: tuple[bytes, ...], now_ns: int) -> list[Any] | None:
        if len(frame) == 1:
            found = self.express.accept(frame[0], now_ns)
            if found is not None:
                self.ways["accepted" if found[1] else "ACK accepted"] += 1
                return [found] if found[1] else []
        elif len(frame) == 3:
            found = self.express.accept_remote(*frame[:2], now_ns)
            if found is not None and isinstance(found[1], list):
                self.ways["read elsewhere"] += 1
                return [(found[0], list(map(bytes, found[1])))]
            if found is not None:
                self.ways["placed"] += 1
                return [(found[0], [found[1].head + bytes(found[1].spot.memory)])]
        return None

    def _receive_slowly(self, frame: tuple[bytes, ...], now_ns: int) -> list[Any]:
        opened: Any = frame if len(frame) < 3 else self.wire._open_pointer(frame)
        if opened is None:
            return []
        self.endpoint.place = self.on_place
        self.endpoint.receive(opened, now_ns)
        self.endpoint.place = None
        return [
            (source, [m.head + bytes(m.spot.memory) if isinstance(m, Placed) else bytes(m) for m in messages])
            for source, messages in self.endpoint.delivered()
        ]

    def state(self) -> Any:
        link = self.endpoint._links[self.peer]
        own = [getattr(link, name) for name in Link.__slots__ if name not in _OBJECTS]
        window = [getattr(link.window, name) for name in SendWindow.__slots__ if name not in _OBJECTS]
        batches = [
            (batch.first, batch.end, batch.charge, batch.order, batch.sends, batch.sent_ns, batch.state)
            for batch in link.window.unacked
            if hasattr(batch, "messages")
        ] + [
            (large.first, large.end, large.charge, large.size, large.cursor, large.data, pieces_of(large))
            for large in link.window.unacked
            if isinstance(large, Large)
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


def pieces_of(large: Large) -> list[tuple[int, ...]]:
    assert all(piece.large is large for piece in large.pieces)
    return [(p.offset, p.charge, p.order, p.sends, p.sent_ns, p.state) for p in large.pieces]


def express_of(side: Side, readers: Any) -> Any:
    refused = SimpleNamespace(by_rank={})
    port = SimpleNamespace(
        endpoint=side.endpoint,
        _refused=refused,
        helper_watching=False,
        glance=None,
        on_place=lambda head, nbytes: side.on_place(head, nbytes),
    )
    return _express.Express(port, None, {}, [], None, readers)


class History:
    """What happens to two sides, step by step, as chance will have it."""

    def __init__(self, seed: int, *, hot: bool) -> None:
        self.chance = chance = random.Random(seed)
        self.limits = chance.choice(
            [
                {},
                {},
                {"coalesce_bytes": 600, "large_bytes": 400, "fragment_bytes": 300},
                {"credit_bytes": 4096},
            ]
        )
        self.limits |= chance.choice(
            [{}, {"initial_credit_bytes": 500}, {"hungry_credit_bytes": 2000}, {"message_overhead_bytes": 0}]
        )
        job = chance.choice([1, (1 << 64) - 1])
        self.faults = chance.choice([0.0, 0.0, 0.05, 0.3])
        self.sides = [Side(rank, self.limits, hot=hot, job=job) for rank in (0, 1)]
        self.now_ns = 1_000
        for side in self.sides:
            side.endpoint.set_peer(side.peer, 0, self.now_ns)
        self.flying: list[list[tuple[bytes, ...]]] = [[], []]
        """By target."""
        self.kept: list[memoryview] = []
        """Payloads, which stay until the end."""
        self.unconsumed = [[0, 0], [0, 0]]

    def run(self, steps: int) -> tuple[list[Any], dict[str, int]]:
        """The story, and how often each short way was taken."""
        story: list[Any] = []
        for number in range(steps):
            self.now_ns += self.chance.choice([1, 1_000, STEP_NS, 30 * STEP_NS, 400 * STEP_NS])
            happened = self._step(self.sides[self.chance.randrange(2)])
            states = [side.state() for side in self.sides] if number % 4 == 3 else []
            events = [side.endpoint.events() for side in self.sides]
            story.append((without_addresses(happened), states, events))
        return story, {way: sum(side.ways[way] for side in self.sides) for way in WAYS}

    def _step(self, side: Side) -> Any:
        chance, now_ns, rank = self.chance, self.now_ns, 1 - side.peer
        match chance.randrange(30):
            case 0 | 1 | 2:
                size = chance.choice([0, 1, 8, 100, 1000, 9000, 50_000, 60_000])
                return self._fly(side, side.send(chance.randbytes(chance.randint(0, size)), now_ns))
            case 3 | 4 | 5 | 6 if self.flying[rank]:
                return self._arrive(side)
            case 7:
                side.endpoint.tick(now_ns)
                return self._fly(side, side.flush(now_ns))
            case 8:
                taker = side.express or side.endpoint
                taker.consumed(side.peer, *self.unconsumed[rank])
                assert taker.base(side.peer) == side.endpoint.base(side.peer)
                self.unconsumed[rank] = [0, 0]
            case 9 if chance.random() < 0.2:
                side.endpoint.freeze()
                frames = self._fly(side, side.flush(now_ns))
                side.endpoint.advance(side.endpoint.epoch + 1, now_ns)
                side.endpoint.thaw(now_ns)
                return frames
            case 10:
                side.endpoint.hungry(chance.random() < 0.5, now_ns)
            case 11 if chance.random() < self.faults:
                self.flying[rank].clear()
            case 12 | 13 | 14:
                return self._fly(side, self._send_long(side))
            case 15 | 16:
                side.awaits = not side.awaits
            case 17 if chance.random() < 0.2:
                (side.wire._direct.discard if chance.random() < 0.5 else side.wire._direct.add)(side.peer)
            case kind if kind > 17:
                return self._all_arrives(side, kind > 26, kind > 24)
        return None

    def _fly(self, side: Side, frames: list[tuple[bytes, ...]]) -> list[tuple[bytes, ...]]:
        self.flying[side.peer] += frames
        return frames

    def _send_long(self, side: Side) -> list[tuple[bytes, ...]]:
        chance = self.chance
        # beyond one burst, but in few pieces
        longest = 20_000 if "fragment_bytes" in self.limits else 6_000_000
        size = chance.choice([*(DIRECT_FROM - 1, DIRECT_FROM, 9000, 200_000) * 4, longest])
        self.kept.append(memoryview(chance.randbytes(chance.randint(1, 64)) * (size // 32)).toreadonly())
        data = chance.randbytes(chance.choice([0, 32, 32, 64, 65]))
        return side.send_long(data, self.kept[-1], self.now_ns)

    def _arrive(self, side: Side) -> list[Any]:
        """One frame, perhaps out of order, again, or damaged."""
        chance, flying = self.chance, self.flying[1 - side.peer]
        at = chance.randrange(len(flying)) if chance.random() < self.faults else 0
        frame = flying[at]
        if chance.random() >= self.faults:
            del flying[at]
        if chance.random() < self.faults / 3:
            frame = damaged(frame, chance)
        happened = side.receive(frame, self.now_ns)
        for _, messages in happened:
            self.unconsumed[1 - side.peer][0] += sum(map(len, messages))
            self.unconsumed[1 - side.peer][1] += len(messages)
        return happened

    def _all_arrives(self, side: Side, is_long: bool, is_acknowledged: bool) -> list[Any]:
        """A message is sent, and all that flies to its receiver arrives; then what flies back, too."""
        now_ns, other = self.now_ns, self.sides[side.peer]
        if is_long:
            self.kept.append(memoryview(b"%9d" % now_ns * 20_000))
            self._fly(side, side.send_long(b"e" * 32, self.kept[-1], now_ns))
        else:
            self._fly(side, side.send(b"%d" % now_ns, now_ns))
        happened = [other.receive(frame, now_ns + 1) for frame in self.flying[side.peer]]
        self.flying[side.peer] = []
        if is_acknowledged:
            back = self.flying[1 - side.peer] + other.flush(now_ns + 2)
            self.flying[1 - side.peer] = []
            happened += [side.receive(frame, now_ns + 3) for frame in back]
        return happened


def damaged(frame: tuple[bytes, ...], chance: random.Random) -> tuple[bytes, ...]:
    at = chance.randrange(min(len(frame), 2))
    part = frame[at]
    cut = part[: chance.randrange(len(part))] if part else part
    return (*frame[:at], cut + b"?", *frame[at + 1 :])


def without_addresses(happened: Any) -> Any:
    """Frames and messages, of a pointer only its length: the two histories are in memory at different addresses."""
    if isinstance(happened, list):
        return [without_addresses(each) for each in happened]
    if isinstance(happened, tuple) and len(happened) == 3:
        return happened[0], len(happened[1]), happened[2]
    return happened

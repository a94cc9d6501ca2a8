"""Hostile frames: random, damaged, forged, replayed, oversized, of another job.

`Hostile` draws them; `Victim` is an endpoint they are thrown at, with limits small enough to be met. What
must hold whatever comes: `receive` raises nothing; a frame is dropped and counted, held, or taken; what the
endpoint keeps stays within its limits (`Victim.check`).

Forged frames are the worst kind: right checksum, right job, any content. Only a member of the job could send
them (the wire authenticates); they may break the job, but not the process.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from random import Random
from zlib import crc32

from ckpt.transport.errors import FrameError
from ckpt.transport.protocol import frames
from ckpt.transport.protocol.config import EndpointConfig
from ckpt.transport.protocol.endpoint import Endpoint
from ckpt.transport.protocol.events import ImageDue
from ckpt.transport.protocol.state import Buffer

JOB, OTHER_JOB = 0x1BADB002, 0xDEADBEEF
SIZE = 3
EXTREMES = (
    0,
    1,
    2,
    3,
    0x7F,
    0xFF,
    0xFFFF,
    1 << 16,
    (1 << 31) - 1,
    1 << 31,
    (1 << 32) - 1,
    1 << 32,
    (1 << 63),
    (1 << 64) - 1,
)

LIMITS = {
    "credit_bytes": 8000,
    "initial_credit_bytes": 8000,
    "large_bytes": 200,
    "fragment_bytes": 128,
    "held_bytes": 4000,
    "held_frames": 40,
    "max_message_bytes": 20_000,
    "checksum_payload": True,
}
DRAIN = 64
"""A port takes at most so many frames from its wire before it delivers (`ckpt.transport.driver.port.DRAIN_FRAMES`)."""
LARGEST = 4096
"""Bytes of the longest hostile frame; a wire has such a limit too."""


class Victim:
    """Rank 0 of three, in incarnation 2, with traffic of its own under way."""

    def __init__(self) -> None:
        self.now_ns = 0
        self.taken = 0
        self.replaced = 0
        self._begin()

    def _begin(self) -> None:
        self.endpoint = Endpoint(EndpointConfig(JOB, 0, SIZE, 2, 5, **LIMITS))  # type: ignore[arg-type]
        for peer in range(SIZE):
            self.endpoint.set_peer(peer, 2, 0)

    def take(self, parts: Sequence[Buffer]) -> None:
        """One frame; now and then the owner does what owners do."""
        endpoint = self.endpoint
        endpoint.receive(parts, self.now_ns)
        self.taken += 1
        if endpoint._zombie:  # it believed that it was replaced: so it is
            self.replaced += 1
            self._begin()
        elif self.taken % DRAIN == 0:
            self.now_ns += 1_000_000
            endpoint.tick(self.now_ns)
            for source, messages in endpoint.delivered():
                endpoint.consumed(source, sum(map(len, messages)), len(messages))
            for event in endpoint.events():
                if isinstance(event, ImageDue) and endpoint.epoch < event.epoch < 1 << 63:
                    endpoint.advance(event.epoch, self.now_ns)
            if endpoint.backlog_bytes(1) < 4000:
                endpoint.send(1, bytes(self.taken % 300))
            endpoint.transmit(self.now_ns)
            self.check()

    def check(self) -> None:
        """What is kept is bounded by the configuration, whatever came."""
        endpoint, config = self.endpoint, self.endpoint.config
        counters = endpoint.counters()
        assert counters["held_bytes"] <= config.held_bytes and counters["held_frames"] <= config.held_frames
        for link in endpoint._links.values():
            ledger = link.ledger
            partial = sum(len(each.buffer) for each in ledger.partials.values())
            assert ledger.early_charge <= ledger.limit + config.max_message_bytes + ledger.overhead
            assert partial <= ledger.limit + config.max_message_bytes
            assert ledger.inbox_charge <= DRAIN * (LARGEST + config.max_message_bytes)
            assert len(endpoint.marks.events) <= DRAIN


class Hostile:
    """An endless supply, from a seed."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.seen: list[tuple[Buffer, ...]] = list(genuine(JOB))
        self.foreign = list(genuine(OTHER_JOB))

    def draw(self) -> tuple[str, tuple[Buffer, ...]]:
        """What kind, and the frame."""
        random = self.random
        kind = random.choice(
            ("random", "damaged", "forged", "forged", "forged", "replayed", "foreign", "oversized", "parts")
        )
        if kind == "random":
            return kind, (random.randbytes(random.randrange(200)),)
        if kind == "replayed":
            return kind, random.choice(self.seen)
        if kind == "foreign":
            return kind, random.choice(self.foreign)
        base = random.choice(self.seen)
        if kind == "damaged":
            return kind, self._damaged(base)
        if kind == "oversized":
            return kind, (
                sealed(bytes(base[0][4:72]) + random.randbytes(random.randrange(LARGEST))),
                *base[1:],
            )
        if kind == "parts":
            return kind, tuple(base[0] for _ in range(random.randrange(5)))
        return kind, self._forged(base)

    def _damaged(self, base: tuple[Buffer, ...]) -> tuple[Buffer, ...]:
        random = self.random
        part = bytearray(base[0])
        if random.random() < 0.3:
            del part[random.randrange(len(part)) :]
        else:
            part[random.randrange(len(part))] ^= 1 << random.randrange(8)
        return (bytes(part), *base[1:])

    def _forged(self, base: tuple[Buffer, ...]) -> tuple[Buffer, ...]:
        """Fields set to anything, and the checksum put right."""
        random = self.random
        head = bytearray(base[0])
        for _ in range(random.randrange(1, 4)):
            offset, size = random.choice(
                (
                    (6, 1),
                    (7, 1),
                    (16, 4),
                    (20, 4),
                    (24, 4),
                    (28, 4),
                    (32, 8),
                    (40, 8),
                    (48, 8),
                    (56, 8),
                    (64, 4),
                    (68, 4),
                    (72, 8),
                    (80, 8),
                    (88, 4),
                )
            )
            if offset + size <= len(head):
                value = random.choice(EXTREMES) if random.random() < 0.5 else random.randrange(12)
                head[offset : offset + size] = struct.pack("<Q", value & (1 << 8 * size) - 1)[:size]
        payload = base[1:]
        if payload and random.random() < 0.3:
            payload = (random.randbytes(random.randrange(300)),)
        return (sealed(bytes(head[4:])), *payload)


def sealed(rest: bytes) -> bytes:
    """The head with its checksum."""
    return crc32(rest).to_bytes(4, "little") + rest


def genuine(job: int) -> list[tuple[Buffer, ...]]:
    """Frames of every kind, as rank 1 sends them to rank 0."""
    ident = (job, 1, 0, 2, 2)
    stamp = (5, 0, 8000)
    made: list[tuple[Buffer, ...]] = []
    for first in range(6):
        made.append((frames.encode_messages(ident, stamp, first, [b"abc"]),))
        made.append((frames.encode_messages(ident, stamp, first, [b"a", b"bcd", b""]),))
        made.append((frames.encode_messages(ident, stamp, first, [b"ab", b"cd"], frames.ANSWER),))
        made += [
            frames.encode_fragment(
                ident, stamp, first, 300, offset, b"", bytes(min(128, 300 - offset)), frames.CHECKED
            )
            for offset in (0, 128, 256)
        ]
    made.append((frames.encode_ack(ident, stamp),))
    made.append((frames.encode_ack(ident, stamp, [(1, 3), (5, 6)], [(4, 0, 128)], frames.ANSWER),))
    made.append((frames.encode_probe(ident, stamp),))
    made.append((frames.encode_nack(ident, 5),))
    return made


def decode(parts: Sequence[Buffer]) -> str:
    """What the codec says to a frame: its kind, or "refused"; anything but FrameError is a bug."""
    try:
        header, head = frames.open_frame(parts)
        kind, flags, count, length = header[2], header[3], header[13], header[14]
        if kind == frames.MESSAGES:
            messages = frames.decode_messages(head, count, length)
            assert sum(map(len, messages)) <= len(head)
        elif kind == frames.FRAGMENT:
            total, offset, inline, payload = frames.decode_fragment(parts, head, flags, count, length)
            assert offset + len(inline) + len(payload) <= total
        elif kind == frames.ACK:
            ranges, pieces = frames.decode_hints(head, count, length)
            assert len(ranges) <= frames.MAX_HINTS and len(pieces) <= frames.MAX_HINTS
    except FrameError:
        return "refused"
    return frames.KIND_NAMES[kind]


STARTS = genuine(JOB)


def throw(data: bytes) -> int:
    """Throw the frames that these bytes describe at a victim of their own; how many there were.

    A frame is flags, a length and so many bytes. Flags: 1 what the bytes change of a genuine frame, in pairs of place
    and value, with the checksum put right (else they are the frame); 2 a second part; 4 the owner acts afterwards; the
    rest chooses the genuine frame.
    """
    victim, at, thrown = Victim(), 0, 0
    while at + 2 <= len(data):
        flags, length = data[at], data[at + 1]
        patch = data[at + 2 : at + 2 + length]
        at += 2 + length
        base = STARTS[(flags >> 3) % len(STARTS)]
        head = patch
        if flags & 1:
            changed = bytearray(base[0])
            for place, value in zip(patch[::2], patch[1::2], strict=False):
                if 4 <= place < len(changed):
                    changed[place] = value
            head = sealed(bytes(changed[4:]))
        parts = (head, base[1] if len(base) > 1 else patch) if flags & 2 else (head,)
        if flags & 4:
            victim.taken += DRAIN - 1 - victim.taken % DRAIN
        decode(parts)
        victim.take(parts)
        thrown += 1
    victim.check()
    return thrown

"""A ring of frames in shared memory: one direction between two processes of one host. What `_ring.c` has to do.

    0     magic, version u32 u32, capacity u64    written before the ring is handed over
    64    head u64     the writer's: all bytes before it are published
    128   tail u64     the reader's: all bytes before it are free again
    192   word u32     what the reader does
    256   numbers of a payload that both sides copy: `ring_share.c`, which has no counterpart here

    word      OFFERED   nobody reads yet
              AWAKE     the reader looks by itself
              ASLEEP    the reader sleeps on its descriptor: the writer that finds this word makes it AWAKE, and wakes
                        the reader
              CLOSED    nobody reads any more

Head and tail count bytes since the ring was made, and never wrap; a byte lies at its number modulo `capacity`, a power
of two. A record is total, count, first, second (u32 each: bytes of all parts, number of parts, lengths of the first
two), then the parts; records begin at multiples of 16 and are at most half as long as the ring. A record counts from
the moment at which `head` is beyond it, so what a writer that died had half written is never seen.

Neither side trusts the other's numbers: what cannot be makes a ring `damaged`, and a damaged ring is not used again.

The classes `Writer` and `Reader` here work on any writable memory, in one process: they are the specification that the
tests compare `_ring.c` with, on the same memory. Between processes only `_ring.c` is right, because Python cannot
order its loads and stores. Where the C module is missing, `available()` says so.

Not here: how a ring reaches the other process, and how a sleeping reader is woken (`ringwire.py`).
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from ckpt.transport.protocol.state import Buffer
from ckpt.transport.wires.wire import Frame

try:
    from ckpt.transport.rings import _ring
except ImportError:
    _ring = None  # type: ignore[assignment]

AWAKE, ASLEEP, CLOSED, OFFERED = range(4)
FULL, TAKEN, TAKEN_ASLEEP, TOO_LONG, BROKEN = range(5)
"""What `Writer.send` returns: no room now; written; written, and the caller has to wake the reader; longer than half
the ring; damaged or closed."""

MAGIC: Final = 0x474E4952
VERSION: Final = 2
DATA_AT: Final = 4096
LEAST_BYTES: Final = 16 << 10
MOST_BYTES: Final = 16 << 20
_HEAD_AT, _TAIL_AT, _WORD_AT = 64, 128, 192
_START = struct.Struct("<IIQ")
_RECORD = struct.Struct("<IIII")
_U64 = struct.Struct("<Q")
_U32 = struct.Struct("<I")


ALL_RINGS_BYTES: Final = 48 << 20
"""The rings of a whole job on one host take at most about this much memory, however many ranks there are (each at least
LEAST_BYTES)."""
RING_BYTES: Final = 1 << 20
"""Of one ring, where there are few."""


def ring_bytes(size: int) -> int:
    """The capacity of each ring in a job of `size` ranks on one host."""
    share = ALL_RINGS_BYTES // max(1, size * (size - 1))
    return max(LEAST_BYTES, min(RING_BYTES, 1 << (max(share, 1).bit_length() - 1)))


class FrameLimits(NamedTuple):
    """The longest frames that fit into a ring: each is at most half as long, and a longer one would take the socket."""

    coalesce: int
    large: int
    """`coalesce_bytes` and `large_bytes` of an endpoint: short messages of one frame have a charge less than their sum."""
    payload: int
    """A payload of this length or more is to be read from its sender's memory: it does not fit beside its head."""
    fragment: int
    """`fragment_bytes`: so long are the pieces for who cannot read them."""


def frame_limits(capacity: int) -> FrameLimits:
    """For rings of this capacity. From 64 KiB on, reading a message takes less time than copying it into a ring and out."""
    return FrameLimits(
        min(96 << 10, capacity * 3 // 16),
        min(64 << 10, capacity * 9 // 32),
        min(32 << 10, capacity // 4),
        capacity * 3 // 8 if capacity >= 512 << 10 else 1 << 20,
    )


def available() -> bool:
    """Is there the C module, so that rings can be used between processes?"""
    return _ring is not None


def _rounded(nbytes: int) -> int:
    return -(-nbytes // 16) * 16


def prepare(memory: memoryview) -> None:
    """Make a new ring of `memory`, whose bytes are zero: DATA_AT + capacity of them."""
    _START.pack_into(memory, 0, MAGIC, VERSION, len(memory) - DATA_AT)
    _U32.pack_into(memory, _WORD_AT, OFFERED)


class _Side:
    """What both sides of a ring have: their own position, and the data."""

    def __init__(self, memory: memoryview) -> None:
        self.memory = memory
        self.capacity = len(memory) - DATA_AT
        self.at = 0
        self.records = 0
        self.damaged = False

    def _load(self, at: int) -> int:
        return int(_U64.unpack_from(self.memory, at)[0])

    def word(self) -> int:
        """What the reader does."""
        return int(_U32.unpack_from(self.memory, _WORD_AT)[0])

    def _get(self, at: int, nbytes: int) -> bytes:
        offset = at % self.capacity
        before = min(nbytes, self.capacity - offset)
        begin = DATA_AT + offset
        return bytes(self.memory[begin : begin + before]) + bytes(
            self.memory[DATA_AT : DATA_AT + nbytes - before]
        )

    def _put(self, at: int, data: bytes) -> None:
        offset = at % self.capacity
        before = min(len(data), self.capacity - offset)
        begin = DATA_AT + offset
        self.memory[begin : begin + before] = data[:before]
        self.memory[DATA_AT : DATA_AT + len(data) - before] = data[before:]


class Writer(_Side):
    """The writing side of a ring in `memory`, which `prepare` has made."""

    def __init__(self, memory: memoryview) -> None:
        super().__init__(memory)
        self._tail = 0

    def send(self, parts: Frame) -> int:
        """Write a frame of one to three parts. Raises ValueError for another number of them."""
        if not 1 <= len(parts) <= 3:
            raise ValueError("a frame has one to three parts")
        body = b"".join(map(bytes, parts))
        need = _rounded(_RECORD.size + len(body))
        if need > self.capacity // 2:
            return TOO_LONG
        if self.at + need - self._tail > self.capacity:
            tail = self._load(_TAIL_AT)
            if not self._tail <= tail <= self.at or tail % 16:
                self.damaged = True
                return BROKEN
            self._tail = tail
            if self.at + need - tail > self.capacity:
                return FULL
        second = len(parts[1]) if len(parts) > 1 else 0
        self._put(self.at, _RECORD.pack(len(body), len(parts), len(parts[0]), second) + body)
        self.at += need
        self.records += 1
        _U64.pack_into(self.memory, _HEAD_AT, self.at)
        word = self.word()
        if word == ASLEEP:
            _U32.pack_into(self.memory, _WORD_AT, AWAKE)
            return TAKEN_ASLEEP
        if word in (AWAKE, OFFERED):
            return TAKEN
        self.damaged = word != CLOSED
        return BROKEN


class Reader(_Side):
    """The reading side of a ring in `memory`."""

    def __init__(self, memory: memoryview) -> None:
        """Raises ValueError: that is no ring."""
        super().__init__(memory)
        if _START.unpack_from(memory)[:2] != (MAGIC, VERSION):
            raise ValueError("no ring: another magic number or version")
        if self.word() == OFFERED:
            _U32.pack_into(memory, _WORD_AT, AWAKE)

    def receive(self) -> tuple[Buffer, ...] | None:
        """The next frame; None: there is none, or the ring is damaged."""
        filled = (self._load(_HEAD_AT) - self.at) % (1 << 64)
        if not filled or self.damaged:
            return None
        record = None
        if filled <= self.capacity and not filled % 16:
            record = _RECORD.unpack(self._get(self.at, _RECORD.size))
        if record is None or not self._possible(record, filled):
            self.damaged = True
            return None
        total, count, first, second = record
        body = self._get(self.at + _RECORD.size, total)
        ends = (first, first + second, total)
        starts = (0, *ends)
        self.at += _rounded(_RECORD.size + total)
        self.records += 1
        _U64.pack_into(self.memory, _TAIL_AT, self.at)
        return tuple(body[starts[part] : ends[part]] for part in range(count))

    def _possible(self, record: tuple[int, ...], filled: int) -> bool:
        total, count, first, second = record
        need = _rounded(_RECORD.size + total)
        if need > filled or need > self.capacity // 2 or not 1 <= count <= 3 or first + second > total:
            return False
        return count == 3 or (first + second == total and (count == 2 or first == total))

    def arm(self) -> bool:
        """Say that this side is going to sleep. False: a record is there."""
        if self.damaged:
            return True
        _U32.pack_into(self.memory, _WORD_AT, ASLEEP)
        return self._load(_HEAD_AT) == self.at

    def disarm(self) -> None:
        """Say that this side looks at the ring by itself."""
        if not self.damaged:
            _U32.pack_into(self.memory, _WORD_AT, AWAKE)

    def close(self) -> None:
        """Tell the writer that nobody reads any more."""
        _U32.pack_into(self.memory, _WORD_AT, CLOSED)

"""The content of a send window: entries in the order of their messages, and the units of which each one is transmitted.

An *entry* is a Batch (small messages that share a frame) or a Large (one long message, cut into Fragments). A *unit* is
transmitted as one frame: a Batch or a Fragment. Its states: READY, in FLIGHT, LOST (it will be sent again), HINTED (the peer
reports that it has the unit) and DONE; ckpt.transport.protocol.window says what leads from one to the next.
"""

from __future__ import annotations

from ckpt.transport.integers import integers
from ckpt.transport.protocol.state import Buffer

READY, FLIGHT, LOST, HINTED, DONE = 0, 1, 2, 3, 4


@integers("charge", "end", "first", "order", "sends", "sent_ns", "state")
class Batch:
    """Small messages that share a frame, with the sequence numbers `first` … `end` - 1."""

    __slots__ = ("charge", "end", "first", "messages", "order", "sends", "sent_ns", "state")

    def __init__(self, first: int, messages: list[bytes], charge: int) -> None:
        self.first = first
        self.end = first + len(messages)
        self.messages = messages
        self.charge = charge
        self.order = self.sends = self.sent_ns = 0
        self.state = READY


@integers("charge", "cursor", "end", "first", "size")
class Large:
    """One long message: `data` is sent inside the heads of fragments, `payload` in parts of their own without a copy.
    `cursor`: bytes cut into fragments so far."""

    __slots__ = ("charge", "cursor", "data", "end", "first", "payload", "pieces", "size")

    def __init__(self, first: int, data: Buffer, payload: memoryview, charge: int) -> None:
        self.first = first
        self.end = first + 1
        self.data = data
        self.payload = payload
        self.size = len(data) + len(payload)
        self.charge = charge
        self.cursor = 0
        self.pieces: list[Fragment] = []


@integers("charge", "offset", "order", "sends", "sent_ns", "state")
class Fragment:
    """Bytes [offset, offset + charge) of a Large."""

    __slots__ = ("charge", "large", "offset", "order", "sends", "sent_ns", "state")

    def __init__(self, large: Large, offset: int, length: int) -> None:
        self.large = large
        self.offset = offset
        self.charge = length
        self.order = self.sends = self.sent_ns = 0
        self.state = READY

    def parts(self) -> tuple[Buffer, memoryview]:
        """Inline bytes and payload slice."""
        large = self.large
        start, stop, split = self.offset, self.offset + self.charge, len(large.data)
        inline = memoryview(large.data)[start:stop] if start < split else b""
        return inline, large.payload[max(start - split, 0) : max(stop - split, 0)]


Unit = Batch | Fragment
Entry = Batch | Large


def copy_entry(entry: Entry, copies: dict[int, Unit]) -> Entry:
    """An independent copy; `copies`: id of each unit → its copy, added to."""
    new: Entry
    if isinstance(entry, Batch):
        new = Batch(entry.first, entry.messages, entry.charge)
        _copy_unit(entry, new, copies)
        return new
    new = Large(entry.first, entry.data, entry.payload, entry.charge)
    new.cursor = entry.cursor
    for piece in entry.pieces:
        copy = Fragment(new, piece.offset, piece.charge)
        _copy_unit(piece, copy, copies)
        new.pieces.append(copy)
    return new


def _copy_unit(unit: Unit, copy: Unit, copies: dict[int, Unit]) -> None:
    copy.order, copy.sends, copy.sent_ns, copy.state = unit.order, unit.sends, unit.sent_ns, unit.state
    copies[id(unit)] = copy


def entry_key(entry: Entry) -> tuple[object, ...]:
    """Contents and states as a hashable value."""
    if isinstance(entry, Batch):
        return entry.first, entry.state, tuple(entry.messages)
    states = tuple((piece.offset, piece.state) for piece in entry.pieces)
    return entry.first, bytes(entry.data), bytes(entry.payload), states

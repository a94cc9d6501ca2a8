"""Receiver's side of one link: duplicate filter, order, reassembly, and credit for the sender.

    rx        messages below this sequence number are delivered: the application's state holds them, and an image
              captures them. This is the value of the cumulative acknowledgement.
    arrived   messages below this sequence number have come in order; [rx, arrived) waits in `inbox` for `take`
    early     messages beyond a gap, by the sequence number of the first
    partials  long messages of which pieces are missing

A payload may be `Remote`: it is still in the sender's memory, and is read here, once it is known where it belongs. A whole
message that is next in order may be read into memory of the program, if its receive waits already (`place`); it is then
delivered as `Placed`. What cannot be read counts as lost.

Only `take` moves rx, so no message is acknowledged that an image could miss. A message that is not delivered is in no image
of the receiver: the sender still has it. The charge of early and partial messages is bounded by `limit`: frames beyond
it are refused, and the sender sends them again. The message that is next in order is always accepted.

Credit: window() is the charge that the sender may send beyond rx. It shrinks by the charge of the messages that are
delivered and not consumed. What does not belong here: time, frames, when an acknowledgement leaves (`link.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from ckpt.transport.integers import END_OF_NUMBERS, integers
from ckpt.transport.protocol.frames import Remote
from ckpt.transport.protocol.rangeset import RangeSet

Buffer = bytes | bytearray | memoryview

NEW, DUPLICATE, EARLY, REFUSED, PIECE = 0, 1, 2, 3, 4
"""Verdicts of `Ledger.accept` and `accept_piece`: in order; received before; beyond a gap; no room; part of a message that
is still incomplete."""

MAX_PARTIALS = 64

_COPIED = (
    "arrived",
    "delivered_charge",
    "early_charge",
    "inbox_charge",
    "offered",
    "rx",
    "unconsumed",
)


class Spot(Protocol):
    """Where the program wants a message: `memory` is writable, and as long as its payload. None: that is about to be known,
    and a message that can stay where it is until then does."""

    @property
    def memory(self) -> memoryview | None: ...


class Placed:
    """A message of `total` bytes: `head`, and a payload that is in the memory of `spot` already."""

    __slots__ = ("head", "spot", "total")

    def __init__(self, head: bytes, spot: Spot, total: int) -> None:
        self.head = head
        self.spot = spot
        self.total = total

    def __len__(self) -> int:
        return self.total


Place = Callable[[bytes, int], Spot | None]
"""Called with the head of a message and the length of its payload: where should it go? None: anywhere."""


class Partial:
    """A long message during reassembly: `filled` holds the byte ranges that have come."""

    __slots__ = ("buffer", "filled")

    def __init__(self, buffer: bytearray) -> None:
        self.buffer = buffer
        self.filled = RangeSet()


def _is_constant(payload: Buffer) -> bool:
    """Is the payload immutable? A read-only view counts as immutable: a wire returns such views of its own memory only."""
    return payload.readonly if isinstance(payload, memoryview) else isinstance(payload, bytes)


@integers(
    *("arrived", "credit", "delivered_charge", "early_charge", "inbox_charge", "limit"),
    *("offered", "overhead", "rx", "unconsumed"),
)
class Ledger:
    """Receiver's side of one link; see the module. `credit`, `limit`: charge; `overhead`: charge beside the length."""

    __slots__ = (
        "arrived",
        "credit",
        "delivered_charge",
        "early",
        "early_charge",
        "inbox",
        "inbox_charge",
        "limit",
        "offered",
        "overhead",
        "partials",
        "rx",
        "unconsumed",
    )

    def __init__(self, *, credit: int, limit: int, overhead: int) -> None:
        self.credit = credit
        self.limit = limit
        self.overhead = overhead
        self.rx = 0
        self.arrived = 0
        self.inbox: list[Buffer] = []
        self.inbox_charge = 0
        self.early: dict[int, list[Buffer]] = {}
        self.early_charge = 0
        self.partials: dict[int, Partial] = {}
        self.unconsumed = 0
        self.delivered_charge = 0
        self.offered = 0
        """End of the last window that was sent to the peer, counted from the link's start, like `delivered_charge`."""

    def charge(self, messages: Sequence[Buffer]) -> int:
        """The credit that these messages take: their lengths plus `overhead` for each."""
        return sum(map(len, messages)) + self.overhead * len(messages)

    def accept(self, first: int, messages: list[Buffer], charge: int) -> int:
        """Take messages with the sequence numbers `first`, `first` + 1, …. Returns NEW, DUPLICATE, EARLY or REFUSED."""
        arrived = self.arrived
        if first > arrived:
            return self._accept_early(first, messages, charge)
        if first < arrived:
            if first + len(messages) <= arrived:
                return DUPLICATE
            messages = messages[arrived - first :]
            charge = self.charge(messages)
        if self.inbox:
            self.inbox += messages
        else:
            self.inbox = messages
        self.inbox_charge += charge
        self.arrived = arrived + len(messages)
        if self.early:
            self._join()
        return NEW

    def _accept_early(self, first: int, messages: list[Buffer], charge: int) -> int:
        known = self.early.get(first)
        if known is not None:
            if len(known) >= len(messages):
                return DUPLICATE
            self.early_charge -= self.charge(known)
            del self.early[first]
        if self.early_charge + charge > self.limit or first >= END_OF_NUMBERS:
            return REFUSED
        self.early[first] = messages
        self.early_charge += charge
        return EARLY

    def _join(self) -> None:
        """Move early messages that now follow in order to the inbox."""
        while self.early:
            first = min(self.early)
            if first > self.arrived:
                break
            messages = self.early.pop(first)
            self.early_charge -= self.charge(messages)
            messages = messages[self.arrived - first :]
            self.inbox += messages
            self.inbox_charge += self.charge(messages)
            self.arrived += len(messages)
        for sequence in [s for s in self.partials if s < self.arrived]:
            del self.partials[sequence]

    def accept_piece(
        self,
        sequence: int,
        total: int,
        offset: int,
        inline: Buffer,
        payload: Buffer,
        allocate: Callable[[int], bytearray],
    ) -> int:
        """Take one piece of message `sequence`: bytes from `offset` on, of `total` in all; `inline` comes before `payload`.

        Returns what `accept` returns, or PIECE: the piece was taken and the message is not complete yet.
        """
        if sequence < self.arrived or sequence in self.early:
            return DUPLICATE
        partial = self.partials.get(sequence)
        if partial is None:
            if self._is_too_much(sequence, total):
                return REFUSED
            if len(payload) == total and _is_constant(payload):  # complete: no copy
                whole = payload.obj if isinstance(payload, memoryview) else payload
                message = whole if isinstance(whole, bytes) and len(whole) == total else payload
                return self.accept(sequence, [message], total + self.overhead)
            try:
                partial = self.partials[sequence] = Partial(allocate(total))
            except (MemoryError, OverflowError):
                return REFUSED
        buffer = partial.buffer
        if len(buffer) != total:
            return REFUSED
        middle = offset + len(inline)
        stop = middle + len(payload)
        if not partial.filled.add(offset, stop):
            return DUPLICATE
        # Through a view: a slice assignment to a bytearray itself copies any source but a bytearray twice.
        with memoryview(buffer) as view:
            if middle > offset:
                view[offset:middle] = inline
            view[middle:stop] = payload
        if not partial.filled.covers(0, total):
            return PIECE
        del self.partials[sequence]
        return self._accept_whole(sequence, buffer)

    def _is_too_much(self, sequence: int, total: int) -> bool:
        """Is there no room for a message of which the first piece has come, since others are to come before it?"""
        return sequence > self.arrived and (
            sequence >= END_OF_NUMBERS
            or len(self.partials) >= MAX_PARTIALS
            or self.early_charge + self._partial_bytes() + total > self.limit
        )

    def _accept_whole(self, sequence: int, message: Buffer) -> int:
        """Take a long message that is complete. Its charge was checked against `limit` before."""
        charge = len(message) + self.overhead
        if sequence > self.arrived:
            self.early[sequence] = [message]
            self.early_charge += charge
            return EARLY
        return self.accept(sequence, [message], charge)

    def accept_remote(
        self,
        sequence: int,
        total: int,
        offset: int,
        inline: Buffer,
        payload: Remote,
        allocate: Callable[[int], bytearray],
        place: Place | None,
    ) -> int:
        """As `accept_piece`, for a payload that is to be read; REFUSED also if it cannot be read.

        `place`: given by a caller that delivers in the same step, so that no other message comes to the program before
        this one, and no receive is withdrawn.
        """
        if sequence < self.arrived or sequence in self.early:
            return DUPLICATE
        partial = self.partials.get(sequence)
        if partial is None:
            if self._is_too_much(sequence, total):
                return REFUSED
            is_whole = len(inline) + len(payload) == total
            if is_whole and place is not None and sequence == self.rx:
                spot = place(bytes(inline), len(payload))
                memory = None if spot is None else spot.memory
                if spot is not None and memory is not None and payload.fill(memory):
                    placed: list[Buffer] = [Placed(bytes(inline), spot, total)]  # type: ignore[list-item]
                    return self.accept(sequence, placed, total + self.overhead)
            try:
                partial = Partial(allocate(total))
            except (MemoryError, OverflowError):
                return REFUSED
        buffer = partial.buffer
        middle = offset + len(inline)
        stop = middle + len(payload)
        if len(buffer) != total:
            return REFUSED
        if partial.filled.covers(offset, stop):
            return DUPLICATE
        with memoryview(buffer) as view, view[middle:stop] as into:
            if not payload.fill(into):
                return REFUSED
            view[offset:middle] = inline
        partial.filled.add(offset, stop)
        if not partial.filled.covers(0, total):
            self.partials[sequence] = partial
            return PIECE
        self.partials.pop(sequence, None)
        return self._accept_whole(sequence, buffer)

    def _partial_bytes(self) -> int:
        return sum(len(partial.buffer) for partial in self.partials.values())

    def take(self) -> list[Buffer]:
        """Return the messages of the inbox: from now on they are delivered, and may be acknowledged."""
        messages = self.inbox
        self.inbox = []
        self.rx = self.arrived
        self.unconsumed += self.inbox_charge
        self.delivered_charge += self.inbox_charge
        self.inbox_charge = 0
        return messages

    def forget_undelivered(self) -> None:
        """Drop all messages that are not delivered: they came from an earlier incarnation of the sender."""
        self.inbox = []
        self.inbox_charge = self.early_charge = 0
        self.early.clear()
        self.partials.clear()
        self.arrived = self.rx

    def window(self, floor: int) -> int:
        """The charge that the sender may send beyond rx; at least `floor` (the credit that a hungry receiver grants)."""
        window = self.credit - self.unconsumed
        return window if window > floor else floor

    def hints(self, most: int) -> tuple[list[tuple[int, int]], list[tuple[int, int, int]]]:
        """What has come beyond rx: ranges of sequence numbers [start, stop), and pieces (sequence, start, stop) in bytes;
        at most `most` of each."""
        ranges = RangeSet()
        ranges.add(self.rx, self.arrived)
        for first in sorted(self.early):
            ranges.add(first, first + len(self.early[first]))
        pieces = [
            (sequence, start, stop)
            for sequence in sorted(self.partials)
            for start, stop in self.partials[sequence].filled
        ]
        return list(ranges)[:most], pieces[:most]

    def clone(self) -> Ledger:
        """An independent copy; complete messages are shared, the buffers of partial ones are copied."""
        new = Ledger(credit=self.credit, limit=self.limit, overhead=self.overhead)
        for name in _COPIED:
            setattr(new, name, getattr(self, name))
        new.inbox = self.inbox.copy()
        new.early = {first: messages.copy() for first, messages in self.early.items()}
        for sequence, partial in self.partials.items():
            copy = new.partials[sequence] = Partial(bytearray(partial.buffer))
            copy.filled = partial.filled.copy()
        return new

    def key(self, credit: bool = True) -> tuple[object, ...]:
        """The content as a hashable value, to compare states; without `credit`, flow control is left out."""
        return (
            self.rx,
            self.arrived,
            tuple(map(bytes, self.inbox)),
            tuple((first, tuple(map(bytes, m))) for first, m in sorted(self.early.items())),
            tuple((s, bytes(p.buffer), tuple(p.filled)) for s, p in sorted(self.partials.items())),
            (self.unconsumed, self.offered - self.delivered_charge) if credit else 0,
        )

"""Receiver's side of one link: duplicate filter, order, reassembly, and what is owed to the sender.

    rx        messages below are delivered: the application's state holds them, an image captures them. This
              is the ack.
    arrived   messages below have come in order; [rx, arrived) waits in `inbox` for `take`
    early     messages beyond a gap, by their first sequence
    partials  long messages of which pieces are missing

Only `take` moves rx, so nothing is acked that an image could miss. What is not delivered is in no image: the
sender has it. Early and partial messages are bounded by `limit`: beyond, frames are refused (the sender sends
them again); the message that is next in order is always accepted.

Credit: window() is the charge the sender may have sent beyond rx. It shrinks by what is delivered and not
consumed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ckpt.transport.protocol.rangeset import RangeSet

Buffer = bytes | bytearray | memoryview

NEW, DUPLICATE, EARLY, REFUSED, PIECE = 0, 1, 2, 3, 4
"""In order; seen before; beyond a gap; no room for it; part of a message still incomplete."""

MAX_PARTIALS = 64

END_OF_SEQUENCES = 1 << 63
"""No honest sender gets this far; hints of what lies beyond would not fit into a frame."""

_COPIED = (
    "arrived",
    "delivered_charge",
    "early_charge",
    "inbox_charge",
    "offered",
    "rx",
    "unconsumed",
)


class Partial:
    """A long message being put together."""

    __slots__ = ("buffer", "filled")

    def __init__(self, buffer: bytearray) -> None:
        self.buffer = buffer
        self.filled = RangeSet()


def _is_constant(payload: Buffer) -> bool:
    """Will nobody write to it? A wire hands out read-only views of memory that nobody else uses."""
    return payload.readonly if isinstance(payload, memoryview) else isinstance(payload, bytes)


class Ledger:
    """See the module. `credit`, `limit`: charge; `overhead`: charge of a message beside its length."""

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
        """Where the last window told to the sender ended, counted like delivered_charge."""

    def charge(self, messages: Sequence[Buffer]) -> int:
        """Credit these messages take."""
        return sum(map(len, messages)) + self.overhead * len(messages)

    def accept(self, first: int, messages: list[Buffer], charge: int) -> int:
        """Messages `first` … have come. Returns NEW, DUPLICATE, EARLY or REFUSED."""
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
        if self.early_charge + charge > self.limit or first >= END_OF_SEQUENCES:
            return REFUSED
        self.early[first] = messages
        self.early_charge += charge
        return EARLY

    def _join(self) -> None:
        """Early messages that the gap no longer separates go to the inbox."""
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
        """A piece of message `sequence` has come. Also PIECE: taken, the message is not complete yet."""
        if sequence < self.arrived or sequence in self.early:
            return DUPLICATE
        partial = self.partials.get(sequence)
        if partial is None:
            ahead = sequence > self.arrived
            if ahead and (
                sequence >= END_OF_SEQUENCES
                or len(self.partials) >= MAX_PARTIALS
                or self.early_charge + self._partial_bytes() + total > self.limit
            ):
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
        # Through a view: a bytearray takes a slice from anything but a bytearray by way of a second copy.
        with memoryview(buffer) as view:
            if middle > offset:
                view[offset:middle] = inline
            view[middle:stop] = payload
        if not partial.filled.covers(0, total):
            return PIECE
        del self.partials[sequence]
        if sequence > self.arrived:
            # bounded already when the partial was let in
            self.early[sequence] = [buffer]
            self.early_charge += total + self.overhead
            return EARLY
        return self.accept(sequence, [buffer], total + self.overhead)

    def _partial_bytes(self) -> int:
        return sum(len(partial.buffer) for partial in self.partials.values())

    def take(self) -> list[Buffer]:
        """Hand the inbox over: from now on these messages are delivered, and may be acked."""
        messages = self.inbox
        self.inbox = []
        self.rx = self.arrived
        self.unconsumed += self.inbox_charge
        self.delivered_charge += self.inbox_charge
        self.inbox_charge = 0
        return messages

    def forget_undelivered(self) -> None:
        """The sender's incarnation changed: what came from the old one and was not delivered is void."""
        self.inbox = []
        self.inbox_charge = self.early_charge = 0
        self.early.clear()
        self.partials.clear()
        self.arrived = self.rx

    def window(self, floor: int) -> int:
        """Charge the sender may send beyond rx; at least `floor` (what a hungry receiver grants)."""
        window = self.credit - self.unconsumed
        return window if window > floor else floor

    def hints(self, most: int) -> tuple[list[tuple[int, int]], list[tuple[int, int, int]]]:
        """What has come beyond rx: ranges of sequences, and pieces (sequence, start, stop); at most `most` of
        each."""
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
        """An independent copy; delivered buffers are shared, partial ones are not."""
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
        """Hashable contents."""
        return (
            self.rx,
            self.arrived,
            tuple(map(bytes, self.inbox)),
            tuple((first, tuple(map(bytes, m))) for first, m in sorted(self.early.items())),
            tuple((s, bytes(p.buffer), tuple(p.filled)) for s, p in sorted(self.partials.items())),
            (self.unconsumed, self.offered - self.delivered_charge) if credit else 0,
        )

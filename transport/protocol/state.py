"""PortState: the part of a port's state that an image keeps.

For every peer: the messages that this rank must send again (enqueued and not acknowledged, in order, by reference),
the vectors (tx, base, rx), and the charge of the messages that are delivered and not yet consumed by the application.
Not in it: messages that arrived and were not delivered, and partial messages (their sender still holds them); timers,
round-trip estimates and the peer's incarnation (these are learnt again after a restart).

A recovery line (one image of every rank, in this package called a *line*) is consistent when base_i ≤ rx_j ≤ tx_i on every
link i→j (`link_error`). rx_j > tx_i would be an orphan message (Randell 1975; Chandy and Lamport 1985), rx_j < base_i a
lost one.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping

from ckpt.transport.records import dataclass, field

Buffer = bytes | bytearray | memoryview
Message = Buffer | tuple[Buffer, Buffer]


def _portable(message: object) -> object:
    """Return a message in a form that pickle takes: a view becomes an out-of-band buffer of pickle protocol 5."""
    if isinstance(message, tuple):
        return tuple(_portable(part) for part in message)
    if isinstance(message, memoryview):
        return pickle.PickleBuffer(message) if message.contiguous else message.tobytes()
    return message


@dataclass(slots=True)
class LinkState:
    """The state of the link to one peer. `messages[i]` has the sequence number `base + i`; a pair (data, payload) is one
    message in two buffers. `unconsumed_bytes` is a charge: lengths plus overheads."""

    base: int = 0
    tx: int = 0
    rx: int = 0
    unconsumed_bytes: int = 0
    messages: list[Message] = field(default_factory=list)

    def __getstate__(self) -> tuple[int, int, int, int, list[object]]:
        return (self.base, self.tx, self.rx, self.unconsumed_bytes, [_portable(m) for m in self.messages])

    def __setstate__(self, state: tuple[int, int, int, int, list[Message]]) -> None:
        self.base, self.tx, self.rx, self.unconsumed_bytes, self.messages = state


@dataclass(slots=True)
class PortState:
    """State of a whole port at one moment; `epoch` and `incarnation` are those in force when the snapshot was taken."""

    job: int
    rank: int
    size: int
    epoch: int
    incarnation: int
    links: dict[int, LinkState] = field(default_factory=dict)

    def vectors(self) -> dict[int, tuple[int, int, int]]:
        """peer → (tx, base, rx): messages enqueued to it, lowest unacked, messages delivered from it."""
        return {peer: (link.tx, link.base, link.rx) for peer, link in self.links.items()}

    def nbytes(self) -> int:
        """Total length of the messages in it, in bytes."""
        total = 0
        for link in self.links.values():
            for message in link.messages:
                parts = message if isinstance(message, tuple) else (message,)
                total += sum(memoryview(part).nbytes for part in parts)
        return total


Vectors = Mapping[int, Mapping[int, tuple[int, int, int]]]


def link_error(vectors: Vectors) -> str | None:
    """Check that base_i ≤ rx_j ≤ tx_i on every link i→j; return None, or a text that names the first bad link.

    `vectors[rank][peer]` is (tx, base, rx) as from `PortState.vectors`; a peer that is missing counts as (0, 0, 0).
    """
    no_messages = (0, 0, 0)
    for i in sorted(vectors):
        for j in sorted(vectors):
            tx, base, _ = vectors[i].get(j, no_messages)
            rx = vectors[j].get(i, no_messages)[2]
            if not base <= rx <= tx:
                what = "lost" if rx < base else "orphan"
                return f"link {i}->{j}: {what} message: base {base}, rx {rx}, tx {tx}"
    return None

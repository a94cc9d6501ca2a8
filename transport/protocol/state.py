"""PortState: what an image keeps of a port, and nothing else.

For every peer: the messages that this rank must send again (enqueued and not acked, in order, by reference),
the vectors (tx, base, rx) and the bytes delivered but not yet consumed by the application. Not in it: what
arrived and was not delivered, partial messages, timers, estimates and the peer's incarnation. The sender
still holds the former, the rest is learnt again (the five states of a message: see the package's
documentation).

A consistent line has base_i ≤ rx_j ≤ tx_i on every link i→j (`link_error`).
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping

from ckpt.transport.records import dataclass, field

Buffer = bytes | bytearray | memoryview
Message = Buffer | tuple[Buffer, Buffer]


def _portable(message: object) -> object:
    """A message as something pickle takes: views become out-of-band buffers of protocol 5."""
    if isinstance(message, tuple):
        return tuple(_portable(part) for part in message)
    if isinstance(message, memoryview):
        return pickle.PickleBuffer(message) if message.contiguous else message.tobytes()
    return message


@dataclass(slots=True)
class LinkState:
    """One peer's share. `messages[i]` has sequence `base + i`; a pair is (data, payload), one message in two
    buffers."""

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
    """State of a whole port as of one moment; `epoch` and `incarnation` are those in force when it was
    taken."""

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
        """Bytes of message content held."""
        total = 0
        for link in self.links.values():
            for message in link.messages:
                parts = message if isinstance(message, tuple) else (message,)
                total += sum(memoryview(part).nbytes for part in parts)
        return total


Vectors = Mapping[int, Mapping[int, tuple[int, int, int]]]


def link_error(vectors: Vectors) -> str | None:
    """Why these ranks' vectors are no consistent line, or None: base_i ≤ rx_j ≤ tx_i on every link i→j.

    `vectors[rank][peer]` as from `PortState.vectors`; a peer that is missing counts as (0, 0, 0).
    """
    nothing = (0, 0, 0)
    for i in sorted(vectors):
        for j in sorted(vectors):
            tx, base, _ = vectors[i].get(j, nothing)
            rx = vectors[j].get(i, nothing)[2]
            if not base <= rx <= tx:
                kind = "lost" if rx < base else "orphan"
                return f"link {i}->{j}: {kind} message: base {base}, rx {rx}, tx {tx}"
    return None

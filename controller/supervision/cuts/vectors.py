"""Checks before every commit that the images of all ranks are one consistent line. Pure.

For each link i→j (i = j included), i's image holds ``tx``, the number of messages that i has enqueued, and ``base``, the
number of the lowest message that is not acknowledged; j's image holds ``rx``, the number of messages that j has received.
The images are consistent if and only if ``base_i ≤ rx_j ≤ tx_i`` on each link:

    rx_j > tx_i     an orphan message: j has received a message that i, going on from its image, has not sent yet
    rx_j < base_i   a lost message: i has dropped a message that j, going on from its image, has not received

A link that an image does not mention has never carried a message: (0, 0, 0).
"""

from __future__ import annotations

from collections.abc import Mapping

from ckpt.transport.records import dataclass

Vector = tuple[int, int, int]  # tx, base, rx
_NO_MESSAGES: Vector = (0, 0, 0)


@dataclass(frozen=True, slots=True)
class Inconsistency:
    """One link that violates the inequality."""

    source: int
    destination: int
    tx: int
    base: int
    rx: int

    def __str__(self) -> str:
        what = "orphan" if self.rx > self.tx else "lost message"
        return (
            f"{what} on link {self.source}→{self.destination}: "
            f"base {self.base} ≤ rx {self.rx} ≤ tx {self.tx} does not hold"
        )


def check(vectors: Mapping[int, Mapping[int, Vector]]) -> list[Inconsistency]:
    """All links that violate the inequality; empty: the images are consistent.

    `vectors`: for each rank, for each peer, (tx, base, rx) of the rank's image.
    """
    wrong = []
    for source, outgoing in vectors.items():
        for destination, incoming in vectors.items():
            tx, base, _ = outgoing.get(destination, _NO_MESSAGES)
            _, _, rx = incoming.get(source, _NO_MESSAGES)
            if not base <= rx <= tx:
                wrong.append(Inconsistency(source, destination, tx, base, rx))
    return wrong

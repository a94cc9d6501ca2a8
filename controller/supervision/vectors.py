"""The check before every commit: are these images one consistent line?

On each link i→j (i = j included) let i's image hold ``tx`` messages enqueued and ``base`` the lowest unacked,
and j's image ``rx`` messages received. The images belong together iff ``base_i ≤ rx_j ≤ tx_i``:

    rx_j > tx_i     an orphan: j has received what i, going on from its image, has not sent yet
    rx_j < base_i   a loss: i has forgotten a message that j, going on from its image, has not received

A link that an image does not mention has never carried anything: (0, 0, 0).
"""

from __future__ import annotations

from collections.abc import Mapping

from ckpt.transport.records import dataclass

Vector = tuple[int, int, int]  # tx, base, rx
_NOTHING: Vector = (0, 0, 0)


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
    """Violations over all links among the ranks of `vectors` (rank -> peer -> (tx, base, rx)); empty:
    consistent.
    """
    wrong = []
    for source, outgoing in vectors.items():
        for destination, incoming in vectors.items():
            tx, base, _ = outgoing.get(destination, _NOTHING)
            _, _, rx = incoming.get(source, _NOTHING)
            if not base <= rx <= tx:
                wrong.append(Inconsistency(source, destination, tx, base, rx))
    return wrong

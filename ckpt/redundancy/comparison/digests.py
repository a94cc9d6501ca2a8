"""The digests of what one replica has made, for others that compare: what they have not been told yet, and what a copy is to
be told. Pure.

    add       the replica has made a message
    rows      what is new since the last call: it is told
    keep      a copy is announced: from now on nothing is forgotten that it will want (`since`), until it has come (`forget`)
    go_on     the replica is a copy itself: it has told nothing yet, but the digest of the place of its image, which is
              chained and so stands for all before it

Not here: what follows from digests (release.py), to whom they are told.
"""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["Digests", "Row"]

Row = tuple[str, int, list[int]]
"""A stream, the number of a message, the digests from that message on."""

First = tuple[int, list[int]]
"""The number of a message, the digests from that message on."""


class Digests:
    """What one replica has made. Numbers of messages count from 1 in their stream."""

    def __init__(self) -> None:
        self.fresh: dict[str, First] = {}
        """By stream, what the others have not been told yet."""
        self._kept: dict[str, First] | None = None

    def go_on(self, states: Mapping[str, tuple[int, int]]) -> None:
        """This replica is a copy. `states`: by stream, how many messages its image has as sent, the digest of the last."""
        for stream, (count, digest) in states.items():
            self.fresh[stream] = count, [digest]

    def add(self, stream: str, number: int, digest: int) -> int:
        """The replica has made this message. Returns how many of its stream are to be told."""
        fresh = self.fresh.get(stream)
        if fresh is None:
            fresh = self.fresh[stream] = number, []
        fresh[1].append(digest)
        if self._kept is not None:
            self._kept.setdefault(stream, (number, []))[1].append(digest)
        return len(fresh[1])

    def rows(self) -> list[Row]:
        """What the others have not been told yet."""
        fresh, self.fresh = self.fresh, {}
        return [(stream, first, digests) for stream, (first, digests) in fresh.items()]

    def keep(self, before: Mapping[str, First]) -> None:
        """A copy is announced. `before`: by stream, digests of the last messages."""
        self._kept = {stream: (first, list(digests)) for stream, (first, digests) in before.items()}

    def forget(self) -> None:
        """No copy is on the way any more."""
        self._kept = None

    def since(self, counts: Mapping[str, int]) -> list[Row]:
        """For a copy that has so many messages of each stream: the digests behind them."""
        rows = []
        for stream, (first, digests) in (self._kept or {}).items():
            skip = max(0, counts.get(stream, 0) + 1 - first)
            if skip < len(digests):
                rows.append((stream, first + skip, digests[skip:]))
        return rows

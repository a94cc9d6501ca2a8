"""The messages of one rank where they are received, under ``--compare receiver``: in the plane of this process, from the
replica of that plane. Pure.

    has not begun   after a restart, and in a copy: what comes first has been under way in an image, and is sent again as it
                    was then. The vote on its line has verified it: it goes on at once
    has begun       `begin`, which the sender has sent behind these, says how far its streams are: from now on messages are
                    counted, and held until the replicas of the sending rank agree (release.py)

The digest of a message is made here, of what has arrived, and compared with those that the other replicas of the rank have
made of what they have sent: so what happens to it on its way is found, too. It is chained over the messages of one stream
between two ranks, since who receives does not know what others get.

Messages that are not compared (answers of the engine itself) go on at once: what looks like one has to have a mark, since a
wrong bit may make one of any message (receiver.py).

Not here: what tells streams apart, and the way of messages (receiver.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ckpt.redundancy.chain import Buffer, chained, number_of
from ckpt.redundancy.comparison.release import Releases

__all__ = ["Arrivals", "Arrived"]

Arrived = tuple[Buffer, int]
"""A message, and how long after the one before in its stream it has come, in ns."""


class Arrivals:
    """What comes for rank `dst` of the rank whose messages `releases` holds. `has_begun`: no image is the origin."""

    def __init__(self, dst: int, releases: Releases, now_ns: int, *, has_begun: bool) -> None:
        self.dst = dst
        self.releases = releases
        self.has_begun = has_begun
        self._states: dict[str, bytes] = {}
        self._began_ns = now_ns
        self._last_ns: dict[str, int] = {}

    def begin(self, states: Mapping[str, tuple[int, bytes]]) -> None:
        """`states`: by stream, how many messages for this rank the sender has behind it, the digest over all of them."""
        self.has_begun = True
        self._states = {stream: state for stream, (_, state) in states.items()}
        self.releases.go_on({stream: count for stream, (count, _) in states.items()})

    def take(self, stream: str | None, data: Buffer, now_ns: int) -> list[Buffer]:
        """The next message. What may go on now. `stream`: None if it is not compared."""
        if stream is None or not self.has_begun:
            return [data]
        state = self._states[stream] = chained(self._states.get(stream, b""), self.dst, data, None)
        gap_ns = now_ns - self._last_ns.get(stream, self._began_ns)
        self._last_ns[stream] = now_ns
        return contents(self.releases.hold(stream, number_of(state), (data, gap_ns)))

    def held(self) -> list[Buffer]:
        """The messages that are held: those of one stream in their order."""
        return [data for held in self.releases.held.values() for _, (data, _) in held]

    def gap_ns(self, stream: str) -> int:
        """How long after the one before the first held message of this stream has come."""
        gap: int = self.releases.held[stream][0][1][1]
        return gap


def contents(messages: Iterable[Any]) -> list[Buffer]:
    """The content of messages as they are held (`Arrived`)."""
    return [data for data, _ in messages]

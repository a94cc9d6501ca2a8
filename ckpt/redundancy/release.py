"""Which messages of one replica may leave it: those that its rank agrees on. Pure. For ``--compare sender``, not built yet.

A message is *held* by the replica that has made it. Its digest goes to all other replicas of the rank; it is released
into its plane when enough replicas have told the same digest for this place of this stream. So what another rank's program
gets has been verified, in every plane, and nobody has to lead.

    released    as many replicas as are needed, this one included, have told the same, and they are no copies of one another
                that others could contradict (`Lineage.decides`)
                or: this replica is the only one left, and nobody has ever told something else (unverified)
    held        not enough have told yet
    contested   all that are left have told, not the same, and neither has enough: the controller decides
    outvoted    enough have told another digest: this replica is wrong. It releases nothing of this stream any more

Rules
- Messages of one stream are released in their order, whatever the destination. Different streams do not wait for one
  another, not even on the way to one rank: replicas may come to them in different orders, and two would wait for each
  other for ever if a third, which had told both of them, is lost.
- What has been told stays a fact when who has told it is lost: it was computed apart from the others.
- Digests are chained (digest.py): one that agrees proves all before it.

Not here: digests, the way of messages (layer.py), who is lost.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable
from typing import Any

from ckpt.redundancy.membership import Lineage

__all__ = ["Releases"]

Row = tuple[str, int, list[int]]
"""A stream, the number of a message, the digests from that message on."""


class Releases:
    """The messages of replica `me` of a rank that began with `replicas`."""

    def __init__(self, me: int, replicas: int, lineage: Lineage | None = None) -> None:
        self.me = me
        self.needed = replicas // 2 + 1
        self.lineage = Lineage() if lineage is None else lineage
        self.living = set(range(replicas))
        self.held: dict[str, deque[tuple[int, Any]]] = {}
        self.released: dict[str, int] = {}
        """By stream, how many messages have left."""
        self.told: dict[str, dict[int, deque[int]]] = {}
        """By stream and other replica, the digests of the messages behind those that have left here."""
        self._fresh: dict[str, tuple[int, list[int]]] = {}

    def hold(self, stream: str, digest: int, message: Any) -> list[Any]:
        """The program sends the next message of this stream. What may leave now."""
        held = self.held.setdefault(stream, deque())
        number = self.released.get(stream, 0) + len(held) + 1
        held.append((digest, message))
        self._fresh.setdefault(stream, (number, []))[1].append(digest)
        return self._release(stream)

    def rows(self) -> list[Row]:
        """What the other replicas have not been told yet."""
        fresh, self._fresh = self._fresh, {}
        return [(stream, first, digests) for stream, (first, digests) in fresh.items()]

    def hear(self, replica: int, rows: Iterable[Row]) -> list[Any]:
        """Another replica has told these digests. What may leave now."""
        found = []
        for stream, first, digests in rows:
            released = self.released.get(stream, 0)
            told = self.told.setdefault(stream, {}).setdefault(replica, deque())
            assert first <= released + len(told) + 1, (stream, first, released, len(told))
            told.extend(digests[max(0, released + len(told) + 1 - first) :])
            found += self._release(stream)
        return found

    def lost(self, replicas: Collection[int]) -> list[Any]:
        """These replicas are not there any more. What may leave now."""
        self.living -= set(replicas)
        return [message for stream in list(self.held) for message in self._release(stream)]

    def state(self, stream: str) -> str:
        """That of the first held message of this stream: `released` (there is none), `held`, `contested` or `outvoted`."""
        held = self.held.get(stream)
        return self._judge(stream, held[0][0]) if held else "released"

    @property
    def is_stuck(self) -> bool:
        """Is there a message on which this rank will not agree, whoever else comes to it?"""
        return any(self.state(stream) in ("contested", "outvoted") for stream in self.held)

    def _release(self, stream: str) -> list[Any]:
        found = []
        held = self.held.get(stream, ())
        while held and self._judge(stream, held[0][0]) == "released":
            found.append(held.popleft()[1])
            self.released[stream] = self.released.get(stream, 0) + 1
            for told in self.told.get(stream, {}).values():
                if told:
                    told.popleft()
        return found

    def _judge(self, stream: str, mine: int) -> str:
        votes = {replica: told[0] for replica, told in self.told.get(stream, {}).items() if told}
        same = {self.me, *(replica for replica, digest in votes.items() if digest == mine)}
        against = (self.living | votes.keys()) - same
        if len(same) >= self.needed and self.lineage.decides(same, against):
            return "released"
        others = [digest for digest in votes.values() if digest != mine]
        if not others:
            return "released" if self.living == {self.me} else "held"
        if max(others.count(digest) for digest in others) >= self.needed:
            return "outvoted"
        return "contested" if self.living <= same | votes.keys() else "held"

"""Which messages of one replica may leave it: those that its rank agrees on. Pure. For ``--compare sender``.

A message is *held* by the replica that has made it. Its digest goes to all other replicas of the rank; it is released
into its plane when enough replicas have told the same digest for this place of this stream. So what another rank's program
gets has been verified, in every plane, and nobody has to lead.

    released    as many replicas as are needed, this one included, have told the same, and they are no copies of one another
                that others could contradict (`Lineage.decides`)
                or: this replica is the only one left, and nobody has ever told something else (unverified)
    held        not enough have told yet
    contested   all that are left have told, and nobody can say who is right: the controller decides
    outvoted    enough others have told another digest: this replica is wrong. It releases nothing of this stream any more

Rules
- Messages of one stream are released in their order, whatever the destination. Different streams do not wait for one
  another, not even on the way to one rank: replicas may come to them in different orders, and two would wait for each
  other for ever if a third, which had told both of them, is lost.
- What has been told stays a fact when who has told it is lost: it was computed apart from the others.
- Digests are chained (digest.py): one that agrees proves all before it. So a copy, which has sent nothing before its image,
  tells the digest of that place first (`go_on`): a replica that still holds earlier messages takes it for all of them.
- All that an image has as sent may leave: the vote on its line has verified it.
- Replicas keep their digests from the moment at which a copy is announced (`keep`), so that it can be told what it has
  missed (`since`).

Not here: digests, the way of messages (sender.py), who is lost.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from ckpt.redundancy.membership import Lineage

__all__ = ["Releases", "Row"]

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
        self.told: dict[str, dict[int, deque[int | None]]] = {}
        """By stream and other replica, the digests of the messages behind those that have left here; None: that replica is a
        copy, and has not sent this message itself."""
        self.fresh: dict[str, tuple[int, list[int]]] = {}
        """By stream, what the other replicas have not been told yet: the number of the first message, digests."""
        self._kept: dict[str, tuple[int, list[int]]] | None = None

    def go_on(self, states: Mapping[str, tuple[int, int]]) -> None:
        """This replica is a copy. `states`: by stream, how many messages its image has as sent, the digest of the last."""
        for stream, (count, digest) in states.items():
            self.released[stream] = count
            self.fresh[stream] = count, [digest]

    def hold(self, stream: str, digest: int, message: Any) -> list[Any]:
        """The program sends the next message of this stream. What may leave now."""
        held = self.held.setdefault(stream, deque())
        number = self.released.get(stream, 0) + len(held) + 1
        held.append((digest, message))
        self.fresh.setdefault(stream, (number, []))[1].append(digest)
        if self._kept is not None:
            self._kept.setdefault(stream, (number, []))[1].append(digest)
        return self._release(stream)

    def rows(self) -> list[Row]:
        """What the other replicas have not been told yet."""
        fresh, self.fresh = self.fresh, {}
        return [(stream, first, digests) for stream, (first, digests) in fresh.items()]

    def keep(self, before: Mapping[str, tuple[int, list[int]]]) -> None:
        """A copy is announced. `before`: by stream, digests of the last messages: the number of the first one, digests."""
        self._kept = dict(before)

    def forget(self) -> None:
        """No copy is on the way any more."""
        self._kept = None

    def since(self, counts: Mapping[str, int]) -> list[Row]:
        """For a copy that has sent so many messages of each stream: the digests behind them."""
        rows = []
        for stream, (first, digests) in (self._kept or {}).items():
            skip = max(0, counts.get(stream, 0) + 1 - first)
            if skip < len(digests):
                rows.append((stream, first + skip, digests[skip:]))
        return rows

    def hear(self, replica: int, rows: Iterable[Row]) -> list[Any]:
        """Another replica has told these digests. What may leave now."""
        found = []
        for stream, first, digests in rows:
            released = self.released.get(stream, 0)
            told = self.told.setdefault(stream, {}).setdefault(replica, deque())
            known = released + len(told)
            told.extend([None] * (first - known - 1))
            told.extend(digests[max(0, known + 1 - first) :])
            found += self._release(stream)
        return found

    def lost(self, replicas: Collection[int]) -> list[Any]:
        """These replicas are not there any more. What may leave now."""
        self.living -= set(replicas)
        return [message for stream in list(self.held) for message in self._release(stream)]

    def join(self, replica: int) -> None:
        """This copy votes from now on; the lineage knows it."""
        self.living.add(replica)

    def state(self, stream: str) -> str:
        """That of the first held message of this stream: `released` (there is none), `held`, `contested` or `outvoted`."""
        return self._judge(stream) if self.held.get(stream) else "released"

    def heads(self) -> Iterator[tuple[str, int]]:
        """By stream, the number of the first held message."""
        for stream, held in self.held.items():
            if held:
                yield stream, self.released.get(stream, 0) + 1

    def missing(self, stream: str) -> set[int]:
        """The living replicas that have told nothing yet of the first held message of this stream."""
        return self.living - {self.me} - self._votes(stream).keys()

    @property
    def is_stuck(self) -> bool:
        """Is there a message on which this rank will not agree, whoever else comes to it?"""
        return any(self.state(stream) in ("contested", "outvoted") for stream in self.held)

    def _release(self, stream: str) -> list[Any]:
        found = []
        held = self.held.get(stream, ())
        while held and self._judge(stream) == "released":
            found.append(held.popleft()[1])
            self.released[stream] = self.released.get(stream, 0) + 1
            for told in self.told.get(stream, {}).values():
                if told:
                    told.popleft()
        return found

    def _votes(self, stream: str) -> dict[int, int]:
        """What the others say of the first held message: its digest, or another number if that is not what they have."""
        held, votes = self.held[stream], {}
        for replica, told in self.told.get(stream, {}).items():
            if told and told[0] is not None:
                votes[replica] = told[0]
                continue
            for at, digest in enumerate(told):
                if digest is not None:
                    if at < len(held):
                        votes[replica] = held[0][0] if held[at][0] == digest else -1 - replica
                    break
        return votes

    def _judge(self, stream: str) -> str:
        mine, votes = self.held[stream][0][0], self._votes(stream)
        same = {self.me, *(replica for replica, digest in votes.items() if digest == mine)}
        against = (self.living | votes.keys()) - same
        if len(same) >= self.needed and self.lineage.decides(same, against):
            return "released"
        others: dict[int, set[int]] = {}
        for replica in votes.keys() - same:
            others.setdefault(votes[replica], set()).add(replica)
        if not others and self.living == {self.me}:
            return "released"
        everybody = self.living | votes.keys()
        for agree in others.values():
            if len(agree) >= self.needed and self.lineage.decides(agree, everybody - agree):
                return "outvoted"
        return "contested" if len(everybody) > 1 and everybody <= same | votes.keys() else "held"

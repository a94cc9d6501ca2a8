"""Which messages of one replica may go on: those that the replicas of its rank agree on. Pure.

A message is *held* where it is compared: under ``--compare sender`` by the replica that has made it, under ``--compare
receiver`` by the one of its plane that gets it. There digests come in of what the other replicas of the sending rank have
made; the message is released when enough of them are the same for this place of this stream. So what another rank's program
gets has been verified, in every plane, and nobody has to lead. Here `me` is the replica that has made the messages.

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
- All that an image has as sent may go on: the vote on its line has verified it.

Not here: digests that are to be told (digests.py), the way of messages (sender.py, receiver.py), who is lost.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from ckpt.redundancy.comparison.digests import Row
from ckpt.redundancy.membership import Lineage

__all__ = ["Releases"]


class Releases:
    """The messages of replica `me` of a rank that began with `replicas`."""

    def __init__(self, me: int, replicas: int, lineage: Lineage | None = None) -> None:
        self.me = me
        self.needed = replicas // 2 + 1
        self.lineage = Lineage() if lineage is None else lineage
        self.living = set(range(replicas))
        self.held: dict[str, deque[tuple[int, Any]]] = {}
        self.released: dict[str, int] = {}
        """By stream, how many messages have gone on."""
        self.told: dict[str, dict[int, deque[int | None]]] = {}
        """By stream and other replica, the digests of the messages behind those that have gone on here; None: that replica
        is a copy, and has not sent this message itself."""

    def go_on(self, counts: Mapping[str, int]) -> None:
        """This replica is a copy, whose image has so many messages of each stream as sent."""
        self.released.update(counts)

    def hold(self, stream: str, digest: int, message: Any) -> list[Any]:
        """This replica has made the next message of this stream. What may go on now."""
        self.held.setdefault(stream, deque()).append((digest, message))
        return self._release(stream)

    def hear(self, replica: int, rows: Iterable[Row]) -> list[Any]:
        """Another replica has told these digests. What may go on now."""
        found = []
        for stream, first, digests in rows:
            released = self.released.get(stream, 0)
            told = self.told.setdefault(stream, {}).setdefault(replica, deque())
            known = released + len(told)
            if first > known + 1:
                told.extend([None] * (first - known - 1))
            told.extend(digests if first > known else digests[known + 1 - first :])
            if self.held.get(stream):
                found += self._release(stream)
        return found

    def lost(self, replicas: Collection[int]) -> list[Any]:
        """These replicas are not there any more. What may go on now."""
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
        others = self.told.get(stream, {}).values()
        while held and self._judge(stream) == "released":
            found.append(held.popleft()[1])
            for told in others:
                if told:
                    told.popleft()
        if found:
            self.released[stream] = self.released.get(stream, 0) + len(found)
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
        mine = self.held[stream][0][0]
        if not self.lineage.origins:  # the usual case, quickly
            told = self.told.get(stream, {}).values()
            if 1 + sum(bool(each) and each[0] == mine for each in told) >= self.needed:
                return "released"
        votes = self._votes(stream)
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

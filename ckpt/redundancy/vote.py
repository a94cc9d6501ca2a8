"""The vote on what the replicas of one rank send: who is the odd one out. Pure.

Each replica chains a digest over the messages of every *stream* (:mod:`ckpt.redundancy.digest`), and reports *marks*: the
stream, how many messages it has sent there, the digest of all of them. Marks of one stream and count are comparable,
whenever they come.

    a mark at a count          equal in a majority of the replicas: all messages up to there are verified
    another digest there       the replica is odd: it is named, with the stream and the range of messages
    no majority                it cannot be told who is right (two replicas, or three that all differ)
    no mark at that count      the replica has reported later ones only: nothing is known at this count

A replica that is a copy of another one has all errors that this had then: see :mod:`ckpt.redundancy.membership`. A majority
counts only where the replicas that agree have not got an error from one that they are copies of (`Lineage.decides`).

Replicas report different counts (one is asked while it sends, one while it waits), so a mark is kept until all replicas have
passed it. A majority is more than half of the replicas that the rank began with; with one of three lost, both that are left.

Rules
- Digests of one replica in one stream are chained: a later mark that agrees proves all earlier messages, an earlier one that
  differs can never be made good.
- A copy that joins has told the same marks as its donor until its image; its first marks are those of there.
- A replica is named at most once. After `drop` it has no voice, and its marks are forgotten.

Not here: what follows from a verdict (:mod:`ckpt.controller.replicas`), how digests are made.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from ckpt.redundancy.membership import Lineage

__all__ = ["ANSWERS", "WRITES", "Mark", "Verdict", "Vote"]

ANSWERS = ".w"
"""End of the names of streams of answers to other ranks' requests."""

WRITES = "files.w"
"""The stream of writes to parallel files, which other ranks have asked for."""

Mark = tuple[int, str]
"""Messages sent in a stream so far, and the digest over all of them."""

MARKS_MAX = 4096
"""Marks of one stream that wait for the other replicas; the oldest are forgotten above that. Later ones say as much."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """`odd`: the replicas that differ from the majority; empty: all differ, and none can be told right.

    `first`, `last`: the first message that differs is one of these, counted from 1 in the stream."""

    stream: str
    odd: tuple[int, ...]
    first: int
    last: int


class _Stream:
    """The marks of one stream."""

    __slots__ = ("agreed", "marks", "passed", "verified")

    def __init__(self) -> None:
        self.marks: dict[int, dict[int, str]] = {}
        self.passed: dict[int, int] = {}
        self.agreed: dict[int, int] = {}
        self.verified = 0


class Vote:
    """The vote of one rank. `replicas`: how many it began with, numbered from 0; `lineage`: of the planes."""

    def __init__(self, replicas: int, lineage: Lineage | None = None) -> None:
        self.lineage = Lineage() if lineage is None else lineage
        self.needed = replicas // 2 + 1
        self.living = set(range(replicas))
        self.streams: dict[str, _Stream] = {}
        self.compared = 0
        """Messages that a majority has sent alike, in all streams."""

    def clone(self) -> Vote:
        """An independent copy, for tests that explore all orders."""
        twin = Vote(0, self.lineage)
        twin.needed, twin.living, twin.compared = self.needed, set(self.living), self.compared
        for name, stream in self.streams.items():
            copy = twin.streams[name] = _Stream()
            copy.marks = {count: dict(votes) for count, votes in stream.marks.items()}
            copy.passed, copy.agreed, copy.verified = (
                dict(stream.passed),
                dict(stream.agreed),
                stream.verified,
            )
        return twin

    def report(self, replica: int, name: str, marks: Iterable[Mark]) -> Verdict | None:
        """`replica` has sent these marks of one stream, counts ascending. The first verdict that follows, if any."""
        if replica not in self.living:
            return None
        found: Verdict | None = None
        stream = self.streams.setdefault(name, _Stream())
        for count, digest in marks:
            if count <= stream.passed.get(replica, 0):
                continue
            stream.passed[replica] = count
            stream.marks.setdefault(count, {})[replica] = digest
            verdict = self._judge(name, stream, count)
            found = found or verdict
        self._forget(stream)
        return found

    def join(self, replica: int) -> None:
        """A copy has a voice from now on."""
        self.living.add(replica)

    def drop(self, replicas: Sequence[int]) -> None:
        """These replicas have no voice any more."""
        self.living -= set(replicas)
        for stream in self.streams.values():
            for votes in stream.marks.values():
                for replica in replicas:
                    votes.pop(replica, None)
            self._forget(stream)

    def agreed(self, replica: int) -> dict[str, int]:
        """By stream, until which message this replica has sent what the majority has sent."""
        return {
            name: stream.agreed[replica] for name, stream in self.streams.items() if replica in stream.agreed
        }

    def counts(self, replica: int) -> dict[str, int]:
        """By stream, the last mark that this replica has reported."""
        return {
            name: stream.passed[replica] for name, stream in self.streams.items() if replica in stream.passed
        }

    def finish(self) -> Verdict | None:
        """All living replicas have reported their last marks: has one sent more messages, or fewer, than most? Answers to
        other ranks do not count: these may ask until they end, too."""
        for name, stream in self.streams.items():
            if name.endswith(ANSWERS):
                continue
            counts: dict[int, list[int]] = {}
            for replica in sorted(self.living):
                counts.setdefault(stream.passed.get(replica, 0), []).append(replica)
            if len(counts) == 1:
                continue
            most = max(counts.values(), key=len)
            odd = tuple(sorted(self.living - set(most))) if self._counts(most, self.living) else ()
            return Verdict(name, odd, min(counts) + 1, max(counts))
        return None

    def _judge(self, name: str, stream: _Stream, count: int) -> Verdict | None:
        votes = stream.marks[count]
        ballots: dict[str, list[int]] = {}
        for replica, digest in votes.items():
            ballots.setdefault(digest, []).append(replica)
        most = max(ballots.values(), key=len)
        if self._counts(most, self.living):
            stream.agreed |= {replica: max(count, stream.agreed.get(replica, 0)) for replica in most}
            self.compared += max(0, count - stream.verified)
            stream.verified = max(count, stream.verified)
        if len(ballots) == 1:
            return None
        if self._counts(most, votes):
            odd = tuple(sorted(set(votes) - set(most)))
        elif len(votes) == len(self.living):
            odd = ()
        else:
            return None  # who is right will be known when the others have reported
        return Verdict(name, odd, self._agreed(stream, count) + 1, count)

    def _counts(self, agree: Collection[int], all_: Iterable[int]) -> bool:
        """Are these enough, and independent enough, against the others of all?"""
        return len(agree) >= self.needed and self.lineage.decides(agree, set(all_) - set(agree))

    def _agreed(self, stream: _Stream, count: int) -> int:
        """The last count below `count` at which all have reported the same; 0: none is known."""
        return max(
            (
                earlier
                for earlier, votes in stream.marks.items()
                if earlier < count and len(votes) == len(self.living) and len(set(votes.values())) == 1
            ),
            default=0,
        )

    def _forget(self, stream: _Stream) -> None:
        """Forget marks that all living replicas have passed, but the last of them: it is where the next range begins."""
        if not self.living:
            return
        passed = min(stream.passed.get(replica, 0) for replica in self.living)
        done = sorted(count for count in stream.marks if count <= passed)
        for count in done[:-1]:
            del stream.marks[count]
        while len(stream.marks) > MARKS_MAX:
            del stream.marks[min(stream.marks)]

"""Changes that the replicas of a rank make together: has everybody come to the same one? Pure.

A file is there once, and all replicas see it. So a replica may change it only when all others have come to that change,
too: then none of them still has to see what was there before. And it is changed only if all mean the same change: `digest`.

    arrives      a replica is at change `number`, with this digest; it says so to all others, once
    agreed       all living replicas have arrived there with the same digest: the leader makes the change, and says so
    differs      somebody has another digest: nobody makes the change. The vote names the odd one
                 (:mod:`ckpt.redundancy.vote`), and when it is lost, the others agree

Writes of requests to parallel files (`WRITTEN`) are counted apart from the changes that the program makes itself: a rank may
wait with one, for a replica whose program computes, while its own program comes to the other.

Rules
- Nobody goes on from a change before the leader has told what came of it. So where it is not known, everybody living is
  still there, and a new leader may make the change again: what it does then is in changes.py.
- Who has arrived says so again to everybody when somebody is lost or joins: a copy has not heard what was said before.
- A copy that is being made (`expect_image` until `join` or `let_go`) is waited for from its image on (`captured`), by the
  replica that has given it, and leads: so it finds the files as they were then. Not earlier, since who waits inside of a
  text layer's `flush` cannot be captured: so neither from another image, of a checkpoint that was under way when its
  choices began to be held. If that replica is lost, the copy is given up.

Not here: who leads, what came of a change (`order`); when a replica comes too late (meeting.py).
"""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["ARRIVED", "WRITTEN", "Together"]

ARRIVED, WRITTEN = "t", "u"
"""The kinds of these messages, among those of `order`: changes by the program; writes that other ranks have asked for."""

Message = tuple[str, int, str]
Outgoing = list[tuple[int, Message]]


class Together:
    """The changes as replica `me` knows them; `living`: all replicas of its rank. Methods return the messages to send."""

    def __init__(self, me: int, living: Iterable[int]) -> None:
        self.me, self.living = me, {me, *living}
        self.expected: dict[int, int] = {}
        """Copies that are to be made, each from an image with a number above this."""
        self.awaited: set[int] = set()
        """Copies that go on from an image of this replica."""
        self.arrived: dict[tuple[str, int], tuple[int, str]] = {}
        """By kind and replica, the change to which it has come last."""
        self._told: dict[str, set[int]] = {}
        """By kind, who knows where this one is."""

    def arrive(self, number: int, digest: str, kind: str = ARRIVED) -> Outgoing:
        """This replica is at change `number`; may be called again and again."""
        if self.arrived.get((kind, self.me)) != (number, digest):
            self.arrived[kind, self.me] = number, digest
            self._told[kind] = set()
        told = self._told.setdefault(kind, set())
        new = self.living - told - {self.me}
        told |= new
        return [(replica, (kind, number, digest)) for replica in sorted(new)]

    def receive(self, source: int, message: Message) -> None:
        """Another replica has arrived."""
        kind, number, digest = message
        if number >= self.arrived.get((kind, source), (0, ""))[0]:
            self.arrived[kind, source] = number, digest

    def missing(self, kind: str = ARRIVED) -> set[int]:
        """Replicas that are not where this one is, or mean another change."""
        here, everybody = self.arrived.get((kind, self.me)), self.living | self.awaited
        return {each for each in everybody if here is None or self.arrived.get((kind, each)) != here}

    def is_agreed(self, number: int, digest: str, kind: str = ARRIVED) -> bool:
        """Have all come to this change, and mean the same?"""
        return self.arrived.get((kind, self.me)) == (number, digest) and not self.missing(kind)

    def states(self, number: int) -> list[str | None]:
        """What each one that is waited for has said at `number`; None: it has not come there."""
        found = [self.arrived.get((ARRIVED, each)) for each in self.living | self.awaited]
        return [each[1] if each is not None and each[0] == number else None for each in found]

    def lost(self, replicas: Iterable[int]) -> None:
        """These replicas are lost."""
        self.living -= set(replicas) - {self.me}
        self._told = {}

    def expect_image(self, replica: int, after: int) -> None:
        """A copy is to become this replica, from an image with a number above `after`."""
        self.expected[replica] = after

    def captured(self, epoch: int) -> None:
        """The image of `epoch` is taken of this replica."""
        self.awaited |= {replica for replica, after in self.expected.items() if epoch > after}

    def let_go(self, replica: int) -> None:
        """There will be no such copy."""
        self.expected.pop(replica, None)
        self.awaited.discard(replica)

    def join(self, replica: int) -> None:
        """A copy is there."""
        self.let_go(replica)
        self.living.add(replica)
        self._told = {}

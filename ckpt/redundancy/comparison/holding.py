"""The layer of a replica whose messages wait for the comparison: what ``--compare sender`` and ``receiver`` share. (driver)

As :class:`ckpt.redundancy.layer.ReplicaLayer`, but a message is held until the replicas of the rank that has made it agree
(release.py): in the process that sends it, or in the one that receives it. Messages between replicas, beside choices:

    ("told", rows)      digests of what the replica that says this has made
    ("want", counts)    a copy has joined, which has so many messages of each stream: it is told what has been made since

    tick        what is new is told: before the program waits, when it polls, else within a few milliseconds
    copies      digests are kept from the moment at which one is announced, and for a while before that

A replica tells the controller when the replicas of a rank cannot agree on a message (`disagree`), and when others do not
come to it for very long (`late`). The vote of the controller goes on beside that: it finds what is not a message, and
counts.

Not here: when a message may go on (release.py), where it is held (sender.py, receiver.py).
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from ckpt.layer import Below, Buffer
from ckpt.redundancy.comparison.digests import Digests, Row
from ckpt.redundancy.comparison.release import Releases
from ckpt.redundancy.digest import RING, Streams
from ckpt.redundancy.files.meeting import LATE_NS
from ckpt.redundancy.layer import ReplicaLayer
from ckpt.redundancy.membership import Lineage

__all__ = ["HoldingLayer"]

TOLD, WANT = "told", "want"

AT_ONCE = 16
"""So many digests are told without waiting for the program to wait."""

LOOK_NS = 100_000_000
AGAIN_NS = 2_000_000_000
"""So often the controller is told of the same message again."""


class HoldingLayer(ReplicaLayer):
    """:class:`ckpt.layer.Layer` of one replica. `makers`: the ranks whose messages are held here; `readers`: those whose
    processes are told what this one has made."""

    def __init__(
        self, below: Below, options: Mapping[str, Any], makers: Iterable[int], readers: Iterable[int]
    ) -> None:
        super().__init__(below, options)
        self.lineage = Lineage()
        is_copy = self.copied_beside is not None
        self.releases = {rank: Releases(self.replica, self.replicas, self.lineage) for rank in makers}
        """By rank, its messages that are held in this plane, by this process."""
        for releases in self.releases.values():
            releases.living = set(self.living)
        self.digests = {rank: Digests() for rank in readers}
        """By rank whose processes are told, what they are told."""
        others = self.living - {self.replica}
        self._listeners = {rank: set() if is_copy else set(others) for rank in self.digests}
        """By rank, the planes that are told; a copy when it has said from where on."""
        self._parts: dict[int, tuple[int, int]] = {}
        """Rank and plane of the processes of which something has come."""
        self._untold: set[int] = set()
        """The ranks that are to be told something."""
        self._known = set(self.living)
        """The planes whose lineage is known."""
        self._early: list[tuple[int, int, list[Row]]] = []
        self._announced: int | None = None
        """The copy that is on the way, or was the last one."""
        self._began_ns = self._looked_ns = time.monotonic_ns()
        self._heads: dict[tuple[int, str], tuple[int, int]] = {}
        """By rank and stream, the number of the first held message, and since when it has been that."""
        self._reported: dict[tuple[int, str], tuple[int, int]] = {}
        """By rank and stream, of which message the controller has been told, and when."""

    # ---- for both ways -----------------------------------------------------------------------------------

    def _go_on(self, maker: int, messages: list[Any]) -> None:
        """These messages of a rank are not held any more."""
        raise NotImplementedError

    def _made(self, reader: int) -> Streams:
        """The streams whose digests the processes of this rank are told."""
        raise NotImplementedError

    def _patience_ns(self, maker: int, stream: str, number: int) -> int:
        """So long others may need to come to this message, which is the first of its stream that is held."""
        raise NotImplementedError

    def _arrived(self, rank: int, batch: list[Buffer]) -> None:
        """Messages of the same plane."""
        assert self._engine is not None
        self._engine.on_messages(rank, batch)

    # ---- Layer -------------------------------------------------------------------------------------------

    def on_messages(self, process: int, batch: list[Buffer]) -> None:
        parts = self._parts.get(process)
        if parts is None:
            parts = self._parts[process] = self.numbers.parts(process)
        rank, replica = parts
        if replica == self.replica:
            self._arrived(rank, batch)
            return
        self.below.consumed(process, sum(map(len, batch)), len(batch))
        for data in batch:
            message = pickle.loads(data)
            if message[0] == TOLD:
                self._hear(rank, replica, message[1])
            elif message[0] == WANT:
                self._listeners[rank].add(replica)
                self.below.send(process, pickle.dumps((TOLD, self.digests[rank].since(message[1])), 5))
                self.digests[rank].forget()
            else:
                self._from_replica(replica, message)

    def on_lost(self, processes: Sequence[int], cause: str) -> None:
        super().on_lost(processes, cause)
        planes: dict[int, set[int]] = {}
        for rank, plane in map(self.numbers.parts, processes):
            planes.setdefault(rank, set()).add(plane)
        for rank, lost in planes.items():
            if rank in self.digests:
                self._listeners[rank] -= lost
                if self._announced in lost:
                    self.digests[rank].forget()
            if rank in self.releases:
                self._go_on(rank, self.releases[rank].lost(lost))

    def _on_copy(self, packet: Mapping[str, Any]) -> None:
        plane, step = packet["copy"], packet["step"]
        if step == "hold":
            self._announced = plane
            for rank, digests in self.digests.items():
                digests.keep(remembered(self._made(rank)))
        elif step == "let go":
            for digests in self.digests.values():
                digests.forget()
        elif step in ("join", "joined"):
            for copy, donor, epoch in packet["origins"]:
                self.lineage.copied(copy, donor, epoch)
        super()._on_copy(packet)
        if step == "join":
            for releases in self.releases.values():
                releases.join(plane)
            self._know([plane])
        elif step == "joined":
            self._has_joined({plane, *packet["living"]})

    def _has_joined(self, living: set[int]) -> None:
        """This copy votes from now on."""
        for releases in self.releases.values():
            releases.living &= living
        for rank in self._listeners:
            self._listeners[rank] = self.living - {self.replica}
        self._know(self.living)
        for maker, releases in self.releases.items():
            self._want(maker)
            self._go_on(maker, releases.lost([]))

    def _want(self, maker: int) -> None:
        """Ask the other replicas of a rank for the digests that this copy has missed."""
        data = pickle.dumps((WANT, dict(self.releases[maker].released)), 5)
        for other in sorted(self.living - {self.replica}):
            self.below.send(self.numbers.process(maker, other), data)

    def tick(self) -> None:
        if self._untold:
            self._tell()
        super().tick()
        now_ns = time.monotonic_ns()
        if now_ns - self._looked_ns >= LOOK_NS:
            self._looked_ns = now_ns
            self._look(now_ns)

    def ending(self, exit_code: int) -> None:
        super().ending(exit_code)
        self._tell()

    # ---- inside ------------------------------------------------------------------------------------------

    def _note(self, reader: int, stream: str, number: int, digest: int) -> None:
        """This process has made a message, and this rank's processes are to know of it."""
        self._untold.add(reader)
        if self.digests[reader].add(stream, number, digest) >= AT_ONCE:
            self._tell()

    def _tell(self) -> None:
        """Tell other replicas what this one has made. A copy says nothing before they know of it."""
        if not self._is_compared:
            return
        while self._untold:
            rank = self._untold.pop()
            rows = self.digests[rank].rows()
            if rows and self._listeners[rank]:
                data = pickle.dumps((TOLD, rows), 5)
                for replica in sorted(self._listeners[rank]):
                    self.below.send(self.numbers.process(rank, replica), data)

    def _hear(self, maker: int, replica: int, rows: list[Row]) -> None:
        if replica in self._known:
            self._go_on(maker, self.releases[maker].hear(replica, rows))
        else:
            self._early.append((maker, replica, rows))  # a copy knows already that it has joined

    def _know(self, planes: Collection[int]) -> None:
        """The lineage of these planes is known."""
        self._known.update(planes)
        early, self._early = self._early, []
        for maker, replica, rows in early:
            self._hear(maker, replica, rows)

    def _look(self, now_ns: int) -> None:
        """Tell the controller of messages on which their rank does not agree, or to which others do not come."""
        heads = {
            (maker, stream): number
            for maker, releases in self.releases.items()
            for stream, number in releases.heads()
        }
        for place, number in heads.items():
            if self._heads.get(place, (0, 0))[0] != number:
                self._heads[place] = number, now_ns
            if self._is_compared:
                self._look_at(place, number, now_ns)
        for place in self._heads.keys() - heads.keys():
            del self._heads[place]

    def _look_at(self, place: tuple[int, str], number: int, now_ns: int) -> None:
        told, told_ns = self._reported.get(place, (0, 0))
        if told == number and now_ns - told_ns < AGAIN_NS:
            return
        maker, stream = place
        state = self.releases[maker].state(stream)
        of = {} if maker == self.rank else {"of": maker}
        if state != "held":
            self._reported[place] = number, now_ns
            self.below.report({"disagree": [stream, number, state == "outvoted"], **of})
        elif now_ns - self._heads[place][1] >= self._patience_ns(maker, stream, number):
            self._reported[place] = number, now_ns
            missing = sorted(self.releases[maker].missing(stream))
            self.below.report({"late": missing, "at": "message", **of})


def patience_ns(gap_ns: int) -> int:
    """So long others may need to come to a message that was made so long after the one before: a minute, or half of that."""
    return max(LATE_NS, gap_ns // 2)


def remembered(streams: Streams) -> dict[str, tuple[int, list[int]]]:
    """By stream, the digests of the last messages: the number of the first one, digests."""
    found = {}
    for name, count in streams.counts().items():
        rows = streams.named(name).details(count - RING, count)
        if rows:
            found[name] = rows[0][0], [int(digest, 16) for _, digest, _ in rows]
    return found

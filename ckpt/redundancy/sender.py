"""The layer of a replica under ``--compare sender``: nothing leaves a process before its rank agrees on it. (driver)

As :class:`ckpt.redundancy.layer.ReplicaLayer`, but a message is held here until as many replicas of the rank as are needed
have made the same (release.py). Then each of them sends its own into its own plane, as always. Messages between the replicas
of one rank, beside choices:

    ("told", rows)      digests of what this replica has made
    ("want", counts)    a copy has joined, which has so many messages of each stream in its image: it is told what the others
                        have made since

    send        counted as always; then held, or sent if others have told the same already
    tick        what is new is told: before the program waits, when it polls, else within a few milliseconds
    images      held messages are in the image as messages on their way, which a restart sends (`saved`)

The program does not notice: a message that is held has been copied, so its send is done; it counts as backlog, so blocking
sends wait while there is too much of it. What the program sends to itself is compared, and not held.

A replica tells the controller when its rank cannot agree on a message (`disagree`), and when others do not come to it for
very long (`late`). The vote of the controller goes on beside that: it finds what is not a message, and counts.

Not here: when a message may leave (release.py).
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from ckpt.layer import Below, Buffer, Engine, LinkState
from ckpt.redundancy import layer
from ckpt.redundancy.choices import ReplicaChoices
from ckpt.redundancy.digest import RING
from ckpt.redundancy.files.meeting import LATE_NS
from ckpt.redundancy.layer import ENDLESS_BYTES, ReplicaLayer
from ckpt.redundancy.membership import Lineage
from ckpt.redundancy.order import Message
from ckpt.redundancy.release import Releases, Row

__all__ = ["SenderLayer", "attach"]

TOLD, WANT = "told", "want"

AT_ONCE = 16
"""So many digests are told without waiting for the program to wait."""

LOOK_NS = 100_000_000
AGAIN_NS = 2_000_000_000
"""So often the controller is told of the same message again."""

DONE = -1
"""The sequence number of a message whose memory the program may use: smaller than all that `acked` returns."""


def attach(below: Below, options: Mapping[str, Any]) -> ReplicaLayer:
    """The layer of this process; `options`: see `layer.attach`."""
    return layer.attach(below, options, SenderLayer)


class Held:
    """A message for rank `dst`."""

    __slots__ = ("data", "dst", "payload")

    def __init__(self, dst: int, data: Buffer, payload: Buffer | None) -> None:
        self.dst, self.data, self.payload = dst, data, payload

    def __len__(self) -> int:
        return len(self.data) + (0 if self.payload is None else memoryview(self.payload).nbytes)

    def copy(self) -> None:
        """From now on the program may use its memory."""
        if type(self.data) is not bytes:
            self.data = bytes(self.data)
        if self.payload is not None and type(self.payload) is not bytes:
            self.payload = bytes(self.payload)


class SenderLayer(ReplicaLayer):
    """:class:`ckpt.layer.Layer` of one replica."""

    def __init__(self, below: Below, options: Mapping[str, Any]) -> None:
        super().__init__(below, options)
        self.lineage = Lineage()
        self.releases = Releases(self.replica, self.replicas, self.lineage)
        self.releases.living = set(self.living)
        self._listeners = set() if self.copied_beside is not None else self.living - {self.replica}
        """The replicas that are told; a copy when it has said from where on."""
        self._known = set(self.living)
        """The planes whose lineage is known."""
        self._early: list[tuple[int, list[Row]]] = []
        self._announced: int | None = None
        """The copy that is on the way, or was the last one."""
        self._held_bytes: dict[int, int] = {}
        self._began_ns = self._looked_ns = time.monotonic_ns()
        self._heads: dict[str, tuple[int, int]] = {}
        """By stream, the number of the first held message, and since when it has been that."""
        self._reported: dict[str, tuple[int, int]] = {}
        """By stream, of which message the controller has been told, and when."""

    # ---- Layer -------------------------------------------------------------------------------------------

    def bind(self, engine: Engine, content: ReplicaChoices | None = None) -> None:
        super().bind(engine, content)
        if self.copied_beside is not None:
            states = self.streams.states().items()
            self.releases.go_on({name: (count, number_of(state)) for name, (count, state) in states})

    def saved(self, state: Any) -> Any:
        state = super().saved(state)
        for held in self.releases.held.values():
            for _, message in held:
                if message is None:
                    continue
                link = state.links.get(message.dst, LinkState())
                pair = message.data if message.payload is None else (message.data, message.payload)
                messages = [*link.messages, pair]
                state.links[message.dst] = LinkState(
                    link.base, link.tx + 1, link.rx, link.unconsumed_bytes, messages
                )
        return state

    def _from_replica(self, replica: int, message: Message) -> None:
        if message[0] == TOLD:
            self._hear(replica, message[1])
        elif message[0] == WANT:
            self._listeners.add(replica)
            self._to_replica(replica, (TOLD, self.releases.since(message[1])))
            self.releases.forget()
        else:
            super()._from_replica(replica, message)

    def on_lost(self, processes: Sequence[int], cause: str) -> None:
        super().on_lost(processes, cause)
        planes = {plane for rank, plane in map(self.numbers.parts, processes) if rank == self.rank}
        self._listeners -= planes
        if self._announced in planes:
            self.releases.forget()
        self._let_leave(self.releases.lost(planes))

    def _on_copy(self, packet: Mapping[str, Any]) -> None:
        plane, step = packet["copy"], packet["step"]
        if step == "hold":
            self._announced = plane
            self.releases.keep(self._remembered())
        elif step == "let go":
            self.releases.forget()
        elif step in ("join", "joined"):
            for copy, donor, epoch in packet["origins"]:
                self.lineage.copied(copy, donor, epoch)
        super()._on_copy(packet)
        if step == "join":
            self.releases.join(plane)
            self._know([plane])
        elif step == "joined":
            self.releases.living &= {plane, *packet["living"]}
            self._listeners = self.living - {self.replica}
            self._know(self.living)
            for other in sorted(self._listeners):
                self._to_replica(other, (WANT, dict(self.releases.released)))
            self._let_leave(self.releases.lost([]))

    def tick(self) -> None:
        if self.releases.fresh:
            self._tell()
        super().tick()
        now_ns = time.monotonic_ns()
        if now_ns - self._looked_ns >= LOOK_NS:
            self._looked_ns = now_ns
            self._look(now_ns)

    def ending(self, exit_code: int) -> None:
        super().ending(exit_code)
        self._tell()

    # ---- Progress ----------------------------------------------------------------------------------------

    def send(self, dst: int, data: Buffer, payload: Buffer | None = None) -> int:
        stream, data, payload = self._counted(dst, data, payload)
        if stream is None:
            return self.below.send(self._process[dst], data, payload)
        digest, releases = number_of(stream.state), self.releases
        if dst == self.rank:
            self._let_leave(releases.hold(stream.name, digest, None))
            return self.below.send(self._process[dst], data, payload)
        message = Held(dst, data, payload)
        self._held_bytes[dst] = self._held_bytes.get(dst, 0) + len(message)
        left = releases.hold(stream.name, digest, message)
        if left and left[-1] is message:
            self._let_leave(left[:-1])
            self._held_bytes[dst] -= len(message)
            sequence = self.below.send(self._process[dst], data, payload)
        else:
            message.copy()
            self._let_leave(left)
            sequence = DONE
        if len(releases.fresh[stream.name][1]) >= AT_ONCE:
            self._tell()
        return sequence

    def backlog_bytes(self, dst: int) -> int:
        if self.is_ahead:
            return ENDLESS_BYTES
        return self.below.backlog_bytes(self._process[dst]) + self._held_bytes.get(dst, 0)

    def poll(self) -> None:
        if self.releases.fresh:
            self._tell()
        self.below.poll()

    # ---- inside ------------------------------------------------------------------------------------------

    def _let_leave(self, messages: Collection[Held | None]) -> None:
        for message in messages:
            if message is not None:
                self._held_bytes[message.dst] -= len(message)
                self.below.send(self._process[message.dst], message.data, message.payload)

    def _tell(self) -> None:
        """Tell the other replicas of the rank what this one has made. A copy says nothing before they know of it."""
        if not self._is_compared:
            return
        rows = self.releases.rows()
        if rows and self._listeners:
            data = pickle.dumps((TOLD, rows), 5)
            for replica in sorted(self._listeners):
                self.below.send(self.numbers.process(self.rank, replica), data)

    def _hear(self, replica: int, rows: list[Row]) -> None:
        if replica in self._known:
            self._let_leave(self.releases.hear(replica, rows))
        else:
            self._early.append((replica, rows))  # a copy knows already that it has joined

    def _know(self, planes: Collection[int]) -> None:
        """The lineage of these planes is known."""
        self._known.update(planes)
        early, self._early = self._early, []
        for replica, rows in early:
            self._hear(replica, rows)

    def _remembered(self) -> dict[str, tuple[int, list[int]]]:
        """By stream, the digests of the last messages: the number of the first one, digests."""
        found = {}
        for name, count in self.streams.counts().items():
            rows = self.streams.named(name).details(count - RING, count)
            if rows:
                found[name] = rows[0][0], [int(digest, 16) for _, digest, _ in rows]
        return found

    def _look(self, now_ns: int) -> None:
        """Tell the controller of messages on which the rank does not agree, or to which others do not come."""
        heads = dict(self.releases.heads())
        for stream, number in heads.items():
            if self._heads.get(stream, (0, 0))[0] != number:
                self._heads[stream] = number, now_ns
            if not self._is_compared:
                continue
            told, told_ns = self._reported.get(stream, (0, 0))
            if told == number and now_ns - told_ns < AGAIN_NS:
                continue
            state = self.releases.state(stream)
            if state != "held":
                self._reported[stream] = number, now_ns
                self.below.report({"disagree": [stream, number, state == "outvoted"]})
            elif now_ns - self._heads[stream][1] >= self._patience_ns(stream, number):
                self._reported[stream] = number, now_ns
                self.below.report({"late": sorted(self.releases.missing(stream)), "at": "message"})
        for stream in self._heads.keys() - heads.keys():
            del self._heads[stream]

    def _patience_ns(self, stream: str, number: int) -> int:
        """So long others may need to come to this message: a minute, or half the time since the one before."""
        times = [when for _, _, when in self.streams.named(stream).details(number - 1, number)]
        before = times[0] if len(times) > 1 else self._began_ns
        return max(LATE_NS, (times[-1] - before) // 2 if times else 0)


def number_of(state: bytes) -> int:
    """The digest of a stream in this state, as it is told."""
    return int.from_bytes(state[:8], "little")

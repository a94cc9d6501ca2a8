"""The layer of a replica under ``--compare sender``: nothing leaves a process before its rank agrees on it. (driver)

A message is held here until as many replicas of the rank as are needed have made the same (release.py). Then each of them
sends its own into its own plane, as always. The replicas of a rank tell each other digests (holding.py).

    send        counted as always; then held, or sent if others have told the same already
    images      held messages are in the image as messages on their way, which a restart sends (`saved`)

The program does not notice: a message that is held has been copied, so its send is done; it counts as backlog, so blocking
sends wait while there is too much of it. What the program sends to itself is compared, and not held.

Not here: when a message may leave (release.py), what is told (holding.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ckpt.layer import Below, Buffer, Engine, LinkState
from ckpt.redundancy import layer
from ckpt.redundancy.agreement.choices import ReplicaChoices
from ckpt.redundancy.chain import number_of
from ckpt.redundancy.comparison.holding import HoldingLayer, patience_ns
from ckpt.redundancy.digest import Streams
from ckpt.redundancy.layer import ENDLESS_BYTES, ReplicaLayer

__all__ = ["SenderLayer", "attach"]

DONE = -1
"""The sequence number of a message whose memory the program may use: smaller than all that `acked` returns."""


def attach(below: Below, options: Mapping[str, Any]) -> ReplicaLayer:
    """The layer of this process; `options`: see `layer.attach`."""
    return layer.attach(below, options, SenderLayer)


class HeldMessage:
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


class SenderLayer(HoldingLayer):
    """:class:`ckpt.layer.Layer` of one replica."""

    def __init__(self, below: Below, options: Mapping[str, Any]) -> None:
        rank = layer.rank_of(below, options)
        super().__init__(below, options, [rank], [rank])
        self._mine = self.releases[rank]
        self._held_bytes: dict[int, int] = {}

    # ---- Layer -------------------------------------------------------------------------------------------

    def bind(self, engine: Engine, content: ReplicaChoices | None = None) -> None:
        super().bind(engine, content)
        if self.copied_beside is not None:
            states = self.streams.states()
            self._mine.go_on({name: count for name, (count, _) in states.items()})
            numbers = {name: (count, number_of(state)) for name, (count, state) in states.items()}
            self.digests[self.rank].go_on(numbers)
            self._untold.add(self.rank)

    def saved(self, state: Any) -> Any:
        state = super().saved(state)
        for held in self._mine.held.values():
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

    # ---- Progress ----------------------------------------------------------------------------------------

    def send(self, dst: int, data: Buffer, payload: Buffer | None = None) -> int:
        stream, data, payload = self._counted(dst, data, payload)
        if stream is None:
            return self.below.send(self._process[dst], data, payload)
        digest, releases = number_of(stream.state), self._mine
        if dst == self.rank:
            self._go_on(dst, releases.hold(stream.name, digest, None))
            sequence = self.below.send(self._process[dst], data, payload)
            self._note(self.rank, stream.name, stream.count, digest)
            return sequence
        message = HeldMessage(dst, data, payload)
        self._held_bytes[dst] = self._held_bytes.get(dst, 0) + len(message)
        left = releases.hold(stream.name, digest, message)
        if left and left[-1] is message:
            self._go_on(self.rank, left[:-1])
            self._held_bytes[dst] -= len(message)
            sequence = self.below.send(self._process[dst], data, payload)
        else:
            message.copy()
            self._go_on(self.rank, left)
            sequence = DONE
        self._note(self.rank, stream.name, stream.count, digest)
        return sequence

    def backlog_bytes(self, dst: int) -> int:
        if self.is_ahead:
            return ENDLESS_BYTES
        return self.below.backlog_bytes(self._process[dst]) + self._held_bytes.get(dst, 0)

    # ---- inside ------------------------------------------------------------------------------------------

    def _go_on(self, maker: int, messages: list[HeldMessage | None]) -> None:
        for message in messages:
            if message is not None:
                self._held_bytes[message.dst] -= len(message)
                self.below.send(self._process[message.dst], message.data, message.payload)

    def _made(self, reader: int) -> Streams:
        return self.streams

    def _patience_ns(self, maker: int, stream: str, number: int) -> int:
        times = [when for _, _, when in self.streams.named(stream).details(number - 1, number)]
        before = times[0] if len(times) > 1 else self._began_ns
        return patience_ns(times[-1] - before if times else 0)

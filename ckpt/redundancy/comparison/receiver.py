"""The layer of a replica under ``--compare receiver``: no program gets a message before the replicas of the rank that has
made it agree on it. (driver)

A replica sends its messages into its own plane at once, and digests of them to the processes of the receiving rank in the
other planes. Who receives makes a digest of what has come, and holds it until enough replicas of the sending rank have made
the same (arrivals.py, release.py).

    send            counted, and sent at once; its digest is told to the other replicas of the rank that gets it
    on_messages     from the same plane: held, or to the engine; from another plane: digests (holding.py), choices
    images          have the messages that are held (`_beside`). These go to the engine as soon as the image has been loaded,
                    whatever the way of comparing is then, and without replicas, too

So everything that looks at messages (receives, probes, wildcards, collectives) sees those only on which a rank agrees.

Digests count the messages of each stream between two ranks. After a restart, and in a copy, what the image has as under way
is sent again below this layer, and nobody tells digests of it: it has been verified with its line. Each process sends a
`begin` behind it to all ranks of its plane, with the state of its streams; only what comes behind that is compared. A begin
is an answer to a synchronous send that nobody has made, so an engine without this layer, which finds it under way in an
image, does nothing with it. It has the number of the run and of the plane: one of an earlier run is not taken for it.

Messages that the engine makes itself are not compared, as nobody makes them in the same order (digest.py). They have a mark,
in bytes of the envelope that engines do not look at: else one wrong bit in the envelope of any message could make it look
like one, and it would go past the comparison.

Not here: what is told (holding.py).
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Mapping
from typing import Any

from ckpt.layer import MATCHED, SIZE, Below, Buffer, Engine, pack
from ckpt.redundancy import layer
from ckpt.redundancy.agreement.choices import ReplicaChoices
from ckpt.redundancy.chain import number_of
from ckpt.redundancy.comparison.arrivals import Arrivals, contents
from ckpt.redundancy.comparison.digests import Row
from ckpt.redundancy.comparison.holding import HoldingLayer, patience_ns
from ckpt.redundancy.digest import Stream, Streams
from ckpt.redundancy.layer import ReplicaLayer

__all__ = ["ReceiverLayer", "attach"]

MARK = b"own"
"""In bytes 28 to 30 of the envelope: the engine has made this message itself."""

BEGIN = 1 << 63
RUN = 1 << 16
"""The token of a begin is `BEGIN` + run · `RUN` + plane."""


def attach(below: Below, options: Mapping[str, Any]) -> ReplicaLayer:
    """The layer of this process; `options`: see `layer.attach`."""
    return layer.attach(below, options, ReceiverLayer)


class ReceiverLayer(HoldingLayer):
    """:class:`ckpt.layer.Layer` of one replica."""

    def __init__(self, below: Below, options: Mapping[str, Any]) -> None:
        ranks = range(layer.ranks_of(below, options))
        super().__init__(below, options, ranks, ranks)
        self._has_image = options.get("resume") is not None or self.copied_beside is not None
        now_ns = time.monotonic_ns()
        self.arrivals = [
            Arrivals(self.rank, self.releases[rank], now_ns, has_begun=not self._has_image) for rank in ranks
        ]
        """By rank, what comes from it."""
        self._pairs = [Streams() for _ in ranks]
        """By rank, the streams of what it gets from this process."""
        self._names = Streams()
        """Which stream a message that has come belongs to."""
        self._begin = marked(
            pack(MATCHED, self.rank, 0, 0, BEGIN + int(options.get("run", 0)) * RUN + self.replica)
        )
        """The envelope of the begins of this plane, but for the source."""

    # ---- Layer -------------------------------------------------------------------------------------------

    def bind(self, engine: Engine, content: ReplicaChoices | None = None) -> None:
        super().bind(engine, content)
        if self.copied_beside is not None:
            assert self._choices is not None
            now_ns = time.monotonic_ns()
            for rank, states in self._choices.beside["pairs"].items():
                self._pairs[rank].go_on(states, now_ns)
                numbers = {name: (count, number_of(state)) for name, (count, state) in states.items()}
                self.digests[rank].go_on(numbers)
                self._untold.add(rank)
        if self._has_image:
            for rank, streams in enumerate(self._pairs):
                self.below.send(self._process[rank], self._begin + pickle.dumps(streams.states(), 5))

    def _beside(self, epoch: int) -> dict[str, Any]:
        held = {rank: arrivals.held() for rank, arrivals in enumerate(self.arrivals)}
        return {
            **super()._beside(epoch),
            "pairs": {rank: streams.states() for rank, streams in enumerate(self._pairs)},
            "held": {
                rank: [bytes(data) if type(data) is memoryview else data for data in messages]
                for rank, messages in held.items()
                if messages
            },
        }

    # ---- Progress ----------------------------------------------------------------------------------------

    def send(self, dst: int, data: Buffer, payload: Buffer | None = None) -> int:
        stream, data, payload = self._counted(dst, data, payload)
        if stream is None:
            data = marked(data)
        sequence = self.below.send(self._process[dst], data, payload)
        if stream is not None:
            pair = self._pairs[dst].named(stream.name)
            self._note(dst, stream.name, pair.count, number_of(pair.state))
        return sequence

    # ---- inside ------------------------------------------------------------------------------------------

    def _count(self, stream: Stream, dst: int, data: Buffer, payload: Buffer | None) -> None:
        """The content goes into the digest of the stream between two ranks, and that into the one of the whole stream."""
        now_ns = time.monotonic_ns()
        pair = self._pairs[dst].named(stream.name)
        pair.add(dst, data, payload, now_ns)
        stream.add(dst, pair.state, None, now_ns)

    def _arrived(self, rank: int, batch: list[Buffer]) -> None:
        assert self._engine is not None
        arrivals, now_ns, found = self.arrivals[rank], time.monotonic_ns(), []
        for data in batch:
            found += arrivals.take(self._stream_of(rank, data), data, now_ns)
        if found:
            self._engine.on_messages(rank, found)

    def _stream_of(self, rank: int, data: Buffer) -> str | None:
        """The stream of a message that has come from this rank; None: it is not compared."""
        head = bytes(data[:SIZE])
        if head[-4:-1] == MARK:
            if head[12:] == self._begin[12:]:
                self._has_begun(rank, pickle.loads(data[SIZE:]))
            return None
        try:
            stream = self._names.find(head)
        except ValueError:
            stream = None
        # What nobody sends like that is compared all the same
        return "point" if stream is None else stream.name

    def _hear(self, maker: int, replica: int, rows: list[Row]) -> None:
        if self.arrivals[maker].has_begun:
            super()._hear(maker, replica, rows)
        else:
            self._early.append((maker, replica, rows))  # it is not known yet from where on messages count

    def _has_begun(self, rank: int, states: Mapping[str, tuple[int, bytes]]) -> None:
        self.arrivals[rank].begin(states)
        self._know([])
        if self.copied_beside is not None and self._is_compared:
            super()._want(rank)

    def _want(self, maker: int) -> None:
        if self.arrivals[maker].has_begun:
            super()._want(maker)  # else when it has: before that it would be told far more than it needs

    def _go_on(self, maker: int, messages: list[Any]) -> None:
        if messages:
            assert self._engine is not None
            self._engine.on_messages(maker, contents(messages))

    def _made(self, reader: int) -> Streams:
        return self._pairs[reader]

    def _patience_ns(self, maker: int, stream: str, number: int) -> int:
        return patience_ns(self.arrivals[maker].gap_ns(stream))


def marked(data: Buffer) -> bytes:
    """A message of the engine itself, with its mark."""
    return bytes(data[: SIZE - 4]) + MARK + bytes(data[SIZE - 1 :])

"""Messages and explicit checkpoints: which state of the communicator is saved, and how replayed messages are told apart.

Saved
    Messages that have arrived and were not received, and the counters by which ranks agree on names of communicators
    and order of collectives. Not saved: pending receives, synchronous sends and collectives in progress. These belong to
    request objects of the program, which a new run of the script does not have. So :func:`pending` names them, and no
    image is taken.

Replay
    After a restart the script runs its beginning again, and sends its messages again. These *replayed* messages must not
    mix with messages sent before the checkpoint that are still under way. So a rank that replays puts a mark with its
    incarnation in front of each message that it sends. The receiving rank decides::

        message                                      the receiver        what is done with the message
        marked with the receiver's incarnation       replays             delivered, without the mark
        marked otherwise                             replays             dropped: its replay was given up
        marked                                       does not replay     dropped: the receiver's replay is over
        not marked                                   replays             kept until the receiver's state is restored
        not marked                                   does not replay     delivered

    For the port all of them are ordinary messages: numbered, acknowledged, part of images.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ckpt.mpi.engine.engine import Engine

__all__ = ["Mail", "MessageSorter", "pending", "restore", "save"]

Buffer = bytes | bytearray | memoryview
Mail = dict[str, Any]

_MARK = struct.Struct("<4sQ20x")
_MAGIC = b"Prep"  # no message begins like this: envelopes begin with "C"
_COUNTERS = ("count", "sends", "token")
_SHARED_COUNTERS = ("collectives", "persistent")


class MessageSorter:
    """Hands the port's messages to the engine (``deliver``) by the table in the header. Called under the runtime's lock.

    ``consumed(src, nbytes, nmessages)``: gives credit back to the sender for what the engine will not account for.
    """

    def __init__(
        self, deliver: Callable[[int, list[Buffer]], None], consumed: Callable[[int, int, int], None]
    ) -> None:
        self._deliver = deliver
        self._consumed = consumed
        self._postponed: list[tuple[int, list[Buffer]]] = []
        self._mark = b""
        self._incarnation: int | None = None

    def replay(self, incarnation: int) -> None:
        """From now on this rank replays. ``incarnation``: of this rank, the same in all ranks of one restart."""
        self._incarnation = incarnation
        self._mark = _MARK.pack(_MAGIC, incarnation)

    def marked(self, send: Callable[..., int]) -> Callable[..., int]:
        """A function with the arguments of ``send`` that puts the mark in front of each message."""

        def send_marked(dst: int, data: Buffer, payload: Buffer | None = None) -> int:
            head = self._mark + bytes(data)
            return send(dst, head) if payload is None else send(dst, head, payload)

        return send_marked

    def on_messages(self, src: int, batch: list[Buffer]) -> None:
        """The port calls this with the messages of rank ``src``, in order."""
        if self._incarnation is None and not any(bytes(data[:4]) == _MAGIC for data in batch):
            self._deliver(src, batch)
            return
        for data in batch:
            if bytes(data[:4]) != _MAGIC:
                if self._incarnation is None:
                    self._deliver(src, [data])
                else:
                    self._postponed.append((src, [data]))
            elif _MARK.unpack_from(data)[1] == self._incarnation:
                self._consumed(src, _MARK.size, 0)
                self._deliver(src, [memoryview(data)[_MARK.size :]])
            else:
                self._consumed(src, len(data), 1)

    def end_replay(self) -> None:
        """The state is restored: deliver the messages that were kept."""
        self._incarnation = None
        kept, self._postponed = self._postponed, []
        for src, batch in kept:
            self._deliver(src, batch)


def pending(engine: Engine) -> str:
    """The first operation in progress that an image cannot hold, in words; empty: there is none."""
    if any(shared.pending for shared in engine.shared.values()):
        return "a nonblocking collective is pending"
    matcher = engine.matcher
    for number in list(matcher.contexts):
        for receive in matcher.posted_in(number):
            return f"a receive (source {receive.want_source}, tag {receive.want_tag}) is pending"
    if engine.syncs:
        return "a synchronous send is pending"
    if engine.handlers.in_use:
        return "active messages are in use: what their handlers have changed is no registered object"
    return ""


def save(engine: Engine) -> Mail:
    """The messages and counters of an engine without pending operations, by reference: valid until the fork that follows.

    The engine first reports all consumed messages to the port (``pay_all``), so that the port's state is complete.
    """
    engine.pay_all()
    messages = [
        (serial, channel.src, channel.source, channel.tag, context.number, data)
        for context in engine.matcher.contexts.values()
        for channel in context.channels.values()
        for serial, data in channel.messages
    ]
    messages.sort(key=lambda entry: entry[0])
    return {
        "messages": [entry[1:] for entry in messages],
        "counters": {name: getattr(engine, name) for name in _COUNTERS},
        "communicators": {
            base: {name: getattr(shared, name) for name in _SHARED_COUNTERS}
            for base, shared in engine.shared.items()
        },
    }


def restore(engine: Engine, mail: Mail, consumed: Callable[[int, int, int], None]) -> None:
    """Replace the engine's messages and counters, which the replay has made, by those of ``mail``, from :func:`save`."""
    matcher = engine.matcher
    engine.pay_all()
    for context in matcher.contexts.values():
        for channel in context.channels.values():
            for _, data in channel.messages:
                consumed(channel.src, len(data), 1)
            channel.messages.clear()
        context.keep_no_order()
    for name, value in mail["counters"].items():
        setattr(engine, name, value)
    for base, counters in mail["communicators"].items():
        shared = engine.shared.get(base)
        if shared is not None:
            for name, value in counters.items():
                setattr(shared, name, value)
    for src, source, tag, number, data in mail["messages"]:
        matcher.arrive(src, source, tag, number, data)

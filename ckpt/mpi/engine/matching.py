"""Matching: posted receives against messages that arrived before anybody asked for them.

Pure bookkeeping; who sends, waits or copies is elsewhere.

A *channel* is one (context, source, tag). It holds either unexpected messages or posted exact receives,
never both: a message goes to the earliest posted receive that accepts it, a receive takes the earliest
message it accepts. Receives with a wildcard are kept per context. Tickets number receives in the order of
posting, serials number messages in the order of arrival; both only grow.

Rules
  * Non-overtaking: messages of one source reach a channel in order, and among several channels of one
    source a wildcard
    takes the lowest serial.
  * Fairness: a wildcard takes the lowest serial of all sources, so no source waits for ever.
  * Exact matching costs one lookup, and so does a wildcard that only one channel of its context answers to. The
    order across channels is kept only for contexts with many channels in which another wildcard was used.
  * Empty channels are forgotten when there are many, so that programs with ever new tags stay small.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Any

from ckpt.mpi.base import envelope
from ckpt.mpi.base.constants import ANY_SOURCE, ANY_TAG
from ckpt.mpi.base.progress import Buffer
from ckpt.mpi.engine.operations import Receive, frozen

CHANNELS_MIN = 1024
"""Below this many channels in a context nothing is forgotten."""

SCAN_CHANNELS = 16
"""In a context of no more channels a wildcard looks at all of them; with more, an order across them is kept."""


class Channel:
    """Messages or receives of one (context, source, tag). `src`: the source's rank in the world."""

    __slots__ = ("context", "messages", "posted", "source", "src", "tag")

    def __init__(self, context: Context, source: int, tag: int, src: int) -> None:
        self.context = context
        self.source = source
        self.tag = tag
        self.src = src
        self.messages: deque[tuple[int, Buffer]] = deque()
        self.posted: deque[Receive] = deque()

    def __getstate__(self) -> tuple[Any, ...]:
        messages = [(serial, frozen(data)) for serial, data in self.messages]
        return self.context, self.source, self.tag, self.src, messages, list(self.posted)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.context, self.source, self.tag, self.src, messages, posted = state
        self.messages = deque(messages)
        self.posted = deque(posted)


class Context:
    """One plane of one communicator."""

    __slots__ = ("channels", "direct", "number", "order", "sweep_at", "wild")

    def __init__(self, number: int) -> None:
        self.number = number
        self.channels: dict[tuple[int, int], Channel] = {}
        self.direct: dict[tuple[int, int], Channel] = {}
        """`channels`, and under (source, tag) with wildcards the channel that alone answers to them; empty while the
        order across channels is kept. What is found here may be taken without asking anybody."""
        self.wild: list[Receive] = []
        self.order: OrderedDict[int, Channel] | None = None
        self.sweep_at = CHANNELS_MIN

    def keep_no_order(self) -> None:
        """Forget the order across channels, and which of them answer to wildcards."""
        self.order = None
        self.direct.clear()
        self.direct.update(self.channels)

    def busy(self) -> bool:
        """Whether a message or a receive waits here."""
        channels = self.channels.values()
        return bool(self.wild) or any(channel.messages or channel.posted for channel in channels)


class Matcher:
    """All contexts of one rank. `posted` counts receives that wait for a message."""

    __slots__ = ("by_envelope", "contexts", "posted", "serial", "ticket")

    def __init__(self) -> None:
        self.contexts: dict[int, Context] = {}
        self.by_envelope: dict[bytes, Channel] = {}
        self.serial = 0
        self.ticket = 0
        self.posted = 0

    # -- structure ---------------------------------------------------------------------------------

    def context(self, number: int) -> Context:
        """The context of this number, made on first use: peers may send before this rank knows of it."""
        found = self.contexts.get(number)
        if found is None:
            found = self.contexts[number] = Context(number)
        return found

    def channel(self, context: Context, source: int, tag: int, src: int) -> Channel:
        """The channel of (context, source, tag), made on first use."""
        found = context.channels.get((source, tag))
        if found is None:
            if len(context.channels) >= context.sweep_at:
                self._sweep(context)
            found = context.channels[source, tag] = Channel(context, source, tag, src)
            direct = context.direct
            for wildcard in ((source, ANY_TAG), (ANY_SOURCE, tag), (ANY_SOURCE, ANY_TAG)):
                direct.pop(wildcard, None)  # may have another channel to itself no longer
            if context.order is None:
                direct[source, tag] = found
            self.by_envelope[envelope.pack(envelope.EAGER, source, tag, context.number)] = found
        return found

    def _sweep(self, context: Context) -> None:
        for key, channel in list(context.channels.items()):
            if not channel.messages and not channel.posted:
                del context.channels[key]
                del self.by_envelope[envelope.pack(envelope.EAGER, *key, context.number)]
        if context.order is None:
            context.keep_no_order()
        context.sweep_at = max(CHANNELS_MIN, 2 * len(context.channels))

    def forget(self, number: int) -> None:
        """Drop a context of a freed communicator, with what is still in it."""
        context = self.contexts.pop(number, None)
        if context is None:
            return
        for (source, tag), channel in context.channels.items():
            del self.by_envelope[envelope.pack(envelope.EAGER, source, tag, number)]
            self.posted -= len(channel.posted)
        self.posted -= len(context.wild)

    # -- messages ----------------------------------------------------------------------------------

    def arrive(
        self, src: int, source: int, tag: int, number: int, data: Buffer
    ) -> tuple[Channel, Receive | None]:
        """A message came in: the receive it matches, else None and it is kept."""
        context = self.context(number)
        channel = self.channel(context, source, tag, src)
        receive = self._earliest(channel)
        if receive is not None:
            self._take_off(receive, channel)
            return channel, receive
        self.keep(channel, data)
        return channel, None

    def keep(self, channel: Channel, data: Buffer) -> None:
        """A message of this channel has come that nobody waits for."""
        self.serial = serial = self.serial + 1
        channel.messages.append((serial, data))
        if channel.context.order is not None:
            channel.context.order[serial] = channel

    def _earliest(self, channel: Channel) -> Receive | None:
        best = channel.posted[0] if channel.posted else None
        for receive in channel.context.wild:
            if best is not None and receive.ticket > best.ticket:
                break
            if receive.accepts(channel.source, channel.tag):
                return receive
        return best

    def _take_off(self, receive: Receive, channel: Channel) -> None:
        if channel.posted and channel.posted[0] is receive:
            channel.posted.popleft()
        else:
            channel.context.wild.remove(receive)
        self.posted -= 1

    # -- receives ----------------------------------------------------------------------------------

    def find(self, context: Context, source: int, tag: int) -> Channel | None:
        """The channel whose oldest message a receive of (source, tag) would take now; wildcards allowed."""
        channel = context.direct.get((source, tag))
        if channel is not None:
            return channel if channel.messages else None
        order = context.order
        if source != ANY_SOURCE and tag != ANY_TAG:
            channel = context.channels.get((source, tag))
            return channel if channel is not None and channel.messages else None
        if order is None:
            if len(context.channels) <= SCAN_CHANNELS:
                return self._scan(context, source, tag)
            order = self._order(context)
        for channel in order.values():
            if source in (ANY_SOURCE, channel.source) and tag in (ANY_TAG, channel.tag):
                return channel
        return None

    def _scan(self, context: Context, source: int, tag: int) -> Channel | None:
        """The same for a wildcard, by a look at every channel."""
        found = only = None
        count = 0
        for channel in context.channels.values():
            if source in (ANY_SOURCE, channel.source) and tag in (ANY_TAG, channel.tag):
                count += 1
                only = channel
                if channel.messages and (found is None or channel.messages[0][0] < found.messages[0][0]):
                    found = channel
        if count == 1:
            assert only is not None
            context.direct[source, tag] = only
        return found

    def _order(self, context: Context) -> OrderedDict[int, Channel]:
        """Begin to keep the order across channels."""
        waiting: dict[int, Channel] = {}
        for channel in context.channels.values():
            for serial, _ in channel.messages:
                waiting[serial] = channel
        context.order = order = OrderedDict()
        for serial in sorted(waiting):
            order[serial] = waiting[serial]
        context.direct.clear()
        return order

    def pop(self, channel: Channel) -> Buffer:
        """Take the oldest message off a channel."""
        serial, data = channel.messages.popleft()
        if channel.context.order is not None:
            del channel.context.order[serial]
        return data

    def post(self, context: Context, receive: Receive, src: int) -> None:
        """Wait for a message; `find` gave none. `src`: world rank of the source, ignored for ANY_SOURCE."""
        self.ticket += 1
        receive.ticket = self.ticket
        if receive.want_source == ANY_SOURCE or receive.want_tag == ANY_TAG:
            context.wild.append(receive)
        else:
            self.channel(context, receive.want_source, receive.want_tag, src).posted.append(receive)
        self.posted += 1

    def posted_in(self, number: int) -> list[Receive]:
        """Receives that wait in a context."""
        context = self.contexts.get(number)
        if context is None:
            return []
        found = list(context.wild)
        for channel in context.channels.values():
            found.extend(channel.posted)
        return found

    def posted_with_source(self, number: int, peers: tuple[int, ...]) -> list[tuple[Receive, int]]:
        """Receives that wait in a context for a certain source, with its world rank. `peers`: world ranks by
        rank in the communicator."""
        context = self.contexts.get(number)
        if context is None:
            return []
        found = [
            (receive, peers[receive.want_source])
            for receive in context.wild
            if receive.want_source != ANY_SOURCE
        ]
        for channel in context.channels.values():
            found += [(receive, channel.src) for receive in channel.posted]
        return found

    def withdraw(self, receive: Receive) -> bool:
        """Take a posted receive back; False if it is not posted (any more)."""
        context = self.contexts.get(receive.context)
        if context is None:
            return False
        if receive in context.wild:
            context.wild.remove(receive)
            self.posted -= 1
            return True
        channel = context.channels.get((receive.want_source, receive.want_tag))
        if channel is not None and receive in channel.posted:
            channel.posted.remove(receive)
            self.posted -= 1
            return True
        return False

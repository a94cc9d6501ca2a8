"""Matching of receives and messages: the queues of posted receives and of unexpected messages.

A *channel* is one (context, source, tag). It holds either unexpected messages, or posted receives without wildcard, never
both: an arriving message goes to the earliest posted receive that accepts it, and a new receive takes the earliest
message that it accepts. Receives with a wildcard are kept in a list for each context. Tickets number receives in the
order of posting; serials number messages in the order of arrival. Both only grow.

Rules
  * Non-overtaking (MPI standard): messages of one source enter a channel in order. Among several channels, a receive
    with a wildcard takes the message with the lowest serial.
  * Fairness: a receive with a wildcard takes the lowest serial of all sources, so no source waits for ever.
  * Cost: a receive without wildcard costs one lookup. So does a wildcard that exactly one channel of the context matches.
    The order across channels is kept only for contexts with more than SCAN_CHANNELS channels, after another wildcard was
    used there. With it, too, a wildcard costs no more than a look at each channel, however many messages of others come
    before the one it takes.
  * Empty channels are forgotten when there are many, so that a program that uses ever new tags needs bounded memory.

Not here: sending, waiting, copying into buffers.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from itertools import islice
from typing import Any

from ckpt.mpi.base import envelope
from ckpt.mpi.base.constants import ANY_SOURCE, ANY_TAG
from ckpt.mpi.base.progress import Buffer
from ckpt.mpi.engine.operations import Receive, frozen

CHANNELS_MIN = 1024
"""Empty channels of a context are forgotten only when the context has this many channels."""

SCAN_CHANNELS = 16
"""In a context with at most this many channels a wildcard scans all of them; with more, an order across them is kept."""


class Channel:
    """Messages, or posted receives, of one (context, source, tag). `src`: world rank of the source.

    `messages`: unexpected messages as (serial, bytes with envelope), oldest first."""

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
        """All of `channels`; also, under a (source, tag) with a wildcard, the channel if it is the only one that matches.
        Empty while the order across channels is kept. A receive may take from a channel found here without a search."""
        self.wild: list[Receive] = []
        self.order: OrderedDict[int, Channel] | None = None
        self.sweep_at = CHANNELS_MIN

    def keep_no_order(self) -> None:
        """Stop keeping the order across channels, and forget which channels match wildcards."""
        self.order = None
        self.direct.clear()
        self.direct.update(self.channels)

    def busy(self) -> bool:
        """Whether an unexpected message or a posted receive is in this context."""
        channels = self.channels.values()
        return bool(self.wild) or any(channel.messages or channel.posted for channel in channels)


class Matcher:
    """All contexts of one rank.

    `by_envelope`: packed EAGER envelope -> channel. `posted`: number of posted receives."""

    __slots__ = ("by_envelope", "contexts", "posted", "serial", "ticket")

    def __init__(self) -> None:
        self.contexts: dict[int, Context] = {}
        self.by_envelope: dict[bytes, Channel] = {}
        self.serial = 0
        self.ticket = 0
        self.posted = 0

    # -- structure ---------------------------------------------------------------------------------

    def context(self, number: int) -> Context:
        """The context with this number. It is made on first use: peers may send before the communicator exists here."""
        found = self.contexts.get(number)
        if found is None:
            # In one step: the application's thread begins a collective without the lock, while the helper may bring its
            # first message. Of two contexts of one number the first would be lost, with the message.
            found = self.contexts.setdefault(number, Context(number))
        return found

    def channel(self, context: Context, source: int, tag: int, src: int) -> Channel:
        """The channel of (context, source, tag). It is made on first use. `src`: world rank of the source."""
        found = context.channels.get((source, tag))
        if found is None:
            if len(context.channels) >= context.sweep_at:
                self._sweep(context)
            found = context.channels[source, tag] = Channel(context, source, tag, src)
            direct = context.direct
            for wildcard in ((source, ANY_TAG), (ANY_SOURCE, tag), (ANY_SOURCE, ANY_TAG)):
                direct.pop(wildcard, None)  # perhaps another channel was the only match; now there are two
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
        """Drop a context of a freed communicator, with its messages and receives."""
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
        """Match an arriving message: (its channel, the receive that takes it). None for the receive: the message is kept."""
        channel = self.channel(self.context(number), source, tag, src)
        return channel, self.offer(channel, data)

    def offer(self, channel: Channel, data: Buffer) -> Receive | None:
        """Match the next message of a channel: the receive that takes it, and is posted no longer. None: the message is
        kept. A channel has no messages if any receive is posted that accepts them."""
        if not channel.context.wild:
            if channel.posted:
                self.posted -= 1
                return channel.posted.popleft()
        elif (receive := self._earliest(channel)) is not None:
            self.take_off(receive, channel)
            return receive
        self.keep(channel, data)
        return None

    def keep(self, channel: Channel, data: Buffer) -> None:
        """Append an unexpected message to its channel."""
        self.serial = serial = self.serial + 1
        channel.messages.append((serial, data))
        if channel.context.order is not None:
            channel.context.order[serial] = channel

    def awaiting(self, channel: Channel) -> Receive | None:
        """The posted receive that would take the next message of a channel, or None."""
        return None if channel.messages else self._earliest(channel)

    def _earliest(self, channel: Channel) -> Receive | None:
        best = channel.posted[0] if channel.posted else None
        for receive in channel.context.wild:
            if best is not None and receive.ticket > best.ticket:
                break
            if receive.accepts(channel.source, channel.tag):
                return receive
        return best

    def take_off(self, receive: Receive, channel: Channel) -> None:
        """Remove a receive that is posted for messages of this channel."""
        if channel.posted and channel.posted[0] is receive:
            channel.posted.popleft()
        else:
            channel.context.wild.remove(receive)
        self.posted -= 1

    # -- receives ----------------------------------------------------------------------------------

    def find(self, context: Context, source: int, tag: int) -> Channel | None:
        """The channel whose oldest message a receive of (source, tag) would take now, or None. Wildcards are allowed."""
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
        for channel in islice(order.values(), len(context.channels)):
            if source in (ANY_SOURCE, channel.source) and tag in (ANY_TAG, channel.tag):
                return channel
        return self._scan(context, source, tag) if len(order) > len(context.channels) else None

    def _scan(self, context: Context, source: int, tag: int) -> Channel | None:
        """The result of `find` for a wildcard, by a scan of all channels."""
        found = only = None
        count = 0
        for channel in context.channels.values():
            if source in (ANY_SOURCE, channel.source) and tag in (ANY_TAG, channel.tag):
                count += 1
                only = channel
                if channel.messages and (found is None or channel.messages[0][0] < found.messages[0][0]):
                    found = channel
        if count == 1 and context.order is None:
            assert only is not None
            context.direct[source, tag] = only
        return found

    def _order(self, context: Context) -> OrderedDict[int, Channel]:
        """Begin to keep the order across channels: serial -> channel, lowest serial first."""
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
        """Remove the oldest message of a channel and return it."""
        serial, data = channel.messages.popleft()
        if channel.context.order is not None:
            del channel.context.order[serial]
        return data

    def post(self, context: Context, receive: Receive, src: int) -> None:
        """Post a receive for which `find` returned None. `src`: world rank of the source, ignored for ANY_SOURCE."""
        self.ticket += 1
        receive.ticket = self.ticket
        if receive.want_source == ANY_SOURCE or receive.want_tag == ANY_TAG:
            context.wild.append(receive)
        else:
            self.channel(context, receive.want_source, receive.want_tag, src).posted.append(receive)
        self.posted += 1

    def posted_in(self, number: int) -> list[Receive]:
        """All posted receives of a context."""
        context = self.contexts.get(number)
        if context is None:
            return []
        found = list(context.wild)
        for channel in context.channels.values():
            found.extend(channel.posted)
        return found

    def posted_with_source(self, number: int, peers: tuple[int, ...]) -> list[tuple[Receive, int]]:
        """The posted receives of a context, except those from ANY_SOURCE, each with its source's world rank.

        peers: world ranks by rank in the communicator."""
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
        """Remove a posted receive. False: the receive is not posted, or no longer."""
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

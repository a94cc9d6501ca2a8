"""The matcher of a replica: receives from ANY_SOURCE are open until it is known from which source they take their message.

Where this replica does not lead, a message is *held*, outside of the mailbox, as long as it might belong to an open receive:

    its first posted receive is open                       what it gets is not known yet
    its first posted receive is questioned                 so is whether it is cancelled (requests.py)
    an earlier message of its channel is held              messages of one channel do not overtake
    its first posted receive accepts an earlier held one   nor do those of one source with different tags

When a receive is no longer open, all held messages arrive again, in their old order. The leader holds nothing: it matches by
what it sees, and tells the source.

Not here: who chooses the source (choices.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ckpt.layer import ANY_SOURCE, ANY_TAG, Buffer, Channel, Context, Matcher, Receive
from ckpt.redundancy.agreement.order import Key

__all__ = ["OrderedMatcher"]


class OrderedMatcher(Matcher):
    """The matcher of a replica. `open`: receives from ANY_SOURCE without a source, by id, with the key of their choice."""

    __slots__ = ("held", "leads", "on_match", "open", "questioned")

    def __init__(self, former: Matcher | None = None) -> None:
        """`former`: the engine's matcher until now, whose contexts communicators hold already."""
        super().__init__()
        if former is not None:
            self.contexts, self.by_envelope = former.contexts, former.by_envelope
            self.serial, self.ticket, self.posted = former.serial, former.ticket, former.posted
        self.open: dict[int, tuple[Key, Receive]] = {}
        self.questioned: set[int] = set()
        """Receives, by id, of which it is not known whether they are cancelled."""
        self.held: list[tuple[int, Channel, Buffer]] = []
        self.leads: Callable[[], bool] = lambda: True
        self.on_match: Callable[[Key, int], None] = lambda key, source: None

    def __reduce__(self) -> tuple[Any, ...]:
        """In an image: a plain matcher. Nothing is held where one is taken, and open receives are known by their source."""
        state = {name: getattr(self, name) for name in Matcher.__slots__}
        return Matcher, (), (None, state)

    def open_again(self, first: int) -> int:
        """Receives from ANY_SOURCE that an image has are open: with keys from number `first` on, in the order of their
        posts. Returns their number."""
        waiting = [receive for context in self.contexts.values() for receive in context.wild]
        found = [receive for receive in waiting if receive.want_source == ANY_SOURCE]
        for number, receive in enumerate(sorted(found, key=lambda each: each.ticket), first):
            self.open[id(receive)] = (("w", number), receive)
        self._keep_no_orders()
        return len(found)

    def open_as_before(self, rows: Iterable[tuple[Key, Receive]]) -> None:
        """These receives, which an image has, are open, with the keys that they had when it was taken."""
        for key, receive in rows:
            self.open[id(receive)] = (key, receive)
        self._keep_no_orders()

    def _keep_no_orders(self) -> None:
        for context in self.contexts.values():
            context.keep_no_order()  # the fast paths look there, and would take without a choice

    def offer(self, channel: Channel, data: Buffer) -> Receive | None:
        self.serial += 1
        return self._match(self.serial, channel, data)

    def _match(self, serial: int, channel: Channel, data: Buffer) -> Receive | None:
        """The receive that takes this message; None: it is kept, or held."""
        receive = self._earliest(channel)
        if self._is_held(channel, receive):
            self.held.append((serial, channel, data))
            return None
        if receive is None:
            channel.messages.append((serial, data))
            if channel.context.order is not None:
                channel.context.keep_no_order()
            return None
        opened = self.open.pop(id(receive), None)
        if opened is not None:
            self.on_match(opened[0], channel.source)
        self.take_off(receive, channel)
        return receive

    def _is_held(self, channel: Channel, receive: Receive | None) -> bool:
        if not self.held and not self.open and not self.questioned:
            return False
        is_unsure = receive is not None and (id(receive) in self.open or id(receive) in self.questioned)
        if is_unsure and not self.leads():
            return True
        return any(
            each is channel
            or (
                receive is not None
                and each.context is channel.context
                and receive.accepts(each.source, each.tag)
            )
            for _, each, _ in self.held
        )

    def keep(self, channel: Channel, data: Buffer) -> None:
        """Called for messages that no receive can match now; those behind a held one are held, too."""
        self.serial += 1
        if self.held and any(each is channel for _, each, _ in self.held):
            self.held.append((self.serial, channel, data))
            return
        channel.messages.append((self.serial, data))
        if channel.context.order is not None:
            channel.context.keep_no_order()

    def find(self, context: Context, source: int, tag: int) -> Channel | None:
        """As always, but nothing behind a held message that is older, and from ANY_SOURCE only where this replica leads."""
        if source == ANY_SOURCE and not self.leads():
            return None
        found = super().find(context, source, tag)
        if context.order is not None:
            context.keep_no_order()
        if source == ANY_SOURCE:
            # The fast paths look there, and would take without a choice
            context.direct.pop((source, tag), None)
        if found is None or not self.held:
            return found
        first = found.messages[0][0]
        for serial, each, _ in self.held:
            if (
                serial < first
                and each.context is context
                and source in (ANY_SOURCE, each.source)
                and tag in (ANY_TAG, each.tag)
            ):
                self._hold_back(context, source, tag)  # they arrive again behind the older one
                return None
        return found

    def _hold_back(self, context: Context, source: int, tag: int) -> None:
        """Take messages out of the mailbox, and hold them."""
        for channel in context.channels.values():
            if source in (ANY_SOURCE, channel.source) and tag in (ANY_TAG, channel.tag):
                while channel.messages:
                    serial, data = channel.messages.popleft()
                    self.held.append((serial, channel, data))
        self.held.sort(key=lambda item: item[0])

    def post_open(self, context: Context, receive: Receive, key: Key) -> None:
        """Post a receive whose source is not chosen yet. Messages that it might take leave the mailbox, and are held."""
        self.ticket += 1
        receive.ticket = self.ticket
        context.wild.append(receive)
        self.posted += 1
        self.open[id(receive)] = (key, receive)
        if self.leads():
            return
        self._hold_back(context, receive.want_source, receive.want_tag)
        if context.order is not None:
            context.keep_no_order()

    def post_decided(self, context: Context, receive: Receive) -> None:
        """Post a receive whose source has been chosen."""
        self.ticket += 1
        receive.ticket = self.ticket
        context.wild.append(receive)
        self.posted += 1

    def question(self, receive: Receive) -> None:
        """Where this replica does not lead no message matches this posted receive, until it is questioned no more."""
        if receive.done or id(receive) in self.questioned:
            return
        self.questioned.add(id(receive))
        context = self.contexts[receive.context]
        channel = context.channels.get((receive.want_source, receive.want_tag))
        if channel is not None and receive in channel.posted:
            channel.posted.remove(receive)  # a message would match it there at once
            context.wild.append(receive)
            context.wild.sort(key=lambda each: each.ticket)

    def choose(self, key: Key, source: int) -> bool:
        """The source of an open receive is known. False: no open receive has this key."""
        for ident, (each, receive) in self.open.items():
            if each == key:
                del self.open[ident]
                receive.want_source = source
                return True
        return False

    def again(self) -> list[tuple[Channel, Buffer, Receive]]:
        """Let the held messages arrive again; returns those that a receive takes."""
        held, self.held = self.held, []
        taken = []
        for serial, channel, data in held:
            receive = self._match(serial, channel, data)
            if receive is not None:
                taken.append((channel, data, receive))
        return taken

    def withdraw(self, receive: Receive) -> bool:
        self.open.pop(id(receive), None)
        self.questioned.discard(id(receive))
        return super().withdraw(receive)

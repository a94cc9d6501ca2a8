"""`Choices` of one replica: answers and matches as the leader of its rank has made them (:mod:`ckpt.redundancy.order`).

A receive from ANY_SOURCE is *open* from its post until the leader has said from which source it takes its message; then it
is a receive from that source. Messages from one source come in the same order at all replicas, so nothing else has to be
agreed on: not the order of arrivals, not receives that name their source, not ANY_TAG from one source.

Where this replica does not lead, a message is *held*, outside of the mailbox, as long as it might belong to an open receive:

    its first posted receive is open                       what it gets is not known yet
    an earlier message of its channel is held              messages of one channel do not overtake
    its first posted receive accepts an earlier held one   nor do those of one source with different tags

When a receive is no longer open, all held messages arrive again, in their old order. The leader holds nothing: it matches by
what it sees, and tells the source.

In an image    An image is taken of a replica that leads, so it holds nothing, and its mailbox is that of a rank without
               replicas. All replicas go on from that image: each call that waits here looks again who leads, and an open
               receive gets a new key, which is the same in all of them (`begin`). Without replicas, who waits here leads.

Not here: how replicas agree on who leads (order.py), the message path (layer.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from ckpt.layer import ANY_SOURCE, ANY_TAG, Buffer, Channel, Context, Engine, Matcher, Receive
from ckpt.redundancy.order import MISSING, Key, Message, Order

__all__ = ["OrderedMatcher", "ReplicaChoices"]

T = TypeVar("T")

_RAISED = "the look raised"


def _to_nobody(replica: int, message: Message) -> None:
    """There is no other replica."""


class OrderedMatcher(Matcher):
    """The matcher of a replica. `open`: receives from ANY_SOURCE without a source, by id, with the key of their choice."""

    __slots__ = ("held", "leads", "on_match", "open")

    def __init__(self, former: Matcher | None = None) -> None:
        """`former`: the engine's matcher until now, whose contexts communicators hold already."""
        super().__init__()
        if former is not None:
            self.contexts, self.by_envelope = former.contexts, former.by_envelope
            self.serial, self.ticket, self.posted = former.serial, former.ticket, former.posted
        self.open: dict[int, tuple[Key, Receive]] = {}
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
        for context in self.contexts.values():
            context.keep_no_order()  # the fast paths look there, and would take without a choice
        return len(found)

    def arrive(
        self, src: int, source: int, tag: int, number: int, data: Buffer
    ) -> tuple[Channel, Receive | None]:
        context = self.context(number)
        channel = self.channel(context, source, tag, src)
        self.serial += 1
        return channel, self._match(self.serial, channel, data)

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
        self._take_off(receive, channel)
        return receive

    def _is_held(self, channel: Channel, receive: Receive | None) -> bool:
        if not self.held and not self.open:
            return False
        if receive is not None and id(receive) in self.open and not self.leads():
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
            context.direct.pop(
                (source, tag), None
            )  # the fast paths look there, and would take without a choice
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
        return super().withdraw(receive)


class ReplicaChoices:
    """`ckpt.layer.Choices` of one replica. `send(replica, message)` reaches another replica of the same rank."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._counts = {"q": 0, "w": 0}
        self._asking: Key | None = None
        """The question that the program waits for now."""
        self._alone()

    def _alone(self) -> None:
        self._order = Order(0, 1, self._begun())
        self._send: Callable[[int, Message], None] = _to_nobody
        self._waits_for: Key | None = None
        self._suspects: list[Receive] = []
        self._suspected_key: Key | None = None

    def _begun(self) -> dict[str, int]:
        return {"q": self._counts["q"] - (self._asking is not None), "w": self._counts["w"]}

    def __getstate__(self) -> dict[str, Any]:
        return {"engine": self._engine, "counts": dict(self._counts), "asking": self._asking}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """From an image. Where this process has no replicas, it leads."""
        self._engine, self._counts, self._asking = state["engine"], state["counts"], state["asking"]
        self._alone()

    def begin(self, me: int, replicas: int, send: Callable[[int, Message], None]) -> None:
        """The engine asks this object from now on; this process is replica `me`."""
        engine = self._engine
        self._order = order = Order(me, replicas, self._begun())
        self._send = send
        self.matcher = matcher = OrderedMatcher(engine.matcher)
        matcher.leads = lambda: order.leads
        matcher.on_match = self._matched
        self._counts["w"] += matcher.open_again(self._counts["w"])
        engine.matcher = matcher
        engine.choices = self

    @property
    def leads(self) -> bool:
        return self._order.leads

    # ---- what the engine asks ----------------------------------------------------------------------------

    def answer(self, look: Callable[[], T], holds: Callable[[T], bool]) -> T:
        key = self._next("q")
        value: Any = MISSING
        while (known := self._await(key)) is not MISSING and known != _RAISED:
            if self._holds(key, known, holds):
                value = known
                break
        if value is not MISSING:
            self._follow(key)
            return value  # type: ignore[no-any-return]
        if known == _RAISED:
            self._follow(key)
            return look()
        try:
            value = look()
        except Exception:
            self._decide(key, _RAISED)
            self._follow(key)
            raise
        self._decide(key, value)
        self._follow(key)
        return value  # type: ignore[no-any-return]

    def _holds(self, key: Key, value: Any, holds: Callable[[Any], bool]) -> bool:
        """Wait until the value holds here. False: meanwhile the choice has been taken back, since its leader was wrong: who
        goes on with it nevertheless would be the only one that knows it."""
        self._waits_for = key
        try:
            while self._order.look_up(key) is value and not holds(value):
                self._engine.block(hungry=True)
        finally:
            self._waits_for = None
        return self._order.look_up(key) is value

    def start(self, context: Context, receive: Receive) -> None:
        key, matcher, engine = self._next("w"), self.matcher, self._engine
        source = self._order.look_up(key)
        if source is MISSING and not self._order.leads:
            matcher.post_open(context, receive, key)
            return
        wanted = receive.want_source if source is MISSING else source
        channel = matcher.find(context, wanted, receive.want_tag)
        if source is not MISSING:
            self._follow(key)
        if channel is None:
            if source is MISSING:
                matcher.post_open(context, receive, key)
            else:
                receive.want_source = source
                matcher.post_decided(context, receive)
            return
        if source is MISSING:
            self._decide(key, channel.source)
            self._follow(key)
        data = matcher.pop(channel)
        engine.settle_account(channel, data)
        receive.fill(channel.source, channel.tag, data)

    def wait(self, look: Callable[[], T | None], holds: Callable[[T], bool]) -> T:
        key = self._next("q")
        while (found := self._try(key, look, holds)) is MISSING:
            self._engine.block(hungry=True)  # whoever goes on from an image here looks again who leads
        return found  # type: ignore[no-any-return]

    def _try(self, key: Key, look: Callable[[], Any], holds: Callable[[Any], bool]) -> Any:
        """The answer, or MISSING."""
        known = self._order.look_up(key)
        self._waits_for = None
        if known is MISSING and not self._order.leads:
            return MISSING
        if known is MISSING or known == _RAISED:
            try:
                value = look()
            except Exception:
                if known is MISSING:
                    self._decide(key, _RAISED)
                self._follow(key)
                raise
            if value is None:
                return MISSING
            if known is MISSING:
                self._decide(key, value)
            self._follow(key)
            return value
        if not holds(known):
            self._waits_for = key
            return MISSING
        self._follow(key)
        return known

    def probe(self, context: Context, source: int, tag: int) -> Channel:
        engine = self._engine

        def look() -> tuple[int, int] | None:
            found = engine.look_for(context, source, tag)
            return None if found is None else (found.source, found.tag)

        place = self.wait(look, lambda place: engine.matcher.find(context, *place) is not None)
        channel = engine.matcher.find(context, *place)
        assert channel is not None
        return channel

    def value(self, look: Callable[[], T]) -> T:
        """A value of the surroundings: that of the leader. Takes the lock itself."""
        with self._engine.lock:
            return self.answer(look, lambda value: True)

    # ---- what comes from the other replicas --------------------------------------------------------------

    def receive(self, replica: int, message: Message) -> None:
        self._pass_on(self._order.receive(replica, message))
        self._apply()

    def lost(self, replicas: list[int], *, wrong: bool) -> None:
        """Replicas of this rank are lost. What a wrong leader has chosen may never come true: see `is_stuck`."""
        led = self._order.view in replicas
        self._pass_on(self._order.lost(replicas, wrong=wrong))
        if wrong and led:
            contexts = self.matcher.contexts.values()
            self._suspects += [
                receive
                for context in contexts
                for receive in context.wild
                if id(receive) not in self.matcher.open
            ]
            self._suspected_key = self._waits_for
        self._apply()

    def is_stuck(self) -> bool:
        """Does this replica wait for what only a wrong leader has seen, perhaps for ever?"""
        self._suspects = [receive for receive in self._suspects if not receive.done]
        if self._suspected_key != self._waits_for:
            self._suspected_key = None
        return bool(self._suspects) or self._suspected_key is not None

    # ---- inside ------------------------------------------------------------------------------------------

    def _next(self, kind: str) -> Key:
        self._counts[kind] += 1
        key = kind, self._counts[kind] - 1
        if kind == "q":
            self._asking = key
        return key

    def _await(self, key: Key) -> Any:
        """The choice as soon as it is known; MISSING: this replica leads and makes it."""
        while (value := self._order.look_up(key)) is MISSING and not self._order.leads:
            self._engine.block(hungry=True)
        return value

    def _decide(self, key: Key, value: Any) -> None:
        self._pass_on(self._order.decide(key, value))

    def _follow(self, key: Key) -> None:
        if key == self._asking:
            self._asking = None
        self._pass_on(self._order.follow(key))

    def _pass_on(self, outgoing: list[tuple[int, Message]]) -> None:
        for replica, message in outgoing:
            self._send(replica, message)

    def _matched(self, key: Key, source: int) -> None:
        """This replica leads, and a message has matched an open receive."""
        if self._order.look_up(key) is MISSING:
            self._decide(key, source)
        self._follow(key)

    def _apply(self) -> None:
        """Choices have become known, or this replica leads now: held messages may have a place."""
        matcher, changed = self.matcher, self._order.leads and bool(self.matcher.held)
        for key, _ in list(matcher.open.values()):
            source = self._order.look_up(key)
            if source is not MISSING and matcher.choose(key, source):
                self._follow(key)
                changed = True
        if not changed:
            return
        for channel, data, receive in matcher.again():
            self._engine.settle_account(channel, data)
            receive.fill(channel.source, channel.tag, data)

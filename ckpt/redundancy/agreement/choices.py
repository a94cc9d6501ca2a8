"""`Choices` of one replica: answers and matches as the leader of its rank has made them (order.py).

A receive from ANY_SOURCE is *open* from its post until the leader has said from which source it takes its message; then it
is a receive from that source. Messages from one source come in the same order at all replicas, so nothing else has to be
agreed on: not the order of arrivals, not receives that name their source, not ANY_TAG from one source.

In an image    An image is taken of a replica that leads, so it holds nothing, and its mailbox is that of a rank without
               replicas. All replicas go on from that image: each call that waits here looks again who leads, and an open
               receive gets a new key, which is the same in all of them (`begin`). Without replicas, who waits here leads.

Windows     Which request to the windows and parallel files of this rank is handled next is a choice, too: requests.py.

Files       A change of files is a question, too, which the leader answers when all replicas have come to it
            (:mod:`ckpt.redundancy.files`): meets.py.

Not here: the matching of open receives (matcher.py), how replicas agree on who leads (order.py), messages (layer.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from ckpt.errors import IncompatibleImage
from ckpt.layer import Channel, Context, Engine, Receive
from ckpt.redundancy.agreement.matcher import OrderedMatcher
from ckpt.redundancy.agreement.meets import Meets
from ckpt.redundancy.agreement.order import MISSING, Key, Message, Order
from ckpt.redundancy.agreement.requests import Cancels, Serves
from ckpt.redundancy.agreement.turns import Turns
from ckpt.redundancy.files import images, names
from ckpt.redundancy.files.descriptors import TABLE
from ckpt.redundancy.files.parallel import ReplicaDisk
from ckpt.redundancy.files.together import ARRIVED, WRITTEN, Together

__all__ = ["ReplicaChoices"]

T = TypeVar("T")

_RAISED = "the look raised"

LAYOUT = 1
"""Of what an image has of this object, and of what its layer and files keep beside it. Another number: it cannot be read."""


def _to_nobody(replica: int, message: Message) -> None:
    """There is no other replica."""


def _nothing() -> None:
    """Nobody counts."""


def _no_digest(source: int, data: bytes) -> str:
    """Nothing is compared."""
    return ""


class ReplicaChoices(Cancels, Serves, Meets):
    """`ckpt.layer.Choices` of one replica. `send(replica, message)` reaches another replica of the same rank."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._counts = {"q": 0, "w": 0}
        self._turns = Turns()
        self._asking: Key | None = None
        """The question that the program waits for now."""
        self.beside: dict[str, Any] = {}
        """What the layer keeps for a copy, in an image."""
        self._former: dict[str, Any] | None = None
        self._alone()

    def _alone(self) -> None:
        self._has_replicas = False
        self._order = Order(0, 1, self._begun())
        self._together = Together(0, [0])
        self._meets: tuple[int, str] | None = None
        """The change of files at which the program waits."""
        self._send: Callable[[int, Message], None] = _to_nobody
        self.on_start: Callable[[], None] = _nothing
        """Called when the program starts an operation, in the order of the program."""
        self.digest_of = _no_digest
        self._waits_for: Key | None = None
        self._suspects: list[Receive] = []
        self._suspected_key: Key | None = None
        self._suspected_turn: int | None = None
        self.kept = []

    def _begun(self) -> dict[str, int]:
        questions = self._counts["q"] - (self._asking is not None)
        turns = self._turns
        return {"q": questions, "w": self._counts["w"], "o": turns.handled, "c": turns.written}

    def __getstate__(self) -> dict[str, Any]:
        opened = list(self.matcher.open.values()) if self._engine.choices is self else []
        former = {"order": self._order.state(), "open": opened}
        return {
            "layout": LAYOUT,
            "engine": self._engine,
            "counts": dict(self._counts),
            "turns": self._turns,
            "asking": self._asking,
            "beside": self.beside,
            "former": former,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        """From an image. Where this process has no replicas, it leads. Raises IncompatibleImage."""
        if (layout := state.get("layout", 1)) != LAYOUT:
            raise IncompatibleImage(
                f"the image was taken by another ckpt: what replicas keep in it has layout {layout}, and this ckpt reads "
                f"{LAYOUT}. Go on from it with that one, or start the program anew"
            )
        self._engine, self._counts, self._asking = state["engine"], state["counts"], state["asking"]
        self.beside, self._former = state.get("beside", {}), state.get("former")
        self._turns = state.get("turns") or Turns()
        self._alone()

    def begin(self, me: int, replicas: int, send: Callable[[int, Message], None]) -> None:
        """The engine asks this object from now on; this process is replica `me`."""
        self._together = Together(me, range(replicas))
        self._bind(Order(me, replicas, self._begun()), send)
        self._counts["w"] += self.matcher.open_again(self._counts["w"])
        self._former = None

    def begin_as_copy(self, me: int, living: Iterable[int], send: Callable[[int, Message], None]) -> None:
        """As `begin`, from an image of one of the `living` replicas, which have gone on since."""
        assert self._former is not None
        self._together = Together(me, living)
        self._bind(Order.copy(me, living, self._former["order"]), send)
        self.matcher.open_as_before(self._former["open"])
        self._former = None

    def _bind(self, order: Order, send: Callable[[int, Message], None]) -> None:
        engine = self._engine
        self._has_replicas = True
        self._order, self._send = order, send
        self.matcher = matcher = OrderedMatcher(engine.matcher)
        matcher.leads = lambda: order.leads
        matcher.on_match = self._matched
        engine.matcher = matcher
        engine.choices = self
        engine.windows.ordered, engine.windows.disk = self.request, ReplicaDisk()

    def deliver(self, log: Callable[..., None]) -> None:
        """To the engine, once it can send: messages that had come when the image was taken, and that the program had not got
        yet, since replicas compared them first (``--compare receiver``). The image's line has verified them."""
        if not self._has_replicas:  # before a request changes a file
            images.go_on_without_replicas(self.beside.get("files", {}), log)
            if TABLE.files:
                names.install_without_replicas()
        for source, messages in self.beside.pop("held", {}).items():
            self._engine.on_messages(source, messages)
        self.go_on_serving()

    @property
    def leads(self) -> bool:
        return self._order.leads

    # ---- what the engine asks ----------------------------------------------------------------------------

    def answer(self, look: Callable[[], T], holds: Callable[[T], bool]) -> T:
        value = self._agreed(look, holds)
        if not self._order.leads:
            self._engine.make_progress()  # as the leader's look: it may wait for what is done only then here
        return value

    def _agreed(self, look: Callable[[], T], holds: Callable[[T], bool]) -> T:
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

    def started(self) -> None:
        self.on_start()

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
        channel: Channel | None = engine.matcher.find(context, *place)
        assert channel is not None
        return channel

    def value(self, look: Callable[[], T]) -> T:
        """A value of the surroundings: that of the leader. Takes the lock itself."""
        with self._engine.lock:
            return self._agreed(look, lambda value: True)

    # ---- what comes from the other replicas --------------------------------------------------------------

    def receive(self, replica: int, message: Message) -> None:
        if message[0] in (ARRIVED, WRITTEN):
            self._together.receive(replica, message)
            if message[0] == WRITTEN:
                self._serve()
            return
        self._pass_on(self._order.receive(replica, message))
        self._apply()

    def lost(self, replicas: list[int], *, wrong: bool) -> None:
        """Replicas of this rank are lost. What a wrong leader has chosen may never come true: see `is_stuck`."""
        self._together.lost(replicas)
        self._arrive_again()
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
            self._suspected_turn = self._turns.handled
        if wrong:
            self._suspects += self.kept
        self._apply()

    def hold(self, replica: int) -> None:
        """A copy is to become this replica: see `order`."""
        self._order.hold(replica)

    def expect_image(self, replica: int, after: int) -> None:
        """That copy is made from an image with a number above `after`: see `together`."""
        self._together.expect_image(replica, after)

    def captured(self, epoch: int) -> None:
        """An image is taken: see `together`."""
        self._together.captured(epoch)

    def let_go(self, replica: int) -> None:
        """There will be no such copy."""
        self._order.let_go(replica)
        self._together.let_go(replica)

    def join(self, replica: int) -> None:
        """A copy follows from now on."""
        self._pass_on(self._order.join(replica))
        self._together.join(replica)
        self._arrive_again()

    def joined(self, living: Iterable[int]) -> None:
        """This copy follows from now on; `living`: who is there."""
        self._pass_on(self._order.joined(living))
        self._together.lost(self._together.living.difference(living))
        self._arrive_again()
        self._apply()

    def is_stuck(self) -> bool:
        """Does this replica wait for what only a wrong leader has seen, perhaps for ever?"""
        self._suspects = [receive for receive in self._suspects if not receive.done]
        if self._suspected_key != self._waits_for:
            self._suspected_key = None
        is_stuck = bool(self._suspects) or self._suspected_key is not None
        return is_stuck or self.waits_in_vain(self._suspected_turn)

    # ---- inside ------------------------------------------------------------------------------------------

    def _next(self, kind: str) -> Key:
        self.called()
        self.on_start()
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
        self._serve()
        matcher, changed = self.matcher, self._order.leads and bool(self.matcher.held)
        for key, _ in list(matcher.open.values()):
            source = self._order.look_up(key)
            if source is not MISSING and matcher.choose(key, source):
                self._follow(key)
                changed = True
        if changed:
            self._take_held()

    def _take_held(self) -> None:
        for channel, data, receive in self.matcher.again():
            self._engine.settle_account(channel, data)
            receive.fill(channel.source, channel.tag, data)

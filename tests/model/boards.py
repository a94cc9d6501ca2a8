"""Collectives on boards (ckpt/mpi/slots, transport/boards), explored: images in the middle, restarts, sleep, in every order.

The board is the production oracle (`board.py`), and so are the numbers and messages (`exchange.py`). What is here is the
program of each member (a script of collectives), the loop of `Exchange._complete` as single steps, and links as the rest
of the protocol makes them: in order, once, a message of a higher epoch after the receiver's own image, the unacknowledged
ones in the image.

    member   start, owe       the two halves of a contribution (`Board.show`, `Board.owe`)
             look             take all contributions, if they are there
             arm, look again  before it sleeps; then only a message wakes it
             map              begins to look at another's area
             publish          its image is about to be captured, after `Exchange.settle`; the image may fail: it goes on
             capture          the image: its program, its mailbox, and what it has sent
    link     deliver

Checked in every state: a contribution that is taken is the right one. Of every line (images of all members that stand for
one epoch): no member has received what another has not sent; restored, without boards, all reach the end. From every
state, without further images than the messages ask for, all reach the end: so nobody sleeps for ever, and no slot is lost.

A restart is the line's check: it begins with messages alone, and whatever old areas hold is seen by nobody.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
ALL = -1
"""In a script: all contribute, and read all. Other entries: the root of a broadcast."""
Edit = tuple[str, str, str]
IDLE, SHOWN, WAITS, ARMED, ASLEEP = "idle", "shown", "waits", "armed", "asleep"


class RuleBroken(AssertionError):
    """A state that must not be."""


@dataclass(frozen=True)
class Rules:
    """What the callers of board and exchange do; each can be left out. And the bounds."""

    looks_again: bool = True
    writes_before_it_looks: bool = True
    settles_each_time: bool = True
    settles: bool = True
    sends_in_order: bool = True
    script: tuple[int, ...] = (ALL, ALL)
    members: int = 2
    epochs: int = 1
    mapped: bool = True
    may_fail: bool = True


class Code:
    """The production modules, with pieces of their text replaced."""

    def __init__(self, edits: Sequence[Edit] = ()) -> None:
        self.board = self._load("transport/boards/board.py", edits)
        self.exchange = self._load("ckpt/mpi/slots/exchange.py", edits)

    @staticmethod
    def _load(path: str, edits: Sequence[Edit]) -> ModuleType:
        text = (ROOT / path).read_text(encoding="utf-8")
        for where, old, new in edits:
            if path.endswith(where):
                assert text.count(old) == 1, (where, old)
                text = text.replace(old, new)
        module = ModuleType(f"explored.{Path(path).stem}")
        exec(compile(text, path, "exec"), module.__dict__)
        return module


class Links:
    """The messages of one member: sent (all that ever were), received (how many of each other's)."""

    def __init__(self, size: int) -> None:
        self.rank = 0
        self.sent: list[list[tuple[int, bytes]]] = [[] for _ in range(size)]
        self.received = [0] * size
        self.epoch = 0

    def send(self, rank: int, message: bytes) -> None:
        self.sent[rank].append((self.epoch, message))


class Member:
    """One member, and its image."""

    def __init__(self, code: Code, rules: Rules, rank: int) -> None:
        self.code, self.rules, self.rank = code, rules, rank
        self.links = Links(rules.members)
        self.links.rank = rank
        self.at, self.state = 0, IDLE
        self.published = self.captured = 0
        self.images: dict[int, Member] = {}
        self.label = (0, 0)
        self.channels: dict[tuple[int, int], Any] = {}
        self.exchange: Any = None
        self._make_exchange()

    def _make_exchange(self) -> None:
        matcher = SimpleNamespace(
            context=lambda number: SimpleNamespace(number=number, channels=self.channels),
            pop=lambda channel: channel.messages.popleft()[1],
        )
        engine = SimpleNamespace(
            progress=self.links,
            matcher=matcher,
            failed_ranks=SimpleNamespace(known=frozenset()),
            settle_account=lambda channel, data: None,
        )
        shared = SimpleNamespace(base=0, group=tuple(range(self.rules.members)))
        number, board = (0, None) if self.exchange is None else (self.exchange.number, self.exchange.board)
        self.exchange = self.code.exchange.Exchange(engine, shared, self.rank)
        self.exchange.number, self.exchange.board = number, board

    def clone(self, areas: list[bytearray] | None) -> Member:
        new = Member.__new__(Member)
        new.__dict__.update(self.__dict__)
        new.links = Links(self.rules.members)
        new.links.rank, new.links.epoch = self.rank, self.links.epoch
        new.links.sent = [list(each) for each in self.links.sent]
        new.links.received = list(self.links.received)
        new.images = dict(self.images)
        new.channels = {
            key: SimpleNamespace(messages=deque(channel.messages)) for key, channel in self.channels.items()
        }
        new._make_exchange()
        board = self.exchange.board
        new.exchange.board = None if board is None or areas is None else board.clone()
        if new.exchange.board is not None:
            new.exchange.board.area = areas[self.rank]
            new.exchange.board.areas = [
                None if area is None else areas[member] for member, area in enumerate(board.areas)
            ]
        return new

    def key(self) -> tuple[Any, ...]:
        mail = tuple(sorted((k, tuple(c.messages)) for k, c in self.channels.items()))
        links = tuple(map(tuple, self.links.sent)), tuple(self.links.received)
        board = self.exchange.board
        return (self.at, self.state, self.published, self.captured, mail, links) + (
            (None, tuple(sorted(self.images))) if board is None else (board.key(), tuple(sorted(self.images)))
        )

    # -- the program -------------------------------------------------------------------------------

    @property
    def is_done(self) -> bool:
        return self.at == len(self.rules.script)

    def value(self, member: int, number: int) -> bytes:
        return b"%d/%d" % (member, number)

    def part(self) -> tuple[int, int]:
        """(readers, sources) of the collective that is under way or next."""
        root, others = self.rules.script[self.at], self.exchange.others
        if root == ALL:
            return others, others
        return (others, 0) if root == self.rank else (0, 1 << root)

    def start(self) -> None:
        exchange, (readers, _) = self.exchange, self.part()
        number = exchange.number
        exchange.number = number + 1
        self.state = SHOWN
        if not readers:
            self.state = WAITS
        elif exchange.board is None:
            exchange._send(number, 0, self.value(self.rank, number), readers)
            self.state = WAITS
        elif not self.rules.writes_before_it_looks:
            self.owed = exchange.board.owe(number, readers)
        elif not exchange.board.show(number, 0, self.value(self.rank, number)):
            self._send(number, readers)

    def owe(self) -> None:
        exchange, (readers, _) = self.exchange, self.part()
        number = exchange.number - 1
        if self.rules.writes_before_it_looks:
            by_message = exchange.board.owe(number, readers)
        elif exchange.board.show(number, 0, self.value(self.rank, number)):
            by_message = self.owed
        else:
            by_message = readers
        self._send(number, by_message)

    def _send(self, number: int, readers: int) -> None:
        if self.rules.sends_in_order:
            self.exchange._settle(readers)
        self.exchange._send(number, 0, self.value(self.rank, number), readers)
        self.state = WAITS

    owed = 0

    def look(self) -> bool:
        exchange, (_, sources) = self.exchange, self.part()
        number = exchange.number - 1
        taken = exchange._take(number, sources)
        if taken is None:
            return False
        for member, (_, data) in taken.items():
            if data != self.value(member, number):
                raise RuleBroken(f"member {self.rank} takes {data!r} of {member} in collective {number}")
        if exchange.board is not None:
            exchange.board.finish(number)
            exchange.board.disarm()
        self.at += 1
        self.state = IDLE
        return True

    def arm(self) -> None:
        if self.exchange.board is not None:
            self.exchange.board.arm()
        self.state = ARMED if self.rules.looks_again else ASLEEP

    def look_again(self) -> None:
        if not self.look():
            self.state = ASLEEP

    def deliver(self, source: Member) -> None:
        _, message = source.links.sent[self.rank][self.links.received[source.rank]]
        self.links.received[source.rank] += 1
        channel = self.channels.setdefault(
            (source.rank, self.code.exchange.TAG), SimpleNamespace(messages=deque())
        )
        channel.messages.append((0, message))
        if self.state == ASLEEP:
            self.state = WAITS
            if self.exchange.board is not None:
                self.exchange.board.disarm()

    # -- images ------------------------------------------------------------------------------------

    def publish(self, epoch: int) -> None:
        if self.rules.settles and (self.rules.settles_each_time or epoch > self.published):
            self.exchange.settle()
        self.published = max(epoch, self.published)
        if self.exchange.board is not None:
            self.exchange.board.publish(self.published)

    def capture(self, epoch: int) -> None:
        self.publish(epoch)
        image = self.clone(None)
        image.images = {}
        image.label = self.captured, epoch
        self.images[epoch] = image
        self.captured = self.links.epoch = epoch
        if self.exchange.board is not None:
            self.exchange.board.advance(epoch)

    @property
    def can_be_captured(self) -> bool:
        return self.state in (IDLE, ASLEEP)


class Group:
    """All members: one state."""

    def __init__(self, code: Code, rules: Rules) -> None:
        self.rules = rules
        small = code.board.SLOTS_AT + 64 * code.board.SLOTS
        self.areas = [code.board.new_area()[:small] for _ in range(rules.members)]
        self.members = [Member(code, rules, rank) for rank in range(rules.members)]
        for member in self.members:
            board = code.board.Board(rules.members, member.rank, self.areas[member.rank])
            member.exchange.board = board
            for other in range(rules.members):
                if rules.mapped and other != member.rank:
                    board.add(other, self.areas[other])

    def clone(self) -> Group:
        new = Group.__new__(Group)
        new.rules = self.rules
        new.areas = [bytearray(area) for area in self.areas]
        new.members = [member.clone(new.areas) for member in self.members]
        return new

    def key(self) -> tuple[Any, ...]:
        return (*map(bytes, self.areas), *(member.key() for member in self.members))

    def moves(self) -> Iterator[tuple[Any, ...]]:
        for me in self.members:
            rank = me.rank
            if me.state == IDLE and not me.is_done:
                yield "start", rank
            elif me.state == SHOWN:
                yield "owe", rank
            elif me.state == WAITS:
                yield "look", rank
                yield "arm", rank
            elif me.state == ARMED:
                yield "look_again", rank
            for other in self.members:
                sent = other.links.sent[rank]
                received = me.links.received[other.rank]
                if received < len(sent) and sent[received][0] <= me.captured:
                    yield "deliver", rank, other.rank
                board = me.exchange.board
                if other is not me and board is not None and board.areas[other.rank] is None:
                    yield "map", rank, other.rank
            if me.can_be_captured:
                for epoch in range(me.captured + 1, self.rules.epochs + 1):
                    yield "capture", rank, epoch
                    if self.rules.may_fail and epoch > me.published:
                        yield "publish", rank, epoch

    def do(self, move: tuple[Any, ...]) -> None:
        name, rank, *rest = move
        me = self.members[rank]
        if name == "map":
            me.exchange.board.add(rest[0], self.areas[rest[0]])
        elif name == "deliver":
            me.deliver(self.members[rest[0]])
        else:
            getattr(me, name)(*rest)

    # -- checks ------------------------------------------------------------------------------------

    def run_fairly(self) -> None:
        """Without further images than messages ask for. RuleBroken: some member never ends."""
        changed = True
        while changed:
            changed = False
            for me in self.members:
                if me.state == IDLE and not me.is_done:
                    me.start()
                    changed = True
                elif me.state == SHOWN:
                    me.owe()
                    changed = True
                elif me.state == WAITS:
                    if not me.look():
                        me.arm()
                    changed = True
                elif me.state == ARMED:
                    me.look_again()
                    changed = True
                changed = self._deliver_to(me) or changed
        if not all(me.is_done for me in self.members):
            raise RuleBroken(f"stuck: {[(me.at, me.state) for me in self.members]}")

    def _deliver_to(self, me: Member) -> bool:
        found = False
        for other in self.members:
            while me.links.received[other.rank] < len(other.links.sent[me.rank]):
                epoch = other.links.sent[me.rank][me.links.received[other.rank]][0]
                if epoch > me.captured:
                    if not me.can_be_captured:
                        break
                    me.capture(epoch)
                me.deliver(other)
                found = True
        return found

    def lines(self) -> Iterator[tuple[Member, ...]]:
        """All images that stand for one epoch."""
        for epoch in range(1, self.rules.epochs + 1):
            images = [
                [image for image in me.images.values() if image.label[0] < epoch <= image.label[1]]
                for me in self.members
            ]
            if all(images):
                yield tuple(each[0] for each in images)


def check_line(line: tuple[Member, ...], rules: Rules) -> None:
    """A line is consistent, and restored it comes to its end."""
    group = Group.__new__(Group)
    group.rules, group.areas = rules, []
    group.members = [image.clone(None) for image in line]
    for me in group.members:
        me.captured = me.published = me.links.epoch = rules.epochs
        if me.state == ASLEEP:
            me.state = WAITS
        for other in group.members:
            if me.links.received[other.rank] > len(other.links.sent[me.rank]):
                raise RuleBroken(f"orphan: {me.rank} has received more than {other.rank} has sent")
            if (at := _taken_of(me, other)) is not None:
                raise RuleBroken(
                    f"orphan: {me.rank} has collective {at}, to which {other.rank} has not contributed"
                )
        for sent in me.links.sent:
            sent[:] = [(0, message) for _, message in sent]
    group.run_fairly()


def _taken_of(me: Member, other: Member) -> int | None:
    """A collective that a member has left, with a contribution of the other that the other has not made."""
    for number, root in enumerate(me.rules.script[: me.at]):
        if other is not me and root in (ALL, other.rank) and number >= other.exchange.number:
            return number
    return None


def explore(rules: Rules, edits: Sequence[Edit] = (), most: int = 10_000_000) -> tuple[int, int]:
    """Visit all states within the bounds, or `most`. Returns their number, and that of the lines. Raises RuleBroken."""
    first = Group(Code(edits), rules)
    seen, todo, lines = {first.key()}, [first], set()
    while todo and len(seen) < most:
        group = todo.pop()
        group.clone().run_fairly()
        for line in group.lines():
            key = tuple((image.label, image.key()) for image in line)
            if key not in lines:
                lines.add(key)
                check_line(line, rules)
        for move in group.moves():
            new = group.clone()
            new.do(move)
            key = new.key()
            if key not in seen:
                seen.add(key)
                todo.append(new)
    return len(seen), len(lines)

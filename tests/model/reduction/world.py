"""A world of ranks that reduce: the production code of every rank, and everything that is under way between them.

    call       the program of a rank comes to the reduction
    arrive     the oldest message of one rank to another; in order for each pair, in any order otherwise
    compute    a rank has combined two items
    vanish     … or could not, since one is the copy of what a dead rank gave, and its file is not there; or since one is not
               where it was to be read
    read       a rank has read the result where it lies, or (`unread`) could not
    expire     the deadline passes at a rank
    kill       kill -9: what the rank has sent may still arrive
    hear       a rank hears of a death: what the dead one had sent may still arrive afterwards

An original is its rank's number, a combination the pair of what was combined: so a result shows what is in it, how often,
and in which order it was combined.

Checked at every step: ranks that have an outcome have the same; a result has each contributor once, and in the fixed tree
its one shape; a loss is one: nobody who lives has what is said to be lost. Checked when nothing more can happen: all that
live have called and have the outcome; nothing is kept any more.
"""

from __future__ import annotations

from collections import deque
from typing import Any, NamedTuple

from ckpt.reduction.members import Completed, Computing, Forgotten, Members, Reading, Sent, Step
from ckpt.reduction.messages import Call, Contract, Key, Message, Outcome, ranks_of

NAME = "sum"
KEY: Key = (NAME, 0)


class RuleBroken(AssertionError):
    """A property does not hold."""


class There(NamedTuple):
    """Where an item lies in the host's memory. What was told to be there is not changed: it is read, or it is gone."""

    value: Any


def content_of(value: Any) -> Any:
    """A value, wherever it lies."""
    return value.value if isinstance(value, There) else value


class Process:
    """One rank: its reductions, what it computes, and what its program has. `direct`: others can read its memory."""

    __slots__ = (
        "called",
        "computing",
        "direct",
        "elapsed_ns",
        "members",
        "outcome",
        "over",
        "rank",
        "reading",
        "value",
    )

    def __init__(self, rank: int, size: int, direct: bool = False) -> None:
        self.rank, self.direct = rank, direct
        self.reading: list[Reading] = []
        self.members = Members(rank, size)
        self.computing: dict[int, tuple[Any, Any, tuple[tuple[Any, bool], ...]]] = {}
        self.called = self.over = False
        self.elapsed_ns = 10 + rank
        self.outcome: Outcome | None = None
        self.value: Any = None

    def _take(self, steps: list[Step]) -> list[Sent]:
        sent = []
        for step in steps:
            if isinstance(step, Sent):
                sent.append(step)
            elif isinstance(step, Computing):
                if step.number in self.computing:
                    raise RuleBroken(f"rank {self.rank} combines the same two twice: {step}")
                self.computing[step.number] = step.left, step.right, step.more
            elif isinstance(step, Reading):
                self.reading.append(step)
            elif isinstance(step, Completed):
                if self.outcome is not None:
                    raise RuleBroken(f"rank {self.rank} has two outcomes: {self.outcome} and {step.outcome}")
                self.outcome = step.outcome
                self.value = step.value.value if isinstance(step.value, There) else step.value
            else:
                assert isinstance(step, Forgotten)
                self.over = True
        return sent

    def call(self, contract: Contract, problem: str = "") -> list[Sent]:
        self.called = True
        where = There(self.rank) if self.direct else None
        _, steps = self.members.start(NAME, Call(contract, 1.0, problem, where), self.rank)
        return self._take(steps)

    def arrive(self, source: int, message: Message) -> list[Sent]:
        return self._take(self.members.receive(source, KEY, message))

    def compute(self, number: int) -> list[Sent]:
        left, right, more = self.computing.pop(number)
        value = content_of(left), content_of(right)
        for each, is_left in more:
            value = (content_of(each), value) if is_left else (value, content_of(each))
        where = There(value) if self.direct else None
        return self._take(self.members.computed(KEY, number, value, self.elapsed_ns, where))

    def read(self) -> list[Sent]:
        _, path, where = self.reading.pop(0)
        return self._take(self.members.read(KEY, path, where, where.value))

    def unread(self) -> list[Sent]:
        _, path, where = self.reading.pop(0)
        return self._take(self.members.unread(KEY, path, where))

    def vanish(self, number: int, which: int) -> list[Sent]:
        del self.computing[number]
        return self._take(self.members.vanished(KEY, number, which))

    def copies(self, number: int) -> list[int]:
        """Which of those that are to be combined may be gone: copies of what dead ranks gave, and what lies elsewhere."""
        member = self.members.members.get(KEY)
        if member is None or number not in member.work:
            return []
        work = member.work[number]
        paths = [place.path for place in work.left_over][: 2 + work.also]
        return [
            which
            for which, path in enumerate(paths)
            if (not path & (path - 1) and self.members.dead & path) or path in work.direct
        ]

    def hear(self, rank: int) -> list[Sent]:
        return self._take(self.members.died(rank))

    def expire(self) -> list[Sent]:
        return self._take(self.members.expire(KEY))

    def holds(self) -> int:
        """The ranks whose contribution is in something that this rank keeps."""
        found = 0
        member = self.members.members.get(KEY)
        for path in member.items if member is not None else ():
            found |= path
        return found


def leaves(value: Any) -> list[int]:
    """The originals in a value, from left to right."""
    found, stack = [], [value]
    while stack:
        top = stack.pop()
        if isinstance(top, tuple):
            stack += [top[1], top[0]]
        else:
            found.append(top)
    return found


def shape(contributors: int, size: int) -> Any:
    """The value that the fixed tree makes of these contributors: blocks of 1, 2, 4, … ranks, empty ones passed over."""
    level: list[Any] = [rank if contributors >> rank & 1 else None for rank in range(size)]
    while len(level) > 1:
        level += [None] * (len(level) % 2)
        pairs = zip(level[::2], level[1::2], strict=True)
        level = [(a, b) if None not in (a, b) else b if a is None else a for a, b in pairs]
    return level[0]


def check_outcome(process: Process, everybody: list[Process], dead: int, contract: Contract) -> None:
    """What a rank has just been told."""
    outcome, size = process.outcome, len(everybody)
    assert outcome is not None
    for other in everybody:
        if other.outcome is None or dead >> other.rank & 1 or dead >> process.rank & 1:
            continue
        if other.outcome._replace(holder=0, where=None) != outcome._replace(holder=0, where=None):
            raise RuleBroken(f"ranks {process.rank} and {other.rank} differ: {outcome} and {other.outcome}")
        if None not in (other.value, process.value) and other.value != process.value:
            raise RuleBroken(f"ranks {process.rank} and {other.rank} have {process.value} and {other.value}")
    if outcome.error in ("ContributionLost", "RootLost"):
        if outcome.ranks & ~dead:
            raise RuleBroken(f"said to be lost, and alive: {outcome}")
        held = 0
        for other in everybody:
            if not dead >> other.rank & 1 and other.outcome is None:
                held |= other.holds()
        if outcome.error == "ContributionLost" and not outcome.ranks & ~held:
            raise RuleBroken(f"said to be lost, and held: {outcome}")
    if outcome.error:
        return
    if outcome.contributors & outcome.missing or outcome.contributors | outcome.missing != (1 << size) - 1:
        raise RuleBroken(f"contributors and missing: {outcome}")
    if outcome.weight != outcome.contributors.bit_count():
        raise RuleBroken(f"weight: {outcome}")
    if outcome.root not in (-1, process.rank):
        if process.value is not None:
            raise RuleBroken(f"rank {process.rank} has a result and is not the root")
        return
    check_value(process.value, outcome, contract, size)


def check_value(value: Any, outcome: Outcome, contract: Contract, size: int) -> None:
    found = leaves(value)
    wanted = list(ranks_of(outcome.contributors))
    if sorted(found) != wanted:
        raise RuleBroken(f"in the result: {found}, contributors: {wanted}")
    if not contract.commutative and found != wanted:
        raise RuleBroken(f"not in the order of ranks: {found}")
    if contract.order == "tree" and value != shape(outcome.contributors, size):
        raise RuleBroken(f"not the fixed tree: {value}")


class World:
    """All ranks, and what is under way. `deaths`: how many may still be killed."""

    def __init__(
        self, size: int, contract: Contract, deaths: int, *, expires: bool = False, direct: bool = False
    ) -> None:
        self.size, self.contract, self.deaths, self.expires = size, contract, deaths, expires
        self.processes = [Process(rank, size, direct) for rank in range(size)]
        self.links: dict[tuple[int, int], deque[Message]] = {}
        self.dead = 0
        self.unheard: set[tuple[int, int]] = set()
        """(who, of whom): deaths that a rank has not heard of."""

    def living(self) -> list[Process]:
        return [each for each in self.processes if not self.dead >> each.rank & 1]

    def events(self) -> list[tuple[Any, ...]]:
        """All that can happen next, deaths apart."""
        found: list[tuple[Any, ...]] = []
        for process in self.living():
            if not process.called:
                found.append(("call", process.rank))
            found += [("compute", process.rank, number) for number in process.computing]
            if process.reading:
                found += [("read", process.rank)]
            if self.expires and process.called and process.outcome is None:
                member = process.members.members.get(KEY)
                if member is not None and not member.expired:
                    found.append(("expire", process.rank))
        found += [("arrive", *link) for link in self.links if not self.dead >> link[1] & 1]
        found += [("hear", *each) for each in sorted(self.unheard)]
        return found

    def kills(self) -> list[tuple[Any, ...]]:
        if not self.deaths or self.dead.bit_count() + 1 == self.size:
            return []
        return [("kill", process.rank) for process in self.living()]

    def step(self, event: tuple[Any, ...]) -> None:
        kind, rank = event[0], event[1]
        process = self.processes[rank]
        before = process.outcome
        if kind == "kill":
            self.deaths -= 1
            self.dead |= 1 << rank
            self.unheard = {each for each in self.unheard if each[0] != rank}
            self.unheard |= {(other.rank, rank) for other in self.living()}
            self.links = {link: queue for link, queue in self.links.items() if link[1] != rank}
            process.computing.clear()
            process.reading.clear()
            return
        if kind == "call":
            sent = process.call(self.contract)
        elif kind == "compute":
            sent = process.compute(event[2])
        elif kind in ("vanish", "read", "unread"):
            sent = getattr(process, kind)(*event[2:])
        elif kind == "expire":
            sent = process.expire()
        elif kind == "hear":
            self.unheard.discard((rank, event[2]))
            sent = process.hear(event[2])
        else:
            source, rank = event[1], event[2]
            process = self.processes[rank]
            before = process.outcome
            queue = self.links[source, rank]
            message = queue.popleft()
            if not queue:
                del self.links[source, rank]
            sent = process.arrive(source, message)
        self._sent(process.rank, sent)
        if before is None and process.outcome is not None:
            self.check_told(process.rank)

    def check_told(self, rank: int) -> None:
        """A rank has just been told the outcome."""
        check_outcome(self.processes[rank], self.processes, self.dead, self.contract)

    def _sent(self, rank: int, sent: list[Sent]) -> None:
        for each in sent:
            if not self.dead >> each.dest & 1:
                self.links.setdefault((rank, each.dest), deque()).append(each.message)

    def check_end(self) -> None:
        """Nothing more can happen."""
        for process in self.living():
            if process.outcome is None:
                raise RuleBroken(f"rank {process.rank} waits for ever")
            if not process.over or process.members.members:
                raise RuleBroken(f"rank {process.rank} keeps something: {process.members.members}")
            if any(process.members.ranks.tasks.values()):
                raise RuleBroken(f"rank {process.rank} counts tasks that have ended: {process.members.ranks}")

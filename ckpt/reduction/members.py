"""All reductions of one rank on one communicator: their names, and what becomes of messages about them. (pure)

A reduction is named by (name, how many of that name this rank has called before). So ranks that call in the same order mean
the same one, whatever is under way. A reduction that this rank has called and that is not kept here any more is over: all
living ranks have its outcome, and a rank that asks is told so.

Long data are reduced in *parts*, if the program asks for that. Each is a reduction of its own here, with a key of its own;
all are begun under one hold of the lock. If part 0 ends with an error, all ranks that live are told that
error: so the other parts are dropped, which not all ranks need to have, since what they gave differs.

Not here: what a message does (member.py, master.py); threads, futures, arrays (service.py).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any, NamedTuple

from ckpt.reduction import recovery
from ckpt.reduction.member import Member
from ckpt.reduction.messages import (
    TO_MASTER,
    Call,
    Complete,
    Compute,
    Contract,
    Effects,
    Fetch,
    Forget,
    Gone,
    HeldItem,
    Key,
    Message,
    Over,
    Path,
    Query,
    Read,
    Send,
    over_report,
    ranks_of,
)
from ckpt.reduction.scheduler import Ranks

PART = "\0"
"""Stands in a key between the name and the number of a part, from 1 on: part 0 has the key of the whole."""


def part_key(key: Key, part: int) -> Key:
    """The key of one part of a reduction that is done in parts."""
    return (f"{key[0]}{PART}{part}", key[1]) if part else key


def whole_of(key: Key) -> tuple[Key, int]:
    """The reduction that a key is a part of, and which part."""
    name, _, part = key[0].partition(PART)
    return (name, key[1]), int(part or 0)


class Sent(NamedTuple):
    """To be sent to another rank."""

    dest: int
    key: Key
    message: Message


class Computing(NamedTuple):
    """Combine two values, out of place, then with each of `more` (messages.Compute), and call `computed` or `trouble`."""

    key: Key
    number: int
    left: Any
    right: Any
    more: tuple[tuple[Any, bool], ...] = ()


class Reading(NamedTuple):
    """Read the result where it lies, and call `read` or `unread`."""

    key: Key
    path: Path
    where: Any


class Completed(NamedTuple):
    """What the program may have: an outcome, and the result where this rank is to have it."""

    key: Key
    outcome: Any
    value: Any


class Forgotten(NamedTuple):
    """This reduction is over: what was kept of it is let go."""

    key: Key


Step = Sent | Computing | Reading | Completed | Forgotten


class Members:
    """The reductions of one rank. Each event returns what is to be done, in this order."""

    __slots__ = ("counts", "dead", "members", "rank", "ranks", "size")

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size
        self.dead: Path = 0
        self.counts: dict[str, int] = {}
        """How many reductions of each name this rank has called."""
        self.members: dict[Key, Member] = {}
        self.ranks = Ranks({}, {})
        """What this rank knows of all as a master."""

    # -- events

    def in_use(self, name: str) -> bool:
        """Has this rank a reduction of this name that is not complete?"""
        key = name, self.counts.get(name, 0) - 1
        return any(not self.members[part].complete for part in self._parts(key))

    def start(self, name: str, call: Call, value: Any) -> tuple[Key, list[Step]]:
        """The program calls: its key, and what is to be done."""
        count = self.counts.get(name, 0)
        self.counts[name] = count + 1
        key = name, count
        member = self._member(key)
        return key, self._run(key, member.start(call, value))

    def start_part(self, whole: Key, part: int, call: Call, value: Any) -> tuple[Key, list[Step]]:
        """A further part of what the program has called."""
        key = part_key(whole, part)
        return key, self._run(key, self._member(key).start(call, value))

    def receive(self, source: int, key: Key, message: Message) -> list[Step]:
        """A message of another rank."""
        if self.dead >> source & 1:
            return []
        if key in self.members or key[1] >= self.counts.get(whole_of(key)[0][0], 0):
            return self._run(key, self._member(key).receive(source, message))
        if isinstance(message, Query):
            return [Sent(source, key, over_report(message))]
        if isinstance(message, Fetch):
            return [Sent(source, key, Gone(message.path, message.number))]
        return [Sent(source, key, Over())] if isinstance(message, TO_MASTER) else []

    def computed(self, key: Key, number: int, value: Any, elapsed_ns: int, where: Any = None) -> list[Step]:
        """A combination is there; `where` others can read it."""
        member = self.members.get(key)
        return [] if member is None else self._run(key, member.computed(number, value, elapsed_ns, where))

    def trouble(self, key: Key, number: int, error: str, text: str) -> list[Step]:
        """A combination failed, with an error of errors.py."""
        member = self.members.get(key)
        return [] if member is None else self._run(key, member.trouble(number, error, text))

    def vanished(self, key: Key, number: int, which: int) -> list[Step]:
        """One of those that were to be combined is not where it was: 0 is the left one."""
        member = self.members.get(key)
        return [] if member is None else self._run(key, member.vanished(number, which))

    def read(self, key: Key, path: Path, where: Any, value: Any) -> list[Step]:
        """The result was read."""
        member = self.members.get(key)
        return [] if member is None else self._run(key, member.read(path, where, value))

    def unread(self, key: Key, path: Path, where: Any) -> list[Step]:
        """The result is not where it was."""
        member = self.members.get(key)
        return [] if member is None else self._run(key, member.unread(path, where))

    def fail(self, key: Key, error: str, text: str) -> list[Step]:
        """Something is wrong with what this rank gave, found later."""
        member = self.members.get(key)
        return [] if member is None else self._run(key, member.fail(error, text))

    def expire(self, key: Key) -> list[Step]:
        """The deadline of a reduction has passed."""
        member = self.members.get(key)
        return [] if member is None else self._run(key, member.expire())

    def is_master(self) -> bool:
        """Is this the lowest rank that is not known to be dead?"""
        return not ~self.dead & ((1 << self.rank) - 1)

    def left_to_this(self, rank: int, elsewhere: Path = 0) -> list[int]:
        """After a death: the dead whose contributions this rank is to take over, since it is the lowest that lives of those
        on its host. Those that died before as well, if it was not the lowest until now. `elsewhere`: on other hosts."""
        before = (self.dead | elsewhere) & ~(1 << self.rank)
        if recovery.next_master(self.size, before | 1 << rank) != self.rank:
            return []
        was_lowest = recovery.next_master(self.size, before) == self.rank
        return [rank] if was_lowest else list(ranks_of(self.dead | 1 << rank))

    def lacks(self, key: Key, owner: int, contract: Contract) -> bool:
        """Is this reduction under way, and what `owner` gave not here? No, too, if it does not fit the others'."""
        member = self.members.get(key)
        if member is None:
            return key[1] >= self.counts.get(whole_of(key)[0][0], 0)
        fits = member.contract in (None, contract)
        return fits and not member.complete and 1 << owner not in member.items

    def shared(self) -> list[tuple[Key, HeldItem]]:
        """All items that others were told where to read."""
        return [
            (key, held)
            for key, member in self.members.items()
            for held in member.items.values()
            if held.where is not None
        ]

    def died(self, rank: int) -> list[Step]:
        """A rank is dead."""
        if self.dead >> rank & 1:
            return []
        self.dead |= 1 << rank
        steps: list[Step] = []
        for key, member in list(self.members.items()):
            if key in self.members:
                steps += self._run(key, member.died(rank))
        return steps

    def pending(self) -> dict[Key, tuple[Contract | None, Path | None]]:
        """The reductions that are not complete here, with whom the master waits for, where this rank is the master."""
        found: dict[Key, tuple[Contract | None, Path | None]] = {}
        for key, member in self.members.items():
            if not member.complete:
                lead = member.lead
                waits = None
                if lead is not None and lead.scheduler is not None:
                    waits = lead.attendance.possible & ~lead.attendance.joined
                whole = whole_of(key)[0]
                contract, others = found.get(whole, (member.contract, None))
                found[whole] = contract, others if waits is None else waits | (others or 0)
        return found

    # -- within

    def _parts(self, whole: Key) -> list[Key]:
        """The parts that are here."""
        return [key for key in self.members if whole_of(key)[0] == whole]

    def _member(self, key: Key) -> Member:
        member = self.members.get(key)
        if member is None:
            member = self.members[key] = Member(self.rank, self.size, self.dead, self.ranks)
        return member

    def _run(self, key: Key, effects: Effects) -> list[Step]:
        """Effects as steps. What a rank sends to itself is received here, in order."""
        steps: list[Step] = []
        queue = deque(effects)
        while queue:
            effect = queue.popleft()
            if isinstance(effect, Send):
                if effect.dest != self.rank:
                    steps.append(Sent(effect.dest, key, effect.message))
                elif key in self.members:
                    queue.extend(self.members[key].receive(self.rank, effect.message))
            elif isinstance(effect, Compute):
                steps.append(Computing(key, *effect))
            elif isinstance(effect, Read):
                steps.append(Reading(key, *effect))
            elif isinstance(effect, Complete):
                steps.append(Completed(key, *effect))
                if effect.outcome.error and whole_of(key) == (key, 0):
                    steps += self._drop([part for part in self._parts(key) if part != key])
            else:
                assert isinstance(effect, Forget)
                steps += self._drop([key])
        return steps

    def _drop(self, keys: Iterable[Key]) -> list[Step]:
        """Nothing of these is needed any more."""
        steps: list[Step] = []
        for key in keys:
            member = self.members.pop(key, None)
            if member is not None:
                steps.append(Forgotten(key))
                if member.lead is not None:
                    member.lead.close()
        return steps

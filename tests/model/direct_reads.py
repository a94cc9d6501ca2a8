"""Long collectives whose members read each other's memory: orders of steps of the shipped function, with what may happen.

The functions under test are `ckpt.mpi.slots.direct._exchange`, `allreduce` and `reduce`, as they are shipped or with a rule
taken out. Each member runs one in a thread; a thread stops before each step, and one step at a time is let go. Steps of a
member:

    run       contribute (one step), and take (one more, when all have contributed; or, once revoked, be thrown out)
    read      read another member's block
    write     the collective has ended for this member: its program writes to the memory that was sent, and to the result's

What may happen between them: a member hears that the communicator is revoked, and the others hear it later, each when it
likes; all members are saved and go on in new processes (once; where each is in an exchange or has ended: an image is taken
nowhere else), after which no offer of before can be read.

Right is: no member ends with a block that is not what was sent, or not the sum of what was; either all members that end have
all, or all follow the schedule; and one that follows it has its own block as it was.

An order is a list of choices. `explore` makes every one: it runs the beginning again, and takes another choice at its end.
"""

from __future__ import annotations

import threading
import types
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from ckpt.mpi.base.errors import ERR_REVOKED, MpiException
from ckpt.mpi.slots import direct

Edit = tuple[str, str]


class RuleBroken(AssertionError):
    """A member has a wrong block, or members disagree."""


class _Over(BaseException):
    """The order has been explored as far as wanted: the threads end."""


class Block:
    """A member's memory for one block: a number."""

    datatype = types.SimpleNamespace(size=8)
    nbytes = 8
    dense = True

    def __init__(self, memory: memoryview) -> None:
        self.memory = memory

    @property
    def value(self) -> int:
        return int.from_bytes(self.memory, "little")

    def view(self) -> memoryview:
        return self.memory

    def read(self) -> bytes:
        return bytes(self.memory)

    def write(self, data: bytes) -> None:
        self.memory[:] = data


def blocks_of(values: Sequence[int]) -> list[Block]:
    """In one piece of memory, as in a program's array."""
    memory = memoryview(bytearray(b"".join(value.to_bytes(8, "little") for value in values)))
    return [Block(memory[at : at + 8]) for at in range(0, len(memory), 8)]


class Sum:
    """The operation of an allreduce."""

    def combine(self, low: memoryview, high: memoryview, datatype: Any, out: memoryview) -> memoryview:
        total = int.from_bytes(low, "little") + int.from_bytes(high, "little")
        out[:] = total.to_bytes(8, "little")
        return out


@dataclass
class Member:
    rank: int
    out: list[Block]
    into: list[Block]
    number: int = 0
    wants: str = "run"
    """The next step: "contribute", "take", "read", "write"; "": ended."""
    needs: int = 0
    """Of "take": the number of the exchange."""
    go: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    result: Any = None
    found: list[int] = field(default_factory=list)
    """In `into`, when the function returned."""

    def write_on(self) -> None:
        for block in (*self.out, *self.into):
            block.write((99).to_bytes(8, "little"))


class World:
    """The members of one collective, and what they share."""

    def __init__(
        self,
        size: int,
        function: Any,
        *,
        is_checked: bool = True,
        happens: Sequence[str] = ("revoked", "restart"),
    ) -> None:
        self.name = getattr(function, "__name__", "")
        self.function, self.size, self.is_checked, self.happens = function, size, is_checked, happens
        self.members = [
            Member(rank, blocks_of([10 * rank + to for to in range(size)]), blocks_of([77] * size))
            for rank in range(size)
        ]
        self.contributions: dict[tuple[int, int], tuple[int, Any]] = {}
        self.offers: set[tuple[int, int, int]] = set()
        self.process = 0
        self.revoked: set[int] = set()
        self.is_over = self.was_restarted = False
        self.stopped = threading.Semaphore(0)
        self.threads = [
            threading.Thread(target=self._body, args=(member,), daemon=True) for member in self.members
        ]
        for thread in self.threads:
            thread.start()
            self.stopped.acquire()

    # -- in the threads ----------------------------------------------------------------------------

    def _body(self, member: Member) -> None:
        try:
            given: list[Any] = [member.out, member.into]
            if self.name == "reduce":  # to member 0
                given = [member.out, member.into[member.rank], [] if member.rank else member.into]
            if self.name != "_exchange":
                given.append(Sum())
            member.result = self.function(Exchange(self, member), *given)
            member.found = [block.value for block in member.into]
            self.step(member, "write" if member.result else "follow")
            if member.result:
                member.write_on()
        except MpiException:
            self.step(member, "write")
            member.write_on()
        except _Over:
            pass
        member.wants = ""
        self.stopped.release()

    def step(self, member: Member, wants: str) -> None:
        if self.is_over:
            raise _Over
        member.wants = wants
        self.stopped.release()
        member.go.acquire()
        if self.is_over:
            raise _Over

    # -- in the explorer ---------------------------------------------------------------------------

    def choices(self) -> list[str]:
        found = []
        for member in self.members:
            if member.wants == "take":
                if all((rank, member.needs) in self.contributions for rank in range(self.size)):
                    found.append(f"{member.rank}")
                if member.rank in self.revoked:
                    found.append(f"{member.rank} thrown out")
            elif member.wants not in ("", "follow"):
                found.append(f"{member.rank}")
        if found and "revoked" in self.happens:
            found += [f"revoked at {rank}" for rank in range(self.size) if rank not in self.revoked]
        if (
            "restart" in self.happens
            and not self.was_restarted
            and all(member.wants in ("take", "write", "follow", "") for member in self.members)
        ):
            found.append("restart")
        return found

    def choose(self, choice: str) -> None:
        if choice.startswith("revoked"):
            self.revoked.add(int(choice[-1]))
        elif choice == "restart":
            self.was_restarted, self.process = True, 1
            self.offers.clear()
        else:
            member = self.members[int(choice[0])]
            if "thrown" in choice:
                member.needs = -1
            member.go.release()
            self.stopped.acquire()

    def check(self) -> None:
        if not self.revoked and any(member.wants == "take" for member in self.members):
            raise RuleBroken("a member waits for what never comes")
        ended = [member for member in self.members if member.result is not None]
        for member in ended:
            for source, value in enumerate(member.found):
                is_due = self.name != "reduce" or member.rank == 0
                if member.result and is_due and value != self._right(source, member.rank):
                    raise RuleBroken(f"member {member.rank} has {value} from {source}")
            if not member.result and [block.value for block in member.out] != [
                10 * member.rank + to for to in range(self.size)
            ]:
                raise RuleBroken(f"member {member.rank} follows the schedule with other data")
        if len({bool(member.result) for member in ended}) > 1:
            raise RuleBroken("one member has all, another follows the schedule")

    def _right(self, source: int, rank: int) -> int:
        if self.name != "_exchange":
            return sum(10 * member + source for member in range(self.size))
        return 10 * source + rank

    def end(self) -> None:
        self.is_over = True
        for member in self.members:
            member.go.release()
        for thread in self.threads:
            thread.join()


class Exchange:
    """In place of `ckpt.mpi.slots.exchange.Exchange`, and of the engine, and of the offers of the process."""

    def __init__(self, world: World, member: Member) -> None:
        self.world, self.member, self.rank = world, member, member.rank
        self.others = sum(1 << rank for rank in range(world.size) if rank != member.rank)
        self.engine, self.offers, self.is_refused = self, self, False
        self.members = world.members

    @property
    def number(self) -> int:
        return self.member.number

    def run(self, kind: int, data: Any, readers: int, sources: int, look_ns: int = 0) -> dict[int, Any]:
        world, member = self.world, self.member
        world.step(member, "contribute")
        if self.rank in world.revoked:
            raise MpiException(ERR_REVOKED, "revoked")
        number, member.number = member.number, member.number + 1
        world.contributions[self.rank, number] = kind, data
        if not sources:
            return {}
        member.needs = number
        world.step(member, "take")
        if member.needs < 0:
            raise MpiException(ERR_REVOKED, "revoked")
        return {rank: world.contributions[rank, number] for rank in range(world.size) if rank != self.rank}

    def make(self, parts: Sequence[memoryview]) -> tuple[int, Any]:
        offer = self.world.process, self.rank, self.member.number + 1
        self.world.offers.add(offer)
        return offer[2], (offer, parts)

    def end(self, number: int) -> None:
        self.world.offers.discard((self.world.process, self.rank, number))

    def read(self, offer: Any, part: int, into: memoryview, first: int | None = None) -> bool:
        self.world.step(self.member, "read")
        if offer[0][0] != self.world.process:
            return False  # memory of a process that is gone
        into[:] = offer[1][part]
        return offer[0] in self.world.offers or not self.world.is_checked


def shipped(*edits: Edit, name: str = "_exchange") -> Any:
    """The function of this name, with these edits of its source."""
    source = Path(direct.__file__).read_text()
    for old, new in edits:
        assert old in source, f"not in the source: {old}"
        source = source.replace(old, new)
    module = types.ModuleType("ckpt.mpi.slots.direct")
    exec(compile(source, direct.__file__, "exec"), module.__dict__)
    return getattr(module, name)


def explore(size: int, function: Any, happens: Sequence[str]) -> int:
    """Every order. Returns how many there are. RuleBroken."""
    orders = 0
    waiting: list[list[str]] = [[]]
    while waiting:
        order = waiting.pop()
        world = World(size, function, happens=happens)
        try:
            for choice in order:
                world.choose(choice)
            while choices := world.choices():
                waiting += [[*order, other] for other in choices[1:]]
                order = [*order, choices[0]]
                world.choose(choices[0])
            world.check()
        finally:
            world.end()
        orders += 1
    return orders


def walk(size: int, function: Any, seeds: Sequence[int], *, is_checked: bool = True) -> Iterator[bool]:
    """An order by chance for each seed; yields whether all members have all. RuleBroken."""
    for seed in seeds:
        random, world = Random(seed), World(size, function, is_checked=is_checked)
        try:
            while choices := world.choices():
                steps = [each for each in choices if each[0].isdigit()]
                world.choose(random.choice(choices if not steps or random.random() < 0.1 else steps))
            world.check()
        finally:
            world.end()
        yield all(member.result for member in world.members)


__all__ = ["RuleBroken", "explore", "shipped", "walk"]

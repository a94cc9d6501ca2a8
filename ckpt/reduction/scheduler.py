"""The master's part of one reduction: from items and who holds them to tasks of two items. (pure)

    queued     items that no task uses, in the order in which they came; each with the living ranks that hold it
    running    tasks that an executor was given, with their two items
    orphans    originals that nobody is known to hold
    delivered  one item has everybody's contribution: where it lies was told

Rules, those of the paper by its names:

1. A *message* (rank, path) puts an item into the *queue*; two items make a *task*; the executor fetches what it does not
   have, combines, and reports the united path. The reduction has ended when a path has everybody (section 2, steps 1–6).
2. The *executor* is one of the two holders: the only one that lives; else the one that holds a recovered original; else the
   one whose last task took less time. One that has tasks already counts as so many times slower, of whichever reduction
   they are (ours: else all that are under way at once give theirs to the same few), one without a past as slow as the
   slowest. The last task is the root's if it holds one of the two: only the *last* result has to lie there (the paper
   gives the root every task it is part of; then a slow root is what all wait for).
3. *Faults*: 1, 2 (the executor is dead): what the living hold goes back to the queue, what the dead one held is *split* into
   single originals, recovered from their owner or a copy. 3 (an item's holder is dead, or does not have it): the executor
   reports it, the other item goes back, this one is split. The report counts, not the notice of the death: the data may
   have arrived before.
4. *Order*. `tree`: pairs of one fixed binary tree over the ranks (blocks of 1, 2, 4, … ranks; one without contributors is
   passed over), so the result has the same bits in every run with the same contributors. `ready`: the two that came first;
   if the operation does not commute, the first two that are neighbours. The left one has the lower ranks.
5. *Chains* (ours). Where in the fixed tree the item to combine the new one with is in the queue, too, it is part of the same
   task, and so on: after a late rank's call one task is left, and not one a level, each with two messages. Not the last
   combination if there is a root, which is to do that one alone.

No clock: the driver says how long a task took. Not here: messages (member.py), who takes part (partial.py).
Source: Li, Zhao, Yan, Liu, Wen, Wang: a fault tolerant high-performance reduction framework in complex environment (2018).
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

from ckpt.reduction.messages import Path, Place, ranks_of
from ckpt.reduction.partial import Attendance


class Ranks(NamedTuple):
    """What a master knows of all ranks, for all of its reductions, which write to it. `times`: nanoseconds of each one's
    last task. `tasks`: how many it has now."""

    times: dict[int, int]
    tasks: dict[int, int]


class Item(NamedTuple):
    """An item of the queue. `holders`: living ranks that have it, at least one. `recovered`: an original brought back after
    a death."""

    path: Path
    holders: tuple[int, ...]
    recovered: bool = False


class Running(NamedTuple):
    """A task that was given away. `items`: those that it combines, in this order."""

    executor: int
    items: tuple[Item, ...]


class Assign(NamedTuple):
    """Give the executor this task: combine two, and what comes of it with each of `more`."""

    number: int
    executor: int
    left: Place
    right: Place
    more: tuple[Place, ...] = ()

    @property
    def places(self) -> tuple[Place, ...]:
        return (self.left, self.right, *self.more)


class Ready(NamedTuple):
    """The result lies at `holder`."""

    path: Path
    holder: int


class Ask(NamedTuple):
    """Nothing goes on without originals that nobody is known to hold: ask all that live what they have."""

    orphans: Path


Action: TypeAlias = Assign | Ready | Ask


def block(level: int, index: int) -> Path:
    """The ranks of a node of the fixed tree: 2 ** level of them, from index * 2 ** level on."""
    return ((1 << (1 << level)) - 1) << (index << level)


def sibling(path: Path, possible: Path) -> Path:
    """What an item is combined with in the fixed tree: the path of the other half of its parent, without the ranks that do
    not contribute. 0: it is no node of this tree, or has everybody."""
    level, index = 0, (path & -path).bit_length() - 1
    while path != possible:
        if block(level, index) & possible == path and (other := block(level, index ^ 1) & possible):
            return other
        if path & ~block(level, index) == 0 and block(level, index) & possible & ~path:
            return 0  # a part of this node is missing in the item
        level, index = level + 1, index >> 1
        if 1 << level > 2 * possible.bit_length():
            return 0
    return 0


def is_node(path: Path, possible: Path) -> bool:
    """May an item with this path be part of the fixed tree?"""
    return path == possible or (not path & ~possible and sibling(path, possible) != 0)


class Scheduler:
    """One reduction at its master. Each event returns what is to be done."""

    __slots__ = (
        "_number",
        "asked",
        "attendance",
        "commutative",
        "copies",
        "dead",
        "delivered",
        "items",
        "order",
        "orphans",
        "root",
        "running",
        "tasks",
        "times",
        "where",
    )

    def __init__(
        self,
        attendance: Attendance,
        *,
        root: int = -1,
        order: str = "tree",
        commutative: bool = True,
        ranks: Ranks | None = None,
        dead: Path = 0,
        first_number: int = 1,
    ) -> None:
        """`root`: -1: the result may lie anywhere."""
        self.attendance = attendance
        self.root, self.order, self.commutative = root, order, commutative
        self.times, self.tasks = Ranks({}, {}) if ranks is None else ranks
        self.dead = dead
        self.items: dict[Path, Item] = {}
        self.running: dict[int, Running] = {}
        self.copies: dict[int, set[int]] = {}
        self.where: dict[tuple[Path, int], Any] = {}
        """(item, holder): where others can read it."""
        self.orphans = 0
        self.asked = False
        self.delivered = False
        self._number = first_number - 1

    # -- events

    def call(self, rank: int, where: Any = None) -> list[Action]:
        """A rank takes part: its original is there. A late one is not used."""
        self.where[1 << rank, rank] = where
        before = self.attendance.joined
        if self.dead >> rank & 1 or before >> rank & 1 or not self.attendance.join(rank):
            return []
        self._put(Item(1 << rank, (rank,)))
        return self.go()

    def copied(self, owner: int, holder: int, where: Any = None) -> list[Action]:
        """A copy of an original lies at `holder`."""
        if self.dead >> holder & 1:
            return []
        self.copies.setdefault(owner, set()).add(holder)
        self.where[1 << owner, holder] = where
        if self.orphans >> owner & 1:
            self.orphans &= ~(1 << owner)
            if self.attendance.join(owner):  # its call may have been lost, and the copy was not
                self._original(owner)
        return self.go()

    def add(self, path: Path, holders: tuple[int, ...]) -> None:
        """An item that the living hold, found by asking them."""
        original = not path & (path - 1)
        self._put(Item(path, holders, original and self.dead & path != 0))

    def done(self, number: int, elapsed_ns: int, where: Any = None) -> list[Action]:
        """A task is done. One that was taken back is not counted."""
        task = self.running.pop(number, None)
        if task is None:
            return []
        self.times[task.executor] = elapsed_ns
        self.tasks[task.executor] -= 1
        path = _united(task.items)
        self.where[path, task.executor] = where
        self._put(Item(path, (task.executor,)))
        return self.go()

    def failed(self, number: int, path: Path, holder: int) -> list[Action]:
        """Fault 3: the executor lives, and could not have the item `path` from `holder`."""
        task = self.running.pop(number, None)
        if task is None:
            return []
        self.tasks[task.executor] -= 1
        if not path & (path - 1):
            self.copies.get(path.bit_length() - 1, set()).discard(holder)
        for item in task.items:
            self._return(item, without=holder if item.path == path else -1)
        return self.go()

    def died(self, rank: int) -> list[Action]:
        """A rank is dead: faults 1 and 2 for what it executes, and what it holds is gone."""
        if self.dead >> rank & 1:
            return []
        self.dead |= 1 << rank
        for holders in self.copies.values():
            holders.discard(rank)
        for number, task in list(self.running.items()):
            if task.executor == rank:
                del self.running[number]
                self.tasks[rank] -= 1
                for item in task.items:
                    self._return(item)
        for item in [item for item in self.items.values() if rank in item.holders]:
            del self.items[item.path]
            self._return(item)
        attendance = self.attendance
        if not attendance.joined >> rank & 1 and attendance.possible >> rank & 1:
            self.orphans |= 1 << rank  # it has not called, as far as is known here
        return self.go()

    def expire(self) -> list[Action]:
        """The deadline has passed: who has called takes part, nobody else."""
        self.attendance.expire()
        self.orphans &= self.attendance.possible
        return self.go()

    def close(self) -> None:
        """It is not gone on with: its tasks count no more."""
        for task in self.running.values():
            self.tasks[task.executor] -= 1
        self.running.clear()

    # -- items

    def _put(self, item: Item) -> None:
        self.items[item.path] = item

    def _return(self, item: Item, without: int = -1) -> None:
        """Back to the queue, if somebody who lives has it; else split into originals."""
        holders = tuple(each for each in item.holders if each != without and not self.dead >> each & 1)
        if holders:
            self._put(item._replace(holders=holders))
        else:
            for rank in ranks_of(item.path):
                self._original(rank, without)

    def _original(self, rank: int, without: int = -1) -> None:
        """A recovered original, at its owner or where a copy is; an orphan if there is none."""
        places = {rank, *self.copies.get(rank, ())}
        holders = tuple(sorted(each for each in places if each != without and not self.dead >> each & 1))
        if holders:
            self._put(Item(1 << rank, holders, recovered=True))
        else:
            self.orphans |= 1 << rank

    # -- decisions

    def go(self) -> list[Action]:
        """All that can be done now."""
        actions: list[Action] = []
        attendance = self.attendance
        if self.delivered or not attendance.joined:
            return self._ask() if not self.delivered else []
        last = self.items.get(attendance.possible)
        if last is not None and not self.running:
            self.delivered = True
            holder = self.root if self.root in last.holders else last.holders[0]
            return [Ready(last.path, holder)]
        while (pair := self._pair()) is not None:
            actions.append(self._assign(*pair))
        return actions or self._ask()

    def _ask(self) -> list[Action]:
        if not self.orphans or self.running or self.asked:
            return []
        self.asked = True
        return [Ask(self.orphans)]

    def _pair(self) -> tuple[Item, Item] | None:
        items = self.items
        possible = self.attendance.possible
        if len(items) < 2:
            return None
        if self.order == "tree":
            for path, item in items.items():
                other = items.get(sibling(path, possible))
                if other is not None:
                    return _in_order(item, other)
            return None
        if self.commutative:
            first, second = list(items.values())[:2]
            return _in_order(first, second)
        for item in items.values():
            for other in items.values():
                between = ((other.path & -other.path) - 1) & ~((1 << item.path.bit_length()) - 1)
                if item.path < other.path & -other.path and not between & possible:
                    return item, other
        return None

    def _assign(self, left: Item, right: Item) -> Assign:
        items = (left, right, *self._chain(left.path | right.path))
        for item in items:
            del self.items[item.path]
        executor = self._executor(items)
        self._number += 1
        self.running[self._number] = Running(executor, items)
        self.tasks[executor] = self.tasks.get(executor, 0) + 1
        first, second, *more = (self._place(item, executor) for item in items)
        return Assign(self._number, executor, first, second, tuple(more))

    def _chain(self, path: Path) -> list[Item]:
        """With what a new item can be combined at once, and what comes of that, and so on."""
        found: list[Item] = []
        possible = self.attendance.possible
        while self.order == "tree" and (other := self.items.get(sibling(path, possible))) is not None:
            path |= other.path
            if path == possible and self.root >= 0:
                break
            found.append(other)
        return found

    def _place(self, item: Item, executor: int) -> Place:
        """Where the executor finds an item."""
        if executor in item.holders:
            return Place(item.path, executor)
        holder = item.holders[0]
        return Place(item.path, holder, self.where.get((item.path, holder)))

    def _executor(self, items: tuple[Item, ...]) -> int:
        candidates = sorted({holder for item in items for holder in item.holders})
        if _united(items) == self.attendance.possible and self.root in candidates:
            return self.root
        recovered = [item for item in items if item.recovered]
        if len(recovered) not in (0, len(items)):
            candidates = sorted({holder for item in recovered for holder in item.holders})
        return min(candidates, key=self._expected_ns)

    def _expected_ns(self, rank: int) -> int:
        """When a rank would be done with another task, by its last one."""
        return self.times.get(rank, max(self.times.values(), default=1)) * (1 + self.tasks.get(rank, 0))


def _united(items: tuple[Item, ...]) -> Path:
    path = 0
    for item in items:
        path |= item.path
    return path


def _in_order(first: Item, second: Item) -> tuple[Item, Item]:
    """The one with the lower ranks on the left."""
    return (first, second) if first.path & -first.path < second.path & -second.path else (second, first)

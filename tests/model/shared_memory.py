"""Ranks that share memory take their images: all orders of steps, with the shipped rules (`ckpt.shared_memory.rules`).

The memory has a part for each rank; a store goes to all parts, and part `i` counts the stores of every rank. So the images
are of one instant if each copied part has counted exactly the stores that each rank has made before its own image.

Steps of a rank: it becomes a member; looks up the epoch of its image, and tells it to all (in two steps, and again, when it
has heard all); hears that it may store; stores; looks for a place and waits; withdraws; stands; copies; is captured; goes
on, when it may or because it has waited for too long; dies. A rank that is no member yet takes its image alone. A message
of a rank that has taken its image is not received by one that has not.

Not here: how long a rank waits, and where the table lies (tests/unit/ckpt/shared_memory).
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from ckpt.shared_memory.rules import COPIED, GATHERED, RUNNING, STANDING, Slot, Table, may_store

EPOCH = 1
MOST_TIMES = 4
"""So often ranks tell each other their epochs: the third time, all have the image, or will not have it soon."""


class RuleBroken(AssertionError):
    """Images of one epoch are not of one instant."""


class Rank:
    def __init__(self) -> None:
        self.stores = 0
        self.withdrawals = 0
        self.is_member = False
        self.told: tuple[tuple[int, int], ...] = ()
        """The epochs that it has told, and its epochs at that moment."""
        self.tells = -1
        """What it has looked up to tell; -1: nothing."""
        self.is_open = False
        self.image: tuple[int, tuple[int, ...] | None] | None = None
        """How many stores it had made, and what its part had counted; None: it has no part."""
        self.copy: tuple[int, ...] | None = None
        self.is_over = False
        """It has its image, or will never have one."""
        self.is_dead = False

    def key(self) -> tuple[Any, ...]:
        return tuple(self.__dict__.values())

    @property
    def epoch(self) -> int:
        return EPOCH if self.is_over else 0


class World:
    """`by_file`: the memory is a file, which is mapped instead of a window made. `most`: stores, and withdrawals, of each
    rank; `late`: those that are no members at the beginning."""

    by_file = False

    def __init__(self, size: int, table: Table, most: int, late: frozenset[int]) -> None:
        self.size, self.table, self.most = size, table, most
        self.ranks = [Rank() for _ in range(size)]
        self.has_given_up = self.has_death = False
        for number, rank in enumerate(self.ranks):
            if number not in late:
                self._join(number, rank)
        if not late:
            for rank in self.ranks:
                rank.is_open = True

    def clone(self) -> World:
        made = copy.copy(self)
        made.ranks = [copy.copy(rank) for rank in self.ranks]
        made.table = copy.copy(self.table)
        made.table.slots = {number: copy.copy(slot) for number, slot in self.table.slots.items()}
        return made

    def key(self) -> tuple[Any, ...]:
        table = self.table
        slots = [(n, s.windows, s.phase, s.epoch, s.done, s.is_dead) for n, s in sorted(table.slots.items())]
        ranks = tuple([rank.key() for rank in self.ranks])
        return ranks, tuple(slots), table.given_up, self.has_given_up, self.has_death

    def steps(self) -> Iterator[tuple[str, int]]:
        for number, rank in enumerate(self.ranks):
            if not rank.is_dead:
                yield from ((name, number) for name in self._steps_of(number, rank))

    def _steps_of(self, number: int, rank: Rank) -> Iterator[str]:
        slot = self.table.slots.get(number, Slot())
        if not self.has_death:
            yield "die"
        if slot.phase == RUNNING:
            if not rank.is_member:
                yield "join"
            elif not rank.is_open:
                yield from self._opens(rank)
            if rank.is_open and rank.stores < self.most:
                yield "store"
            if not rank.is_over:
                yield "gather" if slot.windows or slot.files else "image alone"
        elif slot.phase == GATHERED:
            if not self.table.missing(number, EPOCH):
                yield "stand"
            if rank.withdrawals < self.most:
                yield "withdraw"
        elif slot.phase == STANDING:
            if rank.withdrawals < self.most:
                yield "withdraw"
            if self.table.is_passed_over(number, EPOCH):
                yield "pass over"
        if self.table.slots.get(number) and self.table.is_together(number):
            yield "copy"
        if slot.phase == COPIED:
            if not self.table.waits_for(number):
                yield "leave"
            elif not self.has_given_up:
                yield "give up"

    def _join(self, number: int, rank: Rank) -> None:
        rank.is_member = True
        if self.by_file:
            self.table.map_files(number, number + 1, rank.epoch, frozenset([1]))
            rank.is_open = True
        else:
            self.table.join(number, number + 1, rank.epoch, 0)

    def _opens(self, rank: Rank) -> Iterator[str]:
        if rank.tells >= 0:
            yield "tell"
            return
        times = len(rank.told)
        if not all(len(other.told) >= times for other in self.ranks):
            return
        heard = [[other.told[time] for other in self.ranks] for time in range(times)]
        if any(at > rank.epoch for each in heard for _, at in each):
            return  # a message of who has an image is received by who has one
        if self.may_store([[epoch for epoch, _ in each] for each in heard]):
            yield "open"
        elif times < MOST_TIMES:
            yield "look up"

    @staticmethod
    def may_store(told: list[list[int]]) -> bool:
        return may_store(told)

    def take(self, name: str, number: int) -> None:
        table, rank = self.table, self.ranks[number]
        match name:
            case "join":
                self._join(number, rank)
            case "look up":
                rank.tells = rank.epoch
            case "tell":
                rank.told, rank.tells = (*rank.told, (rank.tells, rank.epoch)), -1
            case "open":
                rank.is_open = True
            case "store":
                rank.stores += 1
            case "gather":
                table.gather(number, EPOCH)
            case "withdraw":
                if table.withdraw(number):
                    rank.withdrawals += 1
            case "stand":
                if table.is_passed_over(number, EPOCH):
                    table.withdraw(number)
                    rank.is_over = True  # without an image
                else:
                    table.stand(number, EPOCH, 0)
            case "copy":
                rank.copy = tuple([each.stores for each in self.ranks])
                if table.copied(number):
                    rank.image = rank.stores, rank.copy
                rank.is_over = True
            case "leave":
                table.leave(number)
            case "give up":
                self.has_given_up = True
                table.give_up(number)
                table.leave(number)
            case "pass over":
                if table.withdraw(number):
                    rank.is_over = True  # without an image
            case "image alone":
                rank.image, rank.is_over = (rank.stores, None), True
            case "die":
                self.has_death = rank.is_dead = True
                if number in table.slots:
                    table.drop([number])
        self._check()

    def _check(self) -> None:
        images = [rank.image for rank in self.ranks]
        if all(image is not None for image in images):
            made = tuple([image[0] for image in images if image is not None])
            if any(made) and all(image is None or image[1] is None for image in images):
                raise RuleBroken(f"nobody has what the ranks have stored: {made}")
            for number, image in enumerate(images):
                if image is not None and image[1] not in (made, None):
                    raise RuleBroken(f"part {number} has {image[1]}, the ranks have stored {made}")

    @property
    def is_line(self) -> bool:
        return all(rank.image is not None for rank in self.ranks)


def explore(
    size: int,
    table: type[Table],
    most: int = 1,
    late: frozenset[int] = frozenset(),
    world: type[World] = World,
) -> tuple[int, int]:
    """(number of states, of those with images of all ranks). Raises RuleBroken."""
    first = world(size, table(), most, late)
    seen, open_, lines = {first.key()}, [first], 0
    while open_:
        now = open_.pop()
        for name, number in now.steps():
            following = now.clone()
            following.take(name, number)
            key = following.key()
            if key not in seen:
                seen.add(key)
                open_.append(following)
                lines += following.is_line
    return len(seen), lines

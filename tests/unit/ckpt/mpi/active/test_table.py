"""The table of channels in every order of arrivals: nothing lost, nothing twice, each source in order, the dead last."""

from __future__ import annotations

import itertools
import random
from collections import deque
from typing import Any

import pytest

from ckpt.mpi.active.table import Member, Table

GROUP = (4, 7, 9)
KEY = (16, 0)


def member(key: tuple[int, int] = KEY, failed: Any = lambda rank: None) -> Member:
    return Member(key, GROUP, lambda source, obj: None, failed)


def calls(table: Table) -> list[tuple[int, Any]]:
    found = []
    while (call := table.next()) is not None:
        found.append((call.rank, call.data))
    return found


def orders(*threads: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    """All interleavings of these sequences."""
    numbers = [number for number, thread in enumerate(threads) for _ in thread]
    found = []
    for order in set(itertools.permutations(numbers)):
        parts = [iter(thread) for thread in threads]
        found.append(tuple(next(parts[number]) for number in order))
    return found


END = (True, ())


@pytest.mark.parametrize("order", orders((b"1", b"2", END), (b"a", "death"), ("made", "started")))
def test_every_order_of_messages_ends_deaths_and_the_start(order: tuple[Any, ...]) -> None:
    """Rank 0 sends 1 and 2 and frees; rank 1 (the world's rank 7) sends a and dies; the channel is made and started."""
    dead: list[int] = []
    table = Table(dead)
    mine, heard = member(), []
    for event in order:
        if event == "made":
            table.add(mine)
        elif event == "started":
            table.start()
        elif event == "death":
            dead.append(7)
            table.died([7])
        else:
            assert table.arrived(KEY, 1 if event == b"a" else 0, event)
        heard += calls(table)
        assert not heard or mine.started
    assert [data for rank, data in heard if rank == 0] == [b"1", b"2"]
    assert [data for rank, data in heard if rank == 1] == [b"a", None]
    assert (mine.ends, mine.told) == ({0: [END]}, {7})
    assert not table.kept


def test_channels_are_told_apart_and_each_is_told_of_a_death_once() -> None:
    table = Table([])
    keys = (16, 0), (16, 1), (20, 0)
    members = [member(key) for key in keys]
    for each in members:
        table.add(each)
    table.start()
    for number, key in enumerate(keys):
        table.arrived(key, 0, bytes([number]))
    for each, number in zip(members, range(3), strict=True):
        call = table.next()
        assert call is not None
        assert (call.member, call.data) == (each, bytes([number]))
    table.died([9, 5])
    table.died([9])
    assert calls(table) == [(2, None)] * 3


def test_a_freed_channel_is_forgotten_before_it_starts_and_after() -> None:
    table = Table([])
    mine = member()
    table.add(mine)
    table.remove(mine)
    table.start()
    assert not mine.started
    assert not table.arrived(KEY, 0, b"late")
    assert not table.in_use
    assert table.arrived((KEY[0], 1), 0, b"for the next one")
    assert table.in_use


class Net:
    """Members of one channel and the links between them. Handlers answer; the dead are told after what they have sent."""

    def __init__(self, chance: random.Random, size: int, deaths: int) -> None:
        self.chance, self.size, self.deaths = chance, size, deaths
        self.group = tuple(range(10, 10 + size))
        self.links: dict[tuple[int, int], list[Any]] = {
            (src, dst): [] for src in range(size) for dst in range(size)
        }
        self.tables = [Table([]) for _ in range(size)]
        self.members = [
            Member(KEY, self.group, lambda *_: None, None if rank % 2 else lambda *_: None)
            for rank in range(size)
        ]
        self.left = [chance.randrange(3) for _ in range(size)]
        self.dead: set[int] = set()
        self.gone: set[int] = set()
        for table, each in zip(self.tables, self.members, strict=True):
            table.add(each)
            table.start()

    def send(self, src: int, dst: int, what: Any) -> None:
        if self.group[dst] not in self.members[src].told:
            self.links[src, dst].append(what)

    def call(self, src: int, chain: int) -> None:
        self.members[src].sent = True
        self.send(src, self.chance.randrange(self.size), bytes(chain))

    def tell(self, src: int, what: Any) -> None:
        for dst in range(self.size):
            self.send(src, dst, what)

    def deliver(self, src: int, dst: int) -> None:
        what = self.links[src, dst].pop(0)
        table, mine = self.tables[dst], self.members[dst]
        if what == "death":
            table.died([self.group[src]])
        else:
            known = table.arrived(KEY, src, what)
            assert known == (dst not in self.gone)
            assert known or not isinstance(what, bytes), "a message for a member that has freed"
        while (call := table.next()) is not None:
            if call.data and not mine.done:
                self.call(dst, len(call.data) - 1)
            elif call.data:
                raise AssertionError("a message that asks for an answer, after the end")

    def free(self, rank: int) -> bool:
        """One step; False: it waits."""
        mine = self.members[rank]
        if mine.round == 0:
            self.tell(rank, mine.end_round())
        elif mine.done or (mine.is_round_over() and mine.is_quiet()):
            mine.done = True
            self.tell(rank, None)
            self.tables[rank].remove(mine)
            self.gone.add(rank)
        elif mine.is_round_over():
            self.tell(rank, mine.end_round())
        else:
            return False
        return True

    def kill(self, rank: int) -> None:
        """A part of what it has sent still arrives, on each link of its own; then its death is told."""
        self.dead.add(rank)
        for dst in range(self.size):
            self.links[dst, rank].clear()
            link = self.links[rank, dst]
            del link[self.chance.randint(0, len(link)) :]
            link.append("death")

    def step(self) -> bool:
        ways: list[Any] = [
            ("deliver", *link) for link, queue in self.links.items() if queue and link[1] not in self.dead
        ]
        living = [rank for rank in range(self.size) if rank not in self.dead | self.gone]
        ways += [("call", rank) for rank in living if self.left[rank] and not self.members[rank].round]
        ways += [("free", rank) for rank in living]
        self.chance.shuffle(ways)
        if self.deaths and living and self.members[living[-1]].round and self.chance.random() < 0.1:
            self.deaths -= 1
            self.kill(self.chance.choice(living))
            return True
        for way in ways:
            if way[0] == "deliver":
                self.deliver(*way[1:])
            elif way[0] == "call":
                self.left[way[1]] -= 1
                self.call(way[1], self.chance.randrange(6))
            elif not self.free(way[1]):
                continue
            return True
        return False


@pytest.mark.parametrize("part", range(10))
def test_a_channel_is_freed_when_nothing_is_under_way_whoever_dies(part: int) -> None:
    """Handlers answer, and answers are answered. Every living member comes to the end, and no message comes after it."""
    for seed in range(120):
        chance = random.Random(f"{part}/{seed}")
        net = Net(chance, size=chance.randint(1, 4), deaths=chance.randrange(3))
        while net.step():
            pass
        assert net.gone | net.dead == set(range(net.size)), seed
        assert all(
            table.calls == deque() and not table.in_use
            for rank, table in enumerate(net.tables)
            if rank in net.gone
        )


def test_members_that_know_of_different_deaths_go_on_to_another_round() -> None:
    """Rank 2 dies after the END of its first round has reached rank 1 only, with a message for rank 1 on its way. Rank 0
    knows of the death and has quiet ENDs of all; but rank 1 has that message to come, and answers it."""
    net = Net(random.Random(0), size=3, deaths=0)
    net.call = lambda src, chain: (setattr(net.members[src], "sent", True), net.send(src, 0, bytes(chain)))  # type: ignore
    net.members[0].sent = True
    assert net.free(2)
    net.send(2, 1, b"y")
    net.deliver(2, 1)
    net.dead.add(2)
    net.links[2, 0][:] = ["death"]
    net.links[2, 1].append("death")
    net.deliver(2, 0)
    for _ in range(2):
        for rank in range(2):
            assert net.free(rank)
        for link in itertools.product(range(2), range(2)):
            net.deliver(*link)
    assert [each.said_dead for each in net.members[:2]] == [(12,), ()]
    assert net.free(0)
    assert not net.gone
    net.deliver(2, 1)
    while len(net.gone) < 2:
        for link in itertools.product(range(3), range(2)):
            while net.links[link]:
                net.deliver(*link)
        for rank in {0, 1} - net.gone:
            net.free(rank)

"""The table of channels in every order of arrivals: nothing lost, nothing twice, each source in order, the dead last."""

from __future__ import annotations

import itertools
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


@pytest.mark.parametrize("order", orders((b"1", b"2", None), (b"a", "death"), ("made", "started")))
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
            table.arrived(KEY, 1 if event == b"a" else 0, event)
        heard += calls(table)
        assert not heard or mine.started
    assert [data for rank, data in heard if rank == 0] == [b"1", b"2"]
    assert [data for rank, data in heard if rank == 1] == [b"a", None]
    assert (mine.ended, mine.told) == ({0}, {7})
    assert mine.awaited() == [2]
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


def test_a_channel_without_a_handler_for_deaths_waits_for_no_dead() -> None:
    table = Table([4])
    mine = member(failed=None)
    table.add(mine)
    table.start()
    table.died([9])
    assert calls(table) == []
    assert mine.awaited() == [1]


def test_a_freed_channel_is_forgotten_before_it_starts_and_after() -> None:
    table = Table([])
    mine = member()
    table.add(mine)
    table.remove(mine)
    table.start()
    assert not mine.started
    assert not table.in_use
    table.arrived(KEY, 0, b"for the next one with this number, which never comes")
    assert table.in_use

"""How far replicas run ahead: never much more than the bound, and never so that nobody goes on."""

from __future__ import annotations

from typing import Any

import pytest

from ckpt.redundancy import ahead
from ckpt.redundancy.ahead import AHEAD_MAX, STALLED_NS, Floors

PROGRAMS = {
    "a pipeline": [["s1"] * 6, ["r0"] * 6],
    "to and fro": [["s1", "r1"] * 4, ["r0", "s0"] * 4],
    "many at once, both ways": [["s1", "s1", "s1", "r1", "r1", "s1"], ["s0", "r0", "r0", "r0", "s0", "r0"]],
    "an answer after many": [["s1"] * 5 + ["r1", "s1"], ["r0"] * 5 + ["s0", "r0"]],
}
"""By rank: sends to and receives from a rank."""


@pytest.mark.parametrize("name", PROGRAMS)
def test_somebody_can_always_go_on_and_nobody_is_far_ahead(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All orders of the steps of two ranks with two replicas each, with a bound of two messages, told at once."""
    monkeypatch.setattr(ahead, "AHEAD_MAX", 2)
    programs = PROGRAMS[name]
    processes = [(rank, plane) for rank in (0, 1) for plane in (0, 1)]
    start = (0,) * 4
    known, open_ = {start}, [start]

    def count(at: Any, rank: int, plane: int, kind: str) -> int:
        return sum(op[0] == kind for op in programs[rank][: at[2 * rank + plane]])

    while open_:
        at = open_.pop()
        floors = Floors(2, (0, 1), 0)
        told: dict[int, int | None] = {}
        for rank, plane in processes:
            told.update(floors.sent(rank, plane, count(at, rank, plane, "s"), 0))
        moved = False
        for index, (rank, plane) in enumerate(processes):
            if at[index] == len(programs[rank]):
                continue
            floor = told.get(rank)
            sent = count(at, rank, plane, "s")
            assert sent - count(at, rank, 1 - plane, "s") <= 2 + 1
            if floor is not None and sent > floor + 2:
                continue
            operation = programs[rank][at[index]]
            if operation[0] == "r" and count(at, 1 - rank, plane, "s") <= count(at, rank, plane, "r"):
                continue
            moved = True
            after = (*at[:index], at[index] + 1, *at[index + 1 :])
            if after not in known:
                known.add(after)
                open_.append(after)
        assert moved or all(at[i] == len(programs[rank]) for i, (rank, _) in enumerate(processes)), at


def test_a_floor_is_told_only_where_replicas_are_apart() -> None:
    floors = Floors(2, (0, 1, 2), 0)
    assert floors.sent(1, 0, 100, 0) == []
    assert floors.sent(1, 1, AHEAD_MAX, 0) == [(1, 0)]
    assert floors.sent(1, 2, 40, 0) == [(1, 40)]
    assert floors.sent(1, 2, AHEAD_MAX, 0) == [(1, 100)]
    assert floors.sent(1, 0, AHEAD_MAX, 0) == [(1, None)]


def test_a_lost_replica_holds_nobody_up() -> None:
    floors = Floors(1, (0, 1, 2), 0)
    assert floors.sent(0, 1, AHEAD_MAX, 0) == [(0, 0)]
    assert floors.sent(0, 2, AHEAD_MAX, 0) == []
    assert floors.left((1, 2), 0) == [(0, None)]


def test_a_replica_that_does_not_come_on_holds_nobody_up_for_ever() -> None:
    floors = Floors(1, (0, 1), 0)
    assert floors.sent(0, 1, AHEAD_MAX, 1) == [(0, 0)]
    assert floors.look(STALLED_NS - 1) == []
    assert floors.look(STALLED_NS) == [(0, None)]
    assert floors.sent(0, 0, 7, STALLED_NS + 1) == [(0, 7)]

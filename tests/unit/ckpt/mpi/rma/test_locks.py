"""The lock of a window: every sequence of calls of three origins, and what each rule is for."""

from __future__ import annotations

import itertools
from collections import deque

import pytest

from ckpt.mpi.rma.locks import LockQueue

ORIGINS = range(3)


def explore(depth: int) -> int:
    """Every sequence of asks, releases and deaths that origins may make. Returns the number of states."""
    first = (None, frozenset(), (), frozenset())
    seen = {first}
    todo = deque([(first, depth)])
    while todo:
        (exclusive, shared, waiting, dead), left = todo.popleft()
        if not left:
            continue
        for origin, call in itertools.product(ORIGINS, ("share", "own", "release", "die")):
            queue = LockQueue()
            queue.exclusive, queue.shared, queue.waiting = exclusive, set(shared), deque(waiting)
            busy = queue.holds(origin) or any(each[0] == origin for each in waiting)
            if origin in dead or (call in ("share", "own") and busy) or (call == "release" and not busy):
                continue
            before = [each[0] for each in waiting]
            if call == "die":
                grants = queue.lost(origin)
            elif call == "release":
                grants = queue.release(origin)
            else:
                grants = queue.ask(origin, 7, exclusive=call == "own")
                before.append(origin)
            check(queue, [each for each in before if each != origin or call in ("share", "own")], grants)
            gone = dead | {origin} if call == "die" else dead
            assert not any(queue.holds(each) or each in [e[0] for e in queue.waiting] for each in gone)
            state = (queue.exclusive, frozenset(queue.shared), tuple(queue.waiting), gone)
            if state not in seen:
                seen.add(state)
                todo.append((state, left - 1))
    return len(seen)


def check(queue: LockQueue, asked: list[int], grants: list[tuple[int, int]]) -> None:
    assert not (queue.exclusive is not None and queue.shared), "exclusive and shared at once"
    granted = [origin for origin, _ in grants]
    assert asked == granted + [each[0] for each in queue.waiting], "first come, first served"
    assert all(queue.holds(origin) for origin in granted)
    if queue.waiting:
        _, exclusive, _ = queue.waiting[0]
        assert queue.exclusive is not None or (exclusive and queue.shared), (
            "the lock is free, and somebody waits"
        )


def test_every_sequence_of_three_origins() -> None:
    assert explore(9) > 100


def test_a_stream_of_shared_locks_does_not_keep_an_exclusive_one_waiting() -> None:
    queue = LockQueue()
    assert queue.ask(0, 1, exclusive=False) == [(0, 1)]
    assert queue.ask(1, 2, exclusive=True) == []
    assert queue.ask(2, 3, exclusive=False) == []
    assert queue.release(0) == [(1, 2)]
    assert queue.release(1) == [(2, 3)]


def test_the_lock_of_a_dead_origin_goes_to_the_next() -> None:
    queue = LockQueue()
    queue.ask(0, 1, exclusive=True)
    queue.ask(1, 2, exclusive=True)
    queue.ask(2, 3, exclusive=False)
    assert queue.lost(1) == []
    assert queue.lost(0) == [(2, 3)]


def test_a_lock_that_is_not_held_cannot_be_released() -> None:
    with pytest.raises(ValueError, match="rank 1 does not hold"):
        LockQueue().release(1)

"""Planes that do not come on while others have: named after a minute of their own, and never because they are slow alike."""

from __future__ import annotations

from ckpt.controller.replicas.stalls import PATIENCE_NS, Stalls

S = 1_000_000_000


def looks(stalls: Stalls, well: set[int], from_s: int, to_s: int) -> list[tuple[int, set[int]]]:
    """When each answer was first given, in s."""
    found: list[tuple[int, set[int]]] = []
    for second in range(from_s, to_s + 1):
        stalled = stalls.look(well, second * S)
        if stalled != (found[-1][1] if found else set()):
            found.append((second, stalled))
    return found


def test_a_plane_that_another_one_has_passed_and_that_does_not_move_is_stalled_after_a_minute() -> None:
    stalls = Stalls(2, (0, 1, 2), 0)
    stalls.sent(1, 0, 1, S)
    stalls.sent(1, 1, 1, S)
    assert looks(stalls, {0, 1, 2}, 1, 200) == [(60, {2})]
    stalls.sent(0, 2, 1, 201 * S)
    assert looks(stalls, {0, 1, 2}, 201, 300) == []


def test_nobody_is_stalled_where_nobody_has_come_further() -> None:
    stalls = Stalls(1, (0, 1), 0)
    for plane in (0, 1):
        stalls.sent(0, plane, 5, S)
    assert looks(stalls, {0, 1}, 1, 10_000) == []


def test_a_step_may_take_one_plane_as_long_as_another_one_and_more() -> None:
    stalls = Stalls(1, (0, 1), 0)
    stalls.sent(0, 0, 1, 300 * S)
    assert looks(stalls, {0, 1}, 300, 2_000) == [(300 + 598, {1})]


def test_time_in_which_a_plane_does_not_answer_does_not_count() -> None:
    stalls = Stalls(1, (0, 1), 0)
    stalls.sent(0, 0, 1, S)
    assert looks(stalls, {0}, 1, 500) == []
    assert stalls.look({0, 1}, 10_000 * S) == set()
    assert looks(stalls, {0, 1}, 10_001, 10_100) == [(10_000 + 58, {1})]


def test_the_end_of_a_program_counts_and_a_lost_plane_does_not() -> None:
    stalls = Stalls(1, (0, 1, 2), 0)
    stalls.sent(0, 2, 7, S)
    stalls.left((0, 1))
    assert looks(stalls, {0, 1}, 1, 200) == []
    stalls.finished(0, 0, 10 * S)
    assert looks(stalls, {0, 1}, 201, 300) == [(260, {1})]


def test_a_copy_is_behind_until_it_has_come_as_far() -> None:
    stalls = Stalls(1, (0, 1), 0)
    stalls.sent(0, 0, 7, S)
    stalls.left((0,))
    stalls.joined(2, 100 * S)
    stalls.look({0, 2}, 100 * S)
    assert looks(stalls, {0, 2}, 101, 157) == []
    stalls.sent(0, 2, 7, 158 * S)
    assert looks(stalls, {0, 2}, 158, 500) == []
    assert PATIENCE_NS == 60 * S

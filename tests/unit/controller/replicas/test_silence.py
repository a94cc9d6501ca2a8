"""Processes that tell nothing: lost after a while in which enough others were well, and for nothing else."""

from __future__ import annotations

from collections.abc import Callable

from ckpt.controller.replicas.silence import LOOK_NS, SILENT_NS, START_NS, Silence

PLANES = {0: {0, 3}, 1: {1, 4}, 2: {2, 5}}


def looks(
    silence: Silence, tells: Callable[[int, int], bool], from_s: int, to_s: int, longest_ns: int = SILENT_NS
) -> tuple[int, set[int]] | None:
    """When planes were lost, in s, and which."""
    for second in range(from_s, to_s):
        for process in range(6):
            if tells(process, second):
                silence.heard(process)
        _, lost = silence.look(PLANES, 2, longest_ns, second * LOOK_NS)
        if lost:
            return second, lost
    return None


def test_one_that_is_silent_while_the_others_are_not_is_lost_after_ten_seconds() -> None:
    assert looks(Silence(0), lambda process, second: process != 5, 1, 100) == (10, {2})


def test_a_word_now_and_then_is_enough() -> None:
    assert looks(Silence(0), lambda process, second: process != 5 or second % 9 == 0, 1, 500) is None


def test_where_most_are_silent_nobody_is_lost_and_that_time_does_not_count() -> None:
    silence = Silence(0)
    assert looks(silence, lambda process, second: process in PLANES[0], 1, 100) is None
    assert looks(silence, lambda process, second: process not in PLANES[2], 100, 108) is None
    assert looks(silence, lambda process, second: process not in PLANES[2], 108, 200) == (108, {2})


def test_a_long_time_between_two_looks_counts_as_a_short_one() -> None:
    silence = Silence(0)
    for second in (100, 200, 300, 400):
        for process in (0, 1, 3, 4):
            silence.heard(process)
        assert silence.look(PLANES, 2, SILENT_NS, second * LOOK_NS) == ({0, 1}, set())


def test_who_waits_for_the_others_is_well_and_has_longer_for_its_first_word() -> None:
    silence = Silence(0)
    for second in range(1, 300):
        for process in (0, 1, 3, 4, 5):
            silence.waits(process)
        well, lost = silence.look(PLANES, 2, START_NS, second * LOOK_NS)
        assert {0, 1} <= well or lost
        if lost:
            break
    assert (second, lost) == (60, {2})
    assert looks(silence, lambda process, second: process != 0, 61, 200) == (80, {0})

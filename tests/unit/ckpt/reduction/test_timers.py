"""Timers of reductions: the thread is woken for what comes before it wakes by itself, and for nothing else."""

from __future__ import annotations

import pytest

from ckpt.reduction import posted
from ckpt.reduction.posted import Timers

S = 1_000_000_000


@pytest.fixture
def now_ns(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    now = [5 * S]
    monkeypatch.setattr("time.monotonic_ns", lambda: now[0])
    return now


def test_a_thread_that_sleeps_is_woken_for_what_comes_before_only(now_ns: list[int]) -> None:
    of = Timers()
    assert of.sleep_s() is None
    assert of.add(("a", 0), "warn", 60 * S)
    assert of.sleep_s() == 60
    now_ns[0] += S
    assert not of.add(("b", 0), "warn", 60 * S)
    assert of.add(("b", 0), "deadline", 2 * S)
    assert of.sleep_s() == 2


def test_what_is_added_while_the_thread_looks_wakes_it(
    now_ns: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    of = Timers()
    of.add(("a", 0), "warn", 60 * S)
    of.sleep_s()
    woken = []

    def smallest(values: list[int], default: int) -> int:
        woken.append(of.add(("b", 0), "warn", 61 * S))
        return sorted(values)[0]

    monkeypatch.setattr(posted, "min", smallest, raising=False)
    of.sleep_s()
    assert woken == [True]


def test_each_runs_out_once_and_none_of_what_is_done(now_ns: list[int]) -> None:
    of = Timers()
    for name in ("a", "b", "c"):
        of.add((name, 0), "warn", S)
        of.add((name, 0), "deadline", S)
    of.add(("d", 0), "warn", 2 * S)
    of.drop(("b", 0))
    now_ns[0] += S
    keys = [(key[0], what) for key, what in of.take()]
    assert keys == [("a", "warn"), ("a", "deadline"), ("c", "warn"), ("c", "deadline")]
    assert of.take() == [] and list(of.due_ns) == [(("d", 0), "warn")]


def test_many_short_reductions_leave_no_timers(now_ns: list[int]) -> None:
    """Each left one for a minute, in a list that was sorted at each call: a loop of short reductions became ever slower."""
    of = Timers()
    for number in range(100):
        of.add(("", number), "warn", 60 * S)
        of.drop(("", number))
    assert not of.due_ns


def test_a_program_that_has_ended_warns_of_nobody() -> None:
    """The thread posted a warning to a library that had ended, and printed a traceback."""
    timers = Timers()
    timers.add(("a", 0), "warn", 0)
    timers.add(("a", 0), "deadline", 0)
    timers.drop_warnings()
    assert timers.take() == [(("a", 0), "deadline")]

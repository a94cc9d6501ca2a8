"""Which values are taken for times of the moment."""

import datetime
import time
from collections.abc import Callable
from typing import Any

import pytest

from ckpt.image.lowlevel.import_times import Moment, mark_times

RECENT: dict[str, Callable[[], Any]] = {
    "seconds": time.time,
    "whole seconds": lambda: int(time.time()),
    "milliseconds": lambda: int(time.time() * 1000),
    "nanoseconds": time.time_ns,
    "monotonic seconds": time.monotonic,
    "monotonic nanoseconds": time.perf_counter_ns,
    # 17 µs behind a whole millisecond
    "monotonic nanoseconds that happen to be whole microseconds": lambda: (
        time.perf_counter_ns() // 10**6 * 10**6 - 17_000
    ),
    "local date": datetime.datetime.now,
    "date of a zone": lambda: datetime.datetime.now(datetime.UTC),
}
OTHER: dict[str, Callable[[], Any]] = {
    "an hour ago": lambda: time.time() - 3600,
    "a small number": lambda: 42,
    "a whole number of seconds since the machine's start": lambda: float(int(time.monotonic())),
    "a round number of nanoseconds since then": lambda: time.perf_counter_ns() // 10**6 * 10**6,
    "text": lambda: "2026",
    "truth": lambda: True,
    "a date of the calendar": datetime.date.today,
}


@pytest.mark.parametrize("name", RECENT)
def test_what_a_clock_has_just_shown_is_a_time_of_the_moment(name: str) -> None:
    value = RECENT[name]()
    assert mark_times({"value": value})["value"] is not value


@pytest.mark.parametrize("name", OTHER)
def test_other_values_are_none(name: str) -> None:
    value = OTHER[name]()
    assert mark_times({"value": value})["value"] is value


def test_what_a_clock_will_show_is_none_yet() -> None:
    assert not Moment().is_shown(time.time() + 60)

"""Which values are taken for times of the moment."""

import datetime
import time
from typing import Any

import pytest

from ckpt.image.lowlevel.import_times import Moment, mark_times

NOW_NS = time.perf_counter_ns()
RECENT = {
    "seconds": time.time(),
    "whole seconds": int(time.time()),
    "milliseconds": int(time.time() * 1000),
    "nanoseconds": time.time_ns(),
    "monotonic seconds": time.monotonic(),
    "monotonic nanoseconds": NOW_NS,
    "monotonic nanoseconds that happen to be whole microseconds": NOW_NS // 1000 * 1000
    + (NOW_NS // 1000 % 1000 == 0) * 1000,
    "local date": datetime.datetime.now(),
    "date of a zone": datetime.datetime.now(datetime.UTC),
}
OTHER = {
    "an hour ago": time.time() - 3600,
    "a small number": 42,
    "a whole number of seconds since the machine's start": float(int(time.monotonic())),
    "a round number of nanoseconds since then": NOW_NS // 10**6 * 10**6,
    "text": "2026",
    "truth": True,
    "a date of the calendar": datetime.date.today(),
}


@pytest.mark.parametrize("name", RECENT)
def test_what_a_clock_has_just_shown_is_a_time_of_the_moment(name: str) -> None:
    value: Any = RECENT[name]
    assert mark_times({"value": value})["value"] is not value


@pytest.mark.parametrize("name", OTHER)
def test_other_values_are_none(name: str) -> None:
    value: Any = OTHER[name]
    assert mark_times({"value": value})["value"] is value


def test_what_a_clock_will_show_is_none_yet() -> None:
    assert not Moment().is_shown(time.time() + 60)

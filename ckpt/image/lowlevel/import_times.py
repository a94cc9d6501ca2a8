"""Values that are times of the moment: a package that notes when it is imported (``start_time = time.time()``) has such a
value from its import on, and another one from that in another process.

A value is taken for a time of the moment if it is what a clock has shown in the last BEFORE_S seconds:

    float      seconds of the wall clock, or of the monotonic one; of the latter no whole ones
    int        seconds, ms, µs or ns of the wall clock, ns of the monotonic one; of the latter no whole ms
    datetime   local or universal time, or with a zone of the standard library

So long, since under ``--redundancy`` a clock shows what the leader has been told, who may be ahead. A constant that is taken
for such a time does no harm: it is saved, and set to the same value again.
"""

from __future__ import annotations

import sys
import time
import types
from collections.abc import Mapping
from typing import Any

from ckpt.image.lowlevel.inspect_raw import is_a

__all__ = ["mark_times"]

BEFORE_S = 120.0
_UNITS = (1, 10**3, 10**6, 10**9)
_MOST_KINDS = frozenset(
    {
        str,
        bool,
        type(None),
        bytes,
        dict,
        list,
        tuple,
        set,
        frozenset,
        type,
        property,
        staticmethod,
        classmethod,
    }
    | {types.FunctionType, types.BuiltinFunctionType, types.ModuleType}
)
"""Types of most values, which are not looked at."""
_UNIX_DAY = 719_163


def mark_times(values: Mapping[str, Any]) -> dict[str, Any]:
    """A copy; in the place of each value that is a time of the moment there is another object: so it counts as changed."""
    moment = Moment()
    shown = [
        name for name, value in values.items() if type(value) not in _MOST_KINDS and moment.is_shown(value)
    ]
    return {**values, **{name: object() for name in shown}}


class Moment:
    """Now, by the wall clock and by the monotonic one, which is that of ``perf_counter``, too."""

    def __init__(self) -> None:
        self.wall_s, self.monotonic_s = time.time(), time.monotonic()

    def is_shown(self, value: Any) -> bool:
        """Have the clocks shown this lately?"""
        cls = type(value)
        if cls is float:
            is_wall = 0 <= self.wall_s + 1 - value <= BEFORE_S
            return is_wall or (0 <= self.monotonic_s + 1 - value <= BEFORE_S and not value.is_integer())
        if cls is int:
            if value < BEFORE_S * 10**6:  # most integers
                return False
            is_wall = any(0 <= (self.wall_s + 1) * unit - value <= BEFORE_S * unit for unit in _UNITS)
            return is_wall or (
                0 <= (self.monotonic_s + 1) * 1e9 - value <= BEFORE_S * 1e9 and value % 10**6 != 0
            )
        dates = sys.modules.get("datetime")
        return dates is not None and is_a(value, dates.datetime) and self._is_date(dates, value)

    def _is_date(self, dates: Any, value: Any) -> bool:
        genuine = dates.datetime
        zone = genuine.tzinfo.__get__(value)
        if zone is not None and type(zone) is not dates.timezone:
            return False  # its methods are not of the standard library
        try:
            stamps = [genuine.timestamp(value)]
        except (ValueError, OverflowError):  # datetime.min and the like
            return False
        if zone is None:
            day = genuine.timetuple(value)
            seconds = (day.tm_hour * 60 + day.tm_min) * 60 + day.tm_sec
            stamps.append((genuine.toordinal(value) - _UNIX_DAY) * 86_400 + seconds)
        return any(0 <= self.wall_s + 1 - stamp <= BEFORE_S for stamp in stamps)

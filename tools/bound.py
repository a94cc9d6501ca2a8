"""The time limits of the test runs, and a clock that does not count the time that the host gave to other virtual machines.

    python tools/bound.py                  print the present time; keep it and pass it later as SINCE
    python tools/bound.py ci SINCE         exit code 1 if more time than the limit has passed since then

The limits are in `BOUNDS_S`, for two processors. The time that counts is wall-clock time less stolen time: `steal` in
/proc/stat divided by the number of processors, the time for which the host gave the processors to other virtual machines. So
a test run does not fail because another virtual machine was busy. If no time is stolen, or it is not known, this is
wall-clock time.
"""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import asdict, dataclass

BOUNDS_S = {"test": 600, "ci": 1200}
_STEAL = 8  # of the line "cpu": user nice system idle iowait irq softirq steal …, counted after its name


@dataclass(frozen=True)
class Moment:
    """A point in time: wall-clock time, and the stolen time until then."""

    wall_s: float
    stolen_s: float

    @classmethod
    def now(cls) -> Moment:
        return cls(time.monotonic(), stolen_s())

    def since(self, before: Moment) -> tuple[float, float]:
        """(Seconds of wall-clock time since then, seconds that count.)"""
        wall = self.wall_s - before.wall_s
        return wall, wall - min(max(self.stolen_s - before.stolen_s, 0.0), wall)


def stolen_s(path: str = "/proc/stat") -> float:
    """Seconds stolen from each processor, on average, since the machine was started."""
    try:
        with open(path, encoding="ascii") as source:
            fields = source.readline().split()
        return int(fields[_STEAL]) / os.sysconf("SC_CLK_TCK") / (os.cpu_count() or 1)
    except (OSError, ValueError, IndexError):
        return 0.0


def verdict(name: str, before: Moment, now: Moment) -> tuple[bool, str]:
    """(Is the limit of that name kept?, a line that says so.)"""
    wall, counted = now.since(before)
    kept = counted <= BOUNDS_S[name]
    text = f"{name}: {counted:.0f} s of at most {BOUNDS_S[name]} s"
    if wall - counted >= 1:
        text += f" ({wall:.0f} s of the wall, {wall - counted:.0f} s stolen from this machine)"
    return kept, text if kept else f"{text}: TOO LONG"


def main(arguments: list[str]) -> int:
    if not arguments:
        print(json.dumps(asdict(Moment.now())))
        return 0
    name, since = arguments
    kept, text = verdict(name, Moment(**json.loads(since)), Moment.now())
    print(text)
    return not kept


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

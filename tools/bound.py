"""How long the tests may take, and a clock that a neighbour on the machine does not fail.

    python tools/bound.py                  what time it is: to be kept, and given back as SINCE
    python tools/bound.py ci SINCE         exit code 1 if more than the bound has passed since then

The bounds are in `BOUNDS_S`, for two processors. What counts is the time of the wall less the time that the machine under a
virtual one gave to others while we wanted to compute (`steal` in /proc/stat, over the number of processors): a commit
is not slower because a neighbour was busy. Where nothing is stolen, or nothing is known, this is the time of the wall.
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
    """A time of the wall that goes on over reboots of nothing but this machine, and what was stolen until then."""

    wall_s: float
    stolen_s: float

    @classmethod
    def now(cls) -> Moment:
        return cls(time.monotonic(), stolen_s())

    def since(self, before: Moment) -> tuple[float, float]:
        """Seconds of the wall, and those of them that count."""
        wall = self.wall_s - before.wall_s
        return wall, wall - min(max(self.stolen_s - before.stolen_s, 0.0), wall)


def stolen_s(path: str = "/proc/stat") -> float:
    """Seconds stolen from a processor, on average over the processors, since the machine runs."""
    try:
        with open(path, encoding="ascii") as source:
            fields = source.readline().split()
        return int(fields[_STEAL]) / os.sysconf("SC_CLK_TCK") / (os.cpu_count() or 1)
    except (OSError, ValueError, IndexError):
        return 0.0


def verdict(name: str, before: Moment, now: Moment) -> tuple[bool, str]:
    """Whether the bound of that name is kept, and a line that says so."""
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

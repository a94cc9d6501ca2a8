"""What `ckpt run` costs a program that takes no checkpoint: pure Python beside plain `python`, in pairs, and the start.

    python -m benchmarks.overhead [--rounds 9] [--quick]

Every round runs each program of `programs/pure.py` once plainly and once under `ckpt run -n 1`, one right after the other,
every other round the other way round. Compared is the CPU time of the process for the same work, all its threads included,
since the wall time on a machine that others use says little; each program's figure is the median of the pairs' ratios. The
start is the wall time from the command to the first statement of the program, beyond what plain Python needs for that.

Goal: the median program at most 1.02 ×, the start at most 0.15 s.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.spine_jobs import PROGRAMS, Figure, Job, Row, environment, run_suite, scratch

NAMES = (
    *("nbody", "richards", "texts", "patterns", "containers"),
    *("generators", "exceptions", "calls", "objects"),
)
GOAL = 1.02
START_GOAL_MS = 150.0


def read(out: Path, started_ns: int) -> tuple[float, float]:
    """(ms from the command to the program's first statement, CPU ms of its work)."""
    began_ns, took_ns = map(int, out.read_text().split())
    return (began_ns - started_ns) / 1e6, took_ns / 1e6


def plain(folder: Path, name: str, scale: int) -> tuple[float, float]:
    """The program as it is."""
    out = folder / "out"
    started_ns = time.monotonic_ns()
    subprocess.run(
        [sys.executable, PROGRAMS / "pure.py", name, str(scale), out],
        env=environment(), check=True, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    return read(out, started_ns)


def ours(folder: Path, name: str, scale: int) -> tuple[float, float]:
    """The same under `ckpt run`."""
    out = folder / "out"
    with Job(folder / f"job-{time.monotonic_ns()}", "pure.py", name, scale, out, ranks=1) as job:
        job.finish()
    return read(out, job.started_ns)


def measure(rounds: int, quick: bool) -> list[Row]:
    """All pairs, every round."""
    scale, count = (1, 3) if quick else (10, rounds)
    ratios: dict[str, list[float]] = {name: [] for name in NAMES}
    starts: list[float] = []
    for number in range(count):
        with scratch() as folder:
            for name in NAMES:
                ways = (plain, ours) if number % 2 == 0 else (ours, plain)
                found = {way.__name__: way(folder, name, scale) for way in ways}
                ratios[name].append(found["ours"][1] / found["plain"][1])
                starts.append(found["ours"][0] - found["plain"][0])
    rows: list[Row] = [Figure(f"{name}: CPU time", "x", tuple(values)) for name, values in ratios.items()]
    medians = tuple(statistics.median(values) for values in ratios.values())
    rows.append(Figure("the median program: CPU time", "x", medians, GOAL))
    rows.append(Figure("start of one rank, beyond Python's", "ms", tuple(starts), START_GOAL_MS))
    return rows


if __name__ == "__main__":
    sys.exit(run_suite(measure, __doc__, rounds=9))

"""What checkpoints cost a real program: the demo's tsunami with one every 10 s, one every second, and none.

    python -m benchmarks.spine_overhead [--rounds 5] [--quick]

Every round runs the program once each way, in turn; compared are the CPU time of all processes of the job (writing
the images included) and the wall time. On a machine that others use too, the wall time of a run of half a minute
varies by more than what is looked for. The CPU time varies less, and the extra cost of ten times as many
checkpoints, divided by ten, still less: that is the third ratio.

Goal: CPU and wall time with a checkpoint every 10 s at most 1.02 × without.
"""

from __future__ import annotations

import importlib.util
import os
import statistics
import sys
from pathlib import Path

from benchmarks.spine_jobs import ROOT, Figure, Job, Row, Skipped, run_suite, scratch

GOAL = 1.02
PROGRAM = ROOT / "examples" / "tsunami" / "tsunami.py"
WAYS = {"none": (), "10 s": ("--every", "10"), "1 s": ("--every", "1")}


def run(folder: Path, flags: tuple[str, ...], hours: float, refine: int) -> tuple[float, float, int]:
    """CPU seconds, wall seconds, checkpoints of one run."""
    before = os.times()
    program = ("--out", folder / "out", "--hours", hours, "--refine", refine)
    with Job(folder / "job", PROGRAM, *program, ranks=4, flags=flags) as job:
        job.finish(600)
    after = os.times()
    cpu_s = after.children_user + after.children_system - before.children_user - before.children_system
    return cpu_s, after.elapsed - before.elapsed, len(job.of("committed"))


def measure(rounds: int, quick: bool) -> list[Row]:
    """All ways in turn."""
    if importlib.util.find_spec("matplotlib") is None:
        return [Skipped("checkpoints in the demo", "its data is missing: examples/tsunami/requirements.txt")]
    hours, refine = (0.4, 5) if quick else (0.8, 5)
    found: dict[str, list[tuple[float, float, int]]] = {name: [] for name in WAYS}
    for _ in range(1 if quick else rounds):
        for name, flags in WAYS.items():
            with scratch() as folder:
                found[name].append(run(folder, flags, hours, refine))

    def ratios(name: str, part: int) -> tuple[float, ...]:
        return tuple(a[part] / b[part] for a, b in zip(found[name], found["none"], strict=True))

    def each(name: str, part: int) -> tuple[float, ...]:
        return tuple(values[part] for values in found[name])

    frequent = tuple(1.0 + (ratio - 1.0) / 10.0 for ratio in ratios("1 s", 0))
    counts = {name: statistics.median(each(name, 2)) for name in WAYS}
    return [
        Figure("every 10 s / none: CPU time", "x", ratios("10 s", 0), GOAL),
        Figure("every 10 s / none: wall time", "x", ratios("10 s", 1), GOAL),
        Figure("from every 1 s: 10 s / none: CPU time", "x", frequent, GOAL),
        Figure("every 1 s / none: CPU time", "x", ratios("1 s", 0)),
        Figure("every 1 s / none: wall time", "x", ratios("1 s", 1)),
        Figure("without: CPU time", "s", each("none", 0)),
        Figure("without: wall time", "s", each("none", 1)),
        Figure("checkpoints in a run of every 10 s", "", (counts["10 s"],)),
        Figure("checkpoints in a run of every 1 s", "", (counts["1 s"],)),
    ]


if __name__ == "__main__":
    sys.exit(run_suite(measure, __doc__))

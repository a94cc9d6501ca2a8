"""What a rank that cannot be saved costs the program: checkpoints asked for in vain, beside none asked for, in pairs.

    python -m benchmarks.overhead_refused [--rounds 5] [--quick]

Every round runs the program of `programs/refused.py` once without checkpoints and once with `--every 0.5`, one right after
the other, every other round the other way round, for each thing that stands in the way on rank 1. Compared are the wall
time of the work and the CPU time of both ranks. That no line was committed is checked.

Goal: the median pair at most 1.03 × in CPU time.
"""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.spine_jobs import Figure, Job, Row, run_suite, scratch

OBSTACLES = ("sum", "sorted", "thread")
GOAL = 1.03


def run(folder: Path, obstacle: str, scale: int, flags: tuple[str, ...]) -> tuple[float, float, int]:
    """(wall ms, CPU ms, lines committed) of one job."""
    out = folder / "out"
    job_folder = folder / f"job-{obstacle}-{len(list(folder.iterdir()))}"
    with Job(job_folder, "refused.py", obstacle, scale, out, ranks=2, flags=flags) as job:
        job.finish()
        committed = len(job.of("committed"))
    wall_ns, cpu_ns = map(int, out.read_text().split())
    return wall_ns / 1e6, cpu_ns / 1e6, committed


def measure(rounds: int, quick: bool) -> list[Row]:
    """All pairs, every round."""
    scale, count = (4, 1) if quick else (30, rounds)
    ratios: dict[str, list[float]] = {}
    for number in range(count):
        with scratch() as folder:
            for obstacle in OBSTACLES:
                both: tuple[tuple[str, ...], ...] = ((), ("--every", "0.5"))
                found = {
                    flags: run(folder, obstacle, scale, flags)
                    for flags in (both if number % 2 == 0 else both[::-1])
                }
                without, refused = found[both[0]], found[both[1]]
                if refused[2]:
                    raise RuntimeError(
                        f"{obstacle}: {refused[2]} lines were committed: nothing stood in the way"
                    )
                ratios.setdefault(f"{obstacle}: wall time", []).append(refused[0] / without[0])
                ratios.setdefault(f"{obstacle}: CPU time", []).append(refused[1] / without[1])
    return [
        Figure(name, "x", tuple(values), GOAL if name.endswith("CPU time") else None)
        for name, values in ratios.items()
    ]


if __name__ == "__main__":
    sys.exit(run_suite(measure, __doc__, rounds=5))

"""`ckpt.reduction` beside ckpt's own Allreduce, four ranks: nobody late, one late, several at once.

    python -m benchmarks.reduction [--rounds 1] [--quick]

Milliseconds at the last rank, from its call to its result. All contestants take turns in one job.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from benchmarks.spine_jobs import Figure, Job, Row, run_suite, scratch

RANKS = 4


def job(folder: Path, quick: bool) -> dict[str, dict[str, list[float]]]:
    """The times of one job."""
    out = folder / "times"
    with Job(
        folder / "job", "reductions.py", out, "ckpt", *(["quick"] if quick else []), ranks=RANKS
    ) as running:
        running.finish()
    found: dict[str, dict[str, list[float]]] = json.loads(out.read_text())
    return found


def measure(rounds: int, quick: bool) -> list[Row]:
    """Every case: the times, and the ratios of each round to Allreduce."""
    rows: list[Row] = []
    for _ in range(rounds):
        with scratch() as folder:
            for case, times in job(folder, quick).items():
                base = times["Allreduce"]
                for name, values in times.items():
                    rows.append(Figure(f"{case}: {name}", "ms", tuple(values)))
                    if name != "Allreduce":
                        ratios = tuple(a / b for a, b in zip(values, base, strict=True))
                        rows.append(Figure(f"{case}: {name} / Allreduce", "x", ratios))
    return rows


if __name__ == "__main__":
    sys.exit(run_suite(measure, __doc__, rounds=1))

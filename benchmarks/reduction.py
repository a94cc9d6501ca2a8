"""`ckpt.reduction` beside ckpt's own Allreduce and MPICH's, four ranks; and the paper's figures, simulated.

    python -m benchmarks.reduction [--rounds 1] [--quick] [--simulated]

Milliseconds at the last rank, from its call to its result. All contestants of ckpt take turns in one job; MPICH's job comes
right after it, where `python -m benchmarks.peers --install` has made one. `--simulated`: only the figures and tables of Li,
Zhao, Yan et al. (2018), by the scheduler that ships (benchmarks/reduction_simulated.py).
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from statistics import median

from benchmarks.peers import Skipped, find_mpi, theirs
from benchmarks.spine_jobs import Figure, Job, Row, run_suite, scratch

RANKS = 4
GOALS = {
    # (case, contestant): times Allreduce
    **{(size, "reduction"): 1.0 for size in ("128 KB", "1 MB", "8 MB", "32 MB")},
    ("8 MB, the last rank 50 ms late", "reduction"): 0.4,
    ("4 at once of 8 MB", "reduction"): 1.0,
    ("28 at once of 8 MB", "reduction"): 1.0,
}
Times = dict[str, dict[str, list[float]]]


def job(folder: Path, quick: bool) -> Times:
    """The times of one job."""
    out = folder / "times"
    with Job(
        folder / "job", "reductions.py", out, "ckpt", *(["quick"] if quick else []), ranks=RANKS
    ) as running:
        running.finish()
    found: Times = json.loads(out.read_text())
    return found


def measure(rounds: int, quick: bool) -> list[Row]:
    """Every case: the times, and the ratios of each round to Allreduce; to the median of MPICH's."""
    rows: list[Row] = []
    mpi = find_mpi("MPICH")
    if isinstance(mpi, Skipped):
        rows.append(mpi)
    for _ in range(rounds):
        with scratch() as folder:
            found = job(folder, quick)
            other: Times = {}
            if not isinstance(mpi, Skipped):
                other = theirs(folder, mpi, "reductions.py", RANKS, *(["quick"] if quick else []))  # type: ignore[assignment]
        for case, times in found.items():
            base = times["Allreduce"]
            mpich = other.get(case, {}).get("Allreduce", [])
            for name, values in times.items():
                rows.append(Figure(f"{case}: {name}", "ms", tuple(values)))
                if name != "Allreduce":
                    ratios = tuple(a / b for a, b in zip(values, base, strict=True))
                    goal = GOALS.get((case, name))
                    rows.append(Figure(f"{case}: {name} / Allreduce", "x", ratios, goal))
                    if mpich:
                        ratios = tuple(a / median(mpich) for a in values)
                        rows.append(Figure(f"{case}: {name} / MPICH", "x", ratios))
            none, two = times["reduction, no copies"], times["reduction, two copies"]
            cost = tuple(a / b for a, b in zip(two, none, strict=True))
            rows.append(Figure(f"{case}: two copies / none", "x", cost, 1.25))
            if mpich:
                rows.append(Figure(f"{case}: MPICH", "ms", tuple(mpich)))
    return rows


if __name__ == "__main__":
    if "--simulated" in sys.argv:
        from benchmarks import reduction_simulated

        sys.exit(reduction_simulated.main())
    sys.exit(run_suite(measure, __doc__, rounds=1))

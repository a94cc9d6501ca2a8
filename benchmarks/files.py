"""What it costs a program that writes files that a restart can put them back: `--files auto` beside `--files off`, in pairs.

    python -m benchmarks.files [--rounds 5] [--quick]

Every round runs each kind of work of `programs/files.py` under both, one right after the other, every other round the other
way round. Compared is the wall time of the work; each figure is the median of the pairs' ratios. The last figure is how long
a restart takes to put back ten thousand files that were replaced.

Goal: at most 1.05 × for new files and for their removal, 1.02 × for logs, 2 s for the restart.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from benchmarks.spine_jobs import Figure, Job, Row, run_suite, scratch
from ckpt.undo.restart.restoring import undo
from ckpt.undo.watching import FileWatch

WORK = {
    "create": (100_000, 1.05),
    "remove": (50_000, 1.05),
    "append": (100_000, 1.02),
    "replace": (20_000, 1.05),
}
FILES = 10_000
RESTART_GOAL_MS = 2000.0


def took_ns(folder: Path, what: str, count: int, choice: str) -> int:
    out = folder / "out"
    name = folder / f"job-{time.monotonic_ns()}"
    os.sync()  # what the run before has written is not this one's
    with Job(name, "files.py", what, count, out, ranks=1, flags=("--files", choice)) as job:
        job.finish()
    return int(out.read_text().split()[1])


def restart_ms(folder: Path, count: int) -> float:
    """Put back so many files that were written anew under another name."""
    job, work, key = folder / "undo", folder / "work", b"k" * 32
    job.mkdir()
    work.mkdir()
    for number in range(count):
        (work / f"{number}").write_text("then")
    watch = FileWatch(
        str(job), key, rank=0, incarnation=0, limit_bytes=1 << 30, on_uncovered=lambda epoch, each: None
    )
    watch.start(0)
    for number in range(count):
        (work / "tmp").write_text("now")
        os.replace(work / "tmp", work / f"{number}")
    watch.stop()
    began_ns = time.monotonic_ns()
    restored = undo(str(job), key, 0, highest=0, from_start=True)
    assert not restored.problems and (work / "0").read_text() == "then"
    return (time.monotonic_ns() - began_ns) / 1e6


def measure(rounds: int, quick: bool) -> list[Row]:
    """All pairs, every round."""
    ratios: dict[str, list[float]] = {what: [] for what in WORK}
    restarts: list[float] = []
    for number in range(1 if quick else rounds):
        with scratch() as folder:
            for what, (count, _) in WORK.items():
                share = count // 20 if quick else count
                choices = ("off", "auto") if number % 2 == 0 else ("auto", "off")
                found = {choice: took_ns(folder, what, share, choice) for choice in choices}
                ratios[what].append(found["auto"] / found["off"])
            restarts.append(restart_ms(folder, FILES // 20 if quick else FILES))
    rows: list[Row] = [
        Figure(f"{what}: wall time", "x", tuple(values), WORK[what][1]) for what, values in ratios.items()
    ]
    rows.append(Figure(f"{FILES} files put back", "ms", tuple(restarts), RESTART_GOAL_MS))
    return rows


if __name__ == "__main__":
    sys.exit(run_suite(measure, __doc__, rounds=5))

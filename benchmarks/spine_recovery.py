"""From kill -9 of a rank to noticing it, and to computing again, four ranks with small state.

    python -m benchmarks.spine_recovery [--rounds 5] [--quick]

Every round kills another rank of the same job, after a new commit. Noticed: the `rank-died` line of the event log.
Computing again: rank 0 of the new incarnation has finished a sum over all ranks, which it writes down itself.

Goals: noticed within 50 ms, computing again within 1 s.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from benchmarks.spine_jobs import Figure, Job, Row, named, run_suite, scratch, wait_file

NOTICED_MS, AGAIN_MS = 50.0, 1000.0
RANKS = 4


def kills(folder: Path, rounds: int) -> list[Row]:
    """One job, killed again and again."""
    beats = folder / "steps"
    noticed, fenced, hello, again = [], [], [], []
    flags = ("--every", "0.3", "--max-restarts", str(rounds + 1))
    with Job(folder / "job", "steps.py", beats, 0.001, ranks=RANKS, flags=flags) as job:
        for number in range(rounds):
            job.wait_many("a rank", named("rank-started"), RANKS * (number + 1))
            committed = len(job.of("committed"))
            job.wait_many("a commit", named("committed"), committed + 1)
            rank = number % RANKS
            pid = [event["pid"] for event in job.of("rank-started") if event["rank"] == rank][-1]
            killed_ns, killed_mono_ns = time.time_ns(), time.monotonic_ns()
            os.kill(pid, signal.SIGKILL)
            died = job.wait_many("death", named("rank-died"), number + 1)[number]
            restarting = job.wait_many("fencing", named("restarting"), number + 1)[number]
            restarted = job.wait_many("restart", named("restarted"), number + 1)[number]
            lines = wait_file(beats, number + 2, lambda: job.process.poll() is None)
            noticed.append((died["ns"] - killed_ns) / 1e6)
            fenced.append((restarting["ns"] - killed_ns) / 1e6)
            hello.append((restarted["ns"] - killed_ns) / 1e6)
            again.append((int(lines[number + 1].split()[1]) - killed_mono_ns) / 1e6)
    return [
        Figure("kill -9 to death noticed", "ms", tuple(noticed), NOTICED_MS),
        Figure("kill -9 to all old processes reaped", "ms", tuple(fenced)),
        Figure("kill -9 to all images loaded", "ms", tuple(hello)),
        Figure("kill -9 to computing again", "ms", tuple(again), AGAIN_MS),
    ]


def measure(rounds: int, quick: bool) -> list[Row]:
    """One job."""
    with scratch() as folder:
        return kills(folder, 3 if quick else rounds)


if __name__ == "__main__":
    sys.exit(run_suite(measure, __doc__, rounds=8))

"""From the command to the commit, four ranks with small state, and where the time goes.

    python -m benchmarks.spine_commit [--rounds 20] [--quick]

A round of the protocol is one sample: from `round-started` (the controller has the command) to `committed` (the
control file is durable). Two loads: ranks that compute and communicate all the time, and ranks that mostly wait.

Goal: the median is at most 100 ms (the paper: about 80 ms on its cluster).
"""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.spine_jobs import Figure, Job, Row, named, run_suite, scratch

GOAL_MS = 100.0
RANKS = 4
_LOADS = {"ranks compute": 0.0, "ranks wait": 0.005}


def commits(folder: Path, load: str, pause_s: float, rounds: int) -> list[Row]:
    """Rows of one job."""
    flags = ("--every", "0.3")
    with Job(folder / "job", "steps.py", folder / "steps", pause_s, ranks=RANKS, flags=flags) as job:
        job.wait_many("commits", named("committed"), rounds + 1)
    started = {event["epoch"]: event["ns"] for event in job.of("round-started")}
    done = {event["epoch"]: event for event in job.of("committed")}
    first, *epochs = sorted(done)

    def reached(name: str) -> tuple[float, ...]:
        """ms from the command until the last rank has got there."""
        last = [max(e["ns"] for e in job.of(name) if e["epoch"] == epoch) for epoch in epochs]
        return tuple((ns - started[epoch]) / 1e6 for ns, epoch in zip(last, epochs, strict=True))

    def of_ranks(name: str, *parts: str) -> tuple[float, ...]:
        found = []
        for event in job.of(name):
            if event["epoch"] in epochs:
                fields = event["timings"] if name == "voted" else event
                found.append(sum(fields[part] for part in parts) / 1e6)
        return tuple(found)

    def ms(epoch: int) -> float:
        return float(done[epoch]["ns"] - started[epoch]) / 1e6

    captured, voted = reached("captured"), reached("voted")
    total = tuple(ms(epoch) for epoch in epochs)
    control = tuple(end - vote for end, vote in zip(total, voted, strict=True))
    return [
        Figure(f"{load}: command to commit", "ms", total, GOAL_MS),
        Figure("  the first of the job", "ms", (ms(first),)),
        Figure("  until all ranks are captured", "ms", captured),
        Figure("  until all have voted", "ms", voted),
        Figure("  from the last vote to the commit", "ms", control),
        Figure(
            "  one rank: capture and port state", "ms", of_ranks("captured", "capture_ns", "port_save_ns")
        ),
        Figure("  one rank: prepare", "ms", of_ranks("captured", "prepare_ns")),
        Figure("  one rank: fork", "ms", of_ranks("captured", "fork_ns")),
        Figure("  one rank: stands still in all", "ms", of_ranks("captured", "pause_ns")),
        Figure("  one rank: pickling", "ms", of_ranks("voted", "pickle_ns")),
        Figure("  one rank: sync", "ms", of_ranks("voted", "sync_ns")),
        Figure("  one rank: image", "kB", tuple(e["bytes_raw"] / 1e3 for e in job.of("voted"))),
    ]


def measure(rounds: int, quick: bool) -> list[Row]:
    """Both loads."""
    rows: list[Row] = []
    for load, pause_s in _LOADS.items():
        with scratch() as folder:
            rows += commits(folder, load, pause_s, 5 if quick else rounds)
    return rows


if __name__ == "__main__":
    sys.exit(run_suite(measure, __doc__, rounds=20))

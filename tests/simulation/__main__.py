"""Repeats seeds of the job's simulation: python -m tests.simulation SEED [SEED …]"""

from __future__ import annotations

import sys

from tests.simulation.job import run_job

for seed in map(int, sys.argv[1:]):
    run = run_job(seed)
    print(*run.log, sep="\n")
    print(
        f"seed {seed}: {run.size} ranks, {run.events} events, {run.deaths} deaths, {run.commits} commits, ended"
    )
    print(f"{run.faults}\ntrace {run.trace}")

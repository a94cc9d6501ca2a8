"""How long a rank with large arrays stands still for an image, beside a bare fork and other checkpointers.

    python -m benchmarks.spine_pause [--rounds 5] [--quick]

One rank under `ckpt run -n 1` with 1 GB of arrays, half random and half compressible, every page written to
between rounds. A round: twice a bare os.fork() of that very process, then a checkpoint, three times; the ratio is
taken with the mean of the two. Peers hold the same arrays in a process of their own: dill.dump to disk (synced), criu.

Goal: the pause is at most 1.2 × the bare fork.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.image_peers import find_criu
from benchmarks.spine_jobs import PROGRAMS, Figure, Job, Row, Skipped, environment, run_suite, scratch

GOAL = 1.2


def image_of_a_rank(folder: Path, megabytes: int, rounds: int) -> list[Row]:
    """Pause and bare fork of one process, in turn."""
    path = folder / "forks"
    with Job(folder / "job", "arrays.py", megabytes, 3 * rounds, path, ranks=1) as job:
        job.finish(60.0 + rounds * 90.0)
    forks = {}
    for line in path.read_text().splitlines():
        epoch, before, after = map(int, line.split())
        forks[epoch] = (before + after) / 2
    captured = {event["epoch"]: event for event in job.of("captured")}
    commits = {event["epoch"]: event for event in job.of("committed")}
    votes = {event["epoch"]: event for event in job.of("voted")}
    epochs = [epoch for epoch in forks if epoch in commits]
    if not epochs:
        raise RuntimeError(f"no checkpoint was committed\n{job.output()}")

    def ms(name: str) -> tuple[float, ...]:
        return tuple(captured[epoch][name] / 1e6 for epoch in epochs)

    ratio = tuple(captured[epoch]["pause_ns"] / forks[epoch] for epoch in epochs)
    rows: list[Row] = [
        Figure("pause / bare os.fork() of the same process", "x", ratio, GOAL),
        Figure("bare os.fork()", "ms", tuple(forks[epoch] / 1e6 for epoch in epochs)),
        Figure("pause", "ms", ms("pause_ns")),
        *(
            Figure(f"  of it {name.removesuffix('_ns')}", "ms", ms(name))
            for name in ("capture_ns", "freeze_ns", "port_save_ns", "prepare_ns", "fork_ns", "thaw_ns")
        ),
        Figure("durable (command to commit)", "ms", tuple(commits[epoch]["ms"] for epoch in epochs)),
        Figure("image raw", "MB", tuple(votes[epoch]["bytes_raw"] / 1e6 for epoch in epochs)),
        Figure("image written", "MB", tuple(votes[epoch]["bytes_written"] / 1e6 for epoch in epochs)),
    ]
    return rows


def dill_dump(folder: Path, megabytes: int, rounds: int) -> list[Row]:
    """The program writes its arrays itself, and waits for it."""
    out = folder / "dill"
    command = [sys.executable, str(PROGRAMS / "arrays.py"), str(megabytes), str(rounds), str(out), "--dill"]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False)
    if done.returncode:
        return [Skipped("dill.dump", done.stderr.strip().splitlines()[-1])]
    size = out.stat().st_size / 1e6
    out.unlink()
    times = tuple(float(line) * 1e3 for line in done.stdout.splitlines())
    return [
        Figure("dill.dump to disk: stands still", "ms", times),
        Figure("dill.dump: written", "MB", (size,)),
    ]


def criu_dump(folder: Path, megabytes: int, rounds: int) -> list[Row]:
    """The process is imaged from outside; it stands still meanwhile."""
    criu = find_criu()
    if isinstance(criu, Skipped):
        return [criu]
    command = [sys.executable, str(PROGRAMS / "arrays.py"), str(megabytes), "0", "-", "--plain"]
    process = subprocess.Popen(
        command, env=environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, start_new_session=True
    )
    times, sizes = [], []
    try:
        assert process.stdout is not None
        process.stdout.readline()
        for number in range(rounds):
            images = folder / f"criu-{number}"
            images.mkdir()
            began = time.perf_counter()
            done = subprocess.run(
                [criu, "dump", "-t", str(process.pid), "--leave-running", "--shell-job", "-D", str(images)],
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode:
                return [Skipped("criu dump", (done.stderr.strip().splitlines() or ["failed"])[-1])]
            times.append((time.perf_counter() - began) * 1e3)
            sizes.append(sum(file.stat().st_size for file in images.iterdir()) / 1e6)
            shutil.rmtree(images)
    finally:
        os.killpg(process.pid, 9)
        process.wait()
    return [
        Figure("criu dump: stands still", "ms", tuple(times)),
        Figure("criu dump: written", "MB", tuple(sizes)),
    ]


def measure(rounds: int, quick: bool) -> list[Row]:
    """All rows; peers run fewer rounds when quick."""
    megabytes = 128 if quick else 1024
    peers = 1 if quick else rounds
    with scratch() as folder:
        rows = image_of_a_rank(folder, megabytes, rounds)
        rows += dill_dump(folder, megabytes, peers)
        rows += criu_dump(folder, megabytes, peers)
    return rows


if __name__ == "__main__":
    sys.exit(run_suite(measure, __doc__))

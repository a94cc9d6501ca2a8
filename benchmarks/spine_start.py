"""Four ranks started and through a first barrier, beside mpiexec with mpi4py.

    python -m benchmarks.spine_start [--rounds 7] [--quick]

From the start of the command (`ckpt run -n 4`, `mpiexec -n 4`) until rank 0 is through the barrier, and until the
command has ended. The mpi4py rows need `python -m benchmarks.peers` to find an MPI; otherwise they are skipped.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from benchmarks import peers
from benchmarks.spine_jobs import (
    PROGRAMS,
    Figure,
    Job,
    Row,
    Skipped,
    environment,
    run_suite,
    scratch,
    wait_for_end,
)

RANKS = 4


def ours(folder: Path) -> tuple[float, float]:
    """ms until through the barrier, and until the command has ended."""
    out = folder / "barrier"
    with Job(folder / "job", "barrier.py", out, "ckpt", ranks=RANKS) as job:
        job.finish()
        ended_ns = time.monotonic_ns()
    return (int(out.read_text()) - job.started_ns) / 1e6, (ended_ns - job.started_ns) / 1e6


def theirs(folder: Path, mpi: peers.Mpi) -> tuple[float, float]:
    """The same with mpiexec."""
    out = folder / "barrier"
    began = time.monotonic_ns()
    command = [*mpi.command(RANKS), str(PROGRAMS / "barrier.py"), str(out), "mpi4py"]
    code = wait_for_end(subprocess.Popen(command, env=mpi.environment()), 60.0)
    took = (time.monotonic_ns() - began) / 1e6
    if code:
        raise RuntimeError(f"mpiexec ended with exit code {code}")
    return (int(out.read_text()) - began) / 1e6, took


def interpreters(_: Path) -> tuple[float, float]:
    """Four Pythons that do nothing, side by side: what no command can beat."""
    began = time.monotonic_ns()
    running = [
        subprocess.Popen([sys.executable, "-c", "pass"], env=environment(), stdin=subprocess.DEVNULL)
        for _ in range(RANKS)
    ]
    for process in running:
        process.wait()
    took = (time.monotonic_ns() - began) / 1e6
    return took, took


def measure(rounds: int, quick: bool) -> list[Row]:
    """All contestants in turn, every round."""
    mpi = peers.find_mpi()
    times: dict[str, list[tuple[float, float]]] = {"ckpt": [], "mpi": [], "python": []}
    for _ in range(3 if quick else rounds):
        with scratch() as folder:
            times["ckpt"].append(ours(folder))
            if isinstance(mpi, peers.Mpi):
                times["mpi"].append(theirs(folder, mpi))
            times["python"].append(interpreters(folder))
    through = {name: tuple(value[0] for value in values) for name, values in times.items()}
    ended = {name: tuple(value[1] for value in values) for name, values in times.items()}
    rows: list[Row] = [
        Figure("ckpt run -n 4: through a barrier", "ms", through["ckpt"]),
        Figure("ckpt run -n 4: ended", "ms", ended["ckpt"]),
    ]
    if isinstance(mpi, peers.Mpi):
        rows += [
            Figure("mpiexec -n 4, mpi4py: through a barrier", "ms", through["mpi"]),
            Figure("mpiexec -n 4, mpi4py: ended", "ms", ended["mpi"]),
            Figure(
                "ckpt run / mpiexec: through a barrier",
                "x",
                tuple(a / b for a, b in zip(through["ckpt"], through["mpi"], strict=True)),
            ),
        ]
    else:
        rows.append(Skipped("mpiexec -n 4, mpi4py", mpi.reason))
    rows.append(Figure("four Pythons that do nothing", "ms", through["python"]))
    return rows


if __name__ == "__main__":
    sys.exit(run_suite(measure, __doc__, rounds=7))

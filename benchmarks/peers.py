"""mpi4py as a peer: where it is found, and messages beside our communicator.

    python -m benchmarks.peers [--install] [--rounds 5] [--quick]

`--install` makes a virtual environment with mpi4py and MPICH from the package index below `.ckpt/`, which later
runs use too; without it, and without one made before, everything that needs mpi4py is skipped with this reason.

The table runs the very same program (`programs/messages.py`: the calls are the same) under `ckpt run -n 2` and
under `mpiexec -n 2`, in turn.
"""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from benchmarks.spine_jobs import (
    PROGRAMS,
    ROOT,
    Figure,
    Job,
    Row,
    Skipped,
    environment,
    run_suite,
    scratch,
)

PLACE = ROOT / ".ckpt" / "peers"
_PACKAGES = ("mpi4py", "mpich", "numpy")
_UNITS = {"round trip 8 B": "us", "objects 8 B": "1/s", "buffers 8 B": "1/s"}


@dataclass(frozen=True)
class Mpi:
    """An mpi4py that works."""

    python: Path
    version: str

    def command(self, ranks: int) -> list[str]:
        return [str(self.python.parent / "mpiexec"), "-n", str(ranks), str(self.python)]

    def environment(self) -> dict[str, str]:
        return environment()


def install() -> None:
    """Make the virtual environment. Raises CalledProcessError."""
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(PLACE)], check=True)
    pip = [str(PLACE / "bin" / "python"), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    subprocess.run([*pip, *_PACKAGES], check=True)


@functools.cache
def find_mpi() -> Mpi | Skipped:
    """The environment that `install` made, if it works."""
    python = PLACE / "bin" / "python"
    if not python.exists():
        return Skipped("mpi4py", "none here; `python -m benchmarks.peers --install` gets it")
    probe = "from mpi4py import MPI; print(MPI.Get_library_version().split(chr(10))[0].strip(chr(0)))"
    mpi = Mpi(python, "")
    try:
        done = subprocess.run(
            [*mpi.command(1), "-c", probe], capture_output=True, text=True, check=False, timeout=60
        )
    except (OSError, subprocess.TimeoutExpired) as failure:
        return Skipped("mpi4py", str(failure))
    if done.returncode:
        return Skipped("mpi4py", (done.stderr.strip().splitlines() or ["mpiexec failed"])[-1])
    return Mpi(python, " ".join(done.stdout.split()))


def ours(folder: Path, *flags: str) -> dict[str, float]:
    """The table under `ckpt run`."""
    out = folder / "messages"
    with Job(folder / "job", "messages.py", out, "ckpt", *flags, ranks=2) as job:
        job.finish()
    found: dict[str, float] = json.loads(out.read_text())
    return found


def theirs(folder: Path, mpi: Mpi, *flags: str) -> dict[str, float]:
    """The table under mpiexec."""
    out = folder / "messages"
    command = [*mpi.command(2), str(PROGRAMS / "messages.py"), str(out), "mpi4py", *flags]
    subprocess.run(command, env=mpi.environment(), check=True, timeout=120)
    found: dict[str, float] = json.loads(out.read_text())
    return found


def measure(rounds: int, quick: bool) -> list[Row]:
    """Both, in turn."""
    mpi = find_mpi()
    flags = ("quick",) if quick else ()
    our_rounds, their_rounds = [], []
    for _ in range(2 if quick else rounds):
        with scratch() as folder:
            our_rounds.append(ours(folder, *flags))
            if isinstance(mpi, Mpi):
                their_rounds.append(theirs(folder, mpi, *flags))
    rows: list[Row] = []
    for name in our_rounds[0]:
        unit = _UNITS.get(name, "GB/s")
        mine = tuple(values[name] for values in our_rounds)
        rows.append(Figure(f"{name}: ckpt", unit, mine))
        if their_rounds:
            other = tuple(values[name] for values in their_rounds)
            rows.append(Figure(f"{name}: mpi4py", unit, other))
            ratio = tuple(a / b for a, b in zip(mine, other, strict=True))
            goal = 1.0 if name == "objects 8 B" else None
            rows.append(Figure(f"{name}: ckpt / mpi4py", "x", ratio, goal, at_least=True))
    if isinstance(mpi, Skipped):
        rows.append(mpi)
    else:
        print(f"  mpi4py over {mpi.version}")
    return rows


if __name__ == "__main__":
    if "--install" in sys.argv:
        sys.argv.remove("--install")
        install()
    sys.exit(run_suite(measure, __doc__))

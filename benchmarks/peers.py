"""mpi4py over MPICH and over Open MPI as peers: where they are found, and the same programs beside our communicator.

    python -m benchmarks.peers [--install] [--rounds 5] [--quick]

`--install` makes a virtual environment for each MPI library, from the package index, below `.ckpt/peers/`, which later
runs use too; without it, and without one made before, everything that needs that library is skipped with this reason.

The tables run the very same programs under `ckpt run`, and under both libraries' `mpiexec`, in turn: `messages.py`
(two ranks) and `collectives.py` (four). All calls are the same. Small collectives are also put beside what their number of
rounds costs in plain messages: a ring of four sends is four messages one after the other.

Goals: objects sent at mpi4py's rate; 8 MiB collectives within 3 x of MPICH; everything else is printed to compare.
"""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from collections.abc import Mapping
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
LIBRARIES = {"MPICH": "mpich", "Open MPI": "openmpi"}
"""Names as printed → packages on the index."""

_UNITS = {"objects 8 B": "1/s", "buffers 8 B": "1/s", "1 MiB": "GB/s", "64 MiB": "GB/s"}
"""Of what is a rate; the rest are microseconds."""

_LARGE = ("allreduce 8 MiB", "bcast 8 MiB", "alltoall 8 MiB")
_TABLES = (("messages.py", 2), ("collectives.py", 4))

Table = dict[str, float]


@dataclass(frozen=True)
class Mpi:
    """An mpi4py that works."""

    python: Path
    version: str

    def command(self, ranks: int) -> list[str]:
        """Of `ranks` ranks, on as many or fewer cores."""
        crowded = ["--oversubscribe"] if "openmpi" in self.python.parts else []
        return [str(self.python.parent / "mpiexec"), *crowded, "-n", str(ranks), str(self.python)]

    def environment(self) -> dict[str, str]:
        # Open MPI's ways of being told that root may run it, as in a container.
        return {
            **environment(),
            "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
            "PRTE_ALLOW_RUN_AS_ROOT": "1",
            "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        }


def install() -> None:
    """Make the virtual environments; one whose library cannot be had is left out, saying so."""
    for name, package in LIBRARIES.items():
        place = PLACE / package
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(place)], check=True)
        pip = [str(place / "bin" / "python"), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
        if subprocess.run([*pip, "mpi4py", "numpy", package], check=False).returncode:
            print(f"{name}: package {package!r} cannot be installed here")


@functools.cache
def find_mpi(name: str = "MPICH") -> Mpi | Skipped:
    """The environment that `install` made, if it works."""
    python = PLACE / LIBRARIES[name] / "bin" / "python"
    title = f"mpi4py over {name}"
    if not python.exists():
        return Skipped(title, "none here; `python -m benchmarks.peers --install` gets it")
    probe = "from mpi4py import MPI; print(MPI.Get_library_version().split(chr(10))[0].strip(chr(0)))"
    mpi = Mpi(python, "")
    try:
        done = subprocess.run(
            [*mpi.command(1), "-c", probe],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
            env=mpi.environment(),
        )
    except (OSError, subprocess.TimeoutExpired) as failure:
        return Skipped(title, str(failure))
    if done.returncode:
        return Skipped(title, (done.stderr.strip().splitlines() or ["mpiexec failed"])[-1])
    return Mpi(python, " ".join(done.stdout.split())[:40])


def ours(folder: Path, program: str, ranks: int, *flags: str) -> Table:
    """The table under `ckpt run`."""
    out = folder / f"{program}.ours"
    with Job(folder / f"job-{program}", program, out, "ckpt", *flags, ranks=ranks) as job:
        job.finish()
    found: Table = json.loads(out.read_text())
    return found


def theirs(folder: Path, mpi: Mpi, program: str, ranks: int, *flags: str) -> Table:
    """The table under mpiexec."""
    out = folder / f"{program}.theirs"
    command = [*mpi.command(ranks), str(PROGRAMS / program), str(out), "mpi4py", *flags]
    subprocess.run(command, env=mpi.environment(), check=True, timeout=300, stdin=subprocess.DEVNULL)
    found: Table = json.loads(out.read_text())
    return found


def measure(rounds: int, quick: bool) -> list[Row]:
    """All, in turn."""
    found = {name: find_mpi(name) for name in LIBRARIES}
    peers = {name: mpi for name, mpi in found.items() if isinstance(mpi, Mpi)}
    flags = ("quick",) if quick else ()
    tables: dict[str, list[Table]] = {"ckpt": [], **{name: [] for name in peers}}
    for _ in range(2 if quick else rounds):
        with scratch() as folder:
            for name, made in tables.items():
                whole: Table = {}
                for program, ranks in _TABLES:
                    if name == "ckpt":
                        whole |= ours(folder, program, ranks, *flags)
                    else:
                        whole |= theirs(folder, peers[name], program, ranks, *flags)
                made.append(whole)
    for name, mpi in peers.items():
        print(f"  {name}: mpi4py over {mpi.version}")
    return [
        *rows_beside(tables),
        *rows_of_rounds(tables["ckpt"]),
        *(mpi for mpi in found.values() if isinstance(mpi, Skipped)),
    ]


def rows_beside(tables: Mapping[str, list[Table]]) -> list[Row]:
    """Every figure of every contestant, and the ratios to ours."""
    rows: list[Row] = []
    mine = tables["ckpt"]
    for figure in mine[0]:
        for name, made in tables.items():
            values = tuple(table[figure] for table in made)
            rows.append(Figure(f"{figure}: {name}", _UNITS.get(figure, "us"), values))
        for name, made in tables.items():
            if name == "ckpt":
                continue
            ratio = tuple(own[figure] / other[figure] for own, other in zip(mine, made, strict=True))
            goal = None
            if figure == "objects 8 B":
                goal = 1.0
            elif figure in _LARGE and name == "MPICH":
                goal = 3.0
            rows.append(Figure(f"{figure}: ckpt / {name}", "x", ratio, goal, at_least=figure in _UNITS))
    return rows


def rows_of_rounds(mine: list[Table]) -> list[Row]:
    """Small collectives of four ranks, which take two rounds, beside the messages of a ring, four of them."""
    return [
        Figure(
            f"{name} / two messages of the ring", "x", tuple(t[name] / (t["ring of sends"] / 2) for t in mine)
        )
        for name in ("barrier", "allreduce 8 B", "allreduce of an object")
    ]


if __name__ == "__main__":
    if "--install" in sys.argv:
        sys.argv.remove("--install")
        install()
    sys.exit(run_suite(measure, __doc__))

"""mpi4py over MPICH and over Open MPI as peers: the whole table of messages, collectives and start, in one run.

    python -m benchmarks.peers [--install] [--rounds 5] [--quick]

`--install` makes a virtual environment with mpi4py for each MPI library, from the package index, below `.ckpt/peers/`,
which later runs use too; without it, and without one made before, everything that needs that library is skipped with this
reason. Debian's libraries (packages mpich, openmpi-bin) are taken where they are installed, else those of the package index.

The very same programs run under `ckpt run`, and under both libraries' `mpiexec`, in turn: `messages.py` (two ranks),
`collectives.py` (four) and `barrier.py` (four ranks started and through a first barrier). All calls are the same. Small
collectives are also put beside what their number of rounds costs in plain messages: a ring of four sends is four messages
one after the other.

Goals: objects sent at the rate of mpi4py on MPICH, and started as soon; 8 MiB collectives within 3 x of MPICH; small
collectives 1.5 x their messages. Everything else is printed to compare.
"""

from __future__ import annotations

import dataclasses
import functools
import glob
import json
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
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

DEBIAN = {
    "MPICH": ("/usr/bin/mpiexec.mpich", "/usr/lib/*/libmpich.so.12", "libmpi.so.12"),
    "Open MPI": ("/usr/bin/mpiexec.openmpi", "/usr/lib/*/libmpi.so.40", "libmpi.so.40"),
}
"""Names as printed → command, library, and the name by which mpi4py's wheels ask for it."""

PATIENCE_S = 300
"""A peer that takes longer for one program is left out from then on: four ranks that poll two busy cores may."""

_UNITS = {
    **dict.fromkeys(("objects 8 B", "buffers 8 B"), "1/s"),
    **dict.fromkeys(("16 KiB", "64 KiB", "256 KiB", "1 MiB", "64 MiB"), "GB/s"),
}
"""Of what is a rate; the rest are microseconds."""

_LARGE = ("allreduce 8 MiB", "bcast 8 MiB", "alltoall 8 MiB")
_TABLES = (("messages.py", 2), ("collectives.py", 4))
_START = "start to barrier"

Table = dict[str, float]


@dataclass(frozen=True)
class Mpi:
    """An mpi4py that works."""

    python: Path
    version: str
    mpiexec: str = ""
    library: str = ""
    """Directory of the library, if it is not the one of the environment."""

    def command(self, ranks: int) -> list[str]:
        """Of `ranks` ranks, on as many or fewer cores."""
        crowded = ["--oversubscribe"] if "openmpi" in self.python.parts else []
        mpiexec = self.mpiexec or str(self.python.parent / "mpiexec")
        return [mpiexec, *crowded, "-n", str(ranks), str(self.python)]

    def environment(self) -> dict[str, str]:
        # Open MPI's ways of being told that root may run it, as in a container.
        kind = "openmpi" if "openmpi" in self.python.parts else "mpich"
        other = {"MPI4PY_MPIABI": kind, "LD_LIBRARY_PATH": self.library} if self.library else {}
        return {
            **environment(),
            **other,
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
    mpiexec, pattern, known_as = DEBIAN[name]
    found = sorted(glob.glob(pattern))
    if found and Path(mpiexec).exists():
        folder = PLACE / f"debian-{LIBRARIES[name]}"
        folder.mkdir(exist_ok=True)
        link = folder / known_as
        link.unlink(missing_ok=True)
        link.symlink_to(found[0])
        debian = _probed(Mpi(python, "", mpiexec, str(folder)), title)
        if isinstance(debian, Mpi):
            return debian
    return _probed(Mpi(python, ""), title)


def _probed(mpi: Mpi, title: str) -> Mpi | Skipped:
    """With its version, if it works."""
    probe = "from mpi4py import MPI; print(MPI.Get_library_version().split(chr(10))[0].strip(chr(0)))"
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
    version = " ".join(done.stdout.split())[:40]
    return dataclasses.replace(mpi, version=f"{version}, {'Debian' if mpi.library else 'package index'}")


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
    subprocess.run(command, env=mpi.environment(), check=True, timeout=PATIENCE_S, stdin=subprocess.DEVNULL)
    found: Table = json.loads(out.read_text())
    return found


def started(folder: Path, mpi: Mpi | None) -> float:
    """Milliseconds from the start of the command until four ranks are through a first barrier; `mpi` None: ours."""
    from benchmarks import spine_start

    place = folder / f"start-{id(mpi)}"
    place.mkdir()
    return (spine_start.ours(place) if mpi is None else spine_start.theirs(place, mpi))[0]


def whole_table(folder: Path, mpi: Mpi | None, flags: Sequence[str]) -> Table:
    """Everything once; `mpi` None: ours."""
    whole: Table = {}
    for program, ranks in _TABLES:
        if mpi is None:
            whole |= ours(folder, program, ranks, *flags)
        else:
            whole |= theirs(folder, mpi, program, ranks, *flags)
    return whole | {_START: started(folder, mpi)}


def measure(rounds: int, quick: bool) -> list[Row]:
    """All, in turn."""
    found = {name: find_mpi(name) for name in LIBRARIES}
    peers = {name: mpi for name, mpi in found.items() if isinstance(mpi, Mpi)}
    flags = ("quick",) if quick else ()
    tables: dict[str, list[Table]] = {"ckpt": [], **{name: [] for name in peers}}
    for _ in range(2 if quick else rounds):
        with scratch() as folder:
            tables["ckpt"].append(whole_table(folder, None, flags))
            for name in list(tables)[1:]:
                (folder / LIBRARIES[name]).mkdir()
                try:
                    tables[name].append(whole_table(folder / LIBRARIES[name], peers[name], flags))
                except (subprocess.SubprocessError, OSError) as failure:
                    found[name] = Skipped(f"mpi4py over {name}", str(failure))
                    del tables[name]
    for name in list(tables)[1:]:
        print(f"  {name}: mpi4py over {peers[name].version}")
    print_side_by_side(tables)
    return [
        *rows_beside(tables),
        *rows_of_rounds(tables["ckpt"]),
        *(mpi for mpi in found.values() if isinstance(mpi, Skipped)),
    ]


def print_side_by_side(tables: Mapping[str, list[Table]]) -> None:
    """Medians of every contestant, a line for each figure, and what ours is of theirs (above 1 x is better for rates and
    bandwidths, worse for times)."""
    names = list(tables)
    print(f"\n  {'median':24s}" + "".join(f"{name:>12s}" for name in names) + f"{'':6s}", end="")
    print("".join(f"{'/ ' + name:>12s}" for name in names[1:]))
    for figure in tables["ckpt"][0]:
        medians = {name: statistics.median(table[figure] for table in tables[name]) for name in names}
        line = f"  {figure:24s}" + "".join(f"{medians[name]:12.4g}" for name in names)
        line += f" {_unit(figure):5s}"
        print(line + "".join(f"{medians['ckpt'] / medians[name]:10.2f} x" for name in names[1:]))
    print()


def _unit(figure: str) -> str:
    return "ms" if figure == _START else _UNITS.get(figure, "us")


def rows_beside(tables: Mapping[str, list[Table]]) -> list[Row]:
    """Every figure of every contestant, and the ratios to ours."""
    rows: list[Row] = []
    mine = tables["ckpt"]
    for figure in mine[0]:
        for name, made in tables.items():
            values = tuple(table[figure] for table in made)
            rows.append(Figure(f"{figure}: {name}", _unit(figure), values))
        for name, made in tables.items():
            if name == "ckpt":
                continue
            ratio = tuple(own[figure] / other[figure] for own, other in zip(mine, made, strict=True))
            goal = None
            if (figure == "objects 8 B" and name == "MPICH") or figure == _START:
                goal = 1.0
            elif figure in _LARGE and name == "MPICH":
                goal = 3.0
            rows.append(Figure(f"{figure}: ckpt / {name}", "x", ratio, goal, at_least=figure in _UNITS))
    return rows


def rows_of_rounds(mine: list[Table]) -> list[Row]:
    """Small collectives of four ranks, which take two rounds, beside the messages of a ring, four of them."""
    return [
        Figure(
            f"{name} / two messages of the ring",
            "x",
            tuple(t[name] / (t["ring of sends"] / 2) for t in mine),
            goal=1.5,
        )
        for name in ("barrier", "allreduce 8 B", "allreduce of an object")
    ]


if __name__ == "__main__":
    if "--install" in sys.argv:
        sys.argv.remove("--install")
        install()
    sys.exit(run_suite(measure, __doc__))

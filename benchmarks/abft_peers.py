"""A solve by ckpt.abft beside those of libraries: the same order and block size, in turn, in one run.

    python -m benchmarks.abft_peers [--quick] [--orders 1024 2048 …] [--block 64] [--rounds 3] [--json FILE]

    plain        no checksums; protected: one column of them, a rank more in each row (ckpt.abft)
    ScaLAPACK    pdgesv over MPICH (`programs/scalapack.c`, built here), the ranks of plain
    scipy        in one process

On a grid of 1 × 2 processes each rank has a core where there are two; on 2 × 2 they share them, and MPICH's ranks poll while
they wait. What is compared is the rate of wall-clock time, (2/3·n³ + 2·n²) operations over seconds. Every rank computes
with one thread. ScaLAPACK takes Debian's packages mpich, libscalapack-mpich-dev and libopenblas-dev; without them it is
skipped, and the reason is said.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.abft import Cost, Figures, job, medians
from benchmarks.spine_jobs import PROGRAMS, Skipped, environment, scratch

SCALAPACK = PROGRAMS / "scalapack.c"
GRIDS = ((1, 2), (2, 2))


def built(folder: Path) -> Path | Skipped:
    """The program that calls ScaLAPACK."""
    name = "ScaLAPACK over MPICH"
    if not (shutil.which("mpicc.mpich") and shutil.which("mpiexec.mpich")):
        return Skipped(name, "no MPICH with a compiler: apt-get install mpich libmpich-dev")
    program = folder / "scalapack"
    command = ["mpicc.mpich", "-O2", "-o", str(program), str(SCALAPACK), "-lscalapack-mpich", "-lopenblas"]
    made = subprocess.run(command, capture_output=True, text=True)
    if made.returncode:
        reason = made.stderr.strip().splitlines()[-1]
        return Skipped(name, f"{reason}: apt-get install libscalapack-mpich-dev libopenblas-dev")
    return program


def scalapack(program: Path, order: int, block: int, P: int, Q: int) -> Cost:
    """Seconds of the wall and of all ranks' processors, and the residual."""
    command = ["mpiexec.mpich", "-n", str(P * Q), str(program), *map(str, (order, block, P, Q))]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment())
    found: Cost = json.loads(done.stdout)
    return found


def compare(order: int, options: argparse.Namespace, program: Path | Skipped, figures: Figures) -> None:
    size = {"order": order, "block": options.block}
    runs: dict[str, Callable[[], Cost]] = {"scipy, one process": lambda: job({**size, "peer": True})}
    for P, Q in GRIDS:
        grid, where = {"P": P, "Q": Q}, f"{P} x {Q}"
        runs[f"plain, {where}"] = lambda grid=grid: job({**size, **grid, "redundant": 0})
        runs[f"protected, {where} + {P}"] = lambda grid=grid: job({**size, **grid})
        if isinstance(program, Path):
            runs[f"ScaLAPACK, {where}"] = lambda P=P, Q=Q: scalapack(program, order, options.block, P, Q)
    print(f"\norder {order}, blocks of {options.block}; medians of {options.rounds}")
    operations = 2 / 3 * order**3 + 2 * order**2
    for name, each in medians(runs, options.rounds).items():
        rate = operations / each["seconds"] / 1e9
        figures.note(f"order {order}: {name}", rate, "GFlop/s")
        print(
            f"  {name:22} {rate:7.2f} GFlop/s of the wall, {each['cpu']:8.2f} s of processors, "
            f"residual {each['residual']:.4f}",
            flush=True,
        )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a small order, one round: to see that it works")
    parser.add_argument("--orders", type=int, nargs="+", default=[1024, 2048, 4096])
    parser.add_argument("--block", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", metavar="FILE", help="write all figures to FILE")
    options = parser.parse_args(arguments)
    if options.quick:
        options.orders, options.rounds = [512], 1
    figures = Figures()
    with scratch() as folder:
        program = built(folder)
        if isinstance(program, Skipped):
            print(f"{program.name}: skipped, {program.reason}")
            figures.rows.append(program.as_dict())
        for order in options.orders:
            compare(order, options, program, figures)
    if options.json:
        Path(options.json).write_text(json.dumps(figures.rows, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())

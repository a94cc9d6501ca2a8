"""Linpack on several processes, of which some may be killed: a random system of equations, its solution, its residual.

ckpt run -n 7 --on-failure continue examples/hpl.py --order 1000 --kill 3:0.5

Seven ranks: a grid of 2 × 2, a process column of checksums, and a spare. Rank 3 kills itself (kill -9) half a second
after the start of the solve; `kill -9` from another terminal does the same. Set OPENBLAS_NUM_THREADS=1 if there are
as many ranks as processors.
"""

import argparse
import os
import signal

import numpy as np

from ckpt import MPI, abft


def block(seed):
    """The random matrix: any part of it, the same whoever asks, without holding the whole."""

    def fill(rows, columns):
        i = np.arange(rows.start, rows.stop, dtype=np.uint64)[:, None]
        j = np.arange(columns.start, columns.stop, dtype=np.uint64)
        mixed = i * np.uint64(0x9E3779B97F4A7C15) + j * np.uint64(0xC2B2AE3D27D4EB4F) + np.uint64(seed)
        for shift, multiplier in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            mixed = (mixed ^ mixed >> np.uint64(shift)) * np.uint64(multiplier)
        return (mixed >> np.uint64(11)) / 2.0**53 - 0.5

    return fill


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--order", type=int, default=600)
    parser.add_argument("--block", type=int, default=32)
    parser.add_argument("--rows", type=int, default=2, help="P, process rows")
    parser.add_argument(
        "--columns", type=int, default=2, help="Q, process columns, without that of checksums"
    )
    parser.add_argument("--kill", action="append", default=[], metavar="RANK:SECONDS")
    options = parser.parse_args()
    rank = MPI.COMM_WORLD.rank
    grid = abft.Grid(options.rows, options.columns)
    matrix = grid.matrix(options.order, nb=options.block, fill=block(1))
    right = block(2)(slice(0, options.order), slice(0, 1))[:, 0]
    for victim, _, seconds in (each.partition(":") for each in options.kill):
        if int(victim) == rank:
            signal.signal(signal.SIGALRM, lambda *_: os.kill(os.getpid(), signal.SIGKILL))
            signal.setitimer(signal.ITIMER_REAL, float(seconds))
    x = abft.solve(matrix, right)
    signal.setitimer(signal.ITIMER_REAL, 0)
    if rank == min(x.report.living):
        rate = 2 / 3 * options.order**3 / x.report.seconds / 1e9
        print(x.report)
        print(f"{rate:.2f} gigaflops; the residual {'passes' if x.report.residual < 16 else 'FAILS'}")


if __name__ == "__main__":
    main()

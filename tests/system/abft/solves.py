"""Solves one after the other on one grid of 2 × 2 processes and checksums; ranks kill themselves.

solves.py '{"deaths": [[solve, rank, call], …], "solves": 2, "slow": 0.0, "n": 96, …}'

"operation": "solve", or "matmul": the product with the inverse.
`call`: it dies at this call of the hook in that solve; or "NAME before", at the first call of this name. `slow`: so many
seconds are slept at every call of the communication, for kills from outside. Every rank prints "SOLVE right|wrong|lost
started protected died …" for each.
"""

import json
import os
import signal
import sys
import time

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from ckpt import MPI, abft

options = json.loads(sys.argv[1])
n, P, Q = options.get("n", 96), options.get("P", 2), options.get("Q", 2)
matrix = np.random.default_rng(1).normal(size=(n, n))
inverse = np.linalg.inv(matrix)
turn, count, named = 0, 0, set()


def hook(name, when):
    global count
    count += 1
    here = {count} if f"{name} {when}" in named else {count, f"{name} {when}"}
    named.add(f"{name} {when}")
    for solve, rank, call in options.get("deaths", ()):
        if (solve, rank) == (turn, MPI.COMM_WORLD.rank) and call in here:
            os.kill(os.getpid(), signal.SIGKILL)
    if when == "before":
        time.sleep(options.get("slow", 0))


grid = abft.Grid(P, Q, redundant=options.get("redundant", 1), reserve=options.get("reserve", True), hook=hook)
for turn in range(options.get("solves", 1)):
    count = 0
    named.clear()
    try:
        given = grid.matrix(n, nb=8, fill=lambda rows, columns: matrix[rows, columns])
        if options.get("operation") == "matmul":
            x = abft.matmul(grid.matrix(n, nb=8, fill=inverse), given, verify=options.get("verify", False))
        else:
            x = abft.solve(given, matrix.sum(axis=1))
    except abft.TooManyLost as error:
        print(turn, "lost", error, flush=True)
        break
    truth = np.eye(n) if x.ndim == 2 else 1
    right = "right" if np.abs(x - truth).max() < 1e-8 else "wrong"
    report = x.report
    print(turn, right, report.started, report.protected, *sorted(report.died), flush=True)

"""Solves again and again, and in each solve one rank, or more, kills itself with SIGKILL at a given call. Compares
the solutions.

deaths.py '{"P": 2, "Q": 2, "n": 64, "nb": 8, "spares": 0, "rounds": [[[place, call], …], …], …}'

Each round takes its ranks from those that live: P·(Q+1) and so many spares, in order. `place`: the number of a rank
among these.
`call`: it dies at this call of the hook (two for each call of the communication); or "NAME 3": before the third call of
the communication of this name, a little later, so that what it has sent is on its way. A round in which nobody dies, because
a solve has fewer calls, counts as one without a failure. Rank r prints "ROUND outcome RESIDUAL calls=…" for each round;
"wrong" is what must never be. "tell": says every so many calls how far it is, for kills from outside. "until": the last
round is made again and again until there is a file of this name.
"""

import json
import os
import signal
import sys
import time
from collections import Counter
from types import SimpleNamespace

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from ckpt import MPI, abft
from ckpt.abft.numbers import local

local._PRODUCT_BYTES = 1 << 12  # a step changes even these small matrices in several parts
options = json.loads(sys.argv[1])
P, Q, n, nb = (options[name] for name in ("P", "Q", "n", "nb"))
ahead = options.get("look_ahead", 0)
redundant, goes_back = options.get("redundant", 1), options.get("unprotected", False)
wanted = P * (Q + redundant) + options["spares"]
world = MPI.COMM_WORLD
random = np.random.default_rng(options.get("seed", 1))
matrix, right = random.uniform(-0.5, 0.5, (n, n)), random.uniform(-0.5, 0.5, (n, 2))
if options.get("dtype", "float64") != "float64":
    matrix, right = matrix.astype(options["dtype"]), right.astype(options["dtype"])
stack = random.normal(size=(P, Q, n, 2))


def iterated(grid):
    """Some steps of a linear iteration on two arrays, all of whose calls may see a death."""
    x, y = abft.Encoded(lambda p, q: stack[p, q], grid=grid), abft.Encoded(stack[:, :, ::-1], grid=grid)
    for step in range(6):
        x = x.apply(multiplied) + 0.5 * y
        x.replace()
        if step == 3:
            x.recover(y)
    x.verify()
    found = x.parts().view(Found)
    found.report = SimpleNamespace(residual=0.0, losses=x.losses)
    return found


def lu(grid):
    factors = abft.lu(grid.matrix(n, nb=nb, fill=matrix), look_ahead=ahead)
    found = np.empty_like(matrix).view(Found)
    found[factors.p] = factors.L @ factors.U
    found.report = factors.report
    return found


def cholesky(grid):
    factor = abft.cholesky(grid.matrix(n, nb=nb, fill=positive))
    found = np.asarray(factor @ factor.conj().T).view(Found)
    found.report = factor.report
    return found


def qr(grid):
    factors = abft.qr(grid.matrix(n, nb=nb, fill=matrix))
    found = np.asarray(factors.Q @ factors.R).view(Found)
    found.report = factors.report
    return found


class Found(np.ndarray):
    report = None


def multiplied(part):
    return matrix @ part


def expected():
    x = stack
    for _ in range(6):
        x = matrix @ x + 0.5 * stack[:, :, ::-1]
    return x


positive = matrix @ matrix.conj().T / n + np.eye(n, dtype=matrix.dtype)

OPERATIONS = {
    "solve": lambda grid: abft.solve(
        *(grid.matrix(n, nb=nb, fill=matrix), right),
        on_loss=options.get("on_loss", "hot"),
        verify=options.get("verify", 0),
        look_ahead=ahead,
    ),
    "matmul": lambda grid: abft.matmul(
        grid.matrix(n, nb=nb, fill=matrix), grid.matrix(n, nb=nb, fill=matrix.T.copy())
    ),
    "cg": lambda grid: abft.cg(grid.matrix(n, nb=nb, fill=positive), right[:, 0]),
    "cg of a function": lambda grid: abft.cg(lambda x, rows: positive[rows] @ x, right[:, 0], grid=grid),
    "encoded": iterated,
    "lu": lu,
    "cholesky": cholesky,
    "qr": qr,
}
TRUTH = {
    "encoded": lambda: expected(),
    "lu": lambda: matrix,
    "cholesky": lambda: positive,
    "qr": lambda: matrix,
    "solve": lambda: np.linalg.solve(matrix, right),
    "matmul": lambda: matrix @ matrix.T,
    "cg": lambda: np.linalg.solve(positive, right[:, 0]),
    "cg of a function": lambda: np.linalg.solve(positive, right[:, 0]),
}
truth = TRUTH[options.get("operation", "solve")]()
close = (
    (1e6 if "cg" in options.get("operation", "") else 1e4)
    * np.finfo(matrix.dtype).eps
    * np.linalg.cond(matrix)
    * np.abs(truth).max()
)


def rounds():
    yield from enumerate(options["rounds"])
    number = len(options["rounds"])
    while "until" in options and not world.bcast(os.path.exists(options["until"])):
        yield number, options["rounds"][-1]
        number += 1


for number, deaths in rounds():
    world = world.Shrink()
    if world.size < wanted:
        print(number, "enough", world.size, flush=True)
        break
    part = world.Split(0 if world.rank < wanted else 1, world.rank)
    world.Agree(1)  # nobody dies while others are still in Split
    if world.rank >= wanted:
        continue
    mine = {call for place, call in deaths if place == part.rank}
    count, named = 0, Counter()

    def hook(name, when, mine=mine, named=named):
        global count
        count += 1
        named[name] += when == "before"
        if when == "before" and f"{name} {named[name]}" in mine:
            time.sleep(0.3)
            os.kill(os.getpid(), signal.SIGKILL)
        if options.get("tell") and count % options["tell"] == 0:
            print("call", count, flush=True)
        if count in mine:
            os.kill(os.getpid(), signal.SIGKILL)

    grid = abft.Grid(P, Q, redundant=redundant, comm=part, unprotected=goes_back, hook=hook)
    try:
        x = OPERATIONS[options.get("operation", "solve")](grid)
    except abft.TooManyLost as error:
        print(number, "lost", error, flush=True)
        continue
    outcome = "right" if np.abs(x - truth).max() <= close else "wrong"
    what = ",".join(name for loss in x.report.losses for name, _ in loss.happened)
    started = getattr(x.report, "started", 0)
    print(
        number, outcome, f"{x.report.residual:.4f}", f"calls={count}", f"started={started}", what, flush=True
    )

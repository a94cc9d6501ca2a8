"""Solves again and again; in each solve one rank flips bits of its own numbers at a call.

flips.py SEED HOW_MANY BITS VERIFY [OPERATION]

Every rank prints "ROUND right|wrong|Inaccurate put-right replaced".
"""

import os
import random
import sys

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from ckpt import MPI, abft
from ckpt.abft.numbers.local import Local

here = []
make = Local.__init__


def keep(self, *arguments):
    make(self, *arguments)
    here[:] = [self]


Local.__init__ = keep
seed, many, bits, verify = map(int, sys.argv[1:5])
comm, n = MPI.COMM_WORLD, 64
numbers = np.random.default_rng(seed)
matrix, right = numbers.uniform(-0.5, 0.5, (n, n)), numbers.uniform(-0.5, 0.5, n)
truth = np.linalg.solve(matrix, right)


def positive():
    return matrix @ matrix.T + np.eye(n)


def solve(grid):
    x = abft.solve(grid.matrix(n, nb=8, fill=matrix), right, verify=verify)
    return x, truth, np.linalg.cond(matrix), x.report


def lu(grid):
    factors = abft.lu(grid.matrix(n, nb=8, fill=matrix), verify=verify)
    return factors.L @ factors.U, matrix[factors.p], n, factors.report


def cholesky(grid):
    factor = abft.cholesky(grid.matrix(n, nb=8, fill=positive()), verify=verify)
    return np.asarray(factor @ factor.T), positive(), n, factor.report


def qr(grid):
    factors = abft.qr(grid.matrix(n, nb=8, fill=matrix), verify=verify)
    return factors.Q @ factors.R, matrix, n, factors.report


call_of = {each.__name__: each for each in (solve, lu, cholesky, qr)}[
    sys.argv[5] if sys.argv[5:] else "solve"
]
for number in range(many):
    choose = random.Random(seed * 1000 + number)
    place, call, count = choose.randrange(6), choose.randint(8, 120), 0

    def hook(name, when, choose=choose, place=place, call=call):
        global count
        count += 1
        if comm.rank == place and count == call and here:
            whole = here[0].numbers
            for _ in range(bits):
                i, j = choose.randrange(whole.shape[0]), choose.randrange(whole.shape[1])
                whole.view(np.uint64)[i, j] ^= np.uint64(1 << choose.randrange(64))

    here.clear()
    try:
        with np.errstate(all="ignore"):
            x, wanted, condition, report = call_of(abft.Grid(2, 2, hook=hook))
    except (abft.Inaccurate, abft.Singular, abft.NotPositive) as error:
        print(number, type(error).__name__, 0, 0, flush=True)
        continue
    close = 1e5 * np.finfo(float).eps * condition * np.abs(wanted).max()
    outcome = "right" if np.abs(x - wanted).max() <= close else "wrong"
    print(number, outcome, report.corrected, len(report.losses), flush=True)

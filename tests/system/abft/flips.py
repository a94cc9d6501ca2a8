"""Solves again and again; in each solve one rank flips bits of its own numbers at a call.

flips.py SEED HOW_MANY BITS VERIFY

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
            x = abft.solve(abft.Grid(2, 2, hook=hook).matrix(n, nb=8, fill=matrix), right, verify=verify)
    except (abft.Inaccurate, abft.Singular) as error:
        print(number, type(error).__name__, 0, 0, flush=True)
        continue
    close = 1e5 * np.finfo(float).eps * np.linalg.cond(matrix) * np.abs(truth).max()
    outcome = "right" if np.abs(x - truth).max() <= close else "wrong"
    print(number, outcome, x.report.corrected, len(x.report.losses), flush=True)

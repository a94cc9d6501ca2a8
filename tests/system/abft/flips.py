"""Solves again and again; in each solve one rank flips bits at a call.

flips.py SEED HOW_MANY BITS VERIFY [OPERATION [WHERE]]

WHERE: "numbers", of its part of the matrix; "panels", of what it has got or made of a step, and may need again; "messages",
of what it receives. Every rank prints "ROUND right|wrong|Inaccurate put-right made-again replaced".
"""

import os
import random
import sys

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from ckpt import MPI, abft
from ckpt.abft.numbers.local import bytes_of
from ckpt.abft.solver.holdings import Holdings
from ckpt.abft.solver.link import Link

here = []
make = Holdings.__init__
receive = Link._receive
received = []


def keep(self, *arguments):
    make(self, *arguments)
    here[:] = [self]


def spoil(self, source, memory, tag):
    receive(self, source, memory, tag)
    while received:
        received.pop()(memory)


Holdings.__init__ = keep
Link._receive = spoil
seed, many, bits, verify = map(int, sys.argv[1:5])
operation, where = [*sys.argv[5:], *["solve", "numbers"][len(sys.argv[5:]) :]]
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


def panels(member):
    """The memory of a panel, of the update, or of what was given for this step."""
    found = [panel.packed for panel in (*member.panels.values(), *member.kept.values())]
    if member.update is not None:
        found += [member.update.upper, *member.update.out.values()]
    return [bytes_of(array) for array in found if array.size]


def flip(memory, choose):
    for _ in range(bits):
        memory[choose.randrange(memory.size)] ^= np.uint8(1 << choose.randrange(8))


call_of = {each.__name__: each for each in (solve, lu, cholesky, qr)}[operation]
for number in range(many):
    choose = random.Random(seed * 1000 + number)
    place, call, count = choose.randrange(6), choose.randint(8, 120), 0

    def hook(name, when, choose=choose, place=place, call=call):
        global count
        count += 1
        if comm.rank != place or count < call or not here:
            return
        member = here[0]
        if where == "messages" and count == call:
            received.append(lambda memory: memory.size and flip(memory, choose))
        elif where == "panels" and panels(member):
            flip(choose.choice(panels(member)), choose)
            here.clear()
        elif where == "numbers" and count == call and member.local is not None:
            flip(bytes_of(member.local.numbers), choose)

    here.clear()
    received.clear()
    try:
        with np.errstate(all="ignore"):
            x, wanted, condition, report = call_of(abft.Grid(2, 2, hook=hook))
    except (abft.Inaccurate, abft.Singular, abft.NotPositive) as error:
        print(number, type(error).__name__, 0, 0, 0, flush=True)
        continue
    close = 1e5 * np.finfo(float).eps * condition * np.abs(wanted).max()
    outcome = "right" if np.abs(x - wanted).max() <= close else "wrong"
    print(number, outcome, report.corrected, report.redone, len(report.losses), flush=True)

"""Reductions of all ranks beside Allreduce, in turn: reductions.py FILE ckpt [quick]

FILE gets JSON: for each case, milliseconds at the last rank, from its call to its result, of each contestant in each round.
"""

import json
import sys
import time

import numpy as np

import ckpt
import ckpt.reduction
from ckpt import MPI

comm = ckpt.enable()
quick = "quick" in sys.argv
ROUNDS = 3 if quick else 9
LAST = comm.rank == comm.size - 1


def at_once(x, count, copies):
    pending = [ckpt.reduction.allreduce(x, copies=copies) for _ in range(count)]
    for future in pending:
        future.result()


def allreduce(x, count):
    out = [np.empty_like(x) for _ in range(count)]
    MPI.Request.Waitall([comm.Iallreduce(x, each) for each in out])


CASES = {
    # name: (bytes, seconds that the last rank comes late, how many at once)
    "1 MB": (1 << 20, 0.0, 1),
    "8 MB": (8 << 20, 0.0, 1),
    "32 MB": (32 << 20, 0.0, 1),
    "8 MB, the last rank 50 ms late": (8 << 20, 0.05, 1),
    "8 at once of 8 MB": (8 << 20, 0.0, 8),
}
CONTESTANTS = {
    "Allreduce": allreduce,
    "reduction": lambda x, count: at_once(x, count, 0),
    "reduction, a copy": lambda x, count: at_once(x, count, 1),
    "reduction, two copies": lambda x, count: at_once(x, count, 2),
}
found = {}
for case, (nbytes, late_s, count) in CASES.items():
    x = np.random.default_rng(comm.rank).random(nbytes // 8)
    times = found[case] = {name: [] for name in CONTESTANTS}
    for number in range(ROUNDS + 1):
        for name, run in CONTESTANTS.items():
            comm.barrier()
            if LAST:
                time.sleep(late_s)
            began = time.perf_counter()
            run(x, count)
            if number:  # the first one makes memory and threads
                times[name].append((time.perf_counter() - began) * 1e3)
if LAST:
    with open(sys.argv[1], "w") as file:
        json.dump(found, file)

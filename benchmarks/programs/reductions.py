"""Reductions of all ranks beside Allreduce, in turn: reductions.py FILE ckpt|mpi4py [quick]

FILE gets JSON: for each case, milliseconds at the last rank, from its call to its result, of each contestant in each round.
Under mpi4py there is Allreduce alone.
"""

import json
import sys
import time

import numpy as np

if sys.argv[2] == "ckpt":
    import ckpt
    from ckpt import MPI

    comm = ckpt.enable()
    import ckpt.reduction
else:
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
quick = "quick" in sys.argv
LAST = comm.rank == comm.size - 1
MB = 1 << 20


def costly(x, y, datatype):
    """A sum that takes 1 ms for each megabyte, and 10 ms at the last rank."""
    time.sleep((10e-3 if LAST else 1e-3) * len(memoryview(x).cast("B")) / MB)
    if datatype is None:
        return x + y
    into = np.frombuffer(y)
    into += np.frombuffer(x)
    return None


COSTLY = MPI.Op.Create(costly, commute=True)


def allreduce(x, count, op):
    out = [np.empty_like(x) for _ in range(count)]
    if count == 1:
        comm.Allreduce(x, out[0], op)
    else:
        MPI.Request.Waitall([comm.Iallreduce(x, each, op) for each in out])


def reduction(copies):
    def run(x, count, op):
        pending = [ckpt.reduction.allreduce(x, copies=copies, op=op) for _ in range(count)]
        for future in pending:
            future.result()

    return run


CASES = {
    # name: (bytes, seconds that the last rank comes late, how many at once, operation)
    "128 KB": (MB // 8, 0.0, 1, MPI.SUM),
    "1 MB": (MB, 0.0, 1, MPI.SUM),
    "8 MB": (8 * MB, 0.0, 1, MPI.SUM),
    "32 MB": (32 * MB, 0.0, 1, MPI.SUM),
    "8 MB, the last rank 50 ms late": (8 * MB, 0.05, 1, MPI.SUM),
    "8 MB, the operation slow at one rank": (8 * MB, 0.0, 1, COSTLY),
    "8 at once, the operation slow at one rank": (8 * MB, 0.0, 8, COSTLY),
    "4 at once of 8 MB": (8 * MB, 0.0, 4, MPI.SUM),
    "28 at once of 8 MB": (8 * MB, 0.0, 28, MPI.SUM),
}
CONTESTANTS = {"Allreduce": allreduce}
if sys.argv[2] == "ckpt":
    CONTESTANTS |= {
        "reduction, no copies": reduction(0),
        "reduction": reduction(1),
        "reduction, two copies": reduction(2),
    }
found = {}
for case, (nbytes, late_s, count, op) in CASES.items():
    x = np.random.default_rng(comm.rank).random(nbytes // 8)
    times = found[case] = {name: [] for name in CONTESTANTS}
    rounds = 3 if quick else 9 if count < 28 else 5
    for number in range(rounds + 1):
        for name, run in CONTESTANTS.items():
            comm.Barrier()
            if LAST:
                time.sleep(late_s)
            began = time.perf_counter()
            run(x, count, op)
            if number:  # the first one makes memory and threads
                times[name].append((time.perf_counter() - began) * 1e3)
if LAST:
    with open(sys.argv[1], "w") as file:
        json.dump(found, file)

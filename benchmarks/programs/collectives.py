"""Collectives of all ranks, the same calls for both libraries: collectives.py FILE ckpt|mpi4py [quick]

FILE gets JSON: microseconds a call, the median of a few batches, each between two barriers.
"""

import json
import statistics
import sys
import time

import numpy as np

if sys.argv[2] == "ckpt":
    import ckpt

    comm = ckpt.enable()
else:
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
DIVISOR = 10 if "quick" in sys.argv else 1
BATCHES = 5

small, middle, large = np.ones(1), np.ones(8 << 10), np.ones(1 << 20)  # written to, as data of programs are
into = np.zeros_like(large)


def ring():
    """A token once round: as many messages one after the other as there are ranks."""
    if comm.rank:
        comm.recv(source=comm.rank - 1)
    comm.send(None, (comm.rank + 1) % comm.size)
    if not comm.rank:
        comm.recv(source=comm.size - 1)


TABLE = {
    "ring of sends": (200, ring),
    "barrier": (200, comm.Barrier),
    "allreduce 8 B": (200, lambda: comm.Allreduce(small, into[:1])),
    "allreduce of an object": (200, lambda: comm.allreduce(1)),
    "bcast of an object": (200, lambda: comm.bcast(1)),
    "allreduce 64 KiB": (50, lambda: comm.Allreduce(middle, into[: 8 << 10])),
    "allreduce 8 MiB": (6, lambda: comm.Allreduce(large, into)),
    "bcast 8 MiB": (6, lambda: comm.Bcast(large)),
    "alltoall 8 MiB": (6, lambda: comm.Alltoall(large, into)),
}
found = {}
for name, (count, work) in TABLE.items():
    count = max(2, count // DIVISOR)
    for _ in range(min(count, 10)):
        work()
    batches = []
    for _ in range(BATCHES):
        comm.Barrier()
        began = time.perf_counter()
        for _ in range(count):
            work()
        comm.Barrier()
        batches.append((time.perf_counter() - began) / count * 1e6)
    found[name] = statistics.median(batches)
if comm.rank == 0:
    with open(sys.argv[1], "w") as out:
        json.dump(found, out)
        print(file=out)

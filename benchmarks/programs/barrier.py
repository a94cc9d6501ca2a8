"""Through a first barrier: barrier.py FILE ckpt|mpi4py. Rank 0 writes when (monotonic ns)."""

import sys
import time

if sys.argv[2] == "ckpt":
    import ckpt

    comm = ckpt.enable()
else:
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
comm.barrier()
if comm.rank == 0:
    with open(sys.argv[1], "w") as out:
        print(time.monotonic_ns(), file=out)

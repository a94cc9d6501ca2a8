"""Agrees again and again until so many members have failed; prints every outcome."""

import sys

from mpi4py import MPI

kills = int(sys.argv[1])
comm = MPI.COMM_WORLD
flags = comm.size + 1
step = 0
while True:
    comm.Ack_failed()
    done = comm.Get_failed().Get_size() >= kills
    mine = ~(1 << (comm.rank + step) % 24) if not done else ~0 ^ (1 << (comm.rank + step) % 24)
    try:
        agreed = comm.Agree(mine & ~(0 if done else 1 << 30))
    except MPI.Exception as error:
        assert error.Get_error_class() == MPI.ERR_PROC_FAILED
        print(step, "failed", error.agreed)
    else:
        print(step, agreed)
        if agreed & 1 << 30:
            break
    step += 1
rest = comm.Shrink()
print("rest", rest.allgather(comm.rank))

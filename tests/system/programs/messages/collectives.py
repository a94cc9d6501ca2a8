"""Two threads are in collectives at once, each on a communicator of its own."""

import sys
import threading

from ckpt import MPI

loops, results = 20 * int(sys.argv[1]), {}


def run(name, comm):
    value = comm.rank
    for i in range(loops):
        for _ in range(5_000):
            value = (value * 1103515245 + 12345) & 0x7FFFFFFF
        value = comm.allreduce(value) & 0xFFFFF
        value += comm.bcast(value + comm.rank, root=i % comm.size)
        comm.barrier()
    results[name] = value


mine, others = MPI.COMM_WORLD.Dup(), MPI.COMM_WORLD.Dup()
thread = threading.Thread(target=run, args=("thread", others))
thread.start()
run("main", mine)
thread.join()
print(sorted(results.items()))

"""Two threads receive into arrays, one of them large ones; the main thread computes and sends both kinds."""

import sys
import threading

import numpy as np

from ckpt import MPI

comm = MPI.COMM_WORLD
loops, sums = 40 * int(sys.argv[1]), {}
right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
SIZES = {1: 100, 2: 40_000}


def listen(tag):
    array, total = np.zeros(SIZES[tag]), 0.0
    for i in range(loops):
        comm.Recv(array, source=left, tag=tag)
        total = (total * 3 + float(array.sum())) % 1_000_003
    sums[tag] = total


threads = [threading.Thread(target=listen, args=(tag,)) for tag in SIZES]
for thread in threads:
    thread.start()
value = comm.rank
for i in range(loops):
    for _ in range(5_000):
        value = (value * 1103515245 + 12345) & 0x7FFFFFFF
    for tag, size in SIZES.items():
        comm.Send(np.full(size, float(value % 100)), right, tag=tag)
for thread in threads:
    thread.join()
print(comm.rank, sorted(sums.items()))

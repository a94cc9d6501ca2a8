"""Each worker of a thread pool plays with the one of the same number in the next rank, by a tag of its own."""

import sys
import time
from concurrent.futures import ThreadPoolExecutor

from ckpt import MPI

comm = MPI.COMM_WORLD
loops = 15 * int(sys.argv[1])
right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size


def play(number):
    value = number
    for i in range(loops):
        comm.send(value + i, right, tag=number)
        value = comm.recv(source=left, tag=number)
        value = (value * 1103515245 + 12345) & 0x7FFFFFFF
        time.sleep(0.005)
    return value


with ThreadPoolExecutor(4) as pool:
    futures = [pool.submit(play, number) for number in range(4)]
for future in futures:
    print(comm.rank, future.result())

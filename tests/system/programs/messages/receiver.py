"""A thread receives whatever comes from anybody, with a blocking receive; the main thread computes and sends."""

import sys
import threading

from ckpt import MPI

comm = MPI.COMM_WORLD
loops, got = 30 * int(sys.argv[1]), []


def listen():
    status, left = MPI.Status(), comm.size
    while left:
        message = comm.recv(source=MPI.ANY_SOURCE, tag=7, status=status)
        if message is None:
            left -= 1
        else:
            got.append((status.source, message))


listener = threading.Thread(target=listen)
listener.start()
value = comm.rank
for i in range(loops):
    for _ in range(20_000):
        value = (value * 1103515245 + 12345) & 0x7FFFFFFF
    comm.send(value, (comm.rank + 1 + i) % comm.size, tag=7)
for other in range(comm.size):
    comm.send(None, other, tag=7)
listener.join()
for source in range(comm.size):
    mine = [message for sender, message in got if sender == source]
    print(comm.rank, source, len(mine), hash(tuple(mine)))

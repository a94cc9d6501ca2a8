"""A thread waits by probe and takes each message by what the probe has said; the main thread sends synchronously."""

import sys
import threading

from ckpt import MPI

comm = MPI.COMM_WORLD
loops, got = 40 * int(sys.argv[1]), []
right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size


def listen():
    status = MPI.Status()
    while True:
        comm.probe(source=left, tag=MPI.ANY_TAG, status=status)
        message = comm.recv(source=status.source, tag=status.tag)
        if message is None:
            return
        got.append((status.tag, message))


listener = threading.Thread(target=listen)
listener.start()
value = comm.rank
for i in range(loops):
    for _ in range(5_000):
        value = (value * 1103515245 + 12345) & 0x7FFFFFFF
    comm.ssend(value, right, tag=i % 5)
comm.send(None, right, tag=9)
listener.join()
print(comm.rank, len(got), hash(tuple(got)))

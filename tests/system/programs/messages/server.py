"""A thread of every rank answers requests, as long as there are any; the main threads of all ranks ask each other."""

import sys
import threading

from ckpt import MPI

comm = MPI.COMM_WORLD
loops = 40 * int(sys.argv[1])


def serve():
    status, left, served = MPI.Status(), comm.size, 0
    while left:
        number = comm.recv(source=MPI.ANY_SOURCE, tag=1, status=status)
        if number is None:
            left -= 1
            continue
        for _ in range(5_000):
            number = (number * 1103515245 + 12345) & 0x7FFFFFFF
        served += 1
        comm.send(number ^ comm.rank, status.source, tag=2)
    print("served", served)


server = threading.Thread(target=serve)
server.start()
value = comm.rank
for i in range(loops):
    other = (comm.rank + i) % comm.size
    comm.send(value, other, tag=1)
    value = comm.recv(source=other, tag=2)
for other in range(comm.size):
    comm.send(None, other, tag=1)
server.join()
print(comm.rank, value)

"""A thread waits for whichever of its receives is done next; another one for a request of its own; the main thread sends."""

import sys
import threading

from ckpt import MPI

comm = MPI.COMM_WORLD
loops, sums, halves = 45 * int(sys.argv[1]), [0, 0, 0], []
right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size


def listen():
    requests = [comm.irecv(source=left, tag=tag) for tag in range(3)]
    for _ in range(loops):
        index, message = MPI.Request.waitany(requests)
        sums[index] = (sums[index] * 31 + message) & 0xFFFFFF
        requests[index] = comm.irecv(source=left, tag=index)
    for request in requests:
        request.cancel()
        request.wait()


def halve():
    for _ in range(loops // 3):
        halves.append(comm.irecv(source=left, tag=9).wait() // 2)


threads = [threading.Thread(target=listen), threading.Thread(target=halve)]
for thread in threads:
    thread.start()
value = comm.rank
for i in range(loops):
    for _ in range(5_000):
        value = (value * 1103515245 + 12345) & 0x7FFFFFFF
    comm.send(value, right, tag=i % 3)
    if i % 3 == 0:
        comm.send(value, right, tag=9)
for thread in threads:
    thread.join()
print(comm.rank, sums, hash(tuple(halves)))

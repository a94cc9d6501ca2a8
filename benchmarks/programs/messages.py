"""Messages between two ranks, the same calls for both libraries: messages.py FILE ckpt|mpi4py [quick]

FILE gets JSON: round trips of 8 bytes and exchanges of 1 KiB in us, messages/s of 8 bytes (objects and buffers), bandwidth
in GB/s.
"""

import json
import sys
import time

import numpy as np

if sys.argv[2] == "ckpt":
    import ckpt
    from ckpt import MPI

    comm = ckpt.enable()
else:
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
DIVISOR = 10 if "quick" in sys.argv else 1


def roundtrip(count=2000):
    out, back = np.zeros(8, np.uint8), np.zeros(8, np.uint8)
    began = time.perf_counter()
    for _ in range(count):
        if comm.rank == 0:
            comm.Send(out, 1)
            comm.Recv(back, 1)
        else:
            comm.Recv(back, 0)
            comm.Send(out, 0)
    return (time.perf_counter() - began) / count * 1e6


def exchange(count=2000):
    """As a stencil does with its halo."""
    out, back, peer = np.zeros(1024, np.uint8), np.zeros(1024, np.uint8), 1 - comm.rank
    began = time.perf_counter()
    for _ in range(count):
        requests = [comm.Irecv(back, peer), comm.Isend(out, peer)]
        MPI.Request.Waitall(requests)
    return (time.perf_counter() - began) / count * 1e6


def objects(count=100_000):
    began = time.perf_counter()
    if comm.rank == 0:
        for number in range(count):
            comm.send(number, 1)
        comm.recv(source=1)
    else:
        for _ in range(count):
            comm.recv(source=0)
        comm.send(None, 0)
    return count / (time.perf_counter() - began)


def buffers(count=100_000):
    data = np.zeros(8, np.uint8)
    began = time.perf_counter()
    if comm.rank == 0:
        for _ in range(count):
            comm.Send(data, 1)
        comm.recv(source=1)
    else:
        for _ in range(count):
            comm.Recv(data, 0)
        comm.send(None, 0)
    return count / (time.perf_counter() - began)


def bandwidth(size, count):
    # memory that nobody has written to would be one page of the kernel's, again and again
    data = np.ones(size, np.uint8)
    began = time.perf_counter()
    if comm.rank == 0:
        for _ in range(count):
            comm.Send(data, 1)
        comm.recv(source=1)
    else:
        for _ in range(count):
            comm.Recv(data, 0)
        comm.send(None, 0)
    return size * count / (time.perf_counter() - began) / 1e9


TABLE = {
    "round trip 8 B": (roundtrip, (2000,)),
    "objects 8 B": (objects, (100_000,)),
    "buffers 8 B": (buffers, (100_000,)),
    "exchange 1 KiB": (exchange, (2000,)),
    "16 KiB": (lambda count: bandwidth(16 << 10, count), (5000,)),
    "64 KiB": (lambda count: bandwidth(64 << 10, count), (3000,)),
    "256 KiB": (lambda count: bandwidth(256 << 10, count), (1000,)),
    "1 MiB": (lambda count: bandwidth(1 << 20, count), (500,)),
    "64 MiB": (lambda count: bandwidth(64 << 20, count), (10,)),
}
found = {}
for name, (work, (count,)) in TABLE.items():
    count = max(2, count // DIVISOR)
    comm.barrier()
    work(max(1, count // 10))
    comm.barrier()
    found[name] = work(count)
if comm.rank == 0:
    with open(sys.argv[1], "w") as out:
        json.dump(found, out)
        print(file=out)

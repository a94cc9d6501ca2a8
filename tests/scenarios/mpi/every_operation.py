"""A program that spends nearly all its time waiting, in every kind of operation, and prints a digest of all
it saw.

In each step one rank comes late, so the others wait inside the step's operation: there their images are
taken. Half-way, steps that do not count are made until the test lets the program go on.
"""

import hashlib
import os
import sys
import time

import numpy as np

import ckpt
from ckpt.mpi.base.constants import ANY_SOURCE
from ckpt.mpi.datatypes import op as ops
from ckpt.mpi.datatypes.status import Status
from ckpt.mpi.requests.request import Request

comm = ckpt.enable()
rank, size = comm.rank, comm.size
left, right = (rank - 1) % size, (rank + 1) % size
digest = hashlib.sha256  # the running digest is a plain string: hash objects cannot be part of an image
seen = ""
field = np.arange(40_000, dtype=float) * (rank + 1)
into = np.zeros_like(field)
table = np.zeros((size, 100))
persistent = comm.Allreduce_init(field[:500], into[:500])
duplicate = comm.Dup()


def objects(step):
    comm.send((rank, step), right)
    return comm.recv(source=left)


def buffers(step):
    comm.Send(field, right, 1)
    comm.Recv(into, left, 1)
    return into[step]


def exchange(step):
    comm.Sendrecv(field, right, recvbuf=into, source=left)
    return comm.sendrecv(step + rank, left, source=right), into[step]


def synchronous(step):
    request = comm.irecv(source=left)
    comm.ssend([step], right)
    return request.wait()


def wildcards(step):
    for peer in range(size):
        comm.send(rank * step, peer, 5)
    status = Status()
    got = []
    for _ in range(size):
        value = comm.recv(source=ANY_SOURCE, tag=5, status=status)
        got.append((status.source, value))
    comm.barrier()
    return sorted(got)


def probes(step):
    request = comm.isend({"step": step}, right, 6)
    comm.probe(source=left, tag=6)
    value = comm.mprobe(source=left, tag=6).recv()
    request.wait()
    return value


def several(step):
    requests = [comm.irecv(source=left, tag=7), comm.Irecv(into, source=right, tag=8)]
    requests += [comm.Issend(field, left, 8), comm.issend(step, right, 7)]
    Request.waitany(requests)
    Request.waitall(requests)
    return into[step]


def polling(step):
    request = comm.irecv(source=left, tag=9)
    comm.send(step, right, 9)
    done, value = request.test()
    while not done:
        done, value = request.test()
    return value


def collectives_of_objects(step):
    root = step % size
    return (
        comm.bcast((rank, step), root),
        comm.gather(rank + step, root),
        comm.scatter(list(range(size)) if rank == root else None, root),
        comm.allgather(rank * step),
        comm.alltoall([step + to for to in range(size)]),
        comm.allreduce([rank]),
        comm.reduce(step, ops.MAX, root),
        comm.exscan(rank + 1),
    )


def collectives_of_buffers(step):
    comm.Allreduce(field, into)
    total = into[step]
    comm.Bcast(into, step % size)
    comm.Allgather(field[:100], table)
    comm.Alltoall(table, np.zeros_like(table))
    comm.Reduce(field, into if rank == 0 else None, ops.MIN)
    comm.Scan(field[:100], into[:100])
    return total, table[0, 3], into[3]


def pending_collectives(step):
    totals = [np.zeros(1000) for _ in range(3)]
    requests = [comm.Iallreduce(field[:1000], total) for total in totals]
    requests += [comm.Ibarrier()]
    persistent.Start()
    value = comm.allreduce(step)
    Request.Waitall(requests)
    persistent.Wait()
    return value, totals[2][7], into[7]


def communicators(step):
    part = comm.Split(rank % 2, -rank)
    value = part.allgather(rank), duplicate.allreduce(step)
    part.Free()
    return value


steps = [
    objects,
    buffers,
    exchange,
    synchronous,
    wildcards,
    probes,
    several,
    polling,
    collectives_of_objects,
    collectives_of_buffers,
    pending_collectives,
    communicators,
]


def make(step):
    if step % size == rank:
        time.sleep(0.03)
    return steps[step % len(steps)](step)


def steps_that_do_not_count():
    kept, turn = into.copy(), 0
    while comm.allreduce(not os.path.exists(os.environ["CKPT_TEST_GO"]), ops.MAX):
        make(turn)
        turn += 1
    into[:] = kept


for step in range(int(sys.argv[1])):
    if step == int(sys.argv[1]) // 2:
        steps_that_do_not_count()
    result = make(step)
    field[step % 100] += into[step % 50] * 1e-3
    seen = digest((seen + repr(result)).encode() + field.tobytes()).hexdigest()
print(rank, seen)

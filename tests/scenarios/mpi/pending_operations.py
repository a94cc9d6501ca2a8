"""For every kind of operation: a checkpoint is taken while it is pending, then a rank dies and all are restarted.

Either the ranks that wait are those beside the victim, which is late, or it is the victim that waits, and the others
are late. Arguments: "kill", or anything else for an undisturbed run; "both" tries both for every kind, else every
other kind has the one, the rest the other.
"""

import os
import signal
import sys
import time

import numpy as np
from mpi4py import MPI

import ckpt

KILL = sys.argv[1] == "kill"
VICTIM = 1
comm = MPI.COMM_WORLD
rank, size = comm.rank, comm.size
left, right = (rank - 1) % size, (rank + 1) % size
ring = comm.Create_cart([size], periods=[True])
half = comm.Split(rank == 0)
inter = half.Create_intercomm(0, comm, 0 if rank else 1, tag=4)
large, large_into = np.full(3 << 17, rank + 1.0), np.zeros(3 << 17)
small, into = np.arange(6.0) + rank, np.zeros(6)
table, table_into = np.arange(2.0 * size) + rank, np.zeros(2 * size)
persistent = [
    comm.Send_init(small, right, 21),
    comm.Recv_init(into, left, 21),
    comm.Ssend_init(small, right, 22),
]
sums = np.zeros(6)
collective = comm.Allreduce_init(small, sums)
parts = [comm.Psend_init(small, 3, right, 5), comm.Precv_init(into, 2, left, 5)]
comm.Attach_buffer(bytearray(1 << 16))


def both(out, back):
    return lambda: [out(), back()]


def values(requests):
    done = MPI.Request.waitall(requests)
    return done, into.tolist(), float(large_into[5])


def bsend():
    comm.Bsend(small, right, 6)
    return comm.Irecv(into, left, 6)


def held_message():
    comm.send(("held", rank), rank, 7)
    return comm.mprobe(rank, 7)


def probed_message():
    comm.Send(small, rank, 8)
    comm.Probe(rank, 8)
    return


def started():
    MPI.Prequest.Startall([*persistent, collective])
    request = comm.Irecv(table_into, left, 22)
    return [*persistent, collective, request]


def half_ready():
    MPI.Prequest.Startall(parts)
    parts[0].Pready(2)
    return


def other_parts(_):
    parts[0].Pready_range(0, 1)
    MPI.Request.Waitall(parts)
    return into.tolist()


def generalized():
    return MPI.Grequest.Start(lambda status: status.Set_source(rank), None, None)


def complete(request):
    status = MPI.Status()
    request.Complete()
    request.Wait(status)
    return status.source


def wait_all(requests):
    MPI.Request.Waitall(requests if isinstance(requests, list) else [requests])
    return into.tolist(), table_into.tolist(), float(large_into[7])


def agreement():
    flag = np.array([7 << rank], "i")
    return flag, comm.Iagree(flag)


def agreed(state):
    state[1].Wait()
    return int(state[0][0])


def no_dead(state):
    state[1].Wait()
    return state[0].size


def made(state):
    state[1].Wait()
    return state[0].allreduce(rank)


def wait_some(requests):
    got = []
    while True:
        indices, messages = MPI.Request.waitsome(requests)
        if indices is None:
            return sorted(got)
        got += zip(indices, messages, strict=True)


def nothing():
    return


counts = [2] * size
displacements = [2 * at for at in range(size)]
KINDS = {
    "isend, irecv": (both(lambda: comm.isend(rank, right), lambda: comm.irecv(source=left)), values),
    "Isend, Irecv": (both(lambda: comm.Isend(small, right), lambda: comm.Irecv(into, left)), values),
    "Isend of much": (both(lambda: comm.Isend(large, right), lambda: comm.Irecv(large_into, left)), values),
    "issend": (both(lambda: comm.issend([rank], right), lambda: comm.irecv(source=left)), values),
    "Issend": (both(lambda: comm.Issend(small, right), lambda: comm.Irecv(into, left)), values),
    "Isendrecv_replace": (lambda: comm.Isendrecv_replace(into, right, 9, left, 9), wait_all),
    "buffered": (bsend, wait_all),
    "wildcard": (both(lambda: comm.isend(rank, right, 3), lambda: comm.irecv(tag=3)), values),
    "waitsome": (both(lambda: comm.isend(rank, right, 2), lambda: comm.irecv(source=left, tag=2)), wait_some),
    "matched message": (held_message, lambda message: message.recv()),
    "probed message": (probed_message, lambda _: (comm.Recv(into, rank, 8), into.tolist())),
    "persistent": (started, lambda requests: (wait_all(requests), sums.tolist())),
    "in parts": (half_ready, other_parts),
    "generalized": (generalized, complete),
    "Ibarrier": (comm.Ibarrier, wait_all),
    "Ibcast": (lambda: comm.Ibcast(small if rank == 2 else into, 2), wait_all),
    "Ibcast of much": (lambda: comm.Ibcast(large if rank == 0 else large_into, 0), wait_all),
    "Igather": (lambda: comm.Igather(small[:2], table_into if rank == 0 else None, 0), wait_all),
    "Igatherv": (lambda: comm.Igatherv(small[:2], [table_into, counts] if rank == 2 else None, 2), wait_all),
    "Iscatter": (lambda: comm.Iscatter(table if rank == 0 else None, into[:2], 0), wait_all),
    "Iallgather": (lambda: comm.Iallgather(small[:2], table_into), wait_all),
    "Iallgatherv": (lambda: comm.Iallgatherv(small[:2], [table_into, (counts, displacements)]), wait_all),
    "Ialltoall": (lambda: comm.Ialltoall(table, table_into), wait_all),
    "Ialltoallv": (lambda: comm.Ialltoallv([table, counts], [table_into, counts]), wait_all),
    "Ireduce": (lambda: comm.Ireduce(small, into if rank == 0 else None, MPI.MAX, 0), wait_all),
    "Iallreduce": (lambda: comm.Iallreduce(small, into), wait_all),
    "Iallreduce of much": (lambda: comm.Iallreduce(large, large_into), wait_all),
    "Ireduce_scatter_block": (lambda: comm.Ireduce_scatter_block(table, into[:2]), wait_all),
    "Iscan, Iexscan": (lambda: [comm.Iscan(small, into), comm.Iexscan(table, table_into)], wait_all),
    "three at a time": (
        lambda: [comm.Iallreduce(small, into), comm.Ibarrier(), comm.Ialltoall(table, table_into)],
        wait_all,
    ),
    "Ineighbor_alltoall": (lambda: ring.Ineighbor_alltoall(small[:2], into[:2]), wait_all),
    "Ineighbor_allgather": (lambda: ring.Ineighbor_allgather(small[:1], into[:2]), wait_all),
    "between groups": (lambda: inter.Iallgather(small[:1], into[: inter.remote_size]), wait_all),
    "messages between groups": (
        lambda: [inter.isend(rank, 0, 1), inter.irecv(source=0, tag=1)] if rank < 2 else [],
        values,
    ),
    "Idup": (comm.Idup, made),
    "Iagree": (agreement, agreed),
    "Iagree_failed": (comm.Iagree_failed, no_dead),
    "Ishrink": (comm.Ishrink, made),
    "recv": (nothing, lambda _: (comm.send(rank, right), comm.recv(source=left))),
    "Sendrecv": (
        nothing,
        lambda _: (comm.Sendrecv(large, right, 1, large_into, left, 1), float(large_into[9])),
    ),
    "probe": (
        nothing,
        lambda _: (comm.send(rank, right), comm.probe(source=left), comm.mprobe(source=left).recv()),
    ),
    "barrier": (nothing, lambda _: comm.barrier()),
    "allreduce": (nothing, lambda _: comm.allreduce([rank])),
    "Allreduce": (nothing, lambda _: (comm.Allreduce(small, into), into.tolist())),
    "Agree": (nothing, lambda _: comm.Agree(7 << rank)),
    "Agree_failed": (nothing, lambda _: comm.Agree_failed().size),
    "Split": (nothing, lambda _: comm.Split(0, -rank).rank),
}


def restarts():
    return int(os.environ["CKPT_RESTARTS"])


def newest_line():
    names = os.listdir(os.environ["CKPT_JOB"] + "/control")
    return max([int("".join(filter(str.isdigit, name)) or 0) for name in names] or [0])


def checkpoint_and_die():
    if not KILL:
        return
    before, line = restarts(), newest_line()
    ckpt.checkpoint()
    if restarts() == before:  # else this is after the restart
        while newest_line() <= line:
            time.sleep(0.002)
        os.kill(os.getpid(), signal.SIGKILL)


ckpt.enable()
for number, (name, (begin, finish)) in enumerate(KINDS.items()):
    if name not in (sys.argv[3:] or KINDS):
        continue
    sides = (False, True) if sys.argv[2] == "both" else (number % 2 == 0,)
    for victim_waits in sides:
        early = (rank == VICTIM) == victim_waits
        into[:], table_into[:], large_into[:] = 0, 0, 0
        comm.barrier()
        state = begin() if early else None
        if rank == VICTIM:
            checkpoint_and_die()
            for other in range(size):
                if other != VICTIM and victim_waits:
                    comm.send("go", other, 30)
        elif victim_waits:
            comm.recv(source=VICTIM, tag=30)
        if not early:
            state = begin()
        print(name, "|", victim_waits, "|", finish(state), flush=True)
        state = None

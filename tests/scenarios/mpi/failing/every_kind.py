"""Nine kinds of communication in turn, each with its result checked, by whoever is left; prints how it went.

Half-way it does the same step again and again until the test lets it go on (`Job.go`), however fast the machine.
"""

import os
import sys
import time
import zlib

import numpy as np
from mpi4py import MPI

steps, pause_s = int(sys.argv[1]), float(sys.argv[2])
go = os.environ.get("CKPT_TEST_GO", "")
FINE, MAY_GO_ON = 1, 2


def reduce(comm, at):
    total = np.empty(1000)
    comm.Allreduce(np.full(1000, comm.rank + at, "d"), total)
    assert total[7] == sum(range(comm.size)) + comm.size * at


def all_to_all_by_requests(comm, at):
    others = [rank for rank in range(comm.size) if rank != comm.rank]
    receives = [comm.irecv(source=rank, tag=1) for rank in others]
    sends = [comm.isend((comm.rank, at), rank, tag=1) for rank in others]
    assert MPI.Request.waitall(receives) == [(rank, at) for rank in others]
    MPI.Request.waitall(sends)


def boards(comm, at):
    for _ in range(8):
        assert comm.bcast(at if comm.rank == 0 else None, 0) == at
        comm.Barrier()


def window(comm, at):
    memory = np.zeros(comm.size, "q")
    found = MPI.Win.Create(memory, 8, comm=comm)
    found.Lock_all()
    for rank in range(comm.size):
        found.Put(np.array([comm.rank + at], "q"), rank, target=comm.rank)
    found.Flush_all()
    found.Unlock_all()
    comm.Barrier()
    assert list(memory) == [rank + at for rank in range(comm.size)]
    found.Free()


def parts(comm, at):
    part = failure = None
    try:
        part = comm.Split(comm.rank % 2, comm.rank)
    except MPI.Exception as error:
        failure = error
    # who has a part would wait in it for ever for somebody who has none: of a death elsewhere it is not told there
    if not comm.Agree(part is not None):
        raise failure or MPI.Exception(MPI.ERR_REVOKED)
    assert part.allgather(comm.rank) == list(range(comm.rank % 2, comm.size, 2))
    part.Free()


def any_source(comm, at):
    if comm.rank:
        comm.send(comm.rank, 0, tag=2)
        assert comm.recv(source=0, tag=3) == at
        return
    assert {comm.recv(source=MPI.ANY_SOURCE, tag=2) for _ in range(comm.size - 1)} == set(range(1, comm.size))
    for rank in range(1, comm.size):
        comm.send(at, rank, tag=3)


def long_messages(comm, at):
    found = np.empty(200_000)
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    comm.Sendrecv(np.arange(200_000.0) + comm.rank, right, recvbuf=found, source=left)
    assert found[5] == 5 + left


def nonblocking(comm, at):
    found = np.empty(comm.size, "i")
    comm.Iallgather(np.array([comm.rank], "i"), found).Wait()
    assert list(found) == list(range(comm.size))


def objects(comm, at):
    given = [(comm.rank, rank, at) for rank in range(comm.size)]
    assert comm.alltoall(given) == [(rank, comm.rank, at) for rank in range(comm.size)]


KINDS = (
    *(reduce, all_to_all_by_requests, boards, window, parts, any_source),
    *(long_messages, nonblocking, objects),
)
comm = MPI.COMM_WORLD
history, at = [], 0
while at < steps:
    said = FINE | (MAY_GO_ON if not go or os.path.exists(go) else 0)
    try:
        time.sleep(pause_s)
        KINDS[at % len(KINDS)](comm, at)
    except MPI.Exception as error:
        failures = (MPI.ERR_PROC_FAILED, MPI.ERR_PROC_FAILED_PENDING, MPI.ERR_REVOKED)
        assert error.Get_error_class() in failures, error
        comm.Revoke()
        said &= MAY_GO_ON
    comm.Ack_failed()
    try:
        everybody = comm.Agree(said)
    except MPI.Exception:
        everybody = 0
    if not everybody & FINE:
        comm.Revoke()
        comm = comm.Shrink()
        assert len(set(comm.allgather(at))) == 1
    elif everybody & MAY_GO_ON or at < steps // 2 or at % len(KINDS) != steps // 2 % len(KINDS):
        history.append((at, comm.size))
        at += 1
    else:
        at += 1 - len(KINDS)  # round and round
print("left", comm.size, zlib.crc32(repr(history).encode()))

"""Runs one family of collectives until a member dies, shrinks, goes on with the next."""

import os

import numpy as np
from mpi4py import MPI


def families(comm, turn):
    rank, size = comm.rank, comm.size
    root = turn % size
    ones, into = np.full(3000, rank + 1.0), np.zeros(3000)
    much, more = np.full(400_000, rank + 1.0), np.zeros(400_000)
    table = np.zeros((size, 3000))
    total = size * (size + 1) / 2

    def one_to_all():
        assert comm.bcast(root if rank == root else None, root) == root
        comm.Bcast(ones, root)
        assert ones[7] == root + 1
        assert comm.scatter(list(range(size)) if rank == root else None, root) == rank

    def all_to_one():
        got = comm.gather(rank, root)
        assert got == (list(range(size)) if rank == root else None)
        comm.Reduce(ones, into if rank == root else None, MPI.SUM, root)
        assert rank != root or into[1] == total

    def all_to_all():
        comm.Allgather(ones, table)
        assert table[size - 1, 5] == size
        assert comm.alltoall([rank] * size) == list(range(size))

    def reductions():
        comm.Allreduce(ones, into)
        assert into[2] == total
        assert comm.scan(1) == rank + 1

    def large():
        comm.Allreduce(much, more)
        assert more[399_999] == total
        comm.Bcast(more, root)

    def nonblocking():
        requests = [comm.Iallreduce(ones, into), comm.Ibarrier(), comm.Ibcast(much, root)]
        MPI.Request.Waitall(requests)
        assert into[0] == total

    def making():
        part = comm.Split(rank % 2, rank)
        part.Free()
        comm.Dup().Free()
        comm.Create_cart([size]).Free()

    return [comm.barrier, one_to_all, all_to_one, all_to_all, reductions, large, nonblocking, making]


comm = MPI.COMM_WORLD
for number in range(len(families(comm, 0))):
    print("family", number, comm.size, flush=True)
    turn = 0
    while True:
        try:
            families(comm, turn)[number]()
        except MPI.Exception as error:
            assert error.Get_error_class() in (MPI.ERR_PROC_FAILED, MPI.ERR_REVOKED), error
            break
        turn += 1
    comm.Revoke()
    comm = comm.Shrink()
    if comm.size == 1:
        break
print("left", comm.allgather(MPI.COMM_WORLD.rank))
os.environ["NOTHING"] = "more"

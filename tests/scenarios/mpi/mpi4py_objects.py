"""An mpi4py program, unedited: objects of every kind live across its steps and are used in each of them.

Half-way, steps that do not count are made until the test lets the program go on.
"""

import hashlib
import os
import sys
import time

import numpy as np
from mpi4py import MPI

world = MPI.COMM_WORLD
rank, size = world.Get_rank(), world.Get_size()
assert type(world) is MPI.Intracomm and world == MPI.COMM_WORLD


def join(a, b, datatype):
    """Not commutative: the last of the two."""
    if datatype is None:
        return a + b
    np.frombuffer(b, "i")[:] += 2 * np.frombuffer(a, "i")
    return None


MPI.pickle.PROTOCOL = 4
key = MPI.Comm.Create_keyval(copy_fn=lambda comm, key, value: [*value, "copy"])
world.Set_attr(key, ["kept"])
copy = world.Dup()
low = rank == 0
local = world.Split(0 if low else 1)
inter = local.Create_intercomm(0, world, 1 if low else 0, tag=9)
ring = world.Create_cart([size], periods=[True])
column = MPI.INT.Create_vector(3, 1, 3).Commit()
twice = MPI.Op.Create(join, commute=False)
info = MPI.Info.Create({"step": "none"})
mine = MPI.Add_error_class()
MPI.Add_error_string(mine, "of the program's own")
total = np.zeros(3, "i")
persistent = world.Allreduce_init(np.arange(3, dtype="i") + rank, total, MPI.SUM)
digest = hashlib.sha256
seen = b""


def make(step):
    info["step"] = str(step)
    matrix = np.arange(9, dtype="i") + step
    into = np.zeros(9, "i")
    request = ring.Irecv([into, 1, column], source=(rank - 1) % size, tag=step % 5)
    time.sleep(0.004 if (step + rank) % size == 0 else 0)
    ring.Ssend([matrix, 1, column], (rank + 1) % size, tag=step % 5)
    request.Wait()
    told = inter.allgather((rank, step))
    around = ring.neighbor_alltoall([("left", rank, step), ("right", rank, step)])
    combined = np.zeros(3, "i")
    world.Allreduce(np.full(3, rank + step, "i"), combined, twice)
    persistent.Start()
    persistent.Wait()
    fresh, pending = copy.Idup()
    pending.Wait()
    words = repr(
        (
            into.tolist(),
            told,
            around,
            combined.tolist(),
            total.tolist(),
            fresh.Get_attr(key),
            info.items(),
            fresh.scan(rank),
            MPI.Get_error_string(mine),
            MPI.pickle.PROTOCOL,
            twice(str(step), "x"),
        )
    )
    fresh.Free()
    return words


for step in range(int(sys.argv[1])):
    while step == int(sys.argv[1]) // 2 and world.allreduce(
        not os.path.exists(os.environ["CKPT_TEST_GO"]), MPI.MAX
    ):
        make(step)
    seen = digest(seen + make(step).encode()).digest()

assert MPI.COMM_WORLD is world
print(f"rank {rank}: {seen.hex()}")

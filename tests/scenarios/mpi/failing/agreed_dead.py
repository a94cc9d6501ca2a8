"""Agrees on the dead again and again until so many members have failed, then goes on with those that are left, without
Shrink; prints every group. With "revoked": of a communicator that one rank revokes on the way."""

import sys

from mpi4py import MPI

kills = int(sys.argv[1])
world = MPI.COMM_WORLD
comm = world.Dup() if "revoked" in sys.argv else world
everybody = comm.Get_group()
step = 0
while True:
    dead = comm.Agree_failed()
    known = comm.Get_failed()
    assert MPI.Group.Intersection(known, dead).Compare(dead) != MPI.UNEQUAL, "agreed on, and not known here"
    print(step, dead.Translate_ranks(), flush=True)
    if comm is not world and step == 20 and comm.rank == 1:
        comm.Revoke()
    if dead.size >= kills:
        break
    step += 1
left = MPI.Group.Difference(everybody, dead)
if comm is not world:
    assert comm.Is_revoked() or step < 20
print("rest", world.Create_group(left).allgather(world.rank))

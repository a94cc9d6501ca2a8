"""Every rank waits in another operation that involves rank 0; then rank 0 dies, or rank 1 revokes."""

import sys
import time

import numpy as np
from mpi4py import MPI

comm = MPI.COMM_WORLD.Dup()
rank, size = comm.rank, comm.size
large = np.zeros(3 << 20, dtype="u1")


def many():
    while True:
        comm.send(bytes(1 << 20), 0)


def much():
    while True:
        comm.Send(large, 0)


def persistent():
    request = comm.Recv_init(bytearray(1), 0, 3)
    request.Start()
    request.Wait()


def pending(request):
    try:
        request.wait()
    except MPI.Exception as error:
        assert bool(request) == (error.Get_error_class() == MPI.ERR_PROC_FAILED_PENDING)
        raise


waits = {
    2: lambda: comm.recv(source=0),
    3: lambda: comm.ssend("x", 0),
    4: much,
    5: many,
    6: lambda: pending(comm.irecv(source=MPI.ANY_SOURCE)),
    7: lambda: comm.recv(source=MPI.ANY_SOURCE),
    8: lambda: comm.probe(source=0),
    9: persistent,
    10: lambda: MPI.Request.Waitany([comm.irecv(source=0, tag=9), comm.irecv(source=1, tag=9)]),
    11: lambda: comm.mprobe(source=MPI.ANY_SOURCE),
}
print("ready", flush=True)
if rank == 0:
    while not comm.Is_revoked():
        time.sleep(0.01)
elif rank == 1:
    if sys.argv[1] == "revoke":
        time.sleep(0.5)
        comm.Revoke()
    else:
        while not comm.Get_failed().size:
            pass
        print("knows", time.clock_gettime_ns(time.CLOCK_MONOTONIC))
else:
    try:
        waits[rank]()
    except MPI.Exception as error:
        print("knows", time.clock_gettime_ns(time.CLOCK_MONOTONIC))
        print("ended", error.Get_error_class(), MPI.Get_error_string(error.Get_error_class()))

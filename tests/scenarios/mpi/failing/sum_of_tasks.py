"""Survives failures by itself: tasks are dealt anew to whoever is left, and the total is that of all tasks.

Half-way it does the same step again and again until the test lets it go on (`Job.go`), however fast the machine.
"""

import os
import sys
import time

from mpi4py import MPI

TASKS_A_STEP = 120
steps, pause_s = int(sys.argv[1]), float(sys.argv[2])
comm = MPI.COMM_WORLD
total = step = repairs = 0
go = os.environ.get("CKPT_TEST_GO", "")
FINE, MAY_GO_ON = 1, 2
while step < steps:
    try:
        part = sum(task * task + step for task in range(comm.rank, TASKS_A_STEP, comm.size))
        time.sleep(pause_s * (comm.rank + 1) / comm.size)
        result, said = comm.allreduce(part), FINE
    except MPI.Exception as error:
        assert error.Get_error_class() in (MPI.ERR_PROC_FAILED, MPI.ERR_REVOKED), error
        comm.Revoke()
        result, said = None, 0
    comm.Ack_failed()
    if not go or os.path.exists(go):
        said |= MAY_GO_ON
    try:
        everybody = comm.Agree(said)
    except MPI.Exception:
        everybody = 0
    if everybody & FINE:
        if everybody & MAY_GO_ON or step != steps // 2:
            total, step = total + result, step + 1
    else:
        comm, repairs = comm.Shrink(), repairs + 1
expected = sum(task * task + at for at in range(steps) for task in range(TASKS_A_STEP))
print("total", total, "right" if total == expected else f"wrong: {expected}", "on", comm.size)

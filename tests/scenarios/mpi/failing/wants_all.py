"""Cannot do without anybody: waits until a checkpoint without the dead rank is there, and then asks to go back."""

import os
import sys
import time

from mpi4py import MPI

import ckpt

steps, go = int(sys.argv[1]), os.environ["CKPT_TEST_GO"]
comm = MPI.COMM_WORLD
total = at = 0
while at < steps:
    try:
        total += comm.allreduce(comm.rank + at)
    except MPI.Exception:
        while not os.path.exists(go):
            time.sleep(0.01)
        ckpt.go_back("nobody else has what rank 1 knows")
        time.sleep(60)
    at += 1
    time.sleep(0.01)
print("total", total)

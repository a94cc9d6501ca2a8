"""Each rank appends a line to its own log and to one of all ranks, at every step; who is left goes on."""

import os
import sys
import time

from mpi4py import MPI

directory, steps, go = sys.argv[1], int(sys.argv[2]), os.environ["CKPT_TEST_GO"]
world = MPI.COMM_WORLD
at = 0
while at < steps or not os.path.exists(go):
    with open(f"{directory}/{world.rank}.log", "a") as log:
        log.write(f"{at}\n")
    with open(f"{directory}/all.log", "a") as log:
        log.write(f"{world.rank} {at}\n")
    at += 1
    time.sleep(0.005)
print("steps", at)

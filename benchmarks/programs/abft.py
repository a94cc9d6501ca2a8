"""One solve: abft.py '{"order": …, "block": …, "redundant": …, "on_loss": …, "verify": …, "victim": …, "call": …}'.

Rank `victim` kills itself at that call. Every rank that is left prints what its solve has cost, as JSON.
"""

import json
import os
import signal
import sys
import time

os.environ["OPENBLAS_NUM_THREADS"] = "1"

import numpy as np

from ckpt import MPI, abft

given = json.loads(sys.argv[1])
n, rank, count = given["order"], MPI.COMM_WORLD.rank, 0


def hook(name: str, when: str) -> None:
    global count
    count += 1
    if rank == given["victim"] and count == given["call"]:
        os.kill(os.getpid(), signal.SIGKILL)


random = np.random.default_rng(1)
matrix, right = random.uniform(-0.5, 0.5, (n, n)), random.uniform(-0.5, 0.5, n)
grid = abft.Grid(2, 2, redundant=given["redundant"], hook=hook)
MPI.COMM_WORLD.barrier()
began, cpu = time.perf_counter(), time.process_time()
x = abft.solve(
    grid.matrix(n, nb=given["block"], fill=matrix),
    right,
    on_loss=given["on_loss"],
    verify=given["verify"],
)
told = {
    "seconds": time.perf_counter() - began,
    "cpu": time.process_time() - cpu,
    "residual": x.report.residual,
    "handling_ms": max((loss.handling_ms for loss in x.report.losses), default=0.0),
    "step": max((loss.step for loss in x.report.losses), default=0),
    "calls": count,
}
print(json.dumps(told), flush=True)

"""Four ranks, small state: computes a little and adds up, for ever. steps.py FILE [PAUSE_S]

Rank 0 appends a line to FILE whenever it finds itself restarted: restarts, monotonic ns, after a sum of all ranks.
"""

import sys
import time

import ckpt

path = sys.argv[1]
pause_s = float(sys.argv[2]) if len(sys.argv) > 2 else 0.0
comm = ckpt.enable()
state = {"values": [0.5 * i for i in range(5000)], "names": [f"cell {i}" for i in range(2000)]}
seen, step = -1, 0
while True:
    total = comm.allreduce(step)
    assert total == step * comm.size, (total, step)
    step += 1
    state["values"][step % 5000] = sum(state["values"][:50])
    if seen != ckpt.restarts():
        seen = ckpt.restarts()
        if comm.rank == 0:
            with open(path, "a") as out:
                print(seen, time.monotonic_ns(), file=out)
    if pause_s:
        time.sleep(pause_s)

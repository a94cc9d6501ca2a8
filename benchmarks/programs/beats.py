"""Holds MEGABYTES of arrays, half random and half compressible, and counts; FILE gets a line "count ns" every 5 ms.

beats.py MEGABYTES FILE              under `ckpt run -n 1`, or plain, to be imaged from outside
beats.py MEGABYTES FILE dump OUT     saves itself with dill.dump_module as soon as it is told to (OUT.go), then ends
beats.py MEGABYTES FILE load OUT     goes on from that

What takes an image of a process has to bring back the arrays and the count, and the lines go on.
"""

import os
import sys
import time

import numpy as np


def make(megabytes):
    random = np.random.default_rng(1)
    size = min(64, megabytes // 2) * (1 << 20) // 8
    return [
        random.random(size) if number % 2 else np.floor(100.0 * np.sin(np.arange(size) * 1e-4 + number))
        for number in range((megabytes << 17) // size)
    ]


def beat(path):
    with open(path, "a") as out:
        print(count, time.time_ns(), file=out)


if __name__ == "__main__":
    megabytes, path, *how = int(sys.argv[1]), sys.argv[2], *sys.argv[3:]
    if how[:1] == ["load"]:
        import dill

        dill.load_module(how[1])
    else:
        arrays, count = make(megabytes), 0
    if not how and "CKPT_JOB" in os.environ:
        import ckpt

        ckpt.enable()
    while True:
        count += 1
        beat(path)
        time.sleep(0.005)
        if how[:1] == ["dump"] and os.path.exists(how[1] + ".go"):
            import dill

            began = time.perf_counter()
            dill.dump_module(how[1])
            with open(how[1], "rb") as out:
                os.fsync(out.fileno())
            print(time.perf_counter() - began, flush=True)
            break

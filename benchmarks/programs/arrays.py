"""Holds arrays of MEGABYTES in all, half random and half compressible; rounds of: fork nothing, take an image.

arrays.py MEGABYTES ROUNDS FILE          under `ckpt run -n 1`: FILE gets a line a round: ns of a bare os.fork()
arrays.py MEGABYTES 0 - --plain          under plain python: says "ready" and holds the arrays until killed
arrays.py MEGABYTES ROUNDS FILE --dill   under plain python: prints seconds of each dill.dump to FILE
"""

import json
import os
import sys
import time

import numpy as np

MIB = 1 << 20


def make(megabytes):
    random = np.random.default_rng(1)
    size = min(64, megabytes) * MIB // 8
    made = []
    for number in range(max(2, megabytes // 64)):
        if number % 2:
            made.append(random.random(size))
        else:
            made.append(np.floor(100.0 * np.sin(np.arange(size) * 1e-4 + number)))
    return made


def touch(arrays):
    """Write to every page, so that every fork finds this process's pages as its own."""
    for array in arrays:
        array[::512] += 1.0


def bare_fork():
    """ns that the parent stands still for os.fork() of a child that does nothing.

    After a rest, as a rank has before its image: the processor is some 8 % slower then.
    """
    time.sleep(0.02)
    began = time.perf_counter_ns()
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    took = time.perf_counter_ns() - began
    os.waitpid(pid, 0)
    return took


def committed(job, epoch):
    with open(os.path.join(job, "events.jsonl")) as log:
        for line in log:
            if '"committed"' in line or '"round-aborted"' in line:
                event = json.loads(line)
                if event["epoch"] == epoch:
                    return event["event"]
    return None


def main():
    megabytes, rounds, path = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    arrays = make(megabytes)
    if "--plain" in sys.argv:
        touch(arrays)
        print("ready", flush=True)
        time.sleep(600)
        return
    if "--dill" in sys.argv:
        import dill

        for _ in range(rounds):
            began = time.perf_counter()
            with open(path, "wb") as out:
                dill.dump(arrays, out, protocol=5)
                out.flush()
                os.fsync(out.fileno())
            print(time.perf_counter() - began, flush=True)
        return
    import ckpt

    ckpt.enable()
    for _ in range(rounds):
        touch(arrays)
        before = bare_fork()
        touch(arrays)
        after = bare_fork()
        touch(arrays)
        epoch = ckpt.checkpoint()
        while committed(os.environ["CKPT_JOB"], epoch) is None:
            time.sleep(0.02)
        with open(path, "a") as out:
            print(epoch, before, after, file=out)


main()

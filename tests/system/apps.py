"""Programs the system tests run as jobs: ordinary message-passing code without a word about checkpoints.

Half-way they stay where they are, at work, until the test lets them go on (`Job.go`, `Job.finish`), be the machine fast or
slow: what happens meanwhile changes nothing in what they compute.
"""

from __future__ import annotations

_HELD = """
    import os

    def held():
        go = os.environ.get("CKPT_TEST_GO", "")
        return int(go != "" and not os.path.exists(go))
"""

RING = (
    _HELD
    + """
    import hashlib, sys, time
    import ckpt

    comm = ckpt.enable()
    steps, pause_s = int(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) > 2 else 0.0
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    x = comm.rank
    trail = []

    def step(i, x):
        request = comm.isend((i, x), right, tag=3)
        j, y = comm.recv(source=left, tag=3)
        request.wait()
        assert i == j, (i, j)
        return (x * 31 + y + i) % 1000003

    for i in range(steps):
        while i == steps // 2 and comm.allreduce(held(), max):
            step(i, x)
            time.sleep(pause_s)
        x = step(i, x)
        trail.append(x)
        if i % 50 == 0:
            x = comm.allreduce(x) % 1000003
        if i % 500 == 0:
            print("step", i, "value", x)
        if pause_s:
            time.sleep(pause_s)
    digest = hashlib.sha256(repr(trail).encode())
    everyone = comm.gather(digest.hexdigest())
    if comm.rank == 0:
        print("result", hashlib.sha256("".join(everyone).encode()).hexdigest())
"""
)
"""argv: steps, seconds of sleep a step. Objects in a ring, an allreduce now and then; rank 0 prints a digest."""

COMPUTE = (
    _HELD
    + """
    import hashlib, random, sys, time
    import ckpt

    def walk(n):
        position = 0
        for _ in range(n):
            position += random.choice((-1, 1))
            yield position

    comm = ckpt.enable()
    random.seed(comm.rank)
    total, rounds, pause_s = 0, int(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) > 2 else 0.0
    for i in range(rounds):
        while i == rounds // 2 and comm.allreduce(held(), max):
            sum(k * k for k in range(20000))
        if pause_s:
            time.sleep(pause_s)
        for position in walk(2000):
            total += position * position
        if i % 10 == 0:
            best = comm.allreduce(total, op=max)
    print("rank", comm.rank, "total", total, "best", best, hashlib.sha256(repr(random.getstate()).encode()).hexdigest())
"""
)
"""argv: rounds, seconds of sleep a round. Mostly computing, in generators and with the random module; few messages."""

NUMPY_STENCIL = (
    _HELD
    + """
    import hashlib, sys, time
    import numpy as np
    import ckpt

    comm = ckpt.enable()
    rank, size, steps, pause_s = comm.rank, comm.size, int(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) > 2 else 0.0
    field = np.random.default_rng(rank).random((64, 256))
    above, below = np.empty(256), np.empty(256)
    for step in range(steps):
        while step == steps // 2 and comm.allreduce(held(), max):
            comm.Sendrecv(field[0], dest=(rank + 1) % size, recvbuf=above, source=(rank - 1) % size)
        if pause_s:
            time.sleep(pause_s)
        comm.Sendrecv(field[-1], dest=(rank + 1) % size, recvbuf=above, source=(rank - 1) % size)
        comm.Sendrecv(field[0], dest=(rank - 1) % size, recvbuf=below, source=(rank + 1) % size)
        padded = np.vstack([above, field, below])
        field = 0.25 * (padded[:-2] + padded[2:] + np.roll(field, 1, 1) + np.roll(field, -1, 1))
        if step % 20 == 0:
            mean = np.zeros(1)
            comm.Allreduce(field.mean(keepdims=True).reshape(1), mean)
    whole = comm.gather(field)
    if rank == 0:
        print("result", hashlib.sha256(np.vstack(whole).tobytes()).hexdigest(), mean[0])
"""
)
"""argv: steps, seconds of sleep a step. Halo exchange with numpy buffers."""

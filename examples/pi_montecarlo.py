"""Pi by throwing darts: rank 0 hands out tasks, whoever is free takes the next one.

ckpt run -n 4 --every 1 examples/pi_montecarlo.py --tasks 400

Which rank throws which darts differs from run to run (rank 0 receives from any source); the answer does not,
because a task's random numbers depend on its number only.
"""

import argparse
import random

import ckpt
from ckpt.mpi import ANY_SOURCE, Status

READY, TASK, STOP = 1, 2, 3  # tags


def throw(task, darts):
    """How many of this task's darts hit the quarter circle."""
    dice = random.Random(task)
    hits = 0
    for _ in range(darts):
        x, y = dice.random(), dice.random()
        hits += x * x + y * y < 1.0
    return hits


def hand_out(comm, tasks):
    """Rank 0: the sum of all tasks' hits. A worker asks for its first task by reporting no hits."""
    hits, given, busy = 0, 0, comm.size - 1
    status = Status()
    while busy:
        hits += comm.recv(source=ANY_SOURCE, tag=READY, status=status)
        worker = status.Get_source()
        if given < tasks:
            comm.send(given, dest=worker, tag=TASK)
            given += 1
        else:
            comm.send(None, dest=worker, tag=STOP)
            busy -= 1
    return hits


def work(comm, darts):
    """Every other rank: take tasks until there are none."""
    hits = 0
    status = Status()
    while True:
        comm.send(hits, dest=0, tag=READY)
        task = comm.recv(source=0, status=status)
        if status.Get_tag() == STOP:
            return
        hits = throw(task, darts)


def estimate(comm, tasks, darts):
    """Pi on rank 0, None elsewhere."""
    if comm.size == 1:
        hits = 0
        for task in range(tasks):
            hits += throw(task, darts)
    elif comm.rank == 0:
        hits = hand_out(comm, tasks)
    else:
        return work(comm, darts)
    return 4.0 * hits / (tasks * darts)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", type=int, default=100)
    parser.add_argument("--darts", type=int, default=20_000, help="per task")
    options = parser.parse_args()
    pi = estimate(ckpt.enable(), options.tasks, options.darts)
    if pi is not None:
        print(f"pi is about {pi:.6f} ({options.tasks * options.darts} darts)")


if __name__ == "__main__":
    main()

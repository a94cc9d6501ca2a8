"""A program of two ranks of which one can never be saved: refused.py WHERE SCALE OUT.

WHERE says what stands in the way on rank 1: `sum` (a generator below `sum`), `sorted` (the main loop below a key function),
`thread` (a thread that is not one of `threading`), or `nothing`. Both ranks compute the same work and meet after each
piece. Rank 0 writes to OUT, in nanoseconds: the wall time of all of it, and the CPU time of both ranks for it.
"""

import _thread
import random
import sys
import time

from ckpt import MPI

comm = MPI.COMM_WORLD


def piece(number):
    values = [random.random() for _ in range(4000)]
    table = {}
    for i, value in enumerate(values):
        table[i % 97] = table.get(i % 97, 0.0) + value * number
    return sum(table.values())


def step(number):
    """One piece of work, and the other rank's result of it."""
    return piece(number) + comm.sendrecv(number, dest=1 - comm.rank, source=1 - comm.rank)


def plainly(count):
    total = 0.0
    for number in range(count):
        total += step(number)
    return total


def below_sum(count):
    return sum(step(number) for number in range(count))


def below_sorted(count):
    return sorted(range(count), key=step)


def beside_a_thread(count):
    done = _thread.allocate_lock()
    done.acquire()
    _thread.start_new_thread(lambda: done.acquire(True, 3600.0), ())
    plainly(count)
    done.release()


WORK = {"nothing": plainly, "sum": below_sum, "sorted": below_sorted, "thread": beside_a_thread}


def main():
    where, scale, out = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    comm.barrier()
    wall, cpu = time.monotonic_ns(), time.process_time_ns()
    (WORK[where] if comm.rank == 1 else plainly)(150 * scale)
    cpu = comm.allreduce(time.process_time_ns() - cpu)
    if comm.rank == 0:
        with open(out, "w") as file:
            file.write(f"{time.monotonic_ns() - wall} {cpu}")


main()

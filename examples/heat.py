"""Heat spreads along a rod that is shared out among the ranks.

ckpt run -n 4 --every 1 examples/heat.py --steps 20000
"""

import argparse

import numpy as np

import ckpt
from ckpt.mpi import PROC_NULL, SUM


def diffuse(comm, cells, steps):
    """(temperatures, total heat) on rank 0, None elsewhere. The rod's ends are kept at 1 and 0 degrees."""
    first, last = cells * comm.rank // comm.size, cells * (comm.rank + 1) // comm.size
    left = comm.rank - 1 if comm.rank > 0 else PROC_NULL
    right = comm.rank + 1 if comm.rank < comm.size - 1 else PROC_NULL
    rod = np.zeros(last - first + 2)  # one cell of each neighbour
    if left == PROC_NULL:
        rod[0] = 1.0
    for _ in range(steps):
        comm.Sendrecv(rod[-2:-1], dest=right, recvbuf=rod[0:1], source=left)
        comm.Sendrecv(rod[1:2], dest=left, recvbuf=rod[-1:], source=right)
        rod[1:-1] += 0.25 * (rod[2:] - 2.0 * rod[1:-1] + rod[:-2])
    heat = comm.allreduce(float(rod[1:-1].sum()), op=SUM)
    parts = comm.gather(rod[1:-1], root=0)
    return None if parts is None else (np.concatenate(parts), heat)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cells", type=int, default=4000)
    parser.add_argument("--steps", type=int, default=2000)
    options = parser.parse_args()
    result = diffuse(ckpt.enable(), options.cells, options.steps)
    if result is not None:
        rod, heat = result
        reached = int(np.count_nonzero(rod > 0.01))
        print(
            f"{options.steps} steps: {heat:.9f} units of heat, {reached} of {len(rod)} cells warmer than 0.01"
        )


if __name__ == "__main__":
    main()

"""Solves of random orders, grids, blocks and kinds of numbers against numpy: shapes.py FIRST_SEED HOW_MANY."""

import os
import sys

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from ckpt import MPI, abft

world = MPI.COMM_WORLD
wrong = 0
for seed in range(int(sys.argv[1]), int(sys.argv[1]) + int(sys.argv[2])):
    random = np.random.default_rng(seed)
    grids = [(P, Q) for P in range(1, 5) for Q in range(1, 5) if world.size >= P * (Q + 1)]
    P, Q = grids[random.integers(len(grids))]
    n, nb, count = int(random.integers(1, 90)), int(random.integers(1, 20)), int(random.integers(1, 4))
    kind = ("float32", "float64", "complex64", "complex128")[random.integers(4)]
    matrix, right = random.normal(size=(n, n)), random.normal(size=(n, count))
    if kind.startswith("complex"):
        matrix, right = matrix + 1j * random.normal(size=(n, n)), right * 1j
    matrix, right = matrix.astype(kind), right.astype(kind)
    part = world.Split(int(world.rank >= P * (Q + 1)), world.rank)
    if world.rank >= P * (Q + 1):
        continue
    x = abft.solve(abft.Grid(P, Q, comm=part).matrix(n, nb=nb, fill=matrix), right)
    wide = np.complex128 if kind.startswith("complex") else np.float64
    truth = np.linalg.solve(matrix.astype(wide), right.astype(wide))
    close = 100 * np.finfo(kind).eps * np.linalg.cond(matrix.astype(wide)) * np.abs(truth).max()
    if x.dtype != kind or x.shape != (n, count) or not np.abs(x - truth).max() <= close:
        wrong += 1
        print(f"wrong: seed {seed}, {P} × {Q}, order {n}, blocks {nb}, {kind}", flush=True)
print("wrong:", wrong, flush=True)

"""Operations of random orders, grids, blocks and kinds of numbers against numpy: shapes.py FIRST_SEED HOW_MANY [any].

Solves; with "any" a random one of the others.
"""

import os
import sys

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from ckpt import MPI, abft

world = MPI.COMM_WORLD
wrong = 0


def wide(array):
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def solve(of, matrix, right):
    return (
        abft.solve(of(matrix), right, look_ahead=len(matrix) % 2),
        np.linalg.solve(wide(matrix), wide(right)),
        np.linalg.cond(wide(matrix)),
    )


def matmul(of, matrix, right):
    other = np.ascontiguousarray(matrix.T[::-1])
    return (
        abft.matmul(of(matrix), of(other), verify=len(right) % 2 == 0),
        wide(matrix) @ wide(other),
        len(matrix),
    )


def positive(matrix):
    return (wide(matrix) @ wide(matrix).conj().T + np.eye(len(matrix))).astype(matrix.dtype)


def cg(of, matrix, right):
    whole = positive(matrix)
    tolerance = 1e-6 if matrix.dtype.name in ("float32", "complex64") else 1e-13
    found = abft.cg(of(whole), right[:, 0], tolerance=tolerance)
    return found, np.linalg.solve(wide(whole), wide(right[:, 0])), 100 * np.linalg.cond(wide(whole))


def lu(of, matrix, right):
    factors = abft.lu(of(matrix), verify=len(right) % 2, look_ahead=len(matrix) % 2)
    found = np.empty_like(matrix)
    found[factors.p] = factors.L @ factors.U
    return found, wide(matrix), len(matrix)


def cholesky(of, matrix, right):
    whole = positive(matrix)
    factor = np.asarray(abft.cholesky(of(whole), verify=len(right) % 2))
    return factor @ factor.conj().T, wide(whole), len(matrix)


def qr(of, matrix, right):
    factors = abft.qr(of(matrix), verify=len(right) % 2)
    off = np.abs(factors.Q.conj().T @ factors.Q - np.eye(len(matrix))).max()
    return (
        factors.Q @ factors.R * (1 if off < 1e3 * np.finfo(matrix.dtype).eps else np.nan),
        wide(matrix),
        len(matrix),
    )


def encoded(of, matrix, right):
    grid = of(matrix).grid
    parts = np.stack([[(p + 2 * q - 3) * right for q in range(grid.Q)] for p in range(grid.P)])
    x = abft.Encoded(parts, grid=grid)
    x = (x.apply(lambda part: matrix @ part) - 0.5 * x).scale(2)
    x.verify()
    return x.parts(), 2 * (wide(matrix) @ wide(parts) - 0.5 * parts), len(matrix)


OTHERS = (matmul, cg, lu, cholesky, qr, encoded)
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
    call = OTHERS[random.integers(len(OTHERS))] if sys.argv[3:] else solve
    grid = abft.Grid(P, Q, comm=part)
    x, truth, condition = call(
        lambda whole, grid=grid, nb=nb: grid.matrix(len(whole), nb=nb, fill=whole), matrix, right
    )
    close = 100 * np.finfo(kind).eps * condition * np.abs(truth).max()
    if x.dtype != kind or x.shape != truth.shape or not np.abs(x - truth).max() <= close:
        wrong += 1
        print(f"wrong: seed {seed}, {call.__name__}, {P} × {Q}, order {n}, blocks {nb}, {kind}", flush=True)
print("wrong:", wrong, flush=True)

"""Solves with inputs of all kinds, good and bad; every rank prints "name | outcome" for each."""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from ckpt import MPI, abft

world = MPI.COMM_WORLD
grid = abft.Grid(2, 2)
random = np.random.default_rng(1)
good, right = random.normal(size=(40, 40)), random.normal(size=40)


def solved(name, make, b=right, of=grid, **options):
    try:
        x = abft.solve(make(of), b() if callable(b) else b, **options)
        said = f"{x.shape} {x.dtype} {x.report.residual < 16} {' '.join(x.report.remarks)}"
    except abft.AbftError as error:
        said = f"{type(error).__name__}: {error}"
    except ZeroDivisionError as error:
        said = f"RankFailed: rank {world.rank} raised ZeroDivisionError: {error}"
    print(f"{name} | {said}", flush=True)


def given(matrix, **options):
    return lambda of: of.matrix(len(matrix), fill=matrix, **{"nb": 8, **options})


def changed(i, j, value):
    found = good.copy()
    found[i, j] = value
    return found


def divided(rows, columns):
    if rows.start >= 24 and columns.start >= 24 and world.rank == 3:
        raise ZeroDivisionError("by the program")
    return good[rows, columns]


def never_the_same(rows, columns):
    return np.random.default_rng().normal(size=(rows.stop - rows.start, columns.stop - columns.start))


def graded(n):
    return np.diag(10.0 ** np.linspace(-12, 12, n)) + np.eye(n, k=1) * 1e-12


for n in (0, 1, 2, 3, 7, 39, 40):
    solved(f"order {n}", given(good[:n, :n], nb=16), right[:n])
solved("several right-hand sides", given(good), random.normal(size=(40, 3)))
for kind in ("float32", "complex64", "complex128"):
    solved(kind, given(good.astype(kind)), right.astype(kind))
solved("one column", given(good), of=abft.Grid(3, 1))
solved("one row", given(good), of=abft.Grid(1, 3))
solved("no right-hand side", given(good), np.zeros((40, 0)))
solved("two columns of checksums", given(good), of=abft.Grid(1, 3, redundant=2))
solved("without checksums", given(good), of=abft.Grid(2, 3, redundant=0))
solved("nearly singular", given(1 / (np.arange(40)[:, None] + np.arange(40) + 1.0)))
solved("graded", given(graded(40)))
solved("integers converted", given(np.eye(40, dtype=int), dtype=float))
solved("not looked at", given(good), check=False)
solved("the other byte order", given(good.astype(">f8")), right.astype(">f8"))
solved("the other byte order as dtype", given(good, dtype=">c8"))
solved("recover", given(good), on_loss="recover")
solved("look-ahead", given(good), look_ahead=1)
solved("look-ahead and looks for wrong numbers", given(good), look_ahead=1, verify=1)
solved("look-ahead on one column", given(good), of=abft.Grid(3, 1), look_ahead=1)

solved("integers", given(np.eye(40, dtype=int)))
solved("nan", given(changed(17, 3, np.nan)))
solved("infinite", given(changed(39, 39, -np.inf)))
solved("singular", given(changed(slice(None), 21, 0)))
solved("zero", given(np.zeros((40, 40))))
solved("not square", lambda of: of.matrix(40, fill=good[:, :39]))
solved("wrong shape", lambda of: of.matrix(40, fill=lambda rows, columns: good, nb=8))
solved("text", lambda of: of.matrix(40, fill=lambda rows, columns: good[rows, columns].astype(str), nb=8))
solved("complex for real", lambda of: of.matrix(40, fill=lambda r, c: good[r, c] * 1j, nb=8))
solved("negative order", lambda of: of.matrix(-1, fill=good))
solved("no block", lambda of: of.matrix(40, fill=good, nb=0))
solved("raises at one rank", lambda of: of.matrix(40, fill=divided, nb=8))
solved("never the same", lambda of: of.matrix(40, fill=never_the_same, nb=8))
solved("short b", given(good), right[:39])
solved("b not finite at one rank", given(good), lambda: right + (np.inf if world.rank == 4 else 0))
solved("complex b", given(good), right * 1j)
solved("different matrices", lambda of: of.matrix(40, fill=good * (1 + (world.rank == 2)), nb=8))
solved("different blocks", lambda of: of.matrix(40, fill=good, nb=8 + (world.rank == 5)))
solved("mask", given(np.ma.masked_less(good, 0)))
solved(
    "mask of what fill gives",
    lambda of: of.matrix(40, fill=lambda r, c: np.ma.masked_less(good[r, c], 0), nb=8),
)
solved("mask of b", given(good), np.ma.masked_less(right, 0))
solved("no numbers", given(good.astype(str)))
solved("no kind of numbers", given(good, dtype="float65"))
solved("neither function nor array", lambda of: of.matrix(40, fill=None))
with np.errstate(all="ignore"):
    solved("sums overflow", given(good * 2e307))
solved(
    "grows",
    given(np.tril(-np.ones((70, 70)), -1) + np.eye(70) + np.outer(np.ones(70), np.eye(70)[-1])),
    np.ones(70),
)
solved("on_loss", given(good), on_loss="weep")
solved("look-ahead of two", given(good), look_ahead=2)
solved("different look-ahead", given(good), look_ahead=int(world.rank == 3))
solved("no matrix", lambda of: good)
try:
    abft.Grid(1, 1, comm=3)
except abft.GridError as error:
    print(f"no communicator | GridError: {error}", flush=True)
for name, arguments in {
    "too few ranks": (3, 3, 1),
    "no rows": (0, 2, 1),
    "too many columns of checksums": (1, 2, 3),
}.items():
    try:
        abft.Grid(*arguments[:2], redundant=arguments[2])
    except abft.GridError as error:
        print(f"{name} | GridError: {error}", flush=True)

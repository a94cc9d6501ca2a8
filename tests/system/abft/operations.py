"""Operations with inputs of all kinds, good and bad; every rank prints "name | outcome" for each. Six ranks."""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from ckpt import MPI, abft
from ckpt.abft.operations import factors, matmul
from ckpt.abft.solver import solve

world = MPI.COMM_WORLD
grid = abft.Grid(2, 2)
random = np.random.default_rng(1)
good, right = random.normal(size=(40, 40)), random.normal(size=40)
other = random.normal(size=(40, 40))


def said(name, call, truth=0.0, close=1e-12):
    try:
        found = call()
        close = max(close, 1e5 * np.finfo(found.dtype).eps) * max(1.0, float(np.abs(truth).max(initial=0.0)))
        outcome = f"{found.dtype} {np.abs(found - truth).max(initial=0.0) <= close}"
    except abft.AbftError as error:
        outcome = f"{type(error).__name__}: {error}"
    print(f"{name} | {outcome}", flush=True)


# ---- products


def product(name, a, b, nb, of=grid, **options):
    one, two = of.matrix(len(a), fill=a, nb=nb), of.matrix(len(b), fill=b, nb=nb)
    said(name, lambda: abft.matmul(one, two, **options), a @ b)


def never_the_same(rows, columns):
    return np.random.default_rng().normal(size=(rows.stop - rows.start, columns.stop - columns.start))


for n in (0, 1, 2, 7, 39, 40):
    product(f"product of order {n}", good[:n, :n], other[:n, :n], 16)
for kind in ("float32", "complex64", "complex128"):
    factor = good + 1j * other if kind.startswith("c") else good
    product(f"product {kind}", factor.astype(kind), other.astype(kind), 7)
for P, Q, redundant in ((1, 1, 1), (3, 1, 1), (1, 5, 1), (2, 3, 0), (1, 3, 2), (1, 4, 2), (2, 2, 1)):
    of = abft.Grid(P, Q, redundant=redundant)
    product(f"product on {P} × {Q} + {redundant}", good, other, 3, of, verify=P == 2)
product("product of large and small numbers", good * 1e-200, other * 1e200, 8)
a, b = grid.matrix(40, fill=good, nb=8), grid.matrix(40, fill=other, nb=8)
said("product with an array", lambda: abft.matmul(a, good))
said("product of another grid", lambda: abft.matmul(a, abft.Grid(2, 2).matrix(40, fill=other)))
said("product of other blocks", lambda: abft.matmul(a, grid.matrix(40, fill=other, nb=5)))
said("product of other kinds", lambda: abft.matmul(a, grid.matrix(40, fill=other.astype("f4"), nb=8)))
nan = other.copy()
nan[17, 3] = np.nan
said("product with nan", lambda: abft.matmul(a, grid.matrix(40, fill=nan, nb=8)))
said("different products", lambda: abft.matmul(a, b, verify=world.rank == 3))
said("never the same product", lambda: abft.matmul(a, grid.matrix(40, nb=8, fill=never_the_same)))

# ---- conjugate gradients

positive = good @ good.T / 40 + np.eye(40)
hermitian = positive + 1j * (other - other.T) / 40
line = 2 * np.eye(40) - np.eye(40, k=1) - np.eye(40, k=-1)
calls = 0


def laplacian(x, rows):
    found = 2 * x
    found[1:] -= x[:-1]
    found[:-1] -= x[1:]
    return found[rows]


def flaky(x, rows):
    global calls
    calls += 1
    found = laplacian(x, rows)
    if calls == 20 and world.rank == 2:
        found[3] += 1e-5
    return found


def gradients(name, op, b, whole):
    said(name, lambda: abft.cg(op, b), np.linalg.solve(whole, b), 1e-7)


for n in (0, 1, 3, 40):
    part = positive[:n, :n]
    gradients(f"cg of order {n}", grid.matrix(n, fill=part), right[:n], part)
gradients("cg of a function", laplacian, right, line)
gradients("cg in float32", laplacian, right.astype("f4"), line)
gradients("cg of complex numbers", grid.matrix(40, fill=hermitian), right.astype(complex), hermitian)
said(
    "cg of tiny numbers",
    lambda: abft.cg(laplacian, right * 1e-200) * 1e200,
    np.linalg.solve(line, right),
    1e-7,
)
gradients("cg of integers", laplacian, np.arange(40), line)
gradients("cg of zero", laplacian, np.zeros(40), line)
gradients("cg with a wrong number", flaky, right, line)
said("cg, not linear", lambda: abft.cg(lambda x, rows: laplacian(x, rows) + 0.01 * x[rows] ** 3, right))
said("cg, affine", lambda: abft.cg(lambda x, rows: laplacian(x, rows) + 1, right))
said(
    "cg, not its own adjoint",
    lambda: abft.cg(lambda x, rows: laplacian(x, rows) + 0.1 * np.roll(x, 1)[rows], right),
)
said("cg, negative", lambda: abft.cg(lambda x, rows: -laplacian(x, rows), right))
said("cg, few iterations", lambda: abft.cg(laplacian, right, iterations=3))
said("cg, a shape", lambda: abft.cg(lambda x, rows: x, right))
said("cg, nan", lambda: abft.cg(lambda x, rows: x[rows] * np.nan, right))
said("cg, b with nan", lambda: abft.cg(laplacian, [1.0, np.nan]))
said("cg, b with a mask", lambda: abft.cg(laplacian, np.ma.masked_less(right, 0)))
said("cg, a mask", lambda: abft.cg(lambda x, rows: np.ma.masked_less(laplacian(x, rows), 0), right))
said("cg, x too large", lambda: abft.cg(lambda x, rows: laplacian(x, rows) * 1e-200, right * 1e300))
said("cg, x too small", lambda: abft.cg(lambda x, rows: laplacian(x, rows) * 1e200, right * 1e-300))
said("cg, two vectors", lambda: abft.cg(laplacian, np.ones((40, 2))))
said(
    "cg, different", lambda: abft.cg(laplacian, right * (1 + (world.rank == 4)))
)  # only the exponents differ
said("cg of a number", lambda: abft.cg(3, right))

# ---- factors


def lu(matrix, **options):
    factors = abft.lu(matrix, **options)
    found = np.empty_like(factors.U)
    found[factors.p] = factors.L @ factors.U
    assert np.array_equal(np.triu(factors.L), np.eye(matrix.n)) and np.array_equal(
        np.tril(factors.U, -1), 0 * found
    )
    return found


def cholesky(matrix, **options):
    factor = abft.cholesky(matrix, **options)
    assert np.array_equal(np.triu(factor, 1), 0 * factor)
    return np.asarray(factor @ factor.conj().T)


def qr(matrix, **options):
    Q, R, _ = abft.qr(matrix, **options)
    assert np.array_equal(np.tril(R, -1), 0 * R)
    off = np.abs(Q.conj().T @ Q - np.eye(matrix.n)).max(initial=0.0)
    return Q @ R if off < 1e3 * np.finfo(Q.dtype).eps else np.nan * Q


FACTORS = {"lu": (lu, good), "cholesky": (cholesky, positive), "qr": (qr, good)}
for name, (call, whole) in FACTORS.items():
    for n in (0, 1, 2, 7, 39, 40):
        part = grid.matrix(n, fill=whole[:n, :n], nb=16)
        said(f"{name} of order {n}", lambda call=call, part=part: call(part), whole[:n, :n])
    for kind in ("float32", "complex64", "complex128"):
        other_kind = (hermitian if kind.startswith("c") else whole).astype(kind)
        part = grid.matrix(40, fill=other_kind, nb=7)
        said(f"{name} {kind}", lambda call=call, part=part: call(part, verify=1), other_kind)
    for P, Q, redundant in ((1, 1, 1), (3, 1, 1), (1, 5, 1), (2, 3, 0), (1, 3, 2)):
        part = abft.Grid(P, Q, redundant=redundant).matrix(40, fill=whole, nb=3)
        said(f"{name} on {P} × {Q} + {redundant}", lambda call=call, part=part: call(part), whole)
    said(f"{name} of an array", lambda call=call, whole=whole: call(abft.Grid(2, 2).matrix(39, fill=whole)))
singular = good.copy()
singular[:, 21] = 0
said("lu, singular", lambda: lu(grid.matrix(40, fill=singular, nb=8)))
said("qr, singular", lambda: qr(grid.matrix(40, fill=singular, nb=8)), singular)
said("cholesky, indefinite", lambda: cholesky(grid.matrix(40, fill=positive - 1.5 * np.eye(40), nb=8)))
said("cholesky, semidefinite", lambda: cholesky(grid.matrix(40, fill=np.ones((40, 40)), nb=8)))
said(
    "cholesky, not Hermitian", lambda: cholesky(grid.matrix(40, fill=positive + np.eye(40, k=3) * 0.01, nb=8))
)
said("solved with factors", lambda: abft.lu(a).solve(right), np.linalg.solve(good, right))
said("solved with factors, several", lambda: abft.lu(a).solve(other), np.linalg.solve(good, other))
said("solved with factors, a shape", lambda: abft.lu(a).solve(right[:39]))
said("never the same factors", lambda: lu(grid.matrix(40, nb=8, fill=never_the_same)))
said("different factors", lambda: lu(a, check=world.rank != 3))

# ---- a result that is wrong at one rank, in rows at which others look


def wrong_at_one(room, name):
    right = getattr(room, name)

    def changed(*arguments):
        found = right(*arguments)
        if world.rank == 2:
            found[0] += 1
        return found

    setattr(room, name, changed)
    return lambda: setattr(room, name, right)


diagonal = grid.matrix(40, fill=np.diag(np.arange(1.0, 41)), nb=8)
for name, room, function, call in (
    ("solve", solve, "substitute", lambda: abft.solve(diagonal, right)),
    ("matmul", matmul._Product, "_gathered", lambda: abft.matmul(diagonal, diagonal)),
    ("lu", factors._LU, "finish", lambda: lu(diagonal)),
):
    undo = wrong_at_one(room, function)
    said(f"{name}, wrong at one rank", call)
    undo()

# ---- encoded arrays

stack = random.normal(size=(2, 2, 5, 3))
x, y = abft.Encoded(stack, grid=grid), abft.Encoded(lambda p, q: stack[p, q] ** 2, grid=grid)
said("sums", lambda: (2 * x - y / 4 + (-x)).parts(), stack - stack**2 / 4)
said("applied", lambda: x.apply(lambda part: part.sum(axis=1)).parts(), stack.sum(axis=3))
said("complex multiples", lambda: x.scale(2j).parts(), stack * 2j)
said(
    "whole",
    lambda: np.array([x.verify() < 1e-15, x.replace() is None, x.condition == 1], dtype=float),
    np.ones(3),
)
single = abft.Encoded(stack.astype("f4"), grid=grid)
said("in float32", lambda: single.apply(np.fft.fftshift).parts(), np.fft.fftshift(stack, axes=(2, 3)))
default = abft.Encoded(lambda p, q: np.full(2, float(q)))
said("on all ranks", lambda: default.parts(), np.repeat(np.arange(5.0), 2).reshape(1, 5, 2))
said("no numbers", lambda: abft.Encoded(np.zeros((2, 2, 0)), grid=grid).parts(), np.zeros((2, 2, 0)))
numbers = abft.Encoded([[1.0, 2.0], [3.0, 4.0]], grid=grid)
said(
    "single numbers",
    lambda: (numbers + x.apply(np.sum)).parts(),
    np.array([[1, 2], [3, 4]]) + stack.sum((2, 3)),
)
said(
    "an operation on single numbers",
    lambda: numbers.apply(lambda part: 2 * part).parts(),
    np.array([[2, 4], [6, 8]]),
)
said("single numbers, verified", lambda: np.array(numbers.verify()), np.zeros(()))
said("a number of numpy times", lambda: (np.float64(2) * x + np.array(3.0) * x).parts(), 5 * stack)
said("an array times", lambda: np.array([1.0, 2.0]) * x)
said("what is held, changed", lambda: np.array(float(x.local is not None and x.local.flags.writeable)))
said("parts on no grid", lambda: abft.Encoded(stack, grid=(2, 2)))
said("cg, tolerance of text", lambda: abft.cg(diagonal, right, tolerance="1e-6"))
said("cg on no grid", lambda: abft.cg(diagonal, right, grid=(2, 2)))
said("integer parts", lambda: abft.Encoded(np.ones((2, 2, 3), dtype=int), grid=grid))
said("parts of another grid", lambda: abft.Encoded(np.ones((3, 2, 3)), grid=grid))
said("parts with nan", lambda: abft.Encoded(np.where(stack == stack[1, 0, 2, 1], np.nan, stack), grid=grid))
said("parts of different shapes", lambda: abft.Encoded(lambda p, q: np.ones(2 + q), grid=grid))
said("parts with a mask", lambda: abft.Encoded(np.ma.masked_less(stack, 0), grid=grid))
said("an operation gives a mask", lambda: x.apply(lambda part: np.ma.masked_less(part, 0)))
said("not linear", lambda: x.apply(lambda part: part + 1))
said("not linear at all", lambda: x.apply(np.abs))
said("limited, beyond what is tried first", lambda: x.apply(lambda part: np.clip(part, -1e3, 1e3)))
said("small ones cut off", lambda: x.apply(lambda part: np.where(np.abs(part) < 1e-6, 0, part)))
said("of tiny factors", lambda: x.apply(lambda part: part * 1e-300).parts() * 1e300, stack)
said("of huge factors", lambda: x.apply(lambda part: part * 1e300).parts() / 1e300, stack)
said("integers come out", lambda: x.apply(lambda part: part.astype(int)))
said("changes what it is given", lambda: x.apply(lambda part: part * 2).parts(), stack * 2)
said("another shape", lambda: x + default)
said("times text", lambda: x * "a")
said("times nan", lambda: x * float("nan"))
wrong = x.apply(lambda part: part * (1 + 1e-3 * (world.rank == 1)), probe=False)
said("not the same for all", lambda: np.array(wrong.verify()))


def communicators():
    """How many this rank has more after some collective calls."""
    before = len(world._engine.shared)
    for _ in range(10):
        x.verify()
        x.parts()
        abft.cg(laplacian, right, iterations=400)
    return np.array(float(len(world._engine.shared) - before))


said("no communicators are left behind", communicators, np.zeros(()))

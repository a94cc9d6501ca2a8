"""Linear algebra that loses a process and goes on: matrices encoded with checksums, hot replacement of lost columns.

    grid = abft.Grid(P=2, Q=2)                      # P·(Q+1) ranks of the job; further ranks are spares
    A = grid.matrix(n, nb=64, fill=block)
    x = abft.solve(A, b)                            # kill -9 of a rank costs milliseconds, and no rollback
    print(x.report)

Under ``ckpt run -n 6 --on-failure continue``. Needs numpy.

    decisions/   who holds what, the operations of a step, what all decide after a death; pure
    numbers/     what one process computes; wrong numbers
    operations/  products, iterations, factors
    errors       the exceptions
    solver/      what a rank does in a factorisation: communication, meetings, solution, report
"""

from __future__ import annotations

from ckpt.abft.errors import (
    AbftError,
    GridError,
    Inaccurate,
    InputError,
    NotConverged,
    NotLinear,
    NotPositive,
    RankFailed,
    Singular,
    TooManyLost,
    WrongProduct,
)
from ckpt.abft.numbers.checked import Finding
from ckpt.abft.operations.cg import cg
from ckpt.abft.operations.encoded import Encoded
from ckpt.abft.operations.factors import LU, QR, cholesky, lu, qr
from ckpt.abft.operations.matmul import matmul
from ckpt.abft.operations.product import checked_matmul
from ckpt.abft.solver.matrix import Grid, Matrix
from ckpt.abft.solver.report import Loss, Report, Solution
from ckpt.abft.solver.solve import solve

__all__ = [
    "AbftError",
    "Encoded",
    "Finding",
    "Grid",
    "GridError",
    "Inaccurate",
    "InputError",
    "LU",
    "Loss",
    "Matrix",
    "NotConverged",
    "NotLinear",
    "NotPositive",
    "QR",
    "RankFailed",
    "Report",
    "Singular",
    "Solution",
    "TooManyLost",
    "WrongProduct",
    "cg",
    "checked_matmul",
    "cholesky",
    "lu",
    "matmul",
    "qr",
    "solve",
]

"""Linear algebra that loses a process and goes on: matrices encoded with checksums, hot replacement of lost columns.

    grid = abft.Grid(P=2, Q=2)                      # P·(Q+1) ranks of the job; further ranks are spares
    A = grid.matrix(n, nb=64, fill=block)
    x = abft.solve(A, b)                            # kill -9 of a rank costs milliseconds, and no rollback
    print(x.report)

Under ``ckpt run -n 6 --on-failure continue``. Needs numpy.

    grid.py        who holds what            encoding.py    weights of the checksums, replaced columns
    broadcast.py   the ways of a panel       steps.py       the operations of a step
    plan.py        what is decided after a death
    dense.py       kernels                   local.py       one process's numbers
    verify.py      wrong numbers             matrix.py      the grid and the matrix as the program gives them
    link.py        communication, meetings   member.py      one rank's part
    lu.py, backward.py   the solve           report.py      what happened in it
"""

from __future__ import annotations

from ckpt.abft.errors import (
    AbftError,
    GridError,
    Inaccurate,
    InputError,
    RankFailed,
    Singular,
    TooManyLost,
)
from ckpt.abft.lu import solve
from ckpt.abft.matrix import Grid, Matrix
from ckpt.abft.report import Loss, Report, Solution

__all__ = [
    "AbftError",
    "Grid",
    "GridError",
    "Inaccurate",
    "InputError",
    "Loss",
    "Matrix",
    "RankFailed",
    "Report",
    "Singular",
    "Solution",
    "TooManyLost",
    "solve",
]

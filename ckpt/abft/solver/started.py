"""A process that is started while a solve goes on, to form new checksums: it has met the others, and becomes one of them.

    started ──merge (link.py)──▶ told what is solved, and how far all are ──▶ as any idle rank ──solved──▶ ends

It ends without a word when the solve ends with an error, which all ranks that have begun it raise. It has none of the
program's functions, and needs none (joining.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ckpt import MPI
from ckpt.abft.decisions.course import State
from ckpt.abft.decisions.joining import joined
from ckpt.abft.errors import AbftError
from ckpt.abft.numbers.local import Array
from ckpt.abft.solver.link import Link
from ckpt.abft.solver.matrix import Grid, Matrix
from ckpt.abft.solver.solve import Brief, Solving

__all__ = ["serve"]


def serve(comm: Any, found: Sequence[int | tuple[State, Brief]]) -> None:
    """Take part to the end. `comm`, `found`: what the merge has given, the places of new processes and what members say."""
    brief = next((each[1] for each in found if not isinstance(each, int)), None)
    if brief is None:
        return  # all that have asked for this process are dead
    said = [each if isinstance(each, int) else each[0] for each in found]
    course, states = joined(brief.course, said, MPI.COMM_WORLD.size)
    link = Link(comm, rank=list(states)[comm.rank], seals=brief.options.verify > 0)
    link.adopt(states)
    grid = Grid(*brief.grid, redundant=0, comm=comm)
    matrix = Matrix(grid, brief.n, _never, brief.nb, brief.dtype)
    right = np.zeros((0, brief.right), dtype=brief.dtype)
    solving = Solving(link, matrix, right, brief.options, brief.task, brief.signature)
    solving.losses = list(brief.losses)
    try:
        solving.goes_to_the_end((course, states))
    except AbftError:
        pass  # of all alike
    except Exception:
        if solving.problem is None:  # else the others know it, and raise it
            raise
    finally:
        link.close()


def _never(rows: slice, columns: slice) -> Array:
    raise AssertionError("a process that was started in a solve is asked for numbers of the matrix")

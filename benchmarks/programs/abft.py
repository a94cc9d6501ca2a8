"""One solve on a grid, of which ranks die: abft.py '{"P": …, "order": …, "deaths": [[p, v, step], …], "marks": DIR, …}'.

The rank at process row p of the virtual column v (from Q on: checksums) kills itself when it has applied the panels below
`step`, once, `pause_s` later: it leaves a file in `marks` with the CPU time that it has used. "ask": it asks to be killed
instead, by saying "kill PID": after a rollback its files are what they were, and it would not know that it has died. Every
rank that is left prints what its solve has cost, as JSON; "repair": the CPU time of what it has done because of
deaths: taking what was decided, and computing back, with the messages for it. "peer": the same system is solved by scipy,
or numpy, in one process instead.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path

os.environ["OPENBLAS_NUM_THREADS"] = "1"

import numpy as np

from ckpt import MPI, abft
from ckpt.abft.decisions.course import Decision
from ckpt.abft.decisions.steps import Op
from ckpt.abft.solver.member import Member

given = json.loads(sys.argv[1])
P, Q, n = given["P"], given["Q"], given["order"]
random = np.random.default_rng(given["seed"])
TILE = given["block"]
# Up to this order each rank has the whole matrix; a larger one is made where it is asked for
LARGEST_WHOLE = 10_000
began = cpu = repair = 0.0


def tile(i: int, j: int) -> np.ndarray:
    """Numbers that depend on the place alone, from a generator with a counter (Philox)."""
    return (
        np.random.Generator(np.random.Philox(key=[given["seed"], (i << 32) + j])).random((TILE, TILE)) - 0.5
    )


def made(rows: slice, columns: slice) -> np.ndarray:
    """These rows and columns of the matrix."""
    part = np.empty((rows.stop - rows.start, columns.stop - columns.start))
    for i in range(rows.start // TILE, -(-rows.stop // TILE)):
        for j in range(columns.start // TILE, -(-columns.stop // TILE)):
            top, left = max(rows.start, i * TILE), max(columns.start, j * TILE)
            low, far = min(rows.stop, (i + 1) * TILE), min(columns.stop, (j + 1) * TILE)
            of = tile(i, j)[top - i * TILE : low - i * TILE, left - j * TILE : far - j * TILE]
            part[top - rows.start : low - rows.start, left - columns.start : far - columns.start] = of
    return part


matrix = random.uniform(-0.5, 0.5, (n, n)) if n <= LARGEST_WHOLE else made
right = random.uniform(-0.5, 0.5, n)


def told(residual: float, **more: float) -> None:
    found = {"seconds": time.perf_counter() - began, "cpu": time.process_time() - cpu, "residual": residual}
    print(json.dumps({**found, **more}), flush=True)


def peer() -> None:
    """Partial pivoting in one process and one thread."""
    try:
        from scipy.linalg import solve
    except ImportError:
        from numpy.linalg import solve
    global began, cpu
    whole = matrix(slice(0, n), slice(0, n)) if callable(matrix) else matrix
    began, cpu = time.perf_counter(), time.process_time()
    x = solve(whole, right)
    scale = np.abs(whole).sum(axis=1).max() * np.abs(x).max() + np.abs(right).max()
    told(float(np.abs(right - whole @ x).max() / (np.finfo(float).eps / 2 * scale * n)))


def watched(member: Member, k: int) -> None:
    """A step of a rank that may have to die behind it."""
    applied(member, k)
    for number, (p, v, step) in enumerate(given["deaths"]):
        if member.place != (p, v) or member.step != step:
            continue
        if given.get("ask"):
            print("kill", os.getpid(), flush=True)
            continue
        mark = Path(given["marks"]) / str(number)
        if not mark.exists():
            time.sleep(given.get("pause_s", 0.0))  # until the others have come as far
            mark.write_text(str(time.process_time() - cpu))
            os.kill(os.getpid(), signal.SIGKILL)


if given.get("peer"):
    peer()
    sys.exit()


def repairing(self: Member, op: Op) -> None:
    """An operation of a rank. Some there are only after a death."""
    global repair
    before = time.process_time()
    carried_out(self, op)
    if op.kind in ("give block", "get block", "combine"):
        repair += time.process_time() - before


def following(self: Member, decision: Decision) -> None:
    """What a meeting has decided; all but the first one is because of a death, or the end."""
    global repair
    before, first = time.process_time(), self.course is None
    followed(self, decision)
    if not first:
        repair += time.process_time() - before


applied, carried_out, followed = Member._apply, Member._carry_out, Member.follow
Member._apply = watched  # type: ignore[method-assign]
Member._carry_out = repairing  # type: ignore[method-assign]
Member.follow = following  # type: ignore[method-assign]
grid = abft.Grid(P, Q, redundant=given["redundant"], unprotected=given["ask"])
A = grid.matrix(n, nb=given["block"], fill=matrix)
MPI.COMM_WORLD.barrier()
began, cpu = time.perf_counter(), time.process_time()
x = abft.solve(A, right, on_loss=given["on_loss"], verify=given["verify"])
told(
    x.report.residual,
    handling_ms=max((loss.handling_ms for loss in x.report.losses), default=0.0),
    losses=len(x.report.losses),
    repair=repair,
)

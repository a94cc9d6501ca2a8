"""Small collectives through shared memory: ranks are killed, and the bytes are those of a job that has only messages."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from tests.seeds import seed_of_the_commit
from tests.system.support import Job, long_enough

RANKS, KILLS = 4, 3
PROGRAM = """
import sys
import numpy as np
import ckpt
comm = ckpt.enable()
rank, size = comm.rank, comm.size
half = comm.Split(rank % 2, rank)
mine, total, number = np.linspace(0, 1, 900) * (rank + 1), np.zeros(900), 0.0
for turn in range(200 * int(sys.argv[1])):
    comm.Allreduce(mine, total)
    mine = np.sin(total / size + rank)
    number = comm.allreduce(float(mine[turn % 900]) + number * 1e-3)
    mine[0] += comm.bcast(number if rank == turn % size else None, root=turn % size)
    number += sum(half.allgather(number)) * 1e-3
    comm.Barrier()
    if turn % 50 == 0:
        number += len(comm.bcast("x" * 99999 if rank == 0 else None))
print(rank, repr(float(number)), float(mine.sum()).hex())
"""


@pytest.mark.nightly
def test_a_job_with_kills_prints_what_one_with_messages_does(
    start: Callable[..., Job], tmp_path: Path
) -> None:
    program = tmp_path / "collectives.py"
    program.write_text(PROGRAM)
    random = Random(seed_of_the_commit())

    def attempt(scale: int) -> None:
        plain = start(program, scale, ranks=RANKS, wire="socket", name=f"messages-{scale}")
        assert plain.finish() == 0, plain.report()
        job = start(program, scale, ranks=RANKS, every=0.1, max_restarts=2 * KILLS, name=f"boards-{scale}")
        for kill in range(KILLS):
            job.wait_event("committed", len(job.events("committed")) + 1)
            job.kill_rank(random.randrange(RANKS))
            job.wait_event("restarted", kill + 1)
        assert job.finish() == 0, job.report()
        assert [job.output(rank) for rank in range(RANKS)] == [plain.output(rank) for rank in range(RANKS)]
        assert not job.events("line-unusable") and not job.events("starting-over"), job.report()

    long_enough(1, attempt)

"""Real jobs of several ranks that are killed: they must print the same as without."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path

from tests.system.support import Job, long_enough

Start = Callable[..., Job]


def same_with_kills(start: Start, program: Path, seed: int, *, loops: int, ranks: int = 3) -> None:
    """All ranks print the same with two kills at random moments as without. Each time the job goes on from images."""
    choose = random.Random(seed)

    def attempt(turns: int) -> None:
        plain = start(program, turns, ranks=ranks, name=f"plain-{turns}")
        assert plain.finish() == 0, plain.report()
        job = start(program, turns, ranks=ranks, every=0.1, name=f"job-{turns}")
        for kill in range(2):
            job.wait_event("committed", len(job.events("committed")) + 1)
            time.sleep(choose.random() * 0.1)  # a random moment, not a wait for something
            job.kill_rank(choose.randrange(ranks))
            job.wait_event("restarted", kill + 1)
        assert job.finish() == 0, job.report()
        for rank in range(ranks):
            assert job.output(rank) == plain.output(rank)
        assert all(event["from_epoch"] for event in job.events("restarting")), job.report()

    long_enough(loops, attempt)


def finds_the_same_memory(start: Start, program: Path) -> None:
    """Two ranks take a checkpoint, one is killed, and both find what they look for after the restart."""
    job = start(program, ranks=2)
    job.wait_event("committed")
    job.kill_rank(1)
    assert job.finish() == 0, job.report()
    assert [job.output(rank) for rank in range(2)] == ["the same memory 1\n"] * 2
    assert all(event["from_epoch"] for event in job.events("restarting")), job.report()

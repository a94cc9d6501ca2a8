"""Pools of mpi4py.futures, of the installed mpi4py, in jobs whose ranks are killed: the results of an undisturbed run."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.system.support import Job, write_app

pytestmark = [pytest.mark.system, pytest.mark.nightly]

Start = Callable[..., Job]

WORK = """
    import os

    def work(number):
        total = 0
        for i in range(1, 20000 + number):
            total += i * i % 7
        return total

    def until_it_may_end(compute):
        # again and again until the test has made its kills: the same result
        while True:
            found = compute()
            if os.path.exists(os.environ["CKPT_TEST_GO"]):
                return found
"""
POOL = (
    WORK
    + """
    from mpi4py.futures import MPIPoolExecutor

    if __name__ == "__main__":
        with MPIPoolExecutor() as executor:
            print(until_it_may_end(lambda: sum(executor.map(work, range(500)))))
            futures = [executor.submit(work, number) for number in range(100)]
            print(sum(future.result() for future in futures))
"""
)
COMMUNICATOR = (
    WORK
    + """
    from mpi4py import MPI
    from mpi4py.futures import MPICommExecutor

    with MPICommExecutor(MPI.COMM_WORLD, root=0) as executor:
        if executor is not None:
            print(until_it_may_end(lambda: sum(executor.map(work, range(600)))))
    print("end", MPI.COMM_WORLD.rank)
"""
)


def expected(numbers: range) -> int:
    return sum(i * i % 7 for number in numbers for i in range(1, 20000 + number))


@pytest.fixture(autouse=True)
def _mpi4py() -> None:
    pytest.importorskip("mpi4py", reason="the installed mpi4py's part in Python is what is tried")


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("kind", ["pool", "communicator"])
def test_pools_go_on_after_kills(start: Start, tmp_path: Path, kind: str, seed: int) -> None:
    """A lock in an attribute of a function, and the pool, which is pickled by the name of a variable, were lost."""
    app = write_app(tmp_path, POOL if kind == "pool" else COMMUNICATOR)
    words: list[Path | str] = ["-m", "mpi4py.futures", app] if kind == "pool" else [app]
    job = start(words[0], *words[1:], ranks=3, every=0.2)
    chance = random.Random(seed)
    for kills in range(1, 4):
        # not while the job starts again: the process that is to be killed may have gone
        job.wait_event("committed", len(job.events("committed")) + 1)
        time.sleep(chance.uniform(0, 0.3))
        job.kill_rank(chance.randrange(3))
        job.wait_event("restarted", kills)
    assert job.finish() == 0, job.report()
    if kind == "pool":
        assert job.output(0) == f"{expected(range(500))}\n{expected(range(100))}\n", job.report()
    else:
        assert job.output(0) == f"{expected(range(600))}\nend 0\n", job.report()

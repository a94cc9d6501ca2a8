"""Random programs of MPI calls print and write the same when ranks are killed at random moments (random_calls.py)."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.seeds import seed_of_the_commit
from tests.system.support import EndedEarly, Job, jobs_fixture

pytest.importorskip("numpy")
pytestmark = [pytest.mark.system, pytest.mark.timeout(300), pytest.mark.turns(4)]

Start = Callable[..., Job]
PROGRAM = Path(__file__).with_name("random_calls.py")


def started(start: Start, folder: Path, kind: str, *arguments: object, **options: object) -> tuple[Job, Path]:
    """The job, and the directory that it writes to."""
    work = folder / kind
    work.mkdir()
    within = ("env", "-C", str(work))
    return start(PROGRAM, *arguments, name=f"job-{kind}", within=within, **options), work


def seen(job: Job, work: Path, ranks: int) -> tuple[list[str], dict[str, bytes]]:
    """What it has printed and written."""
    assert job.finish(200) == 0, job.report()
    return [job.output(rank) for rank in range(ranks)], {
        each.name: each.read_bytes() for each in work.iterdir()
    }


def kill_some(job: Job, choose: random.Random, ranks: int, kills: int) -> None:
    """Any ranks, at any moment after the first checkpoint; as many as there is time for."""
    job.wait_event("committed")
    for _ in range(kills):
        time.sleep(choose.uniform(0.1, 1.0))
        before = len(job.events("restarted"))
        try:
            job.kill_rank(choose.randrange(ranks))
            job.wait_event("restarted", before + 1)
        except (EndedEarly, ProcessLookupError):
            return


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    yield from jobs_fixture(tmp_path)


@pytest.mark.parametrize(
    "number", [0, *(pytest.param(number, marks=pytest.mark.nightly) for number in range(1, 40))]
)
def test_a_random_program_prints_and_writes_the_same_after_kills(
    start: Start, tmp_path: Path, number: int, figures: Callable[[str, int], None]
) -> None:
    seed = seed_of_the_commit() * 100 + number
    choose = random.Random(seed)
    ranks = choose.randint(1, 4)
    plain = seen(*started(start, tmp_path, "plain", seed, 300, ranks=ranks), ranks)
    job, work = started(start, tmp_path, "killed", seed, 300, ranks=ranks, every=0.15, max_restarts=9)
    kill_some(job, choose, ranks, 3)
    found = seen(job, work, ranks)
    assert found[0] == plain[0] and found[1].keys() == plain[1].keys(), f"seed {seed}\n{job.report()}"
    different = [name for name, contents in plain[1].items() if found[1][name] != contents]
    assert not different, f"seed {seed}: {different}\n{job.report()}"
    figures("random programs of MPI calls: kills", len(job.events("rank-died")))


@pytest.mark.nightly
@pytest.mark.parametrize("number", range(10))
def test_a_random_program_prints_the_same_with_replicas_that_are_killed(
    start: Start, tmp_path: Path, number: int
) -> None:
    seed = seed_of_the_commit() * 100 + number
    choose = random.Random(seed)
    plain = seen(*started(start, tmp_path, "plain", seed, 300, ranks=2), 2)
    options = {"redundancy": 3, "every": 0.5, "max_restarts": 9}
    job, work = started(start, tmp_path, "replicas", seed, 300, ranks=2, **options)
    job.wait_event("committed")
    for _ in range(3):
        time.sleep(choose.uniform(0.1, 2.0))
        try:
            job.kill_rank(choose.randrange(6))
        except ProcessLookupError:
            break
    assert seen(job, work, 2) == plain, f"seed {seed}\n{job.report()}"

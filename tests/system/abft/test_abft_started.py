"""Grids that start processes of `ckpt run --spares K` while they solve: real kills, of ranks and of the new processes, at
each phase. Whoever dies: nobody waits for ever, and all that live end alike."""

from __future__ import annotations

import contextlib
import json
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.seeds import seed_of_the_commit
from tests.system.abft.abft_jobs import PROGRAMS, lines, solve_with_deaths
from tests.system.support import Job, jobs_fixture

pytest.importorskip("numpy")
pytestmark = [pytest.mark.system, pytest.mark.timeout(300), pytest.mark.turns(8)]

Start = Callable[..., Job]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    yield from jobs_fixture(tmp_path)


def solving(start: Start, *, spares: int = 3, ranks: int = 6, name: str = "job", **options: object) -> Job:
    return start(
        PROGRAMS / "solves.py",
        json.dumps(options),
        ranks=ranks,
        spares=spares,
        on_failure="continue",
        name=name,
    )


def said(job: Job, ranks: int = 6) -> list[str]:
    """What each solve was at all ranks alike that were there at its end."""
    assert job.finish(120) == 0, job.report()
    found = lines(job, ranks)
    assert all(len(set(each)) == 1 for each in found.values()), job.report()
    return [found[key][0] for key in sorted(found)]


def test_one_after_the_other_dies_and_each_time_a_process_protects_again(start: Start) -> None:
    """Each time when the checksums are complete again; new processes are in columns of the data by then."""
    job = solving(start, deaths=[[0, 1, 40], [0, 5, 300], [0, 3, 520]], n=320)
    assert said(job) == ["right 3 True 1 3 5"], job.report()
    assert [event["processes"] for event in job.events("spawned")] == [[6], [7], [8]], job.report()
    assert [event["rank"] for event in job.events("rank-died")] == [1, 5, 3]


@pytest.mark.rotate(4)
@pytest.mark.parametrize("verify", [False, True])
def test_in_a_product_too_each_time_a_process_protects_again(start: Start, verify: bool) -> None:
    """The first one comes to be in a column of the data, and has no `fill`: a rank that has it gives it A's blocks. Nobody
    waits for it; so ranks are slow, that it has its checksums before the second death."""
    deaths = [[0, 1, 20], [0, 5, 200]]
    job = solving(start, deaths=deaths, n=320, slow=0.03, operation="matmul", verify=verify)
    assert said(job) == ["right 2 True 1 5"], job.report()
    assert [event["processes"] for event in job.events("spawned")] == [[6], [7]], job.report()


def test_when_they_are_used_up_it_goes_on_without_protection_as_before(start: Start) -> None:
    job = solving(start, spares=1, deaths=[[0, 1, 40], [0, 2, 400]], n=320)
    assert said(job) == ["right 1 False 1 2"], job.report()


def test_a_grid_that_may_not_start_processes_starts_none(start: Start) -> None:
    job = solving(start, deaths=[[0, 1, 40]], reserve=False)
    assert said(job) == ["right 0 False 1"] and not job.events("spawn-requested"), job.report()


def test_who_dies_before_the_first_panel_and_who_is_missing_from_the_start(start: Start) -> None:
    """Places are given anew, and filled by those that can; after the first panel a process protects what is left. So it does
    in the next solve of the grid, which begins without it."""
    job = solving(start, deaths=[[0, 1, 2]], solves=2)
    assert said(job) == ["right 1 True 1", "right 1 True"], job.report()


@pytest.mark.parametrize("dies", [(0, "spawn before"), (0, "spawn after"), (3, "spawn before"), (0, "merge before"),
                                  (2, "merge before"), (3, "merge after")])  # fmt: skip
def test_a_rank_dies_while_a_process_is_asked_for(start: Start, dies: tuple[int, str]) -> None:
    """1 × 2 processes and two columns of checksums: rank 0 asks. Then two processes are missing."""
    job = solving(start, ranks=4, deaths=[[0, 1, 30], [0, *dies]], P=1, redundant=2)
    (outcome,) = said(job, 4)
    assert outcome.startswith("right ") and outcome.endswith(
        " True " + " ".join(map(str, sorted((1, dies[0]))))
    ), job.report()


def test_the_asker_dies_while_the_process_is_started(start: Start) -> None:
    """It is killed from outside, while it waits for the answer."""
    job = solving(start, ranks=4, deaths=[[0, 1, 30]], P=1, redundant=2, n=160)
    job.wait_event("spawn-requested")
    job.kill_rank(0)
    (outcome,) = said(job, 4)
    assert outcome.startswith("right ") and outcome.endswith(" True 0 1"), job.report()


def test_a_new_process_dies_before_it_is_there_and_another_one_is_started(start: Start) -> None:
    job = solving(start, deaths=[[0, 1, 40]])
    job.wait_event("rank-started", rank=6)
    job.kill_rank(6)
    # one that is there already when it is killed, since this process was slow, is a loss like others
    assert said(job) in (["right 1 True 1"], ["right 2 True 1"]), job.report()
    assert job.events("rank-started", rank=7), job.report()


@pytest.mark.parametrize("turn", range(4))
def test_a_new_process_dies_at_any_time(start: Start, turn: int) -> None:
    """In the merge, while it is told what to do, and when it holds checksums; another one takes its place."""
    choose = random.Random(seed_of_the_commit() + turn)
    job = solving(start, deaths=[[0, 1, 40]], slow=0.004, n=160)
    job.wait_event("spawned")
    time.sleep(choose.choice([0, 0.01, 0.1, 0.3]))  # well before the last panel: for that nobody is started
    job.kill_rank(6)
    (outcome,) = said(job)
    assert outcome.startswith("right ") and outcome.split()[2] == "True", job.report()


@pytest.mark.rotate(3)
@pytest.mark.parametrize("operation", ["solve", "lu", "cholesky", "qr", "matmul"])
def test_ranks_die_at_random_calls_of_each_operation(start: Start, operation: str) -> None:
    """The first round's death is early, so that a process is started; two die in the others."""
    choose = random.Random(seed_of_the_commit())
    rounds = [
        [(1, 40)],
        *([(p, choose.randint(1, 120)) for p in choose.sample(range(6), 2)] for _ in range(2)),
    ]
    found = solve_with_deaths(start, rounds, operation=operation, reserve=5, nb=8)
    assert all("right" in each and "started=1 " in each and "encoding" in each for each in found[0]), found[0]


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("operation", ["solve", "lu"])
def test_many_ranks_die_at_random_calls(start: Start, seed: int, operation: str) -> None:
    choose = random.Random(seed_of_the_commit() + seed)
    rounds = [
        [(p, choose.randint(1, 200)) for p in choose.sample(range(6), choose.randint(1, 3))] for _ in range(6)
    ]
    ahead = choose.randint(0, 1)
    solve_with_deaths(
        start, rounds, operation=operation, reserve=12, look_ahead=ahead, verify=choose.randint(0, 1)
    )


@pytest.mark.nightly
@pytest.mark.parametrize("part", range(20))
def test_a_rank_dies_at_every_call_and_a_process_protects_again(start: Start, part: int) -> None:
    points = [(place, call) for place in range(6) for call in range(1, 131)]
    found = solve_with_deaths(start, [[death] for death in points[part::20]], reserve=len(points[part::20]))
    assert all(outcome.startswith("right") for outcomes in found for outcome in outcomes)


@pytest.mark.rotate(2)
@pytest.mark.parametrize("operation", ["solve", "matmul"])
@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.nightly) for seed in range(1, 30))]
)
def test_ranks_and_new_processes_are_killed_from_outside(start: Start, seed: int, operation: str) -> None:
    """Any of them, at any time; right, or too many are lost, which all that live tell alike."""
    choose = random.Random(seed_of_the_commit() + seed)
    slow = 0.001 if operation == "solve" else 0.004
    job = solving(start, spares=6, slow=slow, n=240, operation=operation)
    job.wait_event("running")
    dead: set[int] = set()
    for _ in range(choose.randint(2, 4)):
        time.sleep(choose.random() * choose.choice([0.1, 0.8]))
        there = {event["rank"] for event in job.events("rank-started")} - dead
        victim = choose.choice([*sorted(there), max(there)])
        with contextlib.suppress(ProcessLookupError):  # it has come to its end
            job.kill_rank(victim)
        dead.add(victim)
    assert job.finish(120) == 0, job.report()
    found = [job.output(rank).splitlines() for rank in range(6) if rank not in dead]
    assert all(len(each) == 1 for each in found), job.report()
    assert {each[0].split()[1] for each in found} in ({"right"}, {"lost"}), job.report()

"""The operations of ckpt.abft beside the solve, in real jobs: ranks that die at every call, and more than are borne."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.seeds import seed_of_the_commit
from tests.system.abft_jobs import lines, solve_with_deaths
from tests.system.support import Job, jobs_fixture

pytest.importorskip("numpy")
pytestmark = [pytest.mark.system, pytest.mark.timeout(300), pytest.mark.turns(4)]

PROGRAMS = Path(__file__).with_name("abft")
MOST_CALLS = {"matmul": 130, "cg": 600}
"""By operation: of the hook, before and after each call counted apart, in jobs as `died_at` has them."""


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Job]]:
    yield from jobs_fixture(tmp_path)


def points(operation: str) -> list[tuple[int, int]]:
    return [(place, call) for place in range(6) for call in range(1, MOST_CALLS[operation] + 1)]


def died_at(start: Callable[..., Job], operation: str, deaths: list[tuple[int, int]]) -> None:
    """A job in which a rank dies at each of these (place, call) in turn, and one without a death."""
    found = solve_with_deaths(start, [*([death] for death in deaths), []], operation=operation, nb=16)
    assert all(outcome.startswith("right") for outcomes in found for outcome in outcomes)
    calls = [int(call) for outcome in found[-1] for call in re.findall(r"calls=(\d+)", outcome)]
    assert max(calls) <= MOST_CALLS[operation], "the nightly test leaves calls out"


@pytest.mark.parametrize("operation", MOST_CALLS)
def test_a_rank_dies_at_a_call(
    start: Callable[..., Job], operation: str, figures: Callable[[str, int], None]
) -> None:
    deaths = random.Random(seed_of_the_commit()).sample(points(operation), 7)
    died_at(start, operation, deaths)
    figures("abft: calls at which a rank died", len(deaths))


@pytest.mark.nightly
@pytest.mark.parametrize("part", range(20))
@pytest.mark.parametrize("operation", MOST_CALLS)
def test_a_rank_dies_at_every_call(
    start: Callable[..., Job], operation: str, part: int, figures: Callable[[str, int], None]
) -> None:
    deaths = points(operation)[part::20]
    died_at(start, operation, deaths)
    figures("abft: calls at which a rank died", len(deaths))


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize(("spares", "redundant", "deaths"), [(2, 1, 2), (3, 1, 3), (0, 2, 2), (2, 2, 3)])
def test_several_deaths(
    start: Callable[..., Job], seed: int, spares: int, redundant: int, deaths: int
) -> None:
    """Right, or all tell alike that too many are lost; which it is, depends on where they meet."""
    choose = random.Random(seed_of_the_commit() + seed)
    operation = choose.choice(list(MOST_CALLS))
    places = 2 * (2 + redundant) + spares
    rounds = [
        [(place, choose.randint(1, MOST_CALLS[operation])) for place in choose.sample(range(places), deaths)]
        for _ in range(8)
    ]
    solve_with_deaths(start, rounds, operation=operation, spares=spares, redundant=redundant)


def test_two_columns_of_checksums_bear_two_columns_lost_at_once(start: Callable[..., Job]) -> None:
    (outcomes,) = solve_with_deaths(start, [[(0, 35), (1, 35)]], operation="matmul", redundant=2, nb=16)
    assert all(outcome.startswith("right") for outcome in outcomes)


def test_more_deaths_than_checksums_are_told_to_all_alike(start: Callable[..., Job]) -> None:
    (outcomes,) = solve_with_deaths(start, [[(0, 35), (1, 35)]], operation="matmul", nb=16)
    assert len(outcomes) == 4 and all(
        "2 columns of data are gone, and 1 complete" in each for each in outcomes
    )


def test_the_log_of_the_job_says_what_became_of_a_death(start: Callable[..., Job]) -> None:
    """Of a solve and a product, hot and computed back."""
    for number, (operation, on_loss, event) in enumerate(
        [
            ("solve", "hot", "abft-replaced"),
            ("solve", "recover", "abft-recovered"),
            ("matmul", "hot", "abft-replaced"),
        ]
    ):
        options = {"P": 2, "Q": 2, "n": 64, "nb": 8, "spares": 0, "rounds": [[[1, 45]]]}
        options |= {"operation": operation, "on_loss": on_loss}
        job = start(
            PROGRAMS / "deaths.py", json.dumps(options), ranks=6, on_failure="continue", name=f"job{number}"
        )
        assert job.finish(200) == 0, job.report()
        assert len(lines(job, 6)["0"]) == 5
        said = [line for line in job.events() if line["event"].startswith("abft-")]
        assert [(line["event"], line["operation"], line["ranks"], line["column"]) for line in said] == [
            (event, operation, [1], 1)
        ], job.report()
        assert 0 < said[0]["step"] < said[0]["steps"] == 8

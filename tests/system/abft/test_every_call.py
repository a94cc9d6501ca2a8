"""abft.solve in real jobs: a rank dies at a call of the communication, at each one once.

`make test` has a hundred of these calls, others for each commit; `make nightly` all of a small matrix, `make soak` all of
one of order 256 on two grids.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.seeds import seed_of_the_commit
from tests.system.abft.abft_jobs import LARGE, LARGE_AT_ONCE, MOST_CALLS, deaths_of_large, solve_with_deaths
from tests.system.support import Job, jobs_fixture

pytest.importorskip("numpy")
pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]

POINTS = [(place, call) for place in range(6) for call in range(1, MOST_CALLS + 1)]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Job]]:
    yield from jobs_fixture(tmp_path)


@pytest.mark.parametrize("Q", [2, 3])
def test_a_rank_dies_at_a_call(
    start: Callable[..., Job], Q: int, figures: Callable[[str, int], None]
) -> None:
    choose, places = random.Random(seed_of_the_commit() + Q), 2 * (Q + 1)
    for half in range(2):  # a meeting of fewer ranks is shorter
        rounds = [[(choose.randrange(places), choose.randint(1, MOST_CALLS))] for _ in range(25)]
        found = solve_with_deaths(start, [*rounds, []], Q=Q, name=f"job-{half}")
        figures("abft: calls at which a rank died", sum(len(outcomes) < places for outcomes in found))
        assert all(outcome.startswith("right") for outcomes in found for outcome in outcomes)
        check_calls(found)


@pytest.mark.rotate(2)
@pytest.mark.turns(4)
def test_a_rank_dies_at_a_call_with_look_ahead(
    start: Callable[..., Job], figures: Callable[[str, int], None]
) -> None:
    """Of a solve, and of a factorisation that keeps L."""
    choose = random.Random(seed_of_the_commit() + 1)
    for operation in ("solve", "lu"):
        rounds = [[death] for death in choose.sample(POINTS, 5)]
        found = solve_with_deaths(
            start, [*rounds, []], look_ahead=1, operation=operation, name=f"job-{operation}"
        )
        figures("abft: calls at which a rank died", len(rounds))
        assert all(outcome.startswith("right") for outcomes in found for outcome in outcomes)
        if operation == "solve":
            check_calls(found)


def check_calls(found: list[list[str]]) -> None:
    """In the last round nobody has died."""
    calls = [int(call) for outcome in found[-1] for call in re.findall(r"calls=(\d+)", outcome)]
    assert max(calls) <= MOST_CALLS, "the nightly test leaves calls out"


@pytest.mark.nightly
@pytest.mark.parametrize("look_ahead", [0, 1])
@pytest.mark.parametrize("part", range(40))
def test_a_rank_dies_at_every_call(
    start: Callable[..., Job], part: int, look_ahead: int, figures: Callable[[str, int], None]
) -> None:
    rounds = [[death] for death in POINTS[part::40]]
    found = solve_with_deaths(start, rounds, look_ahead=look_ahead)
    assert all(outcome.startswith("right") for outcomes in found for outcome in outcomes)
    figures("abft: calls at which a rank died", len(rounds))


@pytest.mark.soak
@pytest.mark.parametrize("first", range(0, len(LARGE), LARGE_AT_ONCE))
def test_a_rank_dies_at_every_call_of_a_larger_solve(
    start: Callable[..., Job], first: int, soaked: Callable[..., None]
) -> None:
    count, figures = deaths_of_large(start, first, LARGE_AT_ONCE)
    soaked("abft", count, **figures)


@pytest.mark.soak
@pytest.mark.parametrize("part", range(60))
@pytest.mark.parametrize(("Q", "on_loss", "look_ahead"), [(2, "recover", 0), (3, "hot", 1)])
def test_every_third_call_of_a_larger_grid(
    start: Callable[..., Job], part: int, Q: int, on_loss: str, look_ahead: int
) -> None:
    points = [(place, call) for place in range(2 * (Q + 1)) for call in range(1, 701)]
    rounds = [[death] for death in points[part::60] if death[1] % 3 == part % 3]
    found = solve_with_deaths(start, rounds, Q=Q, n=256, nb=16, on_loss=on_loss, look_ahead=look_ahead)
    assert all(outcome.startswith("right") for outcomes in found for outcome in outcomes)

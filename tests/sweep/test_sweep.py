"""Programs nobody here wrote, and the feature programs: stopped at random moments, each image resumed in a fresh process.

In `make test` a seeded sample (`SWEEP_SEED`, by default the commit; `SWEEP_RESTORES` of each program); in `make soak` 10 000
restores at checks drawn by number, which the printed line repeats exactly.
"""

from __future__ import annotations

import os
import subprocess
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.sweep.catalogue import PROGRAMS
from tests.sweep.driver import Outcome, sweep
from tests.sweep.fetch import Place

pytestmark = [pytest.mark.system, pytest.mark.timeout(600)]

ALL = sorted(name for name, program in PROGRAMS.items() if not program.limit)
QUICK = [name for name in ALL if not PROGRAMS[name].slow]
RESTORES = int(os.environ.get("SWEEP_RESTORES", "3"))
AT_LEAST = 200
SOAK_RESTORES = int(os.environ.get("SWEEP_SOAK", "10000"))

Swept = Callable[[str], Outcome]


def seed() -> int:
    """`SWEEP_SEED`, or the commit: every one looks at other moments."""
    given = os.environ.get("SWEEP_SEED")
    if given is not None:
        return int(given)
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short=6", "HEAD"]
    try:
        return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout, 16)
    except (OSError, subprocess.CalledProcessError):
        return 1


@pytest.fixture(scope="module")
def swept(
    request: pytest.FixtureRequest, place: Place, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Swept]:
    """The outcome of a program; all that are asked for in this run are under way at once, as many as there are cores."""
    directory, number = tmp_path_factory.mktemp("sweep"), seed()
    workers = len(os.sched_getaffinity(0))
    names = [
        item.callspec.params["program"]
        for item in request.session.items
        if item.module is request.module
        and item.name.startswith("test_resumed")
        and hasattr(item, "callspec")
    ]
    with ThreadPoolExecutor(workers) as pool:
        futures: dict[str, Future[Outcome]] = {
            name: pool.submit(sweep, PROGRAMS[name], place, directory / name, seed=number, restores=RESTORES)
            for name in names
        }
        yield lambda name: futures[name].result()
        for future in futures.values():
            future.cancel()


def test_there_are_enough_programs_nobody_here_wrote() -> None:
    assert len([name for name in QUICK if PROGRAMS[name].foreign]) >= 40


@pytest.mark.parametrize("program", QUICK)
def test_resumed_at_random_moments_the_output_is_the_same(program: str, swept: Swept) -> None:
    outcome = swept(program)
    for surprise in outcome.surprises:
        warnings.warn(surprise, stacklevel=1)
    assert not outcome.failures, "\n".join(outcome.failures)
    assert outcome.equal == outcome.images


def test_there_were_enough_restores(request: pytest.FixtureRequest, swept: Swept) -> None:
    asked = {item.name for item in request.session.items if item.module is request.module}
    if not all(any(name.endswith(f"[{program}]") for name in asked) for program in QUICK):
        pytest.skip("counts only when all programs are run")
    if RESTORES < 3:
        pytest.skip("SWEEP_RESTORES asks for fewer")
    outcomes = [swept(program) for program in QUICK]
    assert sum(outcome.equal for outcome in outcomes) >= AT_LEAST


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("program", ALL)
def test_ten_thousand_restores(
    program: str, place: Place, tmp_path: Path, soaked: Callable[..., None]
) -> None:
    """The same by pieces: python -m tests.soak restores"""
    weight = {name: 1 if one.slow else 10 for name, one in PROGRAMS.items() if name in ALL}
    restores = -(-SOAK_RESTORES * weight[program] // sum(weight.values()))
    outcome = sweep(
        PROGRAMS[program],
        place,
        tmp_path / program,
        seed=seed(),
        restores=restores,
        exact=not PROGRAMS[program].slow,
    )
    waited = f"{sum(outcome.refused.values())} refused"
    print(f"{program}: {outcome.equal} of {outcome.images} equal, {outcome.burnt} burnt, {waited}")
    assert not outcome.failures, "\n".join(outcome.failures)
    soaked("restores", outcome.equal, **{"rounds burnt": outcome.burnt})

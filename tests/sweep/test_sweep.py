"""Programs nobody here wrote, stopped at random moments, each image resumed in a fresh process.

In `make test` some programs, others for each commit and each version of Python; `make nightly` runs them all. The moments
follow from the commit, too (`SWEEP_SEED`; `SWEEP_RESTORES` of each program). `make soak` makes 10 000 restores at checks
drawn by number, which the printed line repeats exactly.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.seeds import seed_of_the_commit
from tests.sweep.catalogue import PROGRAMS
from tests.sweep.driver import sweep
from tests.sweep.fetch import Place

pytestmark = [pytest.mark.system, pytest.mark.timeout(600)]

ALL = sorted(name for name, program in PROGRAMS.items() if not program.limit)
QUICK = [name for name in ALL if PROGRAMS[name].foreign and not PROGRAMS[name].slow]
"""The programs of the tests themselves are in tests/system/image/test_image_programs.py."""
RESTORES = int(os.environ.get("SWEEP_RESTORES", "3"))
SOAK_RESTORES = int(os.environ.get("SWEEP_SOAK", "10000"))


def seed() -> int:
    """`SWEEP_SEED`, or the commit: every one looks at other moments."""
    return int(os.environ.get("SWEEP_SEED") or seed_of_the_commit())


def test_there_are_enough_programs_nobody_here_wrote() -> None:
    assert len(QUICK) >= 40


@pytest.mark.rotate(34)
@pytest.mark.parametrize("program", QUICK)
def test_resumed_at_random_moments_the_output_is_the_same(
    program: str, place: Place, tmp_path: Path, figures: Callable[[str, int], None]
) -> None:
    outcome = sweep(PROGRAMS[program], place, tmp_path / program, seed=seed(), restores=RESTORES)
    for surprise in outcome.surprises:
        warnings.warn(surprise, stacklevel=1)
    assert not outcome.failures, "\n".join(outcome.failures)
    assert outcome.equal == outcome.images
    figures("restores of the sweep, all equal", outcome.equal)


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

"""Public mpi4py programs, unmodified: the output of a real MPI, also after two kills. A sample; `make programs` runs all."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.programs.catalogue import PROGRAMS, Program
from tests.programs.driver import KILLS, Bench, RealMpiFailed
from tests.programs.fetch import Place, Unavailable, fetched
from tests.seeds import seed_of_the_commit

pytestmark = [pytest.mark.system, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def place() -> Place:
    try:
        return fetched()
    except Unavailable as reason:
        pytest.skip(str(reason))


HEAVY = ("emcee", "PTMCMCSampler")
"""A minute of computing each."""


def when(program: Program) -> tuple[pytest.MarkDecorator, ...]:
    if not program.sample:
        return (pytest.mark.soak,)
    return (pytest.mark.nightly,) if program.name in HEAVY else ()


def test_the_catalogue_has_ten_programs_and_a_sample_of_them() -> None:
    assert len(PROGRAMS) >= 10
    assert len({program.name for program in PROGRAMS}) == len(PROGRAMS)
    assert 3 <= sum(program.sample for program in PROGRAMS) <= 4


@pytest.mark.rotate(2)
@pytest.mark.parametrize(
    "program",
    [pytest.param(program, id=program.name, marks=when(program)) for program in PROGRAMS],
)
def test_output_is_that_of_a_real_mpi_also_after_two_kills(
    program: Program, place: Place, tmp_path: Path
) -> None:
    try:
        outcome = Bench(program, place, tmp_path, seed_of_the_commit()).run()
    except RealMpiFailed as failure:
        pytest.skip(str(failure))
    assert not outcome.failures, "\n".join(outcome.failures)
    assert outcome.kills == KILLS

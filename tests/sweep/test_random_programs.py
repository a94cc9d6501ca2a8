"""Random programs of ordinary Python (see `random_programs`), each image resumed in a fresh process.

The programs of `make test` follow from the commit; `make nightly` runs many more. A failure names the seed:

    python -m tests.sweep.random_programs.generator SEED
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.seeds import seed_of_the_commit
from tests.sweep.catalogue import Program
from tests.sweep.driver import Bench, Outcome, one_run
from tests.sweep.fetch import Place
from tests.sweep.random_programs.generator import Generator
from tests.sweep.random_programs.templates import MODULES

pytestmark = [pytest.mark.system, pytest.mark.timeout(300), pytest.mark.turns(2)]

GENERATOR = "python -m tests.sweep.random_programs.generator"
IMAGES = 6
AT_NIGHT = 60
TOO_LONG = "not possible within the limit"
"""A round that waits for a place for longer than it may is given up, as promised: here each check is a try."""
Count = Callable[[str, int], None]


def checks_of(text: str, place: Place, directory: Path) -> int:
    """How many checks the interpreter makes while the program runs."""
    directory.mkdir()
    script = directory / "program.py"
    script.write_text(text)
    with Bench(Program("random", (str(script),), foreign=False), place, directory, puts_back=True) as bench:
        return int(bench.images(places=[1 << 62])["checks"])


def check(seed: int, begins: int, place: Place, directory: Path) -> int:
    """Images at random checks, each resumed; returns how many. begins: the check at which the modules are imported."""
    directory.mkdir()
    script = directory / "program.py"
    script.write_text(Generator(seed).program())
    program = Program(f"seed {seed}", (str(script),), foreign=False, holds=(TOO_LONG,))
    outcome = Outcome(program.name)
    with Bench(program, place, directory, puts_back=True) as bench:
        expected = bench.undisturbed()
        assert expected[0] == 0, expected[2].decode()
        checks = bench.images(places=[1 << 62])["checks"]
        wanted = range(begins, max(checks, begins + IMAGES))
        places = sorted(random.Random(seed).sample(wanted, IMAGES))
        one_run(outcome, bench, expected, {"places": places}, f"{GENERATOR} {seed}")
    assert not outcome.failures, "\n".join(outcome.failures)
    return outcome.equal


def test_random_programs_are_resumed_anywhere(place: Place, tmp_path: Path, figures: Count) -> None:
    begins = checks_of(MODULES, place, tmp_path / "modules")
    images = check(seed_of_the_commit(), begins, place, tmp_path / "program")
    figures("restores of random programs, all equal", images)


@pytest.mark.nightly
@pytest.mark.parametrize("part", range(AT_NIGHT // 4))
def test_many_random_programs_are_resumed_anywhere(
    part: int, place: Place, tmp_path: Path, figures: Count
) -> None:
    begins = checks_of(MODULES, place, tmp_path / "modules")
    for number in range(4):
        seed = seed_of_the_commit() + 1 + 4 * part + number
        images = check(seed, begins, place, tmp_path / f"program-{number}")
        figures("restores of random programs, all equal", images)

"""Programs that spend their time in functions of C that take items from Python code, killed again and again: what they print
is the same, byte for byte, as without ckpt and without kills. Without images inside of these functions, it has no
checkpoint at all. ``THREAD_KILLS`` sets the number of kills, as for programs with threads."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.system.support import Job, same_after_kills

pytestmark = [pytest.mark.system]

Start = Callable[..., Job]

PROGRAMS = sorted((Path(__file__).parents[1] / "programs" / "loops").glob("*.py"))
KILLS = int(os.environ.get("THREAD_KILLS", "2"))


@pytest.mark.nightly
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.stem)
def test_a_program_of_one_call_prints_the_same_after_kills(start: Start, program: Path) -> None:
    same_after_kills(start, program, KILLS)

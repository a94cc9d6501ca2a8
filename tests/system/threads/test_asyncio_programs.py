"""Programs of asyncio, killed again and again: what they print is the same, byte for byte, as without ckpt and kills.

Images are taken at whatever moment comes: while the loop waits, between two callbacks, in the middle of a task's step.
``ASYNCIO_KILLS`` sets the number of kills.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.system.support import Job, same_after_kills

pytestmark = [pytest.mark.system]

Start = Callable[..., Job]

PROGRAMS = sorted((Path(__file__).parents[1] / "programs" / "asyncio").glob("*.py"))
KILLS = int(os.environ.get("ASYNCIO_KILLS", "2"))
MANY_KILLS = 20
TURNS = 10
"""200 restores of each program."""


@pytest.mark.rotate(10)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.stem)
def test_an_asyncio_program_prints_the_same_after_kills(start: Start, program: Path) -> None:
    same_after_kills(start, program, KILLS)


@pytest.mark.nightly
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("turn", range(TURNS))
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.stem)
def test_an_asyncio_program_prints_the_same_after_many_kills(start: Start, program: Path, turn: int) -> None:
    same_after_kills(start, program, MANY_KILLS)

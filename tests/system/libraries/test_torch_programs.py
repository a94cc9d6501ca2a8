"""Programs that train with torch, killed again and again: what they print is the same, byte for byte, as without ckpt and
without kills.

Images are taken at whatever moment comes, and wait where a graph of gradients is in use. ``TORCH_KILLS`` sets the number of
kills.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.system.support import Job, same_after_kills

pytest.importorskip("torch", reason="torch is not installed")
pytestmark = [pytest.mark.system]

Start = Callable[..., Job]

PROGRAMS = sorted((Path(__file__).parents[1] / "programs" / "torch").glob("*.py"))
KILLS = int(os.environ.get("TORCH_KILLS", "1"))
MANY_KILLS = 20
TURNS = 10
"""200 restores of each program."""


@pytest.mark.rotate(11)
@pytest.mark.timeout(300)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.stem)
def test_a_program_with_torch_prints_the_same_after_kills(start: Start, program: Path) -> None:
    same_after_kills(start, program, KILLS, more_loops=2)


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("turn", range(TURNS))
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.stem)
def test_a_program_with_torch_prints_the_same_after_many_kills(
    start: Start, program: Path, turn: int
) -> None:
    same_after_kills(start, program, MANY_KILLS, more_loops=2, every=0.05)

"""Programs of asyncio, killed again and again: what they print is the same, byte for byte, as without ckpt and kills.

Images are taken at whatever moment comes: while the loop waits, between two callbacks, in the middle of a task's step.
``ASYNCIO_KILLS`` sets the number of kills.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.system.support import Job, long_enough

pytestmark = [pytest.mark.system]

Start = Callable[..., Job]

PROGRAMS = sorted((Path(__file__).parent / "programs" / "asyncio").glob("*.py"))
KILLS = int(os.environ.get("ASYNCIO_KILLS", "2"))
MANY_KILLS = 20


def same_after_kills(start: Start, program: Path, kills: int) -> None:
    def attempt(scale: int) -> None:
        plain = [sys.executable, program, str(scale)]
        expected = subprocess.run(plain, capture_output=True, text=True, check=True, timeout=300).stdout
        job = start(program, scale, ranks=1, every=0.1, name=f"job-{scale}")
        for kill in range(kills):
            job.wait_event("committed", len(job.events("committed")) + 1)
            job.kill_rank(0)
            job.wait_event("restarted", kill + 1)
        assert job.finish() == 0, job.report()
        assert job.output(0) == expected
        assert all(event["from_epoch"] for event in job.events("restarting")), job.report()

    long_enough(kills + 1, attempt)


@pytest.mark.rotate(4)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.stem)
def test_an_asyncio_program_prints_the_same_after_kills(start: Start, program: Path) -> None:
    same_after_kills(start, program, KILLS)


@pytest.mark.nightly
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.stem)
def test_an_asyncio_program_prints_the_same_after_many_kills(start: Start, program: Path) -> None:
    same_after_kills(start, program, MANY_KILLS)

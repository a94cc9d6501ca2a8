"""Threaded programs, killed again and again: what they print is the same, byte for byte, as without ckpt and without kills.

Each program waits, computes and holds locks in several threads; images are taken at whatever moment comes. ``THREAD_KILLS``
sets the number of kills (`make soak` uses many).
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

PROGRAMS = sorted((Path(__file__).parent / "programs" / "threads").glob("*.py"))
KILLS = int(os.environ.get("THREAD_KILLS", "2"))


@pytest.mark.rotate(3)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.stem)
def test_a_threaded_program_prints_the_same_after_kills(start: Start, program: Path) -> None:
    def attempt(scale: int) -> None:
        plain = [sys.executable, program, str(scale)]
        expected = subprocess.run(plain, capture_output=True, text=True, check=True, timeout=120).stdout
        job = start(program, scale, ranks=1, every=0.1, name=f"job-{scale}")
        for kill in range(KILLS):
            job.wait_event("committed", len(job.events("committed")) + 1)
            job.kill_rank(0)
            job.wait_event("restarted", kill + 1)
        assert job.finish() == 0, job.report()
        assert job.output(0) == expected
        assert all(event["from_epoch"] for event in job.events("restarting")), job.report()

    long_enough(KILLS + 1, attempt)

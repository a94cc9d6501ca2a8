"""Several ranks that change the same files, each opening them for each change: after restarts what each has written is
there, or named."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.system.support import Job, long_enough, write_app

pytestmark = [pytest.mark.system, pytest.mark.turns(2)]

Start = Callable[..., Job]

STEPS = 8000
CELL_BYTES = 12

SHARED = f"""
    import sys
    import ckpt

    comm = ckpt.enable()

    steps = int(sys.argv[1])
    for step in range(steps):
        with open("log", "a") as file:
            file.write(f"{{comm.rank}} {{step}}\\n")
        with open("cells", "r+") as file:
            file.seek({CELL_BYTES} * (steps * comm.rank + step))
            file.write(f"{{comm.rank}} {{step}}\\n")
    comm.barrier()
"""


def test_ranks_that_open_one_file_for_each_change_lose_nothing_unnamed(start: Start, tmp_path: Path) -> None:
    """Between the images of two ranks lies a millisecond or less. What one wrote meanwhile was cut off, or came back as it
    was before, without a word: in one of fifteen such restarts."""
    program = write_app(tmp_path, SHARED)

    def attempt(steps: int) -> None:
        (tmp_path / "log").unlink(missing_ok=True)
        (tmp_path / "cells").write_text("." * 2 * steps * CELL_BYTES)
        job = start(program, steps, ranks=2, files="auto", every=0.05, name=f"job-{steps}")
        for kill in range(1, 4):
            job.wait_event("committed", kill)
            job.kill_rank(1)
            job.wait_event("restarted", kill)
        assert job.finish() == 0, job.report()
        wanted = {f"{rank} {step}" for rank in range(2) for step in range(steps)}
        told = {event["path"] for event in job.events("files-not-put-back")}
        lines = Counter((tmp_path / "log").read_text().splitlines())
        assert set(lines) == wanted
        assert str(tmp_path / "log") in told or set(lines.values()) == {1}
        assert told <= {str(tmp_path / "log"), str(tmp_path / "cells")}
        text = (tmp_path / "cells").read_text()
        cells = {text[at : at + CELL_BYTES].split("\n")[0] for at in range(0, len(text), CELL_BYTES)}
        assert str(tmp_path / "cells") in told or cells == wanted

    long_enough(STEPS, attempt)

"""Programs nobody here wrote under `ckpt run`, the script as it is, killed and restarted by themselves."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.sweep.fetch import Place
from tests.sweep.test_elsewhere import _job_environment, _plain
from tests.system.support import Job

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]

PROGRAMS = {
    "go": ("--loops", "8"),
    "pyflate": ("--loops", "3"),
    "raytrace": ("--loops", "4"),
    "xdsl": ("--loops", "8"),
    "yaml": ("--loops", "70"),
}


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_killed_twice_the_output_is_that_of_plain_python(
    name: str, start: Callable[..., Job], place: Place, tmp_path: Path
) -> None:
    script = str(place.suite / f"bm_{name}" / "run_benchmark.py")
    environment = _job_environment(place)
    job = start(script, *PROGRAMS[name], ranks=1, every=0.1, env=environment)
    for kill in (1, 2):
        job.wait_event("committed", count=kill)
        job.kill_rank(0)
        job.wait_event("rank-started", count=kill + 1)
    assert job.finish() == 0, job.report()
    assert job.output(0) == _plain(job.directory, [script, *PROGRAMS[name]], environment)

"""Programs nobody here wrote under `ckpt run`, the script as it is, killed and restarted by themselves."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.sweep.fetch import Place
from tests.sweep.test_elsewhere import _job_environment, _plain
from tests.system.support import Job, long_enough

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]

PROGRAMS = {
    "go": 8,
    "pyflate": 3,
    "raytrace": 4,
    "xdsl": 8,
    "xml_etree": 2,
    "yaml": 70,
}  # the number of loops to begin with


@pytest.mark.rotate(3)
@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_killed_twice_the_output_is_that_of_plain_python(
    name: str, start: Callable[..., Job], place: Place, tmp_path: Path
) -> None:
    script = str(place.suite / f"bm_{name}" / "run_benchmark.py")
    environment = _job_environment(place)

    def killed_twice(loops: int) -> tuple[Job, int]:
        job = start(
            script,
            "--loops",
            loops,
            ranks=1,
            name=f"job-{loops}",
            every=0.1,
            image_mode="fork",
            env=environment,
        )
        for kill in (1, 2):
            job.wait_event("committed", count=kill)
            job.kill_rank(0)
            job.wait_event("rank-started", count=kill + 1)
        return job, loops

    job, loops = long_enough(PROGRAMS[name], killed_twice)
    assert job.finish(timeout_s=240) == 0, job.report()
    assert job.output(0) == _plain(job.directory, [script, "--loops", str(loops)], environment)

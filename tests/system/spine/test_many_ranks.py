"""Many ranks on one host: what a rank that talks to few of them costs, in descriptors, which depend on no load."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.system.support import Job, write_app

pytestmark = pytest.mark.system

IDLE = """
    import os, resource, sys, time
    import ckpt

    comm = ckpt.enable()
    comm.barrier()
    print("limit", resource.getrlimit(resource.RLIMIT_NOFILE)[0], flush=True)
    while not os.path.exists(sys.argv[1]):
        time.sleep(0.01)
    comm.barrier()
"""


def idle(start: Callable[..., Job], directory: Path, ranks: int, **options: object) -> tuple[Job, list[int]]:
    """A job whose ranks have met in one barrier; how many descriptors each has, after rank 1 has been killed once."""
    app = write_app(directory, IDLE)
    job = start(app, directory / "stop", ranks=ranks, **options)
    job.wait_for(lambda: all(job.output(rank) for rank in range(ranks)), "all ranks have met")
    job.kill_rank(1)
    job.wait_event("restarted")
    job.wait_for(lambda: all(job.output(rank) for rank in range(ranks)), "all ranks have met again")
    return job, [len(os.listdir(f"/proc/{job.pid(rank)}/fd")) for rank in range(ranks)]


@pytest.mark.rotate(2)
def test_a_rank_is_connected_to_those_it_has_talked_to(start: Callable[..., Job], tmp_path: Path) -> None:
    job, few = idle(start, tmp_path, 4, name="few")
    other, more = idle(start, tmp_path, 12, name="more")
    (tmp_path / "stop").touch()
    assert job.finish() == other.finish() == 0
    # 12 ranks meet in four rounds, 4 in two: one peer more in each direction and round, and there may be acknowledgements.
    # With all to all, 8 ranks more are 24 descriptors more.
    assert max(more) <= max(few) + 15, (few, more)


@pytest.mark.nightly
def test_64_idle_ranks_have_few_descriptors(start: Callable[..., Job], tmp_path: Path) -> None:
    job, descriptors = idle(start, tmp_path, 64)
    (tmp_path / "stop").touch()
    assert job.finish() == 0
    assert sorted(descriptors)[32] <= 60, descriptors  # 213 when all were connected to all


@pytest.mark.parametrize(("given", "becomes"), [(512, 518), (1000, 1000)])
def test_the_soft_limit_of_open_files_is_raised_where_connections_to_all_ranks_need_more(
    start: Callable[..., Job], tmp_path: Path, given: int, becomes: int
) -> None:
    (tmp_path / "stop").touch()
    within = ("sh", "-c", f'ulimit -Sn {given} && exec "$0" "$@"')
    job = start(write_app(tmp_path, IDLE), tmp_path / "stop", ranks=2, within=within)
    assert job.finish() == 0, job.report()
    assert job.output(0) == f"limit {becomes}\n"

"""Reductions of ranks on several hosts, each with memory of its own that the others cannot read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.system.hosts.bed import Hosts
from tests.system.hosts.test_hosts import LEASE_S
from tests.system.support import Job, write_app

pytest.importorskip("numpy")
pytestmark = [pytest.mark.system, pytest.mark.timeout(240)]

APP = """
    import os, sys, time
    import numpy as np
    import ckpt
    import ckpt.reduction as R

    comm = ckpt.enable()
    rank, size, there = comm.rank, comm.size, os.path.join(os.environ["CKPT_JOB"], "copied")
    x = np.full(100_000, float(rank + 1))

    class Sum(R.Body):
        def __init__(self, x):
            self.x = x
        def combine(self, other):
            return Sum(self.x + other.x)

    for options in ({}, {"parts": 3}, {"copies": 2, "order": "ready"}, {"copies": 0}):
        f = R.allreduce(x, **options)
        assert (f.result() == 10).all() and f.result() is f.result()
    assert (R.allreduce(Sum(x)).result().x == 10).all()
    f = R.reduce(x, root=3, name="root")
    assert (f.result() is None) == (rank != 3)

    def held():
        with R._services[0].channel.lock:
            member = R._services[0].members.members.get(("last", 0))
            return member is not None and 1 << 3 in member.items

    if rank == 0:
        while not held():  # a copy of what rank 3 gave, which lies on its host
            time.sleep(0.001)
        open(there, "w").close()
    if rank == 2:
        while not comm.Get_failed().size:
            time.sleep(0.001)
    f = R.allreduce(x, name="last", copies=1)
    if rank == 3:
        while not os.path.exists(there):
            time.sleep(0.001)
        os.kill(os.getpid(), 9)
    assert (f.result() == 10).all() and f.contributors == (0, 1, 2, 3)
    print("whole")
"""


def test_a_copy_lies_where_another_host_has_it(
    start: Callable[..., Job], hosts: Hosts, tmp_path: Path
) -> None:
    """The master was told where it lies, on a host that it does not share: with `copies=1` all that ranks of other hosts had
    given was lost if they died."""
    job = start(
        write_app(tmp_path, APP),
        ranks=4,
        every=1000,
        hosts="h2:2,h3:2",
        lease=LEASE_S,
        interface="10.88.0.0/16",
        on_failure="continue",
        engine_command=hosts.engine(private=Path("/dev/shm")),
        within=hosts.on("h1"),
    )
    assert job.finish() == 0, job.report()
    assert [job.output(rank) for rank in range(3)] == ["whole\n"] * 3, job.report()

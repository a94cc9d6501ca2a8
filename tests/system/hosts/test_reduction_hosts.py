"""Reductions of ranks on several hosts, each with memory of its own that the others cannot read."""

from __future__ import annotations

import time
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


LOST = """
    import os, time
    import numpy as np
    import ckpt
    import ckpt.reduction as R

    comm = ckpt.enable()
    rank, told = comm.rank, os.path.join(os.environ["CKPT_JOB"], "held")
    x, short = np.full(100_000, float(rank + 1)), np.array([rank + 1])
    assert R.allreduce(x).result()[0] == 10
    pending = {}
    if rank < 2:
        pending = {name: R.allreduce(each, name=name, copies=2) for name, each in (("long", x), ("short", short))}
        while True:  # until the host is lost
            time.sleep(1)

    def held():
        with R._services[0].channel.lock:
            found = [R._services[0].members.members.get((name, 0)) for name in ("long", "short")]
            return {owner for owner in (0, 1) if all(each and 1 << owner in each.items for each in found)}

    while held() != ({0} if rank == 2 else {0, 1}):
        time.sleep(0.001)
    open(f"{told}-{rank}", "w").close()
    while comm.Get_failed().size < 2:
        time.sleep(0.001)
    assert R.allreduce(x, name="long", copies=2).result()[-1] == 10
    f = R.allreduce(short, name="short", copies=2)
    assert f.result() == 10 and f.contributors == (0, 1, 2, 3)
    print("whole")
"""


@pytest.mark.rotate(2)
def test_two_copies_outlive_the_masters_host(start: Callable[..., Job], hosts: Hosts, tmp_path: Path) -> None:
    """Both copies of what rank 0 gave, and both of rank 1, were on the host of these two."""
    job = start(
        write_app(tmp_path, LOST),
        ranks=4,
        every=1000,
        hosts="h2:2,h3:2",
        lease=LEASE_S,
        interface="10.88.0.0/16",
        on_failure="continue",
        engine_command=hosts.engine(private=Path("/dev/shm")),
        within=hosts.on("h1"),
    )
    while not all((job.directory / f"held-{rank}").exists() for rank in (2, 3)):
        assert job.process.poll() is None, job.report()
        time.sleep(0.01)
    hosts.kill("h2")
    assert job.finish() == 0, job.report()
    assert [job.output(rank) for rank in (2, 3)] == ["whole\n"] * 2, job.report()


@pytest.mark.rotate(2)
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

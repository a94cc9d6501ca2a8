"""Memory that ranks of one host share (`Win.Allocate_shared`), on several hosts: ranks move together, or are refused."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.system.hosts.bed import Hosts
from tests.system.hosts.test_files_hosts import restart as restart
from tests.system.support import Job, write_app

pytestmark = [pytest.mark.system, pytest.mark.root]

PAIRS = """
    import os
    import time
    import numpy as np
    from ckpt import MPI

    comm = MPI.COMM_WORLD
    try:
        MPI.Win.Allocate_shared(8, 8, comm=comm)
    except MPI.Exception as error:
        print(error.error_class == MPI.ERR_RMA_SHARED, "on another host than rank 0" in str(error), flush=True)
    pair = comm.Split_type(MPI.COMM_TYPE_SHARED)
    win = MPI.Win.Allocate_shared(8, 8, comm=pair)
    other = np.frombuffer(win.Shared_query(1 - pair.rank)[0], "q")
    steps = 0
    while comm.allreduce(not os.path.exists(os.environ["CKPT_TEST_GO"]), MPI.LAND):
        other[0] += 1
        steps += 1
        time.sleep(0.001)
    pair.Barrier()
    assert np.frombuffer(win, "q")[0] == steps
    print("whole", pair.size)
"""


@pytest.mark.nightly
def test_ranks_that_share_memory_move_to_another_host_together(
    start: Callable[..., Job], hosts: Hosts, tmp_path: Path
) -> None:
    app = write_app(tmp_path, PAIRS)
    where = {"lease": 2, "interface": hosts.network, "within": hosts.on("h1")}
    job = start(app, ranks=4, every=0.3, hosts="h2:2,h3:2,h4:2", engine_command=hosts.engine(), **where)
    job.wait_event("committed", 2)
    hosts.kill("h3")
    job.wait_event("restarted")
    job.go()
    assert job.finish() == 0, job.report()
    assert [job.output(rank).splitlines() for rank in range(4)] == [["True True", "whole 2"]] * 4


@pytest.mark.nightly
def test_ranks_that_share_memory_are_not_started_again_on_different_hosts(
    start: Callable[..., Job], hosts: Hosts, tmp_path: Path, restart: Callable[..., Job]
) -> None:
    app = write_app(tmp_path, PAIRS)
    where = {"lease": 2, "interface": hosts.network, "within": hosts.on("h1")}
    job = start(app, ranks=4, every=0.3, hosts="h2:2,h3:2", engine_command=hosts.engine(), **where)
    job.wait_event("committed", 2)
    job.process.kill()
    job.process.wait()
    for name in ("h2", "h3"):
        hosts.kill(name)
    later = restart(job, "h1", "--hosts", "h2:1,h4:3")
    assert later.finish() == 13, later.report()
    named = r"shares memory between ranks \(Win.Allocate_shared\), and rank [01] is not on this host: start both on one host"
    assert re.search(named, later.stderr), later.report()

"""The controller is cut off from the job directory, and its hosts are not: it takes no checkpoints, says so, and goes on.

Another file system, empty and read-only, is mounted on the directory where the controller sees it, and nobody else.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.system.hosts.bed import Hosts
from tests.system.hosts.test_hosts import is_rank, result_of, spread
from tests.system.support import Job

pytestmark = [pytest.mark.system, pytest.mark.nightly, pytest.mark.timeout(300)]


def cut_off(start: Callable[..., Job], hosts: Hosts, app: Path) -> Job:
    """A job whose controller has just been cut off."""
    job = spread(start, hosts, app, "h2:2,h3:2", within=(*hosts.on("h1"), "unshare", "--mount"))
    job.wait_event("committed", 2)
    at_controller(job, "mount", "-t", "tmpfs", "-o", "ro", "none", str(job.directory))
    return job


def at_controller(job: Job, *words: str) -> None:
    subprocess.run(("nsenter", "-t", str(job.process.pid), "-m", *words), check=True, timeout=20)


@contextlib.contextmanager
def back_again(job: Job) -> Iterator[int]:
    """With how many checkpoints it comes back."""
    yield len(job.events("committed"))
    at_controller(job, "umount", str(job.directory))


def test_ranks_go_on_and_checkpoints_come_when_it_is_back(
    start: Callable[..., Job], hosts: Hosts, ring: Path, tmp_path: Path
) -> None:
    """For longer than it may renew leases: the hosts look into the journal themselves."""
    job = cut_off(start, hosts, ring)
    with back_again(job) as commits:
        job.wait_event("restart-not-recorded")
        assert len(job.events("leases-not-renewed")) == 1
        job.wait_for(lambda: "no checkpoint for" in job.stderr, "the message")
    job.wait_event("committed", commits + 1)
    assert job.finish() == 0, job.report()
    assert not job.events("host-lost") and not job.events("restarted")
    assert job.output(0) == result_of(ring, 4, tmp_path)
    hosts.wait_until_empty(hosts.names)


def test_the_ranks_of_a_host_that_is_lost_meanwhile_are_started_again_when_it_is_back(
    start: Callable[..., Job], hosts: Hosts, ring: Path, tmp_path: Path
) -> None:
    """Before, their end cannot be proven: their host might look into the journal."""
    job = cut_off(start, hosts, ring)
    with back_again(job):
        hosts.kill("h3")
        job.wait_event("host-lost")
        job.wait_event("restart-not-recorded")
        job.wait_event("leases-not-renewed")
        assert not job.events("host-fenced")
    assert job.finish(120) == 0, job.report()
    assert len(job.events("restarted")) == 1
    assert job.output(0) == result_of(ring, 4, tmp_path)
    hosts.wait_until_empty(hosts.names)


def test_a_rank_that_dies_meanwhile_ends_the_job_which_can_be_restarted(
    start: Callable[..., Job], hosts: Hosts, ring: Path, tmp_path: Path
) -> None:
    job = cut_off(start, hosts, ring)
    os.kill(next(pid for pid in hosts.processes("h3") if is_rank(pid)), signal.SIGKILL)
    assert job.process.wait(60) == 1
    assert "Read-only file system" in job.stderr and "ckpt restart" in job.stderr
    hosts.wait_until_empty(hosts.names)
    job.go()
    later = Job(job.directory, job.directory, verb="restart", within=hosts.on("h1"))
    try:
        assert later.finish() == 0, later.report()
    finally:
        later.close()
    assert later.output(0) == result_of(ring, 4, tmp_path)
    hosts.wait_until_empty(hosts.names)

"""The controller of a job on several hosts is lost, and the next one goes on with the ranks that run: nothing is started
again, and what the ranks compute is the same to the byte.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.system.hosts.bed import Hosts
from tests.system.hosts.test_hosts import (
    LEASE_S,
    STEPS,
    cable_pulled,
    frozen,
    host_killed,
    is_rank,
    result_of,
    spread,
)
from tests.system.hosts.test_takeover import named
from tests.system.support import Job

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]

LONG_S = 10
"""A lease that is not over because the machine is busy."""
Start = Callable[..., Job]
Restart = Callable[..., Job]


@pytest.fixture
def restart(hosts: Hosts) -> Iterator[Restart]:
    """`ckpt restart` of a job on a host."""
    started: list[Job] = []

    def run(job: Job, name: str, *options: object) -> Job:
        later = Job(job.directory, *options, job.directory, verb="restart", within=named(hosts, name))
        started.append(later)
        return later

    yield run
    for job in started:
        job.close()


def kill_controller(job: Job) -> None:
    job.process.kill()
    job.process.wait()


def kill_a_rank(hosts: Hosts, name: str) -> None:
    os.kill(next(pid for pid in hosts.processes(name) if is_rank(pid)), signal.SIGKILL)


def goes_on_with_the_ranks(later: Job, incarnation: int = 0, times: int = 1) -> None:
    """No rank was started again, and rounds go on above the highest epoch."""
    adopted = later.wait_event("adopted", times)
    assert adopted["incarnation"] == incarnation
    before = [event["epoch"] for event in later.events("round-started") if event["ns"] < adopted["ns"]]
    later.wait_for(lambda: [e for e in later.events("committed") if e["epoch"] > max(before)], "a new commit")
    assert not later.events("rank-started", incarnation=incarnation + 1)


@pytest.mark.rotate(2)
def test_the_controller_is_killed_and_the_next_one_goes_on_with_the_ranks(
    start: Start,
    hosts: Hosts,
    ring: Path,
    tmp_path: Path,
    restart: Restart,
) -> None:
    job = spread(start, hosts, ring, "h2:2,h3:2", lease=LONG_S)
    job.wait_event("committed", 2)
    kill_controller(job)
    later = restart(job, "h4")
    goes_on_with_the_ranks(later)
    assert later.finish() == 0, later.report()
    assert job.output(0) == result_of(ring, 4, tmp_path)
    assert len(job.events("rank-started")) == 4
    hosts.wait_until_empty(hosts.names)


@pytest.mark.nightly
def test_ranks_without_a_checkpoint_are_gone_on_with(
    start: Start,
    hosts: Hosts,
    ring: Path,
    tmp_path: Path,
    restart: Restart,
) -> None:
    """`ckpt restart` was refused where nothing was committed, and so the ranks ended with their leases."""
    job = spread(start, hosts, ring, "h2:2,h3:2", lease=LONG_S, every=600)
    job.wait_event("running")
    kill_controller(job)
    later = restart(job, "h4")
    later.wait_event("adopted")
    assert later.finish() == 0, later.report()
    assert job.output(0) == result_of(ring, 4, tmp_path)
    assert len(job.events("rank-started")) == 4


@pytest.mark.nightly
def test_ranks_that_were_adopted_are_restarted_and_adopted_again(
    start: Start,
    hosts: Hosts,
    ring: Path,
    tmp_path: Path,
    restart: Restart,
) -> None:
    """A rank dies under the second controller, and that one is killed, too."""
    job = spread(start, hosts, ring, "h2:2,h3:2,h4:2", lease=LONG_S)
    job.wait_event("committed", 2)
    kill_controller(job)
    second = restart(job, "h1")
    goes_on_with_the_ranks(second)
    kill_a_rank(hosts, "h3")
    second.wait_event("restarted")
    second.wait_event("committed", len(job.events("committed")) + 1)
    kill_controller(second)
    third = restart(job, "h4")
    goes_on_with_the_ranks(third, incarnation=1, times=2)
    assert third.finish() == 0, third.report()
    assert job.output(0) == result_of(ring, 4, tmp_path)
    assert len(job.events("rank-started")) == 8
    hosts.wait_until_empty(hosts.names)


@pytest.mark.nightly
@pytest.mark.parametrize("fault", [cable_pulled, frozen, host_killed], ids=lambda each: each.__name__)
def test_a_host_is_lost_with_the_controller(
    start: Start,
    hosts: Hosts,
    ring: Path,
    tmp_path: Path,
    restart: Restart,
    fault: Callable[[Hosts], None],
) -> None:
    """Its ranks do not answer. So all are started again, when its lease is over."""
    job = spread(start, hosts, ring, "h2:2,h3:2,h4:2")
    job.wait_event("committed", 2)
    fault(hosts)
    kill_controller(job)
    later = restart(job, "h1")
    later.wait_event("not-adopted")
    hosts.cable("h3", "up")
    hosts.send("h3", signal.SIGCONT)
    later.wait_event("rank-started", incarnation=1)
    assert later.finish() == 0, later.report()
    assert not job.events("adopted")
    assert job.output(0) == result_of(ring, 4, tmp_path)
    hosts.wait_until_empty(hosts.names)


@pytest.mark.nightly
def test_a_host_that_is_lost_after_the_adoption(
    start: Start,
    hosts: Hosts,
    ring: Path,
    tmp_path: Path,
    restart: Restart,
) -> None:
    job = spread(start, hosts, ring, "h2:2,h3:2,h4:2", lease=LONG_S, avoid_faulty="off")
    job.wait_event("committed", 2)
    kill_controller(job)
    later = restart(job, "h1")
    goes_on_with_the_ranks(later)
    hosts.cable("h3", "down")
    assert later.wait_event("host-fenced", host="h3")["proof"] == "lease"
    later.wait_event("restarted")
    hosts.cable("h3", "up")
    later.wait_event("host-back")
    assert later.finish() == 0, later.report()
    assert job.output(0) == result_of(ring, 4, tmp_path)
    hosts.wait_until_empty(hosts.names)


@pytest.mark.nightly
def test_ranks_go_on_for_many_leases_without_a_controller(
    start: Start,
    hosts: Hosts,
    ring: Path,
    tmp_path: Path,
    restart: Restart,
) -> None:
    """All have finished when the next one comes."""
    job = spread(start, hosts, ring, "h2:2,h3:2", lease=LONG_S)
    job.wait_event("committed", 2)
    kill_controller(job)
    job.go()
    time.sleep(2 * LONG_S)
    later = restart(job, "h4")
    later.wait_event("adopted")
    assert later.finish() == 0, later.report()
    assert job.output(0) == result_of(ring, 4, tmp_path)
    assert len(job.events("rank-started")) == 4
    hosts.wait_until_empty(hosts.names)


@pytest.mark.nightly
def test_a_rank_that_dies_without_a_controller_is_restarted_by_the_next_one(
    start: Start,
    hosts: Hosts,
    ring: Path,
    tmp_path: Path,
    restart: Restart,
) -> None:
    job = spread(start, hosts, ring, "h2:2,h3:2")
    job.wait_event("committed", 2)
    kill_controller(job)
    kill_a_rank(hosts, "h3")
    later = restart(job, "h4")
    assert later.wait_event("not-adopted")["reason"] in ("rank 2 has ended", "rank 3 has ended")
    assert later.finish() == 0, later.report()
    assert job.output(0) == result_of(ring, 4, tmp_path)
    hosts.wait_until_empty(hosts.names)


@pytest.mark.nightly
def test_a_controller_that_is_killed_while_it_takes_over(
    start: Start,
    hosts: Hosts,
    ring: Path,
    tmp_path: Path,
    restart: Restart,
) -> None:
    """At any moment: the one after it goes on with the ranks, or starts them again when their leases are over."""
    job = spread(start, hosts, ring, "h2:2,h3:2")
    job.wait_event("committed", 2)
    kill_controller(job)
    for turn in range(4):
        second = restart(job, "h1")
        second.wait_event("waiting-for-leases", turn + 1)
        time.sleep(random.random() * LEASE_S)
        kill_controller(second)
    third = restart(job, "h4")
    third.wait_for(lambda: third.events("committed")[2:], "a new commit", 120)
    assert third.finish() == 0, third.report()
    assert job.output(0) == result_of(ring, 4, tmp_path)
    hosts.wait_until_empty(hosts.names)


@pytest.mark.nightly
def test_a_controller_that_is_killed_before_the_first_lease_is_renewed(
    start: Start,
    hosts: Hosts,
    ring: Path,
    tmp_path: Path,
    restart: Restart,
) -> None:
    """Agents knew nothing of the journal before their first renewal was answered: their ranks ended with the lease."""
    job = spread(start, hosts, ring, "h2:2,h3:2", lease=30, every=0.1)
    job.wait_event("committed", 1)
    kill_controller(job)
    later = restart(job, "h1")
    goes_on_with_the_ranks(later)
    assert later.finish() == 0, later.report()
    assert job.output(0) == result_of(ring, 4, tmp_path)
    hosts.wait_until_empty(hosts.names)


@pytest.mark.nightly
def test_the_controller_was_on_a_host_with_ranks(
    start: Start,
    ring: Path,
    tmp_path: Path,
) -> None:
    """Processes that a controller had left on its own host were killed by the next one there, before it asked for them. Two
    hosts, both on this one."""
    engine = "env CKPT_TEST_HOST={host} {agent}"
    options = {"ranks": 4, "every": 0.3, "lease": LONG_S, "interface": "lo"}
    job = start(ring, STEPS, 0.003, hosts="a:2,b:2", engine_command=engine, **options)
    job.wait_event("committed", 2)
    kill_controller(job)
    later = Job(job.directory, job.directory, verb="restart")
    try:
        goes_on_with_the_ranks(later)
        assert later.finish() == 0, later.report()
    finally:
        later.close()
    assert job.output(0) == result_of(ring, 4, tmp_path)
    assert len(job.events("rank-started")) == 4
    assert not job.events("fenced")

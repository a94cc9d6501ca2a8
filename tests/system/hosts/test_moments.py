"""Hosts and controllers are lost at named moments of a round and of a restart: 8 ranks on 4 hosts, the same bytes as on one.

The process that comes to the moment first is stopped there (`tests.system.points`), then the fault comes, and what is left
of that process goes on.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.system.hosts.bed import Hosts, needs_hosts
from tests.system.hosts.test_hosts import is_rank, result_of
from tests.system.hosts.test_takeover import named
from tests.system.points.catalogue import Point
from tests.system.support import Job

pytestmark = [pytest.mark.system, pytest.mark.nightly, pytest.mark.timeout(300)]

LEASE_S = 2
STEPS = 400
SLOTS = "h2:2,h3:2,h4:2,h5:2"

MOMENTS = {
    "between captured and voted": Point(
        "", "child", "ckpt.rank.channel.control:ControlChannel.send", "before", packet="voted"
    ),
    "between vote and commit": Point(
        "", "controller", "ckpt.controller.service.commit:commit_line", "before"
    ),
    "between commit and its announcement": Point(
        "", "controller", "ckpt.controller.service.commit:commit_line", "after"
    ),
    "while ranks come back": Point("", "rank", "ckpt.image.loading:load", "before", "recovery"),
}


@pytest.fixture
def hosts() -> Iterator[Hosts]:
    needs_hosts()
    found = Hosts(5)
    try:
        found.lay()
        yield found
    finally:
        found.remove()


@pytest.fixture
def restart(hosts: Hosts) -> Iterator[Callable[[Job, str], Job]]:
    started: list[Job] = []

    def run(job: Job, name: str) -> Job:
        later = Job(job.directory, job.directory, verb="restart", within=named(hosts, name))
        started.append(later)
        return later

    yield run
    for job in started:
        job.close()


class Moment:
    """The job at the moment: which process has come there, and on which host."""

    def __init__(self, hosts: Hosts, job: Job) -> None:
        self.hosts, self.job = hosts, job
        self.pid, self.host = job.wait_for(self._stopped, "a process has stopped at the moment")

    def _stopped(self) -> tuple[int, str] | None:
        for name in self.hosts.names:
            for pid in self.hosts.processes(name):
                with contextlib.suppress(OSError):
                    if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T":
                        return pid, name
        return None

    @property
    def others(self) -> list[str]:
        """Hosts with ranks, that of the moment last."""
        return sorted(self.hosts.names[1:], key=lambda name: name == self.host)

    @property
    def its(self) -> str:
        """The host with ranks that is to be lost."""
        return self.others[-1]


def host_killed(at: Moment) -> None:
    at.hosts.kill(at.its)


def two_hosts_killed(at: Moment) -> None:
    at.hosts.kill(at.its)
    at.hosts.kill(at.others[0])


def cable_pulled(at: Moment) -> None:
    at.hosts.cable(at.its, "down")


def half_is_cut_off(at: Moment) -> None:
    """From the controller, and from the other half."""
    for name in at.others[2:]:
        at.hosts.cable(name, "down")


def controller_killed(at: Moment) -> None:
    at.job.process.kill()
    at.job.process.wait()


def controller_and_host_killed(at: Moment) -> None:
    controller_killed(at)
    at.hosts.kill(at.its)


FAULTS = [
    host_killed,
    two_hosts_killed,
    cable_pulled,
    half_is_cut_off,
    controller_killed,
    controller_and_host_killed,
]


@pytest.mark.parametrize("fault", [pytest.param(each, id=each.__name__) for each in FAULTS])
@pytest.mark.parametrize("moment", MOMENTS)
def test_the_same_bytes_whatever_is_lost_at_this_moment(
    start: Callable[..., Job],
    hosts: Hosts,
    ring: Path,
    tmp_path: Path,
    restart: Callable[[Job, str], Job],
    moment: str,
    fault: Callable[[Moment], None],
) -> None:
    armed = tmp_path / "armed"
    job = start(
        ring,
        STEPS,
        0.003,
        ranks=8,
        every=0.5,
        lease=LEASE_S,
        interface=hosts.network,
        hosts=SLOTS,
        engine_command=hosts.engine(),
        within=hosts.on("h1"),
        files=f"!{armed}*",
        env=MOMENTS[moment].environment(armed, "stop"),
    )
    job.wait_event("committed", 2)
    armed.touch()
    if MOMENTS[moment].stage == "recovery":
        os.kill(next(pid for pid in hosts.processes("h4") if is_rank(pid)), signal.SIGKILL)
    at = Moment(hosts, job)
    fault(at)
    with contextlib.suppress(ProcessLookupError):
        os.kill(at.pid, signal.SIGCONT)
    if job.process.poll() is not None:
        job = restart(job, "h1")
    else:
        job.wait_event("host-fenced")
    for name in hosts.names:
        hosts.cable(name, "up")
    assert job.finish(120) == 0, job.report()
    assert job.output(0) == result_of(ring, 8, tmp_path)
    hosts.wait_until_empty(hosts.names)

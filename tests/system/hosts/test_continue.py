"""`--on-failure continue` on several hosts: a lost host is lost ranks, told when they have ended, and the others go on."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.system.hosts.bed import Hosts
from tests.system.hosts.test_hosts import (
    LEASE_S,
    cable_pulled,
    frozen,
    host_killed,
    is_fork_server,
    is_rank,
)
from tests.system.support import Job, ckpt_command, environment, write_app

pytestmark = [pytest.mark.system, pytest.mark.timeout(240)]

PROGRAMS = Path(__file__).parents[2] / "scenarios" / "mpi" / "failing"


def tolerant(start: Callable[..., Job], bed: Hosts, app: Path, *words: object, **options: object) -> Job:
    options = {"ranks": 5, "hosts": "h2:2,h3:2,h4:1", "lease": LEASE_S, "interface": "10.88.0.0/16"} | options
    options |= {"on_failure": "continue", "engine_command": bed.engine(), "within": bed.on("h1")}
    job = start(app, *words, **options)
    job.wait_event("running")
    return job


def right_on(job: Job, ranks: list[int]) -> bool:
    return all(
        re.search(rf"^total \d+ right on {len(ranks)}$", job.output(rank), re.MULTILINE) for rank in ranks
    )


def fork_server_killed(hosts: Hosts) -> None:
    os.kill(next(p for p in hosts.processes("h3") if is_fork_server(p)), signal.SIGKILL)


FAULTS = [
    pytest.param(host_killed, "lease", id="host killed", marks=pytest.mark.nightly),
    pytest.param(cable_pulled, "lease", id="cable pulled"),
    pytest.param(frozen, "lease", id="host frozen", marks=pytest.mark.nightly),
    pytest.param(fork_server_killed, "reaped", id="fork server killed", marks=pytest.mark.nightly),
]


@pytest.mark.rotate(2)
@pytest.mark.parametrize(("fault", "proof"), FAULTS)
def test_the_ranks_of_a_lost_host_have_failed_when_it_is_fenced(
    start: Callable[..., Job], hosts: Hosts, fault: Callable[[Hosts], None], proof: str
) -> None:
    # off: a host of which it is located before the lease is over that it is at fault does not come back
    job = tolerant(start, hosts, PROGRAMS / "sum_of_tasks.py", 40, 0.003, avoid_faulty="off")
    fault(hosts)
    job.wait_event("continuing", rank=3)
    order = [
        (e["event"], e.get("rank"))
        for e in job.events()
        if e["event"] in ("host-lost", "host-fenced", "rank-died", "restarting")
    ]
    told = [("rank-died", 2), ("rank-died", 3)]
    assert order == [("host-lost", None), ("host-fenced", None), *told], (
        "nobody is dead before that is proven"
    )
    assert job.events("host-fenced")[0]["proof"] == proof
    assert {e["host"] for e in job.events("rank-died")} == {"h3"}
    hosts.cable("h3", "up")
    hosts.send("h3", signal.SIGCONT)
    if fault in (cable_pulled, frozen):
        assert job.wait_event("host-back")["host"] == "h3"
        assert not any(is_rank(pid) for pid in hosts.processes("h3"))
    else:
        hosts.wait_until_empty(["h3"])
    assert job.finish() == 0, job.report()
    assert right_on(job, [0, 1, 4]), job.report()
    end = job.events("job-finished")[0]
    assert end["reason"] == "all ranks but 2, 3, which failed, have finished"
    hosts.wait_until_empty(hosts.names)


@pytest.mark.rotate(2)
def test_a_job_goes_on_from_a_checkpoint_without_the_ranks_of_a_host_that_is_not_there_any_more(
    start: Callable[..., Job], hosts: Hosts
) -> None:
    """On the hosts that are left, which have no slots for the dead."""
    job = tolerant(start, hosts, PROGRAMS / "sum_of_tasks.py", 40, 0.003)
    hosts.kill("h3")
    job.wait_event("continuing", rank=3)
    asked = ckpt_command("checkpoint", job.directory, "--stop")
    assert subprocess.run([*hosts.on("h1"), *asked], env=environment(), check=False).returncode == 0
    assert job.process.wait(60) == 75, job.report()
    job.go()
    words = ("--hosts", "h2:2,h4:1", job.directory)
    again = Job(job.directory, *words, verb="restart", within=hosts.on("h1"))
    assert again.finish() == 0, again.report()
    assert {e["rank"] for e in again.events("rank-started", incarnation=1)} == {0, 1, 4}
    assert right_on(again, [0, 1, 4]), again.report()
    hosts.wait_until_empty(hosts.names)


@pytest.mark.nightly
def test_a_rank_dies_then_a_host_then_another_one(start: Callable[..., Job], hosts: Hosts) -> None:
    job = tolerant(start, hosts, PROGRAMS / "sum_of_tasks.py", 40, 0.003)
    os.kill(next(p for p in hosts.processes("h2") if is_rank(p)), signal.SIGKILL)
    job.wait_event("rank-died")
    assert not job.events("host-lost")
    hosts.kill("h3")
    hosts.kill("h4")
    job.wait_event("continuing", rank=4)
    job.wait_event("continuing", rank=3)
    assert job.finish() == 0, job.report()
    (left,) = {0, 1} - {e["rank"] for e in job.events("rank-died")}
    assert right_on(job, [left]), job.report()
    assert len(job.events("rank-died")) == 4
    hosts.wait_until_empty(hosts.names)


@pytest.mark.nightly
def test_all_hosts_are_lost(start: Callable[..., Job], hosts: Hosts) -> None:
    job = tolerant(start, hosts, PROGRAMS / "sum_of_tasks.py", 40, 0.003)
    for name in ("h2", "h3", "h4"):
        hosts.kill(name)
    assert job.process.wait(90) == 1, job.report()
    assert "with host" in job.stderr and "the last one" in job.stderr
    hosts.wait_until_empty(hosts.names)


BACK = """
    import sys
    import time
    import ckpt
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    total = step = 0
    while step < 300:
        try:
            total += comm.allreduce(step * (comm.rank + 1))
            step += 1
            time.sleep(0.005)
        except MPI.Exception as error:
            ckpt.go_back(f"I need them all: {error.Get_error_class() == MPI.ERR_PROC_FAILED}")
            time.sleep(60)
    print("total", total)
"""


@pytest.mark.nightly
def test_a_program_that_needs_them_all_goes_back_and_they_start_elsewhere(
    start: Callable[..., Job], hosts: Hosts, tmp_path: Path
) -> None:
    app = write_app(tmp_path, BACK)
    job = tolerant(start, hosts, app, ranks=4, hosts="h2:2,h3:2,h4:2", every=0.3)
    job.wait_event("committed")
    hosts.kill("h3")
    job.wait_event("restarted")
    started = {e["rank"]: e["host"] for e in job.events("rank-started", incarnation=1)}
    assert started == {0: "h2", 1: "h2", 2: "h4", 3: "h4"}
    assert "I need them all: True" in job.events("restarting")[0]["reason"]
    assert job.finish() == 0, job.report()
    assert job.output(0) == f"total {sum(range(300)) * 10}\n"


DIAGNOSED = """
    import time
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    found = []
    while not found:
        try:
            comm.allreduce(1)
            time.sleep(0.01)
        except MPI.Exception as error:
            found.append(error.diagnosis)
    try:
        comm.Agree(1)
    except MPI.Exception as error:
        found.append(error.diagnosis)
    request = comm.irecv(source=MPI.ANY_SOURCE)
    try:
        request.wait()
    except MPI.Exception as error:
        found.append(error.diagnosis)
    print(*[None if each is None else (each["hosts"], each["text"]) for each in found], sep=chr(10))
"""


@pytest.mark.nightly
def test_an_exception_has_the_fault_that_was_located(
    start: Callable[..., Job], hosts: Hosts, tmp_path: Path
) -> None:
    """The lease leaves time for it. Who dies alone has none."""
    app = write_app(tmp_path, DIAGNOSED)
    job = tolerant(start, hosts, app, ranks=4, hosts="h2:1,h3:2,h4:1", lease=8)
    hosts.cable("h3", "down")
    text = job.wait_event("fault-located")["text"]
    job.wait_event("continuing", rank=2)
    assert job.finish() == 0, job.report()
    assert job.output(0).splitlines() == [repr((["h3"], text))] * 3 == job.output(3).splitlines(), (
        job.report()
    )
    other = tolerant(start, hosts, app, ranks=2, hosts="h2:1,h4:1", name="other")
    os.kill(next(p for p in hosts.processes("h4") if is_rank(p)), signal.SIGKILL)
    assert other.finish() == 0, other.report()
    assert other.output(0).splitlines() == ["None"] * 3


@pytest.mark.nightly
def test_two_hosts_that_only_do_not_reach_each_other(
    start: Callable[..., Job], hosts: Hosts, tmp_path: Path
) -> None:
    """Neither is at fault, and there is no room elsewhere. But they would wait for each other for ever: one of them goes."""
    if shutil.which("nft") is None:
        pytest.skip("needs nft")
    job = tolerant(start, hosts, write_app(tmp_path, DIAGNOSED), ranks=3, hosts="h2:1,h3:1,h4:1", lease=4)
    rules = (
        "add table ip t; add chain ip t c { type filter hook input priority 0; }; "
        "add rule ip t c ip saddr 10.88.0.3 drop"
    )
    subprocess.run((*hosts.on("h2"), "nft", rules), check=True, timeout=20)
    job.wait_event("host-left-out", host="h2")
    assert job.wait_event("host-fenced")["proof"] == "reaped"
    job.wait_event("continuing", rank=0)
    assert job.finish() == 0, job.report()
    assert "hosts h2 and h3 do not reach each other" in job.output(1), job.report()
    assert len(job.events("host-lost")) == 1


LONG_S = 10
"""A lease that is not over because the machine is busy."""


@pytest.fixture
def succeed(hosts: Hosts) -> Iterator[Callable[..., Job]]:
    """The controller is killed, something happens, and the next one is started on h1."""
    started: list[Job] = []

    def run(job: Job, meanwhile: Callable[[], None] = lambda: None) -> Job:
        job.process.kill()
        job.process.wait()
        meanwhile()
        started.append(Job(job.directory, job.directory, verb="restart", within=hosts.on("h1")))
        return started[-1]

    yield run
    for job in started:
        job.close()


def kill_a_rank(hosts: Hosts, name: str) -> int:
    pid = next(p for p in hosts.processes(name) if is_rank(p))
    os.kill(pid, signal.SIGKILL)
    return pid


def failed(job: Job) -> set[int]:
    return {e["rank"] for e in job.events("continuing")}


@pytest.mark.rotate(2)
def test_the_next_controller_goes_on_with_the_ranks_that_are_left(
    start: Callable[..., Job],
    hosts: Hosts,
    succeed: Callable[..., Job],
) -> None:
    """One has died before the controller, and is in the event log; another one has died while there was none."""
    job = tolerant(start, hosts, PROGRAMS / "sum_of_tasks.py", 40, 0.003, lease=LONG_S, every=0.3)
    job.wait_event("committed")
    kill_a_rank(hosts, "h4")
    job.wait_event("continuing", rank=4)
    later = succeed(job, lambda: kill_a_rank(hosts, "h3"))
    adopted = later.wait_event("adopted")
    assert adopted["incarnation"] == 0
    later.wait_for(lambda: len(failed(later)) == 2, "the second death is told")
    (dead,) = failed(later) - {4}
    assert dead in (2, 3) and len(later.events("continuing")) == 2
    epoch = later.events("round-started")[-1]["epoch"]
    later.wait_for(
        lambda: later.events("committed")[-1]["epoch"] > epoch, "a checkpoint of those that are left"
    )
    assert later.finish() == 0, later.report()
    assert right_on(job, sorted({0, 1, 2, 3} - {dead})), job.report()
    assert not later.events("restarting") and len(later.events("rank-started")) == 5
    hosts.wait_until_empty(hosts.names)


@pytest.mark.nightly
def test_ranks_of_a_host_that_was_lost_before_the_controller(
    start: Callable[..., Job],
    hosts: Hosts,
    succeed: Callable[..., Job],
) -> None:
    """Nobody but the event log can say that they are dead. Under the next controller one more dies."""
    job = tolerant(start, hosts, PROGRAMS / "sum_of_tasks.py", 40, 0.003, lease=LONG_S, every=0.3)
    job.wait_event("committed")
    hosts.kill("h3")
    job.wait_event("continuing", rank=3)
    assert failed(job) == {2, 3}
    later = succeed(job)
    later.wait_event("adopted")
    kill_a_rank(hosts, "h4")
    later.wait_event("continuing", rank=4)
    assert later.finish() == 0, later.report()
    assert right_on(job, [0, 1]), job.report()
    assert not later.events("restarting") and len(later.events("rank-started")) == 5
    hosts.wait_until_empty(hosts.names)


@pytest.mark.nightly
def test_no_rank_has_died_and_checkpoints_go_on(
    start: Callable[..., Job],
    hosts: Hosts,
    succeed: Callable[..., Job],
) -> None:
    job = tolerant(start, hosts, PROGRAMS / "sum_of_tasks.py", 40, 0.003, lease=LONG_S, every=0.3)
    job.wait_event("committed", 2)
    later = succeed(job)
    later.wait_event("adopted")
    later.wait_event("committed", len(later.events("committed")) + 2)
    assert later.finish() == 0, later.report()
    assert right_on(job, [0, 1, 2, 3, 4]), job.report()
    assert not failed(later) and len(later.events("rank-started")) == 5
    hosts.wait_until_empty(hosts.names)


@pytest.mark.nightly
def test_a_fork_server_has_ended_and_all_ranks_go_on_from_the_last_checkpoint(
    start: Callable[..., Job],
    hosts: Hosts,
    succeed: Callable[..., Job],
) -> None:
    """The hosts end their ranks; no failed rank is remembered by the restart."""
    job = tolerant(start, hosts, PROGRAMS / "sum_of_tasks.py", 40, 0.003, every=0.3)
    job.wait_event("committed", 2)
    kill_a_rank(hosts, "h4")
    job.wait_event("continuing", rank=4)
    later = succeed(job, lambda: fork_server_killed(hosts))
    assert later.wait_event("not-adopted")["reason"] == "a fork server has ended"
    assert later.finish(120) == 0, later.report()
    assert right_on(job, [0, 1, 2, 3, 4]), job.report()
    hosts.wait_until_empty(hosts.names)

"""`ckpt status`, `checkpoint` and `stop` on a host that is not the controller's: a login node, or a host of the job."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.system.hosts.bed import Hosts
from tests.system.hosts.test_hosts import is_rank, spread
from tests.system.hosts.test_takeover import named
from tests.system.support import Job, ckpt_command

pytestmark = [pytest.mark.system, pytest.mark.turns(4)]

Start = Callable[..., Job]


def on(hosts: Hosts, name: str, *words: object) -> subprocess.CompletedProcess[str]:
    """A command of ckpt on this host."""
    command = (*named(hosts, name), *ckpt_command(*words))
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_a_job_is_asked_and_stopped_from_another_host(start: Start, hosts: Hosts, ring: Path) -> None:
    job = spread(start, hosts, ring, "h2:2,h3:2", every=600, within=named(hosts, "h1"))
    job.wait_event("running")
    answer = json.loads(on(hosts, "h4", "checkpoint", "--json", job.directory).stdout)
    assert answer["ok"] and answer["epoch"] == 1, answer
    done = on(hosts, "h4", "status", "--json", job.directory)
    found = json.loads(done.stdout)
    assert done.returncode == 0 and found["state"] == "running", found
    assert [rank["answers"] for rank in found["live"]["ranks"]] == [True] * 4
    assert found["engine"]["hosts"] == "h2:2,h3:2"
    done = on(hosts, "h4", "stop", "--checkpoint", "--json", job.directory)
    answer = json.loads(done.stdout)
    assert done.returncode == 0 and answer["epoch"] == 2, answer
    assert job.process.wait(60) == answer["exit_code"] == 75
    assert on(hosts, "h4", "checkpoint", job.directory).returncode == 10, "it does not run any more"
    hosts.wait_until_empty(hosts.names)


@pytest.mark.nightly
def test_a_controller_that_cannot_be_reached_is_named(start: Start, hosts: Hosts, ring: Path) -> None:
    """It is cut off, or it was killed: from another host nobody knows which."""
    job = spread(start, hosts, ring, "h2:2,h3:2", within=named(hosts, "h1"), lease=20)
    job.wait_event("committed")
    job.process.kill()
    job.process.wait()
    done = on(hosts, "h4", "status", job.directory)
    assert done.returncode == 10 and "on host h1 when last heard of" in done.stdout, done
    done = on(hosts, "h4", "checkpoint", job.directory)
    assert done.returncode == 10 and "the job is on host h1" in done.stderr, done


@pytest.mark.nightly
def test_a_controller_that_is_killed_while_it_is_asked(start: Start, hosts: Hosts, ring: Path) -> None:
    job = spread(start, hosts, ring, "h2:2,h3:2", within=named(hosts, "h1"), every=600)
    job.wait_event("running")
    rank = next(pid for pid in hosts.processes("h3") if is_rank(pid))
    os.kill(rank, signal.SIGSTOP)  # so there is no checkpoint
    command = (*named(hosts, "h4"), *ckpt_command("checkpoint", job.directory))
    asking = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    job.wait_event("round-started")
    job.process.kill()
    _, said = asking.communicate(timeout=60)
    assert asking.returncode == 10 and "ended without an answer" in said, said
    os.kill(rank, signal.SIGCONT)

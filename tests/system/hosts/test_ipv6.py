"""Hosts that have IPv6 addresses only."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from ckpt.controller.cli.main import main
from tests.system.hosts.bed import SSHD, Hosts
from tests.system.hosts.test_adoption import LONG_S, goes_on_with_the_ranks, kill_controller
from tests.system.hosts.test_hosts import STEPS, is_rank, result_of, spread, where
from tests.system.hosts.test_takeover import named
from tests.system.support import Job, environment, write_app

pytestmark = [pytest.mark.system, pytest.mark.turns(4), pytest.mark.timeout(300)]


@pytest.fixture
def ipv6() -> bool:
    if not os.path.exists("/proc/net/if_inet6"):
        pytest.skip("the kernel has no IPv6")
    return True


def test_a_host_is_cut_off_and_its_ranks_go_on_elsewhere(
    start: Callable[..., Job], hosts: Hosts, ring: Path, tmp_path: Path
) -> None:
    job = spread(start, hosts, ring, "h2:2,h3:2,h4:2")
    job.wait_event("committed", 2)
    listening = subprocess.run(
        (*hosts.on("h3"), "ss", "-Htln"), capture_output=True, text=True, check=True, timeout=20
    ).stdout
    assert "[fd88::3]:" in listening
    assert all(line.split()[3].startswith("[fd88::3]:") for line in listening.splitlines()), listening
    hosts.cable("h3", "down")
    assert job.wait_event("host-lost")["host"] == "h3"
    job.wait_event("restarted")
    assert where(job, 1) == {0: "h2", 1: "h2", 2: "h4", 3: "h4"}
    hosts.cable("h3", "up")
    assert job.wait_event("host-back")["host"] == "h3"
    assert job.finish() == 0, job.report()
    assert job.output(0) == result_of(ring, 4, tmp_path)
    hosts.wait_until_empty(hosts.names)


@pytest.mark.nightly
def test_what_the_kernel_says_of_connections_tells_that_a_link_is_down(
    start: Callable[..., Job], hosts: Hosts, ring: Path, tmp_path: Path
) -> None:
    job = spread(start, hosts, ring, "h2:2,h3:2,h4:2", lease=LONG_S, link_timeout=1)
    job.wait_event("committed", 2)
    hosts.cable("h3", "down")
    assert job.wait_event("link-down")["tcp"]["retransmits"], "the kernel was asked about this connection"
    assert job.wait_event("host-left-out")["host"] == "h3"
    job.wait_event("restarted")
    assert where(job, 1) == {0: "h2", 1: "h2", 2: "h4", 3: "h4"}
    assert job.finish() == 0, job.report()
    assert job.output(0) == result_of(ring, 4, tmp_path)


@pytest.mark.nightly
def test_the_controller_is_killed_and_the_next_one_goes_on_with_the_ranks(
    start: Callable[..., Job], hosts: Hosts, ring: Path, tmp_path: Path
) -> None:
    job = spread(start, hosts, ring, "h2:2,h3:2", lease=LONG_S)
    job.wait_event("committed", 2)
    kill_controller(job)
    later = Job(job.directory, job.directory, verb="restart", within=named(hosts, "h4"))
    try:
        goes_on_with_the_ranks(later)
        assert later.finish() == 0, later.report()
    finally:
        later.close()
    assert job.output(0) == result_of(ring, 4, tmp_path)
    hosts.wait_until_empty(hosts.names)


@pytest.mark.nightly
def test_hosts_named_by_their_addresses_reached_by_ssh(
    start: Callable[..., Job], hosts: Hosts, ring: Path, tmp_path: Path
) -> None:
    """No --interface: the controller listens at all addresses, and the hosts dial the one that leads to them."""
    if not os.path.exists(SSHD):
        pytest.skip(f"needs {SSHD}")
    servers = [hosts.sshd(name, tmp_path) for name in ("h2", "h3")]
    try:
        (tmp_path / "bin").mkdir()
        ssh = tmp_path / "bin" / "ssh"
        ssh.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {tmp_path}/ssh_config "$@"\n')
        ssh.chmod(0o755)
        job = start(
            ring,
            STEPS,
            0.003,
            ranks=4,
            every=0.3,
            hosts="[fd88:0::2]:2,[FD88::3]:2",
            within=hosts.on("h1"),
            env={"PATH": f"{ssh.parent}:{environment()['PATH']}"},
        )
        job.wait_event("committed", 2)
        assert where(job, 0) == {0: "fd88::2", 1: "fd88::2", 2: "fd88::3", 3: "fd88::3"}
        os.kill(next(pid for pid in hosts.processes("h3") if is_rank(pid)), signal.SIGKILL)
        job.wait_event("restarted")
        assert job.finish() == 0, job.report()
        assert job.output(0) == result_of(ring, 4, tmp_path)
    finally:
        for server in servers:
            server.terminate()
            server.wait(60)


@pytest.mark.nightly
def test_two_hosts_that_cannot_reach_each_other_are_named(
    start: Callable[..., Job], hosts: Hosts, ring: Path
) -> None:
    unreachable = ("ip", "-n", hosts.namespace("h2"), "-6", "route", "add", "prohibit", "fd88::3/128")
    subprocess.run(unreachable, check=True, timeout=20)
    job = spread(start, hosts, ring, "h2:2,h3:2")
    assert job.process.wait(60) == 1
    assert "host h2 cannot reach host h3 at fd88::3: " in job.stderr
    hosts.wait_until_empty(hosts.names)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--hosts", "fd88::2,b"], "'fd88::2' is no host: an IPv6 address stands in brackets: [ADDRESS] or"),
        (["--hosts", "[fd88::2:4"], "is no host: use NAME, NAME:SLOTS, or [ADDRESS]:SLOTS"),
        (["--hosts", "[fd88::2::1]:4"], "[fd88::2::1] is no IPv6 address"),
        (["--hosts", "[10.0.0.1]:4"], "[10.0.0.1] is no IPv6 address"),
        (["--hosts", "[fd88::2]:2,[fd88:0:0::2]:2"], "--hosts: fd88::2 more than once"),
        (["--hosts", "[fd88::2]:1"], "4 ranks do not fit into the 1 slots of [fd88::2]:1"),
        (["--hosts", "[fd88::2]:4", "--interface", "fd77::/64"], "has no such interface or network"),
        (["--hosts", "[fd88::2]:4", "--interface", "fe80::/10"], "has no such interface or network"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_starts(
    options: list[str], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    app = write_app(tmp_path, "pass", "app.py")
    assert main(["run", "-n", "4", "--job", str(tmp_path / "job"), *options, str(app)]) == 2
    assert says in capsys.readouterr().err

"""Jobs on several hosts: the same bytes as on one, whatever becomes of a host, and no process of it left."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ckpt.controller.cli.main import main
from tests.system import apps
from tests.system.hosts.bed import SSHD, Hosts
from tests.system.support import Job, environment, run_ckpt, write_app

pytestmark = [pytest.mark.system, pytest.mark.turns(8)]

LEASE_S = 2
STEPS = 400


def result_of(app: Path, ranks: int, directory: Path) -> str:
    """What the program prints on one host, undisturbed."""
    job = directory / "plain"
    done = run_ckpt("run", "-n", ranks, "--job", job, app, STEPS, env=environment())
    assert done.returncode == 0, done.stderr
    return (job / "output" / "rank-0.out").read_text()


def spread(start: Callable[..., Job], hosts: Hosts, app: Path, slots: str, **options: object) -> Job:
    """A job whose controller is on h1."""
    usual = {"ranks": 4, "every": 0.3, "lease": LEASE_S, "interface": hosts.network, "within": hosts.on("h1")}
    usual |= {"hosts": slots, "engine_command": hosts.engine()}
    return start(app, STEPS, 0.003, **{**usual, **options})


def where(job: Job, incarnation: int) -> dict[int, str]:
    return {e["rank"]: e["host"] for e in job.events("rank-started", incarnation=incarnation)}


def test_ranks_on_two_hosts_and_one_of_them_killed(
    start: Callable[..., Job], hosts: Hosts, ring: Path, tmp_path: Path
) -> None:
    job = spread(start, hosts, ring, "h2:2,h3:2")
    job.wait_event("committed", 2)
    assert where(job, 0) == {0: "h2", 1: "h2", 2: "h3", 3: "h3"}
    assert {e["host"] for e in job.events("host-joined")} == {"h2", "h3"}
    os.kill(next(p for p in hosts.processes("h3") if is_rank(p)), signal.SIGKILL)
    job.wait_event("restarted")
    assert job.finish() == 0, job.report()
    assert job.output(0) == result_of(ring, 4, tmp_path)
    whole = "".join(job.output(rank) for rank in range(4))
    assert sorted(job.stdout.splitlines()) == sorted(whole.splitlines()), "what comes again is printed once"
    assert not job.events("host-lost"), "a rank has died, no host"
    hosts.wait_until_empty(hosts.names)


@pytest.mark.nightly
def test_ranks_that_are_alone_on_their_hosts(
    start: Callable[..., Job], hosts: Hosts, ring: Path, tmp_path: Path
) -> None:
    """They sleep in their looks for messages: checkpoints, a death and an end come through all the same."""
    job = spread(start, hosts, ring, "h2:1,h3:1,h4:1", ranks=3, every=0.1)
    job.wait_event("committed", 3)
    os.kill(next(p for p in hosts.processes("h3") if is_rank(p)), signal.SIGKILL)
    job.wait_event("restarted")
    job.wait_event("committed", len(job.events("committed")) + 2)
    assert job.finish() == 0, job.report()
    assert job.output(0) == result_of(ring, 3, tmp_path)
    hosts.wait_until_empty(hosts.names)


def is_rank(pid: int) -> bool:
    """A rank is a fork of the host's fork server, and leads its process group."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes()
        return b"--control-fd" in words and os.getpgid(pid) == pid and os.getsid(pid) != pid
    except OSError:
        return False


def host_killed(hosts: Hosts) -> None:
    hosts.kill("h3")


def cable_pulled(hosts: Hosts) -> None:
    hosts.cable("h3", "down")


def frozen(hosts: Hosts) -> None:
    hosts.send("h3", signal.SIGSTOP)


def engine_killed(hosts: Hosts) -> None:
    """As a killed ssh client: the agent runs on, and is not answered any more."""
    os.kill(hosts.named("h3", "unshare"), signal.SIGKILL)


FAULTS = [
    pytest.param(host_killed, id="host killed", marks=pytest.mark.nightly),
    pytest.param(cable_pulled, id="cable pulled"),
    pytest.param(frozen, id="host frozen", marks=pytest.mark.nightly),
    pytest.param(engine_killed, id="engine's command killed", marks=pytest.mark.nightly),
]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_host_is_lost_and_its_ranks_go_on_elsewhere(
    start: Callable[..., Job], hosts: Hosts, ring: Path, tmp_path: Path, fault: Callable[[Hosts], None]
) -> None:
    """h4 is a spare. What comes back of h3 has ended its ranks: nothing of them is in files that both see."""
    job = spread(start, hosts, ring, "h2:2,h3:2,h4:2")
    job.wait_event("committed", 2)
    fault(hosts)
    lost = job.wait_event("host-lost")
    fenced = job.wait_event("host-fenced")
    assert lost["host"] == fenced["host"] == "h3"
    assert fenced["proof"] == ("reaped" if fault is engine_killed else "lease")
    job.wait_event("restarted")
    assert where(job, 1) == {0: "h2", 1: "h2", 2: "h4", 3: "h4"}
    assert job.events("ranks-moved")[0]["to"] == {"2": "h4", "3": "h4"}
    job.wait_event("committed", len(job.events("committed")) + 1)
    hosts.cable("h3", "up")
    hosts.send("h3", signal.SIGCONT)
    if fault is host_killed:
        hosts.wait_until_empty(["h3"])
    else:
        assert job.wait_event("host-back")["host"] == "h3"
        assert not any(is_rank(pid) for pid in hosts.processes("h3"))
    if fault is frozen:
        assert "h3" in {event["host"] for event in job.events("host-stalled")}
    assert job.finish() == 0, job.report()
    assert job.output(0) == result_of(ring, 4, tmp_path)
    assert len(job.events("restarted")) == 1
    hosts.wait_until_empty(hosts.names)


def test_a_host_is_reset_and_no_lease_is_waited_for(
    start: Callable[..., Job], hosts: Hosts, ring: Path, tmp_path: Path
) -> None:
    """The engine starts another agent there, which finds another boot of the machine. Then the host is a spare."""
    if os.readlink("/proc/self/ns/pid") != "pid:[4026531836]":
        pytest.skip("in a container nothing of that can be known")
    (tmp_path / "boots").mkdir()
    engine = hosts.engine(boots=tmp_path / "boots")
    job = spread(start, hosts, ring, "h2:2,h3:2,h4:2", lease=60, engine_command=engine, avoid_faulty="off")
    job.wait_event("committed", 2)
    for incarnation, (lost, spare) in enumerate((("h3", "h4"), ("h4", "h3"), ("h3", "h4")), 1):
        hosts.reset(lost)
        assert job.wait_event("host-fenced", incarnation)["proof"] == "reset"
        job.wait_event("restarted", incarnation)
        assert set(where(job, incarnation).values()) == {"h2", spare}
        job.wait_event("host-back", incarnation)
        job.wait_event("committed", len(job.events("committed")) + 1)
    assert [event["host"] for event in job.events("host-back")] == ["h3", "h4", "h3"]
    assert job.finish() == 0, job.report()
    assert job.output(0) == result_of(ring, 4, tmp_path)
    hosts.wait_until_empty(hosts.names)


@pytest.mark.nightly
@pytest.mark.parametrize("fault", [pytest.param(each, id=each.__name__) for each in (cable_pulled, frozen)])
def test_a_host_that_has_come_back_gets_ranks_when_another_one_is_lost(
    start: Callable[..., Job], hosts: Hosts, ring: Path, tmp_path: Path, fault: Callable[[Hosts], None]
) -> None:
    """It comes back twice."""
    job = spread(start, hosts, ring, "h2:2,h3:2,h4:2", ports="50000-50003", lease=10, avoid_faulty="off")
    job.wait_event("committed", 2)
    for incarnation, (lost, spare) in enumerate((("h3", "h4"), ("h4", "h3"), ("h3", "h4")), 1):
        if lost == "h3":
            fault(hosts)
        else:
            hosts.cable("h4", "down")
        job.wait_event("restarted", incarnation)
        assert set(where(job, incarnation).values()) == {"h2", spare}
        hosts.cable(lost, "up")
        hosts.send(lost, signal.SIGCONT)
        job.wait_event("host-back", 2 if incarnation == 3 else 1, host=lost)
        job.wait_event("committed", len(job.events("committed")) + 1)
    assert "this host is a spare of the job now" in (job.directory / "output" / "host-h3.log").read_text()
    assert job.finish() == 0, job.report()
    assert job.output(0) == result_of(ring, 4, tmp_path)
    hosts.wait_until_empty(hosts.names)


@pytest.mark.nightly
def test_a_host_that_is_away_for_much_longer_than_its_lease_comes_back(
    start: Callable[..., Job], hosts: Hosts, ring: Path, tmp_path: Path
) -> None:
    job = spread(start, hosts, ring, "h2:2,h3:2,h4:2")
    job.wait_event("committed", 2)
    hosts.cable("h3", "down")
    job.wait_event("restarted")
    time.sleep(4 * LEASE_S)
    hosts.cable("h3", "up")
    job.wait_event("host-back")
    time.sleep(LEASE_S)
    assert job.finish() == 0, job.report()
    assert job.output(0) == result_of(ring, 4, tmp_path)
    assert len(job.events("host-back")) == len(job.events("host-lost")) >= 1, (
        "again, if the answer came too late"
    )
    assert len(job.events("restarted")) == 1


@pytest.mark.nightly
def test_a_controller_that_was_frozen_for_longer_than_the_lease_loses_no_host(
    start: Callable[..., Job], hosts: Hosts, ring: Path, tmp_path: Path
) -> None:
    """Hosts look into the journal meanwhile, and nobody has taken the job over."""
    job = spread(start, hosts, ring, "h2:2,h3:2")
    job.wait_event("committed", 2)
    pid = job.events("controller")[0]["pid"]
    os.kill(pid, signal.SIGSTOP)
    time.sleep(3 * LEASE_S)
    os.kill(pid, signal.SIGCONT)
    job.go()
    assert job.process.wait(60) == 0, job.report()
    assert not job.events("host-lost")
    assert job.output(0) == result_of(ring, 4, tmp_path)
    hosts.wait_until_empty(hosts.names)


@pytest.mark.nightly
def test_agents_that_are_away_end_with_their_controller(
    start: Callable[..., Job], hosts: Hosts, ring: Path
) -> None:
    job = spread(start, hosts, ring, "h2:2,h3:2,h4:2")
    job.wait_event("committed", 2)
    hosts.cable("h3", "down")
    job.wait_event("restarted")
    job.process.kill()
    job.process.wait()
    hosts.cable("h3", "up")
    hosts.wait_until_empty(["h3"])
    assert any(is_rank(pid) for pid in hosts.processes("h2")), (
        "those that have ranks wait for the next controller"
    )


@pytest.mark.nightly
def test_a_spare_that_is_lost_costs_no_restart(
    start: Callable[..., Job], hosts: Hosts, ring: Path, tmp_path: Path
) -> None:
    job = spread(start, hosts, ring, "h2:2,h3:2,h4:2")
    job.wait_event("committed", 2)
    hosts.kill("h4")
    job.wait_event("host-fenced", host="h4")
    job.wait_event("committed", len(job.events("committed")) + 1)
    assert job.finish() == 0, job.report()
    assert job.output(0) == result_of(ring, 4, tmp_path)
    assert not job.events("restarting")


@pytest.mark.nightly
def test_a_spare_whose_agent_is_slow_holds_no_restart_and_no_checkpoint_up(
    start: Callable[..., Job], hosts: Hosts, ring: Path, tmp_path: Path
) -> None:
    job = spread(start, hosts, ring, "h2:2,h3:2,h4:2", lease=300)
    job.wait_event("committed", 2)
    hosts.send("h4", signal.SIGSTOP)
    os.kill(next(pid for pid in hosts.processes("h3") if is_rank(pid)), signal.SIGKILL)
    job.wait_event("restarted")
    job.wait_event("committed", len(job.events("committed")) + 1)
    hosts.send("h4", signal.SIGCONT)
    assert job.finish() == 0, job.report()
    assert not job.events("host-lost")
    assert job.output(0) == result_of(ring, 4, tmp_path)
    hosts.wait_until_empty(hosts.names)


@pytest.mark.nightly
def test_the_job_listens_at_the_given_ports_only(
    start: Callable[..., Job], hosts: Hosts, ring: Path, tmp_path: Path
) -> None:
    """As many as it needs, and no other: what a firewall leaves open."""
    job = spread(start, hosts, ring, "h2:2,h3:2", ports="50000-50003")
    job.wait_event("committed", 2)
    listening = set()
    for name in ("h1", "h2", "h3"):
        words = (*hosts.on(name), "cat", "/proc/net/tcp")
        table = subprocess.run(words, capture_output=True, text=True, check=True, timeout=20).stdout
        rows = [line.split() for line in table.splitlines()[1:]]
        listening |= {(name, int(row[1].rpartition(":")[2], 16)) for row in rows if row[3] == "0A"}
    assert listening and all(50000 <= port <= 50003 for _, port in listening), listening
    os.kill(next(p for p in hosts.processes("h3") if is_rank(p)), signal.SIGKILL)
    job.wait_event("restarted")
    assert job.finish() == 0, job.report()
    assert job.output(0) == result_of(ring, 4, tmp_path)


@pytest.mark.nightly
def test_ssh_with_a_real_sshd_on_each_host(
    start: Callable[..., Job], hosts: Hosts, ring: Path, tmp_path: Path
) -> None:
    """A directory with a space and a quote in its name: ssh gives its words to a shell on the other side."""
    if not os.path.exists(SSHD):
        pytest.skip(f"needs {SSHD} (package openssh-server)")
    home = tmp_path / "it's here"
    home.mkdir()
    servers = [hosts.sshd(name, tmp_path) for name in ("h2", "h3")]
    try:
        app = write_app(home, apps.RING, "ring.py")
        job = start(
            app,
            STEPS,
            0.003,
            ranks=4,
            every=0.3,
            lease=LEASE_S,
            name="it's here/job",
            hosts="h2:2,h3:2",
            engine_command=f"ssh -F {tmp_path}/ssh_config -o BatchMode=yes {{host}} {{agent}}",
            within=hosts.on("h1"),
            interface="10.88.0.0/16",
        )
        (home / "ring.go").touch()
        job.wait_event("committed", 2)
        os.kill(next(p for p in hosts.processes("h3") if is_rank(p)), signal.SIGKILL)
        job.wait_event("restarted")
        assert job.finish() == 0, job.report()
        assert job.output(0) == result_of(ring, 4, tmp_path)
    finally:
        for server in servers:
            server.kill()
            server.wait()
            assert server.stderr is not None
            server.stderr.close()


@pytest.mark.nightly
def test_the_fork_server_of_a_host_is_killed(
    start: Callable[..., Job], hosts: Hosts, ring: Path, tmp_path: Path
) -> None:
    """The host is not lost: its agent starts another one."""
    job = spread(start, hosts, ring, "h2:2,h3:2")
    job.wait_event("committed", 2)
    os.kill(next(p for p in hosts.processes("h3") if is_fork_server(p)), signal.SIGKILL)
    assert "on host h3" in job.wait_event("agent-lost")["reason"]
    job.wait_event("restarted")
    assert job.finish() == 0, job.report()
    assert job.output(0) == result_of(ring, 4, tmp_path)
    hosts.wait_until_empty(hosts.names)


def is_fork_server(pid: int) -> bool:
    words = Path(f"/proc/{pid}/cmdline").read_bytes()
    return b"--control-fd" in words and os.getsid(pid) == pid


@pytest.mark.nightly
def test_a_fork_server_and_its_ranks_end_with_the_agent_of_their_host(
    start: Callable[..., Job], ring: Path, tmp_path: Path
) -> None:
    """Two hosts on this one, so that nothing but the agent dies."""
    engine = "env CKPT_TEST_HOST={host} {agent}"
    options = {"ranks": 4, "every": 0.3, "lease": LEASE_S, "interface": "lo"}
    job = start(ring, STEPS, 0.003, hosts="a:2,b:2", engine_command=engine, **options)
    job.wait_event("committed", 2)
    left = [e["pid"] for e in job.events() if e.get("host") == "b" and "pid" in e]
    agent = next(
        int(name)
        for name in os.listdir("/proc")
        if name.isdecimal()
        and b"agent\0--job\0" + str(job.directory).encode() in command_of(name)
        and b"--host\0b\0" in command_of(name)
    )
    os.kill(agent, signal.SIGKILL)
    job.wait_event("host-lost", host="b")
    job.wait_for(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in left), "they have ended")
    job.wait_event("host-fenced", host="b", proof="reaped")  # by another agent, which finds nothing of them
    job.wait_event("host-back", host="b")
    assert job.finish() == 0, job.report()
    assert job.output(0) == result_of(ring, 4, tmp_path)


def command_of(pid: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


@pytest.mark.nightly
def test_no_spare_is_left_and_more_ranks_share_a_host(
    start: Callable[..., Job], hosts: Hosts, ring: Path, tmp_path: Path
) -> None:
    job = spread(start, hosts, ring, "h2:2,h3:2")
    job.wait_event("committed", 2)
    hosts.kill("h3")
    job.wait_event("restarted")
    assert set(where(job, 1).values()) == {"h2"}
    assert job.finish() == 0, job.report()
    assert job.output(0) == result_of(ring, 4, tmp_path)


WHERE = (
    apps._HELD
    + """
    import platform
    import ckpt

    def place():
        shared = comm.Split_type(1)
        return os.environ["HOSTNAME"], platform.node(), os.environ["LOCAL_RANK"], shared.size

    comm = ckpt.enable()
    print(*place(), flush=True)
    while comm.allreduce(held(), max):
        sum(range(10000))
    print(*place())
"""
)


@pytest.mark.nightly
def test_what_a_rank_learns_about_its_place_is_the_new_hosts_after_a_move(
    start: Callable[..., Job], hosts: Hosts, tmp_path: Path
) -> None:
    app = write_app(tmp_path, WHERE)
    engine = hosts.engine().replace("{agent}", "env HOSTNAME={host}.example {agent}")
    network = {"within": hosts.on("h1"), "interface": "10.88.0.0/16", "lease": LEASE_S}
    job = start(app, ranks=4, every=0.3, hosts="h2:3,h3:1", engine_command=engine, **network)
    job.wait_event("committed", 3)
    hosts.kill("h3")
    job.wait_event("restarted")
    assert job.finish() == 0, job.report()
    assert job.output(3).splitlines() == ["h3.example h3 0 1", "h2.example h2 3 4"]
    assert job.output(0).splitlines() == ["h2.example h2 0 3", "h2.example h2 0 4"]


@pytest.mark.nightly
def test_all_hosts_are_lost(start: Callable[..., Job], hosts: Hosts, ring: Path) -> None:
    job = spread(start, hosts, ring, "h2:2,h3:2")
    job.wait_event("committed", 1)
    hosts.kill("h2")
    hosts.kill("h3")
    assert job.process.wait(60) == 16
    assert "no host is left" in job.stderr


@pytest.mark.nightly
def test_all_hosts_are_cut_off_and_come_back(
    start: Callable[..., Job], hosts: Hosts, ring: Path, tmp_path: Path
) -> None:
    """The switch is off for a while: the job ended with code 16, though all hosts asked for a new lease."""
    job = spread(start, hosts, ring, "h2:2,h3:2")
    job.wait_event("committed", 2)
    for name in ("h2", "h3"):
        hosts.cable(name, "down")
    job.wait_event("waiting-for-hosts")
    for name in ("h2", "h3"):
        hosts.cable(name, "up")
    job.wait_event("restarted")
    assert job.finish() == 0, job.report()
    assert job.output(0) == result_of(ring, 4, tmp_path)
    hosts.wait_until_empty(hosts.names)


@pytest.mark.nightly
def test_a_job_whose_hosts_are_cut_off_is_stopped(
    start: Callable[..., Job], hosts: Hosts, ring: Path
) -> None:
    job = spread(start, hosts, ring, "h2:2,h3:2")
    job.wait_event("committed", 2)
    for name in ("h2", "h3"):
        hosts.cable(name, "down")
    job.wait_event("waiting-for-hosts")
    job.process.send_signal(signal.SIGTERM)
    assert job.process.wait(60) == 143, job.report()
    assert len(job.events("restarting")) == 0


@pytest.mark.nightly
def test_the_controller_is_killed_and_the_job_restarted(
    start: Callable[..., Job], hosts: Hosts, ring: Path, tmp_path: Path
) -> None:
    """From a line that is asked for: then the ranks that run are not gone on with, and their leases are waited for."""
    job = spread(start, hosts, ring, "h2:2,h3:2")
    job.wait_event("committed", 2)
    job.process.kill()
    job.process.wait()
    job.go()
    words = (*hosts.on("h1"), sys.executable, "-m", "ckpt", "restart", f"{job.directory}@2")
    done = subprocess.run(words, capture_output=True, text=True, timeout=90, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "by then the hosts of the controller before this one have ended their ranks" in done.stderr
    assert job.output(0) == result_of(ring, 4, tmp_path)
    hosts.wait_until_empty(hosts.names)


def test_a_host_that_cannot_be_used_is_named_and_the_others_go_on_if_they_are_enough(
    start: Callable[..., Job], hosts: Hosts, ring: Path, tmp_path: Path
) -> None:
    job = spread(start, hosts, ring, "h9:2,h2:2", ranks=2)
    assert job.finish() == 0, job.report()
    failed = job.events("host-failed")
    assert [event["host"] for event in failed] == ["h9"]
    assert "the engine's command ended with exit code 1" in failed[0]["reason"]
    assert f"ckpt: host h9 takes no part: {failed[0]['reason']}" in job.stderr
    other = spread(start, hosts, ring, "h9:2,h2:2", ranks=4, name="other")
    assert other.process.wait(60) == 1
    assert "4 ranks need more hosts than have answered. host h9: the engine's command ended" in other.stderr
    hosts.wait_until_empty(hosts.names)


def test_two_hosts_that_cannot_reach_each_other_are_named(
    start: Callable[..., Job], hosts: Hosts, ring: Path
) -> None:
    """Both reach the controller: without this the ranks would wait for each other for ever."""
    unreachable = ("ip", "-n", hosts.namespace("h2"), "route", "add", "prohibit", "10.88.0.3/32")
    subprocess.run(unreachable, check=True, timeout=20)
    job = spread(start, hosts, ring, "h2:2,h3:2")
    assert job.process.wait(60) == 1
    assert "host h2 cannot reach host h3 at 10.88.0.3: " in job.stderr
    hosts.wait_until_empty(hosts.names)


@pytest.mark.nightly
def test_a_host_that_does_not_see_the_job_directory_is_named(
    start: Callable[..., Job], hosts: Hosts, ring: Path, tmp_path: Path
) -> None:
    job = start(
        ring,
        STEPS,
        ranks=4,
        hosts="h2:2,h3:2",
        engine_command=engine_after(hosts, f"mount -t tmpfs none {tmp_path}"),
        within=hosts.on("h1"),
        interface="eth0",
    )
    assert job.process.wait(60) == 1
    assert (
        "host h3: the engine's command ended with exit code 1: ckpt: host h3 does not see the job directory"
        in job.stderr
    )
    assert "Name one with --job" in job.stderr


def engine_after(hosts: Hosts, command: str) -> str:
    """The `--engine-command` where the host h3 runs this shell command first, with mounts of its own."""
    before = f"unshare --mount sh -c 'if [ {{host}} = h3 ]; then {command}; fi; exec \"$@\"' sh"
    return hosts.engine().replace("{agent}", f"{before} {{agent}}")


@pytest.mark.nightly
def test_a_host_that_sees_a_copy_of_the_job_directory_is_named(
    start: Callable[..., Job], hosts: Hosts, ring: Path, tmp_path: Path
) -> None:
    """It has the job's number, its key and all. The others go on, as they are enough."""
    job, other = tmp_path / "job", tmp_path / "copy"
    copied = f"cp -a {job} {other} && mount --bind {other} {job} && rm {job}/token"
    found = spread(start, hosts, ring, "h2:2,h3:2,h4:2", engine_command=engine_after(hosts, copied))
    assert found.finish() == 0, found.report()
    (failed,) = found.events("host-failed")
    assert failed["host"] == "h3" and "is a copy of the controller's" in failed["reason"], failed
    assert found.output(0) == result_of(ring, 4, tmp_path)


def test_a_host_that_cannot_write_in_the_job_directory_is_named(
    start: Callable[..., Job], hosts: Hosts, ring: Path, tmp_path: Path
) -> None:
    """Its fork server died of that at each start, until all restarts were used up. The others go on, as they are enough."""
    job = tmp_path / "job"
    only_read = f"mount --bind {job} {job} && mount -o remount,bind,ro {job}"
    found = spread(start, hosts, ring, "h2:2,h3:2,h4:2", engine_command=engine_after(hosts, only_read))
    assert found.finish() == 0, found.report()
    (failed,) = found.events("host-failed")
    reason = f"host h3 cannot write in the job directory {job} (Read-only file system)"
    assert failed["host"] == "h3" and reason in failed["reason"], failed
    assert not found.events("restarting"), "it gets no ranks"
    assert found.output(0) == result_of(ring, 4, tmp_path)
    hosts.wait_until_empty(hosts.names)


@pytest.mark.nightly
def test_a_host_with_another_python_is_named(
    start: Callable[..., Job], hosts: Hosts, ring: Path, tmp_path: Path
) -> None:
    """Another Python is really there, with a ckpt of the same version. The others go on, if they are enough."""
    there = sorted(Path(sys.prefix).parent.glob(".venv-3.*/bin/python"))
    if not there:
        pytest.skip("another Python: none is set up here (make others)")
    other = f"mount --bind {there[0].parents[1]} {sys.prefix}"
    engine = engine_after(hosts, other)
    found = spread(start, hosts, ring, "h2:2,h3:2,h4:2", engine_command=engine)
    assert found.finish() == 0, found.report()
    (failed,) = found.events("host-failed")
    named = there[0].parents[1].name.removeprefix(".venv-")
    assert failed["host"] == "h3" and failed["reason"].startswith(f"it has Python {named}."), failed
    assert found.output(0) == result_of(ring, 4, tmp_path)
    refused = spread(start, hosts, ring, "h2:2,h3:2", engine_command=engine, name="refused")
    assert refused.process.wait(60) == 1
    assert f"4 ranks need more hosts than have answered. host h3: {failed['reason']}" in refused.stderr


def agent_of(hosts: Hosts, name: str) -> int:
    """The agent of this host itself, not what has started it."""
    for pid in hosts.processes(name):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        if b"python" in words[0] and b"agent" in words:
            return pid
    raise AssertionError(f"no agent on {name}")


def test_an_agent_stands_still_alone_and_its_ranks_have_ended_when_others_start(
    start: Callable[..., Job], hosts: Hosts, ring: Path, tmp_path: Path
) -> None:
    """The agent had the lease, and nobody else: ranks went on beside those that had been started in their place."""
    job = spread(start, hosts, ring, "h2:2,h3:2,h4:2")
    job.wait_event("committed", 2)
    agent = agent_of(hosts, "h3")
    os.kill(agent, signal.SIGSTOP)
    fenced = job.wait_event("host-fenced", host="h3")
    assert fenced["proof"] == "lease"
    left = [pid for pid in hosts.processes("h3") if b"--control-fd" in _command_of(pid)]
    assert not left, "they run beside the others"
    job.wait_event("restarted")
    os.kill(agent, signal.SIGCONT)
    job.wait_event("host-back", host="h3")
    assert job.finish() == 0, job.report()
    assert job.output(0) == result_of(ring, 4, tmp_path)
    hosts.wait_until_empty(hosts.names)


def _command_of(pid: int) -> bytes:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


@pytest.mark.nightly
def test_a_tenth_of_all_packets_is_lost(
    start: Callable[..., Job], hosts: Hosts, ring: Path, tmp_path: Path
) -> None:
    if shutil.which("nft") is None:
        pytest.skip("needs nft")
    for name in ("h2", "h3"):
        rules = (
            "add table ip t; add chain ip t c { type filter hook input priority 0; }; "
            "add rule ip t c numgen random mod 10 < 1 drop"
        )
        subprocess.run((*hosts.on(name), "nft", rules), check=True, timeout=20)
    job = spread(start, hosts, ring, "h2:2,h3:2", lease=10)
    job.wait_event("committed", 2)
    os.kill(next(p for p in hosts.processes("h3") if is_rank(p)), signal.SIGKILL)
    job.wait_event("restarted")
    assert job.finish() == 0, job.report()
    assert job.output(0) == result_of(ring, 4, tmp_path)
    assert not job.events("host-lost")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--hosts", "a:2,a:2"], "--hosts: a more than once"),
        (["--hosts", "a:2,,b"], "--hosts: '' is no host"),
        (["--hosts", "a:2,b c"], "'b c' is no host: separate hosts by commas: b,c"),
        (["--hosts", "a:0"], "0 slots: a host has 1 to 4096"),
        (["--hosts", "a:2,b:1"], "4 ranks do not fit into the 3 slots of a:2,b:1"),
        (["--hosts", "a:4", "--hostfile", "f"], "--hosts and --hostfile: give one of them"),
        (["--hostfile", "missing"], "--hostfile missing: "),
        (
            ["--hosts", "a:4", "--engine-command", "rsh {host}"],
            "it has to have {agent} as a word of its own, and {host}",
        ),
        (["--hosts", "a:4", "--engine-command", "mpiexec {agent}"], "or {hosts}, as in 'mpiexec -n {hosts}"),
        (["--hosts", "a:4", "--engine-command", "x {host} {hosts} {agent}"], "or {hosts}, as in"),
        (["--engine", "slurm", "--hosts", "a:4"], "leave --hosts and --engine-command out"),
        (["--hosts", "a:4", "--ports", "50000"], "give the first and the last one, as in 50000-50100"),
        (["--hosts", "a:4", "--ports", "50000-50004"], "5 ports; a host needs 6: one for each rank"),
        (["--engine", "slurm"], "not in an allocation of Slurm: run it in a batch script (`ckpt submit`"),
        (["--engine", "ssh"], "on which hosts? --hosts or --hostfile"),
        (["--engine", "local", "--hosts", "a:4"], "--engine local is this host alone: leave --hosts out"),
        (["--hosts", "a:4", "--lease", "0.5"], "--lease 0.5: at least 1 s"),
        (
            ["--hosts", "a:4", "--interface", "10.99.0.0/16", "--engine-command", "{host} {agent}"],
            "no such interface",
        ),
        (["--ports", "50000"], "give the first and the last one, as in 50000-50100"),
        (["--lease", "0.5"], "--lease 0.5: at least 1 s"),
        (["--interface", "nosuch"], "no such interface"),
        (["--topology", "missing"], "missing: no such file"),
        (["--fault-record", "missing/record"], "its directory is not there"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_starts(
    tmp_path: Path, options: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    app = write_app(tmp_path, "print(1)")
    assert main(["run", "-n", "4", "--job", str(tmp_path / "job"), *options, str(app)]) == 2
    assert says in capsys.readouterr().err
    assert not (tmp_path / "job").exists()


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, 130)]
)
def test_a_job_that_is_stopped_while_hosts_dial_in_leaves_nothing(
    start: Callable[..., Job], ring: Path, tmp_path: Path, number: int, code: int
) -> None:
    """Neither the engine's commands, nor a record by which other hosts would take the job to run here."""
    begun = tmp_path / "begun"
    begun.mkdir()
    command = (
        f"sh -c 'echo $$ >{begun}/$0.new; mv {begun}/$0.new {begun}/$0; exec sleep 600' {{host}} {{agent}}"
    )
    job = start(ring, STEPS, 0.003, ranks=2, hosts="a:1,b:1", engine_command=command)
    job.wait_for(lambda: {path.name for path in begun.iterdir()} == {"a", "b"}, "the engine's commands")
    job.process.send_signal(number)
    assert job.process.wait(30) == code, job.report()
    assert not [path for path in begun.iterdir() if os.path.exists(f"/proc/{path.read_text().strip()}")]
    assert json.loads((job.directory / "generation.json").read_text()).get("location") is None


HELD = """
    import time
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    if comm.rank == 1:
        print("now", flush=True)
        while not comm.iprobe():
            sum(range(100_000_000))  # keeps the interpreter's lock, for a second or more
        comm.recv()
    else:
        time.sleep(8)
        comm.send(None, 1)
"""


@pytest.mark.nightly
def test_status_asks_the_agents_where_ranks_are_that_do_not_answer(
    start: Callable[..., Job], hosts: Hosts, tmp_path: Path
) -> None:
    app = write_app(tmp_path, HELD)
    options = {"lease": LEASE_S, "interface": "10.88.0.0/16", "engine_command": hosts.engine()}
    job = start(app, ranks=2, hosts="h2:1,h3:1", within=hosts.on("h1"), **options)
    job.wait_for(lambda: "now" in job.output(1), "rank 1 is there")

    def look() -> list[dict[str, object]] | None:
        words = (*hosts.on("h1"), sys.executable, "-m", "ckpt", "status", str(job.directory), "--json")
        done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
        live = json.loads(done.stdout)["live"]
        ranks = [] if live is None else live["ranks"]
        return ranks if [rank["answers"] for rank in ranks] == [True, False] else None

    ranks = job.wait_for(look, "rank 1 does not answer")
    assert str(ranks[1]["where"]).startswith(f"{app}:"), ranks
    assert [rank["state"] for rank in ranks] == ["S", "R"], "of these, not of others with their numbers here"
    assert job.finish() == 0, job.report()

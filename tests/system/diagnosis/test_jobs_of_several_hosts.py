"""Jobs whose hosts lose each other: what is at fault is named, nobody else is, and the job goes on with the same bytes.

n1 has the controller; n2, n3 and n4 have two ranks each, n5 is a spare. n2 and n3 hang on sw1, n4 and n5 on sw2.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.seeds import seed_of_the_commit
from tests.system import apps
from tests.system.diagnosis.jobbed import NETWORK, JobCluster
from tests.system.hosts.bed import needs_hosts
from tests.system.support import Job, environment, jobs_fixture, run_ckpt, write_app

pytestmark = [pytest.mark.system, pytest.mark.root, pytest.mark.timeout(300)]

HOSTS = {"n1": "sw1", "n2": "sw1", "n3": "sw1", "n4": "sw2", "n5": "sw2"}
STEPS = 400
LEASE_S = 8


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Job]]:
    yield from jobs_fixture(tmp_path)


@pytest.fixture
def cluster() -> Iterator[JobCluster]:
    needs_hosts()
    if shutil.which("nft") is None:
        pytest.skip("needs nft")
    found = JobCluster(HOSTS, [("sw1", "sw2")])
    try:
        found.lay()
        yield found
    finally:
        for name in HOSTS:
            found.send(name, signal.SIGKILL)
        found.remove()


@pytest.fixture(autouse=True)
def no_files_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


def running(
    start: Callable[..., Job],
    cluster: JobCluster,
    tmp_path: Path,
    *,
    topology: Path | bool = True,
    **options: Any,
) -> Job:
    app = write_app(tmp_path, apps.RING, "ring.py")
    if topology is True:
        topology = cluster.topology(tmp_path / "topology.toml")
    if topology:
        options["topology"] = topology
    options = {"ranks": 6, "every": 0.5, "lease": LEASE_S, "hosts": "n2:2,n3:2,n4:2,n5:2"} | options
    job = start(
        app,
        STEPS,
        0.003,
        interface=NETWORK,
        engine_command=cluster.engine(),
        within=cluster.within("n1"),
        **options,
    )
    job.wait_event("committed", 2)
    return job


def the_same_bytes(job: Job, tmp_path: Path) -> bool:
    plain = run_ckpt(
        "run", "-n", 6, "--job", tmp_path / "plain", tmp_path / "ring.py", STEPS, env=environment()
    )
    assert plain.returncode == 0, plain.stderr
    return job.output(0) == (tmp_path / "plain" / "output" / "rank-0.out").read_text()


def components(event: dict[str, Any]) -> set[str]:
    return {row["component"] for row in event["faults"]}


# what is done: (how, the components at fault, the hosts at fault)
FAULTS: dict[str, tuple[Callable[[JobCluster], None], set[str], list[str]]] = {
    "cable pulled": (lambda c: c.pull("c3"), {"cable@n3:eth0-sw1:port3"}, ["n3"]),
    "interface shut": (lambda c: c.shut("n3", "eth0", "c3", "b"), {"interface@n3:eth0"}, ["n3"]),
    "port shut": (lambda c: c.shut("sw1", "port3", "c3", "a"), {"port@sw1:port3"}, ["n3"]),
    "address gone": (
        lambda c: c.on("n3", "addr", "flush", "dev", "eth0"),
        {"interface@n3:eth0"},
        ["n3"],
    ),
}


@pytest.mark.rotate(8)
@pytest.mark.parametrize("fault", FAULTS)
def test_what_is_at_fault_is_named_and_its_host_left_out(
    fault: str, start: Callable[..., Job], cluster: JobCluster, tmp_path: Path
) -> None:
    do, expected, hosts = FAULTS[fault]
    job = running(start, cluster, tmp_path)
    do(cluster)
    located = job.wait_event("fault-located")
    assert components(located) == expected, located
    assert located["hosts"] == hosts, located
    assert {each["there"] for each in located["lost"]} | {each["here"] for each in located["lost"]} >= {"n3"}
    assert {(e["kind"] in ("silent", "unreachable")) for e in job.events("link-down")} == {True}
    left_out = job.wait_event("host-left-out")
    assert left_out["host"] == "n3" and left_out["reason"] == located["text"]
    job.wait_event("restarted")
    assert {e["host"] for e in job.events("rank-started", incarnation=1)} <= {"n2", "n4", "n5"}
    told = run_ckpt("diagnose", job.directory, "--json")
    assert json.loads(told.stdout)["hosts"] == hosts and told.returncode == 0
    status = run_ckpt("status", job.directory)
    assert f"fault      {located['text']}" in status.stdout
    assert job.finish() == 0, job.report()
    assert the_same_bytes(job, tmp_path)
    assert len(job.events("fault-located")) == 1, "one diagnosis"


@pytest.mark.nightly
def test_counters_are_read_once_and_compared_with(
    start: Callable[..., Job], cluster: JobCluster, tmp_path: Path
) -> None:
    topology = cluster.topology(tmp_path / "topology.toml")
    topology.write_text("counters = true\n" + topology.read_text())
    job = running(start, cluster, tmp_path, topology=topology)
    kept = job.wait_event("counters-kept")
    assert kept["reason"] is None and kept["silent"] == [] and kept["asked"] >= len(HOSTS), kept
    cluster.pull("c3")
    located = job.wait_event("fault-located")
    assert components(located) == {"cable@n3:eth0-sw1:port3"}, located
    told = [*located["clear"], *(row["id"] for row in (*located["consequences"], *located["unknown"]))]
    assert any(each.startswith("interface.drops@") for each in told), told
    job.wait_event("restarted")
    assert job.finish() == 0, job.report()
    assert len(job.events("counters-kept")) == 1
    assert the_same_bytes(job, tmp_path)


LARGE_MESSAGES = """
    import sys, time
    import ckpt

    comm = ckpt.enable()
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    for i in range(100_000):
        request = comm.isend(bytes(200_000), right, tag=3)
        comm.recv(source=left, tag=3)
        request.wait()
        time.sleep(0.01)
"""


@pytest.mark.rotate(4)
@pytest.mark.parametrize("where", ["the host", "the way"])
def test_large_packets_that_are_lost_are_said(
    start: Callable[..., Job], cluster: JobCluster, tmp_path: Path, where: str
) -> None:
    """TCP sends them again for ever, while small ones arrive and every connection is accepted. At the interface of a host,
    which can be asked, the MTU is named; on the way, of which nobody tells, it is an unknown fault, in words."""
    for host in HOSTS:  # packets of several segments are never too large for these interfaces
        cluster.on(host, "link", "set", "eth0", "gso_max_segs", "1")
    app = write_app(tmp_path, LARGE_MESSAGES, "large.py")
    job = start(
        app,
        ranks=4,
        every=0.5,
        lease=LEASE_S,
        hosts="n2,n3,n4,n5",
        interface=NETWORK,
        topology=cluster.topology(tmp_path / "topology.toml"),
        engine_command=cluster.engine(),
        within=cluster.within("n1"),
    )
    job.wait_event("committed", 2)
    if where == "the host":
        cluster.on("n3", "link", "set", "eth0", "mtu", "1000")
    else:
        cluster.on("cables", "link", "set", "c3b", "mtu", "1000")
    located = job.wait_event("fault-located")
    assert any(event["accepts"] for event in job.events("link-down"))
    if where == "the host":
        assert components(located) <= {"mtu@n3:eth0"} and located["hosts"] in ([], ["n3"]), located
    else:
        assert not located["faults"] and located["hosts"] == [], located
    if not located["faults"]:
        assert (
            "does not arrive, though connections are accepted there: large packets may be lost"
            in located["text"]
        )


@pytest.mark.rotate(2)
def test_without_a_topology_the_own_end_of_the_way_is_looked_at(
    start: Callable[..., Job], cluster: JobCluster, tmp_path: Path
) -> None:
    """As by `ckpt diagnose HOST HOST`: the machine of the controller, which is one of the job's."""
    job = running(start, cluster, tmp_path, topology=False, hosts="n1:3,n2:3,n3:3")
    cluster.filter("n1", "n3")
    located = job.wait_event("fault-located")
    assert components(located) == {"filter@n1"} and located["hosts"] == ["n1"], located
    assert located["between"] == ["n1", "n3"]
    assert "no device but this machine was asked" in located["reason"]


@pytest.mark.nightly
def test_without_a_topology_three_hosts_name_the_fourth(
    start: Callable[..., Job], cluster: JobCluster, tmp_path: Path
) -> None:
    job = running(start, cluster, tmp_path, topology=False)
    cluster.pull("c3")
    located = job.wait_event("fault-located")
    assert located["hosts"] == ["n3"]
    assert "there is no topology" in located["reason"]
    job.wait_event("restarted")
    assert job.finish() == 0, job.report()
    assert the_same_bytes(job, tmp_path)


@pytest.mark.nightly
def test_a_cable_that_is_plugged_in_again_costs_nothing(
    start: Callable[..., Job], cluster: JobCluster, tmp_path: Path
) -> None:
    """It is said what it was; nobody is left out, and nothing is restarted: the lease was not over."""
    job = running(start, cluster, tmp_path, lease=30)
    cluster.pull("c3")
    located = job.wait_event("fault-located")
    assert components(located) == {"cable@n3:eth0-sw1:port3"}, located
    cluster.flap("c3", "up")
    down = {(each["rank"], each["peer"]) for each in job.events("link-down")}
    job.wait_for(lambda: down <= {(e["rank"], e["peer"]) for e in job.events("link-up")}, "all links are up")
    job.wait_event("committed", len(job.events("committed")) + 1)
    assert job.finish() == 0, job.report()
    assert the_same_bytes(job, tmp_path)
    for name in ("host-left-out", "host-lost", "restarting"):
        assert not job.events(name), job.events(name)


@pytest.mark.nightly
def test_avoid_faulty_off_only_says_it(
    start: Callable[..., Job], cluster: JobCluster, tmp_path: Path
) -> None:
    job = running(start, cluster, tmp_path, avoid_faulty="off")
    cluster.pull("c3")
    located = job.wait_event("fault-located")
    assert located["hosts"] == ["n3"]
    assert job.wait_event("host-lost")["reason"] != located["text"]
    assert not job.events("host-left-out")
    job.wait_event("restarted")
    assert job.finish() == 0, job.report()
    assert the_same_bytes(job, tmp_path)


@pytest.mark.nightly
def test_a_trunk_is_no_hosts_fault(start: Callable[..., Job], cluster: JobCluster, tmp_path: Path) -> None:
    job = running(start, cluster, tmp_path)
    cluster.pull("t0")
    located = job.wait_event("fault-located")
    assert located["hosts"] == [], located
    assert components(located) == {"trunk@sw1:up0-sw2:down0"}, located
    job.wait_event("restarted")
    assert job.finish() == 0, job.report()


@pytest.mark.nightly
@pytest.mark.parametrize("spare", [True, False])
def test_two_hosts_that_only_do_not_reach_each_other_are_both_well(
    start: Callable[..., Job], cluster: JobCluster, tmp_path: Path, spare: bool
) -> None:
    """A filter, one way, and nobody looks at filters. Their ranks would wait for each other for ever: one goes where there
    is room, or it is said."""
    hosts = "n2:2,n3:2,n4:2,n5:2" if spare else "n2:2,n3:2,n4:2"
    job = running(start, cluster, tmp_path, hosts=hosts, topology=False)
    cluster.filter("n3", "n2")
    located = job.wait_event("fault-located")
    assert located["hosts"] == [] and located["between"] == ["n2", "n3"], located
    assert not components(located), located
    if spare:
        left_out = job.wait_event("host-left-out")
        assert left_out["host"] in ("n2", "n3")
        assert "one of them is left out" in left_out["reason"]
        job.wait_event("restarted")
        assert job.finish() == 0, job.report()
        assert the_same_bytes(job, tmp_path)
    else:
        assert not job.events("host-left-out")


@pytest.mark.nightly
def test_a_filter_is_named_with_its_host(
    start: Callable[..., Job], cluster: JobCluster, tmp_path: Path
) -> None:
    job = running(start, cluster, tmp_path)
    cluster.filter("n3", "n2")
    located = job.wait_event("fault-located")
    assert components(located) == {"filter@n3"}, located
    assert located["hosts"] == ["n3"] and located["between"] == ["n2", "n3"], located
    assert job.wait_event("host-left-out")["host"] == "n3"
    job.wait_event("restarted")
    assert job.finish() == 0, job.report()
    assert the_same_bytes(job, tmp_path)


@pytest.mark.nightly
def test_a_host_that_is_killed(start: Callable[..., Job], cluster: JobCluster, tmp_path: Path) -> None:
    """Its processes are gone at once, its network answers: neither cable nor port is named."""
    job = running(start, cluster, tmp_path)
    cluster.kill_host("n3")
    job.wait_event("host-fenced")
    job.wait_event("restarted")
    assert job.finish() == 0, job.report()
    assert the_same_bytes(job, tmp_path)
    (located,) = job.events("fault-located")
    assert located["missing"] == ["n3"] and located["hosts"] == [], located
    assert components(located) == set(), located
    assert "host n3 is gone, its network answers" in located["text"]


@pytest.mark.nightly
def test_a_host_that_hangs_is_named_by_the_others(
    start: Callable[..., Job], cluster: JobCluster, tmp_path: Path
) -> None:
    """Its links have a carrier, nothing of it answers: no part of it is named, the host is, and it is left out."""
    job = running(start, cluster, tmp_path, topology=cluster.topology(tmp_path / "topology.toml", ("n3",)))
    cluster.silence("n3")
    located = job.wait_event("fault-located")
    assert located["hosts"] == ["n3"], located
    assert components(located) == set(), located
    assert "host n3 is not reached by n2, n4" in located["text"], located
    for each in located["clear"]:
        by_others = each.endswith("-sw1:port3") or each.startswith("neighbour.")
        assert "n3" not in each or by_others, "only its switch and its peers can say anything of it"
    assert job.wait_event("host-left-out")["host"] == "n3"
    job.wait_event("restarted")
    assert job.finish() == 0, job.report()
    assert the_same_bytes(job, tmp_path)


@pytest.mark.nightly
def test_a_process_that_is_killed_is_no_fault_of_the_network(
    start: Callable[..., Job], cluster: JobCluster, tmp_path: Path
) -> None:
    job = running(start, cluster, tmp_path)
    for incarnation in (1, 2, 3):
        os.kill(cluster.ranks_on("n3")[0], signal.SIGKILL)
        job.wait_event("restarted", incarnation)
    assert job.finish() == 0, job.report()
    assert the_same_bytes(job, tmp_path)
    assert not job.events("fault-located") and not job.events("link-down")


def stopped(cluster: JobCluster, seconds: float) -> None:
    pids = cluster.ranks_on("n3")
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    time.sleep(seconds)
    for pid in pids:
        os.kill(pid, signal.SIGCONT)


def one_stopped(cluster: JobCluster, seconds: float) -> None:
    pid = cluster.ranks_on("n3")[0]
    os.kill(pid, signal.SIGSTOP)
    time.sleep(seconds)
    os.kill(pid, signal.SIGCONT)


def flaps(cluster: JobCluster, seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        cluster.flap("c3", "down")
        time.sleep(0.2)
        cluster.flap("c3", "up")
        time.sleep(2)


@pytest.mark.nightly
@pytest.mark.parametrize("what", [stopped, one_stopped, flaps])
@pytest.mark.parametrize("seconds", [12, pytest.param(60, marks=pytest.mark.soak)])
def test_who_is_well_is_never_taken_for_dead(
    start: Callable[..., Job],
    cluster: JobCluster,
    tmp_path: Path,
    what: Callable[[JobCluster, float], None],
    seconds: float,
) -> None:
    job = running(start, cluster, tmp_path)
    what(cluster, seconds)
    job.wait_event("committed", len(job.events("committed")) + 1)
    assert job.finish() == 0, job.report()
    assert the_same_bytes(job, tmp_path)
    for name in ("link-down", "host-lost", "host-left-out", "restarting"):
        assert not job.events(name), job.events(name)
    for located in job.events("fault-located"):
        # the connections of a cable that flaps again and again are slow; it is named only if it was asked while it was down
        assert what is flaps and located["slow"] and {*located["hosts"]} <= {"n3"}, located
        assert components(located) <= {"cable@n3:eth0-sw1:port3"}, located


BUSY = """
import sys, time
import ckpt

comm = ckpt.enable()
comm.barrier()
if comm.rank == 2:
    # the interpreter lock is never released
    end = time.monotonic() + float(sys.argv[1])
    while time.monotonic() < end:
        sum(range(10**8))
    big = [bytes([n % 251]) * 1000 for n in range(200000)]
for peer in range(comm.size):
    if peer != comm.rank:
        comm.isend(bytes(100000), peer, tag=1)
ckpt.checkpoint()
total = sum(len(comm.recv(source=peer, tag=1)) for peer in range(comm.size) if peer != comm.rank)
comm.barrier()
print(total)
"""


@pytest.mark.nightly
@pytest.mark.parametrize("seconds", [12, pytest.param(60, marks=pytest.mark.soak)])
def test_who_computes_and_who_writes_a_long_image_is_never_taken_for_dead(
    start: Callable[..., Job], cluster: JobCluster, tmp_path: Path, seconds: int
) -> None:
    app = write_app(tmp_path, BUSY, "busy.py")
    job = start(
        app,
        seconds,
        ranks=6,
        image_mode="sync",
        lease=LEASE_S,
        hosts="n2:2,n3:2,n4:2",
        interface=NETWORK,
        engine_command=cluster.engine(),
        within=cluster.within("n1"),
    )
    assert job.finish(120 + seconds) == 0, job.report()
    assert job.output(0) == "500000\n"
    assert not job.events("link-down") and not job.events("fault-located")


@pytest.mark.nightly
def test_a_host_whose_connections_lose_much_is_said_to_be_slow_and_stays(
    start: Callable[..., Job], cluster: JobCluster, tmp_path: Path
) -> None:
    job = running(start, cluster, tmp_path, topology=False, every=1)
    cluster.lose("n3", 10)
    for other in ("n2", "n4"):
        cluster.lose(other, 10, "n3")
    located = job.wait_event("fault-located", timeout_s=120)
    assert located["slow"]
    slow = [set(each["hosts"]) for each in job.events("link-slow")]
    assert slow and all("n3" in pair for pair in slow)
    assert located["hosts"] in (["n3"], []), located
    assert job.finish(120) == 0, job.report()
    assert not job.events("host-left-out")
    assert the_same_bytes(job, tmp_path)


MORE_HOSTS = {**HOSTS, "n6": "sw1"}
RANDOMLY = {
    # what is done to a host with a number: (how, the component at fault)
    "cable": (lambda c, n: c.pull(f"c{n}"), "cable@n{n}:eth0-{switch}:port{n}"),
    "interface": (lambda c, n: c.shut(f"n{n}", "eth0", f"c{n}", "b"), "interface@n{n}:eth0"),
    "port": (lambda c, n: c.shut(MORE_HOSTS[f"n{n}"], f"port{n}", f"c{n}", "a"), "port@{switch}:port{n}"),
    "address": (lambda c, n: c.on(f"n{n}", "addr", "flush", "dev", "eth0"), "interface@n{n}:eth0"),
    "killed": (lambda c, n: c.kill_host(f"n{n}"), "process@n{n}"),
}


@pytest.mark.nightly
@pytest.mark.timeout(900)
@pytest.mark.parametrize("rounds", [4, pytest.param(100, marks=pytest.mark.soak)])
def test_faults_alone_and_in_pairs_at_random_times(
    start: Callable[..., Job], tmp_path: Path, rounds: int
) -> None:
    """Eight ranks; somebody may be mute. Whatever is named was done, who is left out was hit; the bytes are the same."""
    needs_hosts()
    random = Random(seed_of_the_commit() + rounds)
    for number in range(rounds):
        cluster = JobCluster(MORE_HOSTS, [("sw1", "sw2")])
        directory = tmp_path / str(number)
        directory.mkdir()
        chosen = [
            (random.choice(sorted(RANDOMLY)), n) for n in random.sample(range(2, 7), random.choice((1, 2)))
        ]
        mute = tuple(name for name in (*MORE_HOSTS, "sw1", "sw2") if random.random() < 0.15)
        try:
            cluster.lay()
            topology = cluster.topology(directory / "topology.toml", mute)
            options = {"ranks": 8, "hosts": "n2:2,n3:2,n4:2,n5:2,n6:2", "name": f"{number}/job"}
            job = running(start, cluster, directory, topology=topology, **options)
            for what, n in chosen:
                time.sleep(random.random() * 2)
                RANDOMLY[what][0](cluster, n)
            if {f"n{n}" for _, n in chosen} & {event["host"] for event in job.events("rank-started")}:
                job.wait_event("restarted")  # a host without ranks may be lost without a restart
            assert job.finish() == 0, job.report()
            bytes_of_the_job = job.output(0)
        finally:
            job.close()
            for name in MORE_HOSTS:
                cluster.send(name, signal.SIGKILL)
            cluster.remove()
        plain = run_ckpt(
            "run", "-n", 8, "--job", directory / "plain", directory / "ring.py", STEPS, env=environment()
        )
        assert plain.returncode == 0, plain.stderr
        assert bytes_of_the_job == (directory / "plain" / "output" / "rank-0.out").read_text()
        done = {RANDOMLY[what][1].format(n=n, switch=MORE_HOSTS[f"n{n}"]) for what, n in chosen}
        hit = {f"n{n}" for _, n in chosen}
        for located in job.events("fault-located"):
            assert components(located) <= done, (chosen, mute, located)
            assert {*located["hosts"]} <= hit, (chosen, mute, located)
            assert not located["between"] or {*located["between"]} & hit, (chosen, mute, located)
        assert {event["host"] for event in job.events("host-left-out")} <= hit, (chosen, mute)

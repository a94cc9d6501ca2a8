"""Real lldpd on hosts and switches, snmpd on one of these: where cables end, and what of a file is not so.

n1, n2 and n3 hang on sw1 (ports 1 to 3), n4 on sw2, and sw1 on sw2. sw1 is asked by SNMP; of the hosts, n1 and n4 are.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.system import apps
from tests.system.diagnosis import devices
from tests.system.diagnosis.cluster import Cluster, shell
from tests.system.diagnosis.jobbed import NETWORK, JobCluster
from tests.system.diagnosis.lldpd import Neighbours
from tests.system.hosts.bed import needs_hosts
from tests.system.support import Job, jobs_fixture, write_app

pytestmark = [pytest.mark.system, pytest.mark.root, pytest.mark.timeout(300), pytest.mark.turns(2)]

HOSTS = {"n1": "sw1", "n2": "sw1", "n3": "sw1", "n4": "sw2"}
TRUNK = '[[trunk]]\nends = [["sw1", "up0"], ["sw2", "down0"]]\n'


@dataclass
class Bed:
    folder: Path
    cluster: Cluster
    agent: str = ""
    daemons: dict[str, Neighbours] = field(default_factory=dict)

    def file(self, text: str, **ports: str | None) -> Path:
        """A topology: of the hosts the ports that are given, of the machines with lldpd their shells."""
        lines = ["lldp = true"]
        for host, port in ports.items():
            lines += [f"[host.{host}]", f'address = "{self.cluster.address(host)}"', 'interface = "eth0"']
            lines += [] if port is None else [f'switch = "{HOSTS[host]}"', f'port = "{port}"']
            words = self.daemons[host].shell if host in self.daemons else shell(self.cluster.namespace(host))
            lines += [f"shell = {words!r}", f"python = {sys.executable!r}"]
        lines += ["[switch.sw1]", f'snmp = ["{self.agent}"]', "[switch.sw2]"]
        path = self.folder / "topology.toml"
        path.write_text("\n".join(lines) + f"\n{text}")
        return path

    def ckpt(self, *words: object) -> tuple[int, dict[str, Any]]:
        """`ckpt diagnose` on the management network; exit code and answer."""
        command = [*shell(self.cluster.namespace("mgmt")), sys.executable, "-m", "ckpt", "diagnose"]
        environment = {**os.environ, "XDG_CONFIG_HOME": str(self.folder)}
        done = subprocess.run(
            [*command, *map(str, words), "--json"],
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
            env=environment,
        )
        assert done.returncode in (0, 1), done.stderr
        return done.returncode, json.loads(done.stdout)


def bed_of(cluster: Cluster, tmp_path: Path) -> Iterator[Bed]:
    for tool in ("ip", "nsenter", "lldpd", "lldpcli", "snmpd"):
        if devices.program(tool) is None:
            pytest.skip(f"needs {tool}")
    pytest.importorskip("ezsnmp", reason="ezsnmp is not installed")
    found = Bed(tmp_path, cluster)
    (tmp_path / "agent").mkdir()
    (tmp_path / "ckpt").mkdir()
    (tmp_path / "ckpt" / "credentials.toml").write_text(f'[snmp]\ncommunity = "{devices.SECRET}"\n')
    (tmp_path / "ckpt" / "credentials.toml").chmod(0o600)
    with contextlib.ExitStack() as ends:
        ends.callback(found.cluster.remove)
        found.cluster.lay()
        address = found.cluster.manage("sw1", "n1")["sw1"]
        agent = devices.Agent(tmp_path / "agent", shell(found.cluster.namespace("sw1")), address)
        ends.callback(agent.end)
        found.agent = agent.address
        for owner in ("n1", "n3", "n4", "sw1", "sw2"):
            subagents = agent.subagents if owner == "sw1" else None
            name = {"n3": "node-3.example.com", "sw2": "sw2.example.com"}.get(owner)
            daemon = Neighbours(
                found.cluster, owner, tmp_path / f"{owner}.log", name=name, subagents=subagents
            )
            ends.callback(daemon.end)
            if owner in ("n1", "n4"):
                found.daemons[owner] = daemon
            if owner == "sw1":
                heard = daemon
        heard.wait("n1", "node-3.example.com", "sw2.example.com")
        found.daemons["n1"].wait("sw1")
        found.daemons["n4"].wait("sw2.example.com")
        place = "host n1 (eth0): port1 of sw1 (sw1 and n1)"
        asking = found.file("", n1=None, n4=None)
        trunk = "trunk sw1:up0-sw2:down0 (sw1)"
        devices.until(
            lambda: {place, trunk} <= {*found.ckpt("--lldp", "--topology", asking)[1]["places"]}, "LLDP-MIB"
        )
        yield found


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[Bed]:
    yield from bed_of(Cluster(HOSTS, [("sw1", "sw2")]), tmp_path)


@pytest.fixture
def job_bed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bed]:
    needs_hosts()
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    cluster = JobCluster(HOSTS, [("sw1", "sw2")])
    for found in bed_of(cluster, tmp_path):
        yield found
        for name in HOSTS:
            cluster.send(name, signal.SIGKILL)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Job]]:
    yield from jobs_fixture(tmp_path)


def test_lldp_completes_the_topology_and_contradicts_a_wrong_one(bed: Bed) -> None:
    # what the file leaves out: n1 is seen by sw1 and says it itself, n4 only says it itself, and the trunk is seen by sw1
    code, found = bed.ckpt(
        "--lldp", "--topology", bed.file("", n1=None, n2="port2", n4=None), "--keep", bed.folder / "kept.json"
    )
    assert found["contradictions"] == []
    assert found["missing"] == [
        "host n2 (eth0) is in no table (asked: sw1): is its cable plugged in, and does lldpd run on it?"
    ]
    assert [each["machine"] for each in found["silent"]] == ["sw2", "n2"]
    assert code == 1
    assert found["topology"]["host"]["n1"]["port"] == "port1"
    assert (found["topology"]["host"]["n4"]["switch"], found["topology"]["host"]["n4"]["port"]) == (
        "sw2",
        "port4",
    )
    assert found["topology"]["trunk"] == [{"ends": [["sw1", "up0"], ["sw2", "down0"]]}]
    assert devices.SECRET not in json.dumps(found)

    # with what was learned, a cable that is pulled is named
    bed.cluster.pull("c1")
    cable = "cable@n1:eth0-sw1:port1"

    def is_named() -> bool:  # within five seconds, which a busy machine may not do
        _, named = bed.ckpt("n1", "n4", "--topology", bed.folder / "kept.json", "--age", "10")
        assert {each["component"] for each in (*named["faults"], *named["suspects"])} <= {cable}, named
        return bool(named["faults"])

    devices.until(is_named, f"the diagnosis that names {cable}")


def test_a_file_that_is_not_so(bed: Bed) -> None:
    """n1 and n3 exchanged, and n3 has another name there."""
    code, found = bed.ckpt(
        "--lldp",
        "--topology",
        bed.file(TRUNK, n1="port3", n3="port1", n4="port4"),
        "--keep",
        bed.folder / "kept.json",
    )
    assert code == 1
    assert found["contradictions"] == [
        "host n1 (eth0) hangs on port3 of sw1 in the topology, on port1 of sw1 by LLDP (sw1 and n1)",
        "host n3 (eth0) hangs on port1 of sw1 in the topology, where LLDP (sw1 and n1) sees n1",
    ]
    assert set(found["topology"]["doubtful"]) == {"n1", "n3"}
    assert "host n4 (eth0): port4 of sw2 (file, n4)" in found["places"]
    assert "trunk sw1:up0-sw2:down0 (file, sw1)" in found["places"]


@pytest.mark.nightly
def test_what_is_wrong_with_agents_is_a_reason(bed: Bed) -> None:
    """A wrong community, a port without an agent, a dead lldpd: said, and what others tell counts."""
    (bed.folder / "ckpt" / "credentials.toml").write_text('[snmp]\ncommunity = "another"\n')
    bed.daemons["n4"].end()
    _, found = bed.ckpt("--lldp", "--topology", bed.file(TRUNK, n1=None, n4="port4"))
    silent = {each["machine"]: each["reason"] for each in found["silent"]}
    assert "no answer (or another community, user or password)" in silent["sw1"]
    assert silent["n4"]
    assert found["topology"]["host"]["n1"]["port"] == "port1"


@pytest.mark.nightly
def test_a_job_asks_once_and_finds_its_fault_with_what_was_learned(
    start: Callable[..., Job], job_bed: Bed, tmp_path: Path
) -> None:
    cluster = job_bed.cluster
    assert isinstance(cluster, JobCluster)
    job = start(
        write_app(tmp_path, apps.RING, "ring.py"),
        400,
        0.003,
        interface=NETWORK,
        engine_command=cluster.engine(),
        within=cluster.within("n1"),
        ranks=2,
        every=0.5,
        lease=8,
        hosts="n1:1,n4:1,n2:1",
        topology=job_bed.file("", n1=None, n2="port3", n4=None),
    )
    kept = job.wait_event("topology-kept")
    assert kept["reason"] is None and kept["contradictions"] == [
        "host n2 (eth0) hangs on port3 of sw1 in the topology, where LLDP (sw1) sees node-3.example.com; if it is "
        'the same, give host n2 names = { lldp = "node-3.example.com" }'
    ]
    assert f"topology: {kept['contradictions'][0]}" in job.report()
    job.wait_event("committed", 2)
    cluster.pull("t0")
    located = job.wait_event("fault-located")
    assert {row["component"] for row in located["faults"]} | {
        row["component"] for row in located["suspects"]
    } == {"trunk@sw1:up0-sw2:down0"}
    cluster.flap("t0", "up")
    assert job.finish() == 0, job.report()
    assert len(job.events("topology-kept")) == 1

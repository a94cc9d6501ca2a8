"""Counters of real devices: what has grown since the start is named, what was there before is not; speeds of both ends."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ckpt.controller.cli.main import main
from ckpt.diagnosis import Request
from ckpt.diagnosis.baseline.survey import survey
from ckpt.diagnosis.credentials import Credentials
from ckpt.diagnosis.jobs import locate
from ckpt.diagnosis.library import load as load_models
from ckpt.diagnosis.library import topology as load_topology
from ckpt.diagnosis.topology import Topology
from tests.system.diagnosis import devices
from tests.system.diagnosis.cluster import PORT, Cluster, shell

pytestmark = [pytest.mark.system, pytest.mark.root, pytest.mark.turns(3)]
LONG_S = 40  # how busy the machine is decides nothing
SECRETS = Credentials({"snmp": {"": devices.V2C}})
SEND = """
import socket, sys
link = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
link.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, int(sys.argv[4]))
for _ in range(50):
    link.sendto(bytes.fromhex(sys.argv[3]), (sys.argv[1], int(sys.argv[2])))
"""


@pytest.fixture
def hosts() -> dict[str, str]:
    return {"n1": "sw1", "n2": "sw1"}


def send(cluster: Cluster, data: bytes, port: int, tos: int = 0) -> None:
    """Fifty packets from n1 to n2."""
    words = [sys.executable, "-c", SEND, cluster.address("n2"), str(port), data.hex(), str(tos)]
    subprocess.run([*shell(cluster.namespace("n1")), *words], check=True, timeout=60)


def named(topology: Topology, counters: dict[str, dict[str, float]] | None) -> set[str]:
    request = Request(
        "ETIMEDOUT", "n1", "n2", topology=topology, models=load_models(), credentials=SECRETS, port=PORT, counters=counters
    )  # fmt: skip
    request.query(LONG_S)
    assert request.suspects == ()
    return {each.id for each in request.faults}


def test_an_interface_that_drops(cluster: Cluster, tmp_path: Path) -> None:
    """A cable that takes no large packets: what is sent is dropped, and counted so."""
    topology = load_topology(str(cluster.topology(tmp_path / "topology.toml")))
    before = survey(topology, load_models(), SECRETS)
    assert before["silent"] == [] and before["asked"] == len(before["counters"]) == 4
    assert named(topology, before["counters"]) == set()
    cluster.on("cables", "link", "set", "c1a", "mtu", "1000")
    send(cluster, bytes(1400), 9)
    assert named(topology, before["counters"]) == {"interface.drops@n1:eth0"}
    assert named(topology, None) == set(), "without a baseline nothing is made of numbers"
    since = survey(topology, load_models(), SECRETS)
    assert named(topology, since["counters"]) == set(), "what was dropped before is over"


def test_a_link_that_delivers_damaged_packets(cluster: Cluster, tmp_path: Path) -> None:
    """An interface (of VXLAN) whose kernel counts errors: packets that were marked on the way although their sender does not
    allow it (RFC 6040)."""
    cluster.on("n2", "link", "add", "vx0", "type", "vxlan", "id", "7", "dstport", "4789", "dev", "eth0")
    cluster.on("n2", "link", "set", "vx0", "up")
    path = cluster.topology(tmp_path / "topology.toml")
    text = path.read_text()
    second = text.index("[host.n2]")
    changed = text[second:].replace('"eth0"', '"vx0"', 1).replace('speed = "10000"', 'speed = ""', 1)
    path.write_text(text[:second] + changed)
    topology = load_topology(str(path))
    before = survey(topology, load_models(), SECRETS)["counters"]
    frame = b"\xff" * 6 + b"\x02\0\0\0\0\x09" + struct.pack("!H", 0x0800)
    packet = struct.pack(
        "!BBHHHBBH4s4s", 0x45, 0, 20, 0, 0, 64, 17, 0, bytes([10, 9, 0, 1]), bytes([10, 9, 0, 2])
    )
    send(cluster, struct.pack("!II", 0x08000000, 7 << 8) + frame + packet, 4789, tos=3)
    found = Request(
        "ETIMEDOUT", "n1", "n2", topology=topology, models=load_models(), credentials=SECRETS, counters=before
    )
    found.query(LONG_S)
    assert "link.damages-to-host@n2:vx0-sw1:port2" in {each.id for each in found.faults}, found.verdict
    assert {found.graph.candidates[each.id].component for each in found.faults} <= {
        "link@n2:vx0-sw1:port2",
        *("interface@n2:vx0", "mtu@n2:vx0", "route@n2"),  # eth0 has the address, and the route
    }


def test_a_cable_that_flaps_is_noted_where_its_connections_are_slow(cluster: Cluster, tmp_path: Path) -> None:
    path = cluster.topology(tmp_path / "topology.toml")
    before: dict[str, object] = {}

    # A host that does not answer in time has no counters, with which nothing can be compared
    def is_counted() -> bool:
        before.update(survey(load_topology(str(path)), load_models(), SECRETS)["counters"])
        return "eth0" in json.dumps(before)

    devices.until(is_counted, "a survey of all hosts")
    (tmp_path / "counters.json").write_text(json.dumps(before))
    for _ in range(3):
        cluster.pull("c2")
        cluster.plug("c2")
    said = [["n1", "n2", False], ["n2", "n1", False]]
    facts = {
        "said": said,
        "lost": [{"here": "n1", "there": "n2", "error": "silent"}],
        "missing": [],
        "slow": True,
    }
    files = {"topology": str(path), "counters": str(tmp_path / "counters.json"), "wanted": True}
    noted = "interface eth0 of host n2 has lost and found its link again and again"

    def is_noted() -> bool:  # within five seconds, which a busy machine may not do
        found = locate({**facts, **files})
        assert found["faults"] == found["hosts"] == []
        # The kernel's log is that of this machine: it may have more to say.
        text = found["text"]
        return text.startswith(f"noted: {noted}; ") and text.endswith(
            "; connections are slow, between n1 and n2"
        )

    devices.until(is_noted, noted)


def test_by_hand(cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`ckpt diagnose --baseline --keep`, and later `--counters`, also of a job that has read them. Each is done again until
    a busy machine has answered in time; what is named meanwhile is never wrong."""
    path, kept, job = (tmp_path / name for name in ("topology.toml", "counters.json", "job"))
    cluster.topology(path)

    def ckpt(*words: object) -> tuple[int, Any]:
        code = main(["diagnose", *map(str, words), "--topology", str(path), "--json"])
        return code, json.loads(capsys.readouterr().out)

    def is_kept() -> bool:
        code, found = ckpt("--baseline", "--keep", kept)
        assert found["asked"] == 4 and bool(code) == bool(found["silent"])
        return code == 0

    def says(given: Path, key: str, expected: set[str], component: str) -> bool:
        _, found = ckpt("n1", "n2", "--port", PORT, "--counters", given)
        assert {row["component"] for row in found["faults"]} <= {component}, found
        return expected <= {row["id"] for row in found[key]}

    devices.until(is_kept, "the counters")
    (job / "output").mkdir(parents=True)
    (job / "output" / "counters-0.json").write_text(kept.read_text())
    cluster.on("cables", "link", "set", "c1a", "mtu", "1000")
    send(cluster, bytes(900), 9)
    send(cluster, bytes(1400), 9)
    drops = {"interface.drops@n1:eth0"}
    devices.until(lambda: says(kept, "faults", drops, "interface@n1:eth0"), "what was dropped")
    devices.until(
        lambda: says(job, "faults", drops, "interface@n1:eth0"), "what was dropped since the start of the job"
    )
    cluster.pull("c2")
    devices.until(is_kept, "the counters")
    nothing = {"port.receives-nothing@sw1:port2", "port.sends-nothing@sw1:port2"}
    devices.until(
        lambda: says(kept, "noted", nothing, "cable@n2:eth0-sw1:port2"), "what does not go over port 2"
    )


SCRIPT = """
import json, sys
from ckpt.diagnosis import Request, library
from ckpt.diagnosis.baseline.survey import survey
topology, models, secrets = library.topology(sys.argv[1]), library.load(), library.credentials(sys.argv[2])
if sys.argv[3] == "survey":
    print(json.dumps(survey(topology, models, secrets)["counters"]))
else:
    counters = json.loads(sys.argv[3])
    asked = Request("silent", "n1", "n2", topology=topology, models=models, credentials=secrets, counters=counters)
    asked.query(40)
    print(json.dumps({"faults": [each.id for each in asked.faults], "clear": asked.verdict.clear}))
"""
IN_ERRORS, IN_PACKETS = ("1.3.6.1.2.1.2.2.1.14", "1.3.6.1.2.1.2.2.1.11")


def test_a_switch_tells_by_snmp_of_speeds_and_errors(cluster: Cluster, tmp_path: Path) -> None:
    """A port that runs at another speed than its host, and then receives damaged packets."""
    if devices.program("snmpd") is None:
        pytest.skip("snmpd is not installed")
    pytest.importorskip("ezsnmp", reason="ezsnmp is not installed")
    addresses = cluster.manage("n1", "sw1")
    within = shell(cluster.namespace("sw1"))
    told = devices.Told(tmp_path / "told")
    index = (tmp_path / "index").as_posix()
    subprocess.run(
        [*within, "sh", "-c", f"ip -o link show port2 | cut -d: -f1 > {index}"], check=True, timeout=20
    )
    number = Path(index).read_text().strip()
    errors, packets = f"{IN_ERRORS}.{number}", f"{IN_PACKETS}.{number}"
    told.tell({errors: ("counter", 5), packets: ("counter", 1000)})
    agent = devices.Agent(
        tmp_path, within, addresses["sw1"], "interface port2 6 1000000000\n" + told.lines(errors, packets)
    )
    path = cluster.topology(tmp_path / "topology.toml", without_shell=("sw1",))
    path.write_text(
        path.read_text().replace("[switch.sw1]", f'[switch.sw1]\ncache_s = 0\nsnmp = ["{agent.address}"]')
    )
    secrets = tmp_path / "credentials.toml"
    secrets.touch(0o600)
    secrets.write_text(f'[snmp]\ncommunity = "{devices.SECRET}"\n')

    def run(what: str) -> dict[str, Any]:
        words = [sys.executable, "-c", SCRIPT, str(path), str(secrets), what]
        done = subprocess.run(
            [*shell(cluster.namespace("n1")), *words], check=True, timeout=120, capture_output=True, text=True
        )
        return dict(json.loads(done.stdout))

    try:
        speeds = "link.speeds-differ@n2:eth0-sw1:port2"
        # an agent that has just started has not filled its tables yet
        devices.until(lambda: run("{}")["faults"] == [speeds], "what the agent tells of its ports")
        before = run("survey")
        first = run(json.dumps(before))
        assert first["faults"] == [speeds], first
        assert {"link.speeds-differ@n1:eth0-sw1:port1", "link.damages-to-switch@n2:eth0-sw1:port2"} <= {
            *first["clear"]
        }
        told.tell({errors: ("counter", 105), packets: ("counter", 3000)})
        found = run(json.dumps(before))
        assert {*found["faults"]} == {speeds, "link.damages-to-switch@n2:eth0-sw1:port2"}, found
    finally:
        agent.end()

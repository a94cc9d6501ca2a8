"""Answers that are wrong, or that change while they are given: nothing that is well is named because of them."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from ckpt.diagnosis import Request
from ckpt.diagnosis.asking import Question, ask
from ckpt.diagnosis.credentials import Credentials
from ckpt.diagnosis.library import load as load_models
from ckpt.diagnosis.library import topology as load_topology
from tests.system.diagnosis import devices
from tests.system.diagnosis.cluster import PORT, Cluster, shell

pytestmark = [pytest.mark.system, pytest.mark.root, pytest.mark.turns(2)]
LONG_S = 40  # how busy the machine is decides nothing


def test_a_switch_that_answers_for_another_port(cluster: Cluster, tmp_path: Path) -> None:
    """Port 2 is asked about and shut, the answer is that of port 1: it is no answer."""
    if devices.program("snmpd") is None:
        pytest.skip("snmpd is not installed")
    pytest.importorskip("ezsnmp", reason="ezsnmp is not installed")
    addresses = cluster.manage("n1", "sw1")
    within = shell(cluster.namespace("sw1"))

    def index(port: str) -> int:
        words = [*within, "sh", "-c", f"ip -o link show {port} | cut -d: -f1"]
        return int(subprocess.run(words, check=True, timeout=20, capture_output=True, text=True).stdout)

    agent = devices.Agent(tmp_path, within, addresses["sw1"])
    crossed = devices.Crossed(
        agent.address, cluster.namespace("n1"), addresses["n1"], index("port2"), index("port1")
    )
    try:
        straight, wrong = (
            Question(
                "m",
                tuple(shell(cluster.namespace("n1"))),
                sys.executable,
                "snmp",
                f'{{"address": "{each}", "port": "port2"}}',
            )
            for each in (agent.address, crossed.address)
        )
        secrets = Credentials({"snmp": {"": devices.V2C}})
        devices.until(lambda: ask([straight], secrets, LONG_S)[straight].values.get("admin") == "up", "snmpd")
        reply = ask([wrong], secrets, LONG_S)[wrong]
        assert reply.values == {}
        assert reply.reason == f"{crossed.address} answers for another port than was asked about"
    finally:
        crossed.end()
        agent.end()


def test_values_that_change_while_they_are_asked(cluster: Cluster, tmp_path: Path) -> None:
    """A cable that has a link now and then: it is named, or a symptom is seen (it was, and is over), or nothing is."""
    topology, models = load_topology(str(cluster.topology(tmp_path / "topology.toml"))), load_models()
    ending = threading.Event()

    def flap() -> None:
        while not ending.wait(0.01):
            cluster.pull("c2")
            cluster.plug("c2")

    flapping = threading.Thread(target=flap)
    flapping.start()
    try:
        for _ in range(5):
            asked = Request("ETIMEDOUT", "n1", "n2", topology=topology, models=models, port=PORT)
            asked.query()
            candidates = asked.graph.candidates
            assert {candidates[each.id].component for each in asked.faults} <= {"cable@n2:eth0-sw1:port2"}
            for suspect in asked.suspects:
                possible = {candidates[each].component for each in (suspect.id, *suspect.instead)}
                is_symptom = suspect.id in asked.graph.symptoms and not suspect.instead
                assert is_symptom or "cable@n2:eth0-sw1:port2" in possible, asked.verdict
    finally:
        ending.set()
        flapping.join()

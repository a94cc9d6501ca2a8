"""`ckpt diagnose` on a machine whose user has no file at all: what this machine sees of its own end is said, and no more."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ckpt.controller.cli.main import main
from ckpt.diagnosis import library
from ckpt.diagnosis.errors import BadTopology
from ckpt.diagnosis.topology import Host, Topology, way
from tests.system.diagnosis import devices
from tests.system.diagnosis.cluster import PORT, Cluster, shell

pytestmark = pytest.mark.system
PEER, CABLE = "10.87.0.2", "cable.dark-at-interface@localhost:eth0-switch-of-localhost:unknown"


@pytest.fixture
def hosts() -> dict[str, str]:
    return {"n1": "sw1", "n2": "sw1"}


def run(cluster: Cluster, *words: str) -> dict[str, Any]:
    done = subprocess.run(
        command(cluster, *words, "--json"), capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stderr == ""
    found: dict[str, Any] = json.loads(done.stdout)
    assert found["exit_code"] == done.returncode
    assert "without a topology" in found["reason"]
    return found


def command(cluster: Cluster, *words: str) -> list[str]:
    return [*shell(cluster.namespace("n1")), sys.executable, "-m", "ckpt", "diagnose", *words]


def said(cluster: Cluster, *words: str) -> str:
    done = subprocess.run(command(cluster, *words), capture_output=True, text=True, timeout=120, check=False)
    assert done.stderr == ""
    assert " the topology has no " not in done.stdout
    return done.stdout


def ids(found: dict[str, Any], key: str) -> list[str]:
    return [each["id"] for each in found[key]]


Do = Callable[[Cluster], None]
CASES: dict[str, tuple[Do, list[str], list[str], list[str]]] = {
    # what is done; options; faults; suspects
    "process": (lambda c: c.kill("n2"), ["--port", str(PORT), "--error", "refused"], ["process.gone@10.87.0.2"], []),
    "cable": (lambda c: c.pull("c1"), [], [], [CABLE]),
    "interface": (lambda c: c.on("n1", "link", "set", "eth0", "down"), [], ["interface.shut@localhost:eth0"], []),
    "route": (lambda c: c.on("n1", "route", "flush", "dev", "eth0"), [], ["route.gone@localhost"], []),
}  # fmt: skip


@pytest.mark.root
@pytest.mark.turns(4)
@pytest.mark.parametrize("case", CASES)
def test_the_own_end(case: str, cluster: Cluster) -> None:
    do, options, faults, suspects = CASES[case]
    do(cluster)

    # Within five seconds, which a busy machine may not do; what is said is right in any case
    def is_found() -> bool:
        found.update(run(cluster, "localhost", PEER, *options))
        assert {*ids(found, "faults")} <= {*faults} and {*ids(found, "suspects")} <= {*faults, *suspects}, (
            found
        )
        return (ids(found, "faults"), ids(found, "suspects")) == (faults, suspects)

    found: dict[str, Any] = {}
    devices.until(is_found, case)
    if case == "cable":  # nobody can say whether the port is on
        [suspect] = found["suspects"]
        assert {"port.shut@switch-of-localhost:unknown", "switch.off@switch-of-localhost"} <= {
            *suspect["instead"]
        }


@pytest.mark.root
@pytest.mark.turns(4)
def test_all_is_well_and_who_answers(cluster: Cluster) -> None:
    def is_clear() -> bool:
        found = run(cluster, "localhost", PEER, "--port", str(PORT))
        assert not found["found"], found
        return f"power.off@{PEER}" in found["clear"]

    devices.until(is_clear, "it is clear")
    sources = {each["source"] for each in run(cluster, "--check", PEER)["asked"]}
    assert sources >= {"netlink of localhost", f"tcp {PEER}"}
    found = run(cluster, "--check")  # there is no router: the one interface
    assert {each["source"] for each in found["asked"]} == {f"netlink of {found['here']}"}
    text = said(cluster, "10.87.0.7", "10.87.0.8")
    assert "unknown fault: nothing that could be asked is faulty" in text
    assert "is neither of the two: run it on one of them" in text


@pytest.mark.root
@pytest.mark.turns(4)
def test_which_interface_it_was_cannot_be_known(cluster: Cluster) -> None:
    cluster.on("n1", "link", "add", "more0", "type", "veth", "peer", "name", "more1")
    cluster.on("n1", "route", "flush", "dev", "eth0")
    devices.until(
        lambda: ids(run(cluster, "localhost", PEER), "faults") == ["way-out.none@localhost"], "no way"
    )


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["localhost", "127.0.0.1"], "localhost and 127.0.0.1 are the same machine"),
        (["localhost", "localhost"], "localhost and localhost are the same machine"),
        (["localhost", ".."], "..: this machine knows no such host"),
        (["--check", "a", "b", "c"], "name one other host, or two, or none"),
        (["localhost"], "localhost is no job directory"),
        (["--explain", "cabel.dark"], "no fault cabel.dark; did you mean cable.dark"),
    ],
)
def test_wrong_names(words: list[str], complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diagnose", *words]) == 2
    assert complaint in capsys.readouterr().err


def test_a_file_that_leaves_the_wiring_open(tmp_path: Path) -> None:
    (tmp_path / "t.toml").write_text(
        'wired = false\n[host.a]\naddress = "10.0.0.1"\n[host.b]\naddress = "10.0.0.2"\n'
    )
    topology = library.topology(str(tmp_path / "t.toml"))
    assert [f"{each.kind} {each.name}" for each in way(topology, "a", "b")] == [
        "host a",
        "host b",
        "process b",
    ]
    whole = Topology(wired=False, host={name: Host(address="10.0.0.1", interface="eth0") for name in "ab"})
    places = way(whole, "a", "b")
    assert [each.name for each in places if each.kind == "switch"] == ["switch-of-a", "switch-of-b"]
    assert [each.position for each in places] == list(range(len(places)))
    for bad, complaint in (
        ("", "host.a.interface is missing; add it"),
        (
            'wired = false\n[switch.s]\n[host.c]\naddress = "x"\nswitch = "s"\nport = "p"\n',
            "take one of them out",
        ),
    ):
        (tmp_path / "t.toml").write_text(bad + '[host.a]\naddress = "10.0.0.1"\n')
        with pytest.raises(BadTopology, match=complaint):
            library.topology(str(tmp_path / "t.toml"))

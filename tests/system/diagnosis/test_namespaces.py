"""Real faults between real namespaces: what is named is what was done, and nothing is named that is well.

Every fault is looked for twice: with all hosts and switches answering, and with some that cannot be asked. With
those, the fault has to be named, suspected or unknown, and never another one.
"""

from __future__ import annotations

import contextlib
import errno
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from ckpt.diagnosis import Request, need_diagnosis
from ckpt.diagnosis.library import load as load_models
from ckpt.diagnosis.library import topology as load_topology
from ckpt.diagnosis.manager import query_all
from tests.seeds import seed_of_the_commit
from tests.system.diagnosis.cluster import PORT, Cluster, ip, shell

pytestmark = [pytest.mark.system, pytest.mark.root, pytest.mark.turns(8)]

PAIRS = 60
LONG_S = 40  # how busy the machine is decides nothing
HOSTS = {"n1": "sw1", "n2": "sw1", "n3": "sw2"}
Fault = Callable[[Cluster], None]


@pytest.fixture
def hosts() -> dict[str, str]:
    return HOSTS


def request(
    cluster: Cluster,
    tmp_path: Path,
    there: str,
    error: int | str = "ETIMEDOUT",
    without: tuple[str, ...] = (),
) -> Request:
    topology = load_topology(str(cluster.topology(tmp_path / "topology.toml", without)))
    return Request(error, "n1", there, topology=topology, models=load_models(), port=PORT)


CASES: dict[str, tuple[str, Fault, set[str]]] = {
    # what is done: (the peer, how, the components at fault)
    "own interface shut": ("n2", lambda c: c.shut("n1", "eth0", "c1", "b"), {"interface@n1:eth0"}),
    "peer's interface shut": ("n2", lambda c: c.shut("n2", "eth0", "c2", "b"), {"interface@n2:eth0"}),
    "own address gone": ("n2", lambda c: c.on("n1", "addr", "flush", "dev", "eth0"), {"interface@n1:eth0"}),
    "peer's address gone": ("n2", lambda c: c.on("n2", "addr", "flush", "dev", "eth0"), {"interface@n2:eth0"}),
    "own interface gone": ("n2", lambda c: c.on("n1", "link", "del", "eth0"), {"interface@n1:eth0"}),
    "own route gone": ("n2", lambda c: c.on("n1", "route", "flush", "dev", "eth0"), {"route@n1"}),
    "peer's route gone": ("n2", lambda c: c.on("n2", "route", "flush", "dev", "eth0"), {"route@n2"}),
    "route prohibited": ("n2", lambda c: c.on("n1", "route", "add", "prohibit", "10.87.0.2"), {"route@n1"}),
    "peer's packets too large": ("n2", lambda c: c.on("n2", "link", "set", "eth0", "mtu", "9000"), {"mtu@n2:eth0"}),
    "own cable pulled": ("n2", lambda c: c.pull("c1"), {"cable@n1:eth0-sw1:port1"}),
    "peer's cable pulled": ("n2", lambda c: c.pull("c2"), {"cable@n2:eth0-sw1:port2"}),
    "trunk pulled": ("n3", lambda c: c.pull("t0"), {"trunk@sw1:up0-sw2:down0"}),
    "own port shut": ("n2", lambda c: c.shut("sw1", "port1", "c1", "a"), {"port@sw1:port1"}),
    "peer's port shut": ("n2", lambda c: c.shut("sw1", "port2", "c2", "a"), {"port@sw1:port2"}),
    "peer runs at another speed": ("n2", lambda c: c.speeds.update(n2="2500"), {"speed@n2:eth0"}),
    "filter at the peer": ("n2", lambda c: c.filter("n2", "n1"), {"filter@n2"}),
    "own filter": ("n2", lambda c: c.filter("n1", "n2"), {"filter@n1"}),
    "process killed": ("n2", lambda c: c.kill("n2"), {"process@n2"}),
    "cable of another host pulled": ("n2", lambda c: c.pull("c3"), set()),
    "nothing": ("n3", lambda c: None, set()),
}  # fmt: skip


@pytest.mark.rotate(8)
@pytest.mark.parametrize("case", CASES)
def test_what_was_done_is_named(case: str, cluster: Cluster, tmp_path: Path) -> None:
    there, do, expected = CASES[case]
    do(cluster)
    with request(cluster, tmp_path, there) as asked:
        asked.query(LONG_S)
        named = {asked.graph.candidates[fault.id].component for fault in asked.faults}
        assert named == expected
        assert asked.suspects == ()
        assert asked.verdict.found == bool(expected), asked.verdict


@pytest.mark.rotate(16)
@pytest.mark.parametrize("case", [case for case in CASES if CASES[case][0] == "n2"])
@pytest.mark.parametrize("mute", ["n2", "sw1"])
def test_who_cannot_be_asked_makes_nobody_guilty(
    case: str, mute: str, cluster: Cluster, tmp_path: Path
) -> None:
    there, do, expected = CASES[case]
    do(cluster)
    asked = request(cluster, tmp_path, there, without=(mute,))
    asked.query(LONG_S)
    candidates = asked.graph.candidates
    assert {candidates[fault.id].component for fault in asked.faults} <= expected
    for suspect in asked.suspects:
        possible = {candidates[each].component for each in (suspect.id, *suspect.instead)}
        assert possible & expected, "a suspicion without what was done"
    asked_places = {asked.graph.candidates[each].place for each in asked.verdict.clear}
    assert not {place for place in asked_places if place.kind == "interface" and place.host == mute}


@pytest.mark.parametrize("how", ["ARP is off there", "its address is gone, and it is mute"])
def test_a_peer_that_does_not_answer_arp(how: str, cluster: Cluster, tmp_path: Path) -> None:
    """It is seen where it is asked. What it is because of, nobody says: nothing is named."""
    mute = how != "ARP is off there"
    if mute:
        cluster.on("n2", "addr", "flush", "dev", "eth0")
    else:
        cluster.on("n2", "link", "set", "eth0", "arp", "off")
    asked = request(cluster, tmp_path, "n2", without=("n2",) if mute else ())
    asked.query(LONG_S)
    assert asked.faults == ()
    [suspect] = asked.suspects
    assert suspect.id == "neighbour.unresolved@n2"
    assert ("interface.address-gone@n2:eth0" in suspect.instead) == mute, suspect
    hidden = {each.id for each in asked.unknown if suspect.id in each.by}
    assert ("process.gone@n2" in hidden) == mute


def test_a_peer_that_was_heard_before_the_fault_is_not_called_reachable(
    cluster: Cluster, tmp_path: Path
) -> None:
    """The kernel calls it so for most of a minute."""
    entry = ("10.87.0.2", "lladdr", "02:00:00:00:00:02", "dev", "eth0")
    cluster.on("n1", "neigh", "replace", *entry, "nud", "reachable")
    cluster.pull("c2")
    time.sleep(1.1)
    asked = request(cluster, tmp_path, "n2", without=("n2", "sw1"))
    asked.query(LONG_S)
    assert "neighbour.unresolved@n2" not in asked.verdict.clear


def test_two_faults_at_once(cluster: Cluster, tmp_path: Path) -> None:
    cluster.pull("c2")
    cluster.on("n1", "route", "flush", "dev", "eth0")
    asked = request(cluster, tmp_path, "n2")
    asked.query(LONG_S)
    assert {asked.graph.candidates[each.id].component for each in asked.faults} == {
        "route@n1",
        "cable@n2:eth0-sw1:port2",
    }


def draw(number: int, folder: Path) -> dict[str, int]:
    """The world of this number: one fault or two, at random times, with any of hosts and switches not to be asked. Whatever
    is named was done, whatever is suspected leads there. Returns what became of it, for the ledger."""
    random = Random(number)
    chosen = random.sample([case for case in CASES if CASES[case][2]], random.choice((1, 2, 2)))
    there = random.choice([CASES[case][0] for case in chosen])
    mute = tuple(name for name in ("n1", "n2", "n3", "sw1", "sw2") if random.random() < 0.3)
    cluster = Cluster(HOSTS, [("sw1", "sw2")])
    try:
        cluster.lay()
        for case in chosen:
            # the first may have taken away what the second would change
            with contextlib.suppress(subprocess.CalledProcessError):
                CASES[case][1](cluster)
            time.sleep(random.random() * 0.5)
        asked = request(cluster, folder, there, without=mute)
        asked.query(LONG_S)
    finally:
        cluster.remove()
    done = {component for case in chosen for component in CASES[case][2]}
    candidates = asked.graph.candidates
    what = (number, chosen, there, mute, asked.verdict)
    named = {candidates[each.id].component for each in asked.faults}
    assert named <= done, what
    for suspect in asked.suspects:
        assert {candidates[each].component for each in (suspect.id, *suspect.instead)} & done, what
    clear = {candidates[each].place.host for each in asked.verdict.clear if each.startswith("interface")}
    assert not clear & {*mute}, what
    said = (
        "all named"
        if named == done
        else "some named"
        if named
        else "suspected"
        if asked.suspects
        else "unknown"
    )
    return {"faults": len(chosen), f"{said}, {'somebody' if mute else 'nobody'} mute": 1}


@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_pairs_of_faults_with_anybody_mute(tmp_path: Path) -> None:
    for number in range(PAIRS):
        draw(seed_of_the_commit() * 1000 + number, tmp_path)


def test_many_errors_are_one_diagnosis(cluster: Cluster, tmp_path: Path) -> None:
    """Both peers lost, since the own cable is out: it is asked once, and named in both answers."""
    cluster.pull("c1")
    both = [request(cluster, tmp_path, there) for there in ("n2", "n3")]
    query_all(both, LONG_S)
    for asked in both:
        assert {asked.graph.candidates[each.id].component for each in asked.faults} == {
            "cable@n1:eth0-sw1:port1"
        }
    questions = [{*asked.replies} for asked in both]
    shared = questions[0] & questions[1]
    assert len(shared) >= 4  # n1, sw1 and the port of n1
    assert all(both[0].replies[each] is both[1].replies[each] for each in shared)


def test_the_error_of_a_real_connection(cluster: Cluster, tmp_path: Path) -> None:
    """The errno that the kernel gives leads to what was done: first refused, then no way."""
    client = (
        "import socket, sys\n"
        "try: socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=20)\n"
        "except OSError as error: print(error.errno)\n"
    )

    def lost(there: str) -> int:
        words = [
            *shell(cluster.namespace("n1")),
            sys.executable,
            "-c",
            client,
            cluster.address(there),
            str(PORT),
        ]
        return int(subprocess.run(words, capture_output=True, text=True, check=True, timeout=30).stdout)

    cluster.kill("n2")
    number = lost("n2")
    assert number == errno.ECONNREFUSED
    assert need_diagnosis(number)
    asked = request(cluster, tmp_path, "n2", number)
    asked.query(LONG_S)
    assert [each.id for each in asked.faults] == ["process.gone@n2"]

    ip("-n", cluster.namespace("n1"), "link", "set", "eth0", "down")
    number = lost("n3")
    assert number in (errno.ENETUNREACH, errno.EHOSTUNREACH)
    asked = request(cluster, tmp_path, "n3", number)
    asked.query(LONG_S)
    assert [each.id for each in asked.faults] == ["interface.shut@n1:eth0"]
    assert "route.gone@n1" in {name for name, _ in asked.verdict.consequences}

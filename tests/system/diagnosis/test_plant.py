"""Jobs of eight ranks on hosts with everything (`plant`): each fault alone and in pairs, at random times, is named by the
job and by hand; what is well never is; what is not lost to the network makes nobody ask.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from tests.seeds import seed_of_the_commit
from tests.system.diagnosis import devices
from tests.system.diagnosis.cluster import PORT
from tests.system.diagnosis.conftest import needs_all
from tests.system.diagnosis.faults_of_jobs import CASES, components, draw, started, world
from tests.system.diagnosis.plant import Plant

IN_TIME_S = 4.0
"""A diagnosis that took longer was on a machine too busy to answer all of it."""
pytestmark = [pytest.mark.system, pytest.mark.root, pytest.mark.nightly, pytest.mark.timeout(600)]


@pytest.mark.parametrize("case", CASES)
def test_each_fault_is_named_in_a_job_and_by_hand(case: str, plant: Plant, tmp_path: Path) -> None:
    found, expected = world(plant, tmp_path, [case], Random(seed_of_the_commit())), CASES[case]
    located, by_hand = found["located"], found["by_hand"]
    assert components(by_hand) == expected.by_hand, by_hand
    if expected.in_job is None:
        assert located is None and found["events"] == [], found["events"]
        return
    assert components(located) <= expected.in_job, located
    if located["seconds"] < IN_TIME_S:
        assert components(located) == expected.in_job, located
    assert {*located["hosts"]} <= expected.hosts and bool(located["hosts"]) == bool(expected.hosts), located
    assert expected.witnesses in located["text"], located


@pytest.mark.parametrize("rounds", [2, pytest.param(50, marks=pytest.mark.soak)])
def test_pairs_of_faults_in_jobs(rounds: int, tmp_path: Path) -> None:
    needs_all()
    for number in range(rounds):
        folder = tmp_path / str(number)
        folder.mkdir()
        draw(seed_of_the_commit() * 1000 + number, folder)


@pytest.fixture
def one_network(tmp_path: Path) -> Iterator[Plant]:
    needs_all()
    found = Plant(tmp_path, apart=False)
    try:
        found.start()
        yield found
    finally:
        found.end()


@pytest.mark.parametrize(
    ("cable", "cable_name", "hides"),
    [
        ("c1", "cable@n1:eth0-sw1:port1", {"switch.off@sw1", "port.shut@sw2:port3", "power.off@n3"}),
        ("t0", "trunk@sw1:up0-sw2:down0", {"switch.off@sw2", "port.shut@sw2:port3", "power.off@n3"}),
    ],
)
def test_with_one_network_what_is_behind_a_fault_is_hidden_by_it(
    cable: str, cable_name: str, hides: set[str], one_network: Plant
) -> None:
    """Switches and controllers have no other network: what cannot be asked is unknown because of what is seen."""
    path = one_network.topology()

    def said() -> dict[str, object]:
        return one_network.diagnose("n1", "n3", "--topology", path, "--age", "10", "--port", PORT)[1]

    devices.until(lambda: {"switch.off@sw2", "power.off@n3"} <= {*said()["clear"]}, "everything is well")  # type: ignore[misc]
    one_network.cluster.pull(cable)
    seen: dict[str, object] = {}

    def is_seen() -> bool:
        nonlocal seen
        seen = said()
        return cable_name in components(seen) | components(seen, "suspects")

    devices.until(is_seen, cable_name)
    assert components(seen) | components(seen, "suspects") == {cable_name}, seen
    hidden = {
        row["id"]
        for row in seen["unknown"]
        if any(cable_name.partition("@")[2] in by for by in row["hidden_by"])
    }  # type: ignore[attr-defined]
    assert hides <= hidden, seen
    assert not hides & {*seen["clear"]}  # type: ignore[misc]


def test_secrets_are_in_no_file_of_a_job_that_has_asked(plant: Plant, tmp_path: Path) -> None:
    """Images, logs, events, the record of the fault, the topology that is kept: none of them has any."""
    job = started(plant, tmp_path)
    try:
        plant.cluster.pull("c3")
        located = job.wait_event("fault-located")
        job.wait_event("restarted")
        job.wait_event("committed", len(job.events("committed")) + 1)
        assert components(located) <= {"cable@n3:eth0-sw2:port3"}
        assert job.finish() == 0, job.report()
    finally:
        job.close()
    files = [path for path in (tmp_path / "job").rglob("*") if path.is_file()]
    assert len(files) > 10
    secrets = [text.encode() for text in (devices.SECRET, devices.IPMI["password"])]
    for path in files:
        data = path.read_bytes()
        assert not any(secret in data for secret in secrets), path
    assert json.dumps(located)

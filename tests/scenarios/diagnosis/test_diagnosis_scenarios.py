"""Every row of the table of candidates as a file: what is seen after an error, and what has to be said of it.

n1 – sw1 – trunk – sw2 – n2, with the models of this package. In a file:

    errors      the scenario is run for each
    row         the kind and the side of the place at fault
    dead        patterns of candidates for which nothing comes back
    [values]    what is seen, of some candidates; all others are well. A list: by each of its queries
    [expected]  all of faults, suspects, consequences and noted; some of `hidden`, of `perhaps` and of `instead`
"""

from __future__ import annotations

import tomllib
from fnmatch import fnmatchcase
from pathlib import Path
from random import Random
from typing import Any

import pytest

from ckpt.diagnosis import verdict
from ckpt.diagnosis.errors_map import STEPS, error_name
from ckpt.diagnosis.graph import Candidate, Graph, build
from ckpt.diagnosis.handlers.face import HANDLERS
from ckpt.diagnosis.library import OURS
from ckpt.diagnosis.models import Model, check, parse
from ckpt.diagnosis.topology import Topology, way
from ckpt.diagnosis.verdict import Answer, Finding, conclude, judge
from tests.model.diagnosis.checks import check_world
from tests.seeds import seed_of_the_commit

HERE = Path(__file__).parent
FILES = {path.stem: tomllib.loads(path.read_text()) for path in sorted(HERE.glob("*.toml"))}
HOST = {
    "interface": "eth0",
    "bmc": "b",
    "names": {"disk": "/dev/sda", "ssh_port": "22", "slurmd_port": "6818", "nic": "OCP"},
}
TOPOLOGY = Topology.model_validate(
    {
        "host": {
            "n1": {"address": "10.0.0.1", "switch": "sw1", "port": "port1", **HOST},
            "n2": {"address": "10.0.0.2", "switch": "sw2", "port": "port2", **HOST},
            "n3": {"address": "10.0.0.3", "switch": "sw1", "port": "port3", **HOST},
            "n4": {"address": "10.0.0.4", "interface": "eth0"},
            "n5": {"address": "10.0.0.5", "interface": "eth0"},
        },
        "switch": {"sw1": {"snmp": ["s1"]}, "sw2": {"snmp": ["s2"]}},
        "trunk": [{"ends": [["sw1", "up"], ["sw2", "up"]]}],
    }
)


def models() -> list[Model]:
    found = [parse(path.read_text(), path.name, HANDLERS) for path in sorted(OURS.glob("*.toml"))]
    check(found)
    return found


MODELS = models()


def graph_of(error: str, there: str = "n2", here: str = "n1") -> Graph:
    return build(MODELS, error_name(error), way(TOPOLOGY, here, there, 7000))


def well(candidate: Candidate) -> float | str:
    element = candidate.element
    if element.high is not None:
        return element.high
    return element.low if element.low is not None else "well"


def findings_of(graph: Graph, scenario: dict[str, Any]) -> dict[str, Finding]:
    found = {}
    for name, candidate in graph.candidates.items():
        seen = scenario["values"].get(name)
        dead = any(fnmatchcase(name, pattern) for pattern in scenario.get("dead", ()))
        value = None if seen is None and dead else well(candidate) if seen is None else seen
        count = len(candidate.element.queries)
        values = value if isinstance(value, list) else [value] * count
        found[name] = judge(candidate.element, [Answer("x", each, "no answer") for each in values])
    return found


CASES = [(name, error) for name, scenario in FILES.items() for error in scenario["errors"]]


@pytest.mark.parametrize(("name", "error"), CASES)
def test_what_is_seen_leads_to_what_is_at_fault(name: str, error: str) -> None:
    scenario = FILES[name]
    graph, expected = graph_of(error), scenario["expected"]
    # A table with a wrong id would test nothing.
    assert set(scenario["values"]) <= set(graph.candidates) | (set(graph_of("ETIMEDOUT").candidates))
    found = conclude(graph, findings_of(graph, scenario))
    assert [each.id for each in found.faults] == [
        each for each in graph.order if each in expected.get("faults", ())
    ]
    assert {each.id for each in found.faults} == set(expected.get("faults", ())) & set(graph.order)
    assert {each.id for each in found.suspects} == set(expected.get("suspects", ()))
    assert {name for name, _ in found.consequences} == set(expected.get("consequences", ())) & set(
        graph.order
    )
    assert set(found.noted) == set(expected.get("noted", ()))
    hidden = {each.id for each in found.unknown if each.by}
    assert set(expected.get("hidden", ())) & set(graph.order) <= hidden
    assert set(expected.get("perhaps", ())) <= {each for fault in found.faults for each in fault.perhaps}
    assert set(expected.get("instead", ())) <= {each for one in found.suspects for each in one.instead}
    if "row" in scenario:
        places = {
            (graph.candidates[each.id].place.kind, graph.candidates[each.id].place.side)
            for each in found.faults
        }
        assert places == {tuple(scenario["row"])}


def test_every_row_of_the_table_has_a_scenario() -> None:
    rows = {(error, step) for error, steps in STEPS.items() for step in steps}
    covered = {
        (error_name(error), tuple(scenario["row"]))
        for scenario in FILES.values()
        if "row" in scenario
        for error in scenario["errors"]
    }
    assert rows == covered


def test_every_candidate_is_at_a_place_of_its_error() -> None:
    """In the paper's order, and causes that are none of them come last."""
    for error, steps in STEPS.items():
        graph = graph_of(error)
        at = [
            steps.index((each.place.kind, each.place.side))
            for each in graph.candidates.values()
            if error in each.model.errors_of(each.element) and (each.place.kind, each.place.side) in steps
        ]
        assert at == sorted(at)


def test_hosts_on_one_switch_and_hosts_without_one() -> None:
    one = graph_of("ETIMEDOUT", "n3")
    assert {each.place.name for each in one.candidates.values() if each.place.kind == "switch"} == {"sw1"}
    assert one.causes["cable.dark-at-port@n1:eth0-sw1:port1"] >= {"switch.off@sw1", "port.shut@sw1:port1"}
    assert "port.shut@sw1:port3" not in one.causes["cable.dark-at-port@n1:eth0-sw1:port1"]
    assert "power.off@n3" not in one.causes["cable.dark-at-port@n1:eth0-sw1:port1"]
    direct = graph_of("ETIMEDOUT", "n5", "n4")
    cable = "cable.dark-at-interface@n4:eth0-n5:eth0"
    assert direct.causes[cable] >= {"interface.shut@n4:eth0", "interface.shut@n5:eth0", "power.off@n5"}
    assert "smart.failing@n5" not in direct.candidates  # the topology names no disk of it


def test_random_faults_of_the_shipped_models_with_any_handlers_dead() -> None:
    random = Random(seed_of_the_commit())
    graphs = [graph_of(error, there) for error in STEPS for there in ("n2", "n3")]
    for _ in range(600):
        graph = random.choice(graphs)
        true = set(random.sample(graph.order, random.randint(1, 3)))
        dead = {name for name in graph.order if random.random() < random.choice((0, 0.2, 0.6))}
        check_world(verdict, graph, true, dead, random)

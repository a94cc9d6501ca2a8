"""What holds of every graph of candidates, and of what witnesses say; and each rule of these taken out is noticed."""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import permutations
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any

import pytest

from ckpt.diagnosis import graph, witnesses
from ckpt.diagnosis.errors_map import STEPS
from ckpt.diagnosis.handlers.face import HANDLERS
from ckpt.diagnosis.library import OURS
from ckpt.diagnosis.models import Model, parse
from ckpt.diagnosis.topology import Topology, way
from tests.seeds import seed_of_the_commit

TOPOLOGY = Topology.model_validate(
    {
        "host": {
            f"n{number}": {
                "address": f"10.0.0.{number}",
                "interface": "e",
                "switch": switch,
                "port": f"p{number}",
            }
            for number, switch in {1: "sw1", 2: "sw1", 3: "sw2"}.items()
        },
        "switch": {"sw1": {"snmp": ["a"]}, "sw2": {"snmp": ["b"]}},
        "trunk": [{"ends": [["sw1", "up"], ["sw2", "up"]]}],
    }
)
MODELS = [parse(path.read_text(), path.name, HANDLERS) for path in sorted(OURS.glob("*.toml"))]


def check_graph(module: ModuleType) -> None:
    for error, steps in STEPS.items():
        for there in ("n2", "n3"):
            found = module.build(MODELS, error, way(TOPOLOGY, "n1", there, 7))
            assert list(found.candidates) == list(found.order)
            for name in found.order:
                assert found.causes[name] | found.hides[name] <= set(found.order), (
                    "a cause that nobody looks at"
                )
                assert name not in found.causes[name] | found.hides[name]
            at = [
                steps.index((each.place.kind, each.place.side))
                for each in found.candidates.values()
                if error in each.model.errors_of(each.element) and (each.place.kind, each.place.side) in steps
            ]
            assert at == sorted(at)
            assert all(each.model.side in ("both", each.place.side) for each in found.candidates.values())
            assert not any(name.startswith(("smart", "slurmd", "gpu")) for name in found.order)
    found = module.build(MODELS, "silent", way(TOPOLOGY, "n1", "n3", 7))
    own, trunk, far = (
        "cable.dark-at-port@n1:e-sw1:p1",
        "trunk.dark@sw1:up-sw2:up",
        "cable.dark-at-port@n3:e-sw2:p3",
    )
    assert found.causes[own] == {
        "interface.missing@n1:e",
        "interface.shut@n1:e",
        "port.shut@sw1:p1",
        "switch.off@sw1",
    }
    assert found.causes[trunk] == {"port.shut@sw1:up", "port.shut@sw2:up", "switch.off@sw1", "switch.off@sw2"}
    assert "power.off@n3" in found.causes[far]
    assert found.causes["route.gone@n1"] == {
        f"interface.{name}@n1:e" for name in ("missing", "shut", "address-gone")
    }
    assert far in found.hides[trunk]
    assert "switch.off@sw1" in found.hides["port.shut@sw1:p1"]
    assert "interface.shut@n1:e" not in found.hides["port.shut@sw1:p1"] | found.hides[own]
    assert found.hides["power.off@n3"] >= {"process.gone@n3", "interface.shut@n3:e"}
    assert found.proving >= {"port.shut@sw1:p1", "fan.speed@n3"}
    assert not found.proving & {own, trunk, far}
    refused = module.build(MODELS, "refused", way(TOPOLOGY, "n1", "n3", 7))
    assert "power.supply@n3" in refused.order
    assert "interface.shut@n1:e" not in refused.order

    assert "cpu.temperature@n3" in refused.order
    assert "cpu.throttled@n3" not in refused.order
    assert "interface.missing@n1:e" not in found.hides["interface.shut@n1:e"]
    check_chain(module)
    places = {f"{place.kind} {place.name}": place for place in way(TOPOLOGY, "n1", "n3")}

    def same(one: str, other: str) -> bool:
        return bool(module.same(places[one], places[other]))

    assert same("switch sw1", "port sw1:p1") and same("switch sw1", "port sw1:up")
    assert not same("switch sw1", "port sw2:up") and not same("switch sw1", "switch sw2")
    assert not same("port sw1:p1", "port sw1:up") and same("port sw1:p1", "port sw1:p1")
    assert same("host n1", "port sw1:p1") and not same("host n1", "port sw1:up")


def check_chain(module: ModuleType) -> None:
    """Causes of causes are looked at, whatever error they are for."""
    models = [
        Model.model_validate(
            {"name": name, "text": name, "place": "host", "side": "here", "errors": [error], "element": [
                {"name": "x", "text": "x", "equal": "x", "caused_by": causes,
                 "queries": [{"handler": "tcp", "value": "answer"}]}]}
        )
        for name, error, causes in (("a", "local", ["b"]), ("b", "refused", ["c.x"]), ("c", "refused", []))
    ]  # fmt: skip
    assert module.build(models, "local", way(TOPOLOGY, "n1", "n3")).order == ("a.x@n1", "b.x@n1", "c.x@n1")


HOSTS = dict(enumerate("AABCD"))
SWITCH_OF = {"A": "sw1", "B": "sw1", "C": "sw2", "D": "sw2"}
WAYS = {(a, b): tuple(dict.fromkeys((SWITCH_OF[a], SWITCH_OF[b]))) for a, b in permutations("ABCD", 2)}
TRUTHS: dict[tuple[str, tuple[str, ...]], Callable[[int, int], bool]] = {
    ("process", ("1",)): lambda a, b: 1 in (a, b),
    ("host", ("B",)): lambda a, b: "B" in (HOSTS[a], HOSTS[b]),
    ("host", ("A",)): lambda a, b: "A" in (HOSTS[a], HOSTS[b]),
    ("switch", ("sw2",)): lambda a, b: "sw2" in WAYS[HOSTS[a], HOSTS[b]],
    ("trunk", ("sw1", "sw2")): lambda a, b: len(WAYS[HOSTS[a], HOSTS[b]]) == 2,
    ("sending", ("C",)): lambda a, b: HOSTS[b] == "C",
    ("receiving", ("C",)): lambda a, b: HOSTS[a] == "C",
    ("direction", ("A", "D")): lambda a, b: (HOSTS[b], HOSTS[a]) == ("A", "D"),
    ("pair", ("B", "D")): lambda a, b: {HOSTS[a], HOSTS[b]} == {"B", "D"},
}


def check_witnesses(module: ModuleType, rounds: int, seed: int) -> None:
    """With all reports the truth is named. With some, it or nothing is, and it is always possible; newer reports count."""
    random = Random(seed)
    for number in range(rounds):
        (kind, names), is_silent = random.choice(list(TRUTHS.items()))
        truth = module.Hypothesis(kind, names)
        share = 1.0 if number % 2 else random.random()
        pairs = [pair for pair in permutations(HOSTS, 2) if random.random() < share]
        # ranks of one host do not hear each other over the network, and say whatever they like
        said = [
            module.Said(a, b, random.random() < 0.5 if HOSTS[a] == HOSTS[b] else not is_silent(a, b))
            for a, b in pairs
        ]
        older = [module.Said(each.observer, each.peer, random.random() < 0.5) for each in said]
        found = module.join([*older, *said], HOSTS, WAYS)
        anything = any(not each.heard and HOSTS[each.observer] != HOSTS[each.peer] for each in said)
        assert found.named in ((), (truth,)), (truth, found)
        assert ((truth,) in found.possible) == anything, (truth, found)
        if share == 1.0:
            assert found.named == (truth,), (truth, found)


GRAPH_MUTANTS = {
    "causes of causes are not looked at": ("                waiting.append(cause)\n", ""),
    "a place hides itself": ("other.position > start.position", "other.position >= start.position"),
    "what is nearer is beyond": ("other.position > start.position", "other.position < start.position"),
    "all hosts are one": ("return one.host == other.host", "return True"),
    "all switches are one": ("if one.switch != other.switch:", "if False:"),
    "a switch has one port": ('"switch" in (one.kind, other.kind)', "True"),
    "everything is on one link": ("return not one.links.isdisjoint(other.links)", "return True"),
    "every model applies": ("all(place.variables.get(name) for name in model.needs)", "True"),
    "sides do not count": ('model.side in ("both", place.side)', "True"),
    "errors do not count": ("        and error in candidate.model.errors_of(candidate.element)\n", ""),
    "everything proves": ("if instances[name].element.proves", ""),
}
WITNESS_MUTANTS = {
    "what was heard does not count": ("if made not in refuted", "if True"),
    "the first explanation is named": ("possible[0] if len(possible) == 1", "possible[0] if possible"),
    "of two that explain the same one counts": (
        "explaining[hypothesis] < other",
        "explaining[hypothesis] <= other",
    ),
    "older words count, too": ("(silent if each.heard else heard).discard(pair)", "pass"),
    "a rank alone on its host is a process": ("if hosts[rank] in crowded:", "if True:"),
    "sending is receiving": ('yield ("sending", (b,))', 'yield ("sending", (a,))'),
    "a direction is the other one": ('"direction", (b, a)', '"direction", (a, b)'),
    "no trunks": ('yield ("trunk", (min(one, other), max(one, other)))', "pass"),
    "ranks of one host count": (
        "silent = {pair for pair in silent if hosts[pair[0]] != hosts[pair[1]]}",
        "pass",
    ),
}


def mutant_of(module: ModuleType, old: str, new: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    text = Path(str(module.__file__)).read_text(encoding="utf-8")
    assert text.count(old) == 1, f"{old!r} is there {text.count(old)} times"
    found = ModuleType("mutant")
    monkeypatch.setitem(sys.modules, "mutant", found)  # dataclasses look their module up
    exec(compile(text.replace(old, new), "mutant", "exec"), found.__dict__)
    return found


def test_graphs_of_the_shipped_models() -> None:
    check_graph(graph)


def test_witnesses() -> None:
    check_witnesses(witnesses, 600, seed_of_the_commit())


@pytest.mark.parametrize("rule", GRAPH_MUTANTS)
def test_every_rule_of_the_graph_is_needed(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant = mutant_of(graph, *GRAPH_MUTANTS[rule], monkeypatch)
    with pytest.raises(AssertionError):
        check_graph(mutant)


@pytest.mark.parametrize("rule", WITNESS_MUTANTS)
def test_every_rule_of_the_witnesses_is_needed(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant = mutant_of(witnesses, *WITNESS_MUTANTS[rule], monkeypatch)
    with pytest.raises(AssertionError):
        check_witnesses(mutant, 300, 1)

"""What holds of every verdict, and the small and random graphs on which it is checked.

`check_small`, `check_random` and `check_judge` take the modules that they check, so that mutants of these can be
checked, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, product
from random import Random
from types import ModuleType
from typing import Any

from ckpt.diagnosis.graph import Graph
from ckpt.diagnosis.models import Element
from tests.model.diagnosis import reference

STATES = {
    "f": "faulty",
    "c": "clear",
    "u": "unknown",
    "n": "faulty",
    "s": "faulty",
}  # "n": and it is over, "s": a symptom
Edges = dict[str, frozenset[str]]


def compare(
    verdict: ModuleType, states: dict[str, str], causes: Edges, hides: Edges, proving: frozenset[str]
) -> None:
    """The verdict of the code is that of the plain model."""
    past = frozenset(a for a in states if states[a] == "n")
    symptoms = frozenset(a for a in states if states[a] == "s")
    graph = Graph({}, tuple(states), causes, hides, proving, past, symptoms)
    findings = {a: verdict.Finding(STATES[states[a]], reason="no answer") for a in states}
    found = verdict.conclude(graph, findings)
    assert {each.id for each in found.faults} == reference.faults(states, causes, proving)
    for fault in found.faults:
        assert set(fault.perhaps) == reference.behind(states, causes, fault.id)
    assert {a: set(guilty) for a, guilty in found.consequences} == reference.consequences(states, causes)
    assert {each.id for each in found.suspects} == reference.suspects(states, causes, proving)
    for suspect in found.suspects:
        assert set(suspect.instead) == reference.behind(states, causes, suspect.id)
    assert {each.id: set(each.by) for each in found.unknown} == reference.hidden(states, hides)
    assert set(found.clear) == {a for a in states if states[a] == "c"}
    assert set(found.noted) == past
    assert found.found == any(state in "fs" for state in states.values())


def graphs(count: int) -> Iterator[Edges]:
    """Every graph of causes without a circle on so many faults. Only later ones cause earlier ones: the names do
    not matter."""
    names = "abcde"[:count]
    pairs = list(combinations(names, 2))
    for chosen in product((False, True), repeat=len(pairs)):
        edges = [pair for pair, is_there in zip(pairs, chosen, strict=True) if is_there]
        yield {a: frozenset(cause for effect, cause in edges if effect == a) for a in names}


def check_small(verdict: ModuleType, largest: int = 4) -> int:
    """All graphs of causes of up to `largest` faults, with all states; up to three, with everything that may be
    hidden, too."""
    count = 0
    for size in range(1, largest + 1):
        names = "abcde"[:size]
        pairs = [(a, b) for a in names for b in names if a != b]
        hiding: list[Edges] = [{a: frozenset() for a in names}, {a: frozenset(names) - {a} for a in names}]
        if size <= 3:
            hiding = [
                {
                    a: frozenset(b for (x, b), there in zip(pairs, chosen, strict=True) if x == a and there)
                    for a in names
                }
                for chosen in product((False, True), repeat=len(pairs))
            ]
        for causes in graphs(size):
            for states in product("fcuns", repeat=size):
                # what hides does not depend on causes: all of it with one state of each number of faults is enough
                for hides in hiding if size < 3 or causes["a"] == frozenset("bc") else hiding[-1:]:
                    proving = frozenset(name for at, name in enumerate(names) if count >> at & 1)
                    compare(verdict, dict(zip(names, states, strict=True)), causes, hides, proving)
                    count += 1
    return count


MAY_BE = ({"clear"}, {"faulty", "clear"})


def check_settled(verdict: ModuleType, largest: int = 3) -> int:
    """All graphs, states, and sets of candidates of which answers are still to come: where the answer is settled, nothing
    that may come takes back what is named, and what is named then is hidden by that, or was suspected."""
    count = 0
    for size in range(1, largest + 1):
        names = "abcde"[:size]
        hiding: list[Edges] = [{a: frozenset() for a in names}, {a: frozenset(names) - {a} for a in names}]
        hiding.append({a: frozenset(names[at + 1 :]) for at, a in enumerate(names)})
        kinds = "fcuns" if size < 3 else "fcu"
        for causes, hides, states in product(graphs(size), hiding, product(kinds, repeat=size)):
            past = frozenset(a for a, state in zip(names, states, strict=True) if state == "n")
            symptoms = frozenset(a for a, state in zip(names, states, strict=True) if state == "s")
            for chosen in product((None, *MAY_BE), repeat=size):
                proving = frozenset(a for at, a in enumerate(names) if count >> at & 1) - past - symptoms
                graph = Graph({}, tuple(names), causes, hides, proving, past, symptoms)
                known = {a: STATES[state] for a, state in zip(names, states, strict=True)}
                waiting = {a: each for a, each in zip(names, chosen, strict=True) if each is not None}
                count += check_waiting(verdict, graph, known, waiting)
    return count


def check_waiting(
    verdict: ModuleType, graph: Graph, known: dict[str, str], waiting: dict[str, set[str]]
) -> bool:
    """`known`: the states so far."""

    def said(states: dict[str, str]) -> Any:
        return verdict.conclude(graph, {a: verdict.Finding(state, reason="x") for a, state in states.items()})

    findings = {a: verdict.Finding(state, reason="x") for a, state in known.items()}
    if not verdict.settled(graph, findings, waiting):
        if not waiting:  # nobody is waited for: it is settled as soon as anything is named
            assert not said(known).faults
        return False
    before = said(known)
    named = {each.id for each in before.faults}
    assert named, "nothing is named"
    allowed = {each.id for each in before.suspects} | {a for fault in named for a in graph.hides[fault]}
    for states in product(*(may_become(known[a], waiting.get(a), a in named) for a in graph.order)):
        after = {each.id for each in said(dict(zip(graph.order, states, strict=True))).faults}
        assert named <= after, "what was named is taken back"
        assert after - named <= allowed, "something is named of which nobody had thought"
    return True


def may_become(state: str, may_be: set[str] | None, is_named: bool) -> set[str]:
    """All states that a candidate may be in when everybody has answered, or will not."""
    if may_be is None or (is_named and may_be == {"clear"}):
        return {state}  # the second: a sign of life of what is named does not come
    if state == "unknown":
        return {state, *may_be}
    return {state} if may_be == {state} else {state, "unknown"}


def check_random(verdict: ModuleType, rounds: int, seed: int) -> int:
    """Graphs of up to 14 faults with one to three true ones, whose effects come or do not, and any handlers dead.

    Whatever is dead: no fault is named that is not a true one, nothing dead is called clear, a true fault is among
    a suspect and what it may be instead.
    """
    random = Random(seed)
    for _ in range(rounds):
        names = [f"n{number}" for number in range(random.randint(3, 14))]
        causes = {
            a: frozenset(b for b in names[at + 1 :] if random.random() < 0.25) for at, a in enumerate(names)
        }
        hides = {a: frozenset(b for b in names if b != a and random.random() < 0.2) for a in names}
        true = set(random.sample(names, random.randint(1, 3)))
        dead = set(random.sample(names, random.randint(0, len(names))))
        proving = frozenset(a for a in names if random.random() < 0.3)
        past = frozenset(a for a in names if a not in proving and random.random() < 0.2)
        symptoms = frozenset(a for a in names if a not in proving | past and random.random() < 0.2)
        check_world(
            verdict, Graph({}, tuple(names), causes, hides, proving, past, symptoms), true, dead, random
        )
    return rounds


def check_world(verdict: ModuleType, graph: Graph, true: set[str], dead: set[str], random: Random) -> Any:
    """One world: what is bad follows from the true faults; what is asked, from the dead handlers."""
    bad: set[str] = set()
    for _ in graph.order:  # at most so many steps from the first cause to the last effect
        for a in graph.order:
            brought_about = graph.causes[a] & bad
            if a not in bad and (a in true or (brought_about and random.random() < 0.7)):
                bad.add(a)
    # a message in a log may have nothing to do with what happened
    seen = bad | {a for a in graph.past if random.random() < 0.3}
    findings = {
        a: verdict.Finding("unknown", reason="dead")
        if a in dead
        else verdict.Finding("faulty" if a in seen else "clear")
        for a in graph.order
    }
    if random.random() < 0.2:
        for a in dead:
            findings.pop(a, None)  # not asked at all
    found = verdict.conclude(graph, findings)
    named = {each.id for each in found.faults}
    assert named <= true | (bad & graph.proving), "a component is named that is well"
    for fault in found.faults:
        assert true & {fault.id, *fault.perhaps}, "a fault with no true one behind it"
    assert not named & graph.past, "what is over is named"
    assert not named & graph.symptoms, "a symptom is named"
    assert set(found.noted) == (seen & graph.past) - dead
    assert not set(found.clear) & dead, "a dead handler's element is called clear"
    assert {each.id for each in found.unknown} == dead & set(graph.order)
    for suspect in found.suspects:
        assert true & {suspect.id, *suspect.instead}, "a suspicion with no true fault in it"
    for name, guilty in found.consequences:
        assert graph.causes[name] >= set(guilty)
    if not dead & set(graph.order):
        assert {
            a for a in true & set(graph.order) - graph.past - graph.symptoms if not graph.causes[a] & seen
        } <= named
    return found


def element(**fields: Any) -> Element:
    return Element.model_validate(
        {"name": "x", "text": "x", "queries": [{"handler": "h", "value": "v"}], **fields}
    )


def check_judge(verdict: ModuleType) -> None:
    """The three states of one element."""
    say = verdict.Answer
    hot = element(high=85, unit="°C")
    band = element(high=60, low=40, unit="Hz")
    shut = element(equal="down")
    several = element(equal=["down", "testing"])
    none = say("bmc", None, "does not answer")
    old = say("sw", "up", stale_s=2)
    cases = [
        (hot, [say("bmc", 85.0)], "clear"),
        (hot, [say("bmc", 85.1)], "faulty"),
        (hot, [say("bmc", "na")], "unknown"),
        (hot, [say("bmc", float("nan"))], "unknown"),
        (hot, [say("bmc", float("inf"))], "unknown"),
        (hot, [none], "unknown"),
        (hot, [], "unknown"),
        (hot, [none, say("sysfs", 90.0)], "faulty"),
        (hot, [none, say("sysfs", 20.0)], "clear"),
        (hot, [say("bmc", 90.0), say("sysfs", 20.0)], "unknown"),
        (hot, [say("bmc", 90.0), say("sysfs", 91.0)], "faulty"),
        (hot, [say("bmc", "na"), say("sysfs", 91.0)], "faulty"),
        (band, [say("bmc", 39.0)], "faulty"),
        (band, [say("bmc", 40.0)], "clear"),
        (band, [say("bmc", 61.0)], "faulty"),
        (shut, [say("sw", "down")], "faulty"),
        (shut, [say("sw", "up")], "clear"),
        (shut, [say("sw", 2.0)], "clear"),
        (shut, [old], "unknown"),
        (shut, [old, say("host", "up")], "clear"),
        (shut, [old, say("host", "down")], "unknown"),
        (shut, [say("sw", "down", stale_s=2)], "faulty"),
        (several, [say("sw", "testing")], "faulty"),
        (several, [say("sw", "up")], "clear"),
        (element(equal="dead", low=2000, unit="RPM"), [say("bmc", "dead")], "faulty"),
        (element(equal="dead", low=2000, unit="RPM"), [say("bmc", "na")], "unknown"),
        (element(equal="dead", low=2000, unit="RPM"), [say("bmc", 3000.0)], "clear"),
    ]
    ends = [{"handler": "h", "value": "v", "on": on} for on in ("host", "switch", "switch")]
    speeds = element(ends_agree=True, queries=ends)
    ten, one = say("host", 10.0), say("sw", 1.0)
    cases += [
        (speeds, [ten, say("sw", 10.0), none], "clear"),
        (speeds, [ten, none, say("sw", 10.0)], "clear"),
        (speeds, [ten, one, none], "faulty"),
        (speeds, [ten, none, none], "unknown"),
        (speeds, [none, one, one], "unknown"),
        (speeds, [none, none, none], "unknown"),
        (speeds, [ten, say("sw", 10.0, stale_s=2), none], "unknown"),
        (speeds, [ten, say("sw", 1.0, stale_s=2), none], "faulty"),
    ]
    for asked, answers, state in cases:
        found = verdict.judge(asked, answers)
        assert found.state == state, (asked, answers, found)
        assert bool(found.reason) == (state == "unknown"), found

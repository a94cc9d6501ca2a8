"""The verdict: against a plain model on all small graphs; random ones; with each rule taken out."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from ckpt.diagnosis import verdict
from tests.model.diagnosis import checks
from tests.seeds import seed_of_the_commit

Count = Callable[[str, int], None]

MUTANTS = {
    "what is over is named": ('state="noted"', 'state="faulty"'),
    "what is over causes nothing": ('in ("unknown", "noted")]', 'in ("unknown",)]'),
    "an open cause counts as clear": ("(open_causes and name not in graph.proving):", "False:"),
    "nothing proves anything": ("(open_causes and name not in graph.proving):", "open_causes:"),
    "a symptom is a fault": ("elif name in graph.symptoms or ", "elif "),
    "a faulty cause counts as none": ("if guilty:", "if False:"),
    "every cause counts as open": ('in ("unknown", "noted")]', '!= "faulty"]'),
    "a suspicion stops at the first cause": ("waiting.append(cause)", "pass"),
    "a suspicion goes on behind what is clear": ('states[cause].state != "clear"', "True"),
    "what was not asked is clear": ('not_asked = Finding("unknown"', 'not_asked = Finding("clear"'),
    "who does not answer is clear": (
        'return Finding("unknown", reason="; ".join(reasons) or "nothing to ask", silent=silent)\n    if not any',
        'return Finding("clear", reason="; ".join(reasons) or "nothing to ask", silent=silent)\n    if not any',
    ),
    "the first of two sources is believed": ("if len({state for state, _ in known}) > 1:", "if False:"),
    "what may be older than the fault is clear": ("if not each[1].stale_s]", "]"),
    "what is no number is clear": (
        "if isinstance(value, str) or not math.isfinite(value):\n        return None",
        'if isinstance(value, str) or not math.isfinite(value):\n        return "clear"',
    ),
    "the threshold itself is a fault": ("value > element.high", "value >= element.high"),
    "below is above": ("value < element.low", "value > element.low"),
    "a text is not compared": ("if str(value) in texts:", "if False:"),
    "clear ones hide, too": (
        "for each in faulty if states[name].silent",
        "for each in states if states[name].silent",
    ),
    "what is hidden hides": ("and name in graph.hides[each]", "and each in graph.hides[name]"),
    "ends that differ agree": (
        'return Finding("faulty", value=" and "',
        'return Finding("clear", value=" and "',
    ),
    "one end is enough": ("if len(by_end) < 2:", "if not by_end:"),
    "ends that agree long ago agree": ("    if stale_s:", "    if False:"),
    "a suspect is nothing found": ("bool(self.faults or self.suspects)", "bool(self.faults)"),
}
OF_WAITING = {
    "nothing named is settled": (
        "    if not named:\n        return False",
        "    if False:\n        return False",
    ),
    "a faulty one waits for nothing": ('if state == "faulty" or name not in hidden', "if name not in hidden"),
    "who is hidden by nothing is not waited for": (" or name not in hidden or any(", " or any("),
    "a cause is not waited for": ("or any(name in graph.causes[fault] for fault in named)", ""),
    "whatever is clear stays so": ('if set(may_be) <= {"clear"} and (state', "if (state"),
    "whatever may be clear only is not waited for": (
        '(state == "clear" or (name in named and graph.hides[name]))',
        "True",
    ),
}


@pytest.mark.rotate(2)
def test_all_small_graphs(figures: Count) -> None:
    figures("verdicts on small graphs, as the plain model's", checks.check_small(verdict))


def test_what_is_settled_is_never_taken_back(figures: Count) -> None:
    figures("settled answers on small graphs, with all that may still come", checks.check_settled(verdict))


def test_random_faults_and_dead_handlers(figures: Count) -> None:
    figures("random verdicts with dead handlers", checks.check_random(verdict, 3000, seed_of_the_commit()))


@pytest.mark.soak
def test_a_million_random_faults_and_dead_handlers(figures: Count) -> None:
    figures(
        "random verdicts with dead handlers", checks.check_random(verdict, 1_000_000, seed_of_the_commit())
    )


def test_the_states_of_one_element() -> None:
    checks.check_judge(verdict)


@pytest.mark.parametrize("rule", MUTANTS)
def test_every_rule_is_needed(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant = mutated(*MUTANTS[rule], monkeypatch)
    with pytest.raises(AssertionError):
        checks.check_judge(mutant)
        checks.check_small(mutant, 3)
        checks.check_random(mutant, 500, 1)


@pytest.mark.parametrize("rule", OF_WAITING)
def test_every_rule_of_waiting_is_needed(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant = mutated(*OF_WAITING[rule], monkeypatch)
    with pytest.raises(AssertionError):
        checks.check_settled(mutant)


def mutated(old: str, new: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    text = Path(verdict.__file__).read_text(encoding="utf-8")
    assert text.count(old) == 1, f"{old!r} is there {text.count(old)} times"
    mutant = ModuleType("mutant")
    monkeypatch.setitem(sys.modules, "mutant", mutant)  # dataclasses look their module up
    exec(compile(text.replace(old, new), "mutant", "exec"), mutant.__dict__)
    return mutant

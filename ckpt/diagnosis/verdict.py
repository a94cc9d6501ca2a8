"""From what was answered to what is at fault. Pure.

An element has one of three states:

    faulty     a value was had and is beyond a threshold
    clear      a value was had and is not
    unknown    no value was had, or the sources contradict each other. Never clear: what does not answer says nothing

What is beyond a threshold but over, such as a message in a log, is *noted* instead of faulty: it may have caused a
fault, or have nothing to do with it. The answer has six lists:

    faults          the roots: faulty, no direct cause is faulty, and either its value proves that this very device
                    is not well, or everything that may cause it is clear. Only these are named as the fault
    suspects        faulty, but something that may cause it could not be asked: it is this one, or one of `instead`. Or a
                    symptom without a faulty cause: it shows that something is not well, and not what
    consequences    faulty, and a direct cause is faulty, too
    unknown         with the reason and, where nothing came back and something faulty explains that, what hides it
    noted, clear    as above

If there is neither a fault nor a suspect, the fault is *unknown*. What is named is never a component that is well, as
long as values are true and models name all causes: an effect that is there without any of its causes is the fault
itself.

Some sources are slow, and some are dead. The answer is *settled* (`settled`) when no answer that is still to come can take
back what is named, and all that may still be added is about devices of which a named fault explains the silence.

Source: Sakai and Ishikawa, sections 3.3 and 3.4; the three states, suspects and consequences are ours.

Not here: asking (`manager`), texts for people (`report`).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from ckpt.diagnosis.graph import Graph
from ckpt.diagnosis.models import Element

__all__ = [
    "Answer",
    "Fault",
    "Finding",
    "Hidden",
    "State",
    "Suspect",
    "Value",
    "Verdict",
    "conclude",
    "judge",
    "settled",
]

State = Literal["faulty", "clear", "unknown", "noted"]
Value = float | str
"""What a query brings: a number, in the unit of the element, or a text."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Of one query: a value, or the reason why there is none. `source`: who was asked, for people. `silent`:
    nothing came back."""

    source: str
    value: Value | None
    reason: str = ""
    silent: bool = True
    stale_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Finding:
    """The state of a candidate. `value` and `source` of a faulty or clear one, `reason` of an unknown one;
    `silent`: some source did not answer, so something faulty may hide it."""

    state: State
    value: Value | None = None
    source: str = ""
    reason: str = ""
    silent: bool = True


@dataclass(frozen=True, slots=True)
class Fault:
    """What is named. `perhaps`: what may have caused it and could not be asked."""

    id: str
    perhaps: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Suspect:
    """`id` is as it should not be; the fault is it or one of `instead`, which could not be asked or are faulty."""

    id: str
    instead: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Hidden:
    """A candidate without a value. `by`: what is faulty and explains that; may be empty."""

    id: str
    reason: str
    by: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Verdict:
    """Ids of candidates, in the order of the graph. `consequences`: with their faulty causes."""

    faults: tuple[Fault, ...]
    suspects: tuple[Suspect, ...]
    consequences: tuple[tuple[str, tuple[str, ...]], ...]
    unknown: tuple[Hidden, ...]
    noted: tuple[str, ...]
    clear: tuple[str, ...]

    @property
    def found(self) -> bool:
        """Is there anything but "unknown fault" to say?"""
        return bool(self.faults or self.suspects)


def judge(element: Element, answers: Sequence[Answer]) -> Finding:
    """The state of an element, of the answers to all of its queries, in the order of the queries."""
    if element.ends_agree:
        return _compare_ends(element, answers)
    known: list[tuple[State, Answer]] = []
    reasons: list[str] = []
    for answer in answers:
        if answer.value is None:
            reasons.append(f"{answer.source}: {answer.reason}")
            continue
        state = _compare(element, answer.value)
        if state is None:
            reasons.append(f"{answer.source}: the value {answer.value!r} is no number")
        else:
            known.append((state, answer))
    if not known:
        silent = any(answer.value is None and answer.silent for answer in answers)
        return Finding("unknown", reason="; ".join(reasons) or "nothing to ask", silent=silent)
    if not any(state == "faulty" for state, _ in known):
        fresh = [each for each in known if not each[1].stale_s]
        if not fresh:
            state, old = known[0]
            age = f"what it says may be {old.stale_s:g} s old, and the fault is younger"
            return Finding("unknown", reason=f"{old.source}: {age}", silent=False)
        known = fresh
    if len({state for state, _ in known}) > 1:
        said = ", ".join(f"{answer.source} says {answer.value}" for _, answer in known)
        return Finding("unknown", reason=f"the sources contradict each other: {said}", silent=False)
    state, first = known[0]
    return Finding(state, value=first.value, source=first.source)


def _compare_ends(element: Element, answers: Sequence[Answer]) -> Finding:
    """Faulty if one end says another value than the other; unknown unless both say one."""
    by_end: dict[str | None, Answer] = {}
    for query, answer in zip(element.queries, answers, strict=True):
        if answer.value is not None:
            by_end.setdefault(query.on, answer)
    if len(by_end) < 2:
        reasons = [f"{each.source}: {each.reason}" for each in answers if each.value is None]
        silent = any(each.value is None and each.silent for each in answers)
        return Finding("unknown", reason="; ".join(reasons) or "nothing to ask", silent=silent)
    known = list(by_end.values())
    source = " and ".join(each.source for each in known)
    values = [f"{each.value:g}" if isinstance(each.value, float) else str(each.value) for each in known]
    if len(set(values)) > 1:
        return Finding("faulty", value=" and ".join(values), source=source)
    stale_s = max(each.stale_s for each in known)
    if stale_s:
        age = f"what is said may be {stale_s:g} s old, and the fault is younger"
        return Finding("unknown", reason=f"{source}: {age}", silent=False)
    return Finding("clear", value=known[0].value, source=source)


def _compare(element: Element, value: Value) -> State | None:
    """None: the value cannot be compared with the threshold."""
    if element.equal is not None:
        texts = (element.equal,) if isinstance(element.equal, str) else element.equal
        if str(value) in texts:
            return "faulty"
        if element.high is None and element.low is None:
            return "clear"
    if isinstance(value, str) or not math.isfinite(value):
        return None
    if element.high is not None and value > element.high:
        return "faulty"
    if element.low is not None and value < element.low:
        return "faulty"
    return "clear"


def conclude(graph: Graph, findings: Mapping[str, Finding]) -> Verdict:
    """The answer. A candidate without a finding counts as unknown: it was not asked."""
    not_asked = Finding("unknown", reason="not asked")
    states = {name: findings.get(name, not_asked) for name in graph.order}
    for name in graph.past:
        if states[name].state == "faulty":
            states[name] = replace(states[name], state="noted")
    faulty = [name for name in graph.order if states[name].state == "faulty"]
    faults: list[Fault] = []
    suspects: list[Suspect] = []
    consequences: list[tuple[str, tuple[str, ...]]] = []
    for name in faulty:
        causes = graph.causes[name]
        guilty = tuple(each for each in graph.order if each in causes and states[each].state == "faulty")
        open_causes = [each for each in causes if states[each].state in ("unknown", "noted")]
        if guilty:
            consequences.append((name, guilty))
        elif name in graph.symptoms or (open_causes and name not in graph.proving):
            suspects.append(Suspect(name, _instead(graph, states, name)))
        else:
            faults.append(Fault(name, _instead(graph, states, name)))
    unknown = tuple(
        Hidden(
            name,
            states[name].reason,
            tuple(each for each in faulty if states[name].silent and name in graph.hides[each]),
        )
        for name in graph.order
        if states[name].state == "unknown"
    )
    noted = tuple(name for name in graph.order if states[name].state == "noted")
    clear = tuple(name for name in graph.order if states[name].state == "clear")
    return Verdict(tuple(faults), tuple(suspects), tuple(consequences), unknown, noted, clear)


def settled(graph: Graph, findings: Mapping[str, Finding], waiting: Mapping[str, Collection[State]]) -> bool:
    """Is what is named final? `waiting`: the candidates of which some source has not answered yet, each with the states that
    such an answer may speak for. What is judged clear, and can only be confirmed, waits for nothing; neither does a
    named fault that only a sign of life could contradict: it explains that there is none.

    If it is: whatever the others turn out to be, what is a fault stays one, and what comes is one that these hide, or was
    suspected.
    """
    verdict = conclude(graph, findings)
    named = {fault.id for fault in verdict.faults}
    if not named:
        return False
    hidden = {name for fault in named for name in graph.hides[fault]}
    for name, may_be in waiting.items():
        state = findings[name].state
        if set(may_be) <= {"clear"} and (state == "clear" or (name in named and graph.hides[name])):
            continue
        if state == "faulty" or name not in hidden or any(name in graph.causes[fault] for fault in named):
            return False
    return True


def _instead(graph: Graph, states: Mapping[str, Finding], name: str) -> tuple[str, ...]:
    """What else may be the fault: every cause that is not clear, and what may cause these, again unless it is clear."""
    found: set[str] = set()
    waiting = [name]
    while waiting:
        for cause in graph.causes[waiting.pop()]:
            if cause not in found and states[cause].state != "clear":
                found.add(cause)
                waiting.append(cause)
    return tuple(each for each in graph.order if each in found)

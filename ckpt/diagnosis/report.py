"""What a diagnosis has found, as text for people and as JSON for programs; and what a fault causes and hides. Pure.

    found        {"error", "here", "there", "found", "faults", "suspects", "consequences", "unknown", "noted", "clear",
                  "seconds"}
    faults       [{"id", "fault", "component", "place", "text", "value", "unit", "source", "perhaps"}, …]
    suspects     the same with "instead" in place of "perhaps"; consequences: with "causes"; noted: with "effects"
    unknown      [{"id", "reason", "hidden_by"}, …]
    clear        [id, …]

Ids are `MODEL.ELEMENT@PLACE`; `fault` is `MODEL.ELEMENT`, `component` is `MODEL@PLACE`. These names are stable.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ckpt.diagnosis.errors import NoSuchFault
from ckpt.diagnosis.graph import Candidate, Graph
from ckpt.diagnosis.models import Model, reference
from ckpt.diagnosis.verdict import Finding, Verdict
from ckpt.diagnosis.witnesses import Joined

_SHOWN_PAIRS = 4
_MOST_CHOICES = 3
_NO_REASON = "the reason is nothing that could be asked: all of that is clear"

__all__ = ["as_fields", "as_text", "explain", "listing", "text_of"]


def as_fields(
    graph: Graph,
    findings: Mapping[str, Finding],
    verdict: Verdict,
    error: str,
    here: str,
    there: str,
    seconds: float,
) -> dict[str, Any]:
    """For programs; see the module."""

    def of(name: str, key: str, others: Sequence[str]) -> dict[str, Any]:
        candidate, finding = graph.candidates[name], findings[name]
        return {
            "id": name,
            "fault": candidate.fault,
            "component": candidate.component,
            "place": candidate.place.name,
            "text": sentence(candidate),
            "value": finding.value,
            "unit": candidate.element.unit,
            "source": finding.source,
            key: list(others),
        }

    return {
        "error": error,
        "here": here,
        "there": there,
        "found": verdict.found,
        "faults": [of(each.id, "perhaps", each.perhaps) for each in verdict.faults],
        "suspects": [of(each.id, "instead", each.instead) for each in verdict.suspects],
        "consequences": [of(name, "causes", causes) for name, causes in verdict.consequences],
        "unknown": [
            {"id": each.id, "reason": each.reason, "hidden_by": list(each.by)} for each in verdict.unknown
        ],
        "noted": [
            of(name, "effects", [each for each in graph.order if name in graph.causes[each]])
            for name in verdict.noted
        ],
        "clear": list(verdict.clear),
        "seconds": round(seconds, 3),
    }


def sentence(candidate: Candidate) -> str:
    """A fault in words: `cable between host n7 (eth0) and port 12 of sw1 has no link, seen from the host`."""

    def filled(text: str) -> str:
        return re.sub(r"\{([a-z_]+)\}", lambda found: str(candidate.place.variables.get(found[1], "?")), text)

    return f"{filled(candidate.model.text)} {filled(candidate.element.text)}"


def as_text(found: Mapping[str, Any]) -> str:
    """For people, of the fields."""
    out = [f"{found['here']} lost {found['there']} ({found['error']})", *_parts(found)]
    if found.get("reason"):
        out.append(f"not asked    {found['reason']}")
    out.append(f"in {found['seconds']:.1f} s")
    return "\n".join(out)


def _parts(found: Mapping[str, Any]) -> list[str]:
    out: list[str] = []
    for each in found["faults"]:
        out.append(f"fault        {each['text']}{_value(each)}")
        if each["perhaps"]:
            out.append(
                f"             perhaps because of what is noted, or could not be asked: {_listed(each['perhaps'])}"
            )
    for each in found["suspects"]:
        out.append(f"suspected    {each['text']}{_value(each)}")
        instead = f"or else one of: {_listed(each['instead'])}" if each["instead"] else _NO_REASON
        out.append(f"             {instead}")
    out += [
        f"consequence  {each['text']}{_value(each)}, because of {_listed(each['causes'])}"
        for each in found["consequences"]
    ]
    out += [f"noted        {each['text']}{_value(each)}" for each in found.get("noted", ())]
    if not found.get("found", True):
        out.append("unknown fault: nothing that could be asked is faulty")
    grouped: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for each in found["unknown"]:
        grouped.setdefault((each["reason"], tuple(each["hidden_by"])), []).append(each["id"])
    for (reason, by), names in grouped.items():
        hidden = f"; hidden by {_listed(by)}" if by else ""
        out.append(f"unknown      {_listed(names)}: {reason}{hidden}")
    if found["clear"]:
        out.append(f"clear        {_listed(found['clear'])}")
    return out


def located_as_text(found: Mapping[str, Any]) -> str:
    """For people, of what a job has found (`jobs`, the event `fault-located`)."""
    out = [f"{found.get('t', '')}  {found['text']}".strip()]
    out += [
        f"lost         {each['here']} lost {each['there']} ({each['error']})"
        for each in found.get("lost", ())
    ]
    out += [f"lost         host {host}" for host in found.get("missing", ())]
    if found.get("hosts"):
        out.append(f"at fault     host {_listed(found['hosts'])}")
    possible = (found.get("witnesses") or {}).get("possible") or []
    if possible:
        ways = " or ".join(" and ".join(each) for each in possible)
        out.append(f"witnesses    {ways}")
    out += _parts(found)
    if found.get("reason"):
        out.append(f"not asked    {found['reason']}")
    if "seconds" in found:
        out.append(f"in {found['seconds']:.1f} s")
    return "\n".join(out)


def _value(each: Mapping[str, Any]) -> str:
    if each["value"] is None:
        return ""
    value = f"{each['value']:g}" if isinstance(each["value"], float) else each["value"]
    unit = f" {each['unit']}" if each["unit"] else ""
    return f" ({value}{unit}, says {each['source']})"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names)


def listing(models: Sequence[Model]) -> list[dict[str, Any]]:
    """Every fault that there is a model for."""
    return [
        {
            "fault": f"{model.name}.{element.name}",
            "place": model.place,
            "side": model.side,
            "errors": list(model.errors_of(element)),
            "handlers": list(dict.fromkeys(query.handler for query in element.queries)),
            "needs": list(model.needs),
            "text": f"{model.text} {element.text}",
            "source": model.source,
        }
        for model in models
        for element in model.element
    ]


def explain(models: Sequence[Model], fault: str) -> dict[str, Any]:
    """What may cause a fault, what it may cause, what hides it, what it hides: names of faults, over all steps for
    causes.

    `fault`: MODEL.ELEMENT, or MODEL if it has one element only. Raises NoSuchFault, with near names.
    """
    names = {
        f"{model.name}.{element.name}": (model, element) for model in models for element in model.element
    }
    if fault not in names:
        inside = [name for name in names if name.partition(".")[0] == fault]
        if len(inside) != 1:
            near = inside or difflib.get_close_matches(fault, names, n=3)
            raise NoSuchFault(
                f"no fault {fault}; {'did you mean ' + ', '.join(near) if near else 'see --list'}"
            )
        fault = inside[0]

    def meant(name: str, key: str) -> list[str]:
        references = [reference(text) for text in getattr(names[name][1], key)]
        return [
            other
            for other, (model, element) in names.items()
            if other != name and any(each and each.covers(model.name, element.name) for each in references)
        ]

    def up(name: str) -> dict[str, Any]:
        return {cause: up(cause) for cause in meant(name, "caused_by")}

    def down(name: str) -> dict[str, Any]:
        return {effect: down(effect) for effect in names if name in meant(effect, "caused_by")}

    model, element = names[fault]
    return {
        "fault": fault,
        "text": f"{model.text} {element.text}",
        "proves": element.proves,
        "causes": up(fault),
        "effects": down(fault),
        "hides": meant(fault, "hides"),
        "hidden_by": [other for other in names if fault in meant(other, "hides")],
    }


# ---- of a job ----------------------------------------------------------------------------------------


def text_of(
    facts: Mapping[str, Any],
    joined: Joined,
    witnessed: str | None,
    fields: Mapping[str, Any],
    between: Sequence[str],
) -> str:
    """One line about what a job's diagnosis has found (`jobs`)."""
    parts = [row["text"] for row in fields["faults"]]
    parts += [f"suspected: {row['text']}" for row in fields["suspects"] if not parts]
    silent = [(one, other) for one, other, heard in facts["said"] if not heard]
    if facts.get("slow"):
        parts += [f"noted: {row['text']}" for row in fields["noted"] if not fields["faults"]][:_MOST_CHOICES]
        return "; ".join([*parts, _slow_text(silent, witnessed, between)])
    reached = sum(1 for _, _, heard in facts["said"] if heard)
    if witnessed is not None:
        others = sorted({a if b == witnessed else b for a, b in silent if witnessed in (a, b)})
        shown = ", ".join(others[:_SHOWN_PAIRS])
        more = f" and {len(others) - _SHOWN_PAIRS} others" if len(others) > _SHOWN_PAIRS else ""
        parts.append(f"host {witnessed} is not reached by {shown}{more}, which reach each other")
    elif between:
        parts.append(f"hosts {between[0]} and {between[1]} do not reach each other, and both reach others")
    elif joined.named:
        parts.append(" and ".join(f"{each.kind} {' '.join(each.names)}" for each in joined.named))
    elif not fields["faults"] and (choice := _choice(joined)):
        parts.append(f"by what hosts say of each other it is {choice}")
    elif silent and not parts:
        parts.append(f"unknown fault: {_pairs(silent)}")
    refused = sorted({each["there"] for each in facts["lost"] if each["error"] in ("refused", "reset")})
    if refused and not parts:
        parts.append(f"host {', '.join(refused)} answers, and nothing listens there: processes are gone")
    stuck = sorted({(each["here"], each["there"]) for each in facts["lost"] if each.get("accepts")})
    if stuck and not fields["faults"]:
        pairs = ", ".join(f"{here} sends to {there}" for here, there in stuck[:_SHOWN_PAIRS])
        parts.append(
            f"unknown fault: what {pairs} does not arrive, though connections are accepted there: large packets may be lost "
            "on the way (MTU), or a filter stops them"
        )
    if not parts and facts["missing"]:
        answering = {other for _, other, heard in facts["said"] if heard}
        how = "its network answers" if answering >= {*facts["missing"]} else "nobody could tell why"
        parts.append(f"unknown fault: host {', '.join(facts['missing'])} is gone, {how}")
    if not parts:
        parts.append(
            "all hosts reach each other now: it is over, or it was one process"
            if reached
            else "unknown fault"
        )
    return "; ".join(parts)


def _choice(joined: Joined) -> str:
    """A few explanations that the witnesses cannot tell apart: a switch, and the trunk that leads to it."""
    if len(joined.possible) > _MOST_CHOICES or any(len(each) != 1 for each in joined.possible):
        return ""
    return ", or ".join(f"{each.kind} {' '.join(each.names)}" for (each,) in joined.possible)


def _slow_text(slow: Sequence[tuple[str, str]], witnessed: str | None, between: Sequence[str]) -> str:
    if witnessed is not None:
        others = sorted({a if b == witnessed else b for a, b in slow if witnessed in (a, b)})
        return (
            f"connections of host {witnessed} are slow, to {', '.join(others[:_SHOWN_PAIRS])}; others are not"
        )
    if between:
        return f"the connection between {between[0]} and {between[1]} is slow; others of both are not"
    shown = ", ".join(f"{a} and {b}" for a, b in slow[:_SHOWN_PAIRS] if a < b)
    return f"connections are slow, between {shown}"


def _pairs(pairs: Sequence[tuple[str, str]]) -> str:
    shown = ", ".join(f"{one} does not reach {other}" for one, other in pairs[:_SHOWN_PAIRS])
    return shown + (f", and {len(pairs) - _SHOWN_PAIRS} more pairs" if len(pairs) > _SHOWN_PAIRS else "")

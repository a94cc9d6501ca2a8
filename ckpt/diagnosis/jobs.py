"""One diagnosis for a job whose hosts have lost each other: what all hosts say of each other, and what devices say. (driver)

    facts     {"said": [[observer, peer, heard], …], "lost": [{"here", "there", "error", "age_s", "port"}, …],
               "missing": [host, …], "topology": PATH | null, "counters": PATH | null, "wanted": bool, "slow": bool,
               "until_s": the clock (monotonic) when all of it is to end | not there}
    record    {"text", "hosts", "between", "witnesses", "faults", "suspects", "consequences", "noted", "unknown", "clear",
               "reason", "seconds"}

`said`: which host has (not) reached which other one just now, by a connection to its agent's port. `lost`: the errors that
ranks got, or would get, with our names of errors. With `slow`, pairs that are slow take the places of both. `missing`: hosts
that have not been heard of. Names are those of the job. `counters`: the
file of what counters were at the start of the job, if they were read.

1. Witnesses (`witnesses.join`) say whose side it is, without any query. With three hosts or more this is often enough.
2. If there is a topology, the ways between a few pairs are asked about, all at once (`manager.query_all`).
3. `hosts`: who is at fault. The witnesses' word comes first: a device that is not well somewhere else is said, and is
   not the reason. Nothing is named where several explanations are left.

Not here: how the controller comes to the facts, and what it does with the record.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ckpt.diagnosis import library
from ckpt.diagnosis.errors import BadTopology, DiagnosisError
from ckpt.diagnosis.manager import WITHIN_S, Request, query_all
from ckpt.diagnosis.topology import Topology, way
from ckpt.diagnosis.witnesses import Joined, Said, join

__all__ = ["locate", "pairs_to_ask", "side"]

_MOST_PAIRS = 4
_OF_A_HOST = ("host", "sending", "receiving")
_LISTED = 40
_MOST_CHOICES = 3
_LEAST_S = 3.0  # for devices, in any case
_PATIENCE_S = 0.5  # a job waits: what else may be wrong with a host that is named already, a person may ask


def locate(facts: Mapping[str, Any]) -> dict[str, Any]:
    """The record. Raises nothing because of what is missing or wrong in the user's files: that is the record's `reason`."""
    began = time.monotonic()
    topology, reason = _topology(facts)
    joined = _joined(facts, topology)
    witnessed = side(joined, facts["said"])
    requests: list[Request] = []
    if topology is not None and facts["wanted"]:
        requests, reason = _ask(facts, topology, witnessed)
    hosts = [witnessed] if witnessed else _hosts_of(requests, topology)
    fields = _merged(requests)
    between = _between(joined)
    return {
        "text": _text(facts, joined, witnessed, fields, between),
        "hosts": hosts,
        "between": between,
        "witnesses": _witnesses(joined),
        **fields,
        "reason": reason,
        "seconds": round(time.monotonic() - began, 3),
    }


def _topology(facts: Mapping[str, Any]) -> tuple[Topology | None, str | None]:
    given = facts.get("topology")
    if not library.has_topology(given):
        return None, "there is no topology: devices were not asked (docs/diagnosis.md)"
    try:
        return library.topology(given), None
    except DiagnosisError as error:
        return None, str(error)


def _ask(
    facts: Mapping[str, Any], topology: Topology, witnessed: str | None
) -> tuple[list[Request], str | None]:
    reason = None
    try:
        models, credentials = library.load(), library.credentials()
        kept = facts.get("counters")
        counters = None if kept is None else library.counters(str(kept))
        requests = []
        for each in pairs_to_ask(facts, witnessed):
            try:
                request = Request(
                    each["error"],
                    each["here"],
                    each["there"],
                    topology=topology,
                    models=models,
                    credentials=credentials,
                    port=each.get("port"),
                    age_s=float(each.get("age_s") or 0.0),
                    counters=counters,
                )
            except BadTopology as error:  # of this pair; others may be asked about
                reason = str(error)
                continue
            requests.append(request)
        if requests:
            query_all(requests, _within_s(facts), witnessed, _PATIENCE_S)
        return requests, reason
    except DiagnosisError as error:
        return [], str(error)


def _within_s(facts: Mapping[str, Any]) -> float:
    """What the answers of the hosts, and the start of this process, have left."""
    until_s = facts.get("until_s")
    left_s = WITHIN_S if until_s is None else float(until_s) - time.monotonic()
    return min(max(left_s, _LEAST_S), WITHIN_S)


# ---- witnesses -------------------------------------------------------------------------------------------


def _joined(facts: Mapping[str, Any], topology: Topology | None) -> Joined:
    names = sorted({host for one, other, _ in facts["said"] for host in (one, other)})
    numbers = {name: number for number, name in enumerate(names)}
    said = [Said(numbers[one], numbers[other], bool(heard)) for one, other, heard in facts["said"]]
    return join(said, dict(enumerate(names)), {} if topology is None else _ways(topology, names))


def _ways(topology: Topology, names: Sequence[str]) -> dict[tuple[str, str], list[str]]:
    """The switches between all pairs of hosts that are in the topology."""
    found: dict[tuple[str, str], list[str]] = {}
    known = [name for name in names if name in topology.host]
    for number, one in enumerate(known):
        for other in known[number + 1 :]:
            try:
                places = way(topology, one, other)
            except DiagnosisError:
                continue
            found[one, other] = [place.name for place in places if place.kind == "switch"]
    return found


def side(joined: Joined, said: Iterable[tuple[str, str, bool]]) -> str | None:
    """The one host that everything that may be the explanation is about; None: there is none such.

    Others have to have reached each other: who is alone with its word may be the one that is cut off, or not.
    """
    sides = {
        each.names[0] if len(found) == 1 and each.kind in _OF_A_HOST else None
        for found in joined.possible
        for each in found
    }
    host = sides.pop() if len(sides) == 1 else None
    return host if any(heard and host not in (one, other) for one, other, heard in said) else None


def _between(joined: Joined) -> list[str]:
    """Two hosts that only do not reach each other, or []."""
    ends = {
        tuple(sorted(each.names)) if len(found) == 1 and each.kind in ("pair", "direction") else ()
        for found in joined.possible
        for each in found
    }
    return list(ends.pop()) if len(ends) == 1 else []


def _witnesses(joined: Joined) -> dict[str, Any]:
    def text(found: Iterable[Any]) -> list[str]:
        return [f"{each.kind} {' '.join(each.names)}" for each in found]

    return {"named": text(joined.named), "possible": [text(each) for each in joined.possible[:_LISTED]]}


# ---- devices ---------------------------------------------------------------------------------------------


def pairs_to_ask(facts: Mapping[str, Any], witnessed: str | None) -> list[dict[str, Any]]:
    """A few of the errors: those with the host of which the witnesses speak first, and no peer twice before all others."""
    errors = [dict(each) for each in facts["lost"]]
    errors += [
        {"here": one, "there": other, "error": "silent"}
        for one, other, heard in facts["said"]
        if not heard and not any({one, other} == {each["here"], each["there"]} for each in errors)
    ]
    for host in facts["missing"]:
        heard = {one: word for one, other, word in facts["said"] if other == host}
        if heard and not any(host in (each["here"], each["there"]) for each in errors):
            errors.append({"here": min(heard), "there": host, "error": "reset"})
    for each in errors:
        if each["here"] == witnessed:
            each["here"], each["there"] = each["there"], each["here"]
            each.pop("port", None)
    # what is wrong with the host of which all of them speak began when the first of them noticed it
    ages_s = [
        float(each.get("age_s") or 0.0) for each in errors if witnessed in (each["here"], each["there"])
    ]
    for each in errors:
        if witnessed in (each["here"], each["there"]):
            each["age_s"] = max(ages_s)
    chosen: list[dict[str, Any]] = []
    of_pairs: set[tuple[str, str]] = set()
    of_peers: set[str] = set()
    errors.sort(key=lambda each: each["there"] != witnessed)
    for only_new in (True, False):
        for each in errors:
            pair = (min(each["here"], each["there"]), max(each["here"], each["there"]))
            if pair in of_pairs or (only_new and each["there"] in of_peers) or len(chosen) >= _MOST_PAIRS:
                continue
            of_pairs.add(pair)
            of_peers.add(each["there"])
            chosen.append(each)
    return chosen


def _hosts_of(requests: Sequence[Request], topology: Topology | None) -> list[str]:
    """The hosts at which the faults are; those of a switch, a trunk or a process are at none."""
    found: dict[str, None] = {}
    for request in requests:
        for fault in request.faults:
            place = request.graph.candidates[fault.id].place
            if place.kind not in ("process", "switch") and place.side != "between":
                found[request.here if place.side == "here" else request.there] = None
    return list(found)


def _merged(requests: Sequence[Request]) -> dict[str, Any]:
    """The answers of all requests as one: each element once; what one of them has found faulty is not unknown in another."""
    parts = [request.fields() for request in requests]
    merged: dict[str, Any] = {}
    taken: set[str] = set()
    for name in ("faults", "suspects", "consequences", "noted", "unknown"):
        rows = {row["id"]: row for part in parts for row in part[name] if row["id"] not in taken}
        taken |= rows.keys()
        merged[name] = list(rows.values())[:_LISTED]
    clear = dict.fromkeys(each for part in parts for each in part["clear"] if each not in taken)
    merged["unknown"] = [row for row in merged["unknown"] if row["id"] not in clear]
    merged["clear"] = list(clear)[:_LISTED]
    return merged


# ---- words -----------------------------------------------------------------------------------------------


def _text(
    facts: Mapping[str, Any],
    joined: Joined,
    witnessed: str | None,
    fields: Mapping[str, Any],
    between: Sequence[str],
) -> str:
    parts = [row["text"] for row in fields["faults"]]
    parts += [f"suspected: {row['text']}" for row in fields["suspects"] if not parts]
    silent = [(one, other) for one, other, heard in facts["said"] if not heard]
    if facts.get("slow"):
        parts += [f"noted: {row['text']}" for row in fields["noted"] if not fields["faults"]][:_MOST_CHOICES]
        return "; ".join([*parts, _slow_text(silent, witnessed, between)])
    reached = sum(1 for _, _, heard in facts["said"] if heard)
    if witnessed is not None:
        others = sorted({a if b == witnessed else b for a, b in silent if witnessed in (a, b)})
        shown = ", ".join(others[:_MOST_PAIRS])
        more = f" and {len(others) - _MOST_PAIRS} others" if len(others) > _MOST_PAIRS else ""
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
    if not parts and facts["missing"]:
        how = "its network answers" if reached else "nobody could tell why"
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
            f"connections of host {witnessed} are slow, to {', '.join(others[:_MOST_PAIRS])}; others are not"
        )
    if between:
        return f"the connection between {between[0]} and {between[1]} is slow; others of both are not"
    shown = ", ".join(f"{a} and {b}" for a, b in slow[:_MOST_PAIRS] if a < b)
    return f"connections are slow, between {shown}"


def _pairs(pairs: Sequence[tuple[str, str]]) -> str:
    shown = ", ".join(f"{one} does not reach {other}" for one, other in pairs[:_MOST_PAIRS])
    return shown + (f", and {len(pairs) - _MOST_PAIRS} more pairs" if len(pairs) > _MOST_PAIRS else "")

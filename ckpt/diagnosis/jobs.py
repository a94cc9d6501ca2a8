"""One diagnosis for a job whose hosts have lost each other: what all hosts say of each other, and what devices say. (driver)

    facts     {"said": [[observer, peer, heard], …], "lost": [{"here", "there", "error", "age_s", "port", "accepts"}, …],
               "missing": [host, …], "topology": PATH | null, "counters": PATH | null, "wanted": bool, "slow": bool,
               "addresses": {host: its address in the network of the job} | not there,
               "until_s": the clock (monotonic) when all of it is to end | not there}
    record    {"text", "hosts", "between", "witnesses", "faults", "suspects", "consequences", "noted", "unknown", "clear",
               "reason", "seconds"}

`said`: which host has (not) reached which other one just now, by a connection to its agent's port. `lost`: the errors that
ranks got, or would get, with our names of errors; `accepts`: the peer's host accepts connections, and what is sent over them
does not arrive. With `slow`, pairs that are slow take the places of both. `missing`: hosts
that have not been heard of. Names are those of the job. `counters`: the
file of what counters were at the start of the job, if they were read.

1. Witnesses (`witnesses.join`) say whose side it is, without any query. With three hosts or more this is often enough.
2. If there is a topology, the ways between a few pairs are asked about, all at once (`manager.query_all`). Without one, this
   machine is asked about its ways to a few hosts, if it is one of the job's (`library.among`).
3. `hosts`: who is at fault. The witnesses' word comes first: a device that is not well somewhere else is said, and is
   not the reason. Nothing is named where several explanations are left.

What takes long on a busy machine, and does not depend on what the hosts say, is done while they are asked (`Preparation`):
to read the files, and to start the processes that will ask. Nothing is asked before: a device asked before the fault
had reached it would be called clear. Files that cannot be read in time (a file system that hangs) are not waited for.

Not here: how the controller comes to the facts, and what it does with the record; texts (`report`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ckpt.diagnosis import library
from ckpt.diagnosis.asking import Ready
from ckpt.diagnosis.credentials import Credentials
from ckpt.diagnosis.errors import BadTopology, DiagnosisError
from ckpt.diagnosis.growth import Counters
from ckpt.diagnosis.manager import WITHIN_S, Request, query_all
from ckpt.diagnosis.models import Model
from ckpt.diagnosis.report import text_of
from ckpt.diagnosis.topology import Topology, way
from ckpt.diagnosis.witnesses import Joined, Said, join

__all__ = ["Preparation", "locate", "pairs_to_ask", "side", "witnessed_only"]

_MOST_PAIRS = 4
_OF_A_HOST = ("host", "sending", "receiving")
_LISTED = 40
_LEAST_S = 0.3  # with less, devices are not asked any more
_PREPARED_PAIRS = 2
_PATIENCE_S = 0.3  # a job waits: what else may be wrong with a host that is named already, a person may ask


@dataclass
class _Files:
    """The user's files. `topology`: None if there is none, for the `reason`. `own`: this machine's name in the job, where
    there is no topology and only it can be asked."""

    topology: Topology | None = None
    reason: str | None = None
    models: tuple[Model, ...] = ()
    credentials: Credentials = field(default_factory=Credentials)
    counters: Counters | None = None
    own: str | None = None


class Preparation:
    """What is done before the hosts have answered, in a thread. `facts`: as of `locate`, as far as they are known: without
    `said`."""

    def __init__(self, facts: Mapping[str, Any]) -> None:
        self.ready = Ready()
        self._facts = facts
        self._files = _Files()
        self._failure: BaseException | None = None
        self._is_loaded = threading.Event()
        threading.Thread(target=self._run, daemon=True).start()  # a file system may hang

    def files(self, within_s: float) -> _Files:
        """What the files say; for their failures there is a `reason`."""
        self._is_loaded.wait(max(within_s, 0.0))
        if self._failure is not None:
            raise self._failure
        if not self._is_loaded.is_set():
            return _Files(reason="the files of the topology and the models could not be read in time")
        return self._files

    def _run(self) -> None:
        try:
            self._files = _load(self._facts)
            self._is_loaded.set()
            known = {"said": [], **self._facts}
            for request in _requests(known, self._files, None)[0][:_PREPARED_PAIRS]:
                self.ready.start(request.questions())
        except BaseException as error:  # a fault of ours: it is raised where the files are wanted
            self._failure = error
            self._is_loaded.set()


def _load(facts: Mapping[str, Any]) -> _Files:
    given = facts.get("topology")
    files = _Files()
    try:
        if library.has_topology(given):
            files.topology = library.topology(given)
            kept = facts.get("counters")
            files.counters = None if kept is None else library.counters(str(kept))
        else:
            files.reason = "there is no topology: no device but this machine was asked (docs/diagnosis.md)"
            files.topology, files.own = library.among(facts.get("addresses") or {})
            if files.own is None:
                files.reason = "there is no topology: devices were not asked (docs/diagnosis.md)"
        if files.topology is not None and facts.get("wanted", True):
            files.models, files.credentials = library.load(), library.credentials()
    except DiagnosisError as error:
        return _Files(reason=str(error))
    return files


def locate(facts: Mapping[str, Any], prepared: Preparation | None = None) -> dict[str, Any]:
    """The record. Raises nothing because of what is missing or wrong in the user's files: that is the record's `reason`."""
    began = time.monotonic()
    prepared = prepared or Preparation(facts)
    try:
        files = prepared.files(_within_s(facts))
        joined = _joined(facts, None if files.own else files.topology)
        witnessed = side(joined, facts["said"])
        requests: list[Request] = []
        reason = files.reason
        if files.topology is not None and facts["wanted"]:
            requests, why_not = _ask(facts, files, witnessed, prepared.ready)
            reason = why_not or reason
    finally:
        prepared.ready.end()
    record = _record(facts, joined, witnessed, requests)
    return {**record, "reason": reason, "seconds": round(time.monotonic() - began, 3)}


def witnessed_only(facts: Mapping[str, Any]) -> dict[str, Any]:
    """The record of what hosts say of each other alone, which takes no time: for where nothing else comes."""
    joined = _joined(facts, None)
    record = _record(facts, joined, side(joined, facts["said"]), [])
    return {**record, "reason": "devices have not answered in time", "seconds": 0.0}


def _record(
    facts: Mapping[str, Any], joined: Joined, witnessed: str | None, requests: Sequence[Request]
) -> dict[str, Any]:
    fields = _merged(requests)
    between = _between(joined)
    return {
        "text": text_of(facts, joined, witnessed, fields, between),
        "hosts": [witnessed] if witnessed else _hosts_of(requests),
        "between": between,
        "witnesses": _witnesses(joined),
        **fields,
    }


def _requests(
    facts: Mapping[str, Any], files: _Files, witnessed: str | None
) -> tuple[list[Request], str | None]:
    """What is to be asked, and why some of it is not."""
    reason, requests = None, []
    errors = pairs_to_ask(facts, witnessed)
    if files.own is not None:
        errors = _from_here(errors, files.own, witnessed)
    for each in errors if files.topology is not None else ():
        try:
            request = Request(
                each["error"],
                each["here"],
                each["there"],
                topology=files.topology,
                models=files.models,
                credentials=files.credentials,
                port=each.get("port"),
                age_s=float(each.get("age_s") or 0.0),
                counters=files.counters,
            )
        except BadTopology as error:  # of this pair; others may be asked about
            reason = str(error)
            continue
        requests.append(request)
    return requests, reason


def _from_here(errors: Iterable[dict[str, Any]], own: str, witnessed: str | None) -> list[dict[str, Any]]:
    """Without a topology: the ways from this machine to those that these errors are about."""
    found: dict[str, dict[str, Any]] = {}
    for each in errors:
        ends = [each["there"], each["here"]]
        if own not in ends and witnessed not in ends:
            continue  # what is between two others this machine does not know
        peer = next((end for end in ends if end == witnessed and end != own), None)
        peer = peer or next(end for end in ends if end != own)
        error = each["error"] if each["here"] == own else "silent"
        found.setdefault(peer, {"here": own, "there": peer, "error": error, "age_s": each.get("age_s")})
    return list(found.values())


def _ask(
    facts: Mapping[str, Any], files: _Files, witnessed: str | None, ready: Ready
) -> tuple[list[Request], str | None]:
    try:
        requests, reason = _requests(facts, files, witnessed)
        within_s = _within_s(facts)
        if requests and within_s < _LEAST_S:
            return [], "no time was left to ask devices"
        if requests:
            query_all(requests, within_s, witnessed, _PATIENCE_S, ready)
        return requests, reason
    except DiagnosisError as error:
        return [], str(error)


def _within_s(facts: Mapping[str, Any]) -> float:
    """What the answers of the hosts, and the start of this process, have left."""
    until_s = facts.get("until_s")
    left_s = WITHIN_S if until_s is None else float(until_s) - time.monotonic()
    return min(max(left_s, 0.0), WITHIN_S)


# ---- witnesses -------------------------------------------------------------------------------------------


def _joined(facts: Mapping[str, Any], topology: Topology | None) -> Joined:
    names = sorted({host for one, other, _ in facts["said"] for host in (one, other)})
    numbers = {name: number for number, name in enumerate(names)}
    said = [Said(numbers[one], numbers[other], bool(heard)) for one, other, heard in facts["said"]]
    # Where the wiring is not known, nobody knows which hosts share a switch, either.
    ways = {} if topology is None or not topology.wired else _ways(topology, facts["said"])
    return join(said, dict(enumerate(names)), ways)


def _ways(topology: Topology, said: Iterable[tuple[str, str, bool]]) -> dict[tuple[str, str], list[str]]:
    """The switches between the pairs of hosts that were spoken of, and are in the topology. Looked for once for each pair of
    switches: with hundreds of hosts, once for each pair of hosts takes longer than a diagnosis may."""
    found: dict[tuple[str, str], list[str]] = {}
    known: dict[tuple[str | None, str | None], list[str]] = {}
    for one, other in {(min(pair), max(pair)) for pair in ((a, b) for a, b, _ in said)}:
        if one not in topology.host or other not in topology.host:
            continue
        ends = topology.host[one].switch, topology.host[other].switch
        if None not in ends and ends in known and topology.doubtful.keys().isdisjoint((one, other)):
            found[one, other] = known[ends]
            continue
        try:
            places = way(topology, one, other)
        except DiagnosisError:
            continue
        found[one, other] = [place.name for place in places if place.kind == "switch"]
        known[ends] = found[one, other]
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


def _hosts_of(requests: Sequence[Request]) -> list[str]:
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

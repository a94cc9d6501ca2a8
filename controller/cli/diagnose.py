"""`ckpt diagnose`: which cable, port, fan, host or process is behind an error of the network.

The diagnosis is in `ckpt.diagnosis`. Here are the verb, where its files are looked for, and the text for people.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ckpt.controller.cli.common import show
from ckpt.controller.errors import EXIT_FAILURE, EXIT_OK, UsageError
from ckpt.diagnosis import checking, library, report
from ckpt.diagnosis.errors import DiagnosisError
from ckpt.diagnosis.growth import Counters
from ckpt.diagnosis.manager import Request
from ckpt.diagnosis.models import Model
from ckpt.diagnosis.topology import Topology


def diagnose(arguments: argparse.Namespace) -> int:
    """Exit code 0: a fault is named or suspected, or, with --check, everything answers, or, with --lldp,
    nothing contradicts or is missing, or, with --baseline, all tell their counters; 1: not so; 2: cannot be asked."""
    if arguments.keep is not None and not (arguments.lldp or arguments.baseline):
        raise UsageError("--keep is for --lldp and --baseline: ckpt diagnose --lldp --keep FILE.json")
    if arguments.lldp:
        return _lldp(arguments)
    others = (arguments.check, arguments.list, arguments.explain, arguments.baseline)
    if len(arguments.hosts) == 1 and not any(others):
        return _of_job(arguments.hosts[0], as_json=arguments.json)
    try:
        models = library.load([Path(arguments.models)] if arguments.models else [])
        if arguments.list:
            return _list(models, arguments.json)
        if arguments.explain is not None:
            return _explain(models, arguments.explain, arguments.json)
        if arguments.baseline:
            return _baseline(models, arguments)
        return _check(models, arguments) if arguments.check else _diagnose(models, arguments)
    except DiagnosisError as error:
        raise UsageError(str(error)) from None


def _of_job(path: str, *, as_json: bool) -> int:
    """What was found when the job lost a rank or a host for the last time. Raises NoSuchJob."""
    from ckpt.controller.supervision import past
    from ckpt.store import JobDirectory

    if not os.path.isdir(path):
        raise UsageError(f"{path} is no job directory; between two hosts: ckpt diagnose n1 n7")
    job = JobDirectory.open(path)
    history, trouble = past.known(job, job.record())
    if trouble is not None:
        raise trouble
    found = history.fault
    if found is None:
        text = f"{job.path}: no rank of this job was lost to the network, and no host"
        show({"found": False, "exit_code": EXIT_FAILURE, "text": text}, text, as_json=as_json)
        return EXIT_FAILURE
    is_found = bool(
        found.get("hosts") or found.get("between") or found.get("faults") or found.get("suspects")
    )
    code = EXIT_OK if is_found else EXIT_FAILURE
    show({**found, "found": is_found, "exit_code": code}, report.located_as_text(found), as_json=as_json)
    return code


def _list(models: Sequence[Model], as_json: bool) -> int:
    rows = report.listing(models)
    width = max(len(row["fault"]) for row in rows)
    text = "\n".join(f"{row['fault']:<{width}}  {row['text']}" for row in rows)
    show({"faults": rows}, text, as_json=as_json)
    return EXIT_OK


def _explain(models: Sequence[Model], fault: str, as_json: bool) -> int:
    found = report.explain(models, fault)
    out = [f"{found['fault']}: {found['text']}"]
    for title, key in (("may be caused by", "causes"), ("may cause", "effects")):
        out.append(f"{title}:" if found[key] else f"{title}: nothing that there is a model for")
        out += _tree(found[key], "  ")
    for title, key in (("hides", "hides"), ("hidden by", "hidden_by")):
        out.append(f"{title}: {', '.join(found[key]) or 'nothing'}")
    show(found, "\n".join(out), as_json=as_json)
    return EXIT_OK


def _tree(nodes: dict[str, Any], indent: str) -> list[str]:
    return [
        line for name, below in nodes.items() for line in (f"{indent}{name}", *_tree(below, indent + "  "))
    ]


def _diagnose(models: Sequence[Model], arguments: argparse.Namespace) -> int:
    if len(arguments.hosts) != 2:
        raise UsageError("name two hosts: the one that got the error, and its peer (ckpt diagnose n1 n7)")
    here, there = arguments.hosts
    is_known = library.has_topology(arguments.topology)
    request = Request(
        arguments.error,
        here,
        there,
        topology=library.topology(arguments.topology) if is_known else library.between(here, there),
        models=models,
        credentials=library.credentials(arguments.credentials),
        port=arguments.port,
        age_s=arguments.age,
        counters=_counters(arguments.counters),
    )
    with request:
        request.query()
    found = {**request.fields(), "reason": None if is_known else _why_not_asked(request.topology)}
    code = EXIT_OK if found["found"] else EXIT_FAILURE
    told = found
    if not is_known:  # what a topology is needed for is one line
        told = {**found, "unknown": _without_topology(found["unknown"])}
    show({**found, "exit_code": code}, report.as_text(told), as_json=arguments.json)
    return code


def _without_topology(unknown: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Those of which somebody was asked, with what that one has said."""
    rows = []
    for row in unknown:
        said = [part for part in str(row["reason"]).split("; ") if " the topology " not in part]
        if said:
            rows.append({**row, "reason": "; ".join(said)})
    return rows


def _why_not_asked(topology: Topology) -> str:
    if any(host.shell is not None for host in topology.host.values()):
        return library.NO_TOPOLOGY
    own = socket.gethostname()
    return f"this machine ({own}) is neither of the two: run it on one of them; {library.NO_TOPOLOGY}"


def _check(models: Sequence[Model], arguments: argparse.Namespace) -> int:
    is_known = library.has_topology(arguments.topology)
    if is_known:
        if len(arguments.hosts) > 1:
            raise UsageError("with --check name the host from which is asked, or none")
        where = library.topology(arguments.topology)
        own = socket.gethostname().partition(".")[0]
        here = arguments.hosts[0] if arguments.hosts else own if own in where.host else min(where.host)
    elif arguments.hosts:
        if len(arguments.hosts) > 2:
            raise UsageError("with --check and without a topology name one other host, or two, or none")
        here, there = ["localhost", *arguments.hosts][-2:]
        where = library.between(here, there)
    else:
        where, here, _ = library.of_this_machine()
    secrets = library.credentials(arguments.credentials)
    found = checking.check(where, models, secrets, here)
    told = found
    if not is_known:
        found["reason"] = _why_not_asked(where)
        told = {**found, "not_asked": []}
    code = EXIT_OK if found["asked"] and all(row["answers"] for row in found["asked"]) else EXIT_FAILURE
    show({**found, "exit_code": code}, checking.as_text(told), as_json=arguments.json)
    return code


def _lldp(arguments: argparse.Namespace) -> int:
    """Compare, and keep."""
    from ckpt.diagnosis.lldp.survey import survey

    _check_words("--lldp", arguments)
    try:
        found = survey(library.topology(arguments.topology), library.credentials(arguments.credentials))
    except DiagnosisError as error:
        raise UsageError(str(error)) from None
    if arguments.keep is not None:
        _keep(arguments.keep, found["topology"])
    is_well = found["answered"] and not (found["contradictions"] or found["missing"])
    code = EXIT_OK if is_well else EXIT_FAILURE
    show({**found, "exit_code": code}, found["text"], as_json=arguments.json)
    return code


def _baseline(models: Sequence[Model], arguments: argparse.Namespace) -> int:
    """Read the counters of all devices, as a job does when it starts, and keep them."""
    from ckpt.diagnosis.baseline.survey import survey

    _check_words("--baseline", arguments)
    topology, secrets = library.topology(arguments.topology), library.credentials(arguments.credentials)
    found = survey(topology, models, secrets)
    if arguments.keep is not None:
        _keep(arguments.keep, found["counters"])
    out = [f"{len(found['counters'])} of {found['asked']} interfaces and ports tell their counters"]
    out += [f"no answer  {each['machine']}: {each['reason']}" for each in found["silent"]]
    code = EXIT_OK if found["counters"] and not found["silent"] else EXIT_FAILURE
    show({**found, "exit_code": code}, "\n".join(out), as_json=arguments.json)
    return code


def _counters(given: str | None) -> Counters | None:
    """What counters were then: in a file, or in the directory of a job that has read them. Raises UsageError."""
    if given is None:
        return None
    path = given
    if os.path.isdir(given):
        kept = sorted(Path(given, "output").glob("counters-*.json"))
        if len(kept) != 1:
            several = (
                f"several ({', '.join(map(str, kept))}): name one" if kept else "none (docs/diagnosis.md)"
            )
            raise UsageError(
                f"--counters {given}: of the counters at the start of this job there are {several}"
            )
        path = str(kept[0])
    found = library.counters(path)
    if found is None:
        raise UsageError(
            f"--counters {path}: this is no file of counters; make one: ckpt diagnose --baseline --keep FILE.json"
        )
    return found


def _check_words(option: str, arguments: argparse.Namespace) -> None:
    if arguments.hosts:
        raise UsageError(f"{option} asks all hosts and switches of the topology: name no hosts")
    if arguments.keep is not None and not arguments.keep.endswith(".json"):
        raise UsageError(f"--keep {arguments.keep}: this is written as JSON, so its name has to end in .json")


def _keep(path: str, content: Mapping[str, Any]) -> None:
    from ckpt.store.disk.replacing import replace_file

    try:
        replace_file(path, json.dumps(content, indent=1).encode() + b"\n", mode=0o666)
    except OSError as error:
        raise UsageError(f"--keep {path}: {error.strerror}") from None

"""Asks all machines of a topology, once, while all is well, what they hear of each other by LLDP; and compares. (driver)

    found    {"topology", "places", "contradictions", "missing", "answered", "silent": [{"machine", "reason"}, …],
              "seconds", "text"}

Switches are asked by SNMP, and themselves if they have a shell; hosts themselves: those with a shell, and this machine. No
address of a switch is taken from LLDP: whoever plugs in a cable could have our credentials sent to an address of his.

`for_job`: the same for a job, from and to JSON (`python -m ckpt.diagnosis.lldp`).
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from ckpt.diagnosis import library
from ckpt.diagnosis.asking import Question, ask
from ckpt.diagnosis.credentials import Credentials
from ckpt.diagnosis.errors import DiagnosisError, NoAnswer
from ckpt.diagnosis.lldp.compare import Compared, Table, compare, rows_of
from ckpt.diagnosis.topology import Topology

__all__ = ["for_job", "survey"]

_WITHIN_S = 15.0
"""Nothing has failed, and nobody waits: more than a diagnosis has, for switches that are slow with large tables."""


def survey(topology: Topology, credentials: Credentials, within_s: float = _WITHIN_S) -> dict[str, Any]:
    """Ask, within so many seconds, and compare."""
    began = time.monotonic()
    asked, silent = _questions(topology)
    replies = ask([each for each, _, _ in asked], credentials, within_s)
    tables: list[Table] = []
    reasons: dict[str, list[str]] = {name: [reason] for name, reason in silent}
    for question, machine, is_switch in asked:
        reply = replies[question]
        try:
            if reply.reason:
                raise NoAnswer(reply.reason)
            tables.append(Table(machine, is_switch, rows_of(str(reply.values.get("neighbours")))))
        except NoAnswer as error:
            reasons.setdefault(machine, []).append(str(error))
    answered = {table.machine for table in tables}
    compared = compare(topology, tables)
    rows = [
        {"machine": name, "reason": "; ".join(each)} for name, each in reasons.items() if name not in answered
    ]
    return {
        "topology": compared.topology.model_dump(mode="json", exclude_defaults=True),
        "places": list(compared.places),
        "contradictions": list(compared.contradictions),
        "missing": list(compared.missing),
        "answered": sorted(answered),
        "silent": rows,
        "seconds": round(time.monotonic() - began, 3),
        "text": _text(compared, rows),
    }


def _questions(topology: Topology) -> tuple[list[tuple[Question, str, bool]], list[tuple[str, str]]]:
    """Each question with the machine and whether that is a switch; and the machines that cannot be asked."""
    asked: list[tuple[Question, str, bool]] = []
    silent: list[tuple[str, str]] = []
    for name, switch in topology.switch.items():
        if switch.snmp:
            arguments = json.dumps({"address": ",".join(switch.snmp), "table": "lldp"}, sort_keys=True)
            asked.append((Question("", (), sys.executable, "snmp", arguments), name, True))
        if switch.shell is not None:
            words = switch.shell, switch.python or sys.executable
            asked.append((Question(name, *words, "lldp", _local(switch.names)), name, True))
        if not switch.snmp and switch.shell is None:
            silent.append((name, "the topology gives it neither snmp nor shell"))
    for name, host in topology.host.items():
        if library.is_this_machine(name):
            asked.append((Question(name, (), sys.executable, "lldp", _local(host.names)), name, False))
        elif host.shell is not None:
            words = host.shell, host.python or sys.executable
            asked.append((Question(name, *words, "lldp", _local(host.names)), name, False))
    return asked, silent


def _local(names: Mapping[str, str]) -> str:
    """The arguments of the handler `lldp`."""
    return json.dumps({"socket": names["lldp_socket"]} if "lldp_socket" in names else {})


def _text(compared: Compared, silent: Sequence[Mapping[str, str]]) -> str:
    out = [f"{'':<14} {each}" for each in compared.places]
    out += [f"{'contradiction':<14} {each}" for each in compared.contradictions]
    out += [f"{'missing':<14} {each}" for each in compared.missing]
    out += [f"{'no answer':<14} {each['machine']}: {each['reason']}" for each in silent]
    return "\n".join(out)


def for_job(facts: Mapping[str, Any]) -> dict[str, Any]:
    """`facts`: {"lldp": PATH}. Raises nothing because of the user's files: that is {"reason": …}."""
    try:
        return survey(library.topology(str(facts["lldp"])), library.credentials())
    except DiagnosisError as error:
        return {"reason": str(error)}

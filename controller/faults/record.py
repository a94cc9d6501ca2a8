"""What was located, as a record for other tools: in the form of the Kubernetes node-problem-detector. Pure.

A line of JSON for each host, its `Status` with the name of the host:

    {"node", "source": "ckpt", "events": [],
     "conditions": [{"type": "NetworkFault", "status", "transition", "reason", "message"}]}

`status`: "True": a fault is located there; "False": the host is back. A fault that is at no host (a trunk, two hosts that do
not reach each other) is an event without a condition, of the node null:

    {"node": null, "source": "ckpt", "events": [{"severity": "warn", "timestamp", "reason", "message"}], "conditions": []}

`reason` is one word, made of the name of the fault: `CableDarkAtPort`; `NoNetworkFault` for a host that is back.

Source: github.com/kubernetes/node-problem-detector, pkg/types.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["is_back", "statuses"]

_SOURCE, _TYPE = "ckpt", "NetworkFault"


def statuses(located: Mapping[str, Any], time: str) -> list[dict[str, Any]]:
    """The lines for what was located (the event `fault-located`). None if nothing is named. `time`: ISO 8601, UTC."""
    text, faults = str(located["text"]), list(located["faults"])
    reason = _word(str(faults[0]["fault"])) if faults else "HostNotReached"
    if located["hosts"]:
        return [_condition(str(host), "True", time, reason, text) for host in located["hosts"]]
    if not (faults or located["between"]):
        return []
    event = {"severity": "warn", "timestamp": time, "reason": reason, "message": text}
    return [{"node": None, "source": _SOURCE, "events": [event], "conditions": []}]


def is_back(host: str, time: str) -> dict[str, Any]:
    """The line for a host that is heard again."""
    return _condition(host, "False", time, "NoNetworkFault", f"host {host} is heard again")


def _condition(host: str, status: str, time: str, reason: str, message: str) -> dict[str, Any]:
    fields = {"status": status, "transition": time, "reason": reason, "message": message}
    return {"node": host, "source": _SOURCE, "events": [], "conditions": [{"type": _TYPE, **fields}]}


def _word(fault: str) -> str:
    """`cable.dark-at-port` → `CableDarkAtPort`."""
    return "".join(part.capitalize() for part in fault.replace(".", "-").split("-"))

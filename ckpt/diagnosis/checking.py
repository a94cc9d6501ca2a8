"""`ckpt diagnose --check`: models, topology, credentials; who answers, and how fast; what cannot be asked, and why.

To be run before a fault: what does not answer while all is well says nothing when something is not. Every question
is asked once, for all hosts of the topology.

    found    {"models", "hosts", "switches", "credentials", "here", "asked", "not_asked"}
    asked    [{"source", "machine", "answers", "reason", "after_s"}, …]; not_asked [{"faults", "place", "reason"}, …]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ckpt.diagnosis.asking import ask
from ckpt.diagnosis.credentials import Credentials
from ckpt.diagnosis.errors import BadTopology, NoAnswer
from ckpt.diagnosis.manager import WITHIN_S, Request, question
from ckpt.diagnosis.models import Model
from ckpt.diagnosis.topology import Topology

__all__ = ["as_text", "check"]


def check(topology: Topology, models: Sequence[Model], credentials: Credentials, here: str) -> dict[str, Any]:
    """Ask everything once, as for an error between `here` and every other host. Raises BadTopology."""
    topology.of(here)
    requests = [
        Request("silent", here, there, topology=topology, models=models, credentials=credentials)
        for there in topology.host
        if there != here
    ]
    if not requests:
        raise BadTopology("the topology has one host only; there is nothing between hosts to look at")
    replies = ask([each for request in requests for each in request.questions()], credentials, WITHIN_S)
    asked = [
        {
            "source": each.source,
            "machine": each.machine,
            "answers": bool(reply.values),
            "reason": reply.reason,
            "after_s": round(reply.after_s, 3),
        }
        for each, reply in replies.items()
    ]
    return {
        "models": len(models),
        "hosts": len(topology.host),
        "switches": len(topology.switch),
        "credentials": list(credentials.parts()),
        "here": here,
        "asked": asked,
        "not_asked": _not_asked(requests),
    }


def _not_asked(requests: Sequence[Request]) -> list[dict[str, Any]]:
    """Faults for which there is no source at all, with the reason: no controller, no shell, …"""
    found: dict[tuple[str, str], dict[str, None]] = {}
    for request in requests:
        for candidate in request.graph.candidates.values():
            reasons = []
            for query in candidate.element.queries:
                try:
                    question(request.topology, request.here, candidate, query)
                except NoAnswer as error:
                    reasons.append(f"{query.handler}: {error}")
            if len(reasons) == len(candidate.element.queries):
                found.setdefault((candidate.place.name, "; ".join(reasons)), {})[candidate.fault] = None
    return [
        {"faults": list(faults), "place": place, "reason": reason}
        for (place, reason), faults in found.items()
    ]


def as_text(found: Mapping[str, Any]) -> str:
    """For people."""
    known = ", ".join(found["credentials"]) or "none"
    out = [
        f"{found['models']} models, {found['hosts']} hosts, {found['switches']} switches, credentials for: {known}"
    ]
    rows: dict[tuple[str, str], list[float]] = {}
    for row in found["asked"]:
        rows.setdefault((row["source"], row["reason"]), []).append(row["after_s"])
    for (source, reason), times in sorted(rows.items()):
        times_text = f"{max(times):.2f} s"
        out.append(
            f"{'no answer' if reason else 'answers':<10} {source} ({times_text}){': ' + reason if reason else ''}"
        )
    out += [
        f"{'not asked':<10} {row['place']}: {', '.join(row['faults'])}: {row['reason']}"
        for row in found["not_asked"]
    ]
    if found.get("reason"):
        out.append(f"{'not asked':<10} {found['reason']}")
    return "\n".join(out)

"""Reads the counters of all devices of a topology once, while all is well: what they were at the start of a job. (driver)

    found    {"counters": {QUESTION: {NAME: NUMBER}}, "asked", "silent": [{"machine", "reason"}, …], "seconds"}

or {"reason"}. What is read is what the models' queries of counters (`grown = true`) ask for, of every interface, port and
trunk. Machines are asked `_TOGETHER` at a time: nobody waits.

`for_job`: the same for a job, from and to JSON (`python -m ckpt.diagnosis.baseline`).
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ckpt.diagnosis import library
from ckpt.diagnosis.asking import Question, Reply, ask
from ckpt.diagnosis.credentials import Credentials
from ckpt.diagnosis.errors import BadTopology, DiagnosisError
from ckpt.diagnosis.errors_map import STEPS
from ckpt.diagnosis.graph import build
from ckpt.diagnosis.growth import only_counters
from ckpt.diagnosis.handlers.face import HANDLERS
from ckpt.diagnosis.manager import questions_of
from ckpt.diagnosis.models import Model
from ckpt.diagnosis.topology import Topology, way

__all__ = ["for_job", "survey"]

_WITHIN_S = 10.0
_TOGETHER = 32
_LONGEST_PAUSE_S = 60.0


def survey(topology: Topology, models: Sequence[Model], credentials: Credentials) -> dict[str, Any]:
    """Ask all of them, once."""
    began = time.monotonic()
    questions = _questions(topology, only_counters(models))
    by_machine: dict[tuple[str, str], list[Question]] = {}
    for each in questions:
        by_machine.setdefault((each.machine, "" if each.machine else each.address), []).append(each)
    counters: dict[str, dict[str, float]] = {}
    silent: dict[str, str] = {}
    machines = list(by_machine.values())
    pause_s = min(max((switch.cache_s for switch in topology.switch.values()), default=0.0), _LONGEST_PAUSE_S)
    for start in range(0, len(machines), _TOGETHER):
        together = [each for of_one in machines[start : start + _TOGETHER] for each in of_one]
        for question, reply in _ask_twice(together, credentials, pause_s).items():
            numbers = {name: value for name, value in reply.values.items() if isinstance(value, float)}
            if numbers:
                counters[question.key] = numbers
            else:
                silent[question.source] = reply.reason or "tells no numbers"
    return {
        "counters": counters,
        "asked": len(questions),
        "silent": [{"machine": name, "reason": reason} for name, reason in silent.items()],
        "seconds": round(time.monotonic() - began, 3),
    }


def _ask_twice(
    questions: Sequence[Question], credentials: Credentials, pause_s: float
) -> dict[Question, Reply]:
    """An agent that has just started says 0 until its cache is filled: what caches tell is asked once more."""
    replies = ask(questions, credentials, _WITHIN_S)
    again = [each for each, reply in replies.items() if HANDLERS[each.handler].cached and not reply.reason]
    if again:
        time.sleep(pause_s)
        replies |= ask(again, credentials, _WITHIN_S)
    return replies


def _questions(topology: Topology, models: Sequence[Model]) -> list[Question]:
    """Of every place on the ways between hosts: each host once, and all pairs of switches."""
    found: dict[Question, None] = {}
    for here, there in _pairs(topology):
        try:
            places = way(topology, here, there)
        except BadTopology:  # doubtful, or not connected: a diagnosis says so, too
            continue
        for error in STEPS:
            for each in questions_of(topology, here, build(models, error, places)):
                found[each] = None
    return list(found)


def _pairs(topology: Topology) -> Iterator[tuple[str, str]]:
    hosts = list(topology.host)
    # each host with its neighbour in the list, so that the doubts about one concern two pairs only
    yield from itertools.pairwise(hosts)
    first_of = {host.switch: name for name, host in reversed(topology.host.items())}
    yield from itertools.combinations(first_of.values(), 2)


def for_job(request: Mapping[str, Any]) -> dict[str, Any]:
    """`found`. Raises nothing because of what is missing or wrong in the user's files: that is the `reason`."""
    try:
        return survey(library.topology(request["counters"]), library.load(), library.credentials())
    except DiagnosisError as error:
        return {"reason": str(error)}

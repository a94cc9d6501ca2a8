"""One diagnosis: from an error between two hosts to what is at fault. The paper's Detection Manager and Detection
Interface.

    with Request("ETIMEDOUT", here="n1", there="n7") as request:
        request.query()
        request.faults, request.suspects, request.unknown

1. The error and the way give the graph of candidates (`graph`); the queries of its elements become questions.
2. All questions are asked at once (`asking`), each once, however many elements or requests want it (`query_all`).
3. The values give findings, the findings the verdict (`verdict`).
4. Agents of switches answer from caches: "clear" counts only if it is newer than the fault (`age_s`, `cache_s`). If
   nothing was found, or something is suspected and such an answer was among the causes, it is asked once more, unless
   another error of the same diagnosis has explained it.

5. Who has not answered is not waited for when all that is named is final (`verdict.settled`), or when witnesses have named
   a host (`mute`) and nobody else is waited for: it may take some time to answer (`patience_s`, `_MUTE_S`), and does not.
   Its management controller has longer, once it has answered anything (`_TALKING_S`): what it says later may be the cause.

A whole diagnosis ends within `within_s` seconds, whatever does not answer. Nothing is ever written to a device.

Not here: texts (`report`).
"""

from __future__ import annotations

import json
import re
import socket
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from types import TracebackType
from typing import Any

from ckpt.diagnosis import library
from ckpt.diagnosis.asking import Question, Ready, Reply, ask
from ckpt.diagnosis.credentials import Credentials
from ckpt.diagnosis.errors import DiagnosisError, NoAnswer
from ckpt.diagnosis.errors_map import error_name
from ckpt.diagnosis.graph import Candidate, Graph, Place, build
from ckpt.diagnosis.growth import Counters, grown, without_counters
from ckpt.diagnosis.handlers.face import HANDLERS
from ckpt.diagnosis.models import Element, Model, Query
from ckpt.diagnosis.report import as_fields
from ckpt.diagnosis.topology import Topology, way
from ckpt.diagnosis.verdict import (
    Answer,
    Fault,
    Finding,
    Hidden,
    State,
    Suspect,
    Verdict,
    conclude,
    judge,
    settled,
)

__all__ = ["PATIENCE_S", "WITHIN_S", "Request", "query_all", "question", "questions_of"]

WITHIN_S = 5.0
_RESERVE_S = 1.0  # for what comes after the answers; of less time, a fifth
_AGAIN_AFTER_S = 1.5
PATIENCE_S = 2.0
"""For answers that cannot take back what is named, where nothing waits for the diagnosis but a person."""
_MUTE_S = 1.5  # for those of a host that others do not reach
_TALKING_S = 2.5  # for what its management controller has still to say
_AGAIN_S = 1.5  # the least that is left for asking again


class Request:
    """One error between two hosts. `error`: a number, an OSError, `ETIMEDOUT`, or one of our names (`errors_map`).

    here: the host that got the error. port: the TCP port of the peer process, if known. age_s: how long ago, at
    least, the fault was: the time since the peer was last heard. counters: what counters of devices were at the start of
    the job (`baseline`); without them, what has grown is not looked at. topology, models, credentials: those of the user
    (`library`) if not given. Raises UnknownError, BadTopology, BadModel, BadCredentials.
    """

    def __init__(
        self,
        error: int | str | OSError,
        here: str,
        there: str,
        *,
        topology: Topology | None = None,
        models: Sequence[Model] | None = None,
        credentials: Credentials | None = None,
        port: int | None = None,
        age_s: float = 0.0,
        counters: Counters | None = None,
    ) -> None:
        self.error = error_name(error)
        self.here, self.there = here, there
        if topology is None:
            topology = library.topology() if library.has_topology() else library.between(here, there)
        self.topology = topology
        self.credentials = library.credentials() if credentials is None else credentials
        known = library.load() if models is None else models
        self.counters = counters
        if counters is None:
            known = without_counters(known)
        self.graph: Graph = build(known, self.error, way(self.topology, here, there, port))
        self.age_s = age_s
        self.stale_s = 0.0
        self.findings: Mapping[str, Finding] = {}
        self.replies: Mapping[Question, Reply] = {}
        self.seconds = 0.0
        self._verdict: Verdict | None = None

    def __enter__(self) -> Request:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.credentials = Credentials()

    def query(self, within_s: float = WITHIN_S) -> Verdict:
        """Ask, within so many seconds, and conclude."""
        query_all([self], within_s)
        return self.verdict

    @property
    def verdict(self) -> Verdict:
        """Raises DiagnosisError before `query`."""
        if self._verdict is None:
            raise DiagnosisError("nothing was asked yet: call query() first")
        return self._verdict

    @property
    def faults(self) -> tuple[Fault, ...]:
        """What is at fault, as ids `MODEL.ELEMENT@PLACE`."""
        return self.verdict.faults

    @property
    def suspects(self) -> tuple[Suspect, ...]:
        """What is not as it should be, where something else that could not be asked may be the reason."""
        return self.verdict.suspects

    @property
    def unknown(self) -> tuple[Hidden, ...]:
        """What could not be asked, with the reason."""
        return self.verdict.unknown

    def conclude(self, replies: Mapping[Question, Reply]) -> None:
        """Take the replies to all questions."""
        self.stale_s = 0.0
        self.replies = {each: replies[each] for each in self.questions() if each in replies}
        self.findings = {
            name: judge(
                candidate.element,
                [
                    self._answer(candidate, query, asked, replies)
                    for query, asked in zip(candidate.element.queries, self._asked[name], strict=True)
                ],
            )
            for name, candidate in self.graph.candidates.items()
        }
        self._verdict = conclude(self.graph, self.findings)

    def fields(self) -> dict[str, Any]:
        """All of the answer for programs (`report`)."""
        return as_fields(
            self.graph, self.findings, self.verdict, self.error, self.here, self.there, self.seconds
        )

    def questions(self) -> list[Question]:
        return list(
            dict.fromkeys(
                each for asked in self._asked.values() for each in asked if not isinstance(each, str)
            )
        )

    @cached_property
    def _asked(self) -> dict[str, list[Question | str]]:
        """The question that each query of a candidate is, or why there is none."""

        def made(candidate: Candidate, query: Query) -> Question | str:
            try:
                return question(self.topology, self.here, candidate, query)
            except NoAnswer as error:
                return str(error)

        return {
            name: [made(candidate, query) for query in candidate.element.queries]
            for name, candidate in self.graph.candidates.items()
        }

    def _open(self, replies: Mapping[Question, Reply]) -> Iterator[tuple[Candidate, Query, Question]]:
        """What has no reply yet."""
        for name, candidate in self.graph.candidates.items():
            for query, asked in zip(candidate.element.queries, self._asked[name], strict=True):
                if not isinstance(asked, str) and asked not in replies:
                    yield candidate, query, asked

    def is_settled(self, replies: Mapping[Question, Reply], after_s: float, mute: str | None) -> bool:
        """Is what can be named of these replies final, though others may still come? (`verdict.settled`)"""
        left = list(self._open(replies))
        if not left:
            return True
        is_mute = all(mute in (asked.machine, candidate.place.host) for candidate, _, asked in left)
        if mute is not None and is_mute and after_s >= _MUTE_S:
            talking = {each.address for each, reply in replies.items() if not each.machine and reply.values}
            waits = any(not asked.machine and asked.address in talking for _, _, asked in left)
            if not waits or after_s >= _TALKING_S:
                return True
        waiting: dict[str, set[State]] = {}
        for candidate, query, _ in left:
            waiting.setdefault(candidate.id, set()).update(_may_be(candidate.element, query))
        self.conclude(replies)
        return settled(self.graph, self.findings, waiting)

    def _answer(
        self, candidate: Candidate, query: Query, asked: Question | str, replies: Mapping[Question, Reply]
    ) -> Answer:
        if isinstance(asked, str):
            return Answer(query.handler, None, asked, silent=False)
        reply = replies.get(asked, Reply({}, "not asked", 0.0, True))
        if reply.reason:
            return Answer(asked.source, None, reply.reason, reply.silent)
        if query.grown:
            return grown(query, asked.source, reply.values, (self.counters or {}).get(asked.key, {}))
        value = reply.values.get(query.value)
        reason = "" if value is not None else f"does not tell {query.value}"
        switch = self.topology.switch.get(candidate.place.variables.get("switch", ""))
        stale_s = 0.0
        if value is not None and switch is not None and HANDLERS[query.handler].cached:
            stale_s = switch.cache_s if self.age_s + reply.asked_s < switch.cache_s else 0.0
            self.stale_s = max(self.stale_s, stale_s)
        return Answer(asked.source, value, reason, silent=False, stale_s=stale_s)


def query_all(
    requests: Sequence[Request],
    within_s: float = WITHIN_S,
    mute: str | None = None,
    patience_s: float = PATIENCE_S,
    ready: Ready | None = None,
) -> None:
    """Several errors at once: every question is asked once. All requests have to be of one topology and its credentials.

    mute: a host that others do not reach, so the fault is there, and it need not say so itself. patience_s: so long all are
    waited for, though what is named is final. ready: processes that wait for questions.
    """
    began = time.monotonic()
    reserve_s = min(_RESERVE_S, within_s / 5)
    _round(requests, within_s - reserve_s, 0.0, mute, patience_s, ready)
    again = [
        each
        for each in requests
        if (not each.verdict.found and (mute is None or each.stale_s))
        or (each.stale_s and _is_open(each, requests))
    ]
    # a switch that keeps its tables for longer than this diagnosis may take is not waited for
    waits_s = [each.stale_s - each.age_s for each in again]
    pause_s = max([_AGAIN_AFTER_S, *(wait_s for wait_s in waits_s if wait_s < within_s - _AGAIN_S)])
    if again and max(time.monotonic() - began, pause_s) <= within_s - _AGAIN_S:
        time.sleep(max(began + pause_s - time.monotonic(), 0.0))
        asked_s = time.monotonic() - began
        _round(again, within_s - reserve_s / 2 - asked_s, asked_s, mute, patience_s)
    for request in requests:
        request.seconds = time.monotonic() - began


def _is_open(request: Request, requests: Sequence[Request]) -> bool:
    """Is there a suspicion that is not explained by what another one of these requests has found?"""
    named = {fault.id for each in requests if each is not request for fault in each.faults}
    return any(named.isdisjoint((suspect.id, *suspect.instead)) for suspect in request.suspects)


def _round(
    requests: Sequence[Request],
    within_s: float,
    asked_s: float,
    mute: str | None,
    patience_s: float,
    ready: Ready | None = None,
) -> None:
    """Ask and conclude; once more, where something is only suspected, what came from caches. Nothing found: ask
    for all."""
    if not requests:
        return
    questions = [
        each
        for request in requests
        for each in request.questions()
        if each not in request.replies or not request.verdict.found or HANDLERS[each.handler].cached
    ]
    asked = set(questions)
    before = {
        each: reply for request in requests for each, reply in request.replies.items() if each not in asked
    }

    def enough(replies: Mapping[Question, Reply], after_s: float) -> bool:
        known = {**before, **replies}
        return after_s >= patience_s and all(each.is_settled(known, after_s, mute) for each in requests)

    replies = ask(questions, requests[0].credentials, within_s, asked_s, enough, ready)
    for request in requests:
        first = {each: reply for each, reply in request.replies.items() if reply.values}
        second = {each: reply for each, reply in replies.items() if reply.values or each not in first}
        request.conclude({**first, **second})


def questions_of(topology: Topology, here: str, graph: Graph) -> list[Question]:
    """What is to be asked for a graph; each question once, in the order of the candidates."""
    found: dict[Question, None] = {}
    for candidate in graph.candidates.values():
        for query in candidate.element.queries:
            try:
                found[question(topology, here, candidate, query)] = None
            except NoAnswer:
                continue
    return list(found)


def question(topology: Topology, here: str, candidate: Candidate, query: Query) -> Question:
    """The question that a query is at its place. Raises NoAnswer if the topology does not say how to ask it."""
    place = candidate.place
    arguments = {key: _filled(value, place) for key, value in query.arguments.items()}
    text = json.dumps(arguments, sort_keys=True)
    face = HANDLERS[query.handler]
    if not face.local and not face.on_way:
        return Question("", (), sys.executable, query.handler, text)
    end = "host" if face.on_way else query.on or ("switch" if place.kind in ("port", "switch") else "host")
    name = here if face.on_way else place.variables.get("far_switch" if end == "far" else end)
    is_switch = end in ("switch", "far")
    if name is None:
        raise NoAnswer(f"the topology names no {end} there")
    machine = topology.switch.get(name) if is_switch else topology.host.get(name)
    if not is_switch and library.is_this_machine(name):
        return Question(name, (), sys.executable, query.handler, text)
    if machine is None or machine.shell is None:
        own = socket.gethostname()
        raise NoAnswer(
            f"{name} cannot be asked itself: the topology gives it no shell, and this machine is {own}"
        )
    return Question(name, machine.shell, machine.python or sys.executable, query.handler, text)


def _may_be(element: Element, query: Query) -> set[State]:
    """The states for which the answer to this query may speak."""
    texts = HANDLERS[query.handler].says.get(query.value)
    if texts is None or element.ends_agree:
        return {"faulty", "clear"}
    return {judge(element, [Answer("", text)]).state for text in texts}


def _filled(value: Any, place: Place) -> Any:
    """An argument with what stands for `{name}` in it. Raises NoAnswer for a name that the topology does not have."""
    if isinstance(value, (list, tuple)):
        return [_filled(each, place) for each in value]
    if not isinstance(value, str):
        return value

    def replace(found: re.Match[str]) -> str:
        known = place.variables.get(found[1])
        if known is None:
            raise NoAnswer(f"the topology has no {found[1]} for {place.name}")
        return known

    return re.sub(r"\{([a-z_]+)\}", replace, value)

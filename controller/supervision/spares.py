"""Processes that a program starts while its job runs (`ckpt run --spares K`, MPI's Spawn): the requests for them. Pure.

    numbers     N … N+K-1, in this order. A number is used once in an incarnation, whatever becomes of its process.
    request     asked ──accepted──▶ starting ──all have said hello──▶ there ──void──▶ failed
                  │                    └──one ends before that, the asker ends, the job stops──▶ failed
                  └── refused

Rules
- A request is answered exactly once: with the numbers of its processes when all of them are there, or with the reason why
  they are not. An asker that has died gets no answer.
- A request that comes before all ranks are there waits for them. One that comes while the images of a checkpoint are taken
  waits for its end: that checkpoint is the last one. One that comes when the job is ending is refused.
- All or nothing: when one process ends before the request is answered, the others of the request are killed. So they are
  when the asker dies before that, and when the job is to stop: nobody would ever talk to them.
- A process whose request has been answered is a member of the job as a rank is: its death is told to all, and the job is
  not finished before its program is.
- The members of the asker's communicator may find that none of them has got the answer (the asker has died with it): they
  declare the request void, and its processes are killed.

Not here: what members of a job do (:mod:`ckpt.controller.supervision.supervisor`), how they are started (the service), what
a program asks for (`ckpt.mpi.engine.spawning`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Literal

from ckpt.controller.supervision import messages
from ckpt.controller.supervision.events import Action, LaunchMore, Log, Send, SpawnRequested, Terminate

__all__ = ["Request", "Spares"]

_KILL = 9


class Request:
    """One accepted request. `there`: its processes that have said hello."""

    def __init__(self, asker: int, token: str, numbers: tuple[int, ...], counts: tuple[int, ...]) -> None:
        self.asker = asker
        self.token = token
        self.numbers = numbers
        self.counts = counts
        self.state: Literal["starting", "there", "failed"] = "starting"
        self.there: set[int] = set()


class Spares:
    """The reserved numbers of one job, and what has become of them in the present incarnation.

    `first`: the lowest number; `count`: how many there are.
    """

    def __init__(self, first: int, count: int) -> None:
        self.first = first
        self.count = count
        self.requests: list[Request] = []
        self.waiting: list[SpawnRequested] = []
        self.ended: set[int] = set()  # processes of requests, and askers, that have ended

    @property
    def used(self) -> int:
        """How many numbers have been used in this incarnation."""
        return sum(len(request.numbers) for request in self.requests)

    def begin(self) -> None:
        """Another incarnation begins: all numbers are free."""
        self.requests, self.waiting, self.ended = [], [], set()

    # ---- questions ---------------------------------------------------------------------------------------

    def request_of(self, number: int) -> Request | None:
        """The request that this process was started for; None: it is one of the job's ranks."""
        return next((request for request in self.requests if number in request.numbers), None)

    def is_starting(self, number: int) -> bool:
        """Has this process not yet said hello, and is it wanted?"""
        request = self.request_of(number)
        return request is not None and request.state == "starting" and number not in request.there

    def is_unwanted(self, number: int) -> bool:
        """Does this process belong to a request that has failed?"""
        request = self.request_of(number)
        return request is not None and request.state == "failed"

    # ---- events ------------------------------------------------------------------------------------------

    def requested(self, event: SpawnRequested) -> tuple[list[Action], bool]:
        """All ranks are there, and one of them asks. Returns the actions, and whether processes are started."""
        free = self.count - self.used
        counts = _counts(event.counts, free)
        if counts is None:
            wanted = sum(max(allowed) for allowed in event.counts)
            reason = f"{wanted} processes are asked for, and {free} of --spares {self.count} are left"
            return [_refusal(event.rank, event.token, reason)], False
        first = self.first + self.used
        numbers = tuple(range(first, first + sum(counts)))
        self.requests.append(Request(event.rank, event.token, numbers, counts))
        fields = {"rank": event.rank, "incarnation": event.incarnation, "processes": list(numbers)}
        return [Log("spawn-requested", fields), LaunchMore(event, counts, first)], True

    def hello(self, number: int, addresses: Mapping[int, str], incarnation: int) -> list[Action]:
        """A process of a request is there; `addresses`: of all members that live, this one's included."""
        request = self.request_of(number)
        if request is None or request.state != "starting":
            return []
        request.there.add(number)
        if len(request.there) < len(request.numbers):
            return []
        request.state = "there"
        others = [
            each for each in self.requests if each.state != "there"
        ]  # whose addresses nobody has to know
        hidden = {each for other in others for each in other.numbers}
        peers = {member: (incarnation, at) for member, at in addresses.items() if member not in hidden}
        fields = {"rank": request.asker, "incarnation": incarnation, "processes": list(request.numbers)}
        # One packet for all: whoever hears of it, hears of all of it, also when this controller is killed now.
        return [
            Send(messages.spawned(request.asker, request.token, request.numbers, request.counts, peers)),
            Log("spawned", fields),
        ]

    def lost(self, number: int, why: str) -> list[Action]:
        """A member of the job has ended, or cannot be started: what is under way for it or by it fails."""
        self.ended.add(number)
        found: list[Action] = []
        for request in self.requests:
            if request.state == "starting" and (number in request.numbers or number == request.asker):
                found += self._fail(request, why)
        return found

    def void(self, token: str) -> list[Action]:
        """Nobody has got the answer to this request, and nobody will talk to its processes."""
        return [
            each
            for request in self.requests
            if request.token == token and request.state != "failed"
            for each in self._fail(request, "nobody waits for them")
        ]

    def stopped(self, reason: str) -> list[Action]:
        """The job is to stop: requests that have not been answered are refused."""
        waiting, self.waiting = self.waiting, []
        found: list[Action] = [
            _refusal(event.rank, event.token, reason) for event in waiting if event.rank not in self.ended
        ]
        for request in self.requests:
            if request.state == "starting":
                found += self._fail(request, reason)
        return found

    def _fail(self, request: Request, why: str) -> list[Action]:
        was_answered, request.state = request.state == "there", "failed"
        found: list[Action] = []
        left = tuple(number for number in request.numbers if number not in self.ended)
        if left:
            found.append(Terminate(_KILL, left))
        if not was_answered and request.asker not in self.ended:
            found.append(_refusal(request.asker, request.token, why))
        return found


def refused(event: SpawnRequested, reason: str) -> list[Action]:
    """The answer to a request that comes too late."""
    return [_refusal(event.rank, event.token, reason)]


def _refusal(asker: int, token: str, reason: str) -> Send:
    return Send(messages.not_spawned(asker, token, reason), (asker,))


def _counts(wanted: Iterable[Collection[int]], free: int) -> tuple[int, ...] | None:
    """How many processes run each command: of the numbers that are allowed for each the largest, so that as many as there
    must be are left for the next ones. None: there are too few."""
    allowed = [sorted(each) for each in wanted]
    least = sum(each[0] for each in allowed)
    if least > free:
        return None
    found = []
    for each in allowed:
        least -= each[0]
        best = max(number for number in each if number + least <= free)
        found.append(best)
        free -= best
    return tuple(found)


def parse(rank: int, incarnation: int, packet: Mapping[str, Any]) -> SpawnRequested | None:
    """The request of a packet; None: it is none."""
    commands, parent, token = packet.get("commands"), packet.get("parent"), packet.get("token")
    if not isinstance(token, str) or not isinstance(parent, dict) or not isinstance(commands, list):
        return None
    counts = tuple(tuple(each["counts"]) for each in commands if isinstance(each, dict) and _is_command(each))
    if not counts or len(counts) < len(commands):
        return None
    return SpawnRequested(rank, incarnation, token, counts, tuple(commands), parent)


def _is_command(command: Mapping[str, Any]) -> bool:
    counts, words = command.get("counts"), command.get("argv")
    return (
        isinstance(counts, list)
        and bool(counts)
        and all(type(count) is int and count > 0 for count in counts)
        and isinstance(words, list)
        and bool(words)
        and all(isinstance(word, str) for word in words)
    )

"""Processes that a program starts while its job runs: all orders of requests, deaths, a stop and the loss of the agent,
within small bounds; and each rule left out once, which the exploration has to notice."""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest

from ckpt.controller.supervision import messages, packet_events, plan, spares
from ckpt.controller.supervision.coordinator import Coordinator
from ckpt.controller.supervision.events import (
    Action,
    AgentLost,
    Begin,
    CheckpointRequested,
    Died,
    End,
    Event,
    Failed,
    Fence,
    Fenced,
    Finished,
    Hello,
    LaunchMore,
    ProgramError,
    Send,
    SpawnRequested,
    SpawnVoid,
    StopRequested,
    Terminate,
    Tick,
)
from ckpt.controller.supervision.rounds import RoundOptions
from ckpt.controller.supervision.spares import Request, Spares
from ckpt.controller.supervision.supervisor import Supervisor
from tests.model.controller import frozen

Move = tuple[str, Any]


class Broken(AssertionError):
    """A rule does not hold."""


def require(holds: object, text: str) -> None:
    if not holds:
        raise Broken(text)


class World:
    """Two ranks and up to two more processes, as far as the supervisor can tell."""

    def __init__(
        self, wishes: dict[int, tuple[int, ...]], deaths: int, stops: int, rounds: int, early: bool
    ) -> None:
        """`wishes`: how many processes each rank asks for, one request after the other. `early`: ranks may ask before all of
        them are there."""
        self.job = Supervisor(
            Coordinator(2, options=RoundOptions(asks=False)), on_failure="continue", spare_processes=2
        )
        self.now_ns = 0
        self.wishes = {rank: list(counts) for rank, counts in wishes.items()}
        self.deaths, self.stops, self.rounds = deaths, stops, rounds
        self.starting = {0, 1}
        self.up: set[int] = set()
        self.doomed: set[int] = set()  # killed by the controller, and not yet dead
        self.dead: set[int] = set()
        self.told: set[int] = set()  # the dead of which the others have heard
        self.finished: set[int] = set()
        self.waiting: dict[int, str] = {}  # an asker, and its open request
        self.groups: dict[str, tuple[int, tuple[int, ...]]] = {}
        self.lost: set[str] = set()  # answered, and the asker has died with the answer
        self.fencing = self.released = self.gone = False
        self.taking = 0  # the epoch of which images are being taken
        self.end: End | None = None
        self.feed(Begin())
        for rank in () if early else (0, 1):
            self.do(("hello", rank))

    def key(self) -> object:
        own = {name: value for name, value in vars(self).items() if name != "now_ns"}
        return frozen(own)

    def copy(self) -> World:
        found: World = pickle.loads(pickle.dumps(self, 5))  # five times as fast as a deep copy
        return found

    # -- what the controller does

    def feed(self, event: Event) -> None:
        actions = self.job.handle(event, now_ns=self.now_ns)
        if isinstance(event, AgentLost):  # nobody is left who would hear a packet
            actions = [action for action in actions if not isinstance(action, Send)]
        for number, action in enumerate(actions):
            self.obey(action, actions[:number])

    def obey(self, action: Action, before: list[Action]) -> None:
        require(self.end is None, "nothing happens after the end")
        match action:
            case LaunchMore(request=request, counts=counts, first=first):
                numbers = tuple(range(first, first + sum(counts)))
                require(set(numbers) <= {2, 3}, "the numbers are reserved")
                require(not set(numbers) & (self.starting | self.up | self.dead), "each number is used once")
                require(Send(messages.spawning()) in before, "there are no images once processes are started")
                require(self.job.coordinator.refusal, "there are no rounds once processes are started")
                self.starting |= set(numbers)
                self.groups[request.token] = request.rank, numbers
            case Send(packet={"m": "spawned"} as packet):
                self.answered(packet, before)
            case Send(packet={"m": "failed"} as packet):
                self.told = set(packet["ranks"])
            case Send(packet={"m": "release"}):
                own = {number for _, numbers in self.groups.values() for number in numbers} - self.doomed
                living = {0, 1} - self.dead | own - self.dead
                require(living <= self.finished, "released before all have finished")
                self.released = True
            case Send(packet={"m": "checkpoint"} as packet):
                require(not self.groups, "no round has more than the ranks")
                self.taking = packet["epoch"]
            case Send(packet={"m": "abort"} as packet):
                require("were started" not in packet["reason"], "the images that are being taken are lost")
                self.taking = 0
            case Terminate(number=9, ranks=numbers):
                require(numbers is not None, "only those of the request are killed")
                self.doomed |= set(numbers or ()) - self.dead
            case Terminate():
                self.doomed |= self.up | self.starting
            case Fence():
                self.fencing = True
            case End():
                require(not (self.up | self.starting), "a process is left behind")
                require({0, 1} & self.finished or action.exit_code, "no rank has done what the job is for")
                self.end = action

    def answered(self, packet: dict[str, Any], before: list[Action]) -> None:
        asker, token = packet["by"], packet["token"]
        require(asker not in self.dead, "the dead get no answer")
        require(self.waiting.pop(asker, None) == token, "an answer that nobody waits for")
        if "refused" in packet:
            left = self.groups.get(token, (0, ()))[1]
            require(set(left) <= self.doomed | self.dead, "what was started for nothing is left")
            return
        numbers = set(packet["numbers"])
        require(numbers == set(self.groups[token][1]) and numbers <= self.up, "all of them are there")
        peers = {int(peer) for peer in packet["peers"]}
        require(numbers <= peers and not peers & self.dead, "the addresses of those that live")
        require(peers <= self.up, "no address of a process that is starting")
        told: set[int] = set()
        for each in before:
            if isinstance(each, Send) and each.packet["m"] == "failed":
                told = set(each.packet["ranks"])
        require(told >= self.dead, "the new ones hear of those that died before")

    # -- what else happens

    def moves(self) -> list[Move]:
        found: list[Move] = []
        if self.fencing:
            found.append(("fenced", None))
        for number in sorted(self.starting):
            found.append(("hello", number))
            if number > 1 and self.deaths:
                found.append(("error", number))
        mortal = self.up | self.starting if self.deaths else self.doomed
        found.extend(("die", number) for number in sorted(mortal))
        for number in sorted(self.up - self.finished):
            if number not in self.waiting:
                found.append(("finish", number))
                if self.wishes.get(number):
                    found.append(("ask", number))
        found.extend(("void", token) for token in sorted(self.lost))
        if self.stops:
            found.append(("stop", None))
            found.append(("agent lost", None))
        if self.rounds:
            found.append(("round", None))
        if self.taking:
            found.append(("round ends", None))
        return found

    def do(self, move: Move) -> None:
        name, what = move
        incarnation = self.job.incarnation
        if name == "hello":
            self.starting.discard(what)
            self.up.add(what)
            self.feed(Hello(what, incarnation, f"at-{what}"))
        elif name == "error":
            self.deaths -= 1
            self.doomed.add(what)  # it leaves by itself
            self.feed(ProgramError(what, incarnation, 1, "SyntaxError: no\n"))
        elif name == "die":
            self.deaths -= what not in self.doomed
            self.bury(what)
            self.feed(Died(what, incarnation, signal=9))
        elif name == "finish":
            self.finished.add(what)
            self.feed(Finished(what, incarnation, 0))
        elif name == "ask":
            count = self.wishes[what].pop(0)
            token = f"{what}.{len(self.wishes[what])}"
            self.waiting[what] = token
            self.feed(SpawnRequested(what, incarnation, token, ((count,),)))
        elif name == "void":
            self.lost.discard(what)
            living = {0, 1} & self.up
            if living:
                self.feed(SpawnVoid(min(living), incarnation, what))
                numbers = set(self.groups[what][1])
                require(numbers <= self.doomed | self.dead, "nobody would ever talk to them")
        elif name == "stop":
            self.stops -= 1
            self.feed(StopRequested(143, "stopped", signal=15))
            require(not self.waiting, "a program that has time to end waits for processes meanwhile")
        elif name == "agent lost":
            self.stops -= 1
            for number in sorted(self.up | self.starting):
                self.bury(number)
            self.feed(AgentLost("killed"))
        elif name == "round":
            self.rounds -= 1
            self.feed(CheckpointRequested("client"))
        elif name == "round ends":
            epoch, self.taking = self.taking, 0
            self.feed(Failed(min(self.up, default=0), incarnation, epoch, "the disk is full"))
        elif name == "fenced":
            self.fencing = False
            for number in sorted(self.up | self.starting):
                self.bury(number)
            self.feed(Fenced(incarnation))

    def bury(self, number: int) -> None:
        self.up.discard(number)
        self.starting.discard(number)
        self.doomed.discard(number)
        self.dead.add(number)
        self.waiting.pop(number, None)
        for token, (asker, _) in self.groups.items():
            if asker == number and self.job.spares.requests:
                request = next(each for each in self.job.spares.requests if each.token == token)
                if request.state == "there":
                    self.lost.add(token)

    def run_to_the_end(self) -> None:
        """Without further faults: everybody does what is its next step."""
        self.deaths = self.stops = self.rounds = 0
        for counts in self.wishes.values():
            counts.clear()
        for _ in range(60):
            if self.end is not None:
                return
            if self.lost:
                self.do(("void", min(self.lost)))
            elif self.fencing:
                self.do(("fenced", None))
            elif self.doomed:
                self.do(("die", min(self.doomed)))
            elif self.taking and self.job.phase == "running":
                self.do(("round ends", None))
            elif self.starting and self.job.phase in ("starting", "running"):
                self.do(("hello", min(self.starting)))
            elif self.released and self.up:
                number = min(self.up)
                self.bury(number)
                self.feed(Died(number, self.job.incarnation, code=0))
            elif idle := self.up - self.finished - self.waiting.keys():
                self.do(("finish", min(idle)))
            elif self.job.deadline_ns() is not None:
                self.now_ns = self.job.deadline_ns() or 0
                self.feed(Tick())
            else:
                break
        require(self.end is not None, f"somebody waits for ever: {self.waiting or self.up}")


def explore(
    wishes: dict[int, tuple[int, ...]], deaths: int = 0, stops: int = 0, rounds: int = 0, early: bool = False
) -> int:
    """The number of states. Raises Broken, with the way there."""
    first = World(wishes, deaths, stops, rounds, early)
    seen = {first.key()}
    left: deque[tuple[World, tuple[Move, ...]]] = deque([(first, ())])
    while left:
        world, way = left.popleft()
        way_on: tuple[Move, ...] = (*way, ("to the end", None))
        try:
            world.copy().run_to_the_end()
            for move in world.moves() if world.end is None else ():
                way_on = (*way, move)
                after = world.copy()
                after.do(move)
                if (key := after.key()) not in seen:
                    seen.add(key)
                    left.append((after, way_on))
        except (AssertionError, ValueError, KeyError) as failure:
            raise Broken(f"{failure}\n" + "\n".join(map(str, way_on))) from failure
    return len(seen)


BOUNDS: dict[str, dict[str, Any]] = {
    "one request": {"wishes": {0: (2,)}, "deaths": 1},
    "two deaths": {"wishes": {0: (1,)}, "deaths": 2},
    "one after the other": {"wishes": {0: (1, 1)}, "deaths": 1},
    "two at once": {"wishes": {0: (1,), 1: (1,)}, "deaths": 1},
    "too many": {"wishes": {0: (2,), 1: (1,)}},
    "a stop": {"wishes": {0: (1,)}, "deaths": 1, "stops": 1},
    "a stop of two": {"wishes": {0: (2,)}, "stops": 1},
    "before all are there": {"wishes": {0: (1,)}, "deaths": 1, "early": True},
    "a round": {"wishes": {0: (1,)}, "rounds": 1},
    "a round and a death": {"wishes": {0: (1,)}, "rounds": 1, "deaths": 1},
}
LARGE: list[dict[str, Any]] = [
    {"wishes": {0: (2,)}, "deaths": 2},
    {"wishes": {0: (2,)}, "deaths": 1, "stops": 1},
    {"wishes": {0: (1,)}, "deaths": 1, "stops": 1, "early": True},
    {"wishes": {0: (1,), 1: (1,)}, "deaths": 2},
]


@pytest.mark.parametrize("name", BOUNDS)
def test_in_every_order_each_request_is_answered_and_the_job_ends_with_nobody_left(name: str) -> None:
    assert explore(**BOUNDS[name]) > 30


@pytest.mark.nightly
@pytest.mark.parametrize("number", range(len(LARGE)))
def test_in_every_order_within_larger_bounds(number: int) -> None:
    assert explore(**LARGE[number]) > 1000


# ---- each rule left out once -----------------------------------------------------------------------------


def _answered_by_the_first(patch: pytest.MonkeyPatch) -> None:
    real = Spares.hello

    def hello(self: Spares, number: int, addresses: Any, incarnation: int) -> list[Action]:
        request = self.request_of(number)
        assert request is not None
        request.there.update(request.numbers)
        return real(self, number, addresses, incarnation)

    patch.setattr(Spares, "hello", hello)


def _without(kind: type) -> Callable[[pytest.MonkeyPatch], None]:
    """A request fails without this action."""

    def leave_out(patch: pytest.MonkeyPatch) -> None:
        real = Spares._fail

        def fail(self: Spares, request: Request, why: str) -> list[Action]:
            return [action for action in real(self, request, why) if not isinstance(action, kind)]

        patch.setattr(Spares, "_fail", fail)

    return leave_out


def _askers_death_is_nothing(patch: pytest.MonkeyPatch) -> None:
    real = Spares.lost

    def lost(self: Spares, number: int, why: str) -> list[Action]:
        return real(self, number, why) if self.request_of(number) else []

    patch.setattr(Spares, "lost", lost)


def _numbers_are_used_again(patch: pytest.MonkeyPatch) -> None:
    used = property(lambda self: sum(len(each.numbers) for each in self.requests if each.state != "failed"))
    patch.setattr(Spares, "used", used)


def _requests_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    real = Supervisor._spawn_requested

    def requested(self: Supervisor, event: SpawnRequested) -> list[Action]:
        return real(self, event) if self.phase != "starting" else []

    patch.setattr(Supervisor, "_spawn_requested", requested)


def _the_dead_before_are_not_told(patch: pytest.MonkeyPatch) -> None:
    real = Supervisor._spare_hello

    def hello(self: Supervisor, event: Hello) -> list[Action]:
        return [
            action
            for action in real(self, event)
            if not (isinstance(action, Send) and action.packet["m"] == "failed")
        ]

    patch.setattr(Supervisor, "_spare_hello", hello)


def _unwanted_ones_count(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Supervisor, "wanted", property(lambda self: set(self.members)))


def _only_ranks_count(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Supervisor, "wanted", property(lambda self: set(range(self.size))))


def _members_are_ranks(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Supervisor, "members", property(lambda self: range(self.size)))


def _rounds_go_on(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Coordinator, "refuse", lambda self, *reasons: [])


def _rounds_are_burnt(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Coordinator, "is_taking", property(lambda self: False))


def _all_are_hidden_or_shown(patch: pytest.MonkeyPatch) -> None:
    real = messages.spawned
    patch.setattr(messages, "spawned", lambda *words: real(*words[:4], {}))


RULES: dict[str, tuple[Callable[[pytest.MonkeyPatch], None], str]] = {
    "all are there before the answer": (_answered_by_the_first, "one request"),
    "the others of a request are killed": (_without(Terminate), "one request"),
    "a request that fails is answered": (_without(Send), "one request"),
    "processes go with their asker": (_askers_death_is_nothing, "one request"),
    "a number is used once": (_numbers_are_used_again, "one after the other"),
    "who asks early waits": (_requests_are_forgotten, "before all are there"),
    "a stop refuses what is under way": (
        lambda patch: patch.setattr(Spares, "stopped", lambda *_: []),
        "a stop",
    ),
    "what nobody knows of is void": (
        lambda patch: patch.setattr(Spares, "void", lambda *_: []),
        "one request",
    ),
    "new ones hear of the dead": (_the_dead_before_are_not_told, "one request"),
    "the job waits for what was started": (_only_ranks_count, "one request"),
    "nobody waits for what is killed": (_unwanted_ones_count, "two deaths"),
    "what was started is a member": (_members_are_ranks, "one request"),
    "there are no rounds from then on": (_rounds_go_on, "a round"),
    "a round is not lost for it": (_rounds_are_burnt, "a round"),
    "addresses come with the answer": (_all_are_hidden_or_shown, "one request"),
}


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_that_is_left_out_is_noticed(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    leave_out, bound = RULES[rule]
    leave_out(monkeypatch)
    with pytest.raises(Broken):
        explore(**BOUNDS[bound])


# ---- packets and descriptions ----------------------------------------------------------------------------

PACKET: dict[str, Any] = {
    "m": "request",
    "what": "spawn",
    "token": "8.0",
    "commands": [
        {"argv": ["a.py"], "directory": "/d", "counts": [1, 3]},
        {"argv": ["-m", "b"], "counts": [1]},
    ],
    "parent": {"group": [0, 1], "bases": [4, 8, 12]},
}


def test_a_request_is_read_from_its_packet_and_nothing_else_is_one() -> None:
    event = packet_events.rank_event(1, 0, PACKET)
    assert isinstance(event, SpawnRequested)
    assert (event.rank, event.token, event.counts) == (1, "8.0", ((1, 3), (1,)))
    assert packet_events.rank_event(1, 0, {**PACKET, "what": "void"}) == SpawnVoid(1, 0, "8.0")
    for wrong in (
        {"token": 3},
        {"commands": []},
        {"commands": [{"argv": [], "counts": [1]}]},
        {"commands": [{"argv": ["a"], "counts": [0]}]},
        {"commands": [{"argv": ["a"], "counts": [True]}]},
        {"commands": [{"argv": [1], "counts": [1]}]},
        {"commands": ["a"]},
        {"parent": None},
    ):
        assert packet_events.rank_event(1, 0, {**PACKET, **wrong}) is None, wrong


@pytest.mark.parametrize(
    ("wanted", "free", "found"),
    [
        ([(2,)], 2, (2,)),
        ([(2,)], 1, None),
        ([(1, 2, 5)], 4, (2,)),
        ([(3, 5)], 2, None),
        ([(1, 4), (2,)], 4, (1, 2)),
        ([(1, 4), (1, 2)], 6, (4, 2)),
    ],
)
def test_as_many_processes_as_are_allowed_and_left(
    wanted: list[tuple[int, ...]], free: int, found: tuple[int, ...] | None
) -> None:
    assert spares._counts(wanted, free) == found


def test_the_processes_of_a_request_have_a_world_of_their_own() -> None:
    event = packet_events.rank_event(1, 0, PACKET)
    assert isinstance(event, SpawnRequested)
    program = plan.Program("00", "/job", "/run", ("app.py",), {})
    found = plan.started(program, event, (2, 1), 5, size=4, spares=6, node="here", epoch=7)
    assert [spec["rank"] for spec in found] == [5, 6, 7]
    assert [spec["argv"] for spec in found] == [["a.py"], ["a.py"], ["-m", "b"]]
    assert [spec["parent"]["appnum"] for spec in found] == [0, 0, 1]
    last = found[2]
    assert (last["size"], last["reserved"], last["world"]) == (10, 6, [5, 3])
    assert (last["epoch"], last["resume"]) == (7, None), "frames of the ranks carry no higher number"
    assert (last["identity"]["rank"], last["identity"]["size"], last["identity"]["streams"]) == (2, 3, "7")
    ranks = plan.with_spares(4, 6)(3)
    assert (ranks["size"], ranks["reserved"], ranks["world"]) == (10, 6, [0, 4])
    assert (ranks["identity"]["rank"], ranks["identity"]["size"]) == (3, 4)

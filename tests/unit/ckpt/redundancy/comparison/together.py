"""The layers of all replicas of a small job, with a network between them in which everything may take any time: messages,
what the controller says, losses. A seed draws what happens next. For test_together.py.

What comes to a process is recorded, and must be what its program was to get: once, in the order of its stream, and never
with a content that was flipped, unless a replica is the only one that is left."""

from __future__ import annotations

import copy
import random
import threading
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from ckpt.layer import EAGER, PLANE_COLLECTIVE, PLANES, SIZE, LinkState, Matcher, pack, unpack
from ckpt.redundancy.agreement.choices import ReplicaChoices
from ckpt.redundancy.comparison.holding import HoldingLayer
from ckpt.redundancy.comparison.receiver import ReceiverLayer
from ckpt.redundancy.comparison.sender import SenderLayer
from ckpt.redundancy.layer import ReplicaLayer
from ckpt.redundancy.membership import Numbering

WAYS: dict[str, type[ReplicaLayer]] = {"late": ReplicaLayer, "sender": SenderLayer, "receiver": ReceiverLayer}


@dataclass(frozen=True)
class Logical:
    """A message of `rank` for rank `to`, sent when the messages `after` have been received. `tag`: that of the collective
    to which it belongs; -1: the program sends it itself."""

    rank: int
    to: int
    after: tuple[int, ...] = ()
    tag: int = -1


PROGRAM = (
    Logical(0, 1),
    Logical(0, 1),
    Logical(1, 0, (0,)),
    Logical(0, 0),
    Logical(0, 1, (2,), tag=3),
    Logical(1, 0, tag=3),
    Logical(1, 1, (1,)),
    Logical(0, 1, (5,), tag=4),
    Logical(1, 0, (4, 6)),
    Logical(0, 1, (8,)),
)
"""Two ranks: messages of programs, two collectives, some to oneself."""


@dataclass
class Port:
    """As `PortState`."""

    job: int = 1
    rank: int = 0
    size: int = 4
    epoch: int = 0
    incarnation: int = 0
    links: dict[int, LinkState] = field(default_factory=dict)


class Engine:
    """What one rank gets, in one process: by number of the message, its content."""

    def __init__(self, job: Together, process: int, got: dict[int, bytes]) -> None:
        self.job, self.process, self.got = job, process, dict(got)
        self.matcher, self.windows, self.choices = Matcher(), SimpleNamespace(refusal=""), None

    def on_messages(self, source: int, batch: list[Any]) -> None:
        for data in batch:
            data = bytes(data)
            kind, *_ = unpack(data)
            if kind != EAGER:
                continue
            number, content = data[SIZE], data[SIZE:]
            assert number not in self.got, f"process {self.process} got message {number} twice"
            each = self.job.program[number]
            assert (each.rank, each.to) == (source, self.job.numbers.parts(self.process)[0])
            earlier = [n for n in range(number) if self.job.are_ordered(n, number)]
            assert self.got.keys() >= set(earlier), f"message {number} overtakes one of {earlier}"
            self.got[number] = content
            self.job.check_content(self.process, number, content)


class Below:
    """One process."""

    def __init__(self, job: Together, process: int) -> None:
        self.job, self.rank, self.size, self.lock = job, process, 8 * 8, threading.Lock()
        self.secret, self.reports = bytes(32), list[dict[str, Any]]()

    def send(self, dst: int, data: Any, payload: Any = None) -> int:
        self.job.put(self.rank, dst, bytes(data) + (b"" if payload is None else bytes(payload)))
        return 0

    def consumed(self, src: int, nbytes: int, nmessages: int) -> None:
        pass

    def poll(self) -> None:
        pass

    def notes(self, rank: int) -> str:
        return ""

    def log(self, name: str, **fields: Any) -> None:
        raise AssertionError(f"nothing is to be logged: {name} {fields}")

    def report(self, fields: dict[str, Any]) -> None:
        self.reports.append(fields)


class Together:
    """`flip`: plane and message."""

    def __init__(
        self,
        seed: int,
        way: str,
        replicas: int,
        *,
        flip: tuple[int, int] | None = None,
        program: Any = PROGRAM,
    ) -> None:
        self.random, self.program, self.flip = random.Random(seed), program, flip
        self.ranks = 1 + max(rank for each in program for rank in (each.rank, each.to))
        self.replicas = replicas
        self.numbers = Numbering(self.ranks, replicas)
        self.run, self.next_plane = 0, replicas
        self.is_explored = False
        """Nothing is left to chance: messages come one by one."""
        self._begin()
        for plane in range(replicas):
            for rank in range(self.ranks):
                self.start(way, self.numbers.process(rank, plane), {})

    def _begin(self) -> None:
        self.layers: dict[int, ReplicaLayer] = {}
        self.engines: dict[int, Engine] = {}
        self.sent: dict[int, set[int]] = {}
        self.network: dict[tuple[int, int], list[bytes]] = {}
        self.said: dict[int, list[Any]] = {}
        """What the controller has told each process, that it has not heard yet."""
        self.dead: list[int] = []
        self.origins: list[list[int]] = []

    # ---- what the layers and engines need ----------------------------------------------------------------

    def put(self, src: int, dst: int, data: bytes) -> None:
        if dst not in self.dead:
            self.network.setdefault((src, dst), []).append(data)

    def are_ordered(self, one: int, other: int) -> bool:
        first, second = self.program[one], self.program[other]
        return (first.rank, first.to, first.tag) == (second.rank, second.to, second.tag)

    def check_content(self, process: int, number: int, content: bytes) -> None:
        plane = self.numbers.parts(process)[1]
        layer = self.layers.get(process)
        is_alone = layer is not None and layer.living == {plane}
        each = self.program[number]
        is_own = each.rank == each.to and isinstance(layer, SenderLayer)  # these are compared, and not held
        assert content == bytes([number]) or is_alone or is_own, (
            f"process {process} got {content!r} as {number}"
        )

    # ---- what happens ------------------------------------------------------------------------------------

    def start(self, way: str, process: int, got: dict[int, bytes], **options: Any) -> None:
        """`options`: `content` of an image, `sent` in it; others of the layer."""
        content, sent = options.pop("content", None), options.pop("sent", ())
        below = Below(self, process)
        given = {"replicas": self.replicas, "ranks": self.ranks, "run": self.run, "resume": None, **options}
        layer = WAYS[way](below, given)  # type: ignore[arg-type]
        engine = self.engines[process] = Engine(self, process, got)
        self.layers[process], self.sent[process], self.said[process] = layer, set(sent), []
        if content is not None:
            beside, order = content
            content = ReplicaChoices(engine)  # type: ignore[arg-type]
            content.beside, content._former = copy.deepcopy(beside), {"order": order, "open": []}
        layer.bind(engine, content)  # type: ignore[arg-type]

    def moves(self) -> list[tuple[str, Any]]:
        found: list[tuple[str, Any]] = [("arrive", way) for way in self.network]
        found += [("hear", process) for process, said in self.said.items() if said]
        for process, layer in self.layers.items():
            rank = self.numbers.parts(process)[0]
            for number, each in enumerate(self.program):
                if each.rank == rank and number not in self.sent[process] and self._is_due(process, number):
                    found.append(("send", (process, number)))
            if isinstance(layer, HoldingLayer) and layer._untold and layer._is_compared:
                found.append(("poll", process))
        return found

    def _is_due(self, process: int, number: int) -> bool:
        each = self.program[number]
        before = {
            n
            for n, other in enumerate(self.program[:number])
            if (other.rank, other.tag) == (each.rank, each.tag)
        }
        return before <= self.sent[process] and self.engines[process].got.keys() >= set(each.after)

    def step(self) -> bool:
        """Something happens. False: nothing can."""
        moves = self.moves()
        if not moves:
            return False
        name, where = self.random.choice(moves)
        getattr(self, name)(where)
        return True

    def arrive(self, way: tuple[int, int]) -> None:
        src, dst = way
        waiting = self.network[way]
        count = 1 if self.is_explored else self.random.randint(1, len(waiting))
        batch, self.network[way] = waiting[:count], waiting[count:]
        if not self.network[way]:
            del self.network[way]
        self.layers[dst].on_messages(src, list(batch))

    def hear(self, process: int) -> None:
        word, layer = self.said[process].pop(0), self.layers[process]
        if isinstance(word, list):
            layer.on_lost(word, "lost")
        else:
            layer.on_packet(word)

    def send(self, where: tuple[int, int]) -> None:
        process, number = where
        each, layer = self.program[number], self.layers[process]
        self.sent[process].add(number)
        content = bytes([number])
        if self.flip == (self.numbers.parts(process)[1], number):
            content += b"!"
        plane = 0 if each.tag < 0 else PLANE_COLLECTIVE
        head = pack(EAGER, each.rank, max(each.tag, 0), PLANES + plane)
        is_parted = not self.is_explored and self.random.random() < 0.3
        pair = (head, content) if is_parted else (head + content, None)
        layer.send(each.to, *pair)

    def poll(self, process: int) -> None:
        self.layers[process].poll()

    # ---- what a test does --------------------------------------------------------------------------------

    @property
    def living(self) -> list[int]:
        return sorted({self.numbers.parts(process)[1] for process in self.layers})

    def some_steps(self) -> None:
        for _ in range(self.random.randint(0, 60)):
            if not self.step():
                return

    def to_the_end(self) -> None:
        while self.step():
            pass

    def die(self, plane: int) -> None:
        """All processes of a plane are lost, and some of what they have sent."""
        gone = self.numbers.of_plane(plane)
        self.dead += gone
        for process in gone:
            del self.layers[process], self.engines[process], self.sent[process], self.said[process]
        for src, dst in list(self.network):
            if src in gone or dst in gone:
                waiting = self.network.pop((src, dst))
                kept = [] if self.is_explored else waiting[: self.random.randint(0, len(waiting))]
                if dst not in gone and kept:
                    self.network[src, dst] = kept
        for said in self.said.values():
            said.append(list(self.dead))

    def image(self) -> list[dict[str, Any]]:
        """Of the plane that leads: all at one moment."""
        found = []
        processes = self.numbers.of_plane(min(self.living))
        for rank, process in enumerate(processes):
            layer = self.layers[process]
            links = {dst: LinkState(messages=list(self.network.get((process, dst), ()))) for dst in processes}
            saved = layer.saved(Port(links=links))
            messages = {
                to: [b"".join(each) if isinstance(each, tuple) else bytes(each) for each in link.messages]
                for to, link in saved.links.items()
            }
            choices = layer._choices
            assert choices is not None
            found.append({
                "beside": copy.deepcopy(layer._beside(0)), "order": copy.deepcopy(choices._order.state()),
                "messages": messages, "got": dict(self.engines[process].got), "sent": set(self.sent[process]),
            })  # fmt: skip
            assert rank == layer.rank
        return found

    def start_from(self, image: list[dict[str, Any]], way: str, plane: int, **options: Any) -> None:
        for rank, each in enumerate(image):
            process = self.numbers.process(rank, plane)
            for to, messages in each["messages"].items():
                for data in messages:
                    self.put(process, self.numbers.process(to, plane), data)
        for rank, each in enumerate(image):
            process = self.numbers.process(rank, plane)
            content = each["beside"], each["order"]
            self.start(way, process, each["got"], content=content, sent=each["sent"], **options)

    def announce(self) -> None:
        """A copy is announced; all hear it before its image is taken."""
        self.hold()
        while not self.is_held():
            self.step()

    def hold(self) -> None:
        for process in self.layers:
            self.said[process].append({"copy": self.next_plane, "step": "hold"})

    def is_held(self) -> bool:
        return not any(isinstance(word, dict) for said in self.said.values() for word in said)

    def copy(self, way: str) -> int:
        """The copy that was announced is started, joins, and is told so."""
        plane, self.next_plane = self.next_plane, self.next_plane + 1
        others, donor = self.living, min(self.living)
        self.origins.append([plane, donor, plane])
        processes = list(self.layers)
        self.start_from(self.image(), way, plane, living=others)
        for process in processes:
            self.said[process].append({"copy": plane, "step": "join", "origins": list(self.origins)})
        for process in self.numbers.of_plane(plane):
            joined = {"copy": plane, "step": "joined", "living": others, "origins": list(self.origins)}
            self.said[process].append(joined)
        return plane

    def restart(self, way: str, replicas: int) -> None:
        """All go on from the image of the plane that leads."""
        image = self.image()
        self.run, self.replicas, self.numbers = self.run + 1, replicas, Numbering(self.ranks, replicas)
        self.next_plane = replicas
        self._begin()
        for plane in range(replicas):
            self.start_from(image, way, plane, resume=7)

    def key(self) -> str:
        """Jobs with equal keys go on alike."""
        layers = []
        for process, layer in sorted(self.layers.items()):
            assert isinstance(layer, HoldingLayer)
            layers.append([
                process, layer.living, layer._is_compared, sorted(layer._untold), layer._early, layer._listeners,
                [(r.living, r.released, r.told, content_of(r.held)) for r in layer.releases.values()],
                [(d.fresh, d._kept) for d in layer.digests.values()],
                [a.has_begun for a in getattr(layer, "arrivals", ())],
            ])  # fmt: skip
        got = [sorted(engine.got) for engine in self.engines.values()]
        waiting = [(way, messages) for way, messages in sorted(self.network.items())]
        return repr(
            (layers, got, waiting, sorted(self.said.items()), sorted(self.sent.items()), self.next_plane)
        )

    # ---- what must be so ---------------------------------------------------------------------------------

    def has_all(self, plane: int) -> bool:
        found = set[int]().union(*(self.engines[each].got for each in self.numbers.of_plane(plane)))
        return len(found) == len(self.program)

    def is_stuck(self) -> bool:
        """Does a process know that a rank does not agree?"""
        return any(
            releases.is_stuck
            for layer in self.layers.values()
            if isinstance(layer, HoldingLayer)
            for releases in layer.releases.values()
        )


def content_of(held: dict[str, Any]) -> list[Any]:
    """What is held, without times and objects."""
    return [(stream, [digest for digest, _ in messages]) for stream, messages in held.items()]

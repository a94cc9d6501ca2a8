"""The layer under the engine: ranks above, processes below; messages stay in their plane."""

from __future__ import annotations

import json
import pickle
import threading
from typing import Any

import pytest

from ckpt.errors import NotReplicable
from ckpt.mpi import make_world
from ckpt.mpi.active.channel import ActiveMessages
from ckpt.mpi.base.envelope import ACTIVE, EAGER, pack
from ckpt.redundancy import surroundings
from ckpt.redundancy.agreement.choices import ReplicaChoices
from ckpt.redundancy.digest import parts
from ckpt.redundancy.files import names
from ckpt.redundancy.layer import ReplicaLayer
from ckpt.redundancy.surroundings import Randomness


class Below:
    """The processes of a job: what one sends is kept until `deliver`."""

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size, self.lock = rank, size, threading.Lock()
        self.secret = bytes(32)
        self.sent: list[tuple[int, bytes]] = []
        self.reports: list[dict[str, Any]] = []

    def send(self, dst: int, data: Any, payload: Any = None) -> int:
        self.sent.append((dst, bytes(data) + bytes(payload or b"")))
        return len(self.sent)

    def consumed(self, src: int, nbytes: int, nmessages: int) -> None:
        pass

    def backlog_bytes(self, dst: int) -> int:
        return 0

    def acked(self, dst: int) -> int:
        return dst

    def poll(self) -> None:
        pass

    def notes(self, rank: int) -> str:
        return ""

    def log(self, name: str, **fields: Any) -> None:
        raise AssertionError(f"nothing is to be logged: {name} {fields}")

    def report(self, fields: dict[str, Any]) -> None:
        self.reports.append(fields)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> tuple[Below, ReplicaLayer, Any]:
    """Process 4 of 6: replica 1 of rank 1 of 2."""
    for name in ("install", "begin"):
        monkeypatch.setattr(surroundings, name, lambda *arguments: None)
    monkeypatch.setattr(names, "install", lambda *arguments: None)
    below = Below(4, 6)
    layer = ReplicaLayer(below, {"replicas": 3})  # type: ignore[arg-type]
    engine, world = make_world(layer)
    layer.bind(engine)
    return below, layer, world


def test_the_engine_knows_ranks_and_what_is_below_processes(made: Any) -> None:
    below, layer, world = made
    assert (layer.rank, layer.size, layer.replica) == (1, 2, 1)
    assert (world.rank, world.size) == (1, 2)
    world.send("hello", dest=0)
    assert [dst for dst, _ in below.sent] == [1]
    assert layer.acked(0) == 1


def test_messages_of_the_own_plane_go_to_the_engine_and_others_are_choices(made: Any) -> None:
    below, layer, world = made
    world.send("hello", dest=1)
    _, message = below.sent.pop()
    with below.lock:
        layer.on_messages(4, [message])
    assert world.recv(source=1) == "hello"
    with below.lock:
        layer.on_messages(3, [pickle.dumps(("d", 0, ("q", 0), True))])
    assert layer._choices._order.look_up(("q", 0)) is True


def test_the_rest_is_reported_at_the_end(made: Any) -> None:
    below, layer, world = made
    for number in range(70):
        world.send(number, dest=0)
    layer.ending(0)
    marks = below.reports[-1]["marks"]["point"]
    assert [count for count, _ in marks] == [64, *range(65, 71)]


def test_a_program_that_asks_again_and_again_and_never_waits_reports_what_it_has_sent(made: Any) -> None:
    """It was left to the helper thread, which may not get the lock for seconds: the replica was lost, as one that does not
    answer."""
    below, layer, world = made
    world.send("hello", dest=0)
    below.reports.clear()
    layer.poll()
    assert below.reports[0]["sent"] == 1 and list(below.reports[0]["marks"]) == ["point"]


def test_messages_one_by_one_are_told_when_the_controller_asks(made: Any) -> None:
    below, layer, world = made
    for number in range(70):
        world.send(number, dest=0)
    layer.on_packet({"question": 7, "after": {"point": 60}})
    told = below.reports[-1]
    assert told["question"] == 7 and told["counts"] == {"point": 70}
    assert [number for number, _, _ in told["details"]["point"]] == list(range(61, 71))
    layer.on_packet({"question": 8, "ranges": {"point": [10, 12]}})
    assert [number for number, _, _ in below.reports[-1]["details"]["point"]] == [10, 11, 12]


@pytest.mark.parametrize("sizes", [[], [1], [5000], [1500, 1500, 10], [2000, 1], [1] * 5000])
def test_many_marks_come_in_several_packets(sizes: list[int]) -> None:
    marks = {f"{at}": [(count, "0" * 16) for count in range(size)] for at, size in enumerate(sizes)}
    found: dict[str, list[Any]] = {}
    for part in parts(marks):
        assert sum(map(len, part.values())) <= 2000
        assert len(json.dumps(part)) < 150_000
        for name, rows in part.items():
            found.setdefault(name, []).extend(rows)
    assert found == marks


def test_what_cannot_be_compared_is_refused(made: Any) -> None:
    _, layer, _ = made
    with pytest.raises(NotReplicable, match="active messages"):
        layer.send(0, pack(ACTIVE, 0, 0, 0))


def test_a_channel_of_active_messages_is_refused_when_it_is_made(made: Any) -> None:
    """A reduction that could not send told the others so, which could not be sent either, until the stack was full."""
    _, _, world = made
    with pytest.raises(NotReplicable, match="active messages under --redundancy"):
        ActiveMessages(world, print)


def test_random_bytes_follow_from_the_key_alone() -> None:
    one, other = Randomness(b"key"), Randomness(b"key")
    assert [one(5), one(100), one(0)] == [other(5), other(100), other(0)]
    assert Randomness(b"another")(16) != Randomness(b"key")(16)
    with pytest.raises(ValueError, match="negative"):
        one(-1)


def test_who_is_asked_to_hold_choices_for_a_copy_says_so(made: Any) -> None:
    below, layer, _ = made
    layer.on_packet({"copy": 3, "step": "hold"})
    assert below.reports[-1] == {"held": 3}
    layer.on_packet({"copy": 3, "step": "join"})
    assert layer.living == {0, 1, 2, 3}


def test_a_copy_goes_on_where_its_donor_was_and_tells_nothing_before_it_has_joined(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Process 7 of 8: replica 3 of rank 1. Its program ends before the others know of it: it waits."""
    for name in ("install", "begin", "go_on"):
        monkeypatch.setattr(surroundings, name, lambda *arguments: None)
    monkeypatch.setattr(names, "install", lambda *arguments: None)
    below = Below(7, 8)
    layer = ReplicaLayer(below, {"replicas": 3, "ranks": 2, "living": [1, 2]})  # type: ignore[arg-type]
    engine, world = make_world(layer)
    order = {"followed": {"q": 4, "w": 0}, "ahead": [], "forgotten": {"q": 2, "w": 0}, "known": {}}
    content = ReplicaChoices(engine)
    content.__setstate__({
        "engine": engine,
        "counts": {"q": 4, "w": 0},
        "asking": None,
        "beside": {"sent": 9, "places": 20, "streams": {"point": (9, b"12345678")}, "surroundings": {}},
        "former": {"order": order, "open": []},
    })  # fmt: skip
    layer.bind(engine, content)
    assert (layer.rank, layer.size, layer.replica, layer.takes_images) == (1, 2, 3, False)
    world.send("hello", dest=0)
    assert [dst for dst, _ in below.sent] == [6]
    layer.tick()
    assert below.reports == []

    def block(hungry: bool, awaited: object = None, longest_ns: int | None = None) -> None:
        layer.on_packet({"copy": 3, "step": "joined", "living": [2]})

    monkeypatch.setattr(below, "block", block, raising=False)
    layer.ending(0)
    assert layer.living == {2, 3}
    told = below.reports[-1]
    assert told["sent"] == 10 and [count for count, _ in told["marks"]["point"]] == [9, 10]


def test_places_of_the_program_do_not_depend_on_whether_a_message_is_there_already(made: Any) -> None:
    """A receive that finds its message takes another way than one that waits; sends and collectives count alike."""
    _, layer, world = made
    before = layer._memory.places
    request = world.irecv(source=0)
    assert layer._memory.places == before
    layer.on_messages(1, [pack(EAGER, 0, 0, 0) + pickle.dumps("early")])
    assert request.wait() == "early"
    layer.on_messages(1, [pack(EAGER, 0, 0, 0) + pickle.dumps("late")])
    assert world.recv(source=0) == "late" and layer._memory.places == before
    world.send(1, dest=0)
    world.Ibarrier()
    assert layer._memory.places == before + 2

"""The layer under ``--compare sender``: what is held, told, released, saved, and reported."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, field
from typing import Any

import pytest

from ckpt.layer import LinkState
from ckpt.mpi import make_world
from ckpt.mpi.base.envelope import EAGER, pack
from ckpt.redundancy import surroundings
from ckpt.redundancy.comparison import holding
from ckpt.redundancy.comparison.holding import AGAIN_NS, LATE_NS
from ckpt.redundancy.comparison.sender import SenderLayer
from ckpt.redundancy.files import names
from tests.unit.ckpt.redundancy.test_layer import Below


@dataclass
class Port:
    """As `PortState`."""

    job: int = 1
    rank: int = 4
    size: int = 6
    epoch: int = 0
    incarnation: int = 0
    links: dict[int, LinkState] = field(default_factory=dict)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> tuple[Below, SenderLayer, Any]:
    """Process 4 of 6: replica 1 of rank 1 of 2."""
    for name in ("install", "begin"):
        monkeypatch.setattr(surroundings, name, lambda *arguments: None)
    monkeypatch.setattr(names, "install", lambda *arguments: None)
    below = Below(4, 6)
    layer = SenderLayer(below, {"replicas": 3})  # type: ignore[arg-type]
    engine, world = make_world(layer)
    layer.bind(engine)
    return below, layer, world


def told(below: Below) -> list[tuple[int, Any]]:
    """What has been sent since the last call; messages between replicas as objects."""
    found, below.sent = below.sent, []
    return [(dst, pickle.loads(data) if dst in (3, 5) else data) for dst, data in found]


def rows_of(below: Below, layer: SenderLayer) -> list[Any]:
    layer.tick()
    found = told(below)
    assert [dst for dst, _ in found] == [3, 5] and found[0][1] == found[1][1]
    return list(found[0][1][1])


def test_a_message_is_held_until_another_replica_has_made_the_same(made: Any) -> None:
    below, layer, _ = made
    memory = bytearray(b"x" * 100_000)
    assert layer.send(0, pack(EAGER, 1, 0, 0), memory) < layer.acked(0)
    assert below.sent == [] and layer.backlog_bytes(0) > 100_000
    memory[:] = b"y" * 100_000  # the send is done
    rows = rows_of(below, layer)
    layer.on_messages(5, [pickle.dumps(("told", [("point", 1, [rows[0][2][0] ^ 1])]))])
    assert below.sent == []
    layer.on_messages(3, [pickle.dumps(("told", rows))])
    ((dst, data),) = told(below)
    assert dst == 1 and data.endswith(b"x" * 100_000) and layer.backlog_bytes(0) == 0


def test_what_others_have_made_already_leaves_at_once_and_messages_to_oneself_too(made: Any) -> None:
    below, layer, world = made
    world.send("mine", dest=1)
    assert [dst for dst, _ in below.sent] == [4]
    below.sent.clear()
    world.send("hello", dest=0)
    rows = rows_of(below, layer)
    layer.on_messages(3, [pickle.dumps(("told", rows))])
    assert [dst for dst, _ in told(below)] == [1]


def test_held_messages_are_in_an_image_as_messages_on_their_way(made: Any) -> None:
    below, layer, world = made
    world.send("one", dest=0), world.send("two", dest=0)
    state = layer.saved(Port(links={1: LinkState(3, 5, 2, 0, [b"a", b"b"]), 0: LinkState()}))
    assert list(state.links) == [0]
    link = state.links[0]
    assert (link.base, link.tx, link.rx, link.messages[:2]) == (3, 7, 2, [b"a", b"b"])
    assert [pickle.loads(data) for data in link.messages[2:]] == ["one", "two"]
    assert [len(layer.saved(Port()).links[0].messages), len(below.sent)] == [2, 0]


def test_a_copy_that_has_joined_is_told_what_it_has_missed(made: Any) -> None:
    below, layer, world = made
    world.send("one", dest=0)
    layer.on_packet({"copy": 3, "step": "hold"})
    world.send("two", dest=0)
    rows = rows_of(below, layer)
    copy = layer.numbers.process(1, 3)
    layer.on_messages(copy, [pickle.dumps(("told", rows))])  # it knows already that it has joined
    assert below.sent == []
    layer.on_packet({"copy": 3, "step": "join", "origins": [[3, 0, 1]]})
    assert [dst for dst, _ in below.sent if dst == 1] == [1, 1]
    below.sent.clear()
    layer.on_messages(copy, [pickle.dumps(("want", {"point": 1}))])
    ((dst, data),) = below.sent
    assert dst == copy and pickle.loads(data) == ("told", [("point", 2, rows[0][2][1:])])
    world.send("three", dest=0)
    below.sent.clear()
    layer.tick()
    assert [dst for dst, _ in below.sent] == [3, 5, copy]


def test_the_controller_is_told_who_is_outvoted_and_who_does_not_come(
    made: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    below, layer, world = made
    now_ns = [holding.time.monotonic_ns()]
    monkeypatch.setattr(holding.time, "monotonic_ns", lambda: now_ns[0])
    world.send("one", dest=0)
    layer.on_messages(5, [pickle.dumps(("told", [("point", 1, [7])]))])

    def reports(after_ns: int) -> list[Any]:
        now_ns[0] += after_ns
        below.reports.clear()
        layer.tick()
        return [each for each in below.reports if "disagree" in each or "late" in each]

    assert reports(AGAIN_NS) == [] == reports(LATE_NS // 2)
    assert reports(LATE_NS) == [{"late": [0], "at": "message"}]
    layer.on_messages(3, [pickle.dumps(("told", [("point", 1, [7])]))])
    assert reports(AGAIN_NS) == [{"disagree": ["point", 1, True]}]
    assert reports(AGAIN_NS // 2) == [] != reports(AGAIN_NS)
    assert [dst for dst, _ in below.sent if dst == 1] == []


def test_the_last_one_sends_what_it_holds(made: Any) -> None:
    below, layer, world = made
    world.send("one", dest=0)
    layer.on_lost([0, 3], "lost")
    assert [dst for dst, _ in below.sent if dst == 1] == []
    layer.on_lost([0, 3, 2, 5], "lost")
    assert [dst for dst, _ in below.sent if dst == 1] == [1]

"""The layer under ``--compare receiver``: what is held, told, saved, and reported."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from ckpt.layer import EAGER, SIZE, SYNC, pack
from ckpt.mpi import make_world
from ckpt.mpi.base.envelope import MATCHED, REVOKE
from ckpt.redundancy import surroundings
from ckpt.redundancy.chain import chained, number_of
from ckpt.redundancy.comparison import holding
from ckpt.redundancy.comparison.holding import AGAIN_NS, LATE_NS
from ckpt.redundancy.comparison.receiver import ReceiverLayer, marked
from ckpt.redundancy.files import names
from tests.unit.ckpt.redundancy.test_layer import Below

HELLO = pack(EAGER, 0, 5, 0) + pickle.dumps("hello")


def make(**options: Any) -> tuple[Below, ReceiverLayer, Any]:
    """Process 4 of 6: replica 1 of rank 1 of 2."""
    below = Below(4, 6)
    layer = ReceiverLayer(below, {"replicas": 3, **options})  # type: ignore[arg-type]
    engine, world = make_world(layer)
    layer.bind(engine)
    return below, layer, world


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> tuple[Below, ReceiverLayer, Any]:
    for name in ("install", "begin"):
        monkeypatch.setattr(surroundings, name, lambda *arguments: None)
    monkeypatch.setattr(names, "install", lambda *arguments: None)
    return make()


class Recorder:
    """Instead of an engine."""

    def __init__(self, layer: ReceiverLayer) -> None:
        self.got: list[bytes] = []
        layer._engine = self  # type: ignore[assignment]

    def on_messages(self, rank: int, batch: list[Any]) -> None:
        self.got += batch


def tell(layer: ReceiverLayer, replica: int, *messages: bytes, rank: int = 0, first: int = 1) -> None:
    """Another replica of a rank tells what it has made for this one, in the stream `point`."""
    digests, state = [], b""
    for message in messages:
        state = chained(state, 1, message, None)
        digests.append(number_of(state))
    rows = [("point", first, digests)]
    layer.on_messages(layer.numbers.process(rank, replica), [pickle.dumps(("told", rows))])


def test_a_message_gets_to_the_program_when_another_replica_has_made_the_same(made: Any) -> None:
    _, layer, world = made
    engine, layer._engine = layer._engine, None
    recorder = Recorder(layer)
    layer.on_messages(1, [HELLO])
    tell(layer, 0, HELLO[:-2] + b"!.")
    assert recorder.got == []
    layer._engine = engine
    tell(layer, 2, HELLO)
    assert world.recv(source=0, tag=5) == "hello"


def test_what_the_others_have_made_already_gets_to_the_program_at_once(made: Any) -> None:
    _, layer, world = made
    tell(layer, 0, HELLO)
    layer.on_messages(1, [HELLO])
    assert world.recv(source=0, tag=5) == "hello"


def test_a_message_leaves_at_once_and_its_digest_goes_to_the_receivers_of_the_other_planes(made: Any) -> None:
    below, layer, world = made
    world.send("hello", dest=0)
    assert [dst for dst, _ in below.sent] == [1]
    layer.tick()
    told = [(dst, pickle.loads(data)) for dst, data in below.sent[1:]]
    digest = number_of(chained(b"", 0, below.sent[0][1], None))
    assert told == [(dst, ("told", [("point", 1, [digest])])) for dst in (0, 2)]


def test_what_a_program_sends_to_itself_is_held_too(made: Any) -> None:
    below, layer, world = made
    recorder = Recorder(layer)
    world.send("mine", dest=1)
    ((dst, data),) = below.sent
    assert dst == 4
    layer.on_messages(4, [data])
    assert recorder.got == []
    tell(layer, 0, data, rank=1)
    assert recorder.got == [data]


@pytest.mark.parametrize("kind", [EAGER, SYNC])
def test_no_wrong_bit_of_an_envelope_leads_past_the_comparison(made: Any, kind: int) -> None:
    """An answer of the engine is not compared, and its kind is one bit away from that of a message."""
    message = pack(kind, 0, 5, 0, 7 * kind) + pickle.dumps("hello")
    for bit in range(8 * SIZE):
        _, layer, _ = make()
        recorder = Recorder(layer)
        wrong = bytearray(message)
        wrong[bit // 8] ^= 1 << bit % 8
        tell(layer, 0, message)
        tell(layer, 2, message)
        layer.on_messages(1, [bytes(wrong)])
        assert recorder.got == [], f"bit {bit}"


def test_answers_of_the_engine_have_a_mark_and_are_not_held(made: Any) -> None:
    below, layer, _ = made
    answer = pack(MATCHED, 1, 5, 0, 7)
    layer.send(0, answer)
    layer.send(0, pack(REVOKE, 1, 0, 0), b"members")
    (_, sent), (_, revoked) = below.sent
    assert sent == marked(answer) != answer and revoked[:SIZE] == marked(pack(REVOKE, 1, 0, 0))
    recorder = Recorder(layer)
    layer.on_messages(1, [sent])
    assert recorder.got == [sent]


def test_after_a_restart_what_comes_first_is_not_compared(made: Any) -> None:
    below, layer, _ = make(resume=3, run=2)
    recorder = Recorder(layer)
    assert [dst for dst, _ in below.sent] == [1, 4]
    begin = below.sent[0][1]
    layer.on_messages(1, [HELLO, begin, HELLO])
    assert recorder.got == [HELLO, begin]
    _, former, _ = make(resume=3, run=1)
    former.on_messages(1, [begin])
    assert not former.arrivals[0].has_begun, "a begin of another run"
    tell(layer, 0, HELLO)
    assert recorder.got == [HELLO, begin, HELLO]


def test_what_is_held_is_in_an_image_and_gets_to_an_engine_without_a_layer(made: Any) -> None:
    _, layer, _ = made
    layer.on_messages(1, [HELLO, bytearray(HELLO)])
    content = layer.content(5)
    assert content.beside["held"] == {0: [HELLO, HELLO]}
    got: list[Any] = []
    content._engine = type(
        "Engine", (), {"on_messages": lambda self, rank, batch: got.append((rank, batch)), "windows": None}
    )()
    content.deliver(Below(0, 1).log)
    content.deliver(Below(0, 1).log)
    assert got == [(0, [HELLO, HELLO])]


def test_the_controller_is_told_which_rank_disagrees_and_who_does_not_come(
    made: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    below, layer, _ = made
    now_ns = [holding.time.monotonic_ns()]
    monkeypatch.setattr(holding.time, "monotonic_ns", lambda: now_ns[0])
    layer.on_messages(1, [HELLO])
    tell(layer, 2, HELLO[:-2] + b"!.")

    def reports(after_ns: int) -> list[Any]:
        now_ns[0] += after_ns
        below.reports.clear()
        layer.tick()
        return [each for each in below.reports if "disagree" in each or "late" in each]

    assert reports(AGAIN_NS) == [] == reports(LATE_NS // 2)
    assert reports(LATE_NS) == [{"late": [0], "at": "message", "of": 0}]
    tell(layer, 0, HELLO[:-2] + b"!.")
    assert reports(AGAIN_NS) == [{"disagree": ["point", 1, True], "of": 0}]

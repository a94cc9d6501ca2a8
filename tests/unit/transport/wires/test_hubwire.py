"""A star of wires: spokes dial the hub; who has no key takes no part. And the wire with a near and a far way."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ckpt.transport.errors import AddressError, WireClosed
from ckpt.transport.wires.hostwire import HostWire, this_host
from ckpt.transport.wires.hubwire import CallFailed, HubWire, SpokeWire, call
from ckpt.transport.wires.wire import Frame
from ckpt.transport.wires.zmqwire import CurveKeys, ZmqWire

KEYS = CurveKeys.from_secret(b"of this job")
OTHERS = CurveKeys.from_secret(b"of another job")


def until(look: Callable[[], object]) -> object:
    for _ in range(60_000):
        if found := look():
            return found
        time.sleep(0.001)
    raise AssertionError("not within a minute")


def frame(wire: HubWire | SpokeWire) -> list[bytes]:
    found = until(wire.receive)
    return [bytes(part) for part in found]  # type: ignore[attr-defined]


@pytest.fixture
def hub() -> Iterator[HubWire]:
    wire = HubWire("tcp://127.0.0.1:*", curve=KEYS)
    yield wire
    wire.close()


def test_frames_go_both_ways_and_to_the_spoke_that_is_named(hub: HubWire) -> None:
    spokes = [SpokeWire(rank, hub.address, curve=KEYS) for rank in (1, 2)]
    try:
        for rank, spoke in enumerate(spokes, 1):
            until(lambda spoke=spoke, rank=rank: spoke.send(0, (b"from %d" % rank, b"payload")))  # type: ignore[misc]
        assert sorted([frame(hub), frame(hub)]) == [[b"from 1", b"payload"], [b"from 2", b"payload"]]
        for rank in (2, 1):
            assert hub.send(rank, (b"to %d" % rank,))
        assert [frame(spoke) for spoke in spokes] == [[b"to 1"], [b"to 2"]]
        assert all(spoke.receive() is None for spoke in spokes)
    finally:
        for spoke in spokes:
            spoke.close()


def test_a_frame_for_a_spoke_that_has_not_dialled_in_is_not_taken(hub: HubWire) -> None:
    assert not hub.send(1, (b"x",))
    assert hub.counters() == {"frames_unsent": 1}


def test_a_spoke_that_dials_in_again_takes_the_place_of_the_former(hub: HubWire) -> None:
    for turn in (b"first", b"second"):
        spoke = SpokeWire(1, hub.address, curve=KEYS)
        until(lambda spoke=spoke, turn=turn: spoke.send(0, (turn,)))  # type: ignore[misc]
        assert frame(hub) == [turn]
        until(lambda turn=turn: hub.send(1, (b"for the " + turn,)))  # type: ignore[misc]
        assert frame(spoke) == [b"for the " + turn]
        spoke.close()


def test_strangers_are_not_heard(hub: HubWire) -> None:
    stranger = SpokeWire(1, hub.address, curve=OTHERS)
    host, port = hub.address.removeprefix("tcp://").split(":")
    with socket.create_connection((host, int(port))) as raw:
        raw.sendall(b"GET / HTTP/1.1\r\n\r\n" * 100)
        deadline = time.monotonic() + 0.3
        while time.monotonic() < deadline:
            assert not stranger.send(0, (b"hello",)), "not even connected"
            assert hub.receive() is None
            time.sleep(0.01)
    stranger.close()
    spoke = SpokeWire(1, hub.address, curve=KEYS)
    until(lambda: spoke.send(0, (b"hello",)))
    assert frame(hub) == [b"hello"]
    spoke.close()


def test_a_closed_wire_and_a_wrong_address(hub: HubWire) -> None:
    hub.close()
    hub.close()
    with pytest.raises(WireClosed):
        hub.send(1, (b"x",))
    with pytest.raises(AddressError, match="cannot listen at"):
        HubWire("tcp://192.0.2.1:1", curve=KEYS)
    with pytest.raises(AddressError, match="cannot connect to"):
        SpokeWire(1, "tcp://nonsense", curve=KEYS)


def test_peers_of_this_host_take_the_near_way_and_others_the_far_one(tmp_path: Path) -> None:
    inner = [ZmqWire(f"ipc://{tmp_path}/{number}") for number in range(2)]
    mine, peer = (HostWire(wire, wire.listen_also("tcp://127.0.0.1:*")) for wire in inner)
    try:
        host, far, near = peer.address.split(" ")
        assert (host, near) == (this_host(), f"ipc://{tmp_path}/1") and far.startswith("tcp://127.0.0.1:")
        for number, address in enumerate((peer.address, f"elsewhere {far} {near}")):
            mine.connect(1, address)
            assert inner[0]._addresses[1] == (near, far)[number]
            until(lambda number=number: mine.send(1, (b"%d" % number,)))  # type: ignore[misc]
            found: Frame = until(peer.receive)  # type: ignore[assignment]
            assert bytes(found[0]) == b"%d" % number
        with pytest.raises(AddressError, match="is no address of a rank on several hosts"):
            mine.connect(1, near)
    finally:
        mine.close()
        peer.close()


@pytest.fixture
def asked() -> Iterator[tuple[HubWire, list[tuple[bytes, bytes]]]]:
    """A hub, which receives in a thread, and what it is asked."""
    wire, questions, end = HubWire("tcp://127.0.0.1:*", curve=KEYS), [], threading.Event()
    wire.on_question = lambda caller, question: questions.append((caller, question))

    def serve() -> None:
        while not end.wait(0.001):
            wire.receive()
            while questions and questions[0][1] != b"wait":
                caller, question = questions.pop(0)
                wire.answer(caller, b"answer to " + question)

    server = threading.Thread(target=serve)
    server.start()
    yield wire, questions
    end.set()
    server.join()
    wire.close()


Asked = tuple[HubWire, list[tuple[bytes, bytes]]]


def test_a_caller_asks_at_the_address_that_answers(asked: Asked) -> None:
    hub, _ = asked
    with socket.create_server(("127.0.0.1", 0)) as silent:
        nobody = f"tcp://127.0.0.1:{silent.getsockname()[1]}"
        answer = call([nobody, hub.address], b"question", curve=KEYS, reach_s=60)
    assert answer == b"answer to question"


def test_a_caller_with_another_key_reaches_nobody(asked: Asked) -> None:
    hub, questions = asked
    with pytest.raises(CallFailed, match="nobody answers at") as failed:
        call([hub.address], b"question", curve=OTHERS, reach_s=0.3)
    assert not failed.value.was_asked and not questions


def test_an_answer_that_takes_too_long(asked: Asked) -> None:
    with pytest.raises(TimeoutError):
        call([asked[0].address], b"wait", curve=KEYS, reach_s=60, limit_s=0.2)


def test_a_hub_that_ends_without_an_answer() -> None:
    hub = HubWire("tcp://127.0.0.1:*", curve=KEYS)
    came: list[bytes] = []
    hub.on_question = lambda caller, question: came.append(question)
    failures: list[Exception] = []

    def ask() -> None:
        try:
            call([hub.address], b"wait", curve=KEYS, reach_s=60)
        except CallFailed as failed:
            failures.append(failed)

    asking = threading.Thread(target=ask)
    asking.start()
    until(lambda: hub.receive() or came)
    hub.close()
    asking.join(60)
    assert [failed.was_asked for failed in failures if isinstance(failed, CallFailed)] == [True]

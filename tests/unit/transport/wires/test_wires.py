"""What every wire promises (transport/wires/wire.py), each of them alone and stacked as in a job."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ckpt.transport.rings import ring
from ckpt.transport.rings.ringwire import RingWire
from ckpt.transport.wires.directwire import DirectWire
from ckpt.transport.wires.faultinject import FaultPlan, FaultyWire
from ckpt.transport.wires.wire import Frame, Wire
from ckpt.transport.wires.zmqwire import CurveKeys, ZmqWire

KEY = b"the job's key"
Make = Callable[[str, int], Wire]
CURVE = CurveKeys.from_secret(KEY)


def _zmq(address: str, rank: int) -> Wire:
    return ZmqWire(address, curve=CURVE)


def _ring(address: str, rank: int) -> Wire:
    return RingWire(_zmq(address, rank), rank, KEY)


def _faulty(address: str, rank: int) -> Wire:
    return FaultyWire(_zmq(address, rank), FaultPlan(), rank)


def _whole(address: str, rank: int) -> Wire:
    return DirectWire(FaultyWire(_ring(address, rank), FaultPlan(), rank), rank)


WIRES: dict[str, Make] = {
    "zmq": _zmq,
    "direct": lambda address, rank: DirectWire(_zmq(address, rank), rank),
    "faulty": _faulty,
    "ring": _ring,
    "direct, faulty, ring": _whole,
}


@pytest.fixture(params=WIRES)
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Wire, Wire]]:
    if "ring" in request.param and not ring.available():
        pytest.skip("the C module of rings is not built")
    both = [WIRES[request.param](f"ipc://{tmp_path}/r{rank}", rank) for rank in (0, 1)]
    for rank, wire in enumerate(both):
        wire.connect(1 - rank, both[1 - rank].address)
    yield both[0], both[1]
    for wire in both:
        wire.close()
        wire.close()


def plain(frame: Frame) -> tuple[bytes, ...]:
    return tuple(map(bytes, frame))


def sent(wire: Wire, frame: Frame, rank: int = 1) -> None:
    """Offer a frame until it is taken."""
    until = time.monotonic() + 30
    while not wire.send(rank, frame):
        assert time.monotonic() < until
        select.select([], [], [], 0.001)


def received(wire: Wire, count: int = 1) -> list[tuple[bytes, ...]]:
    """The next frames; sleeps as a port does: None, `deadline_ns`, the descriptor."""
    found: list[tuple[bytes, ...]] = []
    until = time.monotonic() + 30
    while len(found) < count:
        frame = wire.receive()
        if frame is not None:
            found.append(plain(frame))
            continue
        assert time.monotonic() < until, f"{len(found)} of {count}"
        deadline_ns = wire.deadline_ns()
        if deadline_ns is None or deadline_ns > time.monotonic_ns():
            readable, _, _ = select.select([wire.fileno()], [], [], 10)
            assert readable, "a frame was sent, and nothing woke the receiver"
    return found


FRAMES: list[tuple[bytes, ...]] = [
    (b"h",),
    (b"head", b"p"),
    (b"head", b"payload" * 10_000),
    (b"x" * 200_000,),
    (b"head" * 40_000, b"y" * 2_000_000),
]


def test_frames_arrive_whole_one_by_one_by_a_receiver_that_sleeps(pair: tuple[Wire, Wire]) -> None:
    mine, peer = pair
    for _ in range(3):
        for frame in FRAMES:
            sent(mine, frame)
            assert received(peer) == [frame]


def test_frames_in_both_directions_all_arrive_in_whatever_order(pair: tuple[Wire, Wire]) -> None:
    mine, peer = pair
    for number in range(200):
        sent(mine, (b"%d" % number, bytes(number * 7)))
        sent(peer, (b"%d" % number,), 0)
        if number % 10 == 9:
            assert sorted(received(peer, 10)) == sorted(
                (b"%d" % n, bytes(n * 7)) for n in range(number - 9, number + 1)
            )
            assert sorted(received(mine, 10)) == sorted((b"%d" % n,) for n in range(number - 9, number + 1))


def test_a_receiver_that_does_not_read_is_congestion_in_the_end_and_loses_nothing(
    pair: tuple[Wire, Wire],
) -> None:
    mine, peer = pair
    sent(mine, (b"first",))
    received(peer)
    count = 0
    until = time.monotonic() + 30
    refused_since = None
    while refused_since is None or time.monotonic() < refused_since + 0.05:
        if mine.send(1, (b"%08d" % count + bytes(50_000),)):
            count, refused_since = count + 1, None
        elif refused_since is None:
            refused_since = time.monotonic()
        assert time.monotonic() < until and count < 5_000
    numbers = [int(frame[0][:8]) for frame in received(peer, count)]
    assert sorted(numbers) == list(range(count))
    sent(mine, (b"again",))
    assert received(peer) == [(b"again",)]


def test_an_address_at_which_nobody_listens_is_no_error(pair: tuple[Wire, Wire], tmp_path: Path) -> None:
    mine, _ = pair
    mine.connect(2, pair[1].address.replace(f"{tmp_path}/r1", f"{tmp_path}/nobody"))
    for _ in range(3):
        mine.send(2, (b"x",))
    mine.renew(2)
    assert mine.receive() is None


def test_after_connect_to_another_address_frames_go_there(pair: tuple[Wire, Wire]) -> None:
    """As when a rank has started again; here it is the sender itself."""
    mine, peer = pair
    sent(mine, (b"to the first",))
    received(peer)
    mine.connect(1, mine.address)
    for number in range(3):
        sent(mine, (b"to the second", b"%d" % number))
        assert received(mine) == [(b"to the second", b"%d" % number)]
    assert peer.receive() is None


def test_counters_are_numbers_by_name(pair: tuple[Wire, Wire]) -> None:
    sent(pair[0], (b"x",))
    received(pair[1])
    for wire in pair:
        assert all(type(name) is str and type(count) is int for name, count in wire.counters().items())


def test_close_in_a_forked_child_leaves_the_wire_of_the_parent_alone(pair: tuple[Wire, Wire]) -> None:
    mine, peer = pair
    for wire in pair:
        sent(wire, (b"x",), 1 if wire is mine else 0)
        received(peer if wire is mine else mine)
    child = os.fork()
    if child == 0:
        for wire in pair:
            wire.close()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    sent(mine, (b"still there",))
    assert received(peer) == [(b"still there",)]

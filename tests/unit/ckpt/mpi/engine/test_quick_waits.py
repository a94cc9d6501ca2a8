"""A message of an idle link in one call each: `send` writes it into the peer's ring, `recv` finds it there.

Two ranks of this process, with real ports and rings between them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ckpt import MPI
from ckpt.mpi import make_world
from ckpt.mpi.base.errors import MpiException
from ckpt.mpi.engine import quick
from ckpt.mpi.engine.engine import Engine
from ckpt.transport.driver.port import Port
from ckpt.transport.protocol.endpoint import EndpointConfig
from ckpt.transport.rings.ringwire import RingWire
from ckpt.transport.wires.zmqwire import ZmqWire

pytest.importorskip("ckpt.mpi.engine._quick", reason="the C modules are not built")

AT_ONCE = 1 << 62


class Rank:
    """A Progress over a port."""

    size = 2

    def __init__(self, rank: int, directory: Path) -> None:
        self.rank = rank
        rings = RingWire(ZmqWire(f"ipc://{directory}/{rank}"), rank, b"key" * 10, capacity=1 << 16)
        self.port = port = Port(EndpointConfig(job=1, rank=rank, size=2), rings)
        port.use_rings(rings)
        self.lock, self.send, self.poll = port.lock, port.send, port.progress
        self.acked, self.release = port.endpoint.base, port.endpoint.release
        self.backlog_bytes, self.consumed = port.endpoint.backlog_bytes, port.endpoint.consumed
        self.engine, self.world = make_world(self)  # type: ignore[arg-type]
        self.engine.lane = quick.make_lane(port.endpoint, port.lock, 1 << 20, 63, port.express)
        self.engine.look = port.glance
        port.on_messages = quick.arrivals(self.engine)

    def block(self, hungry: bool, awaited: object = None) -> None:
        self.port.wait(1_000_000)


@pytest.fixture
def ranks(tmp_path: Path) -> Iterator[tuple[Rank, Rank]]:
    """Connected, and each has had a message of the other."""
    one, two = made = Rank(0, tmp_path), Rank(1, tmp_path)
    for rank, other in ((one, two), (two, one)):
        with rank.lock:
            rank.port.set_peer(other.rank, other.port.wire.address, 0)
    for _ in range(3):
        for rank, other in ((one, two), (two, one)):
            rank.world.send("first", other.rank)
            while not other.world.iprobe(rank.rank):
                with rank.lock:
                    rank.port.progress()
            assert other.world.recv(source=rank.rank) == "first"
    yield made
    for rank in made:
        rank.port.close()


class Calls:
    """What is called while the context lasts."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.made: list[str] = []
        for cls, name in ((Port, "glance"), (Port, "wait"), (Port, "progress"), (Engine, "on_messages")):
            self._note(patch, cls, name)

    def _note(self, patch: pytest.MonkeyPatch, cls: Any, name: str) -> None:
        former = getattr(cls, name)

        def noted(*args: Any) -> Any:
            self.made.append(name)
            return former(*args)

        patch.setattr(cls, name, noted)


def test_a_round_trip_calls_nothing_of_python(
    ranks: tuple[Rank, Rank], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = ranks
    into = np.zeros(3)
    looked = one.port.counters()["waits_spun"]
    # a timer, or the look at the control descriptor, may be due in some
    calls = Calls(monkeypatch)
    for number in range(200):
        one.world.Send(np.full(3, float(number)), 1)
        two.world.Recv(into, 0)
        assert (into == number).all()
        two.world.send({"number": number}, 0)
        assert one.world.recv(source=1) == {"number": number}
    assert len(calls.made) < 100, calls.made
    assert one.port.counters()["waits_spun"] - looked > 100
    assert one.port.counters()["express_sent"] > 150


def test_neighbours_exchange_buffers_without_python(
    ranks: tuple[Rank, Rank], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = ranks
    mine, theirs, into = np.zeros(512), np.ones(512), np.zeros(512)
    calls = Calls(monkeypatch)
    for _ in range(100):
        two.world.Send(theirs, 0)
        two.port.express.flush()  # what crosses acknowledges nothing, so it waits for this
        one.world.Sendrecv(mine, 1, 0, into, 1, 0)
        assert (into == 1).all()
        two.world.Recv(into, 0)
        assert (into == 0).all()
    assert len(calls.made) < 60, calls.made


@pytest.mark.parametrize("tag", [0, MPI.ANY_TAG])
def test_posted_receives_get_their_messages_without_python(
    ranks: tuple[Rank, Rank], monkeypatch: pytest.MonkeyPatch, tag: int
) -> None:
    one, two = ranks
    mine, into = np.zeros(512), np.zeros(512)
    calls = Calls(monkeypatch)
    for number in range(100):
        requests = [one.world.Irecv(into, 1, tag), one.world.Isend(mine, 1), one.world.irecv(source=1, tag=5)]
        two.world.Send(np.full(512, float(number)), 0)
        two.world.send(number, 0, tag=5)
        two.port.express.flush()
        assert MPI.Request.waitall(requests) == [None, None, number]
        assert (into == number).all()
        two.world.Recv(np.empty(512), 0)
    assert calls.made.count("on_messages") < 5, calls.made
    assert len(calls.made) < 120, calls.made


@pytest.mark.parametrize("into", [None, b"12345678", np.zeros(2, dtype="O"), np.zeros(8)[::2]])
def test_a_sendrecv_with_a_wrong_buffer_sends_nothing(ranks: tuple[Rank, Rank], into: Any) -> None:
    one, _ = ranks
    before = one.port.endpoint.key()
    with pytest.raises((TypeError, ValueError, KeyError, BufferError)):
        one.world.Sendrecv(b"12345678", 1, 0, into, 1, 0)
    assert one.port.endpoint.key() == before


def test_a_message_to_oneself_is_found_by_a_look(ranks: tuple[Rank, Rank]) -> None:
    """Timers were run in the look, and what these had delivered was left: the receive waited for ever."""
    one, _ = ranks
    for number in range(20):
        one.world.send(number, 0)
        with one.lock:
            assert one.port.glance()
        assert one.world.recv(source=0) == number


def test_every_64th_message_has_the_backlog_looked_at(
    ranks: tuple[Rank, Rank], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = ranks
    seen: list[int] = []
    monkeypatch.setattr(Engine, "throttle", lambda engine, dst, shared=None: seen.append(dst))
    for _ in range(64):
        one.world.Send(b"12345678", 1)
        two.world.Recv(bytearray(8), 0)
        two.world.send(1, 0)
        one.world.recv(source=1)
    assert seen.count(1) == seen.count(0) == 1


def test_a_look_that_finds_nothing_changes_nothing(ranks: tuple[Rank, Rank]) -> None:
    _, two = ranks
    before = two.port.endpoint.key(), two.engine.matcher.serial
    assert quick.recv(two.world, 0, 0, None) is quick.MISS
    assert quick.recv_buffer(two.world, bytearray(8), 0, 0, None) is False
    assert (two.port.endpoint.key(), two.engine.matcher.serial) == before
    assert not two.lock.locked()


@pytest.mark.parametrize("what", ["runnable", "known", "posted", "guard", "look"])
def test_a_receive_does_not_look_where_something_else_is_to_be_done(
    ranks: tuple[Rank, Rank], what: str
) -> None:
    one, two = ranks
    engine = two.engine
    one.world.send("x", 1)
    looked: list[str] = []
    engine.look = lambda: looked.append("") or False
    if what == "runnable":
        engine.runnable.append(object())  # type: ignore[arg-type]
    elif what == "known":
        engine.failed_ranks.known.add(0)
    elif what == "posted":
        engine.handlers = type("Handlers", (), {"posted": ["one"]})()
    elif what == "guard":
        engine.guard = object()  # type: ignore[assignment]
    else:
        engine.look = None
    assert quick.recv(two.world, 0, 0, None) is quick.MISS
    assert not looked


def test_what_a_look_raises_is_raised_with_the_lock_free(ranks: tuple[Rank, Rank]) -> None:
    _, two = ranks

    def fail() -> bool:
        assert two.lock.locked()
        raise KeyboardInterrupt

    two.engine.look = fail
    for receive in (lambda: two.world.recv(source=0), lambda: two.world.Recv(bytearray(8), 0)):
        with pytest.raises(KeyboardInterrupt):
            receive()
        assert not two.lock.locked()


def test_with_the_lock_in_other_hands_nothing_is_sent_or_looked_for(ranks: tuple[Rank, Rank]) -> None:
    one, two = ranks
    two.engine.look = None
    with one.lock:
        data = quick.send_buffer(one.world, b"12345678", 1, 0)
        assert isinstance(data, bytes) and data.endswith(b"12345678")
        assert isinstance(quick.send(one.world, "x", 1, 0), bytes)
        assert one.engine.lane.send(1, data) is None
        assert quick.recv(one.world, 1, 0, None) is quick.MISS
    assert one.port.endpoint.idle()


def test_a_communicator_that_is_revoked_during_the_look_gives_no_message(ranks: tuple[Rank, Rank]) -> None:
    one, two = ranks
    one.world.send("too late", 1)

    def look() -> bool:
        with_message = two.port.glance()  # not on a busy machine: another timer may be due
        two.engine.failed_ranks.revoke(two.world._context.number)  # what a REVOKE message does
        return with_message

    two.engine.look = look
    with pytest.raises(MpiException):
        two.world.recv(source=0)
    assert not two.lock.locked()


def test_what_comes_for_a_posted_receive_or_a_new_tag_is_given_to_the_engine(
    ranks: tuple[Rank, Rank],
) -> None:
    one, two = ranks
    request = two.world.irecv(source=0, tag=0)
    new = two.world.irecv(source=0, tag=77)
    for tag in (0, 77, 78):
        one.world.send(tag, 1, tag)
    with one.lock:
        one.port.progress()  # the second and the third wait for the first's acknowledgement, or for this
    assert (request.wait(), new.wait(), two.world.recv(source=0, tag=78)) == (0, 77, 78)


def test_a_failure_while_the_peer_is_woken_is_raised_with_the_lock_free(
    ranks: tuple[Rank, Rank], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message counts as sent: it is in the ring."""
    one, two = ranks
    monkeypatch.setattr(Port, "_wake_peer", lambda port, rank: 1 / 0)
    two.port.wire.deadline_ns()  # it is about to sleep
    with pytest.raises(ZeroDivisionError):
        one.world.send("x", 1)
    assert not one.lock.locked()
    monkeypatch.undo()
    assert two.world.recv(source=0) == "x"


def test_a_lane_wants_the_hot_way_of_a_port(ranks: tuple[Rank, Rank]) -> None:
    port = ranks[0].port
    with pytest.raises(TypeError, match="hot way"):
        quick.make_lane(port.endpoint, port.lock, 1, 63, object())  # type: ignore[arg-type]
    lane = quick.make_lane(port.endpoint, port.lock, 1, 63)
    assert lane.send(1, b"x") is None, "it has none"
    for args in ((1,), (1, b"x", 2)):
        with pytest.raises(TypeError):
            lane.send(*args)

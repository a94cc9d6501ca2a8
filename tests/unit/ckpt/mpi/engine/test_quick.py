"""The short way in C against the long way in Python: the same results, the same errors, the same state left behind.

The long way is the specification. Whole histories of two ranks over two real endpoints are run both ways and compared after
every step.
"""

from __future__ import annotations

import pickle
import random
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from ckpt.mpi import make_world
from ckpt.mpi.base import envelope
from ckpt.mpi.base.constants import ANY_SOURCE, ANY_TAG
from ckpt.mpi.comm.communicator import Intracomm
from ckpt.mpi.datatypes.datatypes import BYTE, PREDEFINED
from ckpt.mpi.datatypes.status import Status
from ckpt.mpi.engine import quick
from ckpt.mpi.engine.engine import Engine
from ckpt.mpi.engine.matching import Channel
from ckpt.mpi.engine.pickling import Pickle
from ckpt.mpi.requests.request import Request
from ckpt.transport.protocol.endpoint import Endpoint, EndpointConfig
from ckpt.transport.protocol.ledger import Placed
from ckpt.transport.protocol.window import SendWindow

pytest.importorskip("ckpt.mpi.engine._quick", reason="the C modules are not built")


class Rank:
    """A Progress over an endpoint: everything below is real but the wire, which `exchange` is."""

    size = 2

    def __init__(self, rank: int, **limits: int) -> None:
        self.rank = rank
        self.lock = threading.Lock()
        self.endpoint = Endpoint(EndpointConfig(job=1, rank=rank, size=2, incarnation=0, epoch=0, **limits))
        self.send = self.endpoint.send
        self.acked = self.endpoint.base
        self.release = self.endpoint.release
        self.backlog_bytes = self.endpoint.backlog_bytes
        self.consumed = self.endpoint.consumed
        self.engine: Engine
        self.world: Intracomm
        self.engine, self.world = make_world(self)
        self.pair: Pair
        self.take: Callable[[int, list[Any]], None] = self.engine.on_messages
        self.placing: tuple[Any, Any] = (self.engine.place, self.engine.on_placed)

    def poll(self) -> None:
        self.pair.exchange()

    def block(self, hungry: bool, awaited: object = None) -> None:
        self.pair.exchange()


DIRECT_FROM = 64 << 10


class Pair:
    """Two ranks, and what is between them. `is_quick`: the short way is open. `direct`: long messages are read from the
    memory of their sender."""

    def __init__(self, *, is_quick: bool = True, direct: bool = False, **limits: int) -> None:
        self.ranks = [Rank(0, **limits), Rank(1, **limits)]
        self.now_ns = 1
        self.direct = direct
        self.placed = 0
        for rank in self.ranks:
            rank.pair = self
            rank.endpoint.set_peer(1 - rank.rank, 0, self.now_ns)
            if direct:
                rank.engine.direct, rank.engine.joined_bytes = {1 - rank.rank}, DIRECT_FROM
            if is_quick:
                rank.take, rank.placing = quick.arrivals(rank.engine), quick.placing(rank.engine)
                rank.engine.lane = quick.make_lane(rank.endpoint, rank.lock, 1 << 20, 63)

    def exchange(self) -> None:
        self.now_ns += 20_000_000
        for rank in self.ranks:
            rank.endpoint.tick(self.now_ns)
            for peer, parts in rank.endpoint.transmit(self.now_ns):
                self.ranks[peer].endpoint.receive(parts, self.now_ns)
        for rank in self.ranks:
            for source, messages in rank.endpoint.delivered():
                if not self.direct:
                    rank.take(source, messages)
                for message in messages if self.direct else ():
                    if len(message) < DIRECT_FROM or not self._place(rank, source, message):
                        rank.take(source, [message])
            rank.engine.busy.clear()  # else a slow moment of this machine were a part of the story

    def _place(self, rank: Rank, source: int, message: Any) -> bool:
        """What a port does with a long message: it is read into the memory in which it is wanted."""
        place, on_placed = rank.placing
        head = bytes(message[: envelope.SIZE])
        spot = place(head, len(message) - envelope.SIZE)
        if spot is None or spot.memory is None:
            return False
        spot.memory[:] = message[envelope.SIZE :]
        on_placed(source, Placed(head, spot, len(message)))
        self.placed += 1
        return True

    def state(self) -> list[Any]:
        return [(of_endpoint(rank.endpoint), of_engine(rank.engine)) for rank in self.ranks]


def of_endpoint(endpoint: Endpoint) -> Any:
    windows = []
    for window in endpoint._windows.values():
        windows.append([getattr(window, name) for name in SendWindow.__slots__ if name in _NUMBERS])
        windows[-1].append(list(window.queue))
    return endpoint.key(), windows, endpoint.peer_counters(), endpoint.flush_due


_NUMBERS = {
    "acked_charge", "base", "clean", "edge", "flight_charge", "queued", "sealed_charge", "sent_charge", "tx"
}  # fmt: skip


def of_engine(engine: Engine) -> Any:
    matcher = engine.matcher
    contexts = []
    for number, context in sorted(matcher.contexts.items()):
        order = None if context.order is None else [(s, c.source, c.tag) for s, c in context.order.items()]
        channels = [
            (key, [(s, bytes(data)) for s, data in channel.messages], len(channel.posted))
            for key, channel in context.channels.items()
        ]
        contexts.append((number, channels, order, sorted(context.direct), len(context.wild)))
    return matcher.serial, matcher.posted, matcher.ticket, contexts, engine.debts, engine.taken, engine.sends


def in_python(patch: pytest.MonkeyPatch) -> None:
    """Close the short way."""
    patch.setattr(quick, "send", quick._send)
    patch.setattr(quick, "recv", quick._recv)
    patch.setattr(quick, "send_buffer", quick._send_buffer)
    patch.setattr(quick, "recv_buffer", quick._recv_buffer)
    patch.setattr(quick, "sendrecv_buffer", quick._sendrecv_buffer)
    patch.setattr(quick, "isend_buffer", quick._send_buffer)
    patch.setattr(quick, "irecv_buffer", quick._irecv_buffer)
    patch.setattr(quick, "finish", quick._nothing_is_done)
    patch.setattr("ckpt.mpi.engine.engine.sort_in", quick._sort_in)


class Odd:
    """Pickles itself by way of the program, which communicates meanwhile."""

    def __init__(self, comm: Any) -> None:
        self.comm = comm

    def __reduce__(self) -> Any:
        self.comm.send("from within", 1, tag=2)
        return str, ("odd",)


OBJECTS: list[Callable[[random.Random, Any], Any]] = [
    lambda chance, comm: chance.choice([None, True, False, 0, 255, 256, -1, 1 << 31, -(1 << 31), 1 << 80]),
    lambda chance, comm: chance.random(),
    lambda chance, comm: "x" * chance.choice([0, 1, 255, 256, 300]),
    lambda chance, comm: bytes(chance.choice([0, 3, 255, 256, 70_000])),
    lambda chance, comm: (chance.randrange(9), "a", {"b": [1.5]}),
    lambda chance, comm: Odd(comm),
    lambda chance, comm: threading.Lock(),  # cannot be pickled
]


DOUBLE = PREDEFINED["MPI_DOUBLE"]


def numbers(code: str, count: int, shape: tuple[int, ...] = (-1,), order: Any = "C") -> Callable[[int], Any]:
    return lambda first: np.asarray((np.arange(count) + first).astype(code).reshape(shape), order=order)


BUFFERS: list[Callable[[int], Any]] = [
    lambda number: bytearray([number] * 8),
    lambda number: bytes([number] * 8),  # cannot be received into
    lambda number: bytearray(),
    numbers("f8", 3),
    numbers("i4", 6, (2, 3), "F"),
    numbers("c16", 2),
    numbers("u1", 300),
    numbers(">i4", 3),  # another byte order
    numbers("O", 2),  # no datatype
    numbers("f8", 9000),  # 72 000 bytes
    lambda number: numbers("i8", 12)(number)[::2],  # not contiguous
    lambda number: [numbers("f8", 3)(number), DOUBLE],
    lambda number: (numbers("f8", 3)(number), 3, DOUBLE),
    lambda number: [numbers("f8", 3)(number), 2, DOUBLE],
    lambda number: [numbers("f8", 3)(number), BYTE],
    lambda number: [numbers("u1", 7)(number), DOUBLE],  # no whole number of elements
    lambda number: memoryview(bytearray([number] * 16))[4:8],
]


STEPS = {
    "send": 8, "burst": 3, "isend": 2, "issend": 1, "Send": 3, "Isend": 1, "recv": 9, "Recv": 5, "irecv": 2, "probe": 2,
    "mprobe": 1, "exchange": 5, "Irecv": 3, "codec": 0.3, "lock": 0.3, "Sendrecv": 3,
}  # fmt: skip


def posted(comm: Any, chance: random.Random, intos: list[Any], *where: Any) -> Iterator[Any]:
    for _ in range(chance.choice([1, 1, 3])):
        intos.append(chance.choice(BUFFERS)(7))
        yield comm.Irecv(intos[-1], *where)


def told(requests: list[Any]) -> list[Any]:
    """What the operations of these requests tell."""
    operations = [request._operation for request in requests if request._operation is not None]
    return [(each.source, each.tag, each.nbytes, each.done) for each in operations]


def seen_in(into: Any) -> int:
    return hash(str(into.tolist() if isinstance(into, (np.ndarray, memoryview)) else into))


def both(comm: Any, chance: random.Random, to: tuple[int, int], *where: Any) -> int | None:
    sent, into = chance.choice(BUFFERS)(4), chance.choice(BUFFERS)(7)
    if not comm.iprobe(*where[:2]):
        return None
    comm.Sendrecv(sent, *to, into, *where)
    return seen_in(into)


def history(seed: int, *, is_quick: bool, steps: int = 150) -> list[Any]:
    """What one history returned and left behind, step by step."""
    chance = random.Random(seed)
    limits = chance.choice([{}, {"coalesce_bytes": 600, "large_bytes": 400}, {"credit_bytes": 4096}])
    pair = Pair(is_quick=is_quick, direct=chance.random() < 0.5, **limits)
    one, two = (rank.world for rank in pair.ranks)
    worlds = (one, two)
    story: list[Any] = []
    pending: list[Any] = []
    intos: list[Any] = []
    many_tags = chance.random() < 0.3
    for _ in range(steps):
        sender, receiver = chance.choice([(0, 1), (0, 1), (0, 1), (1, 0)])
        comm, other = worlds[sender], worlds[receiver]
        tag = chance.choice([0, 0, 0, 1, 2, True, -1]) if not many_tags else chance.randrange(40)
        status = chance.choice([None, Status()])
        what = chance.choices(list(STEPS), list(STEPS.values()))[0]
        source = chance.choice([sender, ANY_SOURCE])
        wanted = chance.choice([tag, tag, ANY_TAG])
        obj = chance.choices(OBJECTS, [6, 2, 2, 2, 4, 1, 0.5])[0](chance, one)
        try:
            result: Any = None
            if what == "send":
                result = comm.send(obj, receiver, tag)
            elif what == "burst":
                for number in range(chance.choice([3, 70])):
                    comm.send(number, receiver, tag)
            elif what in ("isend", "issend"):
                pending.append(getattr(comm, what)(obj, receiver, tag))
            elif what == "Send":
                for number in range(chance.choice([1, 1, 70])):
                    comm.Send(chance.choice(BUFFERS)(number), receiver, tag)
            elif what == "Irecv":
                pending += posted(other, chance, intos, source, wanted)
            elif what == "Isend":
                pending.append(comm.Isend(chance.choice(BUFFERS)(5), receiver, tag))
            elif what == "Recv":
                into = chance.choice(BUFFERS)(7)
                for _ in range(chance.choice([1, 70])):
                    if other.iprobe(source, wanted):
                        other.Recv(into, source, wanted, status)
                        result = [result, seen_in(into)]
            elif what == "Sendrecv":
                result = both(other, chance, (sender, tag), source, wanted, status)
            elif what == "recv":
                if other.iprobe(source, wanted):
                    result = other.recv(None, source, wanted, status)
            elif what == "irecv":
                pending.append(other.irecv(None, source, wanted))
            elif what == "probe":
                result = other.iprobe(source, wanted, status)
            elif what == "mprobe":
                message = other.improbe(source, wanted, status)
                result = message and message.recv()
            elif what == "exchange":
                pair.exchange()
                result = [request.test() for request in pending]
            elif what == "codec":
                engine = pair.ranks[sender].engine
                engine.codec = None if engine.codec else Pickle(protocol=4)
            else:
                with pair.ranks[sender].lock:
                    lane = pair.ranks[sender].engine.lane
                    assert lane is None or not lane.append(receiver, b"x")
        except Exception as error:
            result = repr(error)
        seen = status and (status.Get_source(), status.Get_tag(), status.Get_count())
        state = pair.state(), pair.placed
        story.append((what, repr(result), seen, state, told(pending), list(map(seen_in, intos))))
    return story


@pytest.mark.rotate(3)
@pytest.mark.parametrize("seed", range(60))
def test_both_ways_tell_the_same_story(seed: int) -> None:
    short = history(seed, is_quick=True)
    with pytest.MonkeyPatch.context() as patch:
        in_python(patch)
        long = history(seed, is_quick=False)
    for number, (mine, theirs) in enumerate(zip(short, long, strict=True)):
        assert mine == theirs, f"step {number}, {mine[0]}"


def test_the_short_way_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the story above compares Python with itself."""
    taken = []
    for name in ("send", "recv"):
        monkeypatch.setattr(quick, name, noting(getattr(quick, name), taken))
    pair = Pair()
    one, two = (rank.world for rank in pair.ranks)
    for number in range(20):
        one.send(number, 1)
    pair.exchange()
    assert [two.recv(source=0) for _ in range(20)] == list(range(20))
    assert taken.count(None) >= 18  # the first has no route
    # The first is looked for
    assert [result for result in taken if type(result) is int] == list(range(1, 20))


def test_the_short_way_is_taken_for_buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: dict[str, list[Any]] = {"send_buffer": [], "recv_buffer": [], "isend_buffer": [], "finish": []}
    for name, results in taken.items():
        monkeypatch.setattr(quick, name, noting(getattr(quick, name), results))
    pair = Pair()
    one, two = (rank.world for rank in pair.ranks)
    data, into = np.arange(3.0), np.zeros(3)
    for _ in range(10):
        one.Send(data, 1)
        one.Send([data, DOUBLE], 1)
        one.Isend(data, 1).Wait()
    pair.exchange()
    for number in range(30):
        into[:] = 0
        two.Recv([into, DOUBLE] if number % 2 else into, 0, 0)
        assert (into == data).all()
    assert taken["send_buffer"].count(None) >= 18  # the first has no route
    assert len(taken["isend_buffer"]) == 10 and all(type(each) is Request for each in taken["isend_buffer"])
    assert taken["finish"] == [True] * 10
    assert taken["recv_buffer"].count(True) >= 29


def test_an_array_of_objects_is_refused_where_a_message_waits_too() -> None:
    """Its memory has addresses: they were sent, and written over those of the receiver."""
    pair = Pair()
    one, two = (rank.world for rank in pair.ranks)
    objects = np.array(["a", "b"], dtype=object)
    with pytest.raises(KeyError, match="'O'"):
        one.Send(objects, 1)
    for _ in range(2):
        one.Send(bytearray(16), 1)
    pair.exchange()
    for _ in range(2):
        with pytest.raises(KeyError, match="'O'"):
            two.Recv(objects, 0)
    assert list(objects) == ["a", "b"]


def noting(function: Callable[..., Any], taken: list[Any]) -> Callable[..., Any]:
    def noted(*args: Any) -> Any:
        taken.append(function(*args))
        return taken[-1]

    return noted


@pytest.mark.parametrize("sort_in", [quick.sort_in, quick._sort_in])
def test_a_batch_is_sorted_in_up_to_the_first_unusual_message(sort_in: Any) -> None:
    pair = Pair()
    one = pair.ranks[0].world
    for number in range(3):
        one.send(number, 1)
    pair.exchange()
    matcher = pair.ranks[1].engine.matcher
    (channel,) = (c for context in matcher.contexts.values() for c in context.channels.values())
    message = channel.messages[0][1]
    batch = [message, message, message[:20], message, bytearray(message)]
    assert sort_in(matcher, batch, 0) == 2
    assert sort_in(matcher, batch, 3) == 4
    assert matcher.serial == 6 and len(channel.messages) == 6
    assert sort_in(matcher, batch, 4) == 4 and sort_in(matcher, batch, 5) == 5


def test_what_cannot_be_taken_short_leaves_everything_as_it_was() -> None:
    pair = Pair()
    pair.exchange()
    one, two = (rank.world for rank in pair.ranks)
    before = pair.state()
    assert quick.send(one, 1, 1, 0) is False  # no route yet
    assert quick.recv(two, 0, 0, None) is quick.MISS
    assert quick.send(object(), 1, 1, 0) is False
    assert quick.recv(object(), 0, 0, None) is quick.MISS
    assert pair.state() == before
    one._route(1, 0)
    assert quick.send(one, 7, 1, 0) == pickle.dumps(7, 5)  # the link is clean: somebody has to tell it
    assert quick.send(one, 7, 1, 0.0) is False
    assert pair.state() == before
    copy = Intracomm(one)
    copy._unbind()
    assert quick.send(copy, 1, 1, 0) is False
    assert quick.recv(copy, 1, 0, None) is quick.MISS


def test_a_lane_wants_an_endpoint_and_the_classes_their_slots() -> None:
    with pytest.raises(AttributeError):
        quick.make_lane(object(), threading.Lock(), 1, 63)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="none of the classes"):
        quick.know(Status)
    with pytest.raises(AttributeError):
        quick.know(type("Channel", (), {}))
    with pytest.raises(TypeError, match="no slot"):
        quick.know(type("Channel", (), {"messages": ()}))
    quick.know(Channel)


def test_lane_appends_what_the_endpoint_would() -> None:
    ways = []
    for is_quick in (True, False):
        rank = Pair(coalesce_bytes=2000, large_bytes=500).ranks[0]
        lane = quick.make_lane(rank.endpoint, rank.lock, 3000, 3)
        chance = random.Random(5)
        states = []
        for _ in range(200):
            message = bytes(chance.choice([0, 10, 500, 501]))
            if not (is_quick and lane.append(1, message)):
                rank.endpoint.send(1, message)
            if chance.random() < 0.1:
                rank.endpoint.transmit(1)
            states.append(of_endpoint(rank.endpoint))
        ways.append(states)
        assert not lane.append(5, b"") and not lane.append("1", b"") and not lane.append(1, bytearray())
        with pytest.raises(TypeError):
            lane.append(1)
    assert ways[0] == ways[1]


class Refusing:
    """A guard (base/handlers.py) that refuses everything."""

    def check(self) -> None:
        raise PermissionError("check")

    def acquire(self) -> bool:
        raise PermissionError("acquire")


def test_with_a_guard_in_place_both_ways_ask_it_first() -> None:
    """A handler of active messages that calls recv must not take a message: the program's thread may be taking it."""
    pair = Pair()
    sender, receiver = (rank.world for rank in pair.ranks)
    for number in range(3):
        sender.send(number, 1)
    pair.exchange()
    assert receiver.recv(source=0) == 0
    before = pair.state()
    for comm in (sender, receiver):
        comm._engine.guard = comm._engine.lock = Refusing()
    for _ in range(2):
        assert quick.send(sender, "object", 1, 0) is False
        assert quick.recv(receiver, 0, ANY_TAG, None) is quick.MISS
        with pytest.raises(PermissionError, match="acquire"):
            sender.send("object", 1)
        with pytest.raises(PermissionError, match="check"):
            receiver.recv(source=0)
    assert pair.state() == before
    for rank in pair.ranks:
        rank.engine.guard, rank.engine.lock = None, rank.lock
    assert [receiver.recv(source=0) for _ in range(2)] == [1, 2]

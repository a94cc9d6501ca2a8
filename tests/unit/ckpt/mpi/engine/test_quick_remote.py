"""Long messages that their receiver reads from the sender's memory, in C and in Python: the same objects and state."""

from __future__ import annotations

import gc
import random
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ckpt import MPI
from ckpt.mpi.base import envelope
from ckpt.mpi.datatypes.buffers import simple
from ckpt.mpi.engine import quick
from ckpt.mpi.engine.engine import BUSY_NS, BUSY_SENDS, DIRECT_COPY_BYTES
from ckpt.mpi.engine.operations import BufferSend, Done, Receive
from ckpt.transport.protocol.ledger import Placed
from tests.seeds import seed_of_the_commit
from tests.unit.ckpt.mpi.engine.test_quick import DIRECT_FROM, Pair, in_python, told
from tests.unit.ckpt.mpi.engine.test_quick_requests import content

pytest.importorskip("ckpt.mpi.engine._quick", reason="the C modules are not built")

LONG = DIRECT_FROM // 8 + 5  # numbers of 8 bytes


def connected(*, is_quick: bool = True) -> tuple[Pair, Any, Any]:
    """Two ranks that read from each other's memory, and have had a message of each other."""
    pair = Pair(is_quick=is_quick, direct=True)
    one, two = (rank.world for rank in pair.ranks)
    for sender, receiver, rank in ((one, two, 1), (two, one, 0)):
        sender.Send(np.zeros(1), rank, 7)
        pair.exchange()
        receiver.Recv(np.zeros(1), 1 - rank, 7)
    return pair, one, two


def head_of(comm: Any, source: int = 1, tag: int = 7) -> bytes:
    return envelope.pack(envelope.EAGER, source, tag, comm._context.number)


class Array(np.ndarray):
    """A subclass, whose exporter might run code of the program."""


def posted(comm: Any, kind: str) -> Any:
    """What a receive of this kind is posted with: kept by the caller."""
    into: Any = np.zeros(LONG)
    match kind:
        case "plain" | "any source" | "any tag":
            source, tag = {"any source": (MPI.ANY_SOURCE, 7), "any tag": (1, MPI.ANY_TAG)}.get(kind, (1, 7))
            return into, comm.Irecv(into, source, tag)
        case "longer":
            into = np.zeros(2 * LONG)
        case "short":
            into = np.zeros(LONG - 1)
        case "part":
            into = [np.zeros(2 * LONG), LONG, MPI.DOUBLE]
        case "two dimensions":
            into = np.zeros((5, LONG))
        case "with gaps":
            into = [np.zeros(2 * LONG), 1, MPI.DOUBLE.Create_vector(LONG, 1, 2).Commit()]
        case "bytearray":
            into = bytearray(8 * LONG)
        case "subclass":
            into = np.zeros(LONG).view(Array)
        case "object":
            return comm.irecv(source=1, tag=7)
        case "none":
            return None
        case "partitioned":
            request = comm.Precv_init(into, 1, 1, 7)
            request.Start()
            return into, request
    return into, comm.Irecv(into, 1, 7)


KINDS = (
    *("plain", "longer", "short", "part", "two dimensions", "with gaps", "bytearray", "subclass", "object", "none"),
    *("any source", "any tag", "partitioned"),
)  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_the_place_of_a_message_is_the_one_of_python(kind: str) -> None:
    pair, one, _ = connected()
    kept = posted(one, kind)
    place, _ = quick.placing(one._engine)
    before = pair.state()
    mine, theirs = (asked(head_of(one), 8 * LONG) for asked in (place, one._engine.place))
    assert pair.state() == before
    if theirs is None:
        assert mine is None and kind in ("short", "with gaps", "object", "none", "partitioned")
        return
    assert type(mine) is type(theirs) and mine.receive is theirs.receive
    mine.memory[:] = np.arange(LONG, dtype=float).tobytes()
    assert bytes(theirs.memory) == bytes(mine.memory)
    del mine, theirs, kept


def test_a_call_that_is_about_to_post_its_receive_is_told_that_a_message_has_come() -> None:
    _, one, _ = connected()
    engine = one._engine
    channel = engine.matcher.by_envelope[head_of(one)]
    for asked in (quick.placing(engine)[0], engine.place):
        engine.ahead = channel
        spot = asked(head_of(one), 8 * LONG)
        assert spot.memory is None and spot.receive is None
        assert engine.ahead is None and asked(head_of(one), 8 * LONG) is None


@pytest.mark.parametrize("kind", ["plain", "longer", "part", "bytearray", "any source", "any tag"])
def test_a_message_that_is_placed_leaves_what_python_leaves(kind: str) -> None:
    left = []
    for is_quick in (True, False):
        pair, one, _ = connected()
        engine, said = one._engine, []
        pair.ranks[0].consumed = lambda *args, said=said: said.append(args)
        kept, request = posted(one, kind)
        place, on_placed = quick.placing(engine) if is_quick else (engine.place, engine.on_placed)
        engine.debts[1] = 5 * ((1 << 48) + 7)
        operation, spot = request._operation, place(head_of(one), 8 * LONG)
        on_placed(1, Placed(head_of(one), spot, 8 * LONG + envelope.SIZE))
        left.append((pair.state(), said, content(operation)[1], engine.debts))
        assert operation.done and operation.nbytes == 8 * LONG and not engine.matcher.posted
        del kept
    (state, said, mine, debts), theirs = left
    for each in (mine, theirs[2]):
        each.pop("target")
    assert (state, said, mine, debts) == theirs


def looking(pair: Pair, look: Callable[[], bool]) -> None:
    pair.ranks[0].engine.look = look


def exchanges(pair: Pair) -> Callable[[], bool]:
    def look() -> bool:
        pair.exchange()
        return True

    return look


@pytest.mark.parametrize("size", [LONG, DIRECT_COPY_BYTES // 8])
def test_a_long_send_is_done_when_it_is_read(size: int) -> None:
    pair, one, two = connected()
    data = np.arange(float(size))
    before = sys.getrefcount(data)
    sent = quick.send_buffer(one, data, 1, 7)
    assert type(sent) is BufferSend and not sent.done  # there is no look: Python has to wait
    theirs = one._start_send(simple(data, writable=False), 1, head_of(one, 0))
    assert content(sent)[1] | {"sequence": 0} == content(theirs)[1] | {"sequence": 0}
    assert theirs.sequence == sent.sequence + 1
    for _ in range(2):
        into = np.zeros(size)
        two.Recv(into, 0, 7)
        assert (into == data).all()
    looking(pair, exchanges(pair))
    assert quick.send_buffer(one, data, 1, 7) is None
    pair.exchange()
    del sent, theirs
    gc.collect()
    assert sys.getrefcount(data) == before


def test_a_rank_that_takes_long_to_read_counts_as_busy_both_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    for is_quick in (True, False):
        pair, one, two = connected()
        if not is_quick:
            in_python(monkeypatch)

        def look(pair: Pair = pair) -> bool:
            time.sleep(2 * BUSY_NS * 1e-9)
            pair.exchange()
            return True

        looking(pair, look)
        one.Send(np.zeros(LONG), 1, 7)
        assert one._engine.busy == {1: BUSY_SENDS}
        assert type(quick.send_buffer(one, np.zeros(LONG), 1, 7)) is bool  # Python copies it
        one.Send(np.zeros(LONG), 1, 7)
        assert one._engine.busy == {1: BUSY_SENDS - 1}
        for _ in range(2):
            two.Recv(np.zeros(LONG), 0, 7)


@pytest.mark.parametrize("why", ["failed", "revoked", "not read", "subclass", "lock", "part", "joined"])
def test_other_sends_are_left_to_python(why: str) -> None:
    pair, one, _ = connected()
    engine, buffer = one._engine, np.zeros(LONG)
    lock = pair.ranks[0].lock
    match why:
        case "failed":
            with lock:
                engine.failed_ranks.known.add(0)
        case "revoked":
            one._shared.revoked = True
        case "not read":
            engine.direct = set()
        case "subclass":
            buffer = buffer.view(Array)
        case "part":
            buffer = [buffer, LONG - 2, MPI.DOUBLE]
        case "joined":
            engine.joined_bytes = 8 * LONG + 1
        case "lock":
            lock.acquire()
    before = pair.state()
    assert quick.send_buffer(one, buffer, 1, 7) is False
    assert pair.state() == before


def coming(pair: Pair, tag: int = 7) -> None:
    """Rank 0 looks for messages: a long one of rank 1 stays where it is until its receive is posted."""
    engine = pair.ranks[0].engine
    place, on_placed = quick.placing(engine)
    data = np.arange(LONG, dtype=float).tobytes()
    head = head_of(pair.ranks[0].world, 1, tag)

    def look() -> bool:
        spot = place(head, len(data))
        if spot is None or spot.memory is None:
            return False
        spot.memory[:] = data
        on_placed(1, Placed(head, spot, len(data) + envelope.SIZE))
        return True

    looking(pair, look)


@pytest.mark.parametrize("source, tag", [(1, 7), (MPI.ANY_SOURCE, 7), (1, MPI.ANY_TAG)])
def test_a_blocking_receive_is_posted_for_the_long_message_that_waits_for_it(source: int, tag: int) -> None:
    pair, one, _ = connected()
    one.Iprobe(source, tag)  # now it is known that one channel alone matches
    coming(pair)
    into, status = np.zeros(LONG), MPI.Status()
    assert quick.recv_buffer(one, into, source, tag, status) is True
    assert (into == np.arange(LONG)).all()
    assert (status.source, status.tag, status.Get_count(MPI.DOUBLE)) == (1, 7, LONG)
    assert not pair.ranks[0].engine.matcher.posted


def test_a_receive_that_is_not_done_after_the_look_is_waited_for() -> None:
    pair, one, two = connected()
    engine = one._engine
    place, _ = quick.placing(engine)
    looks: list[bool] = []

    def look() -> bool:
        looks.append(place(head_of(one), 8 * LONG) is not None)
        return False

    looking(pair, look)
    into = np.zeros(LONG)
    received = quick.recv_buffer(one, into, 1, 7, None)
    assert type(received) is Receive and not received.done and looks == [True, True]
    two.Isend(np.ones(LONG), 0, 7)
    one._wait_both(received, Done(), None)
    assert (into == 1).all()


def test_an_error_in_the_look_withdraws_the_receive() -> None:
    pair, one, _ = connected()
    place, _ = quick.placing(one._engine)

    def look() -> bool:
        if one._engine.matcher.posted:
            raise KeyboardInterrupt
        return place(head_of(one), 8 * LONG) is None

    looking(pair, look)
    with pytest.raises(KeyboardInterrupt):
        one.Recv(np.zeros(LONG), 1, 7)
    assert not one._engine.matcher.posted and not pair.ranks[0].lock.locked()


def test_a_receive_that_is_too_short_is_truncated() -> None:
    pair, one, two = connected()
    two.Isend(np.ones(LONG), 0, 7)
    looking(pair, exchanges(pair))
    with pytest.raises(MPI.Exception, match=r"buffer of 80 bytes"):
        one.Recv(np.zeros(10), 1, 7)


def test_neighbours_exchange_long_buffers() -> None:
    pair, one, two = connected()
    looking(pair, exchanges(pair))
    for number in range(5):
        two.Isend(np.full(LONG, float(number)), 0, 7)
        into, status = np.zeros(LONG), MPI.Status()
        one.Sendrecv(np.full(LONG, 10.0 + number), 1, 7, into, 1, 7, status)
        assert (into == number).all() and status.Get_count(MPI.DOUBLE) == LONG
        two.Recv(into, 0, 7)
        assert (into == 10 + number).all()
    assert pair.placed > 3


def test_a_sendrecv_of_which_only_the_send_is_ordinary_is_finished_by_python() -> None:
    pair, one, two = connected()
    two.Send(np.full(3, 5.0), 0, 7)
    pair.exchange()  # so this receive is not posted
    begun = quick.sendrecv_buffer(one, np.zeros(LONG), 1, 7, into := np.zeros(3), 1, 7, None)
    assert begun[0] is None and type(begun[1]) is BufferSend
    one.Recv(into, 1, 7)
    two.Send(np.full(3, 6.0), 0, 7)
    pair.exchange()
    one.Sendrecv(np.ones(LONG), 1, 7, into, 1, 7)
    assert (into == 6).all()


def history(seed: int, *, is_quick: bool) -> tuple[list[Any], int]:
    """What each step of two ranks leaves that exchange long buffers and short ones; and how many long ones were placed."""
    chance = random.Random(seed)
    pair, one, two = connected(is_quick=is_quick)
    story: list[Any] = []
    pending: list[Any] = []
    intos: list[Any] = []
    for step in range(80):
        rank = chance.randrange(2)
        comm, tag, size = (
            (one, two)[rank],
            chance.choice([0, 7]),
            chance.choice([3, LONG, LONG, LONG + 9, 70_000]),
        )
        source, wanted = chance.choice([1 - rank, MPI.ANY_SOURCE]), chance.choice([tag, tag, MPI.ANY_TAG])
        data, into, result = (
            np.arange(step, step + size, dtype=float),
            np.zeros(chance.choice([LONG, 70_000])),
            None,
        )
        match chance.choice(["Send", "Isend", "Irecv", "Irecv", "Recv", "Sendrecv", "exchange"]):
            case "Send":
                comm.Send(data, 1 - rank, tag)
            case "Isend":
                pending.append(comm.Isend(data, 1 - rank, tag))
            case "Irecv":
                pending.append(comm.Irecv(into, source, wanted))
                intos.append(into)
            case "Recv" | "Sendrecv" as what if comm.Iprobe(source, wanted):
                try:
                    if what == "Recv":
                        comm.Recv(into, source, wanted)
                    else:
                        comm.Sendrecv(data, 1 - rank, tag, into, source, wanted)
                except MPI.Exception as error:
                    result = repr(error)
                intos.append(into)
            case "exchange":
                pair.exchange()
                result = [type(each._operation).__name__ for each in pending]
        for each in pair.ranks:
            each.engine.busy.clear()  # else a slow moment of this machine were a part of the story
        seen = [hash(each.tobytes()) for each in intos]
        story.append((folded(pair.state()), pair.placed, result, told(pending), seen))
    return story, pair.placed


def folded(state: Any) -> Any:
    """The same state, with hashes for long messages."""
    if isinstance(state, list | tuple):
        return [folded(each) for each in state]
    return hash(bytes(state)) if isinstance(state, bytes | bytearray | memoryview) else state


@pytest.mark.parametrize("seed", range(15))
def test_the_whole_story_is_the_same_both_ways(seed: int) -> None:
    seed = 100 * (seed_of_the_commit() % 1_000_000) + seed
    short, _ = history(seed, is_quick=True)
    with pytest.MonkeyPatch.context() as patch:
        in_python(patch)
        long, _ = history(seed, is_quick=False)
    for number, (mine, theirs) in enumerate(zip(short, long, strict=True)):
        assert mine == theirs, f"seed {seed}, step {number}"


def test_stories_have_long_messages_that_are_placed() -> None:
    """Not each of them."""
    assert sum(history(seed, is_quick=True)[1] for seed in range(3)) > 3

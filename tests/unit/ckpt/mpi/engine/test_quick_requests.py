"""Requests of buffers made and completed in C against those of Python: the same objects, results, errors and state."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from ckpt import MPI
from ckpt.mpi.base.errors import MpiException, PeerFailed
from ckpt.mpi.comm.comm_base import CommBase
from ckpt.mpi.datatypes.buffers import simple
from ckpt.mpi.engine import quick
from ckpt.mpi.engine.operations import BufferSend
from ckpt.mpi.requests.request import Request
from tests.seeds import seed_of_the_commit
from tests.unit.ckpt.mpi.engine.test_quick import Pair, in_python

pytest.importorskip("ckpt.mpi.engine._quick", reason="the C modules are not built")

FORMATS = ["?", "b", "B", "h", "H", "i", "I", "l", "L", "q", "Q", "f", "d"]
OTHERS = ["F", "D", "g", "e", ">i4", "S3", "i4,f8"]


def content(thing: Any) -> Any:
    """All that an object of these classes has, in depth."""
    if isinstance(thing, CommBase) or not hasattr(type(thing), "__slots__"):
        return thing if isinstance(thing, int | str | bool | type(None)) else id(thing)
    slots = [name for cls in type(thing).__mro__ for name in getattr(cls, "__slots__", ())]
    hidden = {"__weakref__", "_engine", "engine", "datatype", "obj"}
    found = {name: content(getattr(thing, name)) for name in slots if name not in hidden}
    return type(thing), found, [id(getattr(thing, name)) for name in ("datatype", "obj") if name in slots]


def connected() -> tuple[Pair, Any, Any]:
    """Two ranks that have had a message of each other, so that channels and routes are known."""
    pair = Pair()
    one, two = (rank.world for rank in pair.ranks)
    for sender, receiver, rank in ((one, two, 1), (two, one, 0)):
        for tag in (0, 7):
            sender.Send(np.zeros(1), rank, tag)
            pair.exchange()
            receiver.Recv(np.zeros(1), 1 - rank, tag)
    return pair, one, two


@pytest.mark.parametrize("shape", [(4,), (0,), (2, 3), ()])
@pytest.mark.parametrize("code", FORMATS)
def test_a_receive_that_is_posted_in_c_is_the_one_of_python(code: str, shape: tuple[int, ...]) -> None:
    pair, one, _ = connected()
    into = np.zeros(shape, code)
    mine = quick.irecv_buffer(one, into, 1, 7)
    assert type(mine) is Request
    matcher = pair.ranks[0].engine.matcher
    before = matcher.posted, matcher.ticket
    theirs = Request._make(one._engine, one._start_recv(simple(into, writable=True), 1, 7))
    assert (matcher.posted, matcher.ticket) == (before[0] + 1, before[1] + 1)
    theirs._operation.ticket -= 1
    assert content(mine) == content(theirs)
    assert (
        mine._engine is theirs._engine
        and mine._operation.target.datatype is theirs._operation.target.datatype
    )


def test_a_send_that_is_done_in_c_is_the_one_of_python(monkeypatch: pytest.MonkeyPatch) -> None:
    _, one, _ = connected()
    data = np.arange(5)
    mine = one.Isend(data, 1, 7)
    monkeypatch.setattr(quick, "isend_buffer", quick._send_buffer)
    theirs = one.Isend(data, 1, 7)
    assert content(mine) == content(theirs) and mine != theirs


class Array(np.ndarray):
    """A subclass, whose exporter might run code of the program."""


@pytest.mark.parametrize(
    "buffer",
    [
        *(np.zeros(4, code) for code in OTHERS),
        np.zeros((4, 4))[:, 1],
        np.zeros(3).view(Array),
        bytearray(8),
        memoryview(bytearray(8)),
        [np.zeros(3), MPI.DOUBLE],
        None,
        5,
        "text",
        bytes(8),
    ],
    ids=lambda buffer: f"{type(buffer).__name__} {getattr(buffer, 'dtype', '')}",
)
def test_other_buffers_are_left_to_python(buffer: Any) -> None:
    pair, one, _ = connected()
    before = pair.state()
    assert quick.irecv_buffer(one, buffer, 1, 7) is False
    assert pair.state() == before


@pytest.mark.parametrize(
    "source, tag",
    [(-1, 7), (1, -1), (-1, -1), (0, 7), (2, 7), (1, 8), (MPI.PROC_NULL, 7), ("1", 7), (1, 1.0)],
)
def test_other_receives_are_left_to_python(source: Any, tag: Any) -> None:
    pair, one, _ = connected()
    before = pair.state()
    assert quick.irecv_buffer(one, np.zeros(1), source, tag) is False
    assert pair.state() == before


def test_a_message_that_has_come_is_left_to_python() -> None:
    pair, one, two = connected()
    two.Send(np.arange(3.0), 0, 7)
    pair.exchange()
    into = np.zeros(3)
    assert quick.irecv_buffer(one, into, 1, 7) is False
    one.Irecv(into, 1, 7).Wait()
    assert list(into) == [0, 1, 2]


def test_a_failed_peer_and_a_freed_communicator_are_left_to_python() -> None:
    pair, one, _ = connected()
    with pair.ranks[0].lock:
        one._engine.failed_ranks.add([1])
    assert quick.irecv_buffer(one, np.zeros(1), 1, 7) is False
    pair, one, _ = connected()
    one._shared.closed = True
    assert quick.irecv_buffer(one, np.zeros(1), 1, 7) is False


@pytest.mark.parametrize("source", [1, MPI.ANY_SOURCE])
def test_receives_of_replicas_are_left_to_python_since_one_of_them_chooses_the_source(source: int) -> None:
    pair, one, _ = connected()
    one.Iprobe(source, 7)  # now one channel alone is known to match
    assert quick.irecv_buffer(one, np.zeros(1), source, 7) is not False
    one._engine.choices = object()
    before = pair.state()
    assert quick.irecv_buffer(one, np.zeros(1), source, 7) is False
    assert pair.state() == before


def test_what_is_not_done_is_not_completed() -> None:
    _, one, _ = connected()
    done, pending = one.Isend(np.zeros(1), 1, 7), one.Irecv(np.zeros(1), 1, 7)
    assert quick.finish([done, pending]) is False
    assert done and pending
    assert quick.finish([done]) is True and not done
    assert quick.finish((done, MPI.REQUEST_NULL)) is True


def test_a_send_that_is_read_from_the_memory_of_the_program_is_done_when_it_is_acknowledged() -> None:
    pair, one, two = connected()
    one._engine.direct = {1}
    request = one.Isend(np.arange(100_000.0), 1, 7)
    assert type(request._operation) is BufferSend and quick.finish([request]) is False
    two.Recv(into := np.zeros(100_000), 0, 7)
    pair.exchange()
    operation = request._operation
    assert quick.finish([request]) is True and not request and operation.done
    assert into[-1] == 99_999


def test_a_send_to_a_rank_that_has_failed_is_left_to_python() -> None:
    pair, one, _ = connected()
    one._engine.direct = {1}
    request = one.Isend(np.zeros(100_000), 1, 7)
    with pair.ranks[0].lock:
        one._engine.failed_ranks.add([1])
    assert quick.finish([request]) is False
    with pytest.raises(PeerFailed):
        request.Wait()


@pytest.mark.parametrize("kind", ["truncated", "object", "kept", "persistent", "iterator", "none", "other"])
def test_other_requests_are_left_to_python(kind: str) -> None:
    pair, one, two = connected()
    requests: Any
    if kind == "truncated":
        requests = [one.Irecv(np.zeros(1), 1, 7)]
        two.Send(np.zeros(2), 0, 7)
    elif kind == "object":
        requests = [one.irecv(source=1, tag=7)]
        two.send("object", 0, 7)
    elif kind == "persistent":
        requests = [one.Recv_init(np.zeros(1), 1, 7)]
        requests[0].Start()
        two.Send(np.zeros(1), 0, 7)
    else:
        sent = one.Isend(np.zeros(1), 1, 7)
        if kind == "kept":
            sent._kept, sent._operation = sent._operation, None
        requests = {"kept": [sent], "iterator": iter([sent]), "none": None, "other": [sent, 5]}[kind]
    pair.exchange()
    assert quick.finish(requests) is False
    if kind == "truncated":
        with pytest.raises(MpiException, match=r"16 bytes"):
            Request.Waitall(requests)
    elif kind == "object":
        assert Request.waitall(requests) == ["object"]


def history(seed: int) -> list[Any]:
    """Exchanges of two ranks, with what each step leaves."""
    chance = random.Random(seed)
    pair, one, two = connected()
    worlds, story, pending = (one, two), [], ([], [])
    buffers: list[Any] = []
    for _ in range(60):
        rank = chance.randrange(2)
        comm, requests = worlds[rank], pending[rank]
        size, tag = chance.choice([0, 1, 5, 300]), chance.choice([0, 7, 9])
        match chance.randrange(6):
            case 0 | 1:
                requests.append(comm.Isend(np.arange(size) + chance.randrange(99), 1 - rank, tag))
            case 2 | 3:
                buffers.append(np.zeros(300, int))
                requests.append(comm.Irecv(buffers[-1], 1 - rank, chance.choice([tag, tag, MPI.ANY_TAG])))
            case 4:
                pair.exchange()
            case 5:
                done = [request for request in requests if request.Test()]
                if done and chance.random() < 0.5:
                    Request.Waitall(done)
                elif done:
                    done[0].Wait()
                requests[:] = [request for request in requests if request]
        story.append((pair.state(), [list(buffer) for buffer in buffers], [bool(each) for each in requests]))
    return story


@pytest.mark.parametrize("seed", range(12))
def test_the_whole_story_is_the_same_both_ways(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    seed = 100 * (seed_of_the_commit() % 1_000_000) + seed
    short = history(seed)
    in_python(monkeypatch)
    for number, (mine, theirs) in enumerate(zip(short, history(seed), strict=True)):
        assert mine == theirs, f"step {number}"

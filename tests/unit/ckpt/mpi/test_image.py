"""The communicator's state in a process image.

An image may be taken wherever the library waits, so two things are checked: at every wait, everything on
the stack between the program and the wait can be pickled; and a rank whose engine, requests and buffers are
pickled and revived at any moment goes on as if nothing had happened.
"""

import pickle
import random
import sys
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ckpt.mpi.base.constants import IN_PLACE
from ckpt.mpi.comm.communicator import world_of
from ckpt.mpi.datatypes import op as ops
from ckpt.mpi.engine.engine import Engine
from ckpt.mpi.requests.request import Request
from tests.unit.ckpt.mpi.bus import Bus, BusProgress, image_of, revive, run_ranks


def library_frames() -> list[types.FrameType]:
    """The frames of the library between the caller's `block` and the program."""
    frames = []
    frame: types.FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_globals.get("__name__", "").startswith("ckpt.mpi."):
            frames.append(frame)
        frame = frame.f_back
    return frames


GENERATOR = 0x20
"""Code flag of generator functions."""


def check_stack(progress: BusProgress, seen: set[Any]) -> None:
    """What the image needs of the frames it would take here, once for every place."""
    frames = library_frames()
    assert frames, "blocked outside of the library?"
    place = tuple([(frame.f_code, frame.f_lasti) for frame in frames])
    if place in seen:
        return
    seen.add(place)
    for frame in frames:
        assert not frame.f_code.co_flags & GENERATOR, frame
        assert not frame.f_code.co_name.startswith("<"), f"{frame} is called from C"
        for name, value in frame.f_locals.items():
            assert not isinstance(value, memoryview), f"{frame}: {name} is a view"
            if value is not progress.lock:
                image_of(progress, value)


PLACES: set[Any] = set()
"""Where something waited, of all ranks of one run."""


def watch(progress: BusProgress) -> None:
    PLACES.clear()
    progress.before_block = lambda: check_stack(progress, PLACES)


def everything(comm: Any) -> None:
    """A program that waits in every kind of call."""
    rank, size = comm.rank, comm.size
    left, right = (rank - 1) % size, (rank + 1) % size
    big = np.full(140_000 if size == 2 else 20_000, rank, float)
    into = np.zeros_like(big)
    for turn in range(2):
        comm.send(rank, right)
        assert comm.recv(source=left) == left
        comm.sendrecv(rank, right, source=left)
        comm.Sendrecv(big, right, recvbuf=into, source=left)
        requests = [comm.irecv(source=left), comm.Irecv(into, source=left, tag=5)]
        comm.isend(rank, right).wait()
        comm.Isend(big, right, tag=5).Wait()
        Request.waitany(requests)
        Request.waitsome(requests)
        Request.waitall(requests)
        request = comm.issend("sync", right, 7)
        comm.probe(source=left, tag=7)
        assert comm.mprobe(source=left, tag=7).recv() == "sync"
        request.wait()
        comm.barrier()
        comm.bcast(big if rank == turn % size else None, turn % size)
        comm.Bcast(into, turn % size)
        comm.Allreduce(big, into)
        comm.Reduce(big, into if rank == 0 else None, ops.MAX)
        comm.allreduce([rank])
        comm.gather(rank)
        comm.scatter(list(range(size)) if rank == 0 else None)
        comm.alltoall(list(range(size)))
        comm.scan(rank)
        comm.Split(rank % 2, rank).Dup().Free()
        comm.Send(big, right)
        comm.Recv(into, source=left)


@pytest.mark.parametrize("size", [2, 3, 5])
@pytest.mark.parametrize("seed", range(3))
def test_the_stack_of_every_wait_can_be_an_image(size: int, seed: int) -> None:
    run_ranks(size, everything, seed=seed, hook=watch)
    assert len(PLACES) >= 15


def test_the_watch_itself_notices_a_view() -> None:
    def program(comm: Any) -> None:
        engine = comm._engine

        def careless(data: Any) -> None:
            view = memoryview(data)
            engine.block()
            del view

        careless = types.FunctionType(
            careless.__code__, {**globals(), "__name__": "ckpt.mpi.careless"}, closure=careless.__closure__
        )
        with pytest.raises(AssertionError, match="is a view"), engine.lock:
            careless(b"abc")

    run_ranks(1, program, hook=watch)


# -- one rank's state is replaced by its image, at any moment --------------------------------------


class Rank:
    """One rank driven by hand: what it holds is what its image holds."""

    def __init__(self, bus: Bus, rank: int, start: Callable[[Any], dict[str, Any]]) -> None:
        self.progress = BusProgress(bus, rank)
        self.progress.engine = Engine(self.progress)
        self.state = start(world_of(self.progress.engine))

    def step(self) -> bool:
        """Make progress; whether all requests are done."""
        with self.progress.lock:
            self.progress.engine.make_progress()
        return Request.testall(self.state["requests"])[0] if self.state["requests"] else True

    def replace_by_image(self) -> None:
        """What a kill and a restart of this rank amount to."""
        image = image_of(self.progress, self.progress.engine, self.state)
        bus, rank, seen = self.progress.bus, self.progress.rank, self.progress.seen
        self.progress = BusProgress(bus, rank)
        self.progress.seen = seen
        self.progress.engine, self.state = revive(image, self.progress)


def play(
    size: int, seed: int, start: Callable[[Any], dict[str, Any]], finish: Callable[[int, Any], None]
) -> None:
    """Run the ranks' requests to their end with images at random moments, then check the outcome."""
    choose = random.Random(seed)
    ranks = [Rank(Bus(size, seed), 0, start)]
    ranks += [Rank(ranks[0].progress.bus, rank, start) for rank in range(1, size)]
    done = [False] * size
    for _ in range(20_000):
        if all(done):
            break
        number = choose.randrange(size)
        if choose.random() < 0.3:
            ranks[number].replace_by_image()
        done[number] = ranks[number].step() or done[number]
    assert all(done), f"not finished: {[rank.state['requests'] for rank in ranks]}"
    for number, rank in enumerate(ranks):
        finish(number, rank.state)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_half_done_collectives_survive(size: int, seed: int) -> None:
    count = 60_000 if seed % 2 else 5

    def start(comm: Any) -> dict[str, Any]:
        rank = comm.rank
        mine = np.arange(count, dtype=float) + rank
        state = {name: np.zeros(count) for name in ("sum", "max", "scan")}
        state |= {
            "mine": mine,
            "bcast": mine.copy(),
            "all": np.zeros((size, count)),
            "swapped": np.zeros((size, count)),
        }
        state["min"] = mine.copy()
        state["requests"] = [
            comm.Iallreduce(mine, state["sum"]),
            comm.Ibcast(state["bcast"], size - 1),
            comm.Ireduce(mine, state["max"] if rank == 0 else None, ops.MAX),
            comm.Iallgather(mine, state["all"]),
            comm.Ibarrier(),
            comm.Iscan(mine, state["scan"]),
            comm.Ialltoall(np.tile(mine, (size, 1)), state["swapped"]),
            comm.Iallreduce(IN_PLACE, state["min"], ops.MIN),
        ]
        return state

    def finish(rank: int, state: dict[str, Any]) -> None:
        base = np.arange(count, dtype=float)
        assert (state["sum"] == base * size + size * (size - 1) / 2).all()
        assert (state["bcast"] == base + size - 1).all()
        assert rank or (state["max"] == base + size - 1).all()
        assert (state["all"] == base + np.arange(size)[:, None]).all()
        assert (state["swapped"] == state["all"]).all()
        assert (state["scan"] == base * (rank + 1) + rank * (rank + 1) / 2).all()
        assert (state["min"] == base).all()

    play(size, seed, start, finish)


@pytest.mark.parametrize("seed", range(12))
def test_posted_receives_unexpected_messages_and_pending_sends_survive(seed: int) -> None:
    def start(comm: Any) -> dict[str, Any]:
        other = 1 - comm.rank
        big = np.arange(300_000, dtype=float)
        state: dict[str, Any] = {"comm": comm, "into": np.zeros_like(big), "small": np.zeros(3), "big": big}
        state["requests"] = [
            comm.Irecv(state["into"], source=other, tag=1),
            comm.irecv(tag=2),
            comm.Irecv(state["small"], tag=3),
            comm.Isend(big, other, 1),
            comm.issend({"pickled": comm.rank}, other, 2),
            comm.Issend(np.full(3, comm.rank + 1.0), other, 3),
        ]
        for number in range(20):
            comm.send(number, other, 50)
        return state

    def finish(rank: int, state: dict[str, Any]) -> None:
        comm = state["comm"]
        assert (state["into"] == state["big"]).all()
        assert (state["small"] == 2 - rank).all()
        while not comm.iprobe(source=1 - rank, tag=50):
            pass
        for number in range(20):
            assert comm.recv(tag=50) == number

    play(2, seed, start, finish)


def test_a_communicator_is_one_object_with_its_engine_and_requests() -> None:
    bus = Bus(1)
    progress = BusProgress(bus, 0)
    progress.engine = engine = Engine(progress)
    comm = world_of(engine)
    copy = comm.Dup()
    request = comm.irecv(source=0, tag=3)
    image = image_of(progress, engine, {"comm": comm, "copy": copy, "again": comm, "request": request})
    progress = BusProgress(bus, 0)
    progress.engine, held = revive(image, progress)
    assert held["comm"] is held["again"]
    assert held["comm"] == world_of(progress.engine)
    assert held["copy"] != held["comm"]
    held["copy"].send("other context", 0, 3)
    held["comm"].send("for the request", 0, 3)
    assert held["request"].wait() == "for the request"
    assert held["copy"].recv() == "other context"


def test_views_of_received_frames_become_bytes() -> None:
    bus = Bus(1)
    progress = BusProgress(bus, 0)
    progress.engine = engine = Engine(progress)
    comm = world_of(engine)
    comm.send(bytes(50_000), 0, 1)
    comm.send("probed", 0, 2)
    with progress.lock:
        batch = [memoryview(data) for data in bus.queues[0, 0]]
        bus.queues[0, 0].clear()
        engine.on_messages(0, batch)
    message = comm.mprobe(tag=2)
    with pytest.raises(TypeError):
        pickle.dumps(batch[0])
    fresh = BusProgress(bus, 0)
    fresh.engine, comm, message = revive(image_of(progress, engine, comm, message), fresh)
    assert message.recv() == "probed"
    assert comm.recv() == bytes(50_000)


def test_persistent_requests_survive_between_their_starts() -> None:
    bus = Bus(1)
    progress = BusProgress(bus, 0)
    progress.engine = engine = Engine(progress)
    comm = world_of(engine)
    out, into, total = np.arange(4.0), np.zeros(4), np.zeros(4)
    requests = [comm.Recv_init(into, 0), comm.Send_init(out, 0), comm.Allreduce_init(out, total)]
    for turn in range(3):
        fresh = BusProgress(bus, 0)
        image = image_of(progress, engine, requests, out, into, total)
        progress = fresh
        engine, requests, out, into, total = revive(image, progress)
        progress.engine = engine
        progress.seen = list(bus.acked[0])
        out += turn
        for request in requests:
            request.Start()
        Request.Waitall(requests)
        assert (into == out).all()
        assert (total == out).all()

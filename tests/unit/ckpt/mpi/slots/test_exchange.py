"""Collectives of an exchange beside the schedules that they replace: the same bits, by messages, by the boards of the oracle
and by those in C; images in the middle; deaths, and what ULFM promises."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ckpt.mpi.base.constants import IN_PLACE
from ckpt.mpi.base.errors import ERR_PROC_FAILED, ERR_REVOKED, ERR_TRUNCATE, MpiException
from ckpt.mpi.comm.communicator import world_of
from ckpt.mpi.datatypes import op as ops
from ckpt.mpi.engine import quick
from ckpt.mpi.slots.exchange import SLOT_BYTES, settle_all
from ckpt.transport.boards import board
from tests.unit.ckpt.mpi.bus import BusProgress, Killed, image_of, revive, run_ranks

CARRIERS = [
    "messages",
    "oracle",
    pytest.param("C", marks=pytest.mark.skipif(not board.available(), reason="not built")),
]


class Waiting(board.Board):
    """The oracle with the one method that only `_board.c` has."""

    def wait(self, number: int, sources: int) -> int:
        time.sleep(0)
        return int(all(self.has(number, member) for member in range(self.size) if sources >> member & 1))


class Common:
    """What waits to be sent: nothing."""

    __slots__ = ("dirty", "flush_due")

    def __init__(self) -> None:
        self.dirty: list[Any] = []
        self.flush_due = False


class Boards:
    """In place of `ckpt.transport.boards.keeper.Boards`, for ranks that are threads."""

    def __init__(self, carrier: str, size: int) -> None:
        self.carrier = carrier
        self.lock = threading.Lock()
        self.made: dict[tuple[int, int], Any] = {}
        self.fast = 0

    def of(self, rank: int) -> Any:
        hosts = SimpleNamespace(due_ns=1 << 62)
        if self.carrier == "C":
            from ckpt.transport.boards._board import Host
            from ckpt.transport.rings._ring import Inbox

            hosts = Host(Inbox(), Common(), 20_000_000, 0, 0)
            hosts.due_ns = 1 << 62
        return SimpleNamespace(
            make=lambda number, members: self._make(hosts, rank, number, members),
            is_free=lambda: True,
            attend=lambda number: None,
            close=lambda number: None,
        )

    def _make(self, hosts: Any, rank: int, number: int, members: Sequence[int]) -> Any:
        me = members.index(rank)
        with self.lock:
            if self.carrier == "C":
                from ckpt.transport.boards._board import Board

                made: Any = Board(hosts, len(members), me)
            else:
                made = Waiting(len(members), me, board.new_area())
            self.made[number, rank] = made
            for other, peer in enumerate(members):
                found = self.made.get((number, peer))
                if found is not None and other != me:
                    made.add(other, found.fd if self.carrier == "C" else found.area)
                    found.add(me, made.fd if self.carrier == "C" else made.area)
        return made


def on_one_host(carrier: str, size: int, more: Callable[[BusProgress], None] | None = None) -> Any:
    """A hook for `run_ranks`: small collectives take exchanges, whose contributions are carried this way."""
    boards = Boards(carrier, size)

    def hook(progress: BusProgress) -> None:
        engine = progress.engine
        assert engine is not None
        engine.one_host = True
        if carrier != "messages":
            engine.boards, engine.look = boards.of(progress.rank), lambda: False
        if more is not None:
            more(progress)

    return hook


def all_of_them(comm: Any) -> bytes:
    """Every collective that takes exchanges, some times over; what comes out of them."""
    size, rank, out = comm.size, comm.rank, []
    rng = np.random.default_rng(7)
    for turn, count in enumerate((1, 3, 700, 1, 8192, 2, 9000)):
        mine = (rng.standard_normal((size, count)) * 10.0 ** rng.integers(-9, 9, (size, count)))[rank]
        into = np.zeros(count)
        for op in (ops.SUM, ops.PROD, ops.MAX):
            comm.Allreduce(mine, into, op)
            out.append(into.tobytes())
            comm.Reduce(mine, into, op, turn % size)
            out.append(into.tobytes() if rank == turn % size else b"")
        integers = (np.arange(count) * 2654435761 << 32) + rank
        total = np.zeros_like(integers)
        comm.Allreduce(integers, total, ops.PROD)
        comm.Allreduce(IN_PLACE, total, ops.MIN)
        singles, single = mine.astype("f"), np.zeros(count, "f")
        comm.Allreduce(singles, single)
        comm.Bcast(mine, turn % size)
        rows, swapped = np.zeros((size, count)), np.zeros((size, count))
        comm.Allgather(mine + rank, rows)
        comm.Alltoall(rows, swapped)
        comm.barrier()
        comm.Barrier()
        out += [each.tobytes() for each in (total, single, mine, rows, swapped)]
        found = (
            comm.allgather((rank, "x" * (count if rank == 1 else 1) * 9)),
            comm.alltoall([[rank, to] for to in range(size)]),
        )
        reduced = (
            comm.allreduce(0.1 * (rank + turn)),
            comm.allreduce([rank]),
            comm.bcast({"from": mine[0]}, turn % size),
        )
        out.append(repr((found, reduced)).encode())
        assert comm.bcast(b"y" * SLOT_BYTES * turn if rank == 0 else None) == b"y" * SLOT_BYTES * turn
    nan = np.array([np.nan if rank == size - 1 else -0.0, 0.0 * (-1) ** rank])
    for op in (ops.SUM, ops.MAX):
        into = np.zeros(2)
        comm.Allreduce(nan, into, op)
        out.append(np.nan_to_num(into, nan=7).tobytes() + bytes(np.signbit(into[1:])))
    return b"".join(out)


@pytest.mark.parametrize("carrier", CARRIERS)
@pytest.mark.parametrize(
    "size",
    [2, 3, pytest.param(4, marks=pytest.mark.rotate(2)), 5, pytest.param(8, marks=pytest.mark.nightly)],
)
def test_the_bits_are_those_of_the_schedules(size: int, carrier: str) -> None:
    assert run_ranks(size, all_of_them, seed=size, hook=on_one_host(carrier, size)) == run_ranks(
        size, all_of_them
    )


def all_reductions(comm: Any) -> list[Any]:
    """Objects reduced to every root, short and long, by an own operation too: the results, and who combined what."""
    done: list[Any] = []

    def joined(low: str, high: str, _: Any = None) -> str:
        done.append((low[:40], high[:40]))
        return f"({low}{high})"

    own, found = ops.Op.Create(joined, commute=False), []
    for turn, length in enumerate((1, 1, 9, 3000, 1, SLOT_BYTES, 1, 200_000, 2)):
        for root in range(comm.size):
            text = f"{comm.rank}" * (length if (comm.rank + turn) % 3 else 1)
            found.append(comm.reduce(text, own, root))
            found.append(comm.reduce(0.1 * 10.0 ** (comm.rank * 5) + turn, ops.SUM, root))
            found.append(comm.reduce((turn, comm.rank), ops.MINLOC, root=root))
            if not turn % 4:
                found.append(comm.allreduce(turn + root))
    return [found, done]


@pytest.mark.parametrize("carrier", CARRIERS)
@pytest.mark.parametrize("size", [2, 3, pytest.param(4, marks=pytest.mark.rotate(2)), 5, 8])
def test_objects_are_reduced_as_in_the_schedule(size: int, carrier: str) -> None:
    assert run_ranks(size, all_reductions, seed=size, hook=on_one_host(carrier, size)) == run_ranks(
        size, all_reductions
    )


@pytest.mark.parametrize("carrier", ["messages", "oracle"])
def test_an_operation_that_raises_keeps_the_numbers_of_collectives_alike(carrier: str) -> None:
    """Ranks 0 and 2 of four combine. Rank 2 raises in the first round of three or two, and rank 0 does not wait for it."""

    def refuse(low: int, high: int, _: Any = None) -> int:
        raise ZeroDivisionError

    def program(comm: Any) -> Any:
        exchange = comm._slots()
        for turn in range(8):
            root = turn % 2
            if comm.rank == 2:
                with pytest.raises(ZeroDivisionError):
                    comm.reduce(turn, ops.Op.Create(refuse), root)
            elif comm.rank == 3:
                comm.reduce(turn, ops.SUM, root)
            else:
                exchange.skip_to(exchange.number + 2 + root)
            comm.barrier()
        return exchange.number, comm.allreduce(comm.rank)

    results = run_ranks(4, program, hook=on_one_host(carrier, 4))
    assert results == [(4 * 2 + 4 * 3 + 8, 6)] * 4


@pytest.mark.skipif(not board.available(), reason="not built")
def test_the_short_way_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[Any] = []
    allreduce = quick.allreduce
    monkeypatch.setattr(quick, "allreduce", lambda *args: answers.append(allreduce(*args)) or answers[-1])

    def program(comm: Any) -> list[float]:
        into = np.zeros(2)
        for _ in range(100):
            comm.Allreduce(np.array([1.0, 2.0]), into)
        return into.tolist()

    assert run_ranks(2, program, hook=on_one_host("C", 2)) == [[2.0, 4.0]] * 2
    assert None in answers


def test_a_root_is_not_held_up_by_those_that_are_slow() -> None:
    def program(comm: Any) -> Any:
        if comm.rank == 2:
            time.sleep(0.02)
        return [comm.bcast(turn if comm.rank == 0 else None) for turn in range(40)]

    assert run_ranks(3, program, hook=on_one_host("oracle", 3)) == [list(range(40))] * 3


def test_a_stream_of_reductions_to_a_root_that_is_slow_goes_by_messages() -> None:
    def program(comm: Any) -> Any:
        comm.allreduce(0)
        found = []
        for turn in range(200):
            if comm.rank == 0 and turn in (0, 20):
                time.sleep(0.05)
            found.append(comm.reduce(turn + comm.rank))
        comm.barrier()
        return found, comm._slots().messages_until > 0

    first, second = run_ranks(2, program, hook=on_one_host("oracle", 2))
    assert first[0] == [2 * turn + 1 for turn in range(200)]
    assert second == ([None] * 200, True)


def test_a_buffer_that_is_too_short_gets_what_fits_by_an_error() -> None:
    def program(comm: Any) -> int:
        buffer = np.zeros(3 if comm.rank else 9000)
        try:
            comm.Bcast(buffer)
        except MpiException as error:
            return error.Get_error_class()
        return 0

    assert run_ranks(2, program, hook=on_one_host("messages", 2)) == [0, ERR_TRUNCATE]


@pytest.mark.parametrize("carrier", ["messages", "oracle"])
@pytest.mark.parametrize("seed", range(6))
def test_an_image_in_the_middle_goes_on_by_messages(carrier: str, seed: int) -> None:
    """All ranks are saved at the very same moment (no frame under way), go on in new engines, and end alike."""
    from random import Random

    random, size = Random(seed), 3
    stop = threading.Barrier(size)
    images: dict[int, bytes] = {}

    def before(comm: Any) -> list[Any]:
        progress = comm._engine.progress
        found = [comm.allreduce(turn + comm.rank) for turn in range(6)]
        with progress.lock:
            settle_all(comm._engine)
        found.append(comm.bcast(found[-1], root=seed % size))
        found.append(comm.reduce("x" * (comm.rank + 1) ** 9, root=seed % size) is not None)
        stop.wait(120)
        with progress.lock:
            while progress._deliver():  # what is under way is in the image of the port, and sent again
                pass
        stop.wait(120)
        with progress.lock:
            settle_all(comm._engine)
            while progress._deliver():
                pass
        images[comm.rank] = image_of(progress, comm._engine, found)
        return found

    def after(comm: Any) -> list[Any]:
        progress = comm._engine.progress
        engine, found = revive(images[comm.rank], progress)
        progress.engine = engine
        world = world_of(engine)
        assert world._shared.exchange.board is None and engine.one_host
        found.remove(comm.rank == seed % size)
        found += [world.allreduce(turn * world.rank) for turn in range(random.randint(1, 9))]
        return [world.allgather(found), world._shared.exchange.number]

    run_ranks(size, before, seed=seed, hook=on_one_host(carrier, size))
    random.seed(seed)
    turns = random.randint(1, 9)
    random.randint = lambda low, high: turns  # type: ignore[method-assign]
    results = run_ranks(size, after, seed=seed + 1)
    assert (
        len({repr(result) for result in results}) == 1
        and results[0][1] == 6 + 1 + 2 + (seed % size != 0) + turns + 1
    )


@pytest.mark.parametrize("carrier", ["messages", "oracle"])
@pytest.mark.parametrize("die_in", [3, 17, 40, 90])
def test_a_death_ends_it_for_all_members_and_a_shrunk_one_goes_on(carrier: str, die_in: int) -> None:
    size = 4

    def mortal(progress: BusProgress) -> None:
        if progress.rank == 1:
            progress.die_in = die_in

    def program(comm: Any) -> Any:
        done = 0
        try:
            while True:
                comm.allreduce(1)
                comm.reduce(1, root=done % size)
                comm.Barrier()
                done += 1
        except MpiException as error:
            assert error.Get_error_class() in (ERR_PROC_FAILED, ERR_REVOKED)
        with pytest.raises(MpiException):
            comm.barrier()
        comm.Revoke()
        smaller = comm.Shrink()
        return smaller.size, [smaller.allreduce(turn) for turn in range(9)]

    results = run_ranks(size, program, seed=die_in, hook=on_one_host(carrier, size, mortal))
    assert results[1] is Killed
    assert [result for result in results if result is not Killed] == [
        (3, [3 * turn for turn in range(9)])
    ] * 3


def test_who_is_interrupted_has_left_the_collective() -> None:
    """An exception out of the wait uses the number up: the others go on, and so does this member with the next one."""

    class Stop(Exception):
        pass

    def program(comm: Any) -> Any:
        progress = comm._engine.progress
        comm.barrier()
        if comm.rank == 0:

            def stop() -> None:
                progress.before_block = None
                raise Stop

            progress.before_block = stop
            with pytest.raises(Stop):
                comm.allreduce(5)
            progress.before_block = None
            comm.send(None, 1)
            return comm.allreduce(1)
        comm.recv(source=0)
        first = comm.allreduce(7)
        return first, comm.allreduce(2)

    assert run_ranks(2, program, hook=on_one_host("messages", 2)) == [3, (12, 3)]

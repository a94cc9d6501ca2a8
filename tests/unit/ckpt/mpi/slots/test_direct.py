"""Long collectives for which members read each other's memory, beside the schedules: the same bytes, or these follow."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ckpt.mpi.base.constants import IN_PLACE
from ckpt.mpi.base.errors import ERR_REVOKED, MpiException
from ckpt.mpi.datatypes.datatypes import PREDEFINED
from ckpt.mpi.datatypes.op import BAND, LXOR, MAX, MAXLOC, MIN, PROD, SUM
from ckpt.mpi.slots.direct import PIECE_BYTES
from ckpt.transport.boards.offers import Offers
from ckpt.transport.wires import crossmemory
from tests.unit.ckpt.mpi.bus import BusProgress, run_ranks
from tests.unit.ckpt.mpi.slots.test_exchange import CARRIERS, on_one_host

pytestmark = pytest.mark.skipif(not crossmemory.available(), reason="another kernel: no process_vm_readv")

DOUBLE = PREDEFINED["MPI_DOUBLE"]
COUNT = 9000  # doubles of each rank: too long for a slot


class Counted(Offers):
    """Counts the blocks that were read."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = 0

    def read(self, offer: bytes, part: int, into: memoryview, first: int | None = None) -> bool:
        found = super().read(offer, part, into, first)
        self.blocks += found
        return found


def offering(
    carrier: str, size: int, made: dict[int, Any], make: Callable[[int], Any] = lambda rank: Counted()
) -> Any:
    def more(progress: BusProgress) -> None:
        assert progress.engine is not None
        made[progress.rank] = progress.engine.offers = make(progress.rank)

    return on_one_host(carrier, size, more)


def all_of_them(comm: Any) -> bytes:
    size, rank, found = comm.size, comm.rank, []
    for turn in range(3):
        mine = np.arange(size * COUNT, dtype="d") * (turn + 1) + rank
        swapped, rows = np.zeros_like(mine), np.zeros((size, size * COUNT))
        comm.Alltoall(mine, swapped)
        comm.Allgather(mine, rows)
        found += [swapped.tobytes(), rows.tobytes()]
        rows[rank] *= 2
        comm.Allgather(IN_PLACE, rows)
        mine.fill(np.nan)  # at once: what was sent is where it belongs
        found.append(rows.tobytes())
        single = swapped.astype("f")
        comm.Alltoall(single, rows.view("f").reshape(-1)[: len(single)])
        found.append(rows.tobytes())
    return b"".join(found)


@pytest.mark.parametrize("carrier", CARRIERS)
@pytest.mark.parametrize("size", [2, 3, pytest.param(5, marks=pytest.mark.rotate(2))])
def test_the_bytes_are_those_of_the_schedules(size: int, carrier: str) -> None:
    made: dict[int, Counted] = {}
    direct = run_ranks(size, all_of_them, seed=size, hook=offering(carrier, size, made))
    assert direct == run_ranks(size, all_of_them)
    assert [offers.blocks for offers in made.values()] == [3 * 4 * (size - 1)] * size
    assert not any(offers._tokens for offers in made.values())


OPERATIONS = (SUM, PROD, MAX, MIN, BAND, LXOR)
LONGEST = 2 * PIECE_BYTES // 8 + 3  # doubles of each member's part: several pieces, and a rest


def all_reductions(comm: Any) -> bytes:
    """Of several types, operations and lengths, in place and not; what was given is as it was."""
    found, rank = [], comm.rank
    for turn, (code, count) in enumerate(
        [
            ("d", 9 * COUNT),
            ("f", 30_001),
            ("q", LONGEST * comm.size),
            ("i", 40_003),
            ("F", 20_000),
            ("?", 200_000),
        ]
    ):
        for op in OPERATIONS[:2] if code == "F" else OPERATIONS[: 4 if code in "df" else 6]:
            mine = ((np.arange(count) * (turn + 3) + 7 * rank) % 251 / 3 + 1).astype(code)
            total, kept = np.zeros_like(mine), mine.copy()
            try:
                comm.Allreduce(mine, total, op)
                assert (mine == kept).all()
                comm.Reduce(mine, again := np.zeros_like(mine), op, root=turn % comm.size)
                found.append(again.tobytes())
                is_root = rank == 1
                comm.Reduce(IN_PLACE if is_root else mine, mine if is_root else None, op, root=1)
                found.append(mine.tobytes())
                assert is_root or (mine == kept).all()
                mine[:] = kept
                comm.Allreduce(IN_PLACE, mine, op)
            except MpiException as error:
                found.append(str(error).encode())
                continue
            mine_again = total.tobytes()
            assert mine.tobytes() == mine_again
            found.append(mine_again)
    pairs = np.zeros(30_000, [("value", "d"), ("index", "i")])
    pairs["value"], pairs["index"] = (np.arange(30_000) * 5 + rank) % 7, rank
    best = np.zeros_like(pairs)
    comm.Allreduce([pairs, PREDEFINED["MPI_DOUBLE_INT"]], [best, PREDEFINED["MPI_DOUBLE_INT"]], MAXLOC)
    return b"".join(found) + best["value"].tobytes() + best["index"].tobytes()


@pytest.mark.parametrize("carrier", CARRIERS)
@pytest.mark.parametrize("size", [2, 3, pytest.param(5, marks=pytest.mark.rotate(2))])
def test_long_allreduces_have_the_bits_of_the_schedules(size: int, carrier: str) -> None:
    made: dict[int, Counted] = {}
    direct = run_ranks(size, all_reductions, seed=size, hook=offering(carrier, size, made))
    assert direct == run_ranks(size, all_reductions)
    assert all(offers.blocks > 100 for offers in made.values())
    assert not any(offers._tokens for offers in made.values())


@pytest.mark.parametrize("when", ["at the first piece", "at a result"])
def test_an_allreduce_that_cannot_be_read_takes_the_schedule_and_has_its_buffer_back(when: str) -> None:
    class Forgetful(Counted):
        def read(self, offer: bytes, part: int, into: memoryview, first: int | None = None) -> bool:
            return (first is None) == (when == "at the first piece") and super().read(
                offer, part, into, first
            )

    def program(comm: Any) -> bytes:
        mine, total = np.arange(2.0 * COUNT) + comm.rank, np.zeros(2 * COUNT)
        comm.Allreduce(mine, total)
        before, is_root = mine.copy(), comm.rank == 2
        comm.Allreduce(IN_PLACE, mine)
        assert (mine == total).all()
        comm.Reduce(IN_PLACE if is_root else before, before if is_root else None, root=2)
        assert not is_root or (before == total).all()
        return total.tobytes()

    made: dict[int, Any] = {}
    hook = offering("oracle", 3, made, lambda rank: Forgetful() if rank == 1 else Counted())
    assert run_ranks(3, program, hook=hook) == run_ranks(3, program)


def with_gaps(comm: Any) -> bytes:
    """A vector type on one side, and what a program must not do: memory that is sent and received at once."""
    column = DOUBLE.Create_vector(COUNT, 1, 2).Create_resized(0, 16 * COUNT).Commit()
    mine = np.arange(2 * COUNT * comm.size, dtype="d") + comm.rank
    into = np.zeros(COUNT * comm.size)
    comm.Alltoall([mine, 1, column], [into, COUNT, DOUBLE])
    swapped = np.arange(COUNT * comm.size, dtype="d") + comm.rank
    comm.Alltoall(IN_PLACE, swapped)
    return into.tobytes() + swapped.tobytes()


def test_what_is_not_in_one_piece_takes_the_schedule() -> None:
    made: dict[int, Counted] = {}
    assert run_ranks(3, with_gaps, hook=offering("oracle", 3, made)) == run_ranks(3, with_gaps)
    assert [offers.blocks for offers in made.values()] == [0] * 3


class Forbidden(Offers):
    """As where the kernel forbids it: found at the first block."""

    def read(self, offer: bytes, part: int, into: memoryview, first: int | None = None) -> bool:
        self.is_refused = True
        return False


def test_where_one_member_may_not_read_the_schedule_follows_at_all_members() -> None:
    made: dict[int, Any] = {}

    def make(rank: int) -> Any:
        return Forbidden() if rank == 1 else Counted()

    assert run_ranks(3, all_of_them, hook=offering("oracle", 3, made, make)) == run_ranks(3, all_of_them)
    assert made[0].blocks == made[2].blocks == 2  # of the first collective; from then on nobody tries


def test_where_there_are_no_offers_at_all_the_schedule_follows() -> None:
    assert run_ranks(2, all_of_them, hook=offering("oracle", 2, {}, lambda rank: None)) == run_ranks(
        2, all_of_them
    )


def test_what_a_member_has_changed_that_was_thrown_out_is_not_taken() -> None:
    """Rank 0 leaves by an error while rank 1 is reading, and goes on with other data in the same memory."""
    reads, has_left = threading.Event(), threading.Event()

    class Slow(Offers):
        def read(self, offer: bytes, part: int, into: memoryview, first: int | None = None) -> bool:
            reads.set()
            assert has_left.wait(60)
            answers.append(super().read(offer, part, into, first))
            return answers[-1]

    answers: list[bool] = []

    def program(comm: Any) -> Any:
        mine, into = np.full(2 * COUNT, comm.rank + 1.0), np.zeros(2 * COUNT)
        try:
            comm.Alltoall(mine, into)
        except MpiException as error:
            mine.fill(-1)
            has_left.set()
            return error.Get_error_class()
        return into.tolist()

    def make(rank: int) -> Any:
        return Slow() if rank == 1 else Offers()

    def hook(progress: BusProgress) -> None:
        offering("messages", 2, {}, make)(progress)
        if progress.rank == 0:
            progress.before_block = lambda: revoke(progress)

    def revoke(progress: BusProgress) -> bool:
        progress.before_block = None
        assert reads.wait(60) and progress.engine is not None
        progress.engine.failed_ranks.revoke(0)
        return True  # nobody sends this rank anything from now on

    results = run_ranks(2, program, hook=hook)
    assert results == [ERR_REVOKED] * 2 and answers == [False]


def test_who_is_interrupted_keeps_the_numbers_of_collectives_alike() -> None:
    class Stop(Exception):
        pass

    def program(comm: Any) -> Any:
        mine, into = np.zeros(2 * COUNT), np.zeros(2 * COUNT)
        progress = comm._engine.progress
        comm.barrier()
        if comm.rank == 0:

            def stop() -> None:
                progress.before_block = None
                raise Stop

            progress.before_block = stop
            with pytest.raises(Stop):
                comm.Alltoall(mine, into)
        else:
            exchange = comm._slots()
            exchange.run(1, b"", exchange.others, exchange.others)  # as a member that offers nothing
            exchange.run(1, b"", exchange.others, exchange.others)
        return comm.allreduce(comm.rank + 1)

    assert run_ranks(2, program, hook=offering("messages", 2, {}, lambda rank: Offers())) == [3, 3]

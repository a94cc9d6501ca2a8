"""Windows between ranks: results of operations, errors that come up at the origin, waits that an image can hold."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ckpt import MPI
from ckpt.mpi.base.errors import MpiException
from ckpt.mpi.engine.engine import COPY_BYTES
from ckpt.mpi.requests.request import Request
from ckpt.mpi.rma import wire
from ckpt.mpi.rma.exposed import Fixed
from ckpt.mpi.rma.state import WindowState
from ckpt.mpi.rma.window import Win, handle_of
from tests.unit.ckpt.mpi.bus import Bus, BusProgress, run_ranks
from tests.unit.ckpt.mpi.test_image import PLACES, play, watch

SEEDS = range(6)


def code_of(call: Callable[..., Any], *args: Any, **options: Any) -> int:
    """Error class of what a call raises; 0 if it returns."""
    try:
        call(*args, **options)
    except MpiException as error:
        return error.error_class
    return 0


# ---- what operations do ----------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 2, 4])
@pytest.mark.parametrize("seed", SEEDS)
def test_counts_under_contention_are_exact(size: int, seed: int) -> None:
    def program(comm: Any) -> Any:
        win = Win.Allocate(32, 8, comm=comm)
        one, before = np.ones(1, "q"), np.zeros(1, "q")
        seen = []
        for _ in range(5):
            win.Lock(0, MPI.LOCK_SHARED)
            win.Fetch_and_op(one, before, 0, 1)
            win.Accumulate(one, 0, 2)
            win.Unlock(0)
            seen.append(int(before[0]))
            win.Lock(0)  # alone: read, compute, write
            win.Get(before, 0, 3)
            win.Flush(0)
            win.Put(before + 1, 0, 3)
            win.Unlock(0)
        taken = sorted(number for numbers in comm.allgather(seen) for number in numbers)
        assert taken == list(range(5 * size))
        if comm.rank == 0:
            assert list(np.frombuffer(win, "q")) == [0, 5 * size, 5 * size, 5 * size]
        win.Free()

    run_ranks(size, program, seed=seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_strided_put_and_get_in_every_kind_of_epoch(seed: int) -> None:
    column = MPI.DOUBLE.Create_vector(3, 1, 4)

    def program(comm: Any) -> Any:
        rank, other = comm.rank, 1 - comm.rank
        table = np.zeros((3, 4))
        win = Win.Create(table, 8, comm=comm)
        whole, group = np.zeros((3, 4)), win.group.Excl([rank])

        def fence() -> None:
            win.Fence()

        def post_start() -> None:
            win.Post(group)
            win.Start(group)

        def complete_wait() -> None:
            win.Complete()
            assert win.Wait()

        def lock() -> None:
            win.Lock(other)

        def unlock() -> None:
            win.Unlock(other)
            comm.Barrier()

        for turn, (begin, end) in enumerate(
            [(fence, fence), (post_start, complete_wait), (lock, unlock), (win.Lock_all, win.Unlock_all)]
        ):
            mine = np.arange(3.0) + 10 * rank + 100 * turn
            begin()
            win.Put(mine, other, (turn, 1, column))
            end()
            comm.Barrier()
            begin()
            win.Get(whole, other)
            end()
            comm.Barrier()
            assert list(whole[:, turn]) == list(mine)
            assert list(table[:, turn]) == list(np.arange(3.0) + 10 * other + 100 * turn)
        win.Fence(MPI.MODE_NOSUCCEED)
        win.Free()

    run_ranks(2, program, seed=seed)


def test_large_data_are_lent_and_come_whole() -> None:
    count = COPY_BYTES // 4  # doubles: twice the bound

    def program(comm: Any) -> Any:
        win = Win.Allocate(8 * count, 8, comm=comm)
        mine, into = np.arange(float(count)) + comm.rank, np.zeros(count)
        win.Lock_all()
        requests = [win.Rput(mine, 1 - comm.rank)]
        win.Put(mine, 1 - comm.rank)
        win.Flush_local(1 - comm.rank)
        Request.Waitall(requests)
        mine += 5
        win.Flush_all()
        comm.Barrier()
        requests = [win.Rget(into, comm.rank)]
        Request.Waitall(requests)
        win.Unlock_all()
        assert (into == np.arange(float(count)) + 1 - comm.rank).all()
        win.Free()

    run_ranks(2, program)


def test_every_predefined_operation_and_compare_and_swap() -> None:
    names = ["SUM", "PROD", "MAX", "MIN", "LAND", "BAND", "LOR", "BOR", "LXOR", "BXOR", "REPLACE", "NO_OP"]

    def program(comm: Any) -> Any:
        memory = np.zeros(4, "i")
        win = Win.Create(memory, 4, comm=comm)
        win.Lock_all()
        for name in names:
            op = getattr(MPI, name)
            memory[:] = [6, 3, 0, -5]
            data, before = np.array([3, 3, 2, 7], "i"), np.zeros(4, "i")
            win.Get_accumulate(data, before, 0, op=op)
            win.Flush(0)
            assert list(before) == [6, 3, 0, -5]
            assert list(memory) == [
                int(op(a, b)) for a, b in zip(before.tolist(), data.tolist(), strict=True)
            ]
        pair = np.array([(2.5, 1)], [("value", "f"), ("index", "i")])
        located = Win.Create(pair, 1, comm=comm)
        located.Lock(0)
        located.Accumulate([np.array([(2.5, 0)], pair.dtype), MPI.FLOAT_INT], 0, op=MPI.MAXLOC)
        located.Unlock(0)
        assert pair[0].tolist() == (2.5, 0)
        swap = [np.array([value], "i") for value in (9, -5, 0)]
        win.Compare_and_swap(*swap, 0, 3)
        win.Compare_and_swap(*swap, 0, 2)
        win.Unlock_all()
        assert list(memory[2:]) == [0, 9] and swap[2][0] == 0
        located.Free()
        win.Free()

    run_ranks(1, program)


# ---- what is refused -------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
def test_data_may_be_less_than_the_place_they_go_to(seed: int) -> None:
    """As with a send and its receive: the rest of the place stays as it is."""
    column = MPI.INT64_T.Create_vector(4, 1, 2)

    def program(comm: Any) -> Any:
        other = 1 - comm.rank
        win = Win.Allocate(64, 8, comm=comm)
        memory = np.frombuffer(win, "q")
        memory[:] = np.arange(8) + 10
        comm.Barrier()
        win.Lock(other)
        win.Put(np.array([1, 2]), other, (0, 3))
        win.Accumulate(np.array([5]), other, (3, 2))
        win.Put(np.array([6, 7]), other, (4, 1, MPI.INT64_T.Create_vector(2, 2, 2).Commit()))
        win.Unlock(other)
        comm.Barrier()
        assert memory.tolist() == [1, 2, 12, 18, 6, 7, 16, 17]
        for _ in range(3):  # the first by a message, later ones directly where that is possible
            here, gaps = np.zeros(6, "q"), np.zeros(8, "q")
            win.Lock(other, MPI.LOCK_SHARED)
            win.Get(here[1:], other, (2, 3))
            win.Get([gaps, 1, column], other, (0, 3, MPI.INT64_T))
            win.Rget([here[5:], 1, MPI.INT64_T], other, (7, 1)).Wait()
            win.Unlock(other)
            assert here.tolist() == [0, 12, 18, 6, 0, 17]
            assert gaps.tolist() == [1, 0, 2, 0, 12, 0, 0, 0]
        comm.Barrier()
        win.Lock(other)
        for call in (win.Put, win.Accumulate):
            assert code_of(call, np.zeros(3, "q"), other, (0, 2)) == MPI.ERR_TYPE
        assert code_of(win.Get, np.zeros(2, "q"), other, (0, 3)) == MPI.ERR_TYPE
        win.Unlock(other)
        win.Free()

    run_ranks(2, program, seed=seed)


def test_bad_arguments_are_named_at_the_origin() -> None:
    def program(comm: Any) -> Any:
        other = 1 - comm.rank
        win = Win.Allocate(16, 4, comm=comm)
        data = np.zeros(2, "i")
        win.Lock_all()
        codes = [
            code_of(win.Put, data, other, 3),
            code_of(win.Put, data, other, -1),
            code_of(win.Get, data, other, (0, 3, MPI.INT)),
            code_of(win.Put, data, 2),
            code_of(win.Accumulate, data, other, (0, 2, MPI.FLOAT)),
            code_of(win.Accumulate, data, other, op=MPI.MAXLOC),
            code_of(win.Accumulate, data, other, op=MPI.Op.Create(max)),
            code_of(win.Compare_and_swap, np.ones(1), np.ones(1), np.ones(1), other),
            code_of(win.Put, data, other, (0, -2)),
        ]
        win.Unlock_all()
        win.Lock(other, lock_type=MPI.LOCK_SHARED)
        codes.append(code_of(win.Lock, comm.rank, 17))
        win.Unlock(other)
        codes += [code_of(win.Attach, data), code_of(win.Start, MPI.Group._make((7,), 0))]
        win.Free()
        codes.append(code_of(win.Lock, 0))
        return codes

    names = [
        "RMA_RANGE",
        "RMA_RANGE",
        "TYPE",
        "RANK",
        "TYPE",
        "OP",
        "OP",
        "TYPE",
        "COUNT",
        "LOCKTYPE",
        "RMA_FLAVOR",
        "GROUP",
        "WIN",
    ]
    wanted = [getattr(MPI, f"ERR_{name}") for name in names]
    assert run_ranks(2, program) == [wanted, wanted]


@pytest.mark.parametrize("seed", SEEDS)
def test_an_error_at_the_target_comes_up_at_the_next_synchronization(seed: int) -> None:
    def program(comm: Any) -> Any:
        other = 1 - comm.rank
        piece = np.zeros(2, "i")
        win = Win.Create_dynamic(comm=comm)
        win.Attach(piece)
        where = comm.allgather(MPI.Get_address(piece))
        win.Lock_all()
        win.Put(np.array([1, 2], "i"), other, where[other] + 4)
        win.Put(np.array([7], "i"), other, where[other])
        with pytest.raises(MpiException, match=f"at rank {other}: no attached memory") as caught:
            win.Flush(other)
        win.Flush(other)
        comm.Barrier()
        assert caught.value.error_class == MPI.ERR_RMA_RANGE and list(piece) == [7, 0]
        request = win.Rget(piece, other, where[other] + 4)
        assert code_of(request.Wait) == MPI.ERR_RMA_RANGE
        win.Get(piece, other, where[other] + 4)
        assert code_of(win.Unlock_all) == MPI.ERR_RMA_RANGE
        win.Fence()
        win.Put(piece, other, where[other] + 4)
        assert code_of(win.Fence) == MPI.ERR_RMA_RANGE
        win.Free()

    run_ranks(2, program, seed=seed)


def test_a_rank_that_cannot_make_its_part_fails_all() -> None:
    def program(comm: Any) -> Any:
        memory = b"read-only" if comm.rank == 1 else bytearray(9)
        with pytest.raises(BufferError if comm.rank == 1 else MpiException, match="read-only"):
            Win.Create(memory, comm=comm)
        assert code_of(Win.Allocate, -1, comm=comm) == MPI.ERR_SIZE
        assert code_of(Win.Allocate, 8, 0 if comm.rank else 1, comm=comm) in (MPI.ERR_DISP, MPI.ERR_OTHER)
        Win.Allocate(8, comm=comm).Free()
        assert len(comm._engine.windows.open) == 0

    run_ranks(3, program)


def test_on_one_host_what_is_read_is_there_when_the_call_returns() -> None:
    # pshmem's lock looks at what Get has read without a Flush before, and gave the lock to several ranks at once.
    def program(comm: Any) -> None:
        comm._engine.one_host = True
        win = Win.Allocate(32, 8, comm=comm)
        one, seen = np.ones(1, "q"), np.zeros(4, "q")
        for _ in range(3):
            win.Lock(0)
            win.Get(seen, 0)
            highest = int(seen[0])
            win.Put(one + highest, 0)
            win.Get(seen, 0)
            assert seen[0] == highest + 1
            win.Fetch_and_op(one, seen[:1], 0)
            assert seen[0] == highest + 1
            win.Compare_and_swap(one * 7, one + highest + 1, seen[:1], 0)
            assert seen[0] == highest + 2
            win.Get_accumulate(one * (highest + 1), seen[:1], 0, op=MPI.REPLACE)
            assert seen[0] == 7
            win.Unlock(0)
        comm.Barrier()
        if comm.rank == 0:
            assert np.frombuffer(win, "q")[0] == 3 * comm.size
        win.Free()

    for seed in SEEDS:
        run_ranks(3, program, seed=seed)


def test_a_window_cannot_be_pickled_by_the_program() -> None:
    import pickle

    win = MPI.Win.Allocate(8)
    with pytest.raises(ValueError, match="cannot pickle a Win"):
        pickle.dumps(win)
    win.Free()


def test_an_interrupted_lock_is_given_back() -> None:
    class Alarm(Exception):
        pass

    def program(comm: Any) -> Any:
        win = Win.Allocate(8, comm=comm)
        if comm.rank == 0:
            win.Lock(0)
            comm.Barrier()
            comm.recv(source=1)
            win.Unlock(0)
        else:
            comm.Barrier()
            progress = comm._engine.progress

            def ring() -> None:
                raise Alarm

            progress.before_block = ring
            with pytest.raises(Alarm):
                win.Lock(0)
            progress.before_block = None
            comm.send("interrupted", 0)
        comm.Barrier()
        win.Lock(0)  # everybody gets it
        win.Unlock(0)
        win.Free()

    run_ranks(2, program)


def test_every_call_uses_the_error_handler_of_the_window() -> None:
    win, told = MPI.Win.Allocate(8), []
    handler = MPI.Win.Create_errhandler(lambda win, code: told.append(code))
    win.Set_errhandler(handler)
    calls: list[tuple[Any, ...]] = [
        (win.Put, b"x", 0),
        (win.Flush, 0),
        (win.Wait,),
        (win.Test,),
        (win.Attach, bytearray(1)),
    ]
    calls += [(win.Lock, 5), (win.Complete,), (win.Shared_query, 9)]
    codes = [code_of(*call) for call in calls]
    assert told == codes and all(codes)
    win.Free()
    with pytest.raises(MpiException):
        win.Get_group()
    handler.Free()


def test_the_room_is_loaded_when_a_program_uses_its_names() -> None:
    script = (
        "import sys; from ckpt import MPI; assert 'ckpt.mpi.rma' not in sys.modules; "
        "assert not MPI.WIN_NULL; assert 'ckpt.mpi.rma.window' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


# ---- images ----------------------------------------------------------------------------------------------


def everything(comm: Any) -> None:
    """A program that waits in every kind of call of a window."""
    rank, other = comm.rank, (comm.rank + 1) % comm.size
    for _ in range(2):
        win = Win.Allocate(8 * 50_000, 8, comm=comm)
        data, into = np.full(50_000, float(rank)), np.zeros(50_000)
        win.Lock(0)
        win.Put(data, 0)
        win.Get(into, 0)
        win.Flush(0)
        win.Flush_local(0)
        win.Unlock(0)
        assert (into == rank).all()
        win.Lock_all()
        win.Accumulate(data, other)
        win.Rget(into, other).Wait()
        win.Flush_all()
        win.Accumulate(data, other)
        win.Flush_local_all()
        win.Unlock_all()
        win.Fence()
        win.Get(into, other)
        win.Fence(MPI.MODE_NOSUCCEED)
        win.Post(win.group)
        win.Start(win.group)
        win.Put(data, other)
        win.Complete()
        win.Wait()
        win.Free()


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("seed", range(2))
def test_the_stack_of_every_wait_can_be_an_image(size: int, seed: int) -> None:
    run_ranks(size, everything, seed=seed, hook=watch)
    assert len(PLACES) >= 8


def opened(comm: Any, memory: np.ndarray[Any, Any]) -> Any:
    """A window of all ranks, made without messages; operations may begin at once."""
    engine = comm._engine
    state = WindowState(engine, comm, MPI.WIN_FLAVOR_CREATE, Fixed(memory, memory.nbytes), 8, handle_of)
    state.sizes, state.units = (memory.nbytes,) * comm.size, (8,) * comm.size
    state.epochs.fenced = True
    with engine.lock:
        engine.windows.add(state)
    return handle_of(engine, state)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("size", [1, 2, 4])
def test_half_done_operations_survive_and_are_done_once(size: int, seed: int) -> None:
    def start(comm: Any) -> dict[str, Any]:
        memory = np.zeros(2 + comm.size, "q")
        win = opened(comm, memory)
        choose = random.Random(seed * 10 + comm.rank)
        state: dict[str, Any] = {"memory": memory, "win": win, "requests": [], "fetched": []}
        for number in range(12):
            target = choose.randrange(comm.size)
            state["requests"].append(win.Raccumulate(np.ones(1, "q"), target, 0))
            fetched = np.zeros(1, "q")
            state["fetched"].append((target, fetched))
            state["requests"].append(win.Rget_accumulate(np.ones(1, "q"), fetched, target, 1))
            win.Put(np.full(1, number + 1, "q"), target, 2 + comm.rank)
        for target in range(comm.size):
            with comm._engine.lock:
                flush = win._alive().origin.flushing(target, wire.FLUSH)
            state["requests"].append(Request._make(comm._engine, flush))
        return state

    ends: dict[int, Any] = {}

    def finish(rank: int, state: dict[str, Any]) -> None:
        ends[rank] = state
        assert not state["win"]._alive().pending and not state["win"]._alive().engine.windows.awaited

    play(size, seed, start, finish)
    for rank, end in ends.items():
        fetched = [
            int(into[0]) for other in ends.values() for target, into in other["fetched"] if target == rank
        ]
        assert end["memory"][0] == end["memory"][1] == len(fetched)
        assert sorted(fetched) == list(range(len(fetched)))


def test_messages_for_a_window_that_is_not_open_yet_are_kept() -> None:
    bus = Bus(2)
    from ckpt.mpi.comm.communicator import world_of
    from ckpt.mpi.engine.engine import Engine

    comms = []
    for rank in range(2):
        progress = BusProgress(bus, rank)
        progress.engine = Engine(progress)
        comms.append(world_of(progress.engine))
    memories = [np.zeros(2, "q") for _ in comms]
    early = opened(comms[0], memories[0])
    early.Put(np.array([5], "q"), 1, 1)
    with comms[1]._engine.lock:
        comms[1]._engine.make_progress()
    opened(comms[1], memories[1])
    assert list(memories[1]) == [0, 5]

"""Dead members of a window: their locks are released, operations on them fail, nobody hangs, nothing is done twice.

Ranks die at random calls into the transport; a program that hangs raises Stuck.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ckpt import MPI
from ckpt.mpi.base.errors import MpiException
from ckpt.mpi.rma.window import Win
from tests.unit.ckpt.mpi.bus import BusProgress, Killed, run_ranks

SEEDS = range(40)


def code_of(call: Callable[..., Any], *args: Any) -> int:
    """Error class of what a call raises; 0 if it returns."""
    try:
        call(*args)
    except MpiException as error:
        return error.error_class
    return 0


def until_failed(comm: Any) -> None:
    while not comm.Get_failed().size:
        with comm._engine.lock:
            comm._engine.block()


def everybody_is_here(comm: Any, leader: int) -> None:
    """A barrier after which the leader may die at once: nobody waits for it any more."""
    if comm.rank != leader:
        comm.send("here", leader)
        comm.recv(source=leader)
        comm.send("heard", leader)
        return
    for _ in range(comm.size - 1):
        comm.recv()
    for rank in range(comm.size):
        if rank != leader:
            comm.send("all", rank)
            comm.recv(source=rank)


def test_the_lock_of_a_dead_rank_is_released() -> None:
    def program(comm: Any) -> Any:
        win = Win.Allocate(8, 8, comm=comm)
        if comm.rank == 2:
            win.Lock(0)
            win.Put(np.full(1, 7, "q"), 0)
            win.Flush(0)
            everybody_is_here(comm, 2)
            raise Killed
        everybody_is_here(comm, 2)
        into = np.zeros(1, "q")
        win.Lock(0)
        win.Get(into, 0)
        win.Unlock(0)
        assert into[0] == 7
        until_failed(comm)
        codes = [code_of(win.Lock, 2), code_of(win.Lock_all), code_of(win.Fence)]
        survivors = comm.Shrink()
        win.Lock(1, MPI.LOCK_SHARED)
        codes += [code_of(win.Put, into, 1), code_of(win.Unlock, 1)]
        survivors.Barrier()
        codes.append(code_of(win.Free))
        assert win == MPI.WIN_NULL
        return codes

    failed = MPI.ERR_PROC_FAILED
    wanted = [failed, failed, failed, 0, 0, failed]
    for seed in range(5):
        assert run_ranks(3, program, seed=seed) == [wanted, wanted, Killed]


def test_what_was_begun_at_a_dead_target_ends_with_the_error() -> None:
    def program(comm: Any) -> Any:
        win = Win.Allocate(8, 8, comm=comm)
        into = np.zeros(1, "q")
        comm.Barrier()
        if comm.rank == 1:
            raise Killed
        win.Lock(1, assertion=MPI.MODE_NOCHECK)
        try:
            request = win.Rget(into, 1)
            win.Get(into, 1)
            win.Put(into, 1)
            code_of(request.Wait)  # the target may have answered before it died
        except MpiException as error:
            assert error.error_class == MPI.ERR_PROC_FAILED
        until_failed(comm)
        codes = [code_of(win.Flush, 1), code_of(win.Unlock, 1)]
        codes += [code_of(win.Post, win.group), code_of(win.Start, win.group.Excl([0]))]
        codes += [code_of(win.Wait), code_of(win.Wait)]
        assert not comm._engine.windows.awaited
        return codes

    failed = MPI.ERR_PROC_FAILED
    for seed in range(5):
        codes = run_ranks(2, program, seed=seed)[0]
        assert codes == [failed, failed, 0, failed, failed, MPI.ERR_RMA_SYNC]


def test_revoking_the_communicator_of_a_window_ends_what_waits() -> None:
    def program(comm: Any) -> Any:
        win = Win.Allocate(8, 8, comm=comm)
        if comm.rank == 0:
            win.Lock(0)
            everybody_is_here(comm, 0)
            comm.Revoke()
        else:
            everybody_is_here(comm, 0)
            calls: list[tuple[Any, ...]] = [(win.Lock, 0), (win.Start, win.group.Incl([0]))]
            assert code_of(*calls[comm.rank % 2]) == MPI.ERR_REVOKED
            assert code_of(win.Lock_all) == code_of(win.Fence) == MPI.ERR_REVOKED
            assert code_of(win.Free) == MPI.ERR_REVOKED and win == MPI.WIN_NULL
        assert comm.Shrink().size == 3

    for seed in range(5):
        run_ranks(3, program, seed=seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_survivors_end_with_a_result_or_the_error_whenever_somebody_dies(seed: int) -> None:
    choose = random.Random(seed)
    size = choose.choice((2, 3, 4))
    victim, after = choose.randrange(1, size), choose.randrange(150)

    def arm(progress: BusProgress) -> None:
        progress.die_in = after if progress.rank == victim else None

    def work(comm: Any) -> int:
        win = Win.Allocate(16, 8, comm=comm)
        one, into = np.ones(1, "q"), np.zeros(1, "q")
        done = 0
        for turn in range(6):
            target = (comm.rank + turn) % comm.size
            win.Lock(target, MPI.LOCK_SHARED if turn % 2 else MPI.LOCK_EXCLUSIVE)
            win.Accumulate(one, target)
            win.Get_accumulate(one, into, 0 if target == 0 else target, 1)
            win.Unlock(target)
            done += 1
        win.Fence()
        win.Put(one, 0, 1)
        win.Fence(MPI.MODE_NOSUCCEED)
        win.Free()
        return done

    def program(comm: Any) -> Any:
        try:
            outcome: Any = work(comm)
        except MpiException as error:
            assert error.error_class in (MPI.ERR_PROC_FAILED, MPI.ERR_REVOKED), error
            outcome = "failed"
            comm.Revoke()
        # The victim may die as late as here
        assert code_of(comm.Shrink().Barrier) in (
            0,
            MPI.ERR_PROC_FAILED,
        )
        return outcome

    results = run_ranks(size, program, seed=seed, hook=arm)
    assert all(each in (6, "failed", Killed) for each in results)
    if Killed not in results:
        assert results == [6] * size

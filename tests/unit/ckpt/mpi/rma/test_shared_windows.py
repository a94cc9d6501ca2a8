"""`Win.Allocate_shared`: memory that ranks load from and store to directly. (Images: tests/unit/ckpt/shared_memory.)"""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from ckpt import MPI
from ckpt.mpi.base.errors import MpiException
from ckpt.mpi.rma.shared import layout
from ckpt.mpi.rma.window import Win
from ckpt.shared_memory.host import HostMemory
from tests.unit.ckpt.mpi.bus import BusProgress, run_ranks

PAGE = os.sysconf("SC_PAGESIZE")

Hook = Callable[[Any], None]


@pytest.fixture
def on_one_host() -> Iterator[Hook]:
    """Gives each rank of the bus the memory of one host."""
    fd = os.memfd_create("test")

    def give(progress: Any) -> None:
        progress.epoch = 0
        progress.shared_memory = HostMemory(progress, (os.getpid(), fd), progress.rank, progress.lock)

    yield give
    os.close(fd)


def numbers(win: Win, rank: int) -> Any:
    return np.frombuffer(win.Shared_query(rank)[0], "q")


def test_the_parts_follow_each_other(on_one_host: Hook) -> None:
    def program(comm: Any) -> None:
        win = Win.Allocate_shared(8 * (comm.rank + 1), 8, comm=comm)
        numbers(win, comm.rank)[:] = comm.rank
        comm.Barrier()
        assert [numbers(win, rank).tolist() for rank in range(3)] == [[0], [1, 1], [2, 2, 2]]
        first, unit = win.Shared_query(0)
        whole = np.frombuffer(MPI.buffer.fromaddress(first.address, 48), "q")
        assert (whole.tolist(), unit) == ([0, 1, 1, 2, 2, 2], 8)
        assert win.flavor == MPI.WIN_FLAVOR_SHARED and win.model == MPI.WIN_UNIFIED
        assert win.attrs == (win.Shared_query(comm.rank)[0].address, 8 * (comm.rank + 1), 8)
        comm.Barrier()
        win.Free()

    run_ranks(3, program, hook=on_one_host)


def test_each_part_begins_a_page_if_the_program_wants_that(on_one_host: Hook) -> None:
    def program(comm: Any) -> list[int]:
        info = MPI.Info.Create({"alloc_shared_noncontig": "true"})
        win = Win.Allocate_shared(24, 8, info, comm)
        return [win.Shared_query(rank)[0].address % PAGE for rank in range(2)]

    assert run_ranks(2, program, hook=on_one_host) == [[0, 0], [0, 0]]
    assert layout([1, 0, PAGE + 1, 5], has_gaps=True)[0] == [
        (0, 1),
        (PAGE, 0),
        (PAGE, PAGE + 1),
        (3 * PAGE, 5),
    ]
    assert layout([1, 0, 7, 5], has_gaps=False) == ([(0, 1), (1, 0), (1, 7), (8, 5)], 13)


def test_one_rank_may_have_all_of_the_memory_or_nobody_any(on_one_host: Hook) -> None:
    def program(comm: Any) -> None:
        win = Win.Allocate_shared(16 if comm.rank == 1 else 0, 4 * (comm.rank + 1), comm=comm)
        first, unit = win.Shared_query(MPI.PROC_NULL)
        assert (len(first), unit) == (16, 8)  # of the first rank that has some
        assert [len(win.Shared_query(rank)[0]) for rank in range(2)] == [0, 16]
        none = Win.Allocate_shared(0, comm=comm)
        assert [len(none.Shared_query(rank)[0]) for rank in (0, 1, MPI.PROC_NULL)] == [0, 0, 0]
        none.Free()
        win.Free()
        assert not comm._engine.progress.shared_memory.is_in_use

    run_ranks(2, program, hook=on_one_host)


def test_operations_of_windows_work_on_shared_memory(on_one_host: Hook) -> None:
    def program(comm: Any) -> None:
        win = Win.Allocate_shared(16, 8, comm=comm)
        one, before = np.ones(1, "q"), np.zeros(1, "q")
        win.Fence()
        for rank in range(comm.size):
            win.Accumulate(one, rank, 1)
        win.Fence()
        assert [numbers(win, rank)[1] for rank in range(comm.size)] == [comm.size] * comm.size
        win.Lock(0)
        win.Fetch_and_op(one, before, 0)
        win.Get(before, comm.size - 1, 1)
        win.Unlock(0)
        comm.Barrier()
        assert numbers(win, 0)[0] == comm.size and np.frombuffer(win, "q")[1] == comm.size
        win.Free()

    run_ranks(3, program, hook=on_one_host)


def test_one_rank_needs_no_host() -> None:
    win = MPI.Win.Allocate_shared(8)
    memory, unit = win.Shared_query(0)
    assert (len(memory), unit, win.flavor) == (8, 1, MPI.WIN_FLAVOR_SHARED)
    win.Free()


# ---- errors --------------------------------------------------------------------------------------------------


def test_without_a_hosts_memory_it_is_refused_by_name() -> None:
    def program(comm: Any) -> None:
        with pytest.raises(NotImplementedError, match=r"Win\.Allocate_shared: .*Win\.Allocate with Put"):
            Win.Allocate_shared(8, comm=comm)

    run_ranks(2, program)


def test_a_rank_on_another_host_is_named_at_all(on_one_host: Hook) -> None:
    other = os.memfd_create("other")

    def hook(progress: BusProgress) -> None:
        on_one_host(progress)
        if progress.rank == 1:
            given: Any = progress
            given.shared_memory = HostMemory(progress, (os.getpid(), other), 1, progress.lock)

    def program(comm: Any) -> None:
        with pytest.raises(MpiException, match=r"rank 1 is on another host.*Split_type") as raised:
            Win.Allocate_shared(8, comm=comm)
        assert raised.value.error_class == MPI.ERR_RMA_SHARED
        assert not comm._engine.windows.open

    run_ranks(2, program, hook=hook)
    os.close(other)


@pytest.mark.parametrize("method", ["allocate", "map", "join"])
def test_what_fails_at_one_rank_is_told_to_all(
    on_one_host: Hook, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    def fail(*args: Any) -> Any:
        raise OSError("no memory")

    def hook(progress: BusProgress) -> None:
        on_one_host(progress)
        if progress.rank == (0 if method == "allocate" else 1):
            given: Any = progress
            monkeypatch.setattr(given.shared_memory, method, fail)

    def program(comm: Any) -> None:
        with pytest.raises(MpiException, match=r"no shared memory of 16 bytes|OSError: no memory"):
            Win.Allocate_shared(8, comm=comm)
        assert not comm._engine.windows.open
        assert not comm._engine.progress.shared_memory.is_in_use

    run_ranks(2, program, hook=hook)


def test_a_negative_size_is_an_error(on_one_host: Hook) -> None:
    def program(comm: Any) -> None:
        with pytest.raises(MpiException, match="negative size"):
            Win.Allocate_shared(-1 if comm.rank else 8, comm=comm)

    run_ranks(2, program, hook=on_one_host)


# ---- memory at an address ------------------------------------------------------------------------------------


def test_an_address_in_a_window_is_the_memory_of_the_window() -> None:
    for win in (Win.Allocate(64), Win.Allocate_shared(64), Win.Create(np.zeros(8), 8)):
        base = win.attrs[0]
        found = MPI.buffer.fromaddress(base + 8, 16)
        found[:] = 7
        assert memoryview(win).cast("B")[7:25].tolist() == [0, *[7] * 16, 0]
        kept = win.tomemory().obj
        assert memoryview(found.obj).obj is memoryview(kept).obj
        win.Free()


def test_memory_at_an_address_that_nobody_knows_is_no_part_of_an_image() -> None:
    memory = np.zeros(8)
    found = MPI.buffer.fromaddress(memory.ctypes.data, 64)
    with pytest.raises(
        pickle.PicklingError, match=r"MPI\.buffer\.fromaddress, 64 bytes\).*MPI\.buffer\.frombuffer"
    ):
        pickle.dumps(found)

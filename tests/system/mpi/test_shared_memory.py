"""Memory that ranks load from and store to directly (`Win.Allocate_shared`), in real jobs: the same bytes after kills.

Stores that are done twice, or lost, change the result: each adds to what is there, and ranks add to the parts of others.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.seeds import seed_of_the_commit
from tests.system.mpi.killing import finds_the_same_memory, same_with_kills
from tests.system.support import Job, run_ckpt, write_app

pytestmark = [pytest.mark.system, pytest.mark.turns(4)]

Start = Callable[..., Job]


STORES = """
    import random
    import sys
    import threading
    import time
    import zlib
    import numpy as np
    from ckpt import MPI

    comm = MPI.COMM_WORLD.Split_type(MPI.COMM_TYPE_SHARED)
    rank, size = comm.rank, comm.size
    halves = comm.Split(rank % 2)
    grid = MPI.Win.Allocate_shared(8 * 500 if rank == 0 else 0, 8, comm=comm)   # as tutorials do it
    shared = np.ndarray(buffer=grid.Shared_query(0)[0], dtype="d", shape=(500,))
    mine = slice(rank * 500 // size, (rank + 1) * 500 // size)
    results = []
    for turn in range(int(sys.argv[1])):
        group, choose = (comm, halves)[turn % 2], random.Random(turn)
        items = choose.randrange(1, 600)
        win = MPI.Win.Allocate_shared(8 * items, 8, comm=group)
        parts = [np.frombuffer(win.Shared_query(each)[0], "q") for each in range(group.size)]
        whole = MPI.buffer.fromaddress(win.Shared_query(0)[0].address, 8 * items * group.size)
        flag = MPI.Win.Allocate_shared(8, 8, comm=comm)
        whose = np.frombuffer(flag.Shared_query(0)[0], "q")
        shared[mine] += np.sin(turn + np.arange(mine.start, mine.stop))
        comm.Barrier()
        for _ in range(2):                              # the ranks take turns, and no message tells whose it is
            while whose[0] % size != rank:
                sum(range(50))
            parts[(group.rank + 1) % group.size][:] += turn + rank
            whose[0] += 1
        comm.Barrier()

        def add(mine=parts[group.rank]):
            for at in range(0, items, 7):
                mine[at] += at
                time.sleep(0)

        thread = threading.Thread(target=add)
        thread.start()
        sum(range(20000))
        thread.join()
        comm.Barrier()
        win.Lock(0)
        win.Accumulate(np.ones(1, "q"), 0)
        win.Unlock(0)
        comm.Barrier()
        assert sum(int(part.sum()) for part in parts) == int(np.frombuffer(whole, "q").sum())
        results.append((zlib.crc32(bytes(whole)), float(shared.sum())))
        comm.Barrier()
        flag.Free()
        win.Free()
    print(results[-1], zlib.crc32(repr(results).encode()))
    grid.Free()
"""


@pytest.mark.rotate(4)
@pytest.mark.parametrize("turn", range(4))
def test_killed_at_random_moments_shared_memory_has_the_same_bytes(
    start: Start, tmp_path: Path, turn: int
) -> None:
    same_with_kills(start, write_app(tmp_path, STORES), seed_of_the_commit() * 10 + turn, loops=30)


MAPPED = """
    import sys
    from multiprocessing.shared_memory import SharedMemory
    import numpy as np
    from ckpt import MPI

    comm = MPI.COMM_WORLD
    rank, size = comm.rank, comm.size
    if rank == 0:
        np.memmap("data.bin", dtype="q", mode="w+", shape=(size, 2000)).flush()
        block = SharedMemory(create=True, size=8 * size)
    name = comm.bcast(block.name if rank == 0 else None)
    if rank:
        block = SharedMemory(name=name)
    rows = np.memmap("data.bin", dtype="q", mode="r+", shape=(size, 2000))
    counts = np.ndarray(size, "q", block.buf)
    counts[rank] = 0
    comm.Barrier()
    for turn in range(int(sys.argv[1])):
        for _ in range(30):                             # each in its own part, at its own speed
            rows[rank] += turn
            counts[rank] += turn
            sum(range(200 * (1 + rank)))
        comm.Barrier()
    print(rows.sum(axis=1).tolist(), counts.tolist())
    comm.Barrier()
    del counts
    block.close()
    if rank == 0:
        block.unlink()
"""


@pytest.mark.rotate(2)
@pytest.mark.parametrize("turn", range(2))
def test_killed_at_random_moments_a_file_that_ranks_have_mapped_has_the_same_bytes(
    start: Start, tmp_path: Path, turn: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The image of each rank has the whole file, so at a restart the last one to fill it in won: with one kill of four, what
    another rank had stored between the two images was lost, without a word."""
    monkeypatch.chdir(tmp_path)
    same_with_kills(start, write_app(tmp_path, MAPPED), seed_of_the_commit() * 10 + turn, loops=20)


VIEWS = """
    import ctypes
    import os
    import time
    import numpy as np
    import ckpt
    from ckpt import MPI

    comm = MPI.COMM_WORLD
    other = 1 - comm.rank
    win = MPI.Win.Allocate_shared(80, 8, comm=comm)
    of_other, mine = win.Shared_query(other)[0], win.Shared_query(comm.rank)[0]
    lowest = win.Shared_query(0)[0].address
    whole = MPI.buffer.fromaddress(lowest, 160)
    by_number = (ctypes.c_double * 20).from_address(lowest)
    at = 10 * other
    views = [
        lambda a=np.frombuffer(of_other, "d"): a[3],
        lambda a=np.ndarray(10, "d", of_other)[::-1]: a[6],
        lambda a=np.ndarray(10, "d", of_other).reshape(2, 5).T: a[3, 0],
        lambda a=memoryview(of_other).cast("d"): a[3],
        lambda a=np.frombuffer(whole, "d"): a[at + 3],
        lambda a=np.ctypeslib.as_array(by_number): a[at + 3],
        lambda a=by_number: a[at + 3],
        lambda a=np.frombuffer(whole[8 * at : 8 * at + 80], "d"): a[3],
    ]

    def check(value):
        np.frombuffer(win, "d")[3] = value + comm.rank
        comm.Barrier()
        assert [view() for view in views] == [value + other] * len(views)
        comm.Barrier()
        np.frombuffer(whole, "d")[at + 3] += 5          # of the other rank
        comm.Barrier()
        assert memoryview(mine).cast("d")[3] == value + comm.rank + 5
        comm.Barrier()

    check(1.0)
    ckpt.checkpoint()
    if not ckpt.restarts():
        while not os.path.exists(os.environ["CKPT_TEST_GO"]):
            time.sleep(0.01)
    assert [view() for view in views] == [1.0 + other + 5] * len(views)
    comm.Barrier()
    check(10.0)
    print("the same memory", ckpt.restarts())
"""


def test_after_a_restart_all_views_show_the_memory_that_the_ranks_share(start: Start, tmp_path: Path) -> None:
    finds_the_same_memory(start, write_app(tmp_path, VIEWS))


LEAVES = """
    import os
    import time
    import numpy as np
    from ckpt import MPI

    comm = MPI.COMM_WORLD
    win = MPI.Win.Allocate_shared(8, 8, comm=comm)
    numbers = [np.frombuffer(win.Shared_query(rank)[0], "q") for rank in range(comm.size)]
    numbers[comm.rank][0] = 1
    comm.Barrier()
    if comm.rank == 0:                                  # the others have ended, and their memory is still in use
        while not os.path.exists(os.environ["CKPT_TEST_GO"]):
            for each in numbers:
                each[0] += 1
            time.sleep(0.001)
        first = int(numbers[0][0])
        assert [int(each[0]) for each in numbers] == [first] * comm.size
        print("the same", first > 1)
"""


def test_memory_of_ranks_that_have_ended_stays_in_checkpoints(start: Start, tmp_path: Path) -> None:
    job = start(write_app(tmp_path, LEAVES), ranks=3, every=0.1)
    for kill in range(2):
        job.wait_event("committed", len(job.events("committed")) + 2)
        job.kill_rank(kill)
        job.wait_event("restarted", kill + 1)
    job.go()
    assert job.finish() == 0, job.report()
    assert job.output(0) == "the same True\n"
    assert all(event["from_epoch"] for event in job.events("restarting")), job.report()


HALF_MADE = """
    import os
    import time
    import numpy as np
    from ckpt import MPI

    comm = MPI.COMM_WORLD
    comm.Barrier()
    while comm.rank == 1 and not os.path.exists(os.environ["CKPT_TEST_GO"]):
        time.sleep(0.01)                                # the others have told where they are
    win = MPI.Win.Allocate_shared(8, 8, comm=comm)
    numbers = [np.frombuffer(win.Shared_query(rank)[0], "q") for rank in range(comm.size)]
    numbers[comm.rank][0] = comm.rank + 1
    comm.Barrier()
    print([int(each[0]) for each in numbers])
"""


def test_an_image_while_some_are_in_the_call_that_makes_a_window(start: Start, tmp_path: Path) -> None:
    """After a restart the host's memory is another one, of another agent."""
    job = start(write_app(tmp_path, HALF_MADE), ranks=3)
    inside = "(in Allocate_shared of the library)"
    job.wait_for(lambda: run_ckpt("status", job.directory).stdout.count(inside) == 2, "two in the call")
    assert run_ckpt("checkpoint", "--stop", job.directory).returncode == 0
    assert job.process.wait(60) == 75, job.report()
    job.go()
    again = Job(job.directory, job.directory, verb="restart")
    assert again.finish() == 0, again.report()
    assert [again.output(rank) for rank in range(3)] == ["[1, 2, 3]\n"] * 3


LONG = """
    import os
    import time
    import numpy as np
    from ckpt import MPI

    comm = MPI.COMM_WORLD
    win = MPI.Win.Allocate_shared(8, 8, comm=comm)
    first = np.frombuffer(win.Shared_query(0)[0], "q")
    step = 0
    while not os.path.exists(os.environ["CKPT_TEST_GO"]):
        step += 1
        if comm.rank == 1:
            first[0] += 1
            print(end=".", flush=True)
        time.sleep(0.01)
    if comm.rank == 1:
        assert first[0] == step, (first[0], step)
        print(end="whole")
"""


def test_a_rank_that_is_stopped_holds_nobody_up_and_nothing_is_lost(start: Start, tmp_path: Path) -> None:
    job = start(write_app(tmp_path, LONG), ranks=2, every=0.1)
    job.wait_event("committed", 2)
    job.kill_rank(0, signal.SIGSTOP)
    steps = len(job.output(1))
    job.wait_for(lambda: len(job.output(1)) > steps + 100, "rank 1 to go on")
    job.kill_rank(0, signal.SIGCONT)
    job.wait_event("committed", len(job.events("committed")) + 2)
    job.kill_rank(1)
    job.wait_event("restarted")
    job.go()
    assert job.finish() == 0, job.report()
    assert job.output(1).endswith("whole")


def test_with_replicas_it_is_refused_by_name(start: Start, tmp_path: Path) -> None:
    app = """
        from ckpt import MPI

        try:
            MPI.Win.Allocate_shared(8, comm=MPI.COMM_WORLD)
        except NotImplementedError as error:
            print("several processes compute each rank" in str(error))
    """
    job = start(write_app(tmp_path, app), ranks=2, redundancy=2)
    assert job.finish() == 0, job.report()
    assert [job.output(rank) for rank in range(2)] == ["True\n"] * 2

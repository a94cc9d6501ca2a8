"""Windows (one-sided communication) in real jobs: the target computes, ranks are killed, jobs go on from images.

Nothing here depends on how long something takes: a target that computes does so until an origin's operation ends its loop.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.seeds import seed_of_the_commit
from tests.system.mpi.killing import finds_the_same_memory, same_with_kills
from tests.system.support import Job, long_enough, write_app

pytestmark = [pytest.mark.system, pytest.mark.turns(4)]

Start = Callable[..., Job]

COMPUTING = """
    import numpy as np
    from ckpt import MPI

    comm = MPI.COMM_WORLD
    target = comm.size - 1
    win = MPI.Win.Allocate(8 * 1100, 8, comm=comm)
    mine = np.frombuffer(win, "q")
    if comm.rank == target:
        total = 0
        while mine[0] < comm.size - 1:      # no call of the library in here
            total += sum(range(1000))
    else:
        one, into = np.ones(1, "q"), np.zeros(1000, "q")
        for turn in range(20):
            win.Lock(target)
            win.Get(into, target, 10)
            win.Flush(target)
            win.Put(into + 1, target, 10)
            win.Unlock(target)
        win.Lock(target, MPI.LOCK_SHARED)
        win.Accumulate(one, target)
        win.Unlock(target)
    comm.Barrier()
    print(mine[0], mine[10:1010].min(), mine[10:1010].max())
    win.Free()
"""


def test_operations_are_done_while_the_target_computes(start: Start, tmp_path: Path) -> None:
    job = start(write_app(tmp_path, COMPUTING), ranks=3)
    assert job.finish() == 0, job.report()
    assert job.output(2) == "2 40 40\n"


TICKETS = """
    import sys
    import numpy as np
    from ckpt import MPI

    comm = MPI.COMM_WORLD
    rank, size, turns = comm.rank, comm.size, int(sys.argv[1])
    memory = np.zeros(4 + size, "q")
    win = MPI.Win.Create(memory, 8, comm=comm)
    piece = np.zeros(64, "q")
    dynamic = MPI.Win.Create_dynamic(comm=comm)
    dynamic.Attach(piece)
    where = comm.allgather(MPI.Get_address(piece))      # wrong after a restart, and still what the ranks say
    here, there = np.zeros(2, "q"), np.zeros(3, "q")
    both = MPI.INT64_T.Create_hindexed([2, 3], [MPI.Get_address(here), MPI.Get_address(there)]).Commit()
    one, got, tickets = np.ones(1, "q"), np.zeros(1, "q"), []
    for turn in range(turns):
        here += turn * rank
        there[turn % 3] += rank
        comm.Sendrecv_replace([MPI.BOTTOM, 1, both], (rank + 1) % size, 5, (rank - 1) % size, 5)
        target = (rank + turn) % size
        win.Lock(0, MPI.LOCK_SHARED)
        win.Fetch_and_op(one, got, 0, 0)                # who draws which number depends on timing
        win.Accumulate(one, 0, 1)
        win.Unlock(0)
        tickets.append(int(got[0]))
        win.Lock(target)
        win.Get(got, target, 2)
        win.Flush(target)
        win.Put(got + 1, target, 2)                     # alone: otherwise an addition would be lost
        win.Put(np.full(1, turn, "q"), target, 4 + rank)
        win.Unlock(target)
        dynamic.Lock(target, MPI.LOCK_SHARED)
        dynamic.Accumulate(np.full(8, turn, "q"), target, where[target] + 64 * (turn % 8), MPI.SUM)
        dynamic.Unlock(target)
        sum(range(2000))
    win.Fence()
    drawn = sorted(ticket for each in comm.allgather(tickets) for ticket in each)
    assert drawn == list(range(size * turns)), "a ticket is missing, or was drawn twice"
    print(memory.tolist(), piece.tolist(), here.tolist(), there.tolist())
    win.Fence(MPI.MODE_NOSUCCEED)
    dynamic.Detach(piece)
    dynamic.Free()
    win.Free()
"""


@pytest.mark.rotate(4)
@pytest.mark.parametrize("turn", range(4))
def test_killed_at_random_moments_the_windows_have_the_same_bytes(
    start: Start, tmp_path: Path, turn: int
) -> None:
    same_with_kills(start, write_app(tmp_path, TICKETS), seed_of_the_commit() * 10 + turn, loops=200)


VIEWS = """
    import os
    import time
    import numpy as np
    import ckpt
    from ckpt import MPI

    comm = MPI.COMM_WORLD
    other = 1 - comm.rank
    allocated = MPI.Win.Allocate(80, 8, comm=comm)
    parts, memory, array = np.zeros(10), MPI.Alloc_mem(80), bytearray(80)
    wins = [allocated, MPI.Win.Create(parts[2:8], 8, comm=comm), MPI.Win.Create(memory, 8, comm=comm)]
    wins.append(MPI.Win.Create(array, 8, comm=comm))
    kept = allocated.tomemory()
    views = [
        lambda: np.frombuffer(kept, "d")[1], lambda: parts[3], lambda: np.frombuffer(array, "d")[1],
        lambda a=np.frombuffer(allocated, "d"): a[1],
        lambda a=np.ndarray(10, "d", allocated.tomemory()): a[1],
        lambda a=memoryview(allocated).cast("d"): a[1],
        lambda a=np.frombuffer(memory, "d"): a[1],
        lambda a=np.frombuffer(array, "d"): a[1],
    ]

    def check(value):
        for win in wins:
            win.Lock(other)
            win.Put(np.array([value + comm.rank]), other, 1)
            win.Unlock(other)
        comm.Barrier()
        assert [view() for view in views] == [value + other] * len(views)
        comm.Barrier()

    check(1.0)
    before = [win.attrs[0] for win in wins]
    ckpt.checkpoint()
    if not ckpt.restarts():
        while not os.path.exists(os.environ["CKPT_TEST_GO"]):
            time.sleep(0.01)
    check(10.0)
    assert [win.attrs[0] for win in wins] == [MPI.Get_address(win.tomemory()) for win in wins]
    print("the same memory", ckpt.restarts())
    for win in wins:
        win.Free()
"""


def test_after_a_restart_a_window_is_the_memory_that_the_program_sees(start: Start, tmp_path: Path) -> None:
    finds_the_same_memory(start, write_app(tmp_path, VIEWS))


COUNTING = """
    import sys
    import numpy as np
    import ckpt
    from ckpt import MPI

    comm = MPI.COMM_WORLD
    win = MPI.Win.Allocate(24, 8, comm=comm)
    mine, direct = np.frombuffer(win, "q"), comm._engine.progress.port.wire.reads_directly(1 - comm.rank)

    def look(last):
        win.Get(seen, 1)
        win.Flush(1)
        assert seen[0] >= last, f"{seen[0]} after {last}: what was read is not in the checkpoint"
        return seen[0]

    if comm.rank == 1:
        while not mine[2]:
            if mine[1] == ckpt.restarts():  # after a restart it stands still until the reader has looked
                mine[0] += 1                # no message tells of it
    else:
        seen, last, reads, known = np.zeros(1, "q"), 0, 0, 0
        win.Lock_all()
        while reads < int(sys.argv[1]):
            former, last = last, look(last)
            reads += last > former
            if known != ckpt.restarts():
                known = ckpt.restarts()
                last = look(last)
                win.Put(np.full(1, known, "q"), 1, 1)
        win.Put(np.ones(1, "q"), 1, 2)
        win.Unlock_all()
        port = comm._engine.progress.port
        with port.lock:
            assert port.counters()["window_reads"] > 0 or not direct
        print("only grew")
    comm.Barrier()
"""


def test_what_was_read_directly_is_in_the_checkpoint_of_its_target(start: Start, tmp_path: Path) -> None:
    """After a restart the counter would have a lower value than the one that the reader remembers."""
    choose, program = random.Random(seed_of_the_commit()), write_app(tmp_path, COUNTING)

    def attempt(reads: int) -> None:
        job = start(program, reads, ranks=2, every=0.05, name=f"job-{reads}")
        for kill in range(2):
            job.wait_event("committed", len(job.events("committed")) + 1)
            job.kill_rank(choose.randrange(2))
            job.wait_event("restarted", kill + 1)
        assert job.finish() == 0, job.report()
        assert job.output(0) == "only grew\n"
        assert all(event["from_epoch"] for event in job.events("restarting")), job.report()

    long_enough(4_000, attempt)


STOPPED = """
    import os
    import signal
    import numpy as np
    from ckpt import MPI

    comm = MPI.COMM_WORLD
    win = MPI.Win.Allocate(1 << 20, 1, comm=comm)
    np.frombuffer(win, "B")[:] = comm.rank
    into = np.zeros(1 << 20, "B")
    pid, direct = comm.allgather(os.getpid())[1], comm._engine.progress.port.wire.reads_directly(1)
    win.Fence()
    if comm.rank == 0:
        win.Get(into, 1)
    win.Fence()
    if comm.rank == 0 and direct:
        os.kill(pid, signal.SIGSTOP)
        into[:] = 0
        win.Get(into, 1)
        assert (into == 1).all()
        os.kill(pid, signal.SIGCONT)
    win.Fence()
    print("read")
"""


def test_a_target_that_is_stopped_can_be_read(start: Start, tmp_path: Path) -> None:
    job = start(write_app(tmp_path, STOPPED), ranks=2)
    assert job.finish() == 0, job.report()
    assert job.output(0) == "read\n"


HOLDER = """
    import os
    import numpy as np
    from ckpt import MPI

    comm = MPI.COMM_WORLD
    win = MPI.Win.Allocate(8, 8, comm=comm)
    into = np.zeros(1, "q")
    if comm.rank == 2:
        win.Lock(0)
        win.Put(np.full(1, 7, "q"), 0)
        win.Flush(0)
        comm.Ssend(into, 1)
        comm.Ssend(into, 0)
        os.kill(os.getpid(), 9)
    comm.Recv(into, 2)
    win.Lock(0)                         # as soon as the death is known
    win.Get(into, 0)
    win.Unlock(0)
    try:
        win.Lock(2)
    except MPI.Exception as error:
        assert error.error_class == MPI.ERR_PROC_FAILED, error
        print("got", into[0], "and", error.Get_error_string())
    comm.Shrink().Barrier()
"""


def test_the_lock_of_a_killed_rank_is_released(start: Start, tmp_path: Path) -> None:
    job = start(write_app(tmp_path, HOLDER), ranks=3, on_failure="continue")
    assert job.finish() == 0, job.report()
    for rank in range(2):
        assert job.output(rank) == "got 7 and MPI_ERR_PROC_FAILED: Process failed\n"


def test_programs_that_save_themselves_are_refused_windows_by_name(start: Start, tmp_path: Path) -> None:
    app = write_app(
        tmp_path,
        """
        from ckpt import MPI
        try:
            MPI.Win.Allocate(8)
        except NotImplementedError as error:
            print(error)
        """,
    )
    job = start(app, ranks=1, explicit=True)
    assert job.finish() == 0, job.report()
    assert "Win: a program that saves itself explicitly" in job.output(0)

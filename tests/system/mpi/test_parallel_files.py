"""Parallel files in real jobs: ranks are killed, jobs go on from images, and the files are those of an undisturbed run."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.seeds import seed_of_the_commit
from tests.system.support import Job, long_enough, write_app

pytestmark = [pytest.mark.system, pytest.mark.turns(4)]

Start = Callable[..., Job]

FIELD = """
    import sys
    import numpy as np
    from ckpt import MPI

    comm = MPI.COMM_WORLD.Create_cart([2, 2])
    row, column = comm.coords
    directory, turns, n = sys.argv[1], int(sys.argv[2]), 128
    halo = np.zeros((n + 2, n + 2))
    halo[1:-1, 1:-1] = comm.rank
    inside = MPI.DOUBLE.Create_subarray([n + 2, n + 2], [n, n], [1, 1]).Commit()
    mine = MPI.DOUBLE.Create_subarray([2 * n, 2 * n], [n, n], [row * n, column * n]).Commit()
    make = MPI.MODE_RDWR | MPI.MODE_CREATE
    series = MPI.File.Open(comm, f"{directory}/series", make)     # grows: a field for each turn
    state = MPI.File.Open(comm, f"{directory}/state", make)       # read and written in place
    log = MPI.File.Open(comm, f"{directory}/log", MPI.MODE_WRONLY | MPI.MODE_CREATE)
    series.Set_view(0, MPI.DOUBLE, mine)
    state.Set_view(0, MPI.DOUBLE, mine)
    state.Write_at_all(0, [halo, 1, inside])
    before = np.zeros((n, n))
    for turn in range(turns):
        state.Read_at(0, before)
        halo[1:-1, 1:-1] = before * 1.01 + turn + comm.allreduce(before[0, 0]) / 7
        state.Write_at_all_begin(0, [halo, 1, inside])
        sum(range(10_000))
        state.Write_at_all_end(halo)
        request = series.Iwrite([halo, 1, inside])
        log.Write_ordered(f"turn {turn}, rank {comm.rank}{'!' * comm.rank}\\n".encode())
        if comm.rank == turn % comm.size:
            log.Write_shared(f"it is the turn of {comm.rank}\\n".encode())
        request.Wait()
        series.Sync()
        comm.Barrier()
        with open(f"{directory}/series", "rb") as whole:     # what another rank has written
            whole.seek(turn * 4 * n * n * 8)
            total = np.frombuffer(whole.read(4 * n * n * 8)).sum()
        assert total == comm.bcast(total)
    print(total, series.Get_position(), log.Get_position_shared())
    for file in (series, state, log):
        file.Close()
"""
NAMES = ("series", "state", "log")


@pytest.mark.rotate(4)
@pytest.mark.parametrize("turn", range(4))
def test_killed_at_random_moments_the_files_have_the_same_bytes(
    start: Start, tmp_path: Path, turn: int
) -> None:
    choose = random.Random(seed_of_the_commit() * 10 + turn)
    program = write_app(tmp_path, FIELD)

    def attempt(turns: int) -> None:
        for name in ("plain", "killed"):
            (tmp_path / f"{name}-{turns}").mkdir()
        plain = start(program, tmp_path / f"plain-{turns}", turns, name=f"plain-job-{turns}")
        job = start(program, tmp_path / f"killed-{turns}", turns, every=0.1, name=f"job-{turns}")
        for kill in range(2):
            job.wait_event("committed", len(job.events("committed")) + 1)
            time.sleep(choose.random() * 0.1)  # a random moment, not a wait for something
            job.kill_rank(choose.randrange(4))
            job.wait_event("restarted", kill + 1)
        assert job.finish() == 0, job.report()
        assert plain.finish() == 0, plain.report()
        for rank in range(4):
            assert job.output(rank) == plain.output(rank)
        for name in NAMES:
            expected = (tmp_path / f"plain-{turns}" / name).read_bytes()
            assert (tmp_path / f"killed-{turns}" / name).read_bytes() == expected, name
        assert all(event["from_epoch"] for event in job.events("restarting")), job.report()
        assert not job.events("files-not-covered"), job.report()
        assert not job.events("files-not-put-back"), job.report()

    long_enough(100, attempt)


GROWING = """
    import numpy as np
    import ckpt
    from ckpt import MPI

    comm = MPI.COMM_WORLD
    file = MPI.File.Open(comm, "large", MPI.MODE_WRONLY | MPI.MODE_CREATE)
    block = np.ones(1 << 20, "B")
    for turn in range(4):
        file.Write_at_all((turn * comm.size + comm.rank) << 20, block)
        comm.Barrier()
        ckpt.checkpoint()
    file.Write_at_all((4 * comm.size + comm.rank) << 20, block)
    file.Close()
"""


def test_of_a_file_that_grows_no_copy_is_kept(start: Start, tmp_path: Path) -> None:
    job = start(write_app(tmp_path, GROWING), ranks=2)
    assert job.finish() == 0, job.report()
    assert (tmp_path / "large").stat().st_size == 10 << 20
    kept = sum(path.stat().st_size for path in (tmp_path / "job" / "undo").rglob("*") if path.is_file())
    assert kept < 1 << 20


COMPUTING = """
    import numpy as np
    from ckpt import MPI

    comm = MPI.COMM_WORLD
    file = MPI.File.Open(comm, "counted", MPI.MODE_RDWR | MPI.MODE_CREATE)
    told = MPI.Win.Allocate(8, 8, comm=comm)
    mine = np.frombuffer(told, "q")
    if comm.rank == 0:
        while not mine[0]:       # no call of the library in here
            sum(range(1000))
    else:
        for turn in range(20):
            file.Write_shared(b"x" * 1000)
        assert file.Get_size() == 20_000 == file.Get_position_shared()
        told.Lock(0)
        told.Put(np.ones(1, "q"), 0)
        told.Unlock(0)
    comm.Barrier()
    told.Free()
    file.Close()
    print("written")
"""


def test_a_rank_writes_for_others_while_it_computes(start: Start, tmp_path: Path) -> None:
    job = start(write_app(tmp_path, COMPUTING), ranks=2)
    assert job.finish() == 0, job.report()
    assert [job.output(rank) for rank in range(2)] == ["written\n"] * 2


DEAD = """
    import os
    from ckpt import MPI

    comm = MPI.COMM_WORLD
    file = MPI.File.Open(comm, "rest", MPI.MODE_RDWR | MPI.MODE_CREATE)
    file.Write_ordered(b"abc")
    file.Sync()
    if comm.rank == 0:
        comm.Ssend(b"", 1)
        comm.Ssend(b"", 2)
        os.kill(os.getpid(), 9)
    comm.Recv(bytearray(1), 0)
    told = []
    for call in (lambda: file.Write_shared(b"def"), file.Sync, file.Get_size, file.Close):
        while True:
            try:
                call()
            except MPI.Exception as error:
                told.append(error.error_class == MPI.ERR_PROC_FAILED)
                break
    rest = comm.Shrink()
    again = MPI.File.Open(rest, "rest")
    into = bytearray(9)
    again.Read_all(into)
    again.Close()
    print(told, bytes(into))
"""


def test_survivors_are_told_that_the_rank_that_writes_is_dead(start: Start, tmp_path: Path) -> None:
    job = start(write_app(tmp_path, DEAD), ranks=3, on_failure="continue")
    assert job.finish() == 0, job.report()
    for rank in (1, 2):
        text = job.output(rank)
        assert text.startswith("[True, True, True, True] b'abcabcabc"), text


THREADS = """
    import threading
    from ckpt import MPI

    comm = MPI.COMM_WORLD
    file = MPI.File.Open(comm, "lines", MPI.MODE_RDWR | MPI.MODE_CREATE)
    file.Set_view(10 * comm.rank, MPI.BYTE, MPI.BYTE.Create_contiguous(10).Create_resized(0, 10 * comm.size))

    def write(name):
        for turn in range(100):
            file.Write(b"%c %7d\\n" % (name, turn))

    threads = [threading.Thread(target=write, args=(name,)) for name in b"ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    file.Close()
"""


def test_threads_that_write_with_one_pointer_write_each_line_once(start: Start, tmp_path: Path) -> None:
    job = start(write_app(tmp_path, THREADS), ranks=2)
    assert job.finish() == 0, job.report()
    lines = (tmp_path / "lines").read_text().splitlines()
    assert sorted(lines) == sorted(
        f"{name} {turn:7}" for name in "ab" for turn in range(100) for rank in range(2)
    )


INTERRUPTED = """
    import signal
    from ckpt import MPI

    comm = MPI.COMM_WORLD
    file = MPI.File.Open(comm, "content", MPI.MODE_RDWR | MPI.MODE_CREATE)
    file.Set_atomicity(True)          # rank 0 reads for all
    file.Write_ordered(bytes([65 + comm.rank]) * 1000)

    class Enough(Exception):
        pass

    armed = []

    def enough(*_):
        if armed:                 # once in a turn: an alarm may come late
            armed.clear()
            raise Enough

    if comm.rank:
        signal.signal(signal.SIGALRM, enough)
        for turn in range(200):
            into = bytearray(2000)
            try:
                armed.append(turn)
                signal.setitimer(signal.ITIMER_REAL, 0.0001 + turn * 0.00001)
                file.Read_at(0, into)
                armed.clear()
                assert into == b"A" * 1000 + b"B" * 1000
            except Enough:
                into[:] = bytes(2000)
                file.Get_size()       # answered behind what the interrupted call had asked for
                assert into == bytes(2000), "the interrupted call has still read something"
    comm.Barrier()
    file.Close()
    print("read")
"""


def test_a_read_that_a_signal_has_interrupted_reads_nothing_later(start: Start, tmp_path: Path) -> None:
    job = start(write_app(tmp_path, INTERRUPTED), ranks=2)
    assert job.finish() == 0, job.report()
    assert job.output(1) == "read\n"


REFUSED = """
    from ckpt import MPI
    try:
        MPI.File.Open(MPI.COMM_WORLD, "refused", MPI.MODE_RDWR | MPI.MODE_CREATE)
    except NotImplementedError as error:
        print(error)
"""


def test_where_messages_of_files_cannot_be_files_are_refused_by_name(start: Start, tmp_path: Path) -> None:
    job = start(write_app(tmp_path, REFUSED), ranks=1, explicit=True)
    assert job.finish() == 0, job.report()
    assert "File.Open: parallel files go by the messages of windows" in job.output(0)
    assert not (tmp_path / "refused").exists()

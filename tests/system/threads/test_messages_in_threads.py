"""Several threads of a rank wait in the library at once (THREAD_MULTIPLE): each gets on, and images have all of them.

Killed again and again, the programs print the same, byte for byte. ``THREAD_KILLS`` sets the number of kills.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.system.support import Job, long_enough, run_ckpt, write_app

pytestmark = [pytest.mark.system, pytest.mark.turns(6)]

Start = Callable[..., Job]

PROGRAMS = sorted((Path(__file__).parents[1] / "programs" / "messages").glob("*.py"))
KILLS = int(os.environ.get("THREAD_KILLS", "1"))
RANKS = 2


def same_after_kills(start: Start, program: Path, kills: int) -> None:
    """As without kills and checkpoints. Each restart goes on from an image."""

    def attempt(scale: int) -> None:
        plain = start(program, scale, ranks=RANKS, name=f"plain-{scale}")
        assert plain.finish() == 0, plain.report()
        job = start(program, scale, ranks=RANKS, every=0.1, max_restarts=2 * kills, name=f"job-{scale}")
        for kill in range(kills):
            job.wait_event("committed", len(job.events("committed")) + 1)
            job.kill_rank(kill % RANKS)
            job.wait_event("restarted", kill + 1)
        assert job.finish() == 0, job.report()
        for rank in range(RANKS):
            assert job.output(rank) == plain.output(rank) != "", job.report()
        assert all(event["from_epoch"] for event in job.events("restarting")), job.report()
        assert not job.events("line-unusable") and not job.events("starting-over"), job.report()

    long_enough(kills + 1, attempt)


@pytest.mark.rotate(7)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.stem)
def test_threads_that_wait_for_messages_are_part_of_images(start: Start, program: Path) -> None:
    same_after_kills(start, program, KILLS)


def test_every_thread_that_waits_for_a_dead_rank_is_told(start: Start, tmp_path: Path) -> None:
    app = write_app(
        tmp_path,
        """
        import threading
        from ckpt import MPI
        comm, told = MPI.COMM_WORLD, []
        def wait(name, call):
            try:
                call()
            except MPI.Exception as error:
                told.append((name, error.Get_error_class() == MPI.ERR_PROC_FAILED))
        calls = {
            "recv": lambda: comm.recv(source=1, tag=1),
            "any": lambda: comm.recv(source=MPI.ANY_SOURCE, tag=2),
            "probe": lambda: comm.probe(source=1, tag=3),
            "ssend": lambda: comm.ssend(0, 1, tag=4),
        }
        if comm.rank == 1:
            comm.send(None, 0)
            comm.recv(source=1)
        threads = [threading.Thread(target=wait, args=each) for each in calls.items()]
        for thread in threads:
            thread.start()
        comm.recv(source=1)
        print("ready", flush=True)
        wait("main", lambda: comm.recv(source=1, tag=5))
        for thread in threads:
            thread.join()
        print(sorted(told))
        """,
    )
    job = start(app, ranks=2, on_failure="continue")
    job.wait_for(lambda: "ready" in job.output(0), "rank 0 waits")
    job.kill_rank(1, signal.SIGKILL)
    job.finish()
    names = ["any", "main", "probe", "recv", "ssend"]
    assert job.output(0) == f"ready\n{[(name, True) for name in names]}\n", job.report()


def test_a_rank_ends_while_daemon_threads_wait(start: Start, tmp_path: Path) -> None:
    app = write_app(
        tmp_path,
        """
        import threading
        from ckpt import MPI
        comm = MPI.COMM_WORLD
        for call in (comm.recv, comm.probe, comm.mprobe):
            threading.Thread(target=call, args=(MPI.ANY_SOURCE, 9), daemon=True).start()
        threading.Thread(target=lambda: comm.irecv(source=0, tag=8).wait(), daemon=True).start()
        comm.barrier()
        print("over")
        """,
    )
    job = start(app, ranks=2, every=0.3)
    assert job.finish() == 0, job.report()
    assert [job.output(rank) for rank in range(2)] == ["over\n"] * 2


@pytest.mark.parametrize(
    "call",
    [
        "comm.iprobe()",
        "comm.send(1, dest=1 - comm.rank); comm.recv(source=1 - comm.rank)",
        "comm.Send(a, dest=1 - comm.rank); comm.Recv(a, source=1 - comm.rank)",
        "comm.allreduce(1)",
    ],
)
def test_a_rank_ends_while_daemon_threads_call_the_library(start: Start, tmp_path: Path, call: str) -> None:
    """As under plain Python they end without a word, and no handler of theirs takes that for a failure."""
    app = write_app(
        tmp_path,
        f"""
        import os, threading, time
        from ckpt import MPI
        def serve(comm, a):
            try:
                while True:
                    {call}
            except Exception:
                os._exit(3)
        for _ in range(2):
            threading.Thread(target=serve, args=(MPI.COMM_WORLD.Dup(), bytearray(8)), daemon=True).start()
        time.sleep(0.2)
        """,
    )
    job = start(app, ranks=2)
    assert job.finish() == 0, job.report()
    assert "Traceback" not in job.report()


def test_a_thread_asks_for_a_checkpoint_while_others_wait(start: Start, tmp_path: Path) -> None:
    """It waited for the image, which could not be taken because it waited."""
    app = write_app(
        tmp_path,
        """
        import os, threading
        import ckpt
        from ckpt import MPI
        comm, got = MPI.COMM_WORLD, []
        other = 1 - comm.rank
        thread = threading.Thread(target=lambda: got.append(comm.recv(source=other, tag=1)))
        asking = threading.Thread(target=lambda: got.append(ckpt.checkpoint() is not None))
        thread.start()
        if comm.rank == 0:
            asking.start()
            asking.join()
        comm.sendrecv(0, other, source=other)
        comm.send("sent", other, tag=1)
        thread.join()
        print(got)
        """,
    )
    job = start(app, ranks=2)
    assert job.finish() == 0, job.report()
    assert [job.output(0), job.output(1)] == ["[True, 'sent']\n", "['sent']\n"], job.report()


def test_two_threads_that_wait_for_one_request_do_not_both_get_its_object(tmp_path: Path) -> None:
    """It is an error of the program (MPI standard 4.1, 11.6.1): the second one is told, and does not wait for ever."""
    app = write_app(
        tmp_path,
        """
        import threading, time
        from ckpt import MPI
        comm, ends = MPI.COMM_WORLD, []
        request = comm.irecv(source=0, tag=1)
        def wait():
            try:
                ends.append(request.wait())
            except MPI.Exception as error:
                ends.append(error.Get_error_class() == MPI.ERR_REQUEST)
        threads = [threading.Thread(target=wait) for _ in range(2)]
        for thread in threads:
            thread.start()
        time.sleep(0.2)
        comm.send("object", 0, tag=1)
        for thread in threads:
            thread.join()
        print(len(ends), "object" in ends)
        """,
    )
    done = run_ckpt("run", "-n", 1, "--", app, cwd=tmp_path)
    assert done.stdout == "2 True\n", done.stderr


def test_the_level_of_threads_is_said(tmp_path: Path) -> None:
    app = write_app(
        tmp_path,
        """
        from mpi4py import MPI
        print(MPI.Query_thread() == MPI.Init_thread(), MPI.Query_thread() == MPI.THREAD_MULTIPLE, MPI.Is_thread_main())
        """,
    )
    assert run_ckpt("run", "-n", 1, "--", app, cwd=tmp_path).stdout == "True True True\n"
    two = run_ckpt("run", "-n", 1, "--redundancy", 2, "--", app, cwd=tmp_path)
    assert two.stdout == "True False True\n", two.stderr

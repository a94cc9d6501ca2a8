"""Processes that a program starts while it runs (`ckpt run --spares K`, MPI's Spawn), in real jobs: what both sides see,
what is refused, and deaths at every moment. Whatever dies: nobody waits for ever, and no process is left."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.seeds import seed_of_the_commit
from tests.system.support import Job, run_ckpt, write_app

pytestmark = [pytest.mark.system, pytest.mark.turns(4)]

Start = Callable[..., Job]
SOON_S = 20.0


def spawning(start: Start, app: Path, *arguments: object, spares: int = 3, **options: object) -> Job:
    options = {"ranks": 2, "spares": spares, "on_failure": "continue", **options}
    return start(app, *arguments, **options)


class Held:
    """A program that processes read before they say that they are there: they wait in that until it is let go."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self.path = path
        self.descriptor = os.open(path, os.O_RDWR)

    def is_read_by(self, pid: int) -> bool:
        for each in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                if os.path.samefile(each, self.path):
                    return True
        return False

    def let_go(self) -> None:
        os.close(self.descriptor)


@pytest.fixture
def held(tmp_path: Path) -> Iterator[Held]:
    found = Held(tmp_path / "late.py")
    yield found
    with contextlib.suppress(OSError):
        found.let_go()


def starting(job: Job) -> None:
    """Two processes are being started."""
    job.wait_event("rank-started", rank=2)
    job.wait_event("rank-started", rank=3)


def nobody_is_left(job: Job) -> None:
    for event in job.events("rank-started"):
        deadline = time.monotonic() + SOON_S
        while os.path.exists(f"/proc/{event['pid']}") and time.monotonic() < deadline:
            time.sleep(0.01)
        assert not os.path.exists(f"/proc/{event['pid']}"), f"rank {event['rank']} is left\n{job.report()}"


# ---- what both sides see ---------------------------------------------------------------------------------


def test_both_sides_talk_to_each_other(start: Start, tmp_path: Path) -> None:
    app = write_app(
        tmp_path,
        """
        import sys
        from ckpt import MPI
        comm = MPI.COMM_WORLD
        assert comm.Get_attr(MPI.UNIVERSE_SIZE) == 5 and comm.size == 2
        assert not MPI.Comm.Get_parent() and comm.Get_attr(MPI.APPNUM) == 0
        codes = []
        child = comm.Spawn(sys.executable, ["-u", "child.py", "a b"], 3, root=1, errcodes=codes)
        assert (child.size, child.remote_size, codes) == (2, 3, [MPI.SUCCESS] * 3)
        print(child.allgather(comm.rank), child.gather(None, root=MPI.ROOT if comm.rank == 0 else MPI.PROC_NULL))
        both = child.Merge()
        assert both.allreduce(both.rank) == 10, "0 to 4"
        both.Barrier()
        both.bcast(bytes(1 << 20), root=4)
        child.Disconnect()
        """,
    )
    write_app(
        tmp_path,
        """
        import os, sys
        from ckpt import MPI
        parent, comm = MPI.Comm.Get_parent(), MPI.COMM_WORLD
        assert parent == MPI.Comm.Get_parent() and comm.size == 3 and sys.argv[1:] == ["a b"]
        assert (os.environ["RANK"], os.environ["WORLD_SIZE"]) == (str(comm.rank), "3") and sys.stdin.read() == ""
        assert comm.allgather(comm.rank) == [0, 1, 2]
        print(parent.allgather(comm.rank + 10))
        parent.gather(comm.rank, root=0)
        both = parent.Merge(high=True)
        assert (both.rank, both.allreduce(both.rank)) == (comm.rank + 2, 10)
        both.Barrier()
        assert len(both.bcast(bytes(1 << 20) if both.rank == 4 else None, root=4)) == 1 << 20
        parent.Disconnect()
        assert parent == MPI.COMM_NULL and MPI.Comm.Get_parent() == MPI.COMM_NULL
        """,
        "child.py",
    )
    job = spawning(start, app)
    assert job.finish() == 0, job.report()
    assert job.output(0) == "[10, 11, 12] [0, 1, 2]\n" and job.output(1) == "[10, 11, 12] None\n"
    assert [job.output(number) for number in (2, 3, 4)] == ["[0, 1]\n"] * 3
    assert job.stdout.count("[0, 1]\n") == 3, "printed as the output of ranks is"
    assert [event["processes"] for event in job.events("spawned")] == [[2, 3, 4]]
    nobody_is_left(job)


def test_several_commands_and_what_a_child_starts_itself(start: Start, tmp_path: Path) -> None:
    app = write_app(
        tmp_path,
        """
        import os, sys
        from ckpt import MPI
        if MPI.Comm.Get_parent():
            parent, comm = MPI.Comm.Get_parent(), MPI.COMM_WORLD
            parent.gather((comm.Get_attr(MPI.APPNUM), sys.argv[1:], os.getcwd()), root=0)
            if comm.size == 3:  # and these start one more
                own = comm.Spawn(sys.executable, [__file__, "last"])
                assert own.remote_size == 1
                own.gather(None, root=MPI.ROOT if comm.rank == 0 else MPI.PROC_NULL)
        else:
            os.mkdir("below")
            codes = []
            info = MPI.Info.Create({"wdir": "below"})
            child = MPI.COMM_SELF.Spawn_multiple(
                [sys.executable, os.path.abspath(__file__)], [[os.path.abspath(__file__), "x"], ["y"]], [1, 2],
                [info, MPI.INFO_NULL], errcodes=codes,
            )
            assert codes == [[MPI.SUCCESS], [MPI.SUCCESS] * 2]
            for appnum, words, where in child.gather(None, root=MPI.ROOT):
                print(appnum, words, os.path.basename(where))
        """,
    )
    job = spawning(start, app, ranks=1, spares=4)
    assert job.finish() == 0, job.report()
    name = tmp_path.name
    assert job.output(0) == f"0 ['x'] below\n1 ['y'] {name}\n1 ['y'] {name}\n"
    # The first of them may have asked, and have been answered, before its siblings were there.
    assert sorted(event["rank"] for event in job.events("spawned")) == [0, 1]


def test_a_thread_starts_processes_while_the_main_thread_waits(start: Start, tmp_path: Path) -> None:
    """As the pools of mpi4py.futures do it."""
    app = write_app(
        tmp_path,
        """
        import sys, threading
        from ckpt import MPI
        def manage():
            child = MPI.COMM_SELF.Spawn(sys.executable, ["-c", CHILD], 2)
            for number in range(10):
                child.send(number, dest=number % 2)
            print(sorted(child.recv(source=MPI.ANY_SOURCE) for _ in range(10)))
            for dest in range(2):
                child.send(None, dest=dest)
            child.Disconnect()
        CHILD = '''
        from ckpt import MPI
        parent = MPI.Comm.Get_parent()
        while (number := parent.recv(source=0)) is not None:
            parent.send(number ** 2, dest=0)
        parent.Disconnect()
        '''.replace("\\n        ", "\\n")
        thread = threading.Thread(target=manage)
        thread.start()
        thread.join()
        """,
    )
    job = spawning(start, app, ranks=1)
    assert job.finish() == 0, job.report()
    assert job.output(0) == "[0, 1, 4, 9, 16, 25, 36, 49, 64, 81]\n"


def test_a_thread_that_gets_no_processes_ends_the_job_instead_of_leaving_the_main_thread_waiting(
    start: Start, tmp_path: Path
) -> None:
    app = write_app(
        tmp_path,
        """
        import sys, threading
        from ckpt import MPI
        done = threading.Event()
        def manage():
            MPI.COMM_SELF.Spawn(sys.executable, ["-c", ""], 4)
            done.set()
        threading.Thread(target=manage, name="pool").start()
        done.wait()
        """,
    )
    job = spawning(start, app, ranks=1)
    assert job.finish(SOON_S) == 1, job.report()
    assert "thread 'pool' cannot go on: MPI_ERR_SPAWN" in job.stderr, job.stderr


def test_processes_take_the_places_of_dead_ranks_between_two_solves(start: Start, tmp_path: Path) -> None:
    """No ranks wait for that meanwhile; each solve loses a process, and is protected again."""
    app = write_app(
        tmp_path,
        """
        import os, sys
        import numpy as np
        from ckpt import MPI, abft
        parent, turn = MPI.Comm.Get_parent(), 0
        comm = parent.Merge(high=True) if parent else MPI.COMM_WORLD
        A = np.random.default_rng(1).standard_normal((96, 96))
        while (turn := comm.bcast(turn)) < 3:
            calls = [0]
            def hook(name, when):
                calls[0] += 1
                if calls[0] == 60 and comm.rank == (1, 5, 3)[turn]:
                    os.kill(os.getpid(), 9)
            grid = abft.Grid(P=2, Q=2, comm=comm, reserve=False, hook=hook)
            x = abft.solve(grid.matrix(96, nb=8, fill=A), A.sum(axis=1))
            print(turn, len(x.report.losses), bool(np.abs(x - 1).max() < 1e-8), flush=True)
            turn, comm = turn + 1, comm.Shrink()
            comm = comm.Spawn(sys.executable, [__file__], 6 - comm.size).Merge()
        """,
    )
    job = spawning(start, app, ranks=6)
    assert job.finish() == 0, job.report()
    said = [line for number in range(9) for line in job.output(number).splitlines()]
    assert sorted(said) == [f"{turn} 1 True" for turn in range(3) for _ in range(5)], job.report()
    assert len(job.events("spawned")) == 3
    nobody_is_left(job)


def test_a_worker_of_a_pool_that_dies_ends_the_job_instead_of_leaving_the_main_thread_waiting(
    start: Start, tmp_path: Path
) -> None:
    """The thread that has started the workers waits for any of them, as that of mpi4py.futures does."""
    app = write_app(
        tmp_path,
        """
        import sys, threading
        from ckpt import MPI
        done = threading.Event()
        def manage():
            child = MPI.COMM_SELF.Spawn(sys.executable, ["-c", "import os; os.kill(os.getpid(), 9)"], 2)
            child.recv(source=MPI.ANY_SOURCE)
            done.set()
        threading.Thread(target=manage, name="pool").start()
        done.wait()
        """,
    )
    job = spawning(start, app, ranks=1)
    assert job.finish(SOON_S) == 1, job.report()
    assert "thread 'pool' cannot go on: MPI_ERR" in job.stderr, job.stderr


# ---- what is refused -------------------------------------------------------------------------------------


def test_what_cannot_be_started_is_an_error_at_all_members_and_the_job_goes_on(
    start: Start, tmp_path: Path
) -> None:
    app = write_app(
        tmp_path,
        """
        import sys
        from ckpt import MPI
        comm = MPI.COMM_WORLD
        def refused(*words, **options):
            try:
                comm.Spawn(*words, **options)
            except MPI.Exception as error:
                assert error.error_class == MPI.ERR_SPAWN, error
                if comm.rank == 1:
                    print(error.detail)
            else:
                raise AssertionError(words)
        python = sys.executable
        refused(python, ["child.py"], 4)
        refused("/bin/ls")
        refused("missing.py")
        refused(python, ["missing.py"])
        refused(python)
        refused(python, ["-O", "child.py"])
        refused("/usr/bin/python2.7", ["child.py"])
        refused(python, ["child.py"], info=MPI.Info.Create({"host": "another"}))
        refused(python, ["child.py"], info=MPI.Info.Create({"wdir": "/missing"}))
        refused(python, ["child.py"], info=MPI.Info.Create({"soft": "x"}))
        refused(python, ["-c", "'" + "x" * 200000 + "'"])
        refused(python, ["wrong.py"])          # is only seen when it is compiled, in the new process
        try:
            comm.Spawn(python, "child.py" if comm.rank == 0 else None)
        except ValueError as error:
            assert comm.rank == 0, error
        except MPI.Exception as error:
            assert comm.rank == 1 and error.error_class == MPI.ERR_SPAWN, error
        soft = comm.Spawn(python, ["child.py"], 9, info=MPI.Info.Create({"soft": "1:9"}))
        print(soft.remote_size, comm.allreduce(1))
        """,
    )
    write_app(tmp_path, "", "child.py")
    write_app(tmp_path, "x = (", "wrong.py")
    job = spawning(start, app)
    assert job.finish() == 0, job.report()
    said = job.output(1).splitlines()
    assert said[0] == "4 processes are asked for, and 3 of --spares 3 are left"
    for line, words in zip(
        said[1:],
        (
            "no Python program", "cannot find missing.py", "no such file", "without a program", "-O", "python2.7",
            "host another", "/missing", "soft 'x'", "128 KiB", "process 2 could not be started: SyntaxError",
            "2 2",
        ),
        strict=True,
    ):  # fmt: skip
        assert words in line, said
    nobody_is_left(job)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ((), "needs --on-failure continue"),
        (("--on-failure", "continue", "--explicit"), "--spares 2 and --explicit"),
        (("--on-failure", "continue", "--hosts", "localhost:2"), "--spares 2 and --hosts"),
        (("--on-failure", "restart", "--redundancy", "2"), "needs --on-failure continue"),
    ],
)
def test_options_that_do_not_go_together_are_refused_by_name(
    tmp_path: Path, options: tuple[str, ...], words: str
) -> None:
    app = write_app(tmp_path, "")
    done = run_ckpt("run", "-n", 2, "--spares", 2, *options, "--job", tmp_path / "job", app)
    assert done.returncode == 2 and words in done.stderr, done.stderr


# ---- deaths ----------------------------------------------------------------------------------------------

PARENTS = """
    import os, sys, time
    from ckpt import MPI
    comm, flag = MPI.COMM_WORLD, sys.argv[1]
    with open(f"pid-{comm.rank}", "w") as file:
        file.write(str(os.getpid()))
    if flag in ("die", "die alone"):
        from ckpt.mpi.comm import comm_inter
        real = comm_inter.ask_for
        def ask_for(*words):
            real(*words)
            if flag == "die alone":
                open("answered", "w").close()
                while not os.path.exists("killed"):
                    time.sleep(0.01)
                time.sleep(0.3)
            os.kill(os.getpid(), 9)
        comm_inter.ask_for = ask_for
    comm.Barrier()
    try:
        child = comm.Spawn(sys.executable, ["late.py"], 2)
        print("there", flush=True)
        if flag != "leave":
            child.Merge()
    except MPI.Exception as error:
        print(MPI.Get_error_string(error.error_class), error.detail, flush=True)
    if flag == "again":
        again = comm.Spawn(
            sys.executable, ["-c", "from ckpt import MPI; print(MPI.Comm.Get_parent().bcast(None, 0))"], 1
        )
        again.bcast("hello", root=MPI.ROOT if comm.rank == 0 else MPI.PROC_NULL)
    print("end", flush=True)
    if flag == "alone":
        while os.path.exists("late.py"):
            time.sleep(0.01)
        try:
            comm.Spawn(sys.executable, ["-c", ""])
        except MPI.Exception as error:
            print(error.detail, flush=True)
"""


def family(start: Start, tmp_path: Path, flag: str = "merge", child: str | None = None) -> Job:
    """Two parents start two children. `child`: their program, unless it is held."""
    if child is not None:
        write_app(tmp_path, child, "late.py")
    return spawning(start, write_app(tmp_path, PARENTS), flag)


def test_a_child_that_dies_before_it_is_there(start: Start, tmp_path: Path, held: Held) -> None:
    """The other one is ended, the asker gets an error, and what is left of the numbers can be used."""
    job = family(start, tmp_path, "again")
    starting(job)
    job.kill_rank(2)
    assert job.finish(SOON_S) == 0, job.report()
    for rank in (0, 1):
        failed, end = job.output(rank).splitlines()
        assert "rank 2 was killed by SIGKILL before all processes were there" in failed and end == "end"
    assert job.output(4) == "hello\n"
    nobody_is_left(job)


def test_a_child_that_dies_when_the_others_want_to_merge(start: Start, tmp_path: Path) -> None:
    child = """
        import os
        from ckpt import MPI
        if MPI.COMM_WORLD.rank == 0:
            os.kill(os.getpid(), 9)
        try:
            MPI.Comm.Get_parent().Merge()
        except MPI.Exception as error:
            print(error.error_class == MPI.ERR_PROC_FAILED)
        """
    job = family(start, tmp_path, "again", child)
    assert job.finish(SOON_S) == 0, job.report()
    for rank in (0, 1):
        *_, failed, end = job.output(rank).splitlines()
        assert "rank 2 " in failed and end == "end", "killed before all were there, or later"
    assert job.output(4) == "hello\n"
    nobody_is_left(job)


def test_the_asker_dies_before_the_answer(start: Start, tmp_path: Path, held: Held) -> None:
    """What was started for it ends, and the other members of its communicator are told."""
    job = family(start, tmp_path)
    starting(job)
    job.kill_rank(0)
    assert job.finish(SOON_S) == 0, job.report()
    assert "rank 0 of the job has failed" in job.output(1) and job.output(1).endswith("\nend\n")
    assert not job.events("spawned")
    nobody_is_left(job)


def test_the_asker_dies_with_the_answer_and_its_children_do_not_wait_for_ever(
    start: Start, tmp_path: Path
) -> None:
    job = family(start, tmp_path, "die", "from ckpt import MPI\nMPI.Comm.Get_parent().recv(source=1)\n")
    assert job.finish(SOON_S) == 0, job.report()
    assert "rank 0 of the job has failed" in job.output(1) and job.output(1).endswith("\nend\n")
    assert len(job.events("spawned")) == 1, "they were there"
    nobody_is_left(job)


def test_all_ranks_die_and_their_children_go_on_to_the_end(start: Start, tmp_path: Path) -> None:
    """The job has not done what it was started for."""
    child = """
        import os
        from ckpt import MPI
        parent = MPI.Comm.Get_parent()
        MPI.COMM_WORLD.Barrier()
        if MPI.COMM_WORLD.rank == 0:
            for rank in (0, 1):
                os.kill(int(open(f"pid-{rank}").read()), 9)
        try:
            parent.Merge()
        except MPI.Exception as error:
            print(error.error_class == MPI.ERR_PROC_FAILED)
        print(MPI.COMM_WORLD.allreduce(1))
        """
    job = family(start, tmp_path, child=child)
    assert job.finish(SOON_S) == 1, job.report()
    assert "all ranks have failed; what they had started has finished" in job.stderr
    assert [job.output(number) for number in (2, 3)] == ["True\n2\n"] * 2
    nobody_is_left(job)


def test_a_job_waits_for_what_a_child_still_computes(start: Start, tmp_path: Path) -> None:
    job = family(start, tmp_path, "leave", "import time\ntime.sleep(0.5)\nprint('done')\n")
    assert job.finish(SOON_S) == 0, job.report()
    assert [job.output(number) for number in (2, 3)] == ["done\n"] * 2


def test_an_exception_in_a_child_ends_the_job_as_one_in_a_rank_does(start: Start, tmp_path: Path) -> None:
    job = family(start, tmp_path, child="raise ValueError('no')\n")
    assert job.finish(SOON_S) == 1, job.report()
    assert "failed with exit code 1: ValueError: no" in job.stderr
    nobody_is_left(job)


SLEEP = "import time\nprint('asleep', flush=True)\ntime.sleep(60)\n"


def test_a_stop_ends_what_is_being_started(start: Start, tmp_path: Path, held: Held) -> None:
    job = family(start, tmp_path)
    starting(job)
    job.process.send_signal(signal.SIGTERM)
    assert job.finish(SOON_S) == 143, job.report()
    nobody_is_left(job)


def test_a_stop_ends_children(start: Start, tmp_path: Path) -> None:
    job = family(start, tmp_path, child=SLEEP)
    job.wait_for(lambda: job.stdout.count("asleep") == 2, "children")
    job.process.send_signal(signal.SIGTERM)
    assert job.finish(SOON_S) == 143, job.report()
    nobody_is_left(job)


def test_the_loss_of_the_agent_ends_what_is_being_started(start: Start, tmp_path: Path, held: Held) -> None:
    job = family(start, tmp_path)
    starting(job)
    os.kill(job.events("agent-started")[-1]["pid"], signal.SIGKILL)
    assert job.finish(SOON_S) == 1, job.report()
    nobody_is_left(job)


def test_the_loss_of_the_agent_ends_children(start: Start, tmp_path: Path) -> None:
    job = family(start, tmp_path, child=SLEEP)
    job.wait_for(lambda: job.stdout.count("asleep") == 2, "children")
    os.kill(job.events("agent-started")[-1]["pid"], signal.SIGKILL)
    assert job.finish(SOON_S) == 1, job.report()
    nobody_is_left(job)


def ended_alone(job: Job) -> None:
    """The agent has ended the job, whose controller was killed."""
    deadline = time.monotonic() + SOON_S
    while not job.events("job-finished") and time.monotonic() < deadline:
        time.sleep(0.02)
    assert [event["exit_code"] for event in job.events("job-finished")] == [0], job.report()
    nobody_is_left(job)


def test_without_a_controller_nothing_is_started_and_what_is_starting_leaves(
    start: Start, tmp_path: Path, held: Held
) -> None:
    """The controller is killed while processes start: the asker is told, they leave, and the ranks go on to their end."""
    job = family(start, tmp_path, "alone")
    starting(job)
    job.process.kill()
    job.process.wait()
    deadline = time.monotonic() + SOON_S
    while not ("end" in job.output(0) and "end" in job.output(1)) and time.monotonic() < deadline:
        time.sleep(0.01)
    (tmp_path / "late.py").unlink()
    held.let_go()
    ended_alone(job)
    for rank in (0, 1):
        failed, end, second = job.output(rank).splitlines()
        assert "the controller is gone" in failed and end == "end" and "the controller is gone" in second


def test_without_a_controller_a_process_that_cannot_be_started_does_not_end_the_job(
    start: Start, tmp_path: Path, held: Held
) -> None:
    """It was no member yet. With a controller, the asker is told of its error."""
    job = family(start, tmp_path, "alone")
    starting(job)
    for number in (2, 3):  # twice: first they look whether it is an archive
        for _ in range(2):
            time.sleep(0.1)
            job.wait_for(lambda: held.is_read_by(job.pid(number)), "reading")  # noqa: B023
    job.process.kill()
    job.process.wait()
    os.write(held.descriptor, b"x = (" * 2)
    (tmp_path / "late.py").unlink()
    held.let_go()
    ended_alone(job)
    assert (
        "SyntaxError"
        in (job.directory / "output" / "rank-2.err").read_text()
        + (job.directory / "output" / "rank-3.err").read_text()
    )


def test_children_and_ranks_go_on_without_a_controller(start: Start, tmp_path: Path) -> None:
    child = """
        import os, time
        from ckpt import MPI
        print("there", flush=True)
        while not os.path.exists("killed"):
            time.sleep(0.01)
        print(MPI.Comm.Get_parent().Merge().size, flush=True)
        """
    job = family(start, tmp_path, child=child)
    job.wait_event("spawned")
    job.wait_for(lambda: "there" in job.output(2) and "there" in job.output(3), "children")
    job.process.kill()
    job.process.wait()
    (tmp_path / "killed").touch()
    ended_alone(job)
    assert [job.output(number) for number in (2, 3)] == ["there\n4\n"] * 2


def test_the_asker_dies_with_the_answer_and_there_is_no_controller(start: Start, tmp_path: Path) -> None:
    """The agent ends what nobody knows of."""
    job = family(start, tmp_path, "die alone", "from ckpt import MPI\nMPI.Comm.Get_parent().recv(source=1)\n")
    job.wait_for((tmp_path / "answered").exists, "the answer")
    job.process.kill()
    job.process.wait()
    (tmp_path / "killed").touch()
    ended_alone(job)
    assert "rank 0 of the job has failed" in job.output(1) and job.output(1).endswith("\nend\n")


STORM = """
    import os, random, sys
    from ckpt import MPI
    seed, parent = int(sys.argv[1]), MPI.Comm.Get_parent()
    GONE = (MPI.ERR_PROC_FAILED, MPI.ERR_REVOKED)
    def together(inter, high):
        # Merge, five reductions and a large message. Any member may die at each of these moments.
        made = [inter]
        try:
            perhaps()
            both = inter.Merge(high)
            made.append(both)
            for _ in range(5):
                perhaps()
                both.allreduce(1)
            both.bcast(bytes(300_000) if both.rank == 0 else None)
        except MPI.Exception as error:
            assert error.error_class in GONE, error
            for each in made:
                each.Revoke()
            return False
        return True
    def perhaps():
        if chance.random() < often:
            os.kill(os.getpid(), 9)
    if parent:
        chance, often = random.Random(seed * 100 + MPI.COMM_WORLD.rank), 0.08
        perhaps()
        together(parent, True)
        sys.exit()
    comm = MPI.COMM_WORLD
    chance, often, same = random.Random(seed * 7 + comm.rank), 0.02, random.Random(seed)
    good = 0
    for turn in range(5):
        perhaps()
        comm = comm.Shrink()
        try:
            child = comm.Spawn(sys.executable, [__file__, str(seed * 50 + turn)], same.randint(1, 3))
        except MPI.Exception as error:
            assert error.error_class in (MPI.ERR_SPAWN, *GONE), error
            continue
        good += together(child, False)
    print("end", good)
"""


@pytest.mark.rotate(2)
@pytest.mark.parametrize("faults", ["", "seed=1,loss=0.02,dup=0.02"])
def test_random_deaths_on_both_sides(start: Start, tmp_path: Path, faults: str) -> None:
    seed = seed_of_the_commit() % 100_000
    env = {"CKPT_FAULTS": faults} if faults else None
    job = spawning(start, write_app(tmp_path, STORM), seed, ranks=3, spares=24, env=env)
    code = job.finish()
    ended = sum("end" in job.output(rank) for rank in range(3))
    assert code == (0 if ended else 1), f"seed {seed}\n{job.report()}"
    died = {event["rank"] for event in job.events("rank-died")}
    assert ended == len({0, 1, 2} - died), f"seed {seed}\n{job.report()}"
    nobody_is_left(job)


def test_a_communicator_with_a_dead_member_starts_nothing(start: Start, tmp_path: Path) -> None:
    app = write_app(
        tmp_path,
        """
        import os, sys, time
        from ckpt import MPI
        comm = MPI.COMM_WORLD
        if comm.rank == 2:
            os.kill(os.getpid(), 9)
        while comm.Get_failed().size == 0:
            time.sleep(0.01)
        for root in (0, 1):
            try:
                comm.Spawn(sys.executable, ["-c", ""], 9 if root else 1, root=root)
            except MPI.Exception as error:
                print(error.error_class == MPI.ERR_PROC_FAILED, flush=True)
        """,
    )
    job = spawning(start, app, ranks=3)
    assert job.finish(SOON_S) == 0, job.report()
    assert [job.output(rank) for rank in (0, 1)] == ["True\nTrue\n"] * 2
    assert not job.events("spawn-requested")


# ---- checkpoints -----------------------------------------------------------------------------------------


def test_a_checkpoint_before_and_none_after_and_a_restart_starts_them_again(
    start: Start, tmp_path: Path
) -> None:
    app = write_app(
        tmp_path,
        """
        import os, sys, time
        import ckpt
        from ckpt import MPI
        comm = MPI.COMM_WORLD
        count = 1
        print("first", ckpt.checkpoint(), flush=True)
        count += 1
        child = comm.Spawn(sys.executable, ["child.py"], 2)
        print("second", ckpt.checkpoint(), count, child.allgather(None), flush=True)
        if ckpt.restarts() == 0:
            time.sleep(60)
        """,
    )
    write_app(
        tmp_path,
        """
        import ckpt
        from ckpt import MPI
        with open("changed", "a") as file:
            file.write("x")
        assert ckpt.checkpoint() is None
        print(MPI.Comm.Get_parent().allgather(MPI.COMM_WORLD.rank))
        """,
        "child.py",
    )
    job = spawning(start, app)
    job.wait_for(lambda: "second None" in job.output(0) and "second None" in job.output(1), "children")
    refused = run_ckpt("checkpoint", job.directory)
    assert refused.returncode != 0 and "a checkpoint has the ranks alone" in refused.stdout, refused.stdout
    status = run_ckpt("status", job.directory)
    assert status.returncode == 0, status.stderr
    os.kill(job.events("agent-started")[-1]["pid"], signal.SIGKILL)
    assert job.finish(SOON_S) != 0
    assert (tmp_path / "changed").read_text() == "xx"
    for words in (("--on-failure", "restart"), ("--redundancy", "2")):
        wrong = run_ckpt("restart", *words, job.directory)
        assert wrong.returncode == 2 and "--on-failure continue" in wrong.stderr, wrong.stderr
    again = run_ckpt("restart", job.directory, cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    for rank in (0, 1):
        assert job.output(rank) == "first 1\nsecond None 2 [0, 1]\n"
    assert [job.output(number) for number in (2, 3)] == ["[None, None]\n"] * 2
    assert (tmp_path / "changed").read_text() == "xx", "what they had written was taken back"
    nobody_is_left(job)


def test_a_child_has_the_job_go_back_and_the_ranks_start_it_again(start: Start, tmp_path: Path) -> None:
    """The processes end with the incarnation, and their numbers are free in the next one."""
    app = write_app(
        tmp_path,
        """
        import sys
        import ckpt
        from ckpt import MPI
        comm = MPI.COMM_WORLD
        count = 1
        ckpt.checkpoint()
        count += 1
        child = comm.Spawn(sys.executable, ["child.py"], 3)
        print(count, child.allgather(comm.rank), flush=True)
        """,
    )
    write_app(
        tmp_path,
        """
        import time
        import ckpt
        from ckpt import MPI
        print("begins", flush=True)
        MPI.COMM_WORLD.Barrier()  # all are there
        if ckpt.restarts() == 0 and MPI.COMM_WORLD.rank == 2:
            ckpt.go_back("wanted")
            time.sleep(60)
        print(MPI.Comm.Get_parent().allgather(MPI.COMM_WORLD.rank), flush=True)
        """,
        "child.py",
    )
    job = spawning(start, app)
    assert job.finish() == 0, job.report()
    assert [event["from_epoch"] for event in job.events("restarting")] == [1], job.report()
    assert [event["processes"] for event in job.events("spawned")] == [[2, 3, 4]] * 2
    assert [job.output(rank) for rank in (0, 1)] == ["2 [0, 1, 2]\n"] * 2
    assert [job.output(number) for number in (2, 3, 4)] == ["begins\n[0, 1]\n"] * 3
    nobody_is_left(job)


@pytest.mark.parametrize("where", ["in the main thread", "in another thread"])
def test_an_image_of_a_rank_that_waits_for_processes(start: Start, tmp_path: Path, where: str) -> None:
    """The request is in the image: what was started for it after the checkpoint is gone, and a restart asks again."""
    app = write_app(
        tmp_path,
        """
        import sys, threading, time
        import ckpt
        from ckpt import MPI
        def manage():
            global child
            ckpt.checkpoint(wait=False)  # one rank is not asked before: the next call is in the image
            child = MPI.COMM_SELF.Spawn(sys.executable, ["-c", CHILD], 2)
            print(child.gather(None, root=MPI.ROOT), flush=True)
        CHILD = "from ckpt import MPI; MPI.Comm.Get_parent().gather(MPI.COMM_WORLD.rank, 0)"
        if sys.argv[1] == "in the main thread":
            manage()
        else:
            thread = threading.Thread(target=manage)
            thread.start()
            thread.join()
        if ckpt.restarts() == 0:
            time.sleep(60)
        """,
    )
    job = spawning(start, app, where, ranks=1)
    job.wait_for(lambda: "[0, 1]" in job.output(0), "children")
    names = [event["event"] for event in job.events() if event["event"] in ("committed", "spawn-requested")]
    assert names == ["committed", "spawn-requested"], job.report()
    os.kill(job.events("agent-started")[-1]["pid"], signal.SIGKILL)
    assert job.finish(SOON_S) == 1
    again = run_ckpt("restart", job.directory, cwd=tmp_path)
    assert again.returncode == 0, f"{again.stderr}\n{job.report()}"
    assert job.output(0) == "[0, 1]\n"
    assert [event["incarnation"] for event in job.events("spawned")] == [0, 1]
    nobody_is_left(job)


def test_processes_take_the_place_of_a_rank_that_a_line_lacks(start: Start, tmp_path: Path) -> None:
    """A checkpoint has those that are left, and they start a process in the place of the dead: after a restart, too."""
    app = write_app(
        tmp_path,
        """
        import os, sys, time
        import ckpt
        from ckpt import MPI
        comm = MPI.COMM_WORLD
        if comm.rank == 1:
            os.kill(os.getpid(), 9)
        while comm.Get_failed().size == 0:
            time.sleep(0.01)
        comm = comm.Shrink()
        comm.Barrier()
        epoch = ckpt.checkpoint()
        child = "from ckpt import MPI; print(MPI.Comm.Get_parent().Merge().allgather(9))"
        both = comm.Spawn(sys.executable, ["-c", child]).Merge()
        print(epoch, both.allgather(comm.rank), flush=True)
        if ckpt.restarts() == 0:
            time.sleep(60)
        """,
    )
    job = spawning(start, app, ranks=3)
    job.wait_for(lambda: "[0, 1, 9]" in job.output(0) and "[0, 1, 9]" in job.output(2), "children")
    assert job.events("committed"), job.report()
    os.kill(job.events("agent-started")[-1]["pid"], signal.SIGKILL)
    assert job.finish(SOON_S) == 1
    again = run_ckpt("restart", job.directory, cwd=tmp_path)
    assert again.returncode == 0, f"{again.stderr}\n{job.report()}"
    assert [job.output(rank) for rank in (0, 2)] == ["1 [0, 1, 9]\n"] * 2, job.report()
    assert job.output(3) == "[0, 1, 9]\n"
    nobody_is_left(job)

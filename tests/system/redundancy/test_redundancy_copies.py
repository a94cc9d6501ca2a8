"""A replica that is killed or wrong is replaced by a copy of another one while the program goes on: real jobs, `kill -9`,
flipped bits; the output is that of a job without replicas."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.system.support import Job, run_ckpt, write_app

pytestmark = [pytest.mark.system, pytest.mark.turns(4)]

Start = Callable[..., Job]


@pytest.fixture
def start(start_with_copies: Start) -> Start:
    return start_with_copies


APP = """
    import os, random, time, uuid
    import numpy as np
    import ckpt
    from ckpt import MPI

    comm = ckpt.enable()
    rank, size = comm.rank, comm.size
    go = os.environ.get("CKPT_TEST_GO", "/")
    half = comm.Split(rank % 2)
    field, total, early = np.arange(5000.0) + rank, 0, None
    generator = np.random.default_rng(rank)

    def steps(first, last):
        global total, field
        for step in range(first, last):
            status = MPI.Status()
            sends = [comm.isend((rank, step * 7), other, tag=5) for other in range(size) if other != rank]
            for _ in range(size - 1):
                comm.probe(MPI.ANY_SOURCE, 5, status)
                source, value = comm.recv(source=status.source, tag=5)
                total = (total * 31 + (source + 1) * value * (time.time() > 0)) % 1000003
            MPI.Request.waitall(sends)
            total = 0 * total + comm.allreduce(total % 97) + step
            sums = np.empty_like(field)
            comm.Allreduce(field, sums)
            field = sums / size + generator.random() * (uuid.uuid4().int >= 0)
            if step % 10 == 0:
                print(step, total, half.allreduce(step), float(field[7]))

    steps(0, 30)
    early = comm.irecv(source=MPI.ANY_SOURCE, tag=2)  # an image has an open receive,
    comm.send("kept", (rank + 1) % size, tag=3)  # a message that nobody has received,
    print("half", end="", flush=True)  # and half a line
    while not os.path.exists(go):
        time.sleep(0.005)
    steps(30, 60)
    comm.send(rank, (rank + 1) % size, tag=2)
    print(early.wait(), comm.recv(source=MPI.ANY_SOURCE, tag=3), random.random() < 1)
"""


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What each rank prints without replicas."""
    directory = tmp_path_factory.mktemp("plain")
    job = Job(directory / "job", "-n", 2, write_app(directory, APP))
    assert job.finish() == 0, job.report()
    return outputs(job)


def outputs(job: Job) -> list[str]:
    return [job.output(rank) for rank in range(2)]


def half_way(start: Start, tmp_path: Path, **options: object) -> Job:
    job = start(write_app(tmp_path, APP), ranks=2, **options)
    job.wait_for(lambda: all("20 " in text for text in outputs(job)), "the first half of the output")
    return job


def test_a_copy_logs_the_time_since_the_same_moment(start: Start, tmp_path: Path) -> None:
    """`logging` counts from its import on, and the copy had imported it later: it was called wrong."""
    app = write_app(
        tmp_path,
        """
        import logging, os, time
        import ckpt
        comm = ckpt.enable()
        logging.basicConfig(filename=f"log-{comm.rank}", format="%(relativeCreated)d %(message)s")
        for step in range(10_000):
            logging.error("step %d", step)
            if step == 5:
                print("half", flush=True)
            if comm.bcast(os.path.exists(os.environ["CKPT_TEST_GO"])):
                break
            time.sleep(0.02)
        print("end")
        """,
    )
    job = start(app, ranks=2, redundancy=3)
    job.wait_for(lambda: all("half" in text for text in outputs(job)), "the first half of the output")
    job.kill_rank(3)
    job.wait_event("replica-cloned")
    logged = (tmp_path / "log-0").read_text()
    job.wait_for(lambda: len((tmp_path / "log-0").read_text()) > len(logged) + 100, "more lines")
    assert job.finish() == 0
    assert not job.events("replica-differs")


def test_a_killed_leader_is_replaced_by_a_copy_of_the_next(
    start: Start, tmp_path: Path, expected: list[str]
) -> None:
    job = half_way(start, tmp_path, redundancy=3)
    job.kill_rank(3)  # replica 0 of rank 1
    cloned = job.wait_event("replica-cloned")
    assert (cloned["replica"], cloned["place"], cloned["donor"]) == (3, 0, 1)
    assert job.finish() == 0, job.report()
    assert outputs(job) == expected
    (result,) = job.events("result-compared")
    assert result["verified"] and result["replicas"] == [1, 2, 3]
    assert not job.events("restarting") and "has taken the place of replica 0" in job.stderr
    status = run_ckpt("status", job.directory)
    assert "replica-cloned: replica 3 of all ranks has taken the place of replica 0" in status.stdout


def test_no_process_is_left_of_those_with_which_the_job_began(
    start: Start, tmp_path: Path, expected: list[str]
) -> None:
    job = half_way(start, tmp_path, redundancy=3)
    for count, process in enumerate((1, 0, 2), 1):
        job.kill_rank(process)
        job.wait_event("replica-cloned", count)
    assert job.finish() == 0, job.report()
    assert outputs(job) == expected
    (result,) = job.events("result-compared")
    assert result["verified"] and result["replicas"] == [3, 4, 5]
    assert not job.events("restarting")


def test_a_replica_that_is_wrong_is_replaced(start: Start, tmp_path: Path, expected: list[str]) -> None:
    job = half_way(start, tmp_path, redundancy=3, env={"CKPT_FLIPS": "rank=1,replica=2,message=41"})
    job.wait_event("replica-cloned", place=2)
    assert job.finish() == 0, job.report()
    assert outputs(job) == expected
    (differs,) = job.events("replica-differs")
    assert (differs["rank"], differs["replica"]) == (1, 2)
    assert job.events("result-compared", verified=True, replicas=[0, 1, 3])


def test_a_copy_of_one_that_was_left_alone_is_compared_but_not_called_verified(
    start: Start, tmp_path: Path, expected: list[str]
) -> None:
    job = half_way(start, tmp_path, redundancy=2)
    job.kill_rank(0)
    job.wait_event("replica-cloned")
    done = run_ckpt("checkpoint", job.directory)
    assert done.returncode == 0, done.stderr
    assert job.finish() == 0, job.report()
    assert outputs(job) == expected
    assert job.events("result-compared", replicas=[1, 2], verified=False)
    assert {event["verified"] for event in job.events("committed")} == {False}


def test_a_copy_is_made_after_a_restart_whose_ranks_have_waited_for_one_another(
    start: Start, tmp_path: Path, expected: list[str]
) -> None:
    """Ranks open no file before all have loaded. A copy that is started later has nobody to wait for."""
    job = half_way(start, tmp_path, redundancy=2)
    assert run_ckpt("checkpoint", job.directory).returncode == 0
    for process in (0, 3):  # one of each plane
        job.kill_rank(process)
    job.wait_event("restarted")
    job.kill_rank(2)
    job.wait_event("replica-cloned")
    assert job.finish() == 0, job.report()
    assert outputs(job) == expected


def test_a_copy_that_is_killed_before_it_is_there_is_made_again(
    start: Start, tmp_path: Path, expected: list[str]
) -> None:
    """The first copy dies while it loads, or soon after it has joined."""
    job = half_way(start, tmp_path, redundancy=3)
    job.kill_rank(5)  # replica 2 of rank 1
    job.wait_event("rank-started", rank=7)  # of replica 3: numbers 6 and 7
    job.kill_rank(7)
    cloned = job.wait_event("replica-cloned", replica=4)
    assert cloned["place"] == 2
    assert job.finish() == 0, job.report()
    assert outputs(job) == expected
    assert not job.events("restarting")


def test_so_many_copies_for_each_place_and_no_more(start: Start, tmp_path: Path, expected: list[str]) -> None:
    job = half_way(start, tmp_path, redundancy=3, clones=1)
    job.kill_rank(4)  # replica 1 of rank 1
    job.wait_event("replica-cloned", replica=3)
    job.kill_rank(6)  # replica 3 of rank 0, which has taken its place
    job.wait_event("not-replaced", place=1)
    assert job.finish() == 0, job.report()
    assert outputs(job) == expected
    assert "does not compute the same each time" in job.stderr
    assert len(job.events("clone-started")) == 1


def test_a_program_with_functions_for_restarts_is_not_copied(start: Start, tmp_path: Path) -> None:
    app = """
        import os, time
        import ckpt

        comm = ckpt.enable()
        ckpt.on_restart(lambda epoch: print("restarted"))
        print("first", comm.allreduce(1))
        while not os.path.exists(os.environ["CKPT_TEST_GO"]):
            time.sleep(0.005)
        print("second", comm.allreduce(2))
    """
    job = start(write_app(tmp_path, app), ranks=2, redundancy=3)
    job.wait_for(lambda: all("first" in text for text in outputs(job)), "the first half")
    job.kill_rank(1)
    said = job.wait_event("not-replaced")
    assert "on_restart" in said["reason"]
    assert job.finish() == 0, job.report()
    assert outputs(job) == ["first 2\nsecond 4\n"] * 2
    assert len(job.events("clone-started")) == 1


def test_bad_numbers_of_copies_are_refused(tmp_path: Path) -> None:
    app = write_app(tmp_path, "print()")
    for options in (
        ["--redundancy", 3, "--clones", "x"],
        ["--redundancy", 3, "--clones", "-1"],
        ["--clones", 2],
    ):
        done = run_ckpt("run", *options, app)
        assert done.returncode == 2 and "--clones" in done.stderr, done.stderr


def test_temporary_files_have_the_same_names_in_a_copy(start: Start, tmp_path: Path) -> None:
    """No image has the state of `tempfile`: so each copy of a program that used it was called wrong."""
    app = """
    import os, tempfile, time
    import ckpt
    comm = ckpt.enable()
    with tempfile.TemporaryDirectory() as first:
        print("half", flush=True)
    while not os.path.exists(os.environ["CKPT_TEST_GO"]):
        time.sleep(0.005)
    for _ in range(5):
        with tempfile.TemporaryDirectory() as second:
            comm.allgather(second)
    print("end", first != second)
    """
    go = tmp_path / "go"
    job = start(write_app(tmp_path, app), ranks=2, redundancy=3, env={"CKPT_TEST_GO": str(go)})
    job.wait_for(lambda: job.stdout.count("half") == 2, "the first half of the output")
    os.kill(job.events("rank-started")[2]["pid"], signal.SIGKILL)
    job.wait_event("replica-cloned")
    go.touch()
    assert job.finish() == 0, job.report()
    assert sorted(job.stdout.split()) == ["True", "True", "end", "end", "half", "half"]
    assert not job.events("replica-differs")

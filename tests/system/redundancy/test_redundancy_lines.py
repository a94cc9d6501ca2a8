"""Checkpoints under `--redundancy`: lines that replicas have verified, and what goes on from them; real jobs and kills."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.system.support import Job, run_ckpt, write_app

pytestmark = [pytest.mark.system, pytest.mark.turns(12)]

Start = Callable[..., Job]


_CONTINUE = "--redundancy 2 and --on-failure continue: the program is not told"

APP = """
    import os, random, time, uuid
    from time import perf_counter
    import ckpt
    from ckpt import MPI

    comm = ckpt.enable()
    rank, right = comm.rank, (comm.rank + 1) % comm.size

    def steps(first):
        total = 0
        for step in range(first, first + 20):
            comm.send(rank * step, right, tag=1)
            total += comm.recv(source=MPI.ANY_SOURCE, tag=1) + (perf_counter() < 0)
            if step % 5 == 0:
                print(step, comm.allreduce(total))
        return total

    print("first", steps(0))
    early = comm.irecv(source=MPI.ANY_SOURCE, tag=2)  # an image has an open receive,
    comm.send("kept", right, tag=3)  # and a message that nobody has received
    print("half", end="")  # and half a line
    while not os.path.exists(os.environ["CKPT_TEST_GO"]):
        time.sleep(0.01)
    from ckpt.redundancy import status
    me = status()
    is_wrong = me and os.environ.get("WRONG") == f"{rank}.{me['replica']}.{os.environ['CKPT_RESTARTS']}"
    comm.send(rank + 1000 * bool(is_wrong), right, tag=2)
    print(early.wait(), comm.recv(source=MPI.ANY_SOURCE, tag=3))
    print("second", steps(20), uuid.uuid4() != uuid.uuid4(), comm.bcast(random.random()) < 1)
"""


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What each rank prints."""
    directory = tmp_path_factory.mktemp("plain")
    app = write_app(directory, APP)
    job = Job(directory / "job", "-n", 3, app)
    assert job.finish() == 0, job.report()
    return [job.output(rank) for rank in range(3)]


def outputs(job: Job) -> list[str]:
    return [job.output(rank) for rank in range(3)]


def half_way(start: Start, tmp_path: Path, **options: object) -> Job:
    """A job whose ranks wait in the middle of the program."""
    job = start(write_app(tmp_path, APP), ranks=3, **options)
    job.wait_for(lambda: all("first" in text for text in outputs(job)), "the first half of the output")
    return job


def restarted(job: Job, *arguments: object, env: dict[str, str] | None = None) -> Job:
    return Job(job.directory, *arguments, verb="restart", env=env)


def take(job: Job, *options: str) -> None:
    done = run_ckpt("checkpoint", *options, job.directory)
    assert done.returncode == 0, done.stdout + done.stderr + job.report()


@pytest.mark.rotate(6)
@pytest.mark.parametrize(("taken", "then"), [(3, 1), (1, 3), (2, 3), (3, 2), (1, 2), (3, 3)])
def test_a_line_is_gone_on_from_with_any_number_of_replicas(
    start: Start, tmp_path: Path, expected: list[str], taken: int, then: int
) -> None:
    job = half_way(start, tmp_path, redundancy=taken)
    take(job, "--stop")
    assert job.finish() == 75, job.report()
    (line,) = job.events("committed")
    assert line.get("verified") is (True if taken > 1 else None)
    again = restarted(job, "--redundancy", then, job.directory)
    try:
        assert again.finish() == 0, again.report()
        assert outputs(again) == expected
        assert ("nothing has verified it" in again.stderr) == (taken == 1), again.stderr
        assert "differs from byte" not in again.stderr
        assert (len(again.events("result-compared")) == 1) == (then > 1)
    finally:
        again.close()


@pytest.mark.rotate(4)
@pytest.mark.parametrize("replicas", [2, 3])
def test_when_all_replicas_of_a_rank_are_killed_the_job_goes_on_from_the_last_verified_line(
    start: Start, tmp_path: Path, expected: list[str], replicas: int
) -> None:
    job = half_way(start, tmp_path, redundancy=replicas)
    take(job)
    for replica in range(replicas):
        job.kill_rank(replicas + replica)
    job.wait_event("restarted", from_epoch=1)
    assert job.finish() == 0, job.report()
    assert outputs(job) == expected
    (result,) = job.events("result-compared")
    assert result["verified"] and len(result["replicas"]) == replicas


def test_of_two_that_differ_no_line_is_used_that_may_hold_the_error(
    start: Start, tmp_path: Path, expected: list[str]
) -> None:
    """The first line is older than the incarnation in which the error happens; the second one may hold it."""
    job = half_way(start, tmp_path, redundancy=2, env={"WRONG": "1.1.1"})
    take(job)
    for process in (2, 3):
        job.kill_rank(process)
    job.wait_event("restarted", from_epoch=1)
    take(job)
    assert job.finish() == 0, job.report()
    assert outputs(job) == expected
    assert [event["epochs"] for event in job.events("lines-distrusted")] == [[2]]
    assert [event["from_epoch"] for event in job.events("restarting")] == [1, 1]


def test_the_lines_of_a_plane_that_was_wrong_are_not_used(
    start: Start, tmp_path: Path, expected: list[str]
) -> None:
    """The next plane takes a line at once."""
    job = half_way(start, tmp_path, redundancy=3, env={"WRONG": "1.0.0"})
    take(job)
    assert job.finish() == 0, job.report()
    assert outputs(job) == expected
    (distrusted,) = job.events("lines-distrusted")
    assert distrusted["epochs"] == [1]
    assert [event["replica"] for event in job.events("replica-differs")] == [0]
    assert job.events("round-started", epoch=2)


def test_a_line_that_is_not_verified_says_so_and_is_gone_on_from_only_where_it_is_asked_for(
    start: Start, tmp_path: Path, expected: list[str]
) -> None:
    job = half_way(start, tmp_path, redundancy=2)
    take(job)
    job.kill_rank(1)
    job.wait_event("cluster-unverified")
    take(job, "--stop")
    assert job.finish() == 75, job.report()
    assert [event["verified"] for event in job.events("committed")] == [True, False]
    assert "checkpoint 2 is not verified" in job.stderr
    listed = run_ckpt("ls", job.directory).stdout.splitlines()
    assert listed[0].endswith("  verified") and listed[1].endswith("  NOT VERIFIED"), listed
    asked = restarted(job, f"{job.directory}@2")
    try:
        assert asked.finish() == 0, asked.report()
        assert "checkpoint 2, which replicas have not verified, as asked" in asked.stderr
        assert outputs(asked) == expected
    finally:
        asked.close()


def test_a_restart_passes_over_what_is_not_verified(
    start: Start, tmp_path: Path, expected: list[str]
) -> None:
    job = half_way(start, tmp_path, redundancy=2)
    take(job)
    job.kill_rank(1)
    job.wait_event("cluster-unverified")
    take(job)
    job.kill_rank(0)
    job.wait_event("restarted", from_epoch=1)
    assert "no restart from what is not verified: passing over checkpoint 2" in job.stderr
    job.kill_rank(1)
    job.wait_event("cluster-unverified", 2)
    take(job, "--stop")
    assert job.finish() == 75, job.report()
    again = restarted(job, job.directory)
    try:
        assert again.finish() == 0, again.report()
        assert "passing over newer checkpoints that replicas have not verified" in again.stderr
        assert again.events("restarted")[-1]["from_epoch"] == 1
        assert outputs(again) == expected
    finally:
        again.close()


def test_a_job_whose_controller_was_killed_goes_on_from_its_last_verified_line(
    start: Start, tmp_path: Path, expected: list[str]
) -> None:
    job = half_way(start, tmp_path, redundancy=3)
    take(job)
    job.process.kill()
    job.process.wait()
    again = restarted(job, job.directory)
    try:
        assert again.finish() == 0, again.report()
        assert again.events("restarted")[-1]["from_epoch"] == 1
        assert outputs(again) == expected
    finally:
        again.close()


WAITS = {
    "probe": "comm.probe(MPI.ANY_SOURCE, 1, status); got = comm.recv(source=status.source, tag=1)",
    "mprobe": "got = comm.mprobe(MPI.ANY_SOURCE, 1).recv()",
    "waitany": "got = MPI.Request.waitany(requests)[1]",
    "recv": "got = comm.recv(source=MPI.ANY_SOURCE, tag=1)",
    "checkpoint": "ckpt.checkpoint(); got = comm.recv(source=MPI.ANY_SOURCE, tag=1)",
}


@pytest.mark.rotate(10)
@pytest.mark.parametrize("numbers", [(2, 1), (1, 2)])
@pytest.mark.parametrize("call", WAITS)
def test_a_call_that_waits_for_an_answer_of_the_leader_waits_on(
    start: Start, tmp_path: Path, call: str, numbers: tuple[int, int]
) -> None:
    taken, then = numbers
    app = write_app(
        tmp_path,
        f"""
        import os, time
        import ckpt
        from ckpt import MPI
        comm, status = ckpt.enable(), MPI.Status()
        requests = [comm.irecv(source=1, tag=tag) for tag in (1, 2)] if "waitany" == {call!r} else []
        print("waits", flush=True)
        if comm.rank == 0:
            for step in range(2):
                {WAITS[call]}
                print(got, MPI.Wtime() > 0)
                comm.send(got, 1)
                requests = requests[1:]
        else:
            for step in range(2):
                while not os.path.exists(os.environ["CKPT_TEST_GO"]):
                    time.sleep(0.01)
                comm.send(step, 0, tag=1 + step * bool(requests))
                comm.recv(source=0)
        """,
    )
    job = start(app, ranks=2, redundancy=taken)
    job.wait_for(lambda: "waits" in job.output(0) and "waits" in job.output(1), "their output")
    take(job, "--stop")
    assert job.finish() == 75, job.report()
    again = restarted(job, "--redundancy", then, job.directory)
    try:
        assert again.finish() == 0, again.report()
        assert again.output(0) == "waits\n0 True\n1 True\n"
    finally:
        again.close()


def test_a_program_that_holds_a_file_open_for_writing_does_not_go_on_under_redundancy(
    start: Start, tmp_path: Path
) -> None:
    app = write_app(
        tmp_path,
        """
        import os, time
        import ckpt
        ckpt.enable()
        file = open("log.txt", "a")
        print("open", flush=True)
        while not os.path.exists(os.environ["CKPT_TEST_GO"]):
            time.sleep(0.01)
        file.write("written\\n")
        """,
    )
    job = start(app, ranks=1)
    job.wait_for(lambda: job.output(0), "its output")
    take(job, "--stop")
    assert job.finish() == 75
    done = run_ckpt("restart", "--redundancy", 2, job.directory)
    assert done.returncode not in (0, 75) and "has a file open for writing" in done.stderr, done.stderr
    assert (tmp_path / "log.txt").read_text() == ""


def test_a_program_that_asks_for_a_checkpoint_gets_one_and_does_not_wait(
    start: Start, tmp_path: Path
) -> None:
    app = write_app(
        tmp_path,
        """
        import os, time
        import ckpt
        comm = ckpt.enable()
        print(ckpt.checkpoint(), ckpt.checkpoint(wait=False))
        while not os.path.exists(os.environ["CKPT_TEST_GO"]):
            time.sleep(0.01)
        """,
    )
    job = start(app, ranks=2, redundancy=2)
    assert job.wait_event("committed")["verified"]
    assert job.finish() == 0
    assert job.stdout == "None None\n" * 2


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--explicit"], "--redundancy 2: the steps of a program that saves itself"),
        (["--on-failure", "continue"], _CONTINUE),
    ],
)
def test_jobs_of_other_kinds_do_not_go_on_with_replicas(
    tmp_path: Path, options: list[str], said: str
) -> None:
    app = write_app(tmp_path, "print(1)")
    assert run_ckpt("run", "--job", tmp_path / "job", *options, app, cwd=tmp_path).returncode == 0
    done = run_ckpt("restart", "--redundancy", 2, tmp_path / "job")
    assert done.returncode == 2 and said in done.stderr, done.stderr


ARRAY = """
    import time
    import numpy as np
    import ckpt

    comm = ckpt.enable()
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size

    class Grid:
        def __init__(self):
            self.u = np.arange(64 * 1024.0).reshape(64, 1024)
            self.halo = np.empty(100)  # nobody has put anything into most of it

    class Solver:
        def __init__(self):
            self.grid = Grid()

    solver = Solver()
    for step in range(1_000_000):
        request = comm.Irecv(solver.grid.halo[90:], source=left)  # filled at any moment
        comm.Send(np.full(10, float(step)), right)
        time.sleep(0.01)
        request.Wait()
"""


@pytest.mark.rotate(2)
@pytest.mark.parametrize("replicas", [2, 3])
def test_an_error_in_an_array_that_is_never_sent_is_found_after_the_next_checkpoint(
    start: Start, tmp_path: Path, replicas: int
) -> None:
    """In the replica that takes the images: so it is in the checkpoint, too."""
    env = {"CKPT_FLIPS": "rank=1,replica=0,message=20,where=array,variable=solver.grid.u"}
    job = start(write_app(tmp_path, ARRAY), every=0.2, ranks=2, redundancy=replicas, env=env)
    differs = job.wait_event("replica-differs")
    assert differs["what"] == "memory" and "variable solver.grid.u, block " in differs["reason"], job.report()
    assert differs["replica"] == (0 if replicas == 3 else None), job.report()
    assert 1 in (differs["rank"], differs.get("seen_in")), job.report()
    distrusted = job.wait_event("lines-distrusted")
    assert differs["ns"] <= distrusted["ns"]
    later = job.wait_for(lambda: _same_after(job, distrusted["ns"]), "a comparison of all arrays")
    assert later["variables"] >= 4, job.report()
    assert len(job.events("replica-differs")) == 1, job.report()


VALUES = """
    import time
    import ckpt
    from ckpt.redundancy import status

    comm = ckpt.enable()
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    me = (status() or {"replica": 0})["replica"]  # no replica is wrong for that,
    scale = 0.5

    class Solver:
        def __init__(self):
            self.steps = {"dt": 0.1}
            self.owner = id(self)  # nor for this

    solver = Solver()
    for step in range(1_000_000):
        comm.send(step, right)
        comm.recv(source=left)
        time.sleep(0.01)
"""


@pytest.mark.rotate(4)
@pytest.mark.parametrize("replicas", [2, 3])
@pytest.mark.parametrize(("where", "variable"), [("scalar", "scale"), ("object", "solver.steps['dt']")])
def test_an_error_in_a_value_that_is_never_sent_is_found_after_the_next_checkpoint(
    start: Start, tmp_path: Path, where: str, variable: str, replicas: int
) -> None:
    env = {"CKPT_FLIPS": f"rank=1,replica=0,message=20,where={where},variable={variable}"}
    job = start(write_app(tmp_path, VALUES), every=0.2, ranks=2, redundancy=replicas, env=env)
    differs = job.wait_event("replica-differs")
    assert differs["what"] == "memory" and f"variable {variable} (" in differs["reason"], job.report()
    assert differs["replica"] == (0 if replicas == 3 else None), job.report()
    distrusted = job.wait_event("lines-distrusted")
    later = job.wait_for(lambda: _same_after(job, distrusted["ns"]), "a comparison of all values")
    assert later["variables"] >= 10, job.report()
    assert len(job.events("replica-differs")) == 1, job.report()


UNLIKE = """
    import os, time
    import ckpt
    from ckpt.redundancy import status

    comm = ckpt.enable()
    own = (status() or {"replica": 0})["replica"] + 0  # computed from what differs
    for step in range(1_000_000):
        comm.allreduce(step)
        time.sleep(0.01)
"""


def test_a_value_that_the_program_does_not_compute_alike_is_named_and_no_replica_called_wrong(
    start: Start, tmp_path: Path
) -> None:
    job = start(write_app(tmp_path, UNLIKE), every=0.2, ranks=1, redundancy=3)
    compared = job.wait_event("memory-compared")
    assert compared["verified"] and compared["unlike"] == ["own"], job.report()
    assert not job.events("replica-differs"), job.report()


@pytest.mark.rotate(2)
@pytest.mark.parametrize("what", ["all", "arrays"])
def test_of_two_replicas_such_a_value_is_a_difference_unless_arrays_alone_are_compared(
    start: Start, tmp_path: Path, what: str
) -> None:
    job = start(write_app(tmp_path, UNLIKE), every=0.2, ranks=1, redundancy=2, compare_memory=what)
    if what == "arrays":
        assert job.wait_event("memory-compared")["verified"], job.report()
        assert not job.events("replica-differs"), job.report()
    else:
        assert job.finish() == 15, job.report()
        assert "variable own (0 in replica 0, 1 in replica 1)" in job.stderr, job.report()


BUSY_THEN_IDLE = """
    import os, time
    import ckpt

    comm = ckpt.enable()
    ckpt.checkpoint()
    for step in range(int(os.environ["STEPS"])):
        comm.allreduce(step)
        time.sleep(0.002)
    print("idle", flush=True)
    while not os.path.exists(os.environ["CKPT_TEST_GO"]):
        time.sleep(0.01)
    print(comm.allreduce(step))
"""


def idle(start: Start, app: Path, steps: int) -> Job:
    """The first part of the program has ended."""
    job = start(app, ranks=2, redundancy=2, env={"STEPS": str(steps)})
    job.wait_for(lambda: all(job.output(rank) for rank in range(2)), "the end of the first part")
    return job


@pytest.mark.nightly
@pytest.mark.parametrize("is_controller", [False, True])
def test_no_restart_from_a_line_whose_memory_is_not_compared_while_there_is_another(
    start: Start, tmp_path: Path, is_controller: bool
) -> None:
    """The program does nothing after its second checkpoint, so there is no place at which it could be compared."""
    app, steps = write_app(tmp_path, BUSY_THEN_IDLE), 1000
    while True:
        job = idle(start, app, steps)
        if job.events("memory-compared", epoch=1, verified=True):
            break
        job.close()
        steps *= 4  # the program was there before its checkpoint
    take(job)
    if is_controller:
        job.process.kill()
        job.process.wait()
        again = restarted(job, job.directory)
    else:
        for process in (2, 3):
            job.kill_rank(process)
        again = job
    try:
        assert again.finish() == 0, again.report()
        assert again.events("restarted")[-1]["from_epoch"] == 1
        assert again.events("unverified-passed-over")[-1]["epochs"] == [2]
        assert "passing over" in again.stderr
        assert again.output(0) == f"idle\n{2 * (steps - 1)}\n"
    finally:
        again.close()


def test_where_no_line_has_been_compared_a_restart_says_so_by_name(start: Start, tmp_path: Path) -> None:
    job = start(write_app(tmp_path, BUSY_THEN_IDLE), ranks=1, redundancy=2, env={"STEPS": "0"})
    job.wait_event("committed")
    job.kill_rank(0)
    job.kill_rank(1)
    job.wait_event("restarted", from_epoch=1)
    assert "checkpoint 1" in job.stderr and "memory has not been compared" in job.stderr, job.report()


def _same_after(job: Job, ns: int) -> dict[str, Any] | None:
    compared = [event for event in job.events("memory-compared", same=2) if event["ns"] > ns]
    return compared[0] if compared else None

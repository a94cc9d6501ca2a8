"""`ckpt run --redundancy --compare sender` and `receiver`: no program gets what a replica has computed wrongly; the result
is that of a job without replicas, whoever is wrong, killed or started again."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.system.redundancy import test_redundancy as redundancy
from tests.system.redundancy import test_redundancy_copies as copies
from tests.system.support import Job, jobs_fixture, run_ckpt, write_app

pytestmark = [pytest.mark.system, pytest.mark.turns(8)]

Start = Callable[..., Job]

CHECKS = """
    import sys
    import ckpt

    comm = ckpt.enable()
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    for step in range(60):
        request = comm.isend((step, comm.rank), right, tag=1)
        try:
            found = comm.recv(source=left, tag=1)
        except Exception as error:
            found = error
        request.wait()
        total = comm.allreduce(step)
        if found != (step, left) or total != comm.size * step:
            print("WRONG", step, found, total, file=sys.stderr)
    print(comm.rank, total)
"""


@pytest.fixture(params=["sender", "receiver"])
def way(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def start(tmp_path: Path, way: str) -> Iterator[Start]:
    for begin in jobs_fixture(tmp_path):
        yield partial(begin, compare=way)


@pytest.mark.rotate(4)
@pytest.mark.parametrize(("replicas", "replica", "message"), [(3, 0, 33), (3, 2, 50), (2, 0, 21), (2, 1, 60)])
def test_a_flipped_message_arrives_nowhere(
    start: Start, tmp_path: Path, replicas: int, replica: int, message: int
) -> None:
    flips = f"rank=1,replica={replica},message={message}"
    job = start(
        write_app(tmp_path, CHECKS), ranks=2, redundancy=replicas, clones=0, env={"CKPT_FLIPS": flips}
    )
    assert job.finish() == 0, job.report()
    assert [job.output(rank) for rank in range(2)] == ["0 118\n", "1 118\n"]
    (differs,) = job.events("replica-differs")
    assert (differs["rank"], differs["replica"]) == ((1, replica) if replicas == 3 else (1, None))
    assert len(job.events("restarting")) == (replicas == 2)
    wrong = [path.name for path in (job.directory / "output").iterdir() if b"WRONG" in path.read_bytes()]
    assert not wrong, wrong


@pytest.mark.rotate(3)
@pytest.mark.parametrize(("replicas", "wrong"), [(3, False), (3, True), (2, False)])
def test_who_is_lost_is_replaced_and_told_what_it_has_missed(
    start: Start, tmp_path: Path, expected: list[str], way: str, replicas: int, wrong: bool
) -> None:
    env = {"CKPT_FLIPS": "rank=1,replica=0,message=41"} if wrong else {}
    job = copies.half_way(start, tmp_path, redundancy=replicas, env=env)
    if not wrong:
        job.kill_rank(replicas)  # replica 0 of rank 1
    job.wait_event("replica-cloned", place=0)
    assert job.finish() == 0, job.report()
    assert copies.outputs(job) == expected
    assert job.events("result-compared", verified=replicas == 3) and not job.events("restarting")
    said = {"sender": "before they leave", "receiver": "before the program gets them"}[way]
    assert f"messages are compared {said}" in run_ckpt("status", job.directory).stdout


@pytest.mark.rotate(3)
@pytest.mark.parametrize("then", [1, 2, 3])
def test_a_checkpoint_has_held_messages_as_messages_on_their_way(
    start: Start, tmp_path: Path, expected: list[str], then: int
) -> None:
    job = copies.half_way(start, tmp_path, redundancy=3)
    done = run_ckpt("checkpoint", "--stop", job.directory)
    assert done.returncode == 0 and job.finish() == 75, job.report()
    again = Job(job.directory, "--redundancy", then, job.directory, verb="restart")
    try:
        assert again.finish() == 0, again.report()
        assert copies.outputs(again) == expected
    finally:
        again.close()


HELD = """
    import os, sys, time
    import ckpt
    from ckpt import redundancy

    comm = ckpt.enable()
    state = redundancy.status()
    if comm.rank == 0:
        if state and state["replica"] != 0:
            time.sleep(1.5)  # what replica 0 has sent waits until another one has sent it
        comm.isend(bytes(200_000), 1, tag=1), comm.isend("early", 1, tag=2), comm.ssend("met", 1, tag=3)
    else:
        ckpt.checkpoint()
        time.sleep(0.3)
        print(len(comm.recv(source=0, tag=1)), comm.recv(tag=2), comm.recv(tag=3))
    while not os.path.exists("go"):
        if os.path.exists("committed"):
            sys.exit(9)
        time.sleep(0.01)
"""


@pytest.mark.rotate(3)
@pytest.mark.parametrize(("then", "other"), [(1, "late"), (2, "sender"), (3, "receiver")])
def test_what_waits_when_an_image_is_taken_gets_to_the_program_after_a_restart(
    start: Start, tmp_path: Path, then: int, other: str
) -> None:
    job = start(write_app(tmp_path, HELD), ranks=2, redundancy=3, clones=0)
    epoch = job.wait_event("committed", verified=True)["epoch"]  # replicas 1 and 2 vote after 1.5 s
    (job.directory.parent / "committed").touch()
    assert job.finish() == 9, job.report()
    assert "200000 early met" in job.output(1)
    (job.directory.parent / "go").touch()
    again = Job(
        job.directory,
        "--redundancy",
        then,
        *(["--compare", other] * (then > 1)),
        f"{job.directory}@{epoch}",
        verb="restart",
    )
    try:
        assert again.finish() == 0, again.report()
        assert again.output(1) == "200000 early met\n"
    finally:
        again.close()


@pytest.mark.nightly
@pytest.mark.parametrize("replicas", [2, 3])
def test_a_stopped_replica_is_left_behind(start: Start, tmp_path: Path, replicas: int) -> None:
    env = {"KILL": "1.1.40", "SIGNAL": str(int(signal.SIGSTOP))}
    app = write_app(tmp_path, redundancy.HALO)
    job = start(app, ranks=2, redundancy=replicas, clones=0, env=env)
    assert job.finish() == 0, job.report()
    whole = Job(tmp_path / "whole", "-n", 2, app)
    assert whole.finish() == 0 and redundancy.lines(job) == redundancy.lines(whole)
    assert [each["replica"] for each in job.events("replica-lost")] == [1]


expected = copies.expected

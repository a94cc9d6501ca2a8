"""`--on-failure continue`: after a death there are checkpoints of the ranks that are left, and jobs go on from them."""

from __future__ import annotations

import json
import os
import random
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.system.support import Job, jobs_fixture, run_ckpt

pytestmark = [pytest.mark.system, pytest.mark.timeout(120), pytest.mark.turns(5)]

PROGRAMS = Path(__file__).with_name("failing")


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Job]]:
    yield from jobs_fixture(tmp_path)


def kill_and_commit(job: Job, rank: int) -> int:
    """The epoch of a checkpoint that was begun after this rank had died."""
    job.kill_rank(rank)
    failed = job.wait_event("continuing", rank=rank)

    def commits() -> list[int]:
        begun = [each["epoch"] for each in job.events("round-started") if each["ns"] > failed["ns"]]
        return [each["epoch"] for each in job.events("committed") if each["epoch"] in begun]

    found: list[int] = job.wait_for(commits, f"a checkpoint without rank {rank}")
    return found[0]


def kill_all(job: Job) -> None:
    """Controller, agent and ranks."""
    job.process.kill()
    job.process.wait()
    os.kill(job.events("agent-started")[-1]["pid"], signal.SIGKILL)
    now = max(each["incarnation"] for each in job.events("rank-started"))
    for each in job.events("rank-started", incarnation=now):
        try:
            os.kill(each["pid"], signal.SIGKILL)
        except ProcessLookupError:
            continue


def restarted(job: Job) -> Iterator[Job]:
    again = Job(job.directory, job.directory, verb="restart")
    yield again
    again.close()


@pytest.mark.rotate(2)
@pytest.mark.parametrize("seed", range(4))
def test_whoever_is_left_goes_on_from_such_checkpoints_twice(start: Callable[..., Job], seed: int) -> None:
    choose = random.Random(seed)
    first, second, *left = choose.sample(range(5), 5)
    job = start(PROGRAMS / "every_kind.py", 90, 0.002, ranks=5, on_failure="continue", every=0.15)
    job.wait_event("committed")
    kill_and_commit(job, first)
    kill_all(job)
    for again in restarted(job):
        again.wait_event("restarted")
        (absent,) = {event["rank"] for event in again.events("rank-absent")}
        assert absent == first and f"going on without rank {first}, dead before epoch" in again.stderr
        kill_and_commit(again, second)
        kill_all(again)
    assert job.events("rank-started", rank=first)[-1]["incarnation"] == 0, "it is not started again"
    job.go()
    last = run_ckpt("restart", job.directory)
    assert last.returncode == 0, last.stderr + job.report()
    ends = {job.output(rank) for rank in left}
    assert len(ends) == 1 and ends.pop().startswith("left 3 "), job.report()
    assert not job.output(first) and not job.output(second)
    reason = job.events("job-finished")[-1]["reason"]
    assert reason == f"all ranks but {min(first, second)}, {max(first, second)}, which failed, have finished"


def test_what_is_told_of_such_a_checkpoint(start: Callable[..., Job]) -> None:
    job = start(PROGRAMS / "sum_of_tasks.py", 60, 0.004, ranks=3, on_failure="continue", every=0.15, keep=50)
    whole = job.wait_event("committed")["epoch"]
    epoch = kill_and_commit(job, 1)
    asked = run_ckpt("checkpoint", job.directory, "--json")
    assert asked.returncode == 0, asked.stdout
    status = json.loads(run_ckpt("status", job.directory, "--json").stdout)
    assert [rank["failed"] for rank in status["ranks"]] == [False, True, False]
    kill_all(job)
    assert run_ckpt("verify", job.directory).returncode == 0
    lines = {
        each["epoch"]: each for each in json.loads(run_ckpt("ls", job.directory, "--json").stdout)["lines"]
    }
    assert lines[epoch]["absent"] == [1] and "absent" not in lines[whole]
    assert "without rank 1" in run_ckpt("ls", job.directory).stdout
    shown = run_ckpt("inspect", f"{job.directory}@{epoch}").stdout
    assert "absent     1: dead before this epoch" in shown
    of_dead = run_ckpt("inspect", f"{job.directory}@{epoch}", "-r", 1)
    assert of_dead.returncode and f"rank 1 was dead before epoch {epoch}" in of_dead.stderr
    job.go()
    again = run_ckpt("restart", f"{job.directory}@{whole}")
    assert again.returncode == 0, again.stderr
    assert all("right on 3" in job.output(rank) for rank in range(3)), job.report()


def test_the_last_checkpoint_before_a_stop_has_whoever_is_left(start: Callable[..., Job]) -> None:
    job = start(PROGRAMS / "sum_of_tasks.py", 60, 0.004, ranks=3, on_failure="continue")
    job.wait_event("running")
    job.kill_rank(1)
    job.wait_event("continuing", rank=1)
    assert run_ckpt("checkpoint", job.directory, "--stop").returncode == 0
    assert job.process.wait(60) == 75, job.report()
    job.go()
    again = run_ckpt("restart", job.directory)
    assert again.returncode == 0, again.stderr
    assert all("right on 2" in job.output(rank) for rank in (0, 2)), job.report()


def test_a_program_that_cannot_do_without_the_dead_gets_them_back(start: Callable[..., Job]) -> None:
    """From the last checkpoint that has them, however many came after it."""
    job = start(PROGRAMS / "wants_all.py", 80, ranks=3, on_failure="continue", every=0.1, keep=2)
    job.wait_event("committed")
    kill_and_commit(job, 1)
    job.wait_event("committed", count=len(job.events("committed")) + 3)
    assert job.finish() == 0, job.report()
    total = sum(sum(range(3)) + 3 * at for at in range(80))
    assert all(job.output(rank) == f"total {total}\n" for rank in range(3)), job.report()
    assert len(job.events("restarting")) == 1 and job.events("rank-started", rank=1)[-1]["incarnation"] == 1


def test_files_of_the_dead_stay_as_the_dead_left_them(start: Callable[..., Job], tmp_path: Path) -> None:
    job = start(PROGRAMS / "logs.py", tmp_path, 100, ranks=3, on_failure="continue", every=0.15)
    job.wait_event("committed")
    kill_and_commit(job, 1)
    last = (tmp_path / "1.log").read_text().split()
    kill_all(job)
    job.go()
    again = run_ckpt("restart", job.directory)
    assert again.returncode == 0, again.stderr
    assert (tmp_path / "1.log").read_text().split() == last == list(map(str, range(len(last))))
    everybody = (tmp_path / "all.log").read_text().splitlines()
    for rank in (0, 2):
        steps = [str(at) for at in range(int(job.output(rank).split()[1]))]
        assert (tmp_path / f"{rank}.log").read_text().split() == steps
        assert [line.split()[1] for line in everybody if line.startswith(f"{rank} ")] == steps

"""`--on-failure continue`: real ranks are killed with SIGKILL, the others go on by themselves."""

from __future__ import annotations

import os
import random
import re
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ckpt.mpi.base.errors import ERR_PROC_FAILED, ERR_PROC_FAILED_PENDING, ERR_REVOKED
from tests.system.support import Job, jobs_fixture, run_ckpt, write_app

pytestmark = [pytest.mark.system, pytest.mark.timeout(120), pytest.mark.turns(5)]

PROGRAMS = Path(__file__).with_name("failing")


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Job]]:
    yield from jobs_fixture(tmp_path)


def wait_output(job: Job, rank: int, text: str) -> None:
    job.wait_for(lambda: text in job.output(rank), f"{text!r} of rank {rank}")


def living(job: Job) -> list[int]:
    dead = {event["rank"] for event in job.events("rank-died")}
    return [event["rank"] for event in job.events("rank-started") if event["rank"] not in dead]


def kill_one(job: Job, choose: random.Random) -> int:
    victim = choose.choice(living(job))
    job.kill_rank(victim)
    job.wait_event("continuing", rank=victim)
    return victim


@pytest.mark.parametrize("seed", range(3))
def test_the_others_shrink_and_compute_the_right_result(start: Callable[..., Job], seed: int) -> None:
    choose = random.Random(seed)
    job = start(PROGRAMS / "sum_of_tasks.py", 60, 0.003, ranks=5, on_failure="continue")
    job.wait_event("running")
    time.sleep(choose.random() * 0.3)
    victims = [kill_one(job, choose)]
    time.sleep(choose.random() * 0.004)  # the second one while they repair the first, often
    victims.append(kill_one(job, choose))
    time.sleep(choose.random() * 0.2)
    victims.append(kill_one(job, choose))
    assert job.finish() == 0, job.report()
    for rank in set(range(5)) - set(victims):
        assert re.search(r"total \d+ right on 2$", job.output(rank), re.M), job.report()
    end = job.events("job-finished")[0]
    assert end["exit_code"] == 0 and end["reason"] == (
        f"all ranks but {', '.join(map(str, sorted(victims)))}, which failed, have finished"
    )
    assert not job.events("restarting")


def lines_after_four_kills(job: Job, choose: random.Random) -> tuple[list[str], list[int], list[int]]:
    """What all that are left of six have printed, who they are, and who was killed, at random moments. The dead had printed
    the same until then."""
    victims = []
    for _ in range(4):
        time.sleep(choose.random() * 0.05)
        victims.append(kill_one(job, choose))
    assert job.finish() == 0, job.report()
    left = sorted(set(range(6)) - set(victims))
    outputs = {job.output(rank) for rank in left}
    assert len(outputs) == 1, "survivors were told different things"
    lines = outputs.pop().splitlines()
    assert lines[-1] == f"rest {left}"
    for victim in victims:
        seen = job.output(victim).splitlines()[:-1]  # the last line may be half written
        assert seen == lines[: len(seen)], "the dead had been told something else"
    return lines, left, sorted(victims)


@pytest.mark.rotate(4)
@pytest.mark.parametrize("seed", range(5))
def test_twenty_kills_in_the_middle_of_agreements(start: Callable[..., Job], seed: int) -> None:
    choose = random.Random(seed)
    job = start(PROGRAMS / "agreements.py", 4, ranks=6, on_failure="continue")
    for rank in range(6):
        wait_output(job, rank, "\n")
    lines, left, _ = lines_after_four_kills(job, choose)
    for line in lines[:-1]:
        step, _, agreed = line.rpartition(" ")
        at = int(step.split()[0])
        for rank in left:
            assert not int(agreed) & 1 << (rank + at) % 24, "a survivor's contribution is missing"


@pytest.mark.rotate(2)
@pytest.mark.parametrize("comm", ["world", "revoked"])
def test_survivors_agree_on_the_dead_and_go_on_without_a_shrink(start: Callable[..., Job], comm: str) -> None:
    choose = random.Random(comm)
    job = start(PROGRAMS / "agreed_dead.py", 4, comm, ranks=6, on_failure="continue")
    for rank in range(6):
        wait_output(job, rank, "\n21 ")
    lines, _, victims = lines_after_four_kills(job, choose)
    assert lines[-2].endswith(f" {victims}")


def test_every_family_of_collectives_ends_at_every_survivor(start: Callable[..., Job]) -> None:
    choose = random.Random(11)
    job = start(PROGRAMS / "families.py", ranks=9, on_failure="continue")
    job.wait_event("running")
    for number in range(8):
        for rank in living(job):
            wait_output(job, rank, f"family {number} ")
        time.sleep(choose.random() * 0.03)
        kill_one(job, choose)
    assert job.finish() == 0, job.report()
    (last,) = living(job)
    assert job.output(last).endswith(f"left [{last}]\n")


def ended(job: Job) -> dict[int, int]:
    found = {}
    for rank in range(2, 12):
        match = re.search(r"ended (\d+)", job.output(rank))
        assert match, f"rank {rank} was not told\n{job.report()}"
        found[rank] = int(match[1])
    return found


def test_whatever_waits_for_a_dead_rank_is_told(start: Callable[..., Job], capsys: Any) -> None:
    job = start(PROGRAMS / "waiting.py", "die", ranks=12, on_failure="continue")
    for rank in range(12):
        wait_output(job, rank, "ready")
    time.sleep(0.5)
    killed_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    job.kill_rank(0)
    assert job.finish() == 0, job.report()
    expected = dict.fromkeys(range(2, 12), ERR_PROC_FAILED)
    expected[6] = ERR_PROC_FAILED_PENDING
    assert ended(job) == expected
    known = [int(found) for rank in range(1, 12) for found in re.findall(r"knows (\d+)", job.output(rank))]
    with capsys.disabled():
        print(f"\n  death known to all 11 others {(max(known) - killed_ns) / 1e6:.1f} ms after kill -9")


def test_revoking_interrupts_whatever_is_pending(start: Callable[..., Job]) -> None:
    job = start(PROGRAMS / "waiting.py", "revoke", ranks=12, on_failure="continue")
    assert job.finish() == 0, job.report()
    assert set(ended(job).values()) == {ERR_REVOKED}


def test_when_all_have_failed_the_job_is_interrupted_and_can_be_restarted(start: Callable[..., Job]) -> None:
    job = start(PROGRAMS / "sum_of_tasks.py", 60, 0.004, ranks=3, on_failure="continue", every=0.15)
    job.wait_event("committed")
    for pid in [job.pid(rank) for rank in range(3)]:  # at once: no checkpoint is taken meanwhile
        os.kill(pid, signal.SIGKILL)
    assert job.finish() == 1, job.report()
    assert job.events("job-finished")[0]["kind"] == "interrupted"
    again = run_ckpt("restart", job.directory)
    assert again.returncode == 0, again.stderr
    assert all("right on 3" in job.output(rank) for rank in range(3)), job.report()


def test_a_death_is_told_by_the_agent_when_the_controller_is_gone(start: Callable[..., Job]) -> None:
    job = start(PROGRAMS / "sum_of_tasks.py", 60, 0.004, ranks=3, on_failure="continue")
    job.wait_event("running")
    job.kill_rank(2)
    job.wait_event("continuing")
    job.process.send_signal(signal.SIGKILL)
    job.process.wait()
    os.kill(job.pid(0), signal.SIGKILL)
    job.go()
    deadline = time.monotonic() + 60
    while "right on 1" not in job.output(1) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert "right on 1" in job.output(1), job.report()
    while not job.events("job-finished") and time.monotonic() < deadline:
        time.sleep(0.02)
    end = job.events("job-finished")[0]
    assert (end["exit_code"], end["by"]) == (0, "agent") and "but 0, 2, which failed" in end["reason"]


def test_the_dead_are_agreed_on_when_the_controller_was_killed_between_two_deaths(
    start: Callable[..., Job],
) -> None:
    """Who had been told of a death by whom makes no difference: Agree_failed returns at all with the same group."""
    job = start(PROGRAMS / "agreed_dead.py", 3, ranks=6, on_failure="continue")
    for rank in range(6):
        wait_output(job, rank, "\n2 ")
    job.kill_rank(4)
    job.process.kill()  # on its way, perhaps, to tell them
    job.process.wait()
    for rank in (1, 5):
        job.kill_rank(rank)
    deadline = time.monotonic() + 60
    while not job.events("job-finished") and time.monotonic() < deadline:
        time.sleep(0.02)
    assert {job.output(rank).splitlines()[-1] for rank in (0, 2, 3)} == {"rest [0, 2, 3]"}, job.report()
    assert len({job.output(rank) for rank in (0, 2, 3)}) == 1, "survivors saw different groups"


def test_an_uncaught_failure_ends_the_job_with_its_traceback(
    start: Callable[..., Job], tmp_path: Path
) -> None:
    app = write_app(
        tmp_path,
        """
        import os
        from mpi4py import MPI
        if MPI.COMM_WORLD.rank == 1:
            os._exit(0)
        MPI.COMM_WORLD.barrier()
        """,
    )
    job = start(app, ranks=2, on_failure="continue")
    assert job.finish() == 1
    assert "MPI_ERR_PROC_FAILED" in job.stderr and "rank 0 failed with exit code 1" in job.stderr
    assert job.events("continuing", rank=1), "leaving without a word is a failure too"

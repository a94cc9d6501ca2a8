"""The `ckpt` command on real processes: agent, controller and clients are real, ranks are stubs
(`stub_rank`).
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ckpt.controller.launch import procinfo
from tests.system.counting import COUNT, ENTRY
from tests.system.support import PATIENCE_S, Job, ckpt_command, run_ckpt, write_app

pytestmark = [pytest.mark.system, pytest.mark.turns(8), pytest.mark.usefixtures("find_the_stub")]

Start = Callable[..., Job]


@pytest.fixture
def count(start: Start, tmp_path: Path) -> Callable[..., Job]:
    """count(steps, …): a job of counting stubs, 20 ms a step, that stays half-way until `Job.go` or `Job.finish`."""

    def make(steps: int, *, ranks: int = 3, **options: Any) -> Job:
        app = write_app(tmp_path, COUNT)
        return start(app, steps, ranks=ranks, entry=ENTRY, **options)

    return make


def expected(steps: int, ranks: int = 3) -> list[str]:
    lines = [f"rank {rank} step {i}" for rank in range(ranks) for i in range(steps)]
    return sorted(lines + [f"rank {rank} done" for rank in range(ranks)])


def restart(job: Job, *arguments: object, epoch: int | None = None) -> subprocess.CompletedProcess[str]:
    """To its end. Ranks that are left from before go on only when it has taken over: they are not through by then."""
    where = job.directory if epoch is None else f"{job.directory}@{epoch}"
    before = len(job.events("controller"))
    again = subprocess.Popen(
        ckpt_command("restart", where, "--entry", ENTRY, *arguments),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    while len(job.events("controller")) == before and again.poll() is None:
        time.sleep(0.01)
    job.go()
    out, err = again.communicate(timeout=PATIENCE_S)
    return subprocess.CompletedProcess(again.args, again.returncode, out, err)


def is_gone(pid: int) -> bool:
    """No such process; or one that is dead and only waits for somebody to notice."""
    return procinfo.state(pid) in (None, "Z", "X")


def program_outputs(job: Job, ranks: int = 3) -> list[str]:
    return sorted(line for rank in range(ranks) for line in job.output(rank).splitlines())


# ---------------------------------------------------------------------- run


def test_output_is_passed_through_and_the_exit_code_is_zero(count: Callable[..., Job]) -> None:
    job = count(5)
    assert job.finish() == 0, job.report()
    assert sorted(job.stdout.splitlines()) == expected(5)
    assert job.events("job-finished")[0]["exit_code"] == 0


def test_output_is_prefixed_by_rank_when_asked(count: Callable[..., Job]) -> None:
    job = count(2, prefix=True)
    assert job.finish() == 0, job.report()
    assert all(line.startswith(f"[{line.split()[2]}] rank") for line in job.stdout.splitlines())


def test_json_prints_events_and_output_as_lines(count: Callable[..., Job]) -> None:
    job = count(3, json=True)
    assert job.finish() == 0, job.report()
    lines = [json.loads(line) for line in job.stdout.splitlines()]
    output = [text for line in lines if line["event"] == "output" for text in line["text"].splitlines()]
    assert sorted(output) == expected(3)
    assert [line["exit_code"] for line in lines if line["event"] == "job-finished"] == [0]


def test_an_existing_job_is_not_overwritten(count: Callable[..., Job]) -> None:
    job = count(2)
    assert job.finish() == 0
    again = run_ckpt("run", "--job", job.directory, "--", job.directory.parent / "app.py", 2)
    assert again.returncode == 2
    assert "restart" in again.stderr


def test_more_ranks_than_the_host_has_room_for_are_refused_before_any_is_started(tmp_path: Path) -> None:
    """They took the host from everybody else, for minutes, before they failed."""
    job = tmp_path / "job"
    refused = run_ckpt("run", "-n", 100_000_000, "--job", job, write_app(tmp_path, "print(1)"))
    assert refused.returncode == 2 and not job.exists()
    assert "100000000 ranks are 100000000 processes, and this host has room for" in refused.stderr
    assert "fewer ranks (-n), or more hosts (--hosts)" in refused.stderr


def test_an_agent_that_cannot_start_is_an_error_and_says_why(tmp_path: Path) -> None:
    app = write_app(tmp_path, COUNT)
    done = run_ckpt("run", "--job", tmp_path / "job", "--entry", "no_such_module:f", "--", app, 1)
    assert done.returncode == 1
    assert "no_such_module" in done.stderr


def test_deaths_are_noticed_and_the_job_computes_again(count: Callable[..., Job]) -> None:
    job = count(60, every=0.2)
    job.wait_event("committed", 2)
    killed_ns = time.time_ns()
    job.kill_rank(1)
    died = job.wait_event("rank-died", rank=1)
    restarted = job.wait_event("restarted")
    noticed_ms, restarted_ms = ((event["ns"] - killed_ns) / 1e6 for event in (died, restarted))
    print(f"\n  kill -9 noticed after {noticed_ms:.1f} ms, all started again after {restarted_ms:.0f} ms")
    assert died["signal"] == signal.SIGKILL
    assert job.finish() == 0, job.report()
    assert program_outputs(job) == expected(60)
    assert sorted(line for line in job.stdout.splitlines()) == expected(60), "nothing is printed twice"


def test_survivors_are_fenced_before_the_next_incarnation(count: Callable[..., Job]) -> None:
    job = count(60, every=0.2)
    job.wait_event("committed", 1)
    old = {rank: job.pid(rank) for rank in range(3)}
    job.kill_rank(0)
    job.wait_event("rank-started", 6)
    assert all(is_gone(pid) or pid == job.pid(rank) for rank, pid in old.items())
    assert job.finish() == 0, job.report()


def test_an_image_child_does_not_survive_its_rank(start: Start, tmp_path: Path) -> None:
    app = write_app(tmp_path, "stub.vote_delay_s = 30.0\nfor i in range(1000):\n    stub.step(0.01)\n")
    job = start(app, ranks=2, entry=ENTRY, every=0.1, max_restarts=0)
    job.wait_event("captured", 2)
    groups = [job.pid(rank) for rank in range(2)]
    job.kill_rank(0)
    assert job.finish() == 14, job.report()
    for group in groups:
        with pytest.raises(ProcessLookupError):
            os.killpg(group, 0)


def test_the_agent_killed_is_one_more_restart(count: Callable[..., Job]) -> None:
    job = count(60, every=0.2)
    job.wait_event("committed", 1)
    os.kill(job.wait_event("agent-started")["pid"], signal.SIGKILL)
    assert job.finish() == 0, job.report()
    assert job.events("agent-lost")
    assert program_outputs(job) == expected(60)


def test_restarts_are_used_up(start: Start, tmp_path: Path) -> None:
    app = write_app(tmp_path, "import os\nif stub.rank: os.kill(os.getpid(), 9)\nstub.step(5)\n")
    job = start(app, ranks=2, entry=ENTRY, max_restarts=2)
    assert job.finish() == 14, job.report()
    assert len(job.events("restarting")) == 2


def test_a_raise_ends_the_job_within_a_second_and_shows_the_traceback(start: Start, tmp_path: Path) -> None:
    app = write_app(
        tmp_path, "if stub.rank == 1:\n    stub.step(0.3)\n    raise ValueError('the cat')\nstub.step(30)\n"
    )
    job = start(app, ranks=3, entry=ENTRY)
    assert job.finish() == 1, job.report()
    failed, finished = job.events("rank-failed")[0], job.events("job-finished")[0]
    assert (finished["ns"] - failed["ns"]) / 1e9 < 1.0
    assert job.stderr.count("ValueError: the cat") == 2, "once by the rank, once in the controller's line"


def test_ranks_that_ignore_stop_are_killed(start: Start, tmp_path: Path) -> None:
    app = write_app(
        tmp_path,
        """
        import signal, sys, time
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if stub.rank == 0:
            stub.step(0.2)
            sys.exit(5)
        time.sleep(60)
        """,
    )
    job = start(app, ranks=2, entry=ENTRY)
    assert job.finish() == 5, job.report()
    assert is_gone(job.pid(1))


def test_leaving_with_status_0_without_a_word_is_an_error(start: Start, tmp_path: Path) -> None:
    app = write_app(tmp_path, "import os\nif stub.rank == 1: os._exit(0)\nstub.step(30)\n")
    job = start(app, ranks=2, entry=ENTRY)
    assert job.finish() == 1, job.report()
    assert "rank 1" in job.stderr and "without finishing" in job.stderr


def test_old_checkpoints_are_removed_when_asked(count: Callable[..., Job]) -> None:
    job = count(60, every=0.1, keep=2, ranks=2)
    job.wait_event("committed", 5)

    def kept() -> int:
        return len(json.loads(run_ckpt("ls", job.directory, "--json").stdout)["lines"])

    assert kept() <= 3  # the new one is there before the oldest goes
    job.kill_rank(0)
    assert job.finish() == 0, job.report()
    assert kept() == 2


def test_a_controller_that_has_lost_its_lock_commits_nothing_and_stops(count: Callable[..., Job]) -> None:
    job = count(1000)
    job.wait_event("running")
    pids = [job.pid(rank) for rank in range(3)]
    (job.directory / "lock").unlink()
    run_ckpt("checkpoint", job.directory)
    assert job.finish() == 11, job.report()
    assert not job.events("committed")
    assert all(is_gone(pid) for pid in pids)


def test_images_of_burnt_rounds_do_not_stay(start: Start, tmp_path: Path) -> None:
    app = write_app(
        tmp_path,
        """
        if stub.rank == 1:
            stub.state["socket"] = __import__("socket").socket()
        while True:
            stub.step(0.05)
        """,
    )
    job = start(app, ranks=2, entry=ENTRY)
    job.wait_event("running")
    run_ckpt("checkpoint", job.directory)
    job.wait_event("round-aborted")
    job.wait_for(lambda: not list(job.directory.glob("images/*/*")), "removed")


# ---------------------------------------------------------------------- signals, stop


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_the_job(count: Callable[..., Job], number: signal.Signals) -> None:
    job = count(1000)
    job.wait_event("running")
    pids = [job.pid(rank) for rank in range(3)]
    job.process.send_signal(number)
    assert job.finish() == 128 + number, job.report()
    assert all(is_gone(pid) for pid in pids)


def test_a_signal_takes_a_last_checkpoint_when_asked_and_restart_goes_on(count: Callable[..., Job]) -> None:
    job = count(40, checkpoint_on_signal=True)
    job.wait_for(lambda: "step 5" in job.output(0), "some progress")
    job.process.send_signal(signal.SIGTERM)
    assert job.finish() == 75, job.report()
    done = restart(job)
    assert done.returncode == 0, done.stderr
    assert program_outputs(job) == expected(40)


def test_stop_ends_the_job(count: Callable[..., Job]) -> None:
    job = count(1000)
    job.wait_event("running")
    assert run_ckpt("stop", job.directory).returncode == 0
    assert job.finish() == 143
    assert run_ckpt("stop", job.directory).returncode == 10, "there is nothing left to stop"


def test_a_stopped_job_says_how_to_go_on(count: Callable[..., Job]) -> None:
    job = count(1000)
    job.wait_event("running")
    assert run_ckpt("stop", job.directory).returncode == 0
    assert job.finish() == 143
    assert (
        "there is no checkpoint to go on from; `ckpt run --resume auto` starts from the beginning"
        in job.stderr
    ), job.report()


def test_a_job_stopped_after_a_checkpoint_says_which_one_a_restart_goes_on_from(
    count: Callable[..., Job],
) -> None:
    job = count(1000)
    job.wait_event("running")
    assert run_ckpt("stop", job.directory, "--checkpoint").returncode == 0
    assert job.finish() == 75
    assert f"`ckpt restart {job.directory}` goes on from checkpoint 1" in job.stderr, job.report()


def test_stop_with_checkpoint_is_75(count: Callable[..., Job]) -> None:
    job = count(1000)
    job.wait_event("running")
    done = run_ckpt("stop", job.directory, "--checkpoint", "--json")
    assert done.returncode == 0 and json.loads(done.stdout)["epoch"] == 1
    assert job.finish() == 75


def test_the_time_limit_takes_a_last_checkpoint(count: Callable[..., Job]) -> None:
    job = count(1000, time_limit=0.5)
    assert job.finish() == 75, job.report()
    assert len(job.events("committed")) == 1


# ---------------------------------------------------------------------- checkpoint


def test_checkpoint_waits_for_the_commit_and_prints_it(count: Callable[..., Job]) -> None:
    job = count(1000)
    job.wait_event("running")
    done = run_ckpt("checkpoint", job.directory)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("epoch 1: committed in ")
    again = json.loads(run_ckpt("checkpoint", job.directory, "--json").stdout)
    assert (again["ok"], again["epoch"]) == (True, 2)


def test_checkpoint_without_waiting(start: Start, tmp_path: Path) -> None:
    app = write_app(tmp_path, "stub.vote_delay_s = 1.0\nstub.step(30)\n")
    job = start(app, ranks=2, entry=ENTRY)
    job.wait_event("running")
    assert run_ckpt("checkpoint", job.directory, "--no-wait").returncode == 0
    assert not job.events("committed")
    job.wait_event("committed")


def test_a_checkpoint_that_fails_says_why_and_the_job_goes_on(start: Start, tmp_path: Path) -> None:
    app = write_app(
        tmp_path,
        """
        if stub.rank == 1:
            stub.state["socket"] = __import__("socket").socket()
        while "stop" not in stub.state:
            stub.step(0.05)
        """,
    )
    job = start(app, ranks=2, entry=ENTRY)
    job.wait_event("running")
    done = run_ckpt("checkpoint", job.directory)
    assert done.returncode == 1
    assert "rank 1" in done.stdout and "socket" in done.stdout
    assert run_ckpt("checkpoint", job.directory, "--stop").returncode == 1
    assert job.process.poll() is None, "a --stop whose checkpoint failed does not stop"
    assert [event["epoch"] for event in job.events("round-aborted")] == [1, 2]
    assert "the job goes on" in job.stderr


def test_a_round_that_gets_no_vote_times_out_and_names_the_rank(start: Start, tmp_path: Path) -> None:
    app = write_app(
        tmp_path, "if stub.rank == 1: stub.refuse = 'inside sum()'\nwhile True:\n    stub.step(0.05)\n"
    )
    job = start(app, ranks=2, entry=ENTRY, timeout=0.5)
    job.wait_event("running")
    done = run_ckpt("checkpoint", job.directory)
    assert done.returncode == 1
    assert "rank 1 cannot be captured: inside sum()" in done.stdout
    assert "app.py" in done.stdout


def test_an_inconsistent_line_is_never_committed(start: Start, tmp_path: Path) -> None:
    app = write_app(
        tmp_path, "if stub.rank: stub.vectors['0'] = [0, 0, 7]\nwhile True:\n    stub.step(0.05)\n"
    )
    job = start(app, ranks=2, entry=ENTRY)
    job.wait_event("running")
    done = run_ckpt("checkpoint", job.directory)
    assert done.returncode == 1 and "orphan on link 0→1" in done.stdout
    assert not job.events("committed")


# ---------------------------------------------------------------------- status


def test_status_names_the_rank_that_delays_a_round_and_where(start: Start, tmp_path: Path) -> None:
    app = write_app(
        tmp_path,
        """
        import time
        if stub.rank == 1:
            time.sleep(300)
        while True:
            stub.step(0.05)
        """,
    )
    job = start(app, ranks=2, entry=ENTRY, every=0.2)
    job.wait_event("round-started")

    def status() -> Any:
        """Once rank 0 has voted, and answers."""
        fields = json.loads(run_ckpt("status", job.directory, "--json").stdout)
        waiting = [wait["rank"] for wait in (fields["live"]["round"] or {}).get("waits_for", ())]
        return fields if waiting == [1] and fields["live"]["ranks"][0]["answers"] else None

    fields = job.wait_for(status, "only rank 1 is waited for")
    waits = fields["live"]["round"]["waits_for"]
    assert [(wait["rank"], wait["where"].split("/")[-1]) for wait in waits] == [(1, "app.py:4 <module>")]
    assert [rank["answers"] for rank in fields["live"]["ranks"]] == [True, False]
    text = run_ckpt("status", job.directory).stdout
    assert "app.py:4" in text and "retransmissions 3" in text


def test_status_of_jobs_that_do_not_run(count: Callable[..., Job], tmp_path: Path) -> None:
    job = count(3)
    assert job.finish() == 0
    fields = json.loads(run_ckpt("status", job.directory, "--json").stdout)
    assert (fields["state"], fields["outcome"]["exit_code"], fields["live"]) == ("finished", 0, None)
    assert run_ckpt("status", tmp_path / "nowhere").returncode == 10


# ---------------------------------------------------------------------- without a controller


def kill_controller(job: Job) -> None:
    job.process.kill()
    job.process.wait()


def test_ranks_finish_without_a_controller_and_restart_reports_their_code(count: Callable[..., Job]) -> None:
    job = count(40)
    job.wait_event("running")
    kill_controller(job)
    job.go()
    deadline = time.monotonic() + PATIENCE_S
    while not job.events("job-finished") and time.monotonic() < deadline:
        time.sleep(0.02)
    assert job.events("job-finished")[0]["by"] == "agent", job.report()
    assert program_outputs(job) == expected(40)
    assert restart(job).returncode == 0
    assert is_gone(job.events("agent-started")[0]["pid"])


def test_a_failure_without_a_controller_is_reported_once_and_then_retried(
    start: Start, tmp_path: Path
) -> None:
    app = write_app(
        tmp_path,
        """
        import os, sys
        stub.hold()
        sys.exit(0 if os.path.exists("mended") else 9)
        """,
    )
    job = start(app, ranks=2, entry=ENTRY, every=0.2)
    job.wait_event("committed")
    kill_controller(job)
    job.go()
    deadline = time.monotonic() + PATIENCE_S
    while not job.events("job-finished") and time.monotonic() < deadline:
        time.sleep(0.02)
    assert restart(job).returncode == 9
    (tmp_path / "mended").touch()
    assert restart(job).returncode == 0, job.report()


def test_restart_fences_ranks_that_are_still_running(count: Callable[..., Job]) -> None:
    job = count(60, every=0.2)
    job.wait_event("committed")
    kill_controller(job)
    agent, ranks = job.events("agent-started")[0]["pid"], [job.pid(rank) for rank in range(3)]
    status = json.loads(run_ckpt("status", job.directory, "--json").stdout)
    assert status["state"] == "without controller"
    # And they may not go on before that
    again = Job(job.directory, job.directory, "--entry", ENTRY, verb="restart")
    again.wait_event("fenced")
    assert all(is_gone(pid) for pid in [agent, *ranks])
    assert again.finish() == 0, job.report()
    assert program_outputs(job) == expected(60)


def test_a_death_without_a_controller_ends_the_ranks_and_restart_goes_on(count: Callable[..., Job]) -> None:
    job = count(60, every=0.2)
    job.wait_event("committed")
    kill_controller(job)
    job.kill_rank(1)
    deadline = time.monotonic() + PATIENCE_S
    while not job.events("job-interrupted") and time.monotonic() < deadline:
        time.sleep(0.02)
    assert job.events("job-interrupted"), job.report()
    assert all(is_gone(job.pid(rank)) for rank in range(3))
    done = restart(job)
    assert done.returncode == 0, done.stderr + job.report()
    assert program_outputs(job) == expected(60)


def test_never_two_controllers(count: Callable[..., Job]) -> None:
    job = count(60, every=0.2)
    job.wait_event("committed")
    assert run_ckpt("restart", job.directory, "--entry", ENTRY).returncode == 11
    assert run_ckpt("prune", job.directory, "--keep-last", 2).returncode == 11
    assert job.finish() == 0, job.report()


def test_numbers_go_on_above_all_that_were_used(count: Callable[..., Job]) -> None:
    job = count(60, every=0.2)
    job.wait_event("committed")
    kill_controller(job)
    assert restart(job).returncode == 0, job.report()
    started = [event["epoch"] for event in job.events("round-started")]
    assert started == sorted(set(started))
    generations = [event["generation"] for event in job.events("controller")]
    assert generations == sorted(set(generations)) and len(generations) == 2
    assert {event["incarnation"] for event in job.events("rank-started")} == {0, 1}


# ---------------------------------------------------------------------- restart


def test_restart_from_an_older_epoch(count: Callable[..., Job]) -> None:
    job = count(60, every=0.2, keep=100)
    job.wait_event("committed", 2)
    assert job.finish() == 0, job.report()
    first = job.events("committed")[0]["epoch"]
    done = restart(job, epoch=first)
    assert done.returncode == 0, done.stderr
    assert job.events("restarted")[-1]["from_epoch"] == first
    assert program_outputs(job) == expected(60)


def test_a_line_that_cannot_be_read_is_passed_over_for_an_older_one(count: Callable[..., Job]) -> None:
    job = count(60, every=0.2)
    job.wait_event("committed", 3)
    assert run_ckpt("stop", job.directory).returncode == 0
    job.finish()
    newest = job.events("committed")[-1]["epoch"]
    for pack in job.directory.glob(f"images/rank-00001/epoch-{newest:08d}.*.pack"):
        pack.chmod(0o3000)
        pack.write_bytes(b"")
    assert run_ckpt("verify", job.directory).returncode == 3
    done = restart(job)
    assert done.returncode == 0, done.stderr + job.report()
    assert job.events("line-unusable")[0]["epoch"] == newest
    assert program_outputs(job) == expected(60)


def test_nothing_to_restart_from(count: Callable[..., Job], tmp_path: Path) -> None:
    job = count(1000)
    job.wait_event("running")
    run_ckpt("stop", job.directory)
    job.finish()
    assert restart(job).returncode == 10
    assert restart(job, epoch=3).returncode == 10
    assert run_ckpt("verify", job.directory).returncode == 10


def test_resume_auto_starts_goes_on_and_reports(count: Callable[..., Job]) -> None:
    job = count(60, resume="auto", checkpoint_on_signal=True)
    job.wait_for(lambda: "step 5" in job.output(0), "some progress")
    job.process.send_signal(signal.SIGINT)
    assert job.finish() == 75, job.report()
    assert count(60, resume="auto").finish() == 0, job.report()
    assert program_outputs(job) == expected(60)
    assert count(60, resume="auto").finish() == 0, "it has finished already"
    assert len(job.events("controller")) == 2


def test_another_number_of_ranks_or_another_program_does_not_fit(count: Callable[..., Job]) -> None:
    job = count(3)
    assert job.finish() == 0
    more = count(3, ranks=4, resume="auto")
    assert more.finish() == 13 and "3 ranks, not 4" in more.stderr
    assert count(4, resume="auto").finish() == 13

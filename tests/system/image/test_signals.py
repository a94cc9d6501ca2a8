"""Signals of the job: what the program's own handlers get, what is ignored, what stops and what goes on."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.system.libraries.test_hooks import app_of
from tests.system.support import PATIENCE_S, Job, ckpt_command, environment, run_ckpt, write_app

pytestmark = [pytest.mark.system, pytest.mark.turns(8)]

Start = Callable[..., Job]

HANDLES = """
    import signal, sys, time
    import ckpt

    comm = ckpt.enable()

    def save(number, frame):
        print("heard", number, flush=True)
        if sys.argv[1] == "collective":
            print("together", comm.allreduce(1), flush=True)
            sys.exit(0)
        if sys.argv[1] == "one leaves" and comm.rank == 0:
            sys.exit(0)

    if sys.argv[1] != "except":
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, save)
    try:
        comm.barrier()
        print("ready", flush=True)
        while True:
            comm.barrier() if sys.argv[1] == "except" else time.sleep(0.01)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
        raise
    finally:
        print("finally", flush=True)
"""


def ready(job: Job, ranks: int = 2) -> None:
    job.wait_for(lambda: all("ready" in job.output(rank) for rank in range(ranks)), "ranks that are ready")


def test_handlers_of_the_program_run_before_the_job_ends_and_may_communicate(
    start: Start, tmp_path: Path
) -> None:
    job = start(write_app(tmp_path, HANDLES), "collective", ranks=2)
    ready(job)
    job.process.send_signal(signal.SIGTERM)
    assert job.finish() == 143, job.report()
    assert [job.output(rank) for rank in range(2)] == ["ready\nheard 15\ntogether 2\nfinally\n"] * 2
    assert job.events("job-finished")[-1]["kind"] == "stopped"
    assert "SIGTERM is passed on to the ranks" in job.stderr


def test_an_interrupt_at_the_start_was_lost_or_reported_from_the_inside_of_ckpt(
    start: Start, tmp_path: Path
) -> None:
    """A rank ignored it until it had its own dispositions, or something in its start swallowed it: the others waited."""
    job = start(write_app(tmp_path, QUIET), ranks=2, grace="1h")
    job.wait_event("rank-started")
    job.process.send_signal(signal.SIGINT)
    assert job.finish() == 130, job.report()
    assert "boot.py" not in job.stderr and "ending.py" not in job.stderr, job.report()


def test_an_interrupt_is_one_in_the_program(start: Start, tmp_path: Path) -> None:
    job = start(write_app(tmp_path, HANDLES), "except", ranks=2)
    ready(job)
    job.process.send_signal(signal.SIGINT)
    assert job.finish() == 130, job.report()
    assert [job.output(rank) for rank in range(2)] == ["ready\ninterrupted\nfinally\n"] * 2
    assert "KeyboardInterrupt" in job.stderr and "interrupts.py" not in job.stderr


def test_stop_is_a_sigterm_to_the_program_and_ends_those_that_go_on_when_their_time_is_over(
    start: Start, tmp_path: Path
) -> None:
    """Rank 0 has finished meanwhile: it is no reason to wait, and gets no signal any more."""
    job = start(write_app(tmp_path, HANDLES), "one leaves", ranks=2, grace=0.3)
    ready(job)
    assert run_ckpt("stop", job.directory).returncode == 0
    assert job.finish() == 143
    assert [job.output(rank) for rank in range(2)] == ["ready\nheard 15\nfinally\n", "ready\nheard 15\n"]


def test_a_second_interrupt_ends_at_once_what_does_not_end_by_itself(start: Start, tmp_path: Path) -> None:
    job = start(write_app(tmp_path, HANDLES), "goes on", ranks=2, grace="1h")
    ready(job)
    job.process.send_signal(signal.SIGINT)
    job.wait_for(lambda: all("heard 2\n" in job.output(rank) for rank in range(2)), "handlers")
    deadline = time.monotonic() + PATIENCE_S
    while job.process.poll() is None and time.monotonic() < deadline:
        job.process.send_signal(signal.SIGINT)  # also while the command ends: it ends as it was about to
        time.sleep(0.002)
    assert job.process.wait(1) == 130
    assert job.events("job-finished")
    assert job.events("ended-at-once")


def test_the_agent_of_a_killed_controller_passes_sigterm_on_and_ends_the_ranks(
    start: Start, tmp_path: Path
) -> None:
    """As at the end of a machine, or of a batch job."""
    job = start(write_app(tmp_path, HANDLES), "collective", ranks=2)
    ready(job)
    agent = job.events("agent-started")[-1]["pid"]
    os.kill(agent, signal.SIGTERM)  # which is the controller's business
    job.process.kill()
    job.process.wait()
    deadline = time.monotonic() + PATIENCE_S
    while not job.events("job-interrupted") and time.monotonic() < deadline:
        if os.path.exists(f"/proc/{agent}"):
            os.kill(agent, signal.SIGTERM)  # it may not have noticed yet that it is alone
        time.sleep(0.02)
    assert "SIGTERM" in job.events("job-interrupted")[-1]["reason"]
    assert all("heard 15\ntogether 2\nfinally\n" in job.output(rank) for rank in range(2)), job.report()


QUIET = """
    import os, signal, time
    import ckpt

    comm = ckpt.enable()
    if comm.rank == 0:
        signal.signal(signal.SIGUSR1, lambda *_: print("USR1", flush=True))
        signal.signal(signal.SIGUSR2, lambda *_: print("USR2", flush=True))
    comm.barrier()
    print(signal.getsignal(signal.SIGHUP).name, signal.getsignal(signal.SIGTERM).name,
          sorted(map(int, signal.pthread_sigmask(signal.SIG_BLOCK, ()))), "ready", flush=True)
    while not os.path.exists(os.environ["CKPT_TEST_GO"]):
        time.sleep(0.01)
    comm.barrier()
"""


def test_user_signals_reach_the_ranks_that_have_a_handler_and_end_nobody(
    start: Start, tmp_path: Path
) -> None:
    job = start(write_app(tmp_path, QUIET), ranks=2)
    ready(job)
    for name in ("USR1", "USR2"):
        job.process.send_signal(signal.Signals["SIG" + name])
        job.wait_for(lambda name=name: name + "\n" in job.output(0), name)
    assert job.finish() == 0
    assert not job.events("rank-died")
    assert [event["signal"] for event in job.events("signal-passed-on")] == [10, 12]


TICKS = """
    import signal, time
    import ckpt
    from tools import die_once

    comm = ckpt.enable()
    ticks = too_late = 0

    def tick(number, frame):
        global ticks, too_late
        ticks += 1
        too_late += is_over
        if too_late == 200:
            print("too late")

    is_over = False
    signal.signal(signal.SIGALRM, tick)
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
    ckpt.checkpoint()
    if comm.rank == 1:
        die_once()
        time.sleep(0.5)
    while ticks < 100:
        time.sleep(0.01)
    print("ticks")
    is_over = True
"""


def test_a_timer_that_the_program_leaves_running_ends_with_it(start: Start, tmp_path: Path) -> None:
    """Its handler was called as long as the rank served its peers, and then its signal killed the rank, at each restart."""
    job = start(app_of(tmp_path, TICKS), ranks=2, max_restarts=1)
    assert job.finish() == 0, job.report()
    assert job.output(0) == job.output(1) == "ticks\n"


def _as_a_careless_parent() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM, signal.SIGUSR1])


def test_what_was_ignored_stays_ignored_and_nothing_stays_blocked(tmp_path: Path) -> None:
    """`nohup ckpt run`; a parent that has blocked signals."""
    app = write_app(tmp_path, QUIET)
    output = tmp_path / "job" / "output" / "rank-1.out"
    with subprocess.Popen(
        ckpt_command("run", "-n", 2, "--job", tmp_path / "job", app),
        env={**environment(), "CKPT_TEST_GO": str(tmp_path / "go")},
        preexec_fn=_as_a_careless_parent,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as job:
        try:
            deadline = time.monotonic() + PATIENCE_S
            while not (output.exists() and "ready" in output.read_text()) and time.monotonic() < deadline:
                time.sleep(0.01)
            job.send_signal(signal.SIGHUP)
            job.send_signal(signal.SIGUSR1)
            log = tmp_path / "job" / "events.jsonl"
            while "signal-passed-on" not in log.read_text() and time.monotonic() < deadline:
                time.sleep(0.01)  # so the one before has come, too
            assert "stop-requested" not in log.read_text()
            assert output.read_text() == "SIG_IGN SIG_DFL [] ready\n"
            job.send_signal(signal.SIGTERM)
            _, errors = job.communicate(timeout=PATIENCE_S)
        finally:
            job.kill()
    assert job.returncode == 143, errors


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_a_suspended_job_computes_no_more_until_it_is_continued(tmp_path: Path) -> None:
    app = write_app(tmp_path, QUIET)
    job = subprocess.Popen(
        ckpt_command("run", "-n", 2, "--job", tmp_path / "job", app),
        env={**environment(), "CKPT_TEST_GO": str(tmp_path / "go")},
        stdout=subprocess.DEVNULL,
        process_group=0,  # a group whose leader's parent is in the same session: one that a shell could stop
    )
    try:
        deadline = time.monotonic() + PATIENCE_S
        outputs = [tmp_path / "job" / "output" / f"rank-{rank}.out" for rank in range(2)]
        while time.monotonic() < deadline:
            if all(path.exists() and "ready" in path.read_text() for path in outputs):
                break
            time.sleep(0.01)
        agent = int(Path(f"/proc/{job.pid}/task/{job.pid}/children").read_text())
        ranks = [int(pid) for pid in Path(f"/proc/{agent}/task/{agent}/children").read_text().split()]
        for number, wanted in ((signal.SIGTSTP, "T"), (signal.SIGCONT, "")):
            job.send_signal(number)
            while time.monotonic() < deadline:
                states = [_state(pid) for pid in (job.pid, *ranks)]
                if all((state == "T") == (wanted == "T") for state in states):
                    break
                time.sleep(0.01)
            assert all((state == "T") == (wanted == "T") for state in states), (number, states)
        job.send_signal(signal.SIGTSTP)
        while not all(_state(pid) == "T" for pid in (job.pid, *ranks)) and time.monotonic() < deadline:
            time.sleep(0.01)
        job.kill()  # and the ranks go on without it, instead of standing still for ever
        job.wait()
        (tmp_path / "go").touch()
        while os.path.exists(f"/proc/{agent}") and time.monotonic() < deadline:
            time.sleep(0.01)
        assert not os.path.exists(f"/proc/{agent}")
        assert run_ckpt("restart", tmp_path / "job").returncode == 0
    finally:
        job.kill()
        job.wait()

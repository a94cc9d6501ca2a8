"""Nothing of a dead incarnation goes on, wherever it has hidden: other process groups, other sessions, orphans, stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.system.support import PATIENCE_S, Job, ckpt_command, environment, run_ckpt, write_app

pytestmark = [pytest.mark.system, pytest.mark.turns(8)]

Start = Callable[..., Job]

HIDES = """
    import os, subprocess, sys, time
    import ckpt

    comm = ckpt.enable()
    how, here = sys.argv[1], sys.argv[2]
    writes = "while :; do echo $$ >> {}; sleep 0.02; done"
    log = os.path.join(here, "lines")
    if comm.rank == 1 and ckpt.restarts() == 0:
        if how == "setpgid":
            os.setpgid(0, os.getppid())
        elif how == "setsid":
            if os.getpid() == os.getpgid(0):
                os.setpgid(0, os.getppid())
            os.setsid()
        elif how == "daemon":
            if os.fork() == 0:
                os.setsid()
                if os.fork() == 0:
                    os.execvp("sh", ["sh", "-c", writes.format(log)])
                os._exit(0)
            os.wait()
        elif how == "new-session":
            child = subprocess.Popen(["sh", "-c", writes.format(log)], start_new_session=True)
        elif how == "child":
            child = subprocess.Popen(["sh", "-c", writes.format(log)])
        elif how == "stopped":
            os.kill(os.getpid(), 19)
    if how in ("setpgid", "setsid") and comm.rank == 1:
        for _ in range(100000 if ckpt.restarts() == 0 else 3):
            with open(log, "a") as lines:
                lines.write(f"{os.getpid()}\\n")
            time.sleep(0.01)
    comm.barrier()
    while comm.allreduce(int(not os.path.exists(os.environ["CKPT_TEST_GO"])), max):
        time.sleep(0.01)
    print("rank", comm.rank, "ends")
"""


@pytest.fixture
def strays(tmp_path: Path) -> Iterator[None]:
    """Whatever a failing test leaves is ended: it writes this file, and names itself there."""
    yield
    for pid in writers(tmp_path):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def writers(directory: Path) -> set[int]:
    log = directory / "lines"
    return {int(line) for line in log.read_text().split()} if log.exists() else set()


def is_there(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


@pytest.mark.parametrize("how", ["setpgid", "setsid", "daemon", "new-session", "child"])
@pytest.mark.usefixtures("strays")
def test_what_writes_from_another_group_or_session_is_ended_before_its_successor_starts(
    how: str, start: Start, tmp_path: Path
) -> None:
    job = start(write_app(tmp_path, HIDES), how, tmp_path, ranks=2)
    job.wait_for(lambda: writers(tmp_path), "the first line of the file")
    old = writers(tmp_path)
    job.kill_rank(0)
    job.wait_event("rank-started", incarnation=1)
    assert not [pid for pid in old if is_there(pid)]
    assert job.finish() == 0


@pytest.mark.parametrize("lost", ["agent", "agent and controller"])
@pytest.mark.parametrize("how", ["daemon", "child"])
@pytest.mark.usefixtures("strays")
def test_what_ranks_have_started_is_ended_when_the_agent_is_killed(
    how: str, lost: str, start: Start, tmp_path: Path
) -> None:
    """It is the agent's to end; when that is gone, its controller's, or the next one's."""
    job = start(write_app(tmp_path, HIDES), how, tmp_path, ranks=2)
    job.wait_for(lambda: writers(tmp_path), "the first line of the file")
    old = writers(tmp_path)
    job.wait_event("agent-started")  # the ranks may be faster than the controller that writes it
    if lost == "agent and controller":
        job.process.kill()
        job.process.wait()
    os.kill(job.events("agent-started")[-1]["pid"], signal.SIGKILL)
    if lost == "agent and controller":
        job.go()
        again = run_ckpt(
            "run", "--resume", "auto", "--job", job.directory, "-n", 2, tmp_path / "app.py", how, tmp_path,
            env={**environment(), "CKPT_TEST_GO": str(job._go)},
        )  # fmt: skip
        assert again.returncode == 0, again.stderr
    else:
        job.wait_event("rank-started", incarnation=1)
    assert not [pid for pid in old if is_there(pid)]
    if lost == "agent":
        assert job.finish() == 0


@pytest.mark.usefixtures("strays")
def test_nothing_that_the_ranks_have_started_outlives_the_job(start: Start, tmp_path: Path) -> None:
    job = start(write_app(tmp_path, HIDES), "daemon", tmp_path, ranks=2)
    job.wait_for(lambda: writers(tmp_path), "the first line of the file")
    assert job.finish() == 0
    assert not [pid for pid in writers(tmp_path) if is_there(pid)]


def test_a_stopped_rank_is_fenced(start: Start, tmp_path: Path) -> None:
    job = start(write_app(tmp_path, HIDES), "stopped", tmp_path, ranks=2)
    stopped = job.wait_event("rank-started", rank=1)["pid"]
    job.wait_for(
        lambda: Path(f"/proc/{stopped}/stat").read_text().rpartition(")")[2].split()[0] == "T",
        "a stopped rank",
    )
    job.kill_rank(0)
    job.wait_event("rank-started", rank=1, incarnation=1)
    assert not is_there(stopped)
    assert job.finish() == 0


ENDLESS = """
    import time
    import ckpt

    comm = ckpt.enable()
    while True:
        comm.barrier()
        time.sleep(0.01)
"""


def test_stop_ends_the_ranks_of_a_controller_that_was_killed(start: Start, tmp_path: Path) -> None:
    job = start(write_app(tmp_path, ENDLESS), ranks=2)
    job.wait_event("running")
    job.process.kill()
    job.process.wait()
    pids = [job.pid(0), job.pid(1), job.events("agent-started")[-1]["pid"]]
    assert all(map(is_there, pids))
    refused = run_ckpt("stop", "--checkpoint", job.directory)
    assert (refused.returncode, "without a controller" in refused.stderr) == (10, True), refused
    assert all(map(is_there, pids))
    stopped = run_ckpt("stop", job.directory)
    assert stopped.returncode == 0, stopped
    assert not any(map(is_there, pids))
    assert job.events("job-finished")[-1]["kind"] == "stopped"
    assert run_ckpt("stop", job.directory).returncode == 10  # nothing is left to be stopped
    status = run_ckpt("status", job.directory)
    assert "stopped" in status.stdout, status.stdout


def test_a_death_is_noticed_though_the_parent_ignores_the_death_of_children(tmp_path: Path) -> None:
    """SIGCHLD ignored is inherited: such a process has its children reaped by the kernel, and waits in vain."""
    app = write_app(
        tmp_path,
        """
        import os
        import ckpt

        comm = ckpt.enable()
        comm.barrier()
        if comm.rank == 1 and ckpt.restarts() == 0:
            os.kill(os.getpid(), 9)
        import subprocess
        print(comm.rank, comm.allreduce(1), subprocess.run(["sh", "-c", "exit 3"]).returncode)
        """,
    )
    ran = run_ckpt(
        "run", "-n", 2, "--job", tmp_path / "job", app, cwd=tmp_path,
        preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN),
    )  # fmt: skip
    assert ran.returncode == 0, ran
    assert sorted(ran.stdout.split("\n")) == ["", "0 2 3", "1 2 3"]


def test_another_interpreter_is_asked_though_the_parent_ignores_the_death_of_children(tmp_path: Path) -> None:
    """A child whose exit code cannot be known looks like one that has said yes."""
    fake = tmp_path / "python3"
    fake.write_text("#!/bin/sh\nexit 1\n")
    fake.chmod(0o755)
    ran = run_ckpt(
        "run", "-n", 1, fake, "-c", "print(1)", cwd=tmp_path,
        preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN),
    )  # fmt: skip
    usual = run_ckpt("run", "-n", 1, fake, "-c", "print(1)", cwd=tmp_path)
    assert usual.returncode != 0
    assert (ran.returncode, ran.stdout, ran.stderr) == (usual.returncode, usual.stdout, usual.stderr)


def test_adopted_orphans_do_not_stay_as_zombies(start: Start, tmp_path: Path) -> None:
    app = write_app(
        tmp_path,
        """
        import os, time
        import ckpt

        comm = ckpt.enable()
        for _ in range(20):
            if os.fork() == 0:
                if os.fork() == 0:
                    time.sleep(0.05)
                os._exit(0)
            os.wait()
        print("forked", flush=True)
        while not os.path.exists(os.environ["CKPT_TEST_GO"]):
            time.sleep(0.01)
        """,
    )
    job = start(app, ranks=1)
    job.wait_for(lambda: "forked" in job.output(0), "forks")
    agent = job.events("agent-started")[-1]["pid"]
    children = Path(f"/proc/{agent}/task/{agent}/children")
    deadline = time.monotonic() + PATIENCE_S
    while len(children.read_text().split()) > 1 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert children.read_text().split() == [str(job.pid(0))]
    assert job.finish() == 0


@pytest.mark.root
def test_a_container_whose_first_process_is_the_job_leaves_nothing(tmp_path: Path) -> None:
    """Process 1 gets every orphan of the container; the job ends all the same, and with the program's exit code."""
    app = write_app(
        tmp_path,
        """
        import os, sys
        import ckpt

        comm = ckpt.enable()
        comm.barrier()
        if comm.rank == 1 and ckpt.restarts() == 0:
            os.kill(os.getpid(), 9)
        print(comm.allreduce(1), ckpt.restarts(), flush=True)
        comm.barrier()
        sys.exit(5)
        """,
    )
    ran = subprocess.run(
        ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child",
         *ckpt_command("run", "-n", 2, "--job", tmp_path / "job", app)],
        capture_output=True, text=True, timeout=PATIENCE_S, stdin=subprocess.DEVNULL, cwd=tmp_path,
    )  # fmt: skip
    assert (ran.returncode, ran.stdout) == (5, "2 1\n2 1\n"), ran

"""A parallel program survives kill -9 with the very same result."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.system.apps import COMPUTE, NUMPY_STENCIL, RING
from tests.system.libraries.test_hooks import app_of
from tests.system.support import Job, run_ckpt, write_app

pytestmark = [pytest.mark.system, pytest.mark.turns(8)]

Start = Callable[..., Job]


def undisturbed(start: Start, app: Path, *argv: object, ranks: int = 4) -> str:
    job = start(app, *argv, ranks=ranks, name="undisturbed")
    assert job.finish() == 0, job.report()
    return "".join(job.output(rank) for rank in range(ranks))


def outputs(job: Job, ranks: int = 4) -> str:
    return "".join(job.output(rank) for rank in range(ranks))


@pytest.mark.parametrize(
    ("text", "argv"),
    [(RING, (1500, 0.0005)), (COMPUTE, (600, 0.001)), (NUMPY_STENCIL, (1000, 0.001))],
    ids=["ring", "compute", "stencil"],
)
def test_a_killed_rank_changes_nothing_in_the_output(
    start: Start, tmp_path: Path, text: str, argv: tuple[object, ...]
) -> None:
    app = write_app(tmp_path, text)
    expected = undisturbed(start, app, *argv)
    job = start(app, *argv, every=0.3)
    job.wait_event("committed", 2)
    job.kill_rank(2)
    job.wait_event("restarted")
    assert job.finish() == 0, job.report()
    assert job.events("rank-died", rank=2), job.report()
    assert job.events("restarting")[0]["from_epoch"] >= 1
    assert outputs(job) == expected


def test_the_output_passed_through_is_printed_once(start: Start, tmp_path: Path) -> None:
    app = write_app(tmp_path, RING)
    undisturbed(start, app, 1200, 0.0005)
    job = start(app, 1200, 0.0005, every=0.2)
    job.wait_event("committed", 2)
    job.kill_rank(0)
    assert job.finish() == 0, job.report()
    plain = (tmp_path / "undisturbed.stdout").read_text()
    assert sorted(job.stdout.splitlines()) == sorted(plain.splitlines())


def test_a_rank_killed_while_a_checkpoint_is_under_way(start: Start, tmp_path: Path) -> None:
    app = write_app(tmp_path, RING)
    expected = undisturbed(start, app, 1500, 0.0005)
    job = start(app, 1500, 0.0005, every=0.4)
    job.wait_event("committed", 1)
    number = len(job.events("round-started"))
    job.wait_event("round-started", number + 1)
    job.kill_rank(1)
    assert job.finish() == 0, job.report()
    assert outputs(job) == expected


def test_ranks_killed_again_and_again_also_during_restart(start: Start, tmp_path: Path) -> None:
    app = write_app(tmp_path, RING)
    expected = undisturbed(start, app, 1500, 0.0005)
    job = start(app, 1500, 0.0005, every=0.2)
    chance = random.Random(7)
    for incarnation in range(8):  # every second kill comes while the ranks are being started again
        if incarnation % 2 == 0:
            job.wait_event("committed", incarnation // 2 + 1)
        victim = job.wait_event("rank-started", rank=chance.randrange(4), incarnation=incarnation)
        os.kill(victim["pid"], signal.SIGKILL)
        job.wait_event("restarting", incarnation + 1)
    assert job.finish() == 0, job.report()
    assert outputs(job) == expected


def test_before_the_first_commit_the_program_starts_again(start: Start, tmp_path: Path) -> None:
    app = write_app(tmp_path, RING)
    expected = undisturbed(start, app, 1500, 0.0005)
    job = start(app, 1500, 0.0005)
    job.wait_for(lambda: "step 500" in job.output(0), "some progress")
    job.kill_rank(3)
    assert job.finish() == 0, job.report()
    assert job.events("restarting")[0]["from_epoch"] in (None, 0)
    assert outputs(job) == expected


COLLECTS = """
    import gc, sys, weakref
    import ckpt
    from tools import die_once

    class Node:
        pass

    def garbage():
        node = Node()
        node.itself = node
        return weakref.ref(node)

    ckpt.enable()
    gc.set_threshold(int(sys.argv[1]), 7, 8)
    if sys.argv[2] == "off":
        gc.disable()
    ckpt.checkpoint()
    die_once()
    nodes = [garbage() for _ in range(3 * int(sys.argv[1]))]
    print(gc.isenabled(), gc.get_threshold(), any(node() is None for node in nodes))
"""


@pytest.mark.parametrize("setting", ["on", "off"])
def test_garbage_is_collected_after_a_restart_as_it_was_before(
    start: Start, tmp_path: Path, setting: str
) -> None:
    """It was off: the child that writes an image turns its own off, and noted that."""
    job = start(app_of(tmp_path, COLLECTS), 600, setting, ranks=1, image_mode="fork")
    assert job.finish() == 0, job.report()
    assert [event["from_epoch"] for event in job.events("restarted")] == [1]
    on = setting == "on"
    assert job.output(0) == f"{on} (600, 7, 8) {on}\n"


ALARMED = """
    import signal
    import ckpt
    from tools import die_once

    rung = []
    ckpt.enable()
    signal.signal(signal.SIGALRM, lambda number, frame: rung.append(number))
    signal.setitimer(signal.ITIMER_REAL, 1000, 500)
    ckpt.checkpoint()
    die_once()
    first_s, interval_s = signal.getitimer(signal.ITIMER_REAL)
    print(0 < first_s <= 1000, interval_s)
    signal.setitimer(signal.ITIMER_REAL, 0.01)
    while not rung:
        signal.pause()
    print(rung == [signal.SIGALRM])
"""


def test_an_alarm_that_is_set_rings_after_a_restart_too(start: Start, tmp_path: Path) -> None:
    """A forked child inherits no timer, and noted that there was none."""
    job = start(app_of(tmp_path, ALARMED), ranks=1, image_mode="fork")
    assert job.finish() == 0, job.report()
    assert [event["from_epoch"] for event in job.events("restarted")] == [1]
    assert job.output(0) == "True 500.0\nTrue\n"


def test_restart_after_the_controller_and_all_ranks_are_gone(start: Start, tmp_path: Path) -> None:
    app = write_app(tmp_path, RING)
    expected = undisturbed(start, app, 1500, 0.0005)
    job = start(app, 1500, 0.0005, every=0.3)
    job.wait_event("committed", 2)
    job.process.kill()
    job.process.wait()
    for rank in range(4):
        with contextlib.suppress(ProcessLookupError):  # the agent ends the others when one has died
            os.kill(job.pid(rank), signal.SIGKILL)
    job.go()
    done = run_ckpt("restart", job.directory)
    assert done.returncode == 0, done.stderr + job.report()
    assert outputs(job) == expected


def test_ranks_go_on_without_a_controller_and_restart_picks_the_job_up(start: Start, tmp_path: Path) -> None:
    app = write_app(tmp_path, RING)
    expected = undisturbed(start, app, 1500, 0.0005)
    job = start(app, 1500, 0.0005, every=0.3)
    job.wait_event("committed", 1)
    job.process.kill()
    job.process.wait()
    job.go()
    done = run_ckpt("restart", job.directory)
    assert done.returncode == 0, done.stderr + job.report()
    assert outputs(job) == expected


def test_ranks_left_alone_finish_and_restart_reports_their_result(start: Start, tmp_path: Path) -> None:
    app = write_app(tmp_path, RING)
    expected = undisturbed(start, app, 1500, 0.0005)
    job = start(app, 1500, 0.0005, every=0.3)
    job.wait_event("committed", 1)
    job.process.kill()
    job.process.wait()
    job.go()
    job_finished = time.monotonic() + 60
    while not job.events("job-finished") and time.monotonic() < job_finished:
        time.sleep(0.05)
    assert outputs(job) == expected, job.report()
    done = run_ckpt("restart", job.directory)
    assert done.returncode == 0, done.stderr + job.report()


def test_restart_from_an_older_epoch(start: Start, tmp_path: Path) -> None:
    app = write_app(tmp_path, RING)
    expected = undisturbed(start, app, 1200, 0.0005)
    job = start(app, 1200, 0.0005, every=0.3)
    job.wait_event("committed", 3)
    assert job.finish() == 0, job.report()
    listed = run_ckpt("ls", job.directory, "--json")
    assert listed.returncode == 0, listed.stderr
    epochs = sorted({event["epoch"] for event in job.events("committed")})[-2:]
    done = run_ckpt("restart", f"{job.directory}@{epochs[0]}")
    assert done.returncode == 0, done.stderr + job.report()
    assert outputs(job) == expected


def test_resume_auto_starts_or_goes_on(start: Start, tmp_path: Path) -> None:
    app = write_app(tmp_path, RING)
    expected = undisturbed(start, app, 1200, 0.0005)
    job = start(app, 1200, 0.0005, every=0.2, resume="auto")
    job.wait_event("committed", 1)
    stopped = run_ckpt("checkpoint", job.directory, "--stop")
    assert stopped.returncode == 0, stopped.stderr + job.report()
    assert job.finish() == 75, job.report()
    again = start(app, 1200, 0.0005, every=0.2, resume="auto")
    assert again.finish() == 0, again.report()
    assert outputs(again) == expected


def test_restarts_are_counted_and_used_up(start: Start, tmp_path: Path) -> None:
    app = write_app(
        tmp_path,
        """
        import os, signal, time
        import ckpt
        comm = ckpt.enable()
        print("restarts", ckpt.restarts(), os.environ["CKPT_RESTARTS"])
        comm.barrier()  # everybody has printed
        if comm.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        comm.barrier()
        """,
    )
    job = start(app, ranks=2, max_restarts=2)
    assert job.finish() == 14, job.report()
    assert "restarts 2 2" in job.output(0)
    assert len(job.events("restarting")) == 2

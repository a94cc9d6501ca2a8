"""Processes that stand still and clocks that jump: the job goes on, rounds end, the result is the same."""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.system.apps import RING
from tests.system.support import Job, ckpt_command, write_app

pytestmark = [pytest.mark.system, pytest.mark.timeout(300), pytest.mark.turns(12)]

Start = Callable[..., Job]
STEPS, PAUSE_S = 1000, 0.001


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> str:
    directory = tmp_path_factory.mktemp("undisturbed")
    job = Job(directory / "job", "-n", 3, "--", write_app(directory, RING), STEPS, PAUSE_S)
    try:
        assert job.finish() == 0, job.report()
        return job.output(0)
    finally:
        job.close()


# ---------------------------------------------------------------------- SIGSTOP, SIGCONT


@pytest.mark.parametrize("victim", ["rank", "agent", "controller"])
def test_a_process_that_is_stopped_and_goes_on_changes_nothing(
    start: Start, tmp_path: Path, expected: str, victim: str
) -> None:
    job = start(write_app(tmp_path, RING), STEPS, PAUSE_S, ranks=3, every=0.15, timeout=0.6)
    job.wait_event("committed")
    pid = {
        "rank": lambda: job.pid(1),
        "agent": lambda: int(job.events("agent-started")[-1]["pid"]),
        "controller": lambda: job.process.pid,
    }[victim]()
    before = len(job.events("committed"))
    os.kill(pid, signal.SIGSTOP)
    if victim == "rank":
        # No vote of a rank that stands still: its round is burnt, and says which rank it waited for.
        burnt = job.wait_event("round-aborted")
        assert "rank 1" in burnt["reason"]
    else:
        time.sleep(1.5)
    os.kill(pid, signal.SIGCONT)
    job.wait_event("committed", before + 1)
    assert job.finish() == 0, job.report()
    assert job.output(0) == expected
    assert not job.events("restarting"), "nobody has died"


def test_an_image_child_that_is_stopped_costs_its_round_and_no_more(
    start: Start, tmp_path: Path, expected: str
) -> None:
    from tests.system.points.catalogue import Point

    armed = tmp_path / "armed"
    point = Point("stopped", "child", "ckpt.store.images.writer:ImageWriter.finish", "before")
    environment = point.environment(armed, "stop")
    job = start(write_app(tmp_path, RING), STEPS, PAUSE_S, ranks=3, every=0.15, timeout=0.6, env=environment)
    job.wait_event("committed")
    armed.touch()
    job.wait_event("round-aborted")
    after = len(job.events("committed"))
    job.wait_event("committed", after + 1)
    assert job.finish() == 0, job.report()
    assert job.output(0) == expected


# ---------------------------------------------------------------------- the interpreter lock held


HOLDS_THE_LOCK = """
    import ctypes, sys
    import ckpt

    comm = ckpt.enable()
    comm.barrier()
    if comm.rank == 1:
        print("away", flush=True)
        ctypes.PyDLL(None).sleep(10)       # C code that keeps the interpreter lock: nothing of Python runs
        print("back", flush=True)
    values = comm.allgather(comm.rank * comm.rank)
    for i in range(100):
        values = comm.allgather(sum(values) % 1009 + comm.rank)
    print("result", values)
"""


def test_a_rank_that_holds_the_interpreter_lock_for_three_times_as_long_as_a_round_may_take(
    start: Start, tmp_path: Path
) -> None:
    job = start(write_app(tmp_path, HOLDS_THE_LOCK), ranks=3, every=1, timeout=3)
    job.wait_for(lambda: "away" in job.output(1), "rank 1 is away")
    burnt = job.wait_event("round-aborted")
    assert "rank 1" in burnt["reason"], burnt
    assert job.finish(timeout_s=120) == 0, job.report()
    assert not job.events("restarting") and not job.events("rank-died")
    assert len({job.output(rank).split("result")[1] for rank in range(3)}) == 1
    assert job.output(1).startswith("away\nback\n")


# ---------------------------------------------------------------------- clocks


@pytest.mark.rotate(6)
@pytest.mark.parametrize("jump_s", [3600, -3600, 3_000_000])
def test_the_wall_clock_jumps(
    start: Start, tmp_path: Path, expected: str, clock_library: Path, jump_s: int
) -> None:
    offset = tmp_path / "offset"
    offset.write_bytes(bytes(8))
    environment = {"LD_PRELOAD": str(clock_library), "CKPT_TEST_CLOCK": str(offset)}
    job = start(write_app(tmp_path, RING), STEPS, PAUSE_S, ranks=3, every=0.15, env=environment)
    first = job.wait_event("committed")
    with offset.open("r+b") as file:  # in place: the processes have it mapped
        file.write(struct.pack("<q", jump_s))
    later = job.wait_event("committed", 4)
    moved_s = (later["ns"] - first["ns"]) / 1e9
    assert abs(moved_s - jump_s) < 600, "the clock was not moved at all"
    job.kill_rank(2)
    job.wait_event("restarted")
    assert job.finish() == 0, job.report()
    assert job.output(0) == expected


def can_move_clocks() -> bool:
    command = ["unshare", "--time", "--monotonic", "1000", "--fork", "true"]
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


@pytest.mark.rotate(8)
@pytest.mark.skipif(not can_move_clocks(), reason="needs root and time namespaces (unshare --time)")
@pytest.mark.parametrize("later_s", [5_000_000, -1])
def test_a_restart_on_a_machine_whose_monotonic_clock_is_elsewhere(
    start: Start, tmp_path: Path, expected: str, later_s: int
) -> None:
    """A clock that counts from the boot of another machine is ahead, or behind: images hold no times of it."""
    offset = 5_000_000

    def shifted(by: int, *arguments: object) -> list[str]:
        return ["unshare", "--time", "--monotonic", str(by), "--fork", *ckpt_command(*arguments)]

    app = write_app(tmp_path, RING)
    begun, resumed = (0, offset) if later_s > 0 else (offset, 0)
    directory = tmp_path / "job"
    run = ("run", "--job", directory, "-n", 3, "--every", 0.15, "--", app, STEPS, PAUSE_S)
    go = tmp_path / "go"
    first = subprocess.Popen(
        shifted(begun, *run),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "CKPT_TEST_GO": str(go)},
    )
    events = directory / "events.jsonl"
    until = time.monotonic() + 60
    while not (events.exists() and events.read_text().count('"committed"') >= 3):
        assert time.monotonic() < until and first.poll() is None, first.communicate()
        time.sleep(0.01)
    stopped = subprocess.run(
        ckpt_command("checkpoint", directory, "--stop"), capture_output=True, text=True, timeout=60
    )
    assert stopped.returncode == 0, stopped.stderr
    first.communicate(timeout=60)
    go.touch()
    done = subprocess.run(shifted(resumed, "restart", directory), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert (directory / "output" / "rank-0.out").read_text() == expected

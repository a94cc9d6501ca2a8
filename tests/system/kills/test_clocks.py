"""A program that has kept times of the monotonic clock, and goes on in another boot of a host. A time namespace is one."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.system.support import Job, jobs_fixture, run_ckpt, write_app

pytestmark = pytest.mark.system

WEEKS_S = 40 * 86_400
UP_FOR_WEEKS = (
    *("unshare", "--time", "--fork"),
    *("--monotonic", str(WEEKS_S), "--boottime", str(WEEKS_S)),
)

KEEPS_TIMES = """
    import asyncio, os, queue, sys, threading, time
    from time import monotonic, perf_counter_ns as ticks

    import ckpt
    from ckpt import MPI

    comm = ckpt.enable()
    CLOCKS = [monotonic, time.monotonic, time.perf_counter, lambda: ticks() / 1e9, MPI.Wtime]
    CLOCKS.append(lambda: time.clock_gettime(time.CLOCK_MONOTONIC))
    began = [clock() for clock in CLOCKS]
    deadline = monotonic() + 1.0
    last = list(began)


    def look():
        for number, clock in enumerate(CLOCKS):
            now = clock()
            assert now >= last[number], (number, now, last[number])
            assert now - began[number] < 3600, "it has not run for an hour"
            last[number] = now


    def waits():
        while not os.path.exists(os.environ["CKPT_TEST_GO"]):
            time.sleep(0.01)
        while monotonic() < deadline:  # it is over, or nearly: this must not last for weeks
            time.sleep(0.01)


    async def timers():
        loop = asyncio.get_running_loop()
        began = loop.time()
        while not os.path.exists(os.environ["CKPT_TEST_GO"]):
            await asyncio.sleep(0.01)
            assert 0 <= loop.time() - began < 3600
        await asyncio.wait_for(asyncio.sleep(0.05), 60)


    thread = threading.Thread(target=waits)
    thread.start()
    step = 0
    print("begun", flush=True)
    while comm.bcast(not os.path.exists(os.environ["CKPT_TEST_GO"]), root=0):
        look()
        step += 1
        assert comm.sendrecv(step, dest=(comm.rank + 1) % comm.size, source=comm.rank - 1) == step
        time.sleep(0.005)
    while (left := deadline - monotonic()) > 0:
        time.sleep(min(left, 0.01))
    asyncio.run(timers())
    thread.join()
    try:
        queue.Queue().get(timeout=0.05)
    except queue.Empty:
        look()
    comm.barrier()
    print("well")
"""

EXPLICIT = """
    import os, time

    import ckpt

    comm = ckpt.enable()
    kept = {"began": time.monotonic(), "deadline": time.monotonic() + 1.0, "last": 0.0}
    ckpt.register("kept", kept)
    print("begun", flush=True)
    for step in ckpt.loop(range(10**6)):
        now = time.monotonic()
        assert now >= kept["last"] and now - kept["began"] < 3600
        kept["last"] = now
        if comm.bcast(os.path.exists(os.environ["CKPT_TEST_GO"]), root=0):
            break
        time.sleep(0.005)
    while time.monotonic() < kept["deadline"]:
        time.sleep(0.01)
    comm.barrier()
    print("well")
"""


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Job]]:
    yield from jobs_fixture(tmp_path)


def needs_time_namespaces() -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root, for time namespaces")
    if shutil.which("unshare") is None:
        pytest.skip("needs unshare")
    probe = subprocess.run((*UP_FOR_WEEKS, "true"), capture_output=True, check=False)
    if probe.returncode:
        pytest.skip(f"no time namespaces here: {probe.stderr.decode().strip()}")


@pytest.mark.rotate(2)
@pytest.mark.parametrize(
    "program, first, then",
    [
        pytest.param(KEEPS_TIMES, UP_FOR_WEEKS, (), id="back"),
        pytest.param(KEEPS_TIMES, (), UP_FOR_WEEKS, id="ahead", marks=pytest.mark.nightly),
        pytest.param(EXPLICIT, UP_FOR_WEEKS, (), id="back, explicit", marks=pytest.mark.nightly),
        pytest.param(EXPLICIT, (), UP_FOR_WEEKS, id="ahead, explicit", marks=pytest.mark.nightly),
    ],
)
def test_a_deadline_holds_on_a_host_that_is_up_for_another_time(
    start: Callable[..., Job],
    tmp_path: Path,
    program: str,
    first: tuple[str, ...],
    then: tuple[str, ...],
) -> None:
    """Of a host that has been up for weeks to one that has not, and the other way; there it dies once, and goes on once
    more, with clocks that are another boot's already."""
    needs_time_namespaces()
    app = write_app(tmp_path, program)
    more = {"explicit": True} if program is EXPLICIT else {}
    job = start(app, ranks=2, every=0.3, within=first, max_restarts=2, **more)
    job.wait_event("committed")
    stopped = run_ckpt("checkpoint", "--stop", job.directory)
    assert stopped.returncode == 0, stopped.stderr
    assert job.process.wait(60) == 75, job.report()
    again = Job(job.directory, job.directory, verb="restart", within=then)
    try:
        before = len(again.events("committed"))
        again.wait_event("committed", before + 2)
        again.kill_rank(1) if not then else again.wait_event("committed", before + 3)
        again.wait_event("committed", before + 4)
        assert again.finish() == 0, again.report()
        assert [again.output(rank).split() for rank in (0, 1)] == [["begun", "well"]] * 2, again.report()
    finally:
        again.close()

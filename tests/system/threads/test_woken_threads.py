"""A thread that a condition has woken waits for its lock, which another one holds while the image is taken."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.system.support import Job, jobs_fixture, run_ckpt, write_app

pytestmark = pytest.mark.system

WOKEN = """
    import os, threading, time

    import ckpt

    ckpt.enable()
    condition, done, got = threading.Condition(), [], []


    def waiter():
        with condition:
            for i in range(3):
                while len(done) <= i:
                    condition.wait(timeout=600)
                got.append(i)


    thread = threading.Thread(target=waiter)
    thread.start()
    for i in range(3):
        with condition:
            done.append(i)
            condition.notify_all()
            if i == 1:
                print("held", flush=True)
                while not os.path.exists(os.environ["CKPT_TEST_GO"]):
                    time.sleep(0.01)
    thread.join()
    print(got)
"""


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Job]]:
    yield from jobs_fixture(tmp_path)


def test_a_thread_that_was_woken_owns_the_lock_when_it_gets_it(
    start: Callable[..., Job], tmp_path: Path
) -> None:
    """Its identifier is another one in the new process; the lock was given to that of the old one, for ever."""
    job = start(write_app(tmp_path, WOKEN), ranks=1)
    job.wait_for(lambda: "held" in job.output(0), "the lock is held")
    stopped = run_ckpt("checkpoint", "--stop", job.directory)
    assert stopped.returncode == 0, stopped.stderr
    assert job.process.wait(60) == 75, job.report()
    again = Job(job.directory, job.directory, verb="restart")
    try:
        assert again.finish() == 0, again.report()
    finally:
        again.close()
    assert again.output(0) == "held\n[0, 1, 2]\n"

"""`time.sleep` of the main thread: a checkpoint comes meanwhile, and it is otherwise what it was."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.system.support import Job, write_app

pytestmark = [pytest.mark.system]
Start = Callable[..., Job]


def test_a_program_that_sleeps_is_killed_and_sleeps_again(start: Start, tmp_path: Path) -> None:
    """It had no checkpoint until the end of the sleep; a monitor that looks once a minute has hardly anything else."""
    app = write_app(
        tmp_path,
        """
        import time

        def look(count):
            for number in range(count):
                print("look", number, flush=True)
                time.sleep(0.8 if number < 2 else 0.01)
            return number

        print("end", look(4))
        """,
    )
    job = start(app, ranks=2, every=0.1)
    job.wait_event("committed", 2)
    job.kill_rank(1)
    job.wait_event("restarted")
    assert job.finish() == 0, job.report()
    assert [job.output(rank) for rank in range(2)] == ["look 0\nlook 1\nlook 2\nlook 3\nend 3\n"] * 2
    assert all(event["from_epoch"] for event in job.events("restarting")) and not job.events("refused")


SLEEPS = """
    import signal, time

    def slept(seconds):
        began = time.monotonic()
        time.sleep(seconds)
        return seconds <= time.monotonic() - began < seconds + 5

    class Own(float):
        pass

    def fails(*_):
        raise KeyError("rings")

    print([slept(seconds) for seconds in (0, 0.01, 0.06, 0.2, 1, Own(0.1), True)])
    for bad in (-1, "1", 1e20, 10**30, float("nan"), None):
        try:
            time.sleep(bad)
        except Exception as error:
            print(type(error).__name__, error)
    signal.signal(signal.SIGALRM, lambda *_: print("rings"))
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    print(slept(0.4))
    signal.signal(signal.SIGALRM, fails)
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    try:
        time.sleep(600)
    except KeyError as error:
        print(error)
    print(time.sleep, time.sleep.__doc__[:20])
"""


def test_sleeping_is_what_it_is_without_ckpt(start: Start, tmp_path: Path) -> None:
    """Bad times, signal handlers that return and that raise."""
    app = write_app(tmp_path, SLEEPS)
    plain = subprocess.run([sys.executable, app], capture_output=True, text=True, check=True, timeout=100)
    job = start(app, ranks=1, every=0.1)
    assert job.finish() == 0, job.report()
    assert job.output(0) == plain.stdout and "False" not in plain.stdout
    assert job.events("committed")

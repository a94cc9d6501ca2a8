"""What a thread writes that is declared harmless goes back, too. It goes on while an image is taken, and is not in it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.system.support import Job, write_app

pytestmark = [pytest.mark.system, pytest.mark.turns(3)]

HARMLESS = """
    import os, signal, sys, threading, time
    import ckpt
    ckpt.enable(harmless_threads=["writer"])
    job = os.environ["CKPT_JOB"]
    os.chdir(sys.argv[1])

    def write():
        for n in range(1_000_000):
            with open("log", "a") as file:
                file.write(f"{n}\\n")
            with open("state.tmp", "w") as file:
                file.write(f"{n}")
            os.replace("state.tmp", "state")

    def lines():
        with open("log") as file:
            return file.read().splitlines()

    threading.Thread(target=write, name="writer", daemon=True).start()
    while not os.path.exists("state"):
        time.sleep(0.001)
    while '"committed"' not in open(f"{job}/events.jsonl").read():
        before = len(lines())  # an image cannot be taken while the thread opens a file
        ckpt.checkpoint()
        time.sleep(0.3)
    if not os.path.exists(f"{job}/at-death"):
        time.sleep(0.1)
        with open(f"{job}/at-death", "w") as file:
            file.write(str(len(lines())))
        os.kill(os.getpid(), signal.SIGKILL)
    print(before, open(f"{job}/at-death").read(), open("state").read(), *lines())
"""


def test_what_a_harmless_thread_writes_goes_back(start: Callable[..., Job], tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    job = start(write_app(tmp_path, HARMLESS), out, ranks=1, files="auto")
    assert job.finish() == 0, job.report()
    before, at_death, state, *lines = map(int, job.output(0).split())
    assert lines == list(range(len(lines))), "whole lines, none is missing, none is there twice"
    assert state in (len(lines) - 1, len(lines) - 2), "both files are of one moment"
    assert before <= len(lines) < at_death, "that of the image"
    events = {event["event"] for event in job.events()}
    assert not events & {"files-not-put-back", "files-not-covered", "files-not-undone"}, job.report()

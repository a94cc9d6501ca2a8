"""What a program has changed in installed packages survives a real restart; what does not is said, everywhere."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.system.support import Job, run_ckpt, write_app

pytestmark = [pytest.mark.system, pytest.mark.turns(5)]

Start = Callable[..., Job]

PROGRAM = """
    import os, sys, time, zlib

    here = os.path.dirname(os.path.abspath(__file__))
    sys.path.insert(0, here + "/site-packages")
    import bad, good

    def work():
        good.settings["level"] = bad.level = 2
        bad.unpacker = zlib.decompressobj()
        open(here + "/ready", "w").close()
        while not os.path.exists(here + "/go"):
            time.sleep(0.01)
        print(good.settings, bad.level)

    work()
"""


def write_program(directory: Path) -> Path:
    place = directory / "site-packages"
    place.mkdir()
    (place / "good.py").write_text("settings = {'level': 1}\n")
    (place / "bad.py").write_text("level, unpacker = 1, None\n")
    return write_app(directory, PROGRAM)


def test_a_restart_has_what_was_changed_and_says_what_it_has_not(start: Start, tmp_path: Path) -> None:
    job = start(write_program(tmp_path), ranks=1, every=0.2)
    job.wait_for((tmp_path / "ready").exists, "the program has begun")
    before = len(job.events("committed")) + 1  # of a round that had begun already, perhaps
    job.wait_for(lambda: len(job.events("committed")) > before, "an image of the program at work")
    done = run_ckpt("inspect", job.directory, "--json")
    (rank,) = json.loads(done.stdout)["ranks"]
    ((kind, package, variables),) = [
        (row["kind"], row["package"], row["variables"]) for row in rank["left_out"]
    ]
    assert (kind, package, variables) == ("unsaved", "bad", ["bad.unpacker"])
    assert "bad: bad.unpacker: " in run_ckpt("inspect", job.directory, "-r", 0).stdout
    assert job.events("packages-left-out", rank=0)[0]["packages"] == ["bad"]
    job.kill_rank(0)
    job.wait_event("restarted")
    (tmp_path / "go").touch()
    assert job.finish() == 0, job.report()
    assert job.stdout == "{'level': 2} 1\n", job.report()


def test_doctor_names_the_package_that_cannot_be_saved(tmp_path: Path) -> None:
    app = write_program(tmp_path)
    done = run_ckpt("doctor", "--seconds", "3", "--json", app)
    found = [problem for problem in json.loads(done.stdout)["problems"] if problem["kind"] == "package"]
    assert [(each["where"], "on_restart" in each["remedy"]) for each in found] == [("bad.unpacker", True)]

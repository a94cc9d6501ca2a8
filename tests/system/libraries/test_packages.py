"""What a program has changed in installed packages survives a real restart; what does not is said, everywhere."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.system.support import Job, run_ckpt, write_app

pytestmark = [pytest.mark.system, pytest.mark.turns(8)]

Start = Callable[..., Job]

PROGRAM = """
    import os, sys, time, bz2

    here = os.path.dirname(os.path.abspath(__file__))
    sys.path.insert(0, here + "/site-packages")
    import bad, good, odd

    def work():
        good.settings["level"] = bad.level = 2
        bad.unpacker = bz2.BZ2Decompressor()
        odd.level, odd.source = 2, iter("abc")
        open(here + "/ready", "w").close()
        while not os.path.exists(here + "/go"):
            time.sleep(0.01)
        print(good.settings, bad.level, odd.level)

    work()
"""


def write_program(directory: Path) -> Path:
    place = directory / "site-packages"
    place.mkdir()
    (place / "good.py").write_text("settings = {'level': 1}\n")
    (place / "bad.py").write_text("level, unpacker = 1, None\n")
    (place / "odd.py").write_text("level, source = 1, None\n")
    return write_app(directory, PROGRAM)


def test_a_restart_has_what_was_changed_and_says_what_it_has_not(start: Start, tmp_path: Path) -> None:
    job = start(write_program(tmp_path), ranks=1, every=0.2)
    job.wait_for((tmp_path / "ready").exists, "the program has begun")
    before = len(job.events("committed")) + 1  # of a round that had begun already, perhaps
    job.wait_for(lambda: len(job.events("committed")) > before, "an image of the program at work")
    done = run_ckpt("inspect", job.directory, "--json")
    (rank,) = json.loads(done.stdout)["ranks"]
    assert [(row["kind"], row["package"], row["variables"]) for row in rank["left_out"]] == [
        ("unsaved", "bad", ["bad.unpacker"]),
        ("not-plain", "odd", ["odd.source"]),
    ]
    assert "bad: bad.unpacker: " in run_ckpt("inspect", job.directory, "-r", 0).stdout
    assert job.events("packages-left-out", rank=0)[0]["packages"] == ["bad", "odd"]
    job.kill_rank(0)
    job.wait_event("restarted")
    anew = [(event["kind"], event["package"]) for event in job.events("package-starts-anew", rank=0)]
    assert anew == [("unsaved", "bad"), ("not-plain", "odd")]
    (tmp_path / "go").touch()
    assert job.finish() == 0, job.report()
    assert job.stdout == "{'level': 2} 1 1\n", job.report()


def test_doctor_names_the_packages_that_are_not_kept(tmp_path: Path) -> None:
    app = write_program(tmp_path)
    done = run_ckpt("doctor", "--seconds", "3", "--json", app)
    found = [problem for problem in json.loads(done.stdout)["problems"] if problem["kind"] == "package"]
    named = {each["where"]: each["remedy"] for each in found}
    assert list(named) == ["bad.unpacker", "odd.source"] and all(
        "on_restart" in text for text in named.values()
    )
    assert "ckpt.keep_package" in named["odd.source"]

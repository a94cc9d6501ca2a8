"""A job whose directory has moved, and whose script has changed, since its checkpoint."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.system.support import run_ckpt, write_app

pytestmark = pytest.mark.system

APP = """
    import os, sys, time
    import ckpt, helper
    ckpt.enable()
    log = open("log.txt", "a")
    log.write("before\\n")
    log.flush()
    data = open("data.txt")
    first = data.readline()
    ckpt.checkpoint()
    while ckpt.restarts() == 0:
        time.sleep(0.01)  # until it is stopped
    log.write("after\\n")
    log.close()
    sys.modules.pop("other", None)
    import other  # at the place where the directory is now
    print(first.strip(), data.readline().strip(), os.getcwd(), other.NAME, open("later.txt").read())
"""


@pytest.mark.rotate(2)
def test_a_restart_after_the_directory_has_moved_and_the_script_has_changed(tmp_path: Path) -> None:
    before, now = tmp_path / "before", tmp_path / "now"
    before.mkdir()
    write_app(before, APP)
    (before / "helper.py").write_text("X = 1\n")
    (before / "other.py").write_text("NAME = 'other'\n")
    (before / "data.txt").write_text("one\ntwo\n")
    stopped = run_ckpt("run", "--job", "job", "--time-limit", "0.5", "app.py", cwd=before)
    assert stopped.returncode == 75, stopped.stderr
    before.rename(now)
    (now / "later.txt").write_text("later")
    (now / "app.py").write_text("print('another program')\n")

    elsewhere = run_ckpt("restart", now / "job", cwd=tmp_path)
    assert elsewhere.returncode != 0 and "--chdir" in elsewhere.stderr, elsewhere.stderr
    assert run_ckpt("restart", now / "job", "--chdir", tmp_path / "nowhere").returncode == 2

    done = run_ckpt("restart", now / "job", "--chdir", now, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"one two {os.path.realpath(now)} other later\n"
    assert done.stderr.count("app.py has changed since the job was started") == 1, done.stderr
    assert (now / "log.txt").read_text() == "before\nafter\n"


def test_nothing_is_said_of_a_script_that_is_as_it_was(tmp_path: Path) -> None:
    write_app(tmp_path, "import time\ntime.sleep(0.3)\nwhile True: time.sleep(0.01)\n")
    arguments = ("--job", "job", "--every", "0.05", "--time-limit", "0.6", "app.py")
    assert run_ckpt("run", *arguments, cwd=tmp_path).returncode == 75
    again = run_ckpt("restart", "job", "--time-limit", "0.3", cwd=tmp_path)
    assert again.returncode == 75 and "has changed" not in again.stderr, again.stderr

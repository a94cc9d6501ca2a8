"""A rank that cannot be captured: named, counted, in `ckpt status`, and its round burnt with the reason in time."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.system.support import Job, ckpt_command, run_ckpt, write_app

pytestmark = [pytest.mark.system, pytest.mark.turns(8)]

HIDDEN = """
    import array, os, time

    def slow(i):
        while i == 0 and not os.path.exists("go on"):
            time.sleep(0.005)
        return i

    print(int(sum(array.array("d", (slow(i) for i in range(3))))))
    while not os.path.exists("the end"):
        time.sleep(0.005)
"""


def status(job: Job) -> dict[str, Any]:
    return json.loads(run_ckpt("status", job.directory, "--json").stdout)  # type: ignore[no-any-return]


def test_a_round_that_gets_no_image_is_burnt_with_the_reason_and_status_keeps_the_wait(
    start: Callable[..., Job], tmp_path: Path
) -> None:
    job = start(write_app(tmp_path, HIDDEN), ranks=1, timeout=4)
    job.wait_event("running")
    asking = subprocess.Popen(ckpt_command("checkpoint", job.directory), stdout=subprocess.PIPE, text=True)
    job.wait_event("refused")
    while_open = status(job)
    [waits] = while_open["live"]["round"]["waits_for"]
    assert (
        waits["rank"] == 0 and "array() is running <genexpr>" in waits["what"] and "app.py:" in waits["where"]
    )
    [live] = while_open["live"]["ranks"]
    assert live["refused"] > 0 and live["refused_longest_ns"] > 0
    text = run_ckpt("status", job.directory).stdout
    assert "refused" in text and "array() is running <genexpr>" in text

    answer, _ = asking.communicate(timeout=60)
    assert asking.returncode == 1 and "array() is running <genexpr>" in answer and "app.py:9" in answer
    [burnt] = job.events("round-aborted")
    # The rank has the same limit: whichever comes first.
    assert "no line after 4 s" in burnt["reason"] or "not possible within the limit" in burnt["reason"]
    assert "array() is running <genexpr>" in burnt["reason"]
    [rank] = status(job)["ranks"]
    assert rank["refused_rounds"] == 1
    assert rank["longest_wait"]["captured"] is False and rank["longest_wait"]["ms"] >= 3000
    assert "array() is running <genexpr>" in rank["longest_wait"]["reason"]
    assert "longest for an image" in run_ckpt("status", job.directory).stdout

    (tmp_path / "go on").touch()
    job.wait_for(lambda: job.output(0) == "3\n", "the sum")
    assert run_ckpt("checkpoint", job.directory).returncode == 0, "afterwards it can be captured"
    (tmp_path / "the end").touch()
    assert job.finish() == 0, job.report()
    over = run_ckpt("status", job.directory).stdout
    assert "in vain (epoch 1, rank 0: array() is running <genexpr>" in over, "also of a job that has ended"


def test_a_wait_that_ended_well_is_kept_too(start: Callable[..., Job], tmp_path: Path) -> None:
    job = start(write_app(tmp_path, HIDDEN), ranks=1)
    job.wait_event("running")
    asking = subprocess.Popen(ckpt_command("checkpoint", job.directory), stdout=subprocess.PIPE, text=True)
    refused = job.wait_event("refused")
    assert refused["rank"] == 0 and "array() is running <genexpr>" in refused["reason"]
    time.sleep(0.3)
    (tmp_path / "go on").touch()
    assert asking.wait(60) == 0
    [rank] = status(job)["ranks"]
    assert rank["longest_wait"]["captured"] is True and rank["longest_wait"]["ms"] >= 300
    assert "array() is running <genexpr>" in rank["longest_wait"]["reason"]
    (tmp_path / "the end").touch()
    assert job.finish() == 0, job.report()

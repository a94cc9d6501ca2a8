"""A job whose ranks are killed while they wait in every kind of operation gives the undisturbed job's
result."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.system

PROGRAMS = ("every_operation.py", "mpi4py_objects.py")


def start(program: str, job: Path, *options: str, steps: int = 60) -> subprocess.Popen[str]:
    """It goes on beyond its middle when there is the file `go` beside the job."""
    command = [sys.executable, "-m", "ckpt", "run", "-n", "3", "--job", str(job), *options]
    return subprocess.Popen(
        [*command, str(Path(__file__).with_name(program)), str(steps)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "CKPT_TEST_GO": str(job.with_suffix(".go"))},
    )


def events(job: Path) -> list[dict[str, Any]]:
    try:
        lines = (job / "events.jsonl").read_text().splitlines()
    except FileNotFoundError:
        return []
    return [json.loads(line) for line in lines if line.endswith("}")]


def committed(job: Path) -> int:
    return sum(event["event"] == "committed" for event in events(job))


def outcome(process: subprocess.Popen[str]) -> list[str]:
    out, err = process.communicate(timeout=100)
    assert process.returncode == 0, err
    return sorted(out.split("\n"))


@pytest.mark.timeout(240)
@pytest.mark.rotate(4)
@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("seed", [1, 2])
def test_two_kills_change_nothing(tmp_path: Path, seed: int, program: str) -> None:
    choose = random.Random(seed)
    (tmp_path / "undisturbed.go").touch()
    expected = outcome(start(program, tmp_path / "undisturbed"))
    job = tmp_path / "killed"
    process = start(program, job, "--every", "0.2")
    for kill in (1, 2):
        wanted = committed(job) + choose.randint(2, 3)
        while committed(job) < wanted and process.poll() is None:
            time.sleep(0.02)
        assert process.poll() is None, f"it ended before kill {kill}: {process.communicate()}"
        time.sleep(choose.random() * 0.2)
        started = [event for event in events(job) if event["event"] == "rank-started"]
        victim = choose.choice(started[-3:])
        os.kill(victim["pid"], signal.SIGKILL)
        while (
            not any(event["event"] == "rank-died" for event in events(job)[-50:]) and process.poll() is None
        ):
            time.sleep(0.02)
    job.with_suffix(".go").touch()
    assert outcome(process) == expected
    assert sum(event["event"] == "restarting" for event in events(job)) == 2
    assert not [event for event in events(job) if event["event"] == "failed"]

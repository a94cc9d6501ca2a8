"""Programs that are imaged while they run."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SWEEP = Path(__file__).with_name("sweep.py")

# `work` gives the interpreter several checks; `emit` is the program's output.
PRELUDE = """
def emit(x):
    out(repr(x))
def work(n):
    total = 0
    for i in range(2):
        total += n + i
    return total
"""


def run_sweep(program: str, **task):
    """Image the program at its checks and resume every image; the report of sweep.py."""
    task["program"] = PRELUDE + program
    done = subprocess.run(
        [sys.executable, str(SWEEP)], input=json.dumps(task), capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def sweep():
    return run_sweep

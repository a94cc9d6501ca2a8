"""The modules below, in which an error would be worst, have 100 % branch coverage by unit tests.

The unit tests of each package run once under coverage. Other tests do not count, so every branch is covered by a test of its
own package, not by chance. The figures of every module in the package are printed (`-s`).

coverage does not see threads started with `_thread`; the code that they run is also tested in the main thread.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

# {package: (its unit tests, modules with every branch covered)}
PROMISED = {
    "ckpt/store": (
        "tests/unit/ckpt/store",
        "authenticated base codec control directory eventlog fsio likeness lines lock manifest memory packs pool privacy "
        "pruning reader schema source verification writer",
    ),
    "transport": (
        "tests/unit/transport tests/scenarios/transport",
        "config errors events frames ledger link endpoint rangeset state timeout window",
    ),
    "controller": (
        "tests/unit/controller tests/scenarios/controller",
        "boundaries coordinator events failure_policy history messages packet_events plan supervisor vectors",
    ),
}

# Sweeps that take the same branches over and over; one that measures memory, which coverage needs as well.
SWEEPS = "flipped_bit or forgotten or truncation or memory_of or random_flips or test_every_call_fails or acked_is_let_go"


def measure(package: str) -> dict[str, dict[str, object]]:
    """Run the tests of the package once; return {module: coverage's summary}."""
    with tempfile.TemporaryDirectory() as folder:
        return _measure(package, PROMISED[package][0], Path(folder))


def _measure(package: str, tests: str, folder: Path) -> dict[str, dict[str, object]]:
    data, report = folder / "data", folder / "report.json"
    run = [sys.executable, "-m", "coverage", "run", "--branch", f"--source={package}", f"--data-file={data}"]
    done = subprocess.run(
        [
            *run,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "--timeout",
            "600",
            "-k",
            f"not ({SWEEPS})",
            *tests.split(),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    command = [sys.executable, "-m", "coverage", "json", "-q", f"--data-file={data}", "-o", str(report)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    files = json.loads(report.read_text())["files"]
    return {Path(name).stem: found for name, found in files.items()}


@pytest.mark.nightly
@pytest.mark.timeout(900)
@pytest.mark.parametrize("package", PROMISED)
def test_every_branch_is_taken(package: str) -> None:
    pytest.importorskip("coverage")
    names, found = PROMISED[package][1], measure(package)
    missing = {}
    for module, figures in sorted(found.items()):
        summary = figures["summary"]
        assert isinstance(summary, dict)
        print(
            f"{package}/{module}.py: {summary['percent_covered']:.1f} %, {summary['num_branches']} branches"
        )
        if module in names.split() and summary["percent_covered"] < 100:
            missing[module] = {"lines": figures["missing_lines"], "branches": figures["missing_branches"]}
    assert set(names.split()) <= set(found), "a module is promised and does not exist"
    assert not missing

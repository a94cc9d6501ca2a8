"""`make demo` in small: real sea floor, two kills, the same bytes. Its exit status tells how it went."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]

pytestmark = [pytest.mark.system, pytest.mark.timeout(300), pytest.mark.turns(3)]


def run(*command: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, *map(str, command)]
    return subprocess.run(
        words, cwd=cwd, capture_output=True, text=True, timeout=280, stdin=subprocess.DEVNULL
    )


def test_the_demo_ends_with_equal_results(tmp_path: Path) -> None:
    small = ("--refine", 2, "--hours", 1.75, "--every", 0.5, "--timeout", 120)
    done = run(ROOT / "examples" / "demo.py", "--out", tmp_path / "out", *small, cwd=tmp_path)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    assert "equal, byte for byte" in done.stdout
    assert "while checkpoint" in done.stdout


@pytest.mark.parametrize(
    ("script", "arguments", "expected"),
    [
        ("ring.py", ("--laps", 200), "200 laps of {ranks} ranks"),
        ("pi_montecarlo.py", ("--tasks", 10, "--darts", 500), "pi is about 3.1"),
        ("heat.py", ("--cells", 100, "--steps", 50), "50 steps: "),
    ],
)
@pytest.mark.parametrize("ranks", [1, 3])
def test_the_examples_run(
    tmp_path: Path, script: str, arguments: tuple[object, ...], expected: str, ranks: int
) -> None:
    job = ("--job", tmp_path / "job")
    example = ROOT / "examples" / script
    done = run("-m", "ckpt", "run", "-n", ranks, *job, "--", example, *arguments, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(expected.format(ranks=ranks))


def test_the_application_runs_under_plain_python_with_the_same_result(tmp_path: Path) -> None:
    tsunami = ROOT / "examples" / "tsunami" / "tsunami.py"
    flags = ("--refine", 1, "--hours", 0.2)
    plain = run(tsunami, "--out", tmp_path / "plain", *flags, cwd=tmp_path)
    assert plain.returncode == 0, plain.stderr
    job = ("--job", tmp_path / "job")
    two = run("-m", "ckpt", "run", "-n", 2, *job, "--", tsunami, "--out", "two", *flags, cwd=tmp_path)
    assert two.returncode == 0, two.stderr
    for name in ("result.npz", "result.txt", "gauges.csv"):
        assert (tmp_path / "plain" / name).read_bytes() == (tmp_path / "two" / name).read_bytes(), name

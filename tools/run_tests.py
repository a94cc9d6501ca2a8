"""Runs all tests, as `make test`, `make nightly` and CI do: in parallel, then one by one, then on other versions of Python.

    python tools/run_tests.py              the part for this commit: `make test`
    python tools/run_tests.py --nightly    everything but the long sweeps: `make nightly`
    python tools/run_tests.py PATH …       steps 1, 2 and 4 for these tests only

0. In a new checkout: the other version of Python is set up, and beside that pytest compiles the tests, once and not in
   each of its processes.
1. In parallel (pytest-xdist): all tests but those marked `serial`. Of cases marked `rotate`, the part for this commit.
2. One by one: those marked `serial`; they measure, or they load the whole machine.
3. On the other versions of Python (tools/other_pythons.py): the tests that depend on the interpreter.
4. At night only: those marked `timing`, a hundred times while all processors have other work.

At the end the run prints the slowest tests, and the skipped ones with the reasons. With CI set, a test that is skipped
because a program, a package or a permission is missing is a failure (CI has all of them), and so is a run above the time
limit (tools/bound.py). No test runs twice.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from bound import Moment, verdict

ROOT = Path(__file__).resolve().parents[1]
SLOWEST = 50
ELSEWHERE = (
    "another Python: ",
    "another kernel: ",
    "another machine: ",
)  # how the reason begins when a test belongs to another version, or to a machine with a GPU
NOTHING_SELECTED = 5  # pytest's exit code
TIMES_AT_NIGHT = 100


def workers() -> int:
    """The number of processors plus one: tests with real processes often wait."""
    return min((os.cpu_count() or 2) + 1, 16)


def pytest(report: Path, selected: str, *options: str) -> int:
    """Run pytest on the tests that the marks select. Returns its exit code, 0 if no test is selected."""
    # a directory of its own: nobody else's pytest tidies up there
    own = f"--basetemp={report}.d"
    command = [sys.executable, "-m", "pytest", "-m", selected, own, *options]
    code = subprocess.run(command, cwd=ROOT, env={**os.environ, "CKPT_TEST_REPORT": str(report)}).returncode
    return 0 if code == NOTHING_SELECTED else code


def with_serial_tests(paths: list[str]) -> list[str]:
    """The files below `paths` with tests that are marked `serial`: to collect all others takes longer than to run these."""
    found: list[str] = []
    for path in paths or ["tests"]:
        place = ROOT / path.partition("::")[0]
        files = [place] if place.is_file() else sorted(place.rglob("test_*.py"))
        marked = [str(file) for file in files if "mark.serial" in file.read_text(encoding="utf-8")]
        found += [path] if marked and place.is_file() else marked
    return found


def on_other_versions(nightly: bool) -> int:
    command = [sys.executable, str(ROOT / "tools" / "other_pythons.py"), *(["--nightly"] if nightly else [])]
    return subprocess.run(command, cwd=ROOT).returncode


def prepare(nightly: bool) -> None:
    """Set up the other versions of Python, and beside that compile the tests if no run has: either keeps one processor busy.

    Failures are found again, and told, by the steps that need what could not be made.
    """
    command = [sys.executable, str(ROOT / "tools" / "other_pythons.py"), "--prepare"]
    others = subprocess.Popen(
        [*command, *(["--nightly"] if nightly else [])], cwd=ROOT, stdout=subprocess.DEVNULL
    )
    if next((ROOT / "tests").rglob("*-pytest-*.pyc"), None) is None:
        collect = [sys.executable, "-m", "pytest", "--collect-only", "-q"]
        subprocess.run(collect, cwd=ROOT, stdout=subprocess.DEVNULL)
    others.wait()


def timing_under_load(report: Path, arguments: list[str]) -> int:
    """Run the tests that depend on time many times, while every processor has other work."""
    load = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2 * (os.cpu_count() or 2))
    ]
    try:
        for number in range(TIMES_AT_NIGHT):
            print(f"timing: {number + 1} of {TIMES_AT_NIGHT}", flush=True)
            code = pytest(report, "timing and not soak", "-x", *arguments)
            if code:
                return code
        return 0
    finally:
        for process in load:
            process.kill()
            process.wait()


def read(reports: list[Path]) -> list[dict[str, Any]]:
    return [test for path in reports if path.exists() for test in json.loads(path.read_text())]


def tell(tests: list[dict[str, Any]]) -> bool:
    """Print the slowest and the skipped tests. Returns: do all skipped tests belong to another Python or kernel?"""
    slowest = sorted(tests, key=lambda test: -test["seconds"])[:SLOWEST]
    print(f"\nthe {len(slowest)} slowest of {len(tests)} tests, seconds of the wall:")
    for test in slowest:
        print(f"{test['seconds']:8.1f}  {test['name']}")
    missing = False
    for test in tests:
        if test["skipped"]:
            elsewhere = test["skipped"].startswith(ELSEWHERE)
            missing = missing or not elsewhere
            print(f"skipped: {test['name']}: {test['skipped']}")
    return not missing


def main() -> int:
    parser = argparse.ArgumentParser(description="the tests")
    parser.add_argument("--nightly", action="store_true", help="everything but the long sweeps")
    parser.add_argument("--workers", type=int, default=workers(), help="how many tests at once")
    parser.add_argument("paths", nargs="*", help="of tests; default: all")
    arguments = parser.parse_args()
    began, on_ci = Moment.now(), bool(os.environ.get("CI"))
    # Set in many container images: every process of every test would compile again what has changed since `make setup`.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    chosen = "not soak" if arguments.nightly else "not soak and not nightly"
    rotate = () if arguments.nightly else ("--rotate",)
    # loadgroup: one test at a time to whoever is free, and a group of those that share something costly to one
    parallel = ("-n", str(arguments.workers), "--dist", "loadgroup")
    failed = []
    folder = Path(tempfile.mkdtemp(prefix="ckpt-tests-"))
    reports = [folder / name for name in ("parallel", "serial", "timing")]
    if not arguments.paths:
        prepare(arguments.nightly)
    if pytest(reports[0], f"{chosen} and not serial", *parallel, *rotate, *arguments.paths):
        failed.append("the tests")
    alone = with_serial_tests(arguments.paths)
    if alone and pytest(reports[1], f"{chosen} and serial", *rotate, *alone):
        failed.append("the tests that run alone")
    if not arguments.paths and on_other_versions(arguments.nightly):
        failed.append("the tests on other versions of Python")
    if arguments.nightly and timing_under_load(reports[2], arguments.paths):
        failed.append("the tests that depend on time, under load")
    if not tell(read(reports)) and on_ci:
        failed.append("tests were skipped that CI has everything for")
    if not arguments.nightly:
        kept, text = verdict("test", began, Moment.now())
        print(f"\n{text}")
        if not kept and on_ci:
            failed.append("the bound")
    if failed:
        print(f"FAILED: {'; '.join(failed)} (what the tests have left: {folder})")
    else:
        shutil.rmtree(folder, ignore_errors=True)
        print("all is well")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())

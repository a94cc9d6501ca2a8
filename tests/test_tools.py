"""The tools: the search for other versions of Python, and the reasons why one cannot be used; the time limit of a run;
the report of a run of the tests, and the parts of it that are a failure."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests import seeds

ROOT = Path(__file__).parents[1]


def script(name: str):
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


@pytest.fixture(scope="module")
def tool():
    yield from script("other_pythons")


@pytest.fixture(scope="module")
def bound():
    yield from script("bound")


@pytest.fixture(scope="module")
def run_tests(bound):
    yield from script("run_tests")


def interpreter(path: Path, says: str) -> Path:
    """Something at that path that answers every question alike."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho '{says}'\n")
    path.chmod(0o755)
    return path


def answer(version: list[int], implementation: str = "CPython", headers: str = "true") -> str:
    return f'["{implementation}", {version}, {headers}, ".so"]'


def test_the_path_comes_first_then_the_newest_of_pyenv(tool, tmp_path):
    environ = {"PATH": f"/a{os.pathsep}/b", "PYENV_ROOT": str(tmp_path)}
    for name in ("3.12.1", "3.12.10", "3.12.9", "3.13.0", "3.12-dev"):
        interpreter(tmp_path / "versions" / name / "bin" / "python3.12", "")
    found = [path.removeprefix(f"{tmp_path}/versions/") for path in tool.places(12, environ)]
    assert found[:2] == ["/a/python3.12", "/b/python3.12"]
    assert [path.partition("/")[0] for path in found[2:]] == ["3.12.10", "3.12.9", "3.12.1"]


def test_pyenv_is_looked_for_at_home(tool, tmp_path):
    interpreter(tmp_path / ".pyenv" / "versions" / "3.13.2" / "bin" / "python3.13", answer([3, 13, 2]))
    found = tool.find(13, {"PATH": "", "HOME": str(tmp_path)})
    assert (found.version, found.suffix) == ((3, 13, 2), ".so")


def test_what_cannot_be_used_is_passed_over_and_named(tool, tmp_path):
    for directory, says in (
        ("shim", "pyenv: python3.12: command not found"),
        ("pypy", answer([3, 12, 4], "PyPy")),
        ("bare", answer([3, 12, 4], headers="false")),
        ("other", answer([3, 11, 4])),
    ):
        interpreter(tmp_path / directory / "python3.12", says)
    directories = ["shim", "pypy", "bare", "other"]
    environ = {"PATH": os.pathsep.join(str(tmp_path / d) for d in directories), "HOME": str(tmp_path)}
    reason = tool.find(12, environ)
    assert [word in reason for word in ("does not run", "PyPy 3.12", "no Python.h", "CPython 3.11")] == [
        True
    ] * 4
    interpreter(tmp_path / "good" / "python3.12", answer([3, 12, 4]))
    environ["PATH"] += f"{os.pathsep}{tmp_path / 'good'}"
    assert tool.find(12, environ).path == str(tmp_path / "good" / "python3.12")


def test_a_version_that_is_nowhere_is_a_reason(tool, tmp_path):
    assert "no python3.12 on PATH" in tool.find(12, {"PATH": str(tmp_path), "HOME": str(tmp_path)})


def test_this_interpreter_is_found(tool):
    found = tool.ask(sys.executable, sys.version_info.minor)
    assert found.version == sys.version_info[:3]


def test_an_environment_is_made_again_for_another_interpreter(tool, tmp_path):
    found = tool.ask(sys.executable, sys.version_info.minor)
    assert not tool.is_ready(tmp_path, found)
    (tmp_path / ".ready").write_text(f"{found.path} {found.version}")
    assert tool.is_ready(tmp_path, found)
    (tmp_path / ".ready").write_text(f"/elsewhere/python {found.version}")
    assert not tool.is_ready(tmp_path, found)


def test_the_versions_tested_are_those_with_a_table(tool):
    from ckpt.image.frames.tables import TABLES

    assert [(3, minor) for minor in tool.MINORS] == list(TABLES)


def test_stolen_time_does_not_count_against_a_run(bound, tmp_path):
    kept, text = bound.verdict("test", bound.Moment(0, 5), bound.Moment(bound.BOUNDS_S["test"] + 60, 65))
    assert kept and "660 s of the wall, 60 s stolen" in text
    kept, text = bound.verdict("test", bound.Moment(0, 5), bound.Moment(bound.BOUNDS_S["test"] + 60, 60))
    assert not kept and text.endswith("TOO LONG")
    stat, ticks = tmp_path / "stat", os.sysconf("SC_CLK_TCK") * os.cpu_count()
    stat.write_text(f"cpu  1 2 3 4 5 6 7 {30 * ticks} 9 10\ncpu0 1\n")
    assert bound.stolen_s(str(stat)) == 30
    assert bound.stolen_s(str(tmp_path / "nothing")) == 0


def test_the_bound_is_checked_over_two_calls(bound, capsys):
    assert bound.main([]) == 0
    since = capsys.readouterr().out
    assert bound.main(["ci", since]) == 0
    long_ago = bound.json.dumps({"wall_s": bound.time.monotonic() - 90_000, "stolen_s": 0.0})
    assert bound.main(["ci", long_ago]) == (bound.stolen_s() < 80_000)


def test_what_is_skipped_for_want_of_something_is_told_from_what_belongs_elsewhere(run_tests, capsys):
    tests = [{"name": f"test_{number}", "seconds": number, "skipped": ""} for number in range(60)]
    assert run_tests.tell(tests)
    printed = capsys.readouterr().out
    assert "the 50 slowest of 60" in printed and printed.index("test_59") < printed.index("test_10")
    assert "test_9\n" not in printed
    tests[0]["skipped"] = f"{run_tests.ELSEWHERE[0]}has sys.monitoring"
    assert run_tests.tell(tests)
    tests[1]["skipped"] = "needs root"
    assert not run_tests.tell(tests)
    assert "skipped: test_1: needs root" in capsys.readouterr().out


def test_every_case_has_its_turn(monkeypatch):
    """Each seed selects a part of the cases, the same for everybody; all seeds together select all cases."""
    seen = set()
    for seed in range(40):
        monkeypatch.setenv("CKPT_SEED", str(seed))
        part = seeds.share(range(20), 3, "kind")
        assert part == sorted(part) and len(part) == 7 and part == seeds.share(range(20), 3, "kind")
        seen |= set(part)
    assert seen == set(range(20))
    assert len(seeds.share(range(2), 5, "kind")) == 1 and seeds.share(range(3), 1, "kind") == [0, 1, 2]


def test_a_run_with_workers_tells_figures_times_and_skips_of_all_and_takes_its_share(tmp_path):
    """The whole machinery of tests/conftest.py, in a run of its own."""
    (tmp_path / "test_it.py").write_text(
        "import pytest\n"
        "@pytest.mark.rotate(4)\n"
        "@pytest.mark.parametrize('case', range(12))\n"
        "def test_cases(case, figures): figures('cases seen', 5)\n"
        "def test_not_here(): pytest.skip('needs nothing')\n"
        "@pytest.mark.nightly\n"
        "def test_long(): raise AssertionError\n"
    )
    (tmp_path / "test_turns.py").write_text(
        "import pytest\n"
        "pytestmark = pytest.mark.turns(3)\n"
        + "".join(f"def test_{name}(figures): figures('turns seen', 1)\n" for name in "abcde")
        + "@pytest.mark.rotate(2)\n"
        "@pytest.mark.parametrize('case', range(4))\n"
        "def test_own(case, figures): figures('own turns seen', 1)\n"
    )
    (tmp_path / "system").mkdir()
    (tmp_path / "system" / "test_of_all_commits.py").write_text("def test_short(): pass\n")
    for name in "abcdef":
        (tmp_path / "system" / f"test_{name}.py").write_text(
            "import pytest\n"
            "pytestmark = pytest.mark.turns(2)\n"
            "def test_it(figures): figures('long ones seen', 1)\n"
        )
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    command = [sys.executable, "-m", "pytest", "-p", "tests.conftest", "-n", "2", "--rotate", "."]
    report = tmp_path / "report.json"
    environ = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "CKPT_TEST_REPORT": str(report),
        "CKPT_SEED": "7",
        "PYTEST_ADDOPTS": "",
    }
    done = subprocess.run(
        command, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "15  cases seen" in done.stdout, done.stdout
    told = {test["name"]: test for test in json.loads(report.read_text())}
    assert "2  turns seen" in done.stdout and "2  own turns seen" in done.stdout, done.stdout
    assert "2  long ones seen" in done.stdout and "system/test_of_all_commits.py::test_short" in told
    assert len(told) == 11, (
        "three of twelve cases, two of five tests, two of four cases, the one that is skipped,"
        " two of the six modules of a folder whose tests take long, and its test without a mark"
    )
    assert told["test_it.py::test_not_here"]["skipped"] == "needs nothing"
    assert all(test["seconds"] >= 0 for test in told.values())


def test_the_serial_tests_are_looked_for_in_the_files_that_have_some(run_tests):
    found = run_tests.with_serial_tests([])
    assert str(ROOT / "tests" / "unit" / "controller" / "cli" / "test_cli_arguments.py") in found
    assert str(ROOT / "tests" / "test_docs.py") not in found
    assert all("mark.serial" in Path(path).read_text() for path in found)


def test_paths_of_the_command_line_are_narrowed_to_the_serial_tests_below_them(run_tests):
    one = "tests/unit/controller/cli/test_cli_arguments.py"
    assert run_tests.with_serial_tests(["tests/unit/controller"]) == [str(ROOT / one)]
    assert run_tests.with_serial_tests([f"{one}::test_x", "tests/test_docs.py"]) == [f"{one}::test_x"]


def test_a_failure_of_long_values_is_explained_in_seconds_on_ci(tmp_path):
    """Two trees of files, compared line by line, took pytest minutes: the failure of the tests was one of time."""
    tmp_path.joinpath("conftest.py").write_text("from tests.conftest import pytest_assertrepr_compare\n")
    tmp_path.joinpath("test_long.py").write_text(
        "import random\n"
        "def tree(seed):\n    return {'a': ('file', random.Random(seed).randbytes(20_000))}\n"
        "def test_trees():\n    assert tree(1) == tree(2)\n"
        "def test_short_ones():\n    assert [*range(40)] == [*range(1, 41)]\n"
    )
    command = [
        sys.executable,
        "-m",
        "pytest",
        "--import-mode=importlib",
        "-p",
        "no:cacheprovider",
        "-c",
        os.devnull,
    ]
    environ = {**os.environ, "CI": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [*command, tmp_path], env=environ, cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert "2 failed" in done.stdout, done.stdout + done.stderr
    assert "Differing items:" in done.stdout and "Full diff" in done.stdout

"""The script that finds other versions of Python: where it looks, and what it says of those it cannot use."""

import importlib.util
import os
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def tool():
    spec = importlib.util.spec_from_file_location("other_pythons", ROOT / "tools" / "other_pythons.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


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


def test_only_what_has_failed_is_run_again(tool, tmp_path):
    assert tool.again(tmp_path) == (), "never run"
    for code, options in (("0", None), ("1", ("--last-failed",)), ("-9", ()), ("2", ())):
        (tmp_path / "tests.code").write_text(code)
        assert tool.again(tmp_path) == options


def test_the_versions_tested_are_those_with_a_table(tool):
    from ckpt.image.tables import TABLES

    assert [(3, minor) for minor in tool.MINORS] == list(TABLES)

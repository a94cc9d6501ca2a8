"""Commands of processes that a program starts: the words that ``python`` takes, and what is refused with which reason."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from ckpt.rank.channel.commands import Refused, completed


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.py").touch()
    (tmp_path / "script").write_text("#!/usr/bin/env python3\n")
    (tmp_path / "program").write_bytes(b"\x7fELF")
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "b.py").touch()
    return tmp_path


def made(*words: str, count: int = 2, **info: str) -> dict[str, Any]:
    return completed({"words": list(words), "count": count, "info": info}, 8)


def test_the_interpreter_is_followed_by_what_python_takes(directory: Path) -> None:
    own = sys.executable
    assert made(own, "a.py", "-x", "y") == {
        "argv": ["a.py", "-x", "y"],
        "directory": str(directory),
        "counts": [2],
    }
    assert made(own, "-m", "server")["argv"] == ["-m", "server"]
    assert made(own, "-u", "-c", "pass", "-O")["argv"] == ["-c", "pass", "-O"]
    assert made(own, "b.py", wdir="below")["directory"] == str(directory / "below")
    assert made(own, "-R", "a.py")["argv"] == ["a.py"], "as the interpreter runs already"


def test_a_script_is_found_where_the_program_is_or_where_it_says(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert made("a.py", "x")["argv"] == ["a.py", "x"]
    assert made("./script")["argv"] == ["./script"]
    assert made("b.py", path=f"missing{os.pathsep}below")["argv"] == [str(directory / "below" / "b.py")]
    monkeypatch.setenv("PATH", str(directory / "below"))
    (directory / "below" / "b.py").chmod(0o700)
    assert made("b.py")["argv"] == [str(directory / "below" / "b.py")]


@pytest.mark.parametrize(
    ("words", "info", "reason"),
    [
        (("program",), {}, "no Python program"),
        (("missing",), {}, "cannot find missing"),
        (("./missing",), {}, "cannot find ./missing"),
        (("python9.9", "a.py"), {}, "is not found"),
        ((sys.executable,), {}, "without a program"),
        ((sys.executable, "-"), {}, "without a program"),
        ((sys.executable, "-m"), {}, "a module"),
        ((sys.executable, "-OO", "a.py"), {}, "-OO"),
        ((sys.executable, "-W", "never::Nobody", "a.py"), {}, "never::Nobody"),
        ((sys.executable, "-Xnothing", "a.py"), {}, "nothing"),
        ((sys.executable, "missing.py"), {}, "no such file"),
        (("a.py",), {"wdir": "missing"}, "no such directory"),
        (("a.py",), {"host": "another"}, "host another"),
        (("a.py",), {"soft": "1-2"}, "soft"),
    ],
)
def test_what_cannot_be_started_is_refused(
    directory: Path, words: tuple[str, ...], info: dict[str, str], reason: str
) -> None:
    with pytest.raises(Refused, match=reason):
        made(*words, **info)


@pytest.mark.parametrize(
    ("soft", "allowed"),
    [
        ("1:4", [1, 2, 3, 4]),
        ("2", [2, 4]),
        ("1:9:3", [1, 4]),
        ("0:9:2, 3", [2, 3, 4]),
        ("9", [4]),
    ],
)
def test_soft_names_the_numbers_of_processes_that_are_allowed(
    directory: Path, soft: str, allowed: list[int]
) -> None:
    assert made("a.py", count=4, soft=soft)["counts"] == allowed


def test_numbers_above_what_the_job_has_are_not_listed(directory: Path) -> None:
    assert made("a.py", count=10**12, soft=f"6:{10**12}")["counts"] == [6, 7, 8, 10**12]

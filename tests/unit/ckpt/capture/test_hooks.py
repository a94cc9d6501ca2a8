"""What a program asks for by name is part of its images."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import ckpt
from ckpt.capture.hooks import Hooks
from ckpt.errors import RegistrationError
from ckpt.image.modules import package_changes
from ckpt.undo.selection import kept as kept_now
from ckpt.undo.selection.kept import is_kept
from tests.unit.ckpt.image.support import copy_of


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    names: set[str] = set()
    monkeypatch.setattr(package_changes, "_kept_packages", names)
    return names


def test_packages_to_be_kept_are_remembered(kept: set[str]) -> None:
    hooks = Hooks()
    hooks.keep_package("iniconfig")
    hooks.keep_package("iniconfig")
    assert kept == {"iniconfig"}
    kept.clear()
    copy: Hooks = copy_of(hooks)
    assert copy.packages == ["iniconfig"]
    assert not kept
    copy.use_again()
    assert kept == {"iniconfig"}


def test_what_cannot_be_kept_is_refused_and_forgotten(kept: set[str]) -> None:
    hooks = Hooks()
    with pytest.raises(RegistrationError, match="standard library"):
        hooks.keep_package("json")
    with pytest.raises(RegistrationError, match="no package 'a_misspelt_one'"):
        hooks.keep_package("a_misspelt_one")
    assert not hooks.packages and not kept


def test_a_program_without_a_job_may_ask_too(kept: set[str]) -> None:
    ckpt.keep_package("iniconfig")
    assert kept == {"iniconfig"}


@pytest.fixture
def kept_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setattr(kept_now, "_kept", [])
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_files_to_be_kept_are_remembered(kept_files: Path) -> None:
    hooks = Hooks()
    hooks.keep_file("log")
    hooks.keep_file(kept_files / "queue")
    assert is_kept(f"{kept_files}/log") and is_kept(f"{kept_files}/queue/7")
    copy: Hooks = copy_of(hooks)
    kept_now._kept.clear()
    assert not is_kept(f"{kept_files}/log")
    os.chdir("/")
    copy.use_again()
    assert is_kept(f"{kept_files}/log") and is_kept(f"{kept_files}/queue/7")
    assert not is_kept("/log")


@pytest.mark.parametrize("path", ["", "a\0b", 7])
def test_what_is_no_path_is_refused(kept_files: Path, path: Any) -> None:
    with pytest.raises(RegistrationError, match="keep_file takes a path"):
        ckpt.keep_file(path)
    assert not is_kept("/")


def test_what_a_program_says_for_ckpt_status() -> None:
    """What a function raises is said: it shall not keep the rank from answering."""
    hooks = Hooks()

    def fails() -> str:
        raise ZeroDivisionError("by design")

    for function in (lambda: "step 3", lambda: "", fails, lambda: "x" * 1000):
        hooks.on_status(function)
    says = hooks.said()["says"]
    assert says[0] == "step 3" and says[1].endswith("raised ZeroDivisionError: by design")
    assert len(says) == 3 and len(says[2]) == 500
    hooks.remove(fails)
    assert len(hooks.said()["says"]) == 2
    with pytest.raises(RegistrationError, match="takes a function"):
        hooks.on_status("step 3")  # type: ignore[arg-type, type-var]

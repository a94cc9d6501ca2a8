"""The end of a rank, where something goes wrong in it."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from ckpt.compat import stdlib
from ckpt.rank.ending import Ending, _system_exit_code


@pytest.fixture
def ending(monkeypatch: pytest.MonkeyPatch) -> Any:
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(stdlib, "join_threads", interrupted)
    made: Any = Ending.__new__(Ending)
    made._runtime = SimpleNamespace(ended=(3, ""))
    return made


def test_an_interrupt_while_threads_are_joined_is_reported_and_the_end_goes_on(
    ending: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The interpreter's hook refused the report, and the rank ended with code 70 in place of its own."""
    monkeypatch.setattr(sys, "unraisablehook", sys.__unraisablehook__)
    ending._join_threads()
    said = capsys.readouterr().err
    assert said.startswith("Exception ignored in: <module 'threading'") and said.endswith(
        "KeyboardInterrupt\n"
    )
    assert ending._code == 3


def test_a_hook_of_the_program_gets_the_interrupt(ending: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    got: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", got.append)
    ending._join_threads()
    assert got[0].exc_type is KeyboardInterrupt


@pytest.mark.parametrize("code", [None, 0, 3, 256, 300, -1, True, 1 << 63, 1 << 64, 1 << 70, -(1 << 70)])
def test_a_code_is_that_of_the_interpreter(code: int | None) -> None:
    """One of more than 64 bits was cut to its last eight: 1 << 64 was a success."""
    python = subprocess.run([sys.executable, "-S", "-c", f"raise SystemExit({code})"])
    assert _system_exit_code(SystemExit(code)) == python.returncode

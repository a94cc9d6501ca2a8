"""Which interpreter a job goes on with; what is said of a job without a controller."""

from __future__ import annotations

import platform
from argparse import Namespace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ckpt.controller.cli import job as status
from ckpt.controller.cli import run
from ckpt.controller.cli.command import Command
from ckpt.controller.errors import NotCompatible
from ckpt.controller.launch import interpreter
from ckpt.controller.supervision.history import History
from ckpt.version import VERSION

RECORDED = {"executable": "/recorded/bin/python", "options": ["-O"]}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Interpreters that were run and asked for their versions."""
    found: list[str] = []

    def ask(path: str) -> tuple[str, str, str]:
        found.append(path)
        return path, "2.7.18" if "old" in path else platform.python_version(), VERSION

    monkeypatch.setattr(interpreter.shutil, "which", lambda word: word)
    monkeypatch.setattr(interpreter, "_is_this", lambda path: False)
    monkeypatch.setattr(interpreter, "_ask", ask)
    monkeypatch.setattr(
        run, "_continue_job", lambda job, epoch, arguments, interpreter, or_start: interpreter
    )
    return found


def job() -> Any:
    return SimpleNamespace(
        size=1, command=["app.py"], options={"interpreter": RECORDED}, python=platform.python_version()
    )


@pytest.mark.parametrize(
    ("words", "executable", "options"),
    [
        (["/other/bin/python3", "app.py"], "/other/bin/python3", []),
        (["app.py"], "/recorded/bin/python", ["-O"]),
    ],
)
def test_the_interpreter_that_is_checked_is_the_one_that_is_used(
    asked: list[str], words: list[str], executable: str, options: list[str]
) -> None:
    found: Any = run._continue_or_start(job(), Command.parse(words), Namespace(ranks=1))
    assert found.saved() == {"executable": executable, "options": options}
    assert asked == [executable], "asked once"


def test_an_interpreter_of_another_version_is_refused(asked: list[str]) -> None:
    with pytest.raises(NotCompatible, match=r"this is Python 2\.7"):
        run._continue_or_start(job(), Command.parse(["/old/bin/python3", "app.py"]), Namespace(ranks=1))


def test_ranks_on_hosts_may_go_on_without_their_controller(tmp_path: Path) -> None:
    """The state was "gone": as if nothing were left."""
    there: Any = SimpleNamespace(agent_log_path=lambda: str(tmp_path / "agent.log"))
    assert status._state(there, History(), None) == "gone"
    told = status._state(there, History(lease_s=3.0), None)
    assert told.startswith("without controller: ") and " s at most" in told

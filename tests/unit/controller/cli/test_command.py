"""What the words of a program mean: a script, a module, code, behind a Python or not."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from ckpt.controller.cli.command import Command
from ckpt.controller.errors import UsageError


@pytest.mark.parametrize(
    ("typed", "interpreter", "options", "words"),
    [
        ("app.py -x", None, "", "app.py -x"),
        ("-m pkg -x", None, "", "-m pkg -x"),
        ("-c code -x", None, "", "-c code -x"),
        ("python app.py", "python", "", "app.py"),
        ("python3 -m pkg a", "python3", "", "-m pkg a"),
        ("python3.12 -c code", "python3.12", "", "-c code"),
        ("/opt/v/bin/python -u -O app.py -u", "/opt/v/bin/python", "-u -O", "app.py -u"),
        ("python -uBW ignore -X dev -Wdefault app.py", "python", "-u -B -Wignore -Xdev -Wdefault", "app.py"),
        ("python -mpkg a", "python", "", "-m pkg a"),
        ("python -um pkg a", "python", "-u", "-m pkg a"),
        ("python", "python", "", ""),
        ("pythonic.py", None, "", "pythonic.py"),
        ("python.py", None, "", "python.py"),
        ("my/python-tool", None, "", "my/python-tool"),
    ],
)
def test_what_is_typed_after_mpiexec(typed: str, interpreter: str | None, options: str, words: str) -> None:
    command = Command.parse(typed.split())
    assert (command.interpreter, command.options, command.words) == (
        interpreter,
        options.split(),
        words.split(),
    )
    assert Command.parse(command.typed).typed == command.typed


@pytest.mark.parametrize("option", ["-E", "-I", "-i", "-S", "-P", "-uI", "--version", "-Z", "-W"])
def test_options_of_python_that_ranks_cannot_have_are_refused(option: str) -> None:
    with pytest.raises(UsageError, match=r"python's option -"):
        Command.parse(["python", option])


@pytest.mark.parametrize("words", [[], ["python"], ["-m"], ["-c"], ["-"], ["python", "-"], ["missing.py"]])
def test_without_a_program_nothing_is_started(words: list[str]) -> None:
    with pytest.raises(UsageError):
        Command.parse(words).complete()


@pytest.mark.parametrize("script", ["/dev/stdin", "/dev/fd/63", "/proc/self/fd/0", "pipe"])
def test_a_program_that_can_be_read_only_once_is_refused(
    script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rank 0 ran what it read there; the other ranks found nothing, ended well, and rank 0 waited for them for ever."""
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    with pytest.raises(UsageError, match=r"a pipe or an open descriptor \(\S+\) cannot be started again"):
        Command.parse(["python", script]).complete()


def test_a_python_script_on_path_is_a_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, line in (
        ("tool", f"#!{sys.executable} -u"),
        ("envtool", "#!/usr/bin/env python3"),
        ("splittool", "#!/usr/bin/env -S python3 -u"),
        ("shelltool", "#!/bin/sh"),
        ("othertool", "#!/usr/bin/env awk"),
    ):
        (tmp_path / name).write_text(f"{line}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert Command.parse(["tool", "a"]).complete().typed == [
        sys.executable,
        "-u",
        str(tmp_path / "tool"),
        "a",
    ]
    assert Command.parse(["envtool"]).complete().typed == ["python3", str(tmp_path / "envtool")]
    assert Command.parse(["splittool"]).complete().typed == ["python3", "-u", str(tmp_path / "splittool")]
    with pytest.raises(UsageError, match="cannot read othertool"):
        Command.parse(["othertool"]).complete()
    with pytest.raises(UsageError, match="shelltool is a script of /bin/sh"):
        Command.parse(["shelltool"]).complete()


def test_programs_that_are_not_in_python_are_refused_by_what_they_are(tmp_path: Path) -> None:
    """Python said that there is no valid syntax in them, or that they contain null bytes."""
    script, compiled = tmp_path / "run.sh", Path(sys.executable).resolve()
    script.write_text("#!/usr/bin/env bash\npython app.py\n")
    with pytest.raises(UsageError, match=r"run\.sh is a script of bash, and ckpt runs programs in Python"):
        Command.parse([str(script)]).complete()
    (tmp_path / "solver").write_bytes(compiled.read_bytes()[:4096])
    with pytest.raises(UsageError, match="solver is a compiled program"):
        Command.parse([str(tmp_path / "solver")]).complete()


def test_a_script_that_is_a_program_of_a_shell_and_of_python_runs(tmp_path: Path) -> None:
    both = tmp_path / "both.py"
    both.write_text('#!/bin/sh\n"exec" "python3" "$0" "$@"\n')
    assert Command.parse([str(both)]).complete().script == str(both)
    (tmp_path / "both").write_text(both.read_text())
    assert Command.parse(["python3", str(tmp_path / "both")]).complete().script == str(tmp_path / "both")

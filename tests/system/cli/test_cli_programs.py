"""Programs as people type them after `mpiexec -n 4`: behind `python`, as a module, as code, by another interpreter."""

from __future__ import annotations

import json
import os
import site
import subprocess
import sys
import time
import venv
from pathlib import Path

import pytest

from tests.system.support import ckpt_command, run_ckpt

pytestmark = [pytest.mark.system, pytest.mark.turns(8)]

TELL = "import sys; print(sys.argv[1:], sys.executable, sys.flags.optimize, sys.warnoptions)"


def ckpt(
    *words: object, cwd: Path, path: str | None = None, check: bool = True
) -> subprocess.CompletedProcess[str]:
    done = run_ckpt(*words, cwd=cwd, env={**os.environ, "PATH": path or os.environ["PATH"]})
    assert not check or done.returncode == 0, done.stderr
    return done


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "app.py").write_text(TELL)
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "__main__.py").write_text(TELL)
    return tmp_path


def test_behind_python_as_module_and_as_code(place: Path) -> None:
    own = os.path.dirname(sys.executable)
    for number, words in enumerate(
        (
            ["python", "app.py", "a"],
            ["python3", "-m", "pkg", "a"],
            ["python", "-c", TELL, "a"],
            ["-c", TELL, "a"],
        )
    ):
        done = ckpt("run", "-np", 2, "--job", place / f"job{number}", *words, cwd=place, path=own)
        assert done.stdout == f"['a'] {sys.executable} 0 []\n" * 2


def test_options_of_python_are_those_of_a_restart_too(place: Path) -> None:
    program = (
        "import sys, ckpt\nckpt.enable()\nckpt.checkpoint()\n"
        "import time\nwhile not ckpt.restarts():\n    time.sleep(0.01)\n"
        "print(sys.flags.optimize, sys.warnoptions)\n"
    )
    job = place / "job"
    command = ckpt_command("run", "--job", job, sys.executable, "-O", "-Wignore", "-c", program)
    started = subprocess.Popen(command, cwd=place, stdin=subprocess.DEVNULL)
    while not list(job.glob("control/*.json")):
        assert started.poll() is None
        time.sleep(0.05)
    ckpt("stop", job, cwd=place, check=False)
    started.wait(60)
    assert ckpt("restart", job, cwd=place).stdout == "1 ['ignore']\n"


def test_another_interpreter_is_used_if_it_has_ckpt(place: Path) -> None:
    other = place / "other"
    venv.create(other, symlinks=True, with_pip=False)
    python = other / "bin" / "python"
    done = ckpt("run", "--job", place / "job", python, "app.py", "a", cwd=place, check=False)
    assert done.returncode == 13
    assert f"{python} (Python " in done.stderr and "has no ckpt: install it there" in done.stderr
    assert not (place / "job").exists()
    packages = next((other / "lib").glob("python3*/site-packages"))
    (packages / "ours.pth").write_text(
        "".join(f"import site; site.addsitedir({path!r})\n" for path in site.getsitepackages())
    )
    done = ckpt("run", "--job", place / "job", python, "app.py", "a", cwd=place)
    assert done.stdout == f"['a'] {python} 0 []\n"
    options = json.loads((place / "job" / "job.json").read_text())
    assert str(python) in json.dumps(options)


def test_what_is_no_interpreter_is_said(place: Path) -> None:
    (place / "python3").write_text("#!/bin/sh\necho broken >&2\nexit 1\n")
    (place / "python3").chmod(0o755)
    done = ckpt("run", "python3", "app.py", cwd=place, path=f"{place}:{os.environ['PATH']}", check=False)
    assert done.returncode == 2 and "does not run as a Python interpreter: broken" in done.stderr
    done = ckpt("run", "python3.99", "app.py", cwd=place, check=False)
    assert done.returncode == 2 and "there is no python3.99 on PATH" in done.stderr


@pytest.mark.parametrize(
    ("words", "last"),
    [
        (["-m", "no_such_module"], "ImportError: No module named no_such_module"),
        (["-c", "def f(:"], "SyntaxError: invalid syntax"),
    ],
)
def test_a_program_that_is_not_found_or_not_read_is_told_without_the_launcher(
    tmp_path: Path, words: list[str], last: str
) -> None:
    run = run_ckpt("run", "-n", "1", "--job", tmp_path / "job", *words)
    assert run.returncode == 1
    assert last in run.stderr and "Traceback" not in run.stderr and "boot.py" not in run.stderr, run.stderr

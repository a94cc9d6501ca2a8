"""`pip install .`: what users have is the package without the repository around it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
pytestmark = [pytest.mark.system, pytest.mark.nightly]

APP = """
import os, signal, time
import numpy as np
import ckpt, ckpt.diagnosis, ckpt.reduction
comm = ckpt.enable()
total = np.zeros(20_000)
for step in range(60):
    total += comm.allreduce(step)
    time.sleep(0.02)
    if step == 50 and comm.rank == 1 and ckpt.restarts() == 0:
        os.kill(os.getpid(), signal.SIGKILL)
print(comm.rank, total[0], ckpt.restarts(), os.path.realpath(ckpt.__file__))
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel that pip makes of the files of the repository."""
    source, made = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for path in _files("."):
        (source / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / path, source / path, follow_symlinks=False)
    pip = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "--wheel-dir",
        str(made),
    ]
    subprocess.run([*pip, str(source)], check=True, timeout=600)
    (found,) = made.glob("*.whl")
    return found


def _files(*folders: str) -> list[str]:
    listed = subprocess.run(
        ["git", "ls-files", "--", *folders], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    )
    return listed.stdout.split()


def test_every_module_model_and_stub_is_in_the_wheel(wheel: Path) -> None:
    wanted = set()
    for path in _files("ckpt", "transport", "controller"):
        if path.endswith((".py", ".pyi", ".toml", "ckpt/py.typed")):
            wanted.add(path if path.startswith("ckpt/") else f"ckpt/{path}")
    found = set(zipfile.ZipFile(wheel).namelist())
    assert not wanted - found
    assert {name.split("/")[0] for name in found if ".dist-info/" not in name} == {"ckpt"}, (
        "a program's own names"
    )


def test_a_job_of_the_installed_package_comes_back_after_a_kill(wheel: Path, tmp_path: Path) -> None:
    place, program = tmp_path / "place", tmp_path / "app.py"
    zipfile.ZipFile(wheel).extractall(place)
    program.write_text(APP)
    words = [sys.executable, "-m", "ckpt", "run", "-n", "2", "--every", "0.3", "--job", "job", "app.py"]
    environment = os.environ | {"PYTHONPATH": str(place)}
    done = subprocess.run(
        words, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert f"rank 1 was killed by {signal.Signals(9).name}" in done.stderr
    module = os.path.realpath(place / "ckpt" / "__init__.py")
    assert sorted(done.stdout.splitlines()) == [f"{rank} 3540.0 1 {module}" for rank in (0, 1)]

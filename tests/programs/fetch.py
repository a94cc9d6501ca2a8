"""Gets the programs, their packages and an MPI library from the package index, once per interpreter version.

::

    $CKPT_PROGRAMS_CACHE/3.11-1f0c…/       one per interpreter version and list; default: ~/.cache/ckpt-programs
        venv/                              requirements.txt, installed: mpi4py, MPICH, the packages, what ckpt needs
        mpi4py-4.1.2/demo/                 mpi4py's own programs
        complete                           made last: without it, all is made again

The same interpreter with the same packages runs a program both ways: under that venv's `mpiexec`, and under `ckpt run`
with this source tree on PYTHONPATH. Raises :class:`Unavailable` with the reason where there is no package index.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
REQUIREMENTS = HERE / "requirements.txt"
_PATIENCE_S = 900


class Unavailable(Exception):
    """The programs or the MPI library cannot be had here; says why."""


@dataclass(frozen=True)
class Place:
    """Where everything is."""

    root: Path

    @property
    def python(self) -> Path:
        return self.root / "venv" / "bin" / "python"

    @property
    def mpiexec(self) -> Path:
        return self.root / "venv" / "bin" / "mpiexec"

    @property
    def demo(self) -> Path:
        (folder,) = self.root.glob("mpi4py-*/demo")
        return folder

    @functools.cached_property
    def library(self) -> str:
        """The MPI library's own name and version. Raises Unavailable when it does not run here."""
        probe = "from mpi4py import MPI; print(MPI.Get_library_version().splitlines()[0].strip(chr(0)))"
        try:
            done = subprocess.run(
                [self.mpiexec, "-n", "1", self.python, "-c", probe],
                capture_output=True,
                text=True,
                timeout=60,
                stdin=subprocess.DEVNULL,
            )
        except (OSError, subprocess.TimeoutExpired) as failure:
            raise Unavailable(f"the fetched MPI library does not run here: {failure}") from None
        if done.returncode:
            why = (done.stderr.strip().splitlines() or ["mpiexec failed"])[-1]
            raise Unavailable(f"the fetched MPI library does not run here: {why}")
        return " ".join(done.stdout.split())


def fetched() -> Place:
    """The cache of this interpreter, filled. Raises Unavailable."""
    digest = hashlib.sha256(REQUIREMENTS.read_bytes()).hexdigest()[:12]
    base = os.environ.get("CKPT_PROGRAMS_CACHE") or Path.home() / ".cache" / "ckpt-programs"
    root = Path(base) / f"{sys.version_info[0]}.{sys.version_info[1]}-{digest}"
    root.mkdir(parents=True, exist_ok=True)
    with open(root / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (root / "complete").exists():
            _fill(root)
            (root / "complete").touch()
    place = Place(root)
    assert place.library
    return place


def _fill(root: Path) -> None:
    shutil.rmtree(root / "venv", ignore_errors=True)
    _run("a virtual environment", sys.executable, "-m", "venv", str(root / "venv"))
    pip = (str(root / "venv" / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "-q")
    _run("the packages", *pip, "install", "-r", str(REQUIREMENTS))
    (mpi4py,) = re.findall(r"^mpi4py==\S+", REQUIREMENTS.read_text(), re.MULTILINE)
    # With the setuptools of the environment that runs the tests: pip asks the sources for their metadata.
    _run(
        "mpi4py's sources",
        *(sys.executable, "-m", "pip", "--disable-pip-version-check", "-q", "download", "--no-deps"),
        *("--no-build-isolation", "--no-binary", ":all:", "-d", str(root), mpi4py),
    )
    (archive,) = root.glob("mpi4py-*.tar.gz")
    with tarfile.open(archive) as sources:
        sources.extractall(root, [m for m in sources if "/demo/" in m.name], filter="data")
    archive.unlink()


def _run(what: str, *command: str) -> None:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_PATIENCE_S, stdin=subprocess.DEVNULL
        )
    except subprocess.TimeoutExpired:
        raise Unavailable(f"{what} cannot be fetched here: no end within {_PATIENCE_S} s") from None
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if "ERROR" in line] or done.stderr.splitlines()[
            -1:
        ]
        raise Unavailable(f"{what} cannot be fetched here: {lines[-1] if lines else done.returncode}")

"""Gets the programs, their packages and an MPI library from the package index, once per interpreter version.

::

    $CKPT_PROGRAMS_CACHE/3.11-1f0c…/       one per interpreter version and list; default: ~/.cache/ckpt-programs
        venv/                              requirements.txt, installed: mpi4py, MPICH, the packages, what ckpt needs
        mpi4py-4.1.2/demo/                 mpi4py's own programs
        complete                           made last: without it, all is made again

The same interpreter with the same packages runs a program both ways: under that venv's `mpiexec`, and under `ckpt run`
with this source tree on PYTHONPATH. Raises :class:`tests.fetching.Unavailable` where there is no package index.
"""

from __future__ import annotations

import functools
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.fetching import Unavailable, filled, pip, run, sources

HERE = Path(__file__).parent
REQUIREMENTS = HERE / "requirements.txt"


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
    place = Place(filled("programs", [REQUIREMENTS.read_bytes()], _fill))
    assert place.library
    return place


def _fill(root: Path) -> None:
    shutil.rmtree(root / "venv", ignore_errors=True)
    run("a virtual environment", sys.executable, "-m", "venv", str(root / "venv"))
    pip("install", "-r", str(REQUIREMENTS), python=str(root / "venv" / "bin" / "python"))
    (mpi4py,) = re.findall(r"^mpi4py==\S+", REQUIREMENTS.read_text(), re.MULTILINE)
    sources(mpi4py, root, "/demo/")

"""The table of what integers of MPI calls may be is what a real mpi4py does."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests import integer_calls
from tests.programs.fetch import Unavailable, fetched


@pytest.mark.system
@pytest.mark.nightly  # a fresh machine has to fetch an MPI library for it
@pytest.mark.timeout(900)
def test_a_real_mpi4py_takes_and_refuses_what_the_table_says(tmp_path: Path) -> None:
    try:
        place = fetched()
    except Unavailable as reason:
        pytest.skip(str(reason))
    done = subprocess.run(
        [place.mpiexec, "-n", "2", place.python, integer_calls.__file__],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=180,
        stdin=subprocess.DEVNULL,
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stderr

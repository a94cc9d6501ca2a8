"""Every test begins with the MPI state of a process that has just started.

Outside of tests a process runs one program. Here many tests share a process: operations, keys and error codes that one test
does not free would count against the limits of the next.
"""

from __future__ import annotations

import pytest

from ckpt.mpi.base.process import ProcessState, process_state


@pytest.fixture(autouse=True)
def state_of_a_new_process() -> None:
    process_state().adopt(ProcessState().content())

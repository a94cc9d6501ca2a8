"""Dead members of a file: what needs them fails, nobody hangs, the file has whole etypes.

Ranks die at random calls into the transport; a program that hangs raises Stuck.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ckpt import MPI
from ckpt.mpi.base.errors import MpiException
from ckpt.mpi.io.file import File
from tests.unit.ckpt.mpi.bus import BusProgress, Killed, run_ranks
from tests.unit.ckpt.mpi.rma.test_dead_members import everybody_is_here, until_failed

SEEDS = range(40)
MAKE = MPI.MODE_RDWR | MPI.MODE_CREATE


def code_of(call: Callable[..., Any], *args: Any) -> int:
    """Error class of what a call raises; 0 if it returns."""
    try:
        call(*args)
    except MpiException as error:
        return error.error_class
    return 0


@pytest.mark.parametrize("victim", [0, 2])
def test_what_needs_the_rank_that_writes_fails_when_it_is_dead(tmp_path: Path, victim: int) -> None:
    def program(comm: Any) -> Any:
        file = File.Open(comm, tmp_path / "file", MAKE)
        everybody_is_here(comm, victim)
        if comm.rank == victim:
            raise Killed
        until_failed(comm)
        mine = bytearray(10)
        codes = [code_of(file.Write_at, 10 * comm.rank, mine), code_of(file.Iwrite_at(0, b"").Wait)]
        codes += [code_of(file.Get_size), code_of(file.Write_shared, mine)]
        codes += [code_of(file.Sync), code_of(file.Write_ordered, mine)]
        codes.append(code_of(comm.Shrink().Barrier))
        codes.append(code_of(file.Close))
        assert not file
        assert not comm._engine.windows.awaited
        return codes

    failed = MPI.ERR_PROC_FAILED
    wanted = [0 if victim else failed] * 4 + [failed, failed, 0, failed]
    for seed in range(4):
        results = run_ranks(3, program, seed=seed)
        assert [result for result in results if result is not Killed] == [wanted, wanted]


def test_revoking_the_communicator_of_a_file_ends_what_waits(tmp_path: Path) -> None:
    def program(comm: Any) -> Any:
        file = File.Open(comm, tmp_path / "file", MAKE)
        everybody_is_here(comm, 0)
        if comm.rank == 0:
            comm.Revoke()
        else:
            assert code_of(file.Sync) == MPI.ERR_REVOKED
            assert code_of(file.Write_at, 0, bytes(3)) == MPI.ERR_REVOKED
            assert code_of(file.Close) == MPI.ERR_REVOKED
            assert not file
        assert comm.Shrink().size == 3

    for seed in range(5):
        run_ranks(3, program, seed=seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_survivors_end_with_a_result_or_the_error_whenever_somebody_dies(tmp_path: Path, seed: int) -> None:
    choose = random.Random(seed)
    size = choose.choice((2, 3, 4))
    victim, after = choose.randrange(size), choose.randrange(200)

    def arm(progress: BusProgress) -> None:
        progress.die_in = after if progress.rank == victim else None

    def work(comm: Any) -> int:
        file = File.Open(comm, tmp_path / "file", MAKE)
        file.Set_view(0, MPI.LONG)
        file.Set_atomicity(seed % 2 == 0)
        mine, into = np.full(100, comm.rank, "l"), np.zeros(100, "l")
        done = 0
        for _ in range(5):
            file.Write_at(9999 + 100 * comm.rank, mine)
            file.Read_at(9999 + 100 * comm.rank, into)
            assert list(into) == list(mine)
            file.Write_shared(into)
            file.Write_ordered(into)
            file.Sync()
            done += 1
        file.Close()
        return done

    def program(comm: Any) -> Any:
        try:
            return work(comm)
        except MpiException as error:
            assert error.error_class in (MPI.ERR_PROC_FAILED, MPI.ERR_REVOKED), error
            comm.Revoke()  # or who is not told would wait for who has left
            return 0

    results = run_ranks(size, program, seed=seed, hook=arm)
    assert all(result in (0, 5, Killed) for result in results)
    if (tmp_path / "file").exists():
        assert (tmp_path / "file").stat().st_size % 8 == 0

"""Files of several ranks: what accesses do, errors, waits that an image can hold, members that die."""

from __future__ import annotations

import os
import random
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ckpt import MPI
from ckpt.mpi.base.errors import MpiException
from ckpt.mpi.io.file import FILE_NULL, File
from tests.unit.ckpt.mpi.bus import run_ranks
from tests.unit.ckpt.mpi.test_image import PLACES, watch

SEEDS = range(4)
READS_BY_MESSAGE = pytest.mark.parametrize("one_host", [True, False], ids=["one host", "several"])
MAKE = MPI.MODE_RDWR | MPI.MODE_CREATE


def code_of(call: Callable[..., Any], *args: Any, **options: Any) -> int:
    """Error class of what a call raises; 0 if it returns."""
    try:
        call(*args, **options)
    except MpiException as error:
        return error.error_class
    return 0


def a_filetype(random_: random.Random, size: int, rank: int) -> Any:
    """A filetype of integers for each rank, which together have every byte once."""
    owners = [random_.randrange(size) for _ in range(12)]
    places = [at for at, owner in enumerate(owners) if owner == rank]
    return MPI.INT.Create_indexed_block(1, places).Create_resized(0, 4 * len(owners)).Commit(), len(places)


@READS_BY_MESSAGE
@pytest.mark.parametrize("size", [1, 2, 4])
@pytest.mark.parametrize("seed", SEEDS)
def test_what_ranks_write_through_views_is_a_model_of_integers(
    tmp_path: Path, size: int, seed: int, one_host: bool
) -> None:
    def program(comm: Any) -> None:
        comm._engine.one_host = one_host
        file = File.Open(comm, tmp_path / "file", MAKE)
        random_ = random.Random(seed)
        model = np.zeros(48, "i")
        for turn in range(4):
            random_.seed(seed * 100 + turn)
            filetype, each = a_filetype(random_, size, comm.rank)
            mine = np.arange(4 * each, dtype="i") + 1000 * comm.rank + 100 * turn
            file.Set_view(0, MPI.INT, filetype, "native" if turn % 2 else "internal")
            for part in np.split(mine, 4):
                if turn < 2:
                    file.Write_all(part)
                else:
                    file.Iwrite(part).Wait()
            assert file.Get_position() == 4 * each
            file.Sync()
            comm.barrier()
            back = np.zeros_like(mine)
            file.Read_at_all(0, back)
            assert list(back) == list(mine)
            for rank in range(size):
                random_.seed(seed * 100 + turn)
                theirs, count = a_filetype(random_, size, rank)
                at = [offset // 4 + 12 * tile for tile in range(4) for offset in _integers(theirs)]
                model[at] = np.arange(4 * count) + 1000 * rank + 100 * turn
            file.Set_view(0, MPI.INT)
            whole = np.zeros(48, "i")
            file.Read(whole)
            assert list(whole) == list(model)
        file.Close()
        assert not file

    run_ranks(size, program, seed=seed)


def _integers(filetype: Any) -> list[int]:
    return [at for offset, nbytes in filetype.runs for at in range(offset, offset + nbytes, 4)]


@READS_BY_MESSAGE
def test_memory_with_gaps_and_another_byte_order(tmp_path: Path, one_host: bool) -> None:
    def program(comm: Any) -> None:
        comm._engine.one_host = one_host
        file = File.Open(comm, tmp_path / "file", MAKE)
        every_third = MPI.SHORT.Create_vector(4, 1, 3).Commit()
        file.Set_view(0, MPI.SHORT, None, "external32")
        mine = np.arange(12, dtype="h") + 100 * comm.rank
        status = MPI.Status()
        file.Write_at(4 * comm.rank, [mine, 1, every_third], status)
        assert (status.Get_count(every_third), status.Get_count(MPI.SHORT)) == (1, 4)
        file.Sync()
        into = np.zeros(12, "h")
        file.Read_at(4 * comm.rank, [into, 1, every_third])
        assert list(into[::3]) == list(mine[::3])
        assert not into[1::3].any()
        file.Set_view(0, MPI.BYTE)
        whole = bytearray(16 + 5)
        file.Read_at_all(0, whole, status)
        assert status.count == 16
        assert np.frombuffer(whole[:16], ">h").tolist() == [0, 3, 6, 9, 100, 103, 106, 109]
        file.Close()

    run_ranks(2, program)


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("seed", SEEDS)
def test_the_shared_pointer_gives_each_place_once(tmp_path: Path, size: int, seed: int) -> None:
    def program(comm: Any) -> None:
        file = File.Open(comm, tmp_path / "file", MAKE)
        file.Set_view(0, MPI.INT)
        for turn in range(6):
            file.Write_shared(np.full(3, 10 * comm.rank + turn, "i"))
        comm.barrier()
        assert file.Get_position_shared() == 18 * size
        file.Write_ordered(np.full(comm.rank + 1, comm.rank, "i"))
        file.Seek_shared(-1, MPI.SEEK_END)
        file.Seek_shared(1, MPI.SEEK_CUR)
        file.Write_ordered_begin(np.full(1, comm.rank, "i"))
        file.Write_ordered_end(None)
        file.Sync()
        if comm.rank == 0:
            whole = np.fromfile(tmp_path / "file", "i")
            triples = whole[: 18 * size].reshape(-1, 3)
            assert (triples == triples[:, :1]).all()
            expected = [10 * rank + turn for rank in range(size) for turn in range(6)]
            assert sorted(triples[:, 0]) == sorted(expected)
            ordered = [rank for rank in range(size) for _ in range(rank + 1)]
            assert list(whole[18 * size :]) == [*ordered, *range(size)]
        file.Close()

    run_ranks(size, program, seed=seed)


def test_what_is_asked_for_in_a_wrong_way_has_the_error_of_the_standard(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(range(20)))
    os.mkfifo(tmp_path / "pipe")

    def program(comm: Any) -> None:
        def opening(name: str, mode: int) -> int:
            return code_of(File.Open, comm, tmp_path / name, mode)

        assert opening("none", MPI.MODE_RDONLY) == MPI.ERR_NO_SUCH_FILE
        assert opening("file", MAKE | MPI.MODE_EXCL) == MPI.ERR_FILE_EXISTS
        assert opening("file", MPI.MODE_RDONLY | MPI.MODE_RDWR) == MPI.ERR_AMODE
        assert opening("file", MPI.MODE_RDWR if comm.rank else MPI.MODE_RDONLY) == MPI.ERR_NOT_SAME
        assert opening(".", MPI.MODE_RDONLY) == MPI.ERR_BAD_FILE
        assert opening("pipe", MPI.MODE_RDWR) == MPI.ERR_BAD_FILE
        assert opening("file/x", MPI.MODE_RDWR) == MPI.ERR_BAD_FILE
        assert code_of(File.Delete, tmp_path / "none") == MPI.ERR_NO_SUCH_FILE
        comm.barrier()
        file = File.Open(comm, path)
        eight, into = bytes(8), bytearray(8)
        assert code_of(file.Write, eight) == MPI.ERR_READ_ONLY
        assert code_of(file.Set_size, 5) == MPI.ERR_READ_ONLY
        assert code_of(file.Read_at, -1, into) == MPI.ERR_ARG
        assert code_of(file.Seek, -1) == MPI.ERR_ARG
        assert code_of(file.Seek, 0, 7) == MPI.ERR_ARG
        assert code_of(file.Seek_shared, comm.rank) == MPI.ERR_NOT_SAME
        assert code_of(file.Set_view, -1) == MPI.ERR_ARG
        assert code_of(file.Set_view, 0, MPI.DATATYPE_NULL) == MPI.ERR_TYPE
        assert code_of(file.Set_view, 0, MPI.INT, MPI.SHORT) == MPI.ERR_ARG
        assert code_of(file.Set_view, 0, MPI.INT, None, "xdr") == MPI.ERR_UNSUPPORTED_DATAREP
        assert code_of(file.Set_view, 0, MPI.INT if comm.rank else MPI.SHORT) == MPI.ERR_NOT_SAME
        assert code_of(file.Set_view, MPI.DISPLACEMENT_CURRENT) == MPI.ERR_ARG
        file.Set_view(0, MPI.INT)
        assert code_of(file.Read, bytearray(6)) == MPI.ERR_IO
        assert code_of(file.Read_all_end, into) == MPI.ERR_IO
        file.Read_all_begin(into)
        assert code_of(file.Read_all_begin, into) == MPI.ERR_IO
        assert code_of(file.Close) == MPI.ERR_IO
        file.Read_all_end(into)
        with pytest.raises(BufferError):
            file.Read(eight)
        with pytest.raises(ValueError, match="exceed"):
            file.Read([into, 9, MPI.BYTE])
        file.Close()
        assert code_of(file.Read, into) == MPI.ERR_FILE
        file = File.Open(comm, path, MPI.MODE_WRONLY | MPI.MODE_SEQUENTIAL)
        assert code_of(file.Read_shared, into) == MPI.ERR_ACCESS
        assert code_of(file.Write, eight) == MPI.ERR_UNSUPPORTED_OPERATION
        file.Close()
        assert code_of(FILE_NULL.Get_size) == MPI.ERR_FILE

    run_ranks(2, program)
    assert path.read_bytes() == bytes(range(20))
    assert stat.S_ISFIFO(os.stat(tmp_path / "pipe").st_mode)


def test_a_full_disk_and_a_lost_descriptor_are_told_to_the_rank_that_writes(tmp_path: Path) -> None:
    def program(comm: Any) -> None:
        file = File.Open(comm, "/dev/full", MPI.MODE_WRONLY)
        with pytest.raises(MpiException) as refused:
            file.Write_at(5 * comm.rank, b"abcde")
        assert refused.value.error_class == MPI.ERR_NO_SPACE
        assert "/dev/full" in str(refused.value)
        request = file.Iwrite_at(0, b"abcde")
        assert code_of(request.Wait) == MPI.ERR_NO_SPACE
        file.Close()

    run_ranks(2, program)


def test_error_handlers_of_files(tmp_path: Path) -> None:
    told = []

    def program(comm: Any) -> None:
        mine = File.Create_errhandler(lambda file, code: told.append((comm.rank, bool(file), code)))
        file = File.Open(comm, tmp_path / "file", MAKE)
        assert file.Get_errhandler() == MPI.ERRORS_RETURN
        file.Set_errhandler(mine)
        assert code_of(file.Seek, -1) == MPI.ERR_ARG
        file.Close()

    run_ranks(2, program)
    assert sorted(told) == [(0, True, MPI.ERR_ARG), (1, True, MPI.ERR_ARG)]


def everything(comm: Any, path: Path) -> None:
    """A program that waits in every kind of call of files."""
    file = File.Open(comm, path, MAKE)
    file.Set_view(0, MPI.DOUBLE)
    mine = np.full(100, comm.rank, float)
    into = np.zeros(100)
    for turn in range(2):
        file.Write_at(100 * comm.rank, mine)
        file.Write_all(mine)
        file.Set_atomicity(turn == 0)
        file.Read_at(100 * comm.rank, into)
        file.Iread_at_all(0, into).Wait()
        file.Write_shared(mine)
        file.Read_ordered(into)
        file.Write_ordered_begin(mine)
        file.Write_ordered_end(mine)
        file.Seek(0, MPI.SEEK_END)
        file.Seek_shared(0)
        file.Get_position_shared()
        file.Set_size(file.Get_size())
        file.Preallocate(10)
        file.Sync()
    file.Iwrite(mine)  # Close waits for it
    file.Close()


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("seed", range(2))
def test_the_stack_of_every_wait_can_be_an_image(tmp_path: Path, size: int, seed: int) -> None:
    run_ranks(size, lambda comm: everything(comm, tmp_path / "file"), seed=seed, hook=watch)
    assert len(PLACES) >= 8

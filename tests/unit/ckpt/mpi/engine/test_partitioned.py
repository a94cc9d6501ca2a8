"""Buffers sent and received in parts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ckpt.mpi.base.constants import PROC_NULL
from ckpt.mpi.base.errors import ERR_ARG, ERR_PROC_FAILED, ERR_RANK, ERR_REQUEST, ERR_TRUNCATE
from ckpt.mpi.datatypes.datatypes import PREDEFINED
from tests.unit.ckpt.mpi.bus import Killed, image_of, revive, run_ranks
from tests.unit.ckpt.mpi.engine.test_failures import code_of, until_failed


@pytest.mark.parametrize("cuts", [(1, 1), (4, 4), (2, 6), (6, 2), (4, 6)])
def test_the_two_sides_may_cut_differently_and_parts_come_when_they_are_ready(cuts: tuple[int, int]) -> None:
    def program(comm: Any) -> Any:
        data = np.arange(12.0) if comm.rank == 0 else np.zeros(12)
        if comm.rank == 0:
            request = comm.Psend_init(data, cuts[0], 1, 3)
            for turn in range(3):
                data += turn
                request.Start()
                for partition in reversed(range(cuts[0])):
                    request.Pready(partition)
                    comm.send(partition, 1)
                    comm.recv(source=1)
                request.Wait()
            return None
        request = comm.Precv_init(data, cuts[1], 0, 3)
        seen = []
        for _ in range(3):
            request.Start()
            for _ in range(cuts[0]):
                comm.recv(source=0)
                seen.append([request.Parrived(partition) for partition in range(cuts[1])])
                comm.send(None, 0)
            request.Wait()
        return seen[: cuts[0]], data.tolist()

    for seed in range(10):
        seen, data = run_ranks(2, program, seed=seed)[1]
        assert data == [x + 3.0 for x in range(12)]
        assert all(seen[-1]) and seen == sorted(seen), "more and more of them"
        for number, arrived in enumerate(seen):
            first = (cuts[0] - 1 - number) / cuts[0]  # from here on everything was sent
            assert arrived == [partition / cuts[1] >= first - 1e-9 for partition in range(cuts[1])]


def test_several_at_a_time_belong_together_in_the_order_in_which_they_were_made() -> None:
    def program(comm: Any) -> Any:
        other = 1 - comm.rank
        buffers = [np.full(4, comm.rank * 10.0 + k) for k in range(3)]
        into = [np.zeros(4) for _ in range(3)]
        sends = [comm.Psend_init(buffer, 2, other) for buffer in buffers]
        receives = [comm.Precv_init(buffer, 2, other) for buffer in into]
        for request in [*receives, *reversed(sends)]:
            request.Start()
        for request in reversed(sends):
            request.Pready_list([1, 0])
        for request in [*sends, *receives]:
            request.Wait()
        return [buffer[3] for buffer in into]

    assert run_ranks(2, program) == [[10.0, 11.0, 12.0], [0.0, 1.0, 2.0]]


@pytest.mark.parametrize("count", [3, None])
def test_a_count_is_that_of_one_partition(count: int | None) -> None:
    def program(comm: Any) -> Any:
        data = np.arange(6, dtype="i4") if comm.rank == 0 else np.zeros(6, dtype="i4")
        buffer = data if count is None else [data, count, PREDEFINED["MPI_INT"]]
        request = comm.Psend_init(buffer, 2, 1) if comm.rank == 0 else comm.Precv_init(buffer, 2, 0)
        request.Start()
        if comm.rank == 0:
            request.Pready_range(0, 1)
        request.Wait()
        return data.tolist()

    assert run_ranks(2, program) == [list(range(6))] * 2


def test_wrong_use() -> None:
    def program(comm: Any) -> Any:
        with pytest.raises(ValueError, match="cannot be cut"):
            comm.Psend_init(np.zeros(5), 2, 0)
        send, receive = comm.Psend_init(np.zeros(4), 2, 0), comm.Precv_init(np.zeros(2), 1, 0)
        codes = [code_of(lambda: send.Pready(0)), code_of(lambda: comm.Precv_init(np.zeros(2), 1, -1))]
        send.Start()
        receive.Start()
        codes += [code_of(lambda: send.Pready(2)), code_of(lambda: send.Parrived(0))]
        send.Pready_range(0, 1)
        codes += [code_of(lambda: send.Pready(0)), code_of(receive.Wait)]
        return codes

    assert run_ranks(1, program) == [[ERR_REQUEST, ERR_RANK, ERR_ARG, ERR_REQUEST, ERR_ARG, ERR_TRUNCATE]]


def test_a_dead_peer_ends_it() -> None:
    def program(comm: Any) -> Any:
        if comm.rank == 1:
            raise Killed
        send, receive = comm.Psend_init(np.zeros(4), 2, 1), comm.Precv_init(np.zeros(4), 2, 1)
        send.Start()
        receive.Start()
        until_failed(comm)
        return code_of(send.Wait), code_of(receive.Wait)

    assert run_ranks(2, program)[0] == (ERR_PROC_FAILED, ERR_PROC_FAILED)


def test_half_received_it_is_part_of_an_image() -> None:
    def program(comm: Any) -> Any:
        data, into = np.arange(4.0), np.zeros(4)
        send, receive = comm.Psend_init(data, 2, 0), comm.Precv_init(into, 2, 0)
        send.Start()
        receive.Start()
        send.Pready(1)
        while not receive.Parrived(1):
            pass
        engine = comm._engine
        image = image_of(engine.progress, engine, send, receive, into)
        engine, send, receive, into = revive(image, engine.progress)
        engine.progress.engine = engine
        assert [receive.Parrived(0), receive.Parrived(1)] == [False, True]
        send.Pready(0)
        receive.Wait()
        send.Wait()
        return into.tolist()

    assert run_ranks(1, program) == [[0.0, 1.0, 2.0, 3.0]]


def test_with_nobody() -> None:
    def program(comm: Any) -> Any:
        send, receive = comm.Psend_init(np.zeros(4), 2, PROC_NULL), comm.Precv_init(np.zeros(4), 2, PROC_NULL)
        for request in (send, receive):
            request.Start()
        send.Pready(0)
        return receive.Parrived(1), send.Wait(), receive.Wait()

    assert run_ranks(1, program) == [(True, True, True)]

"""Communicators made of others: intercommunicators, topologies, duplicates; revoking them."""

from typing import Any

import numpy as np
import pytest

from ckpt.mpi.base.constants import PROC_NULL, ROOT
from ckpt.mpi.base.errors import ERR_COMM, ERR_REVOKED, MpiException
from ckpt.mpi.comm.communicator import Comm, Intracomm
from ckpt.mpi.datatypes.op import SUM
from tests.unit.ckpt.mpi.bus import run_ranks


def bridge(comm: Any) -> Any:
    """Ranks 0… and the last two as the two sides."""
    low = comm.rank < comm.size - 2
    local = comm.Split(0 if low else 1)
    return local.Create_intercomm(0, comm, comm.size - 2 if low else 0, tag=3)


def test_messages_between_two_groups() -> None:
    def program(comm: Any) -> Any:
        inter = bridge(comm)
        inter.send(("from", comm.rank), 0, tag=1)
        got = sorted(inter.recv(tag=1) for _ in range(inter.Get_remote_size())) if inter.rank == 0 else None
        return inter.size, inter.remote_size, inter.is_inter, got

    results = run_ranks(5, program)
    assert results[0] == (3, 2, True, [("from", 3), ("from", 4)])
    assert results[3] == (2, 3, True, [("from", 0), ("from", 1), ("from", 2)])


def test_collectives_between_two_groups() -> None:
    def program(comm: Any) -> Any:
        inter = bridge(comm)
        low = comm.rank < 3
        root = (ROOT if comm.rank == 1 else PROC_NULL) if low else 1
        told = inter.bcast("news" if root == ROOT else None, root)
        total = np.zeros(2, "i")
        inter.Allreduce(np.full(2, comm.rank, "i"), total, SUM)
        return (
            told,
            inter.allgather(comm.rank),
            total.tolist(),
            inter.alltoall(list(range(inter.remote_size))),
        )

    results = run_ranks(5, program)
    assert results[0] == (None, [3, 4], [7, 7], [0, 0])
    assert results[4] == ("news", [0, 1, 2], [3, 3], [1, 1, 1])


@pytest.mark.parametrize("high", [False, True])
def test_merging(high: bool) -> None:
    def program(comm: Any) -> Any:
        inter = bridge(comm)
        first = comm.rank < 3
        merged = inter.Merge(high=first if high else not first)
        return merged.allgather(comm.rank)

    order = [3, 4, 0, 1, 2] if high else [0, 1, 2, 3, 4]
    assert run_ranks(5, program) == [order] * 5


def test_a_periodic_grid_of_two_tells_its_neighbours_apart() -> None:
    def program(comm: Any) -> Any:
        ring = comm.Create_cart([2], periods=[True])
        return ring.neighbor_alltoall([(ring.rank, "down"), (ring.rank, "up")])

    results = run_ranks(2, program)
    assert results[0] == [(1, "up"), (1, "down")]
    assert results[1] == [(0, "up"), (0, "down")]


def test_a_grid_with_ends_leaves_blocks_alone() -> None:
    def program(comm: Any) -> Any:
        line = comm.Create_cart([3])
        into = np.full(2, -1, "i")
        line.Neighbor_allgather(np.array([line.rank], "i"), into)
        return line.Shift(0, 1), into.tolist()

    results = run_ranks(3, program)
    assert results[0] == ((PROC_NULL, 1), [-1, 1])
    assert results[2] == ((1, PROC_NULL), [1, -1])


def test_a_distributed_graph_knows_edges_that_others_named() -> None:
    def program(comm: Any) -> Any:
        edges = ([0, 1], [2, 1], [1, 2, 2]) if comm.rank == 0 else ([], [], [])
        graph = comm.Create_dist_graph(*edges)
        return graph.Get_dist_neighbors()[:2], graph.neighbor_allgather(comm.rank)

    results = run_ranks(3, program)
    assert results == [(([], [1, 2]), []), (([0], [2]), [0]), (([0, 1], []), [0, 1])]


def test_a_nonblocking_duplicate_carries_its_attributes() -> None:
    def program(comm: Any) -> Any:
        key = comm.Create_keyval(copy_fn=True)
        comm.Set_attr(key, "kept")
        copy, request = comm.Idup()
        request.wait()
        return copy.Get_attr(key), copy.allreduce(comm.rank), copy == comm

    assert run_ranks(3, program) == [("kept", 3, False)] * 3


def test_revoking_ends_what_is_pending_everywhere() -> None:
    def program(comm: Any) -> Any:
        other = comm.Dup()
        if comm.rank == 0:
            comm.recv(source=1)  # the others are on their way into their calls
            comm.recv(source=2)
            other.Revoke()
            code = 0
        else:
            pending = other.irecv(source=0, tag=5)
            comm.send(None, 0)
            with pytest.raises(MpiException) as caught:
                other.barrier() if comm.rank == 1 else pending.wait()
            code = caught.value.error_class
        with pytest.raises(MpiException) as refused:
            other.send(1, 0)
        rest = other.Shrink()
        return code, refused.value.error_class, other.Agree(7 - comm.rank), rest.allgather(comm.rank)

    results = run_ranks(3, program)
    assert [result[0] for result in results] == [0, ERR_REVOKED, ERR_REVOKED]
    assert [result[1:] for result in results] == [(ERR_REVOKED, 7 & 6 & 5, [0, 1, 2])] * 3


def test_a_freed_communicator_is_null() -> None:
    def program(comm: Any) -> Any:
        copy = comm.Dup()
        other = type(copy)(copy)
        copy.Free()
        with pytest.raises(MpiException) as caught:
            copy.barrier()
        return bool(copy), bool(other), caught.value.error_class

    assert run_ranks(2, program) == [(False, False, ERR_COMM)] * 2


def test_what_cannot_be_pickled_and_what_is_pickled_by_name() -> None:
    import pickle

    from ckpt.mpi.base.group import GROUP_EMPTY
    from ckpt.mpi.comm.communicator import COMM_NULL
    from ckpt.mpi.comm.message import MESSAGE_NULL
    from ckpt.mpi.requests.request import REQUEST_NULL

    def program(comm: Any) -> None:
        for constant in (COMM_NULL, GROUP_EMPTY, MESSAGE_NULL, REQUEST_NULL):
            assert pickle.loads(pickle.dumps(constant)) is constant
            copied = pickle.loads(pickle.dumps(type(constant)(constant)))
            assert copied == constant and copied is not constant
        for mine in (comm.Dup(), comm.Get_group(), comm.irecv(source=0)):
            with pytest.raises(ValueError, match="cannot pickle"):
                pickle.dumps(mine)

    run_ranks(1, program)


def test_ranks_tags_and_colors_are_what_mpi4py_takes_for_an_integer() -> None:
    """pySDC splits by the result of a comparison of numpy's."""

    def program(comm: Any) -> Any:
        part = comm.Split(np.bool_(comm.rank > 0), np.float64(-comm.rank))
        with pytest.raises(TypeError):
            comm.Split("0")
        with pytest.raises(TypeError):
            comm.send(None, None)
        return (
            part.size,
            part.rank,
            comm.sendrecv(comm.rank, comm.rank, np.float64(3), source=comm.rank, recvtag=3),
        )

    assert run_ranks(3, program) == [(1, 0, 0), (2, 1, 1), (2, 0, 2)]


def test_the_bases_of_comm_have_three_levels() -> None:
    """The calls (one class a topic), CommBase, and Handle, which all MPI objects have: no chain of mixins, in which a reader
    has to look for a method."""

    def levels(cls: type) -> int:
        return 0 if cls is object else 1 + max(map(levels, cls.__bases__))

    assert levels(Comm) - 1 <= 3
    assert levels(Intracomm) - 1 <= 4

"""Collectives against what numpy says, for 1 to 7 ranks and random interleavings; some for more."""

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ckpt.mpi.base import envelope
from ckpt.mpi.base.constants import CONGRUENT, IDENT, IN_PLACE, SIMILAR, UNDEFINED, UNEQUAL
from ckpt.mpi.base.errors import ERR_BUFFER, ERR_COMM, ERR_OP, ERR_TRUNCATE, MpiException
from ckpt.mpi.base.group import Group
from ckpt.mpi.collectives import builders, tree
from ckpt.mpi.comm.communicator import Comm, self_of
from ckpt.mpi.datatypes import op as ops
from ckpt.mpi.datatypes.datatypes import Datatype, from_code
from ckpt.mpi.requests.request import Request
from tests.unit.ckpt.mpi.bus import BusProgress, run_ranks

sizes = st.integers(1, 7)
seeds = st.integers(0, 10**6)
quick = settings(max_examples=25, deadline=None)


def parts(size: int, count: int, seed: int) -> np.ndarray:
    """Every rank's contribution: reals whose sum depends on the order of summation."""
    return (
        np.random.default_rng(seed).standard_normal((size, count))
        * 10.0 ** np.arange(-3, count - 3 or 1)[:count]
    )


@pytest.fixture(params=["usual", "everything large"], autouse=True)
def thresholds(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same results whichever algorithm the sizes choose."""
    if request.param == "everything large":
        monkeypatch.setattr(builders, "CUT_BYTES", 0)
        monkeypatch.setattr(builders, "SEGMENT_BYTES", 24)
        monkeypatch.setattr(tree, "DIRECT_RANKS", 2)
        monkeypatch.setattr(tree, "WINDOW", 2)


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(sizes, seeds)
def test_objects(size: int, seed: int) -> None:
    def program(comm: Any) -> None:
        rank = comm.rank
        for root in {0, size - 1, seed % size}:
            assert comm.bcast({"from": rank}, root) == {"from": root}
            assert comm.gather(rank, root) == (list(range(size)) if rank == root else None)
            assert comm.scatter([(root, to) for to in range(size)] if rank == root else None, root) == (
                root,
                rank,
            )
            assert comm.reduce([rank], root=root) == (list(range(size)) if rank == root else None)
        assert comm.allgather(str(rank)) == [str(other) for other in range(size)]
        assert comm.alltoall([(rank, to) for to in range(size)]) == [(other, rank) for other in range(size)]
        assert comm.allreduce((rank,)) == tuple(range(size))
        assert comm.allreduce(rank, ops.MAX) == size - 1
        assert comm.allreduce((rank % 2, rank), ops.MAXLOC) == (min(1, size - 1), min(1, size - 1))
        assert comm.scan([rank]) == list(range(rank + 1))
        assert comm.exscan([rank]) == (list(range(rank)) or None)
        comm.barrier()

    run_ranks(size, program, seed=seed)


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(sizes, st.integers(0, 40), seeds)
def test_buffers(size: int, count: int, seed: int) -> None:
    given_parts = parts(size, count, seed)
    root = seed % size

    def program(comm: Any) -> Any:
        rank = comm.rank
        mine = given_parts[rank].copy()
        buffer = mine.copy()
        comm.Bcast(buffer, root)
        assert (buffer == given_parts[root]).all()
        everything = np.zeros((size, count))
        comm.Gather(mine, everything if rank == root else None, root)
        assert rank != root or (everything == given_parts).all()
        block = np.zeros(count)
        comm.Scatter(given_parts if rank == root else None, block, root)
        assert (block == mine).all()
        everything = np.zeros((size, count))
        comm.Allgather(mine, everything)
        assert (everything == given_parts).all()
        swapped = np.zeros((size, count))
        comm.Alltoall(given_parts * (rank + 1), swapped)
        assert (swapped == given_parts[rank] * np.arange(1, size + 1)[:, None]).all()
        total, maximum, prefix, before = (np.zeros(count) for _ in range(4))
        comm.Allreduce(mine, total)
        comm.Reduce(mine, maximum if rank == root else None, ops.MAX, root)
        comm.Scan(mine, prefix)
        comm.Exscan(mine, before)
        np.testing.assert_allclose(total, given_parts.sum(0))
        assert rank != root or (maximum == given_parts.max(0)).all()
        np.testing.assert_allclose(prefix, given_parts[: rank + 1].sum(0))
        np.testing.assert_allclose(before, given_parts[:rank].sum(0))
        share = np.zeros(count)
        comm.Reduce_scatter_block(np.tile(mine, size), share)
        np.testing.assert_allclose(share, given_parts.sum(0))
        assert (mine == given_parts[rank]).all()
        return total.tobytes() + prefix.tobytes() + share.tobytes()

    first = run_ranks(size, program, seed=seed)
    assert first == run_ranks(size, program, seed=seed + 1), "results depend on timing"
    assert len({result[: 8 * count] for result in first}) == 1, "ranks disagree on the sum"


@pytest.mark.parametrize("size", range(1, 8))
def test_in_place(size: int) -> None:
    count = 11
    given_parts = parts(size, count, 3)

    def program(comm: Any) -> None:
        rank = comm.rank
        total = given_parts[rank].copy()
        comm.Allreduce(IN_PLACE, total, ops.MIN)
        assert (total == given_parts.min(0)).all()
        total = given_parts[rank].copy()
        comm.Reduce(IN_PLACE if rank == 0 else total, total if rank == 0 else None, ops.MAX)
        assert rank != 0 or (total == given_parts.max(0)).all()
        everything = np.zeros((size, count))
        everything[rank] = given_parts[rank]
        comm.Allgather(IN_PLACE, everything)
        assert (everything == given_parts).all()
        comm.Alltoall(IN_PLACE, everything)
        assert (everything == given_parts[rank]).all()
        everything[rank] = given_parts[rank]
        comm.Gather(IN_PLACE if rank == 0 else given_parts[rank], everything if rank == 0 else None)
        assert rank != 0 or (everything == given_parts).all()
        comm.Scatter(given_parts if rank == 0 else None, IN_PLACE if rank == 0 else total)
        prefix = np.full(count, float(rank))
        comm.Scan(IN_PLACE, prefix)
        assert (prefix == rank * (rank + 1) / 2).all()
        both = np.arange(float(size))
        comm.Reduce_scatter(IN_PLACE, both)
        assert both[0] == rank * size
        if rank:
            with pytest.raises(MpiException) as caught:
                comm.Gather(IN_PLACE, None)
            assert caught.value.error_class == ERR_BUFFER

    run_ranks(size, program)


@pytest.mark.parametrize("size", [1, 2, 5])
def test_blocks_of_different_sizes(size: int) -> None:
    counts = [rank * 2 % 5 + 1 for rank in range(size)]
    displacements = [sum(counts) + 3 - sum(counts[: rank + 1]) for rank in range(size)]
    expected = np.zeros(sum(counts) + 3, "i")
    for rank in range(size):
        expected[displacements[rank] :][: counts[rank]] = rank + 1

    def program(comm: Any) -> None:
        rank = comm.rank
        mine = np.full(counts[rank], rank + 1, "i")
        into = np.zeros_like(expected)
        comm.Allgatherv(mine, [into, (counts, displacements), "i"])
        assert (into == expected).all()
        into[:] = 0
        comm.Gatherv(mine, [into, counts, displacements, "i"] if rank == 0 else None)
        assert rank != 0 or (into == expected).all()
        mine[:] = 0
        comm.Scatterv([expected, (counts, displacements)] if rank == 0 else None, mine)
        assert (mine == rank + 1).all()
        out = np.repeat(np.arange(size, dtype="i"), counts)
        into = np.zeros(size * counts[rank], "i")
        comm.Alltoallv([out, counts], [into, [counts[rank]] * size])
        assert (into == rank).all()
        share = np.zeros(counts[rank], "i")
        comm.Reduce_scatter(out, share, counts)
        assert (share == rank * size).all()

    run_ranks(size, program)


@pytest.mark.parametrize("size", [9, 12])
def test_many_ranks(size: int) -> None:
    def program(comm: Any) -> None:
        rank = comm.rank
        for root in (0, 4):
            everything = np.zeros((size, 3), "i")
            comm.Gather(np.full(3, rank, "i"), everything if rank == root else None, root)
            assert rank != root or (np.arange(size) == everything.T).all()
            mine = np.zeros(3, "i")
            comm.Scatter(everything if rank == root else None, mine, root)
            assert (mine == rank).all()
        comm.Allgather(np.full(3, rank, "i"), everything)
        assert (np.arange(size) == everything.T).all()
        assert comm.allgather([rank]) == [[other] for other in range(size)]
        assert comm.allreduce([rank]) == list(range(size))

    run_ranks(size, program)


def test_operations_that_do_not_commute_combine_in_rank_order() -> None:
    matrices = np.random.default_rng(1).integers(0, 3, (6, 40, 2, 2)).astype(float)

    def multiply(a: Any, b: Any, datatype: Any) -> Any:
        y = np.frombuffer(b).reshape(-1, 2, 2)
        y[:] = np.frombuffer(a).reshape(-1, 2, 2) @ y

    quad = Datatype._make("", ((0, 32),), basics=(8,) * 4)

    def program(comm: Any) -> None:
        op = ops.Op.Create(multiply, commute=False)
        result = np.zeros((40, 2, 2))
        comm.Allreduce([matrices[comm.rank], 40, quad], [result, 40, quad], op)
        expected = matrices[0]
        for matrix in matrices[1 : comm.size]:
            expected = expected @ matrix
        assert (result == expected).all()
        comm.Reduce([matrices[comm.rank], 40, quad], [result, 40, quad] if comm.rank == 2 else None, op, 2)
        assert comm.rank != 2 or (result == expected).all()

    for size in (3, 4, 6):
        run_ranks(size, program, seed=size)


@pytest.mark.parametrize("size", [1, 3, 4])
def test_many_nonblocking_operations_at_once_in_any_order_of_waiting(size: int) -> None:
    def program(comm: Any) -> None:
        rank = comm.rank
        pending = []
        for number in range(50):
            total, block = np.zeros(2), np.full(3, float(rank == number % size) * number)
            pending.append((comm.Iallreduce(np.array([rank, number], float), total), total, number))
            pending.append((comm.Ibcast(block, number % size), block, number))
            if number % 10 == 3:
                comm.barrier()
        for request, data, number in reversed(pending):
            request.Wait()
            expected = [size * (size - 1) / 2, number * size] if len(data) == 2 else [number] * 3
            assert data.tolist() == expected

    run_ranks(size, program, seed=size)


def test_persistent_collectives_match_in_the_order_of_creation() -> None:
    def program(comm: Any) -> None:
        one, two, total = np.zeros(3), np.zeros(3), np.zeros(3)
        first, second = comm.Bcast_init(one, 0), comm.Allreduce_init(two, total)
        for turn in range(4):
            one[:] = turn if comm.rank == 0 else -1
            two[:] = turn
            order = [first, second] if (comm.rank + turn) % 2 else [second, first]
            for request in order:
                request.Start()
            comm.barrier()
            Request.Waitall(order)
            assert (one == turn).all()
            assert (total == turn * comm.size).all()

    for seed in range(4):
        run_ranks(3, program, seed=seed)


def test_wrong_use() -> None:
    def program(comm: Any) -> None:
        with pytest.raises(ValueError, match="mismatch"):
            comm.Allreduce(np.zeros(3), np.zeros(4))
        with pytest.raises(ValueError, match="mismatch"):
            comm.Allreduce(np.zeros(3), np.zeros(3, "f"))
        with pytest.raises(MpiException) as caught:
            comm.Allreduce(np.zeros(3), np.zeros(3), ops.BAND)
        assert caught.value.error_class == ERR_OP
        with pytest.raises(MpiException) as caught:
            comm.Gather(np.zeros(4), np.zeros(3))
        assert caught.value.error_class == ERR_TRUNCATE

    run_ranks(1, program)


def test_an_error_in_a_programs_operation_reaches_the_caller() -> None:
    def program(comm: Any) -> str:
        try:
            comm.allreduce(comm.rank, ops.Op.Create(lambda x, y, t: x / 0))
        except ZeroDivisionError:
            return "raised"
        return "no error"

    assert run_ranks(2, program) == ["raised", "raised"]


# -- new communicators -----------------------------------------------------------------------------


@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.lists(st.tuples(st.sampled_from([0, 1, 2, UNDEFINED]), st.integers(-2, 2)), min_size=1, max_size=6),
    seeds,
)
def test_split(choices: list[tuple[int, int]], seed: int) -> None:
    def program(comm: Any) -> Any:
        color, key = choices[comm.rank]
        part = comm.Split(color, key)
        if color == UNDEFINED:
            assert not part
            return None
        comm.send("on the parent", comm.rank)
        members = part.allgather(comm.rank)
        assert comm.recv(source=comm.rank) == "on the parent"
        assert members == sorted(
            (rank for rank in range(comm.size) if choices[rank][0] == color),
            key=lambda rank: choices[rank][1],
        )
        assert part.rank == members.index(comm.rank)
        assert Comm.Compare(part, part.Dup()) == CONGRUENT
        return part._shared.base

    bases = run_ranks(len(choices), program, seed=seed)
    by_color = {(color, base) for (color, _), base in zip(choices, bases, strict=True) if base is not None}
    assert len({base for _, base in by_color}) == len({color for color, _ in by_color}) == len(by_color)


def test_messages_of_a_duplicate_stay_apart() -> None:
    def program(comm: Any) -> None:
        copy = comm.Dup()
        other = 1 - comm.rank
        comm.send("original", other, 1)
        copy.send("duplicate", other, 1)
        assert copy.recv() == "duplicate"
        assert comm.recv() == "original"
        assert Comm.Compare(comm, copy) == CONGRUENT
        assert Comm.Compare(comm, type(comm)(comm)) == IDENT
        assert type(comm)(comm) == comm != copy
        backwards = comm.Split(0, -comm.rank)
        assert Comm.Compare(comm, backwards) == SIMILAR
        assert Comm.Compare(comm, self_of(comm._engine)) == UNEQUAL
        copy.Free()
        assert not copy
        with pytest.raises(MpiException) as caught:
            copy.send(0, 0)
        assert caught.value.error_class == ERR_COMM

    for seed in range(4):
        run_ranks(2, program, seed=seed)


def test_communicators_of_groups() -> None:
    def program(comm: Any) -> None:
        world = comm.Get_group()
        odd = world.Incl([rank for rank in (3, 1) if rank < comm.size])
        created = comm.Create(odd)
        if comm.rank % 2:
            grouped = comm.Create_group(odd, tag=5)
            assert grouped.allgather(comm.rank) == [3, 1] == created.allgather(comm.rank)
            assert Group.Compare(grouped.group, odd) == IDENT
        else:
            assert not created
        assert Group.Union(odd, world).size == comm.size
        assert Group.Difference(world, odd).Translate_ranks([0, 1], world) == [0, 2]
        assert world.Excl([0]).Translate_ranks(None, odd) == [1, UNDEFINED, 0]
        assert world.Range_incl([(3, 0, -2)]) == odd

    run_ranks(4, program)


@pytest.mark.parametrize("size", [1, 4, 5])
def test_a_long_broadcast_on_one_host_goes_to_each_rank_from_the_root(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(builders, "SEGMENT_BYTES", 24)
    monkeypatch.setattr(tree, "DIRECT_RANKS", 8)

    def program(comm: Any) -> None:
        comm._engine.one_host = True
        for root in range(size):
            array = np.arange(40.0) if comm.rank == root else np.zeros(40)
            comm.Bcast(array, root)
            assert (array == np.arange(40.0)).all()
            every_second = from_code("d").Create_vector(20, 1, 2).Commit()
            gaps = np.arange(40.0) if comm.rank == root else np.zeros(40)
            comm.Bcast([gaps, 1, every_second], root)
            assert (gaps[::2] == np.arange(0.0, 40, 2)).all()
            assert comm.rank == root or not gaps[1::2].any()

    run_ranks(size, program, seed=size)


def test_what_comes_after_an_error_is_not_put_into_the_programs_memory() -> None:
    """The program may use that memory again once the collective has failed."""

    def program(comm: Any) -> None:
        if comm.rank == 0:
            return
        into = np.zeros(8)
        comm._engine.one_host = True
        comm.Ibcast(into, 0)
        ((schedule,),) = comm._shared.pending.values()
        head = envelope.pack(envelope.EAGER, 0, schedule.number, schedule.context.number)
        assert comm._engine.place(head, 64) is not None
        assert comm._engine.place(head, 65) is None, "it does not fit"
        schedule.fail(MpiException(ERR_COMM, "a member is dead"))
        assert comm._engine.place(head, 64) is None

    run_ranks(2, program)


class Lent:
    """A message whose payload is read where the sender has it, and only when it comes."""

    def __init__(self, data: bytes, payload: Any) -> None:
        self.data, self.payload = bytes(data), payload

    def __len__(self) -> int:
        return len(self.data) + memoryview(self.payload).nbytes

    def __bytes__(self) -> bytes:
        return self.data + bytes(self.payload)


@pytest.mark.parametrize("name", ["Allreduce", "Reduce", "Scan", "Reduce_scatter", "Allgather", "Alltoall"])
@pytest.mark.parametrize("count", [9_000, 12_500, 40_000])
def test_what_is_lent_to_others_is_not_changed_before_they_have_read_it(
    monkeypatch: pytest.MonkeyPatch, name: str, count: int
) -> None:
    """A rank that had the result first, and stored it in place, gave it to the others for its own contribution."""
    send, placed = BusProgress.send, BusProgress._placed

    def lend(self: BusProgress, dst: int, data: Any, payload: Any = None) -> int:
        sequence = send(self, dst, data, payload)
        if payload is not None:
            self.bus.queues[self.rank, dst][-1] = Lent(data, payload)  # type: ignore[call-overload]
        return sequence

    monkeypatch.setattr(BusProgress, "send", lend)
    monkeypatch.setattr(
        BusProgress, "_placed", lambda self, src, batch: placed(self, src, [*map(bytes, batch)])
    )

    def program(comm: Any) -> Any:
        comm._engine.direct, comm._engine.joined_bytes = set(range(comm.size)), 64 << 10
        data = np.arange(count, dtype="i8") * (comm.rank + 1)
        if name == "Reduce":
            comm.Reduce(*([IN_PLACE, data] if comm.rank == 1 else [data, None]), root=1)
            return data[:3].tolist() if comm.rank == 1 else None
        getattr(comm, name)(IN_PLACE, data)
        return data[:3].tolist()

    results = [run_ranks(2, program, seed=seed) for seed in range(12)]
    assert all(result == results[0] for result in results)
    if name == "Allreduce":
        assert results[0] == [[0, 3, 6]] * 2

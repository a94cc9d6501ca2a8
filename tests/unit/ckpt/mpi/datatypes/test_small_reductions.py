"""A few numbers combined without numpy: its very bits, or nothing."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from ckpt.mpi.collectives.reduce import BufferArithmetic
from ckpt.mpi.datatypes import op as ops
from ckpt.mpi.datatypes import small_reductions
from ckpt.mpi.datatypes.datatypes import from_code
from ckpt.mpi.engine.schedule import Schedule
from tests.unit.ckpt.mpi.bus import run_ranks
from tests.unit.ckpt.mpi.datatypes.test_op import EXPECTED

INTEGERS = "bBhHiIlLqQ"
FLOATS = [0.0, -0.0, 1.5, -1.5, 5e-324, -5e-324, 1e308, -1e308, np.inf, -np.inf, np.nan, -np.nan, 0.1, 3.0]


def numbers(code: str) -> Any:
    if code == "d":
        return np.array(FLOATS)
    bounds = np.iinfo(code)
    return np.array([bounds.min, bounds.min + 1, 0, 1, 2, 3, 7, bounds.max // 2, bounds.max], code)


@pytest.mark.parametrize("count", [1, 2, 8])
@pytest.mark.parametrize("code", [*INTEGERS, "d"])
@pytest.mark.parametrize("name", [name for name in EXPECTED if "_L" not in name])
def test_the_bits_are_those_of_numpy(name: str, code: str, count: int) -> None:
    if code == "d" and name[4:] not in ("SUM", "PROD", "MAX", "MIN"):
        assert small_reductions.combine(name, code, bytes(8), bytes(8)) is None
        return
    some = numbers(code)
    pairs = [
        tuple(np.resize(np.roll(some, -at), count) for at in places)
        for places in itertools.product(range(len(some)), repeat=2)
    ]
    small = np.arange(1, count + 1).astype(code)
    for a, b in [*pairs, (small, small)]:
        with np.errstate(all="ignore"):
            expected = EXPECTED[name](a, b)
        result = small_reductions.combine(name, code, memoryview(a).cast("B"), b.tobytes())
        if result is not None or a is small:
            assert result == expected.tobytes(), (a, b)


@pytest.mark.parametrize(
    ("name", "code", "a", "b"),
    [
        ("MPI_SUM", "b", [100], [100]),
        ("MPI_SUM", "Q", [2**64 - 1], [1]),
        ("MPI_PROD", "l", [2**40], [2**40]),
        ("MPI_SUM", "f", [1.5], [1.5]),
        ("MPI_SUM", "d", [np.inf], [-np.inf]),
        ("MPI_PROD", "d", [np.nan], [1.0]),
        ("MPI_MAX", "d", [np.nan], [1.0]),
        ("MPI_MIN", "d", [1.0], [np.nan]),
        ("MPI_MAX", "d", [0.0], [-0.0]),
        ("MPI_MIN", "d", [-0.0], [0.0]),
        ("MPI_LAND", "l", [1], [1]),
        ("MPI_MAXLOC", "d,i", [], []),
        ("MPI_REPLACE", "d", [1.0], [2.0]),
        ("", "d", [1.0], [2.0]),
        ("MPI_SUM", "", [], []),
    ],
)
def test_what_the_general_way_has_to_say(name: str, code: str, a: list[Any], b: list[Any]) -> None:
    kind = code if len(code) == 1 else "d"
    assert (
        small_reductions.combine(name, code, np.array(a, kind).tobytes(), np.array(b, kind).tobytes()) is None
    )


@pytest.mark.parametrize("count", [1, 8, 9])
@pytest.mark.parametrize("code", ["d", "f", "b", "l"])
def test_both_ways_are_taken_by_a_collective(code: str, count: int) -> None:
    def program(comm: Any) -> None:
        mine = np.full(count, 50 + comm.rank, code)
        into = np.zeros_like(mine)
        for op, expected in ((ops.SUM, 153), (ops.MAX, 52)):
            comm.Allreduce(mine, into, op)
            assert into.tolist() == np.full(count, expected).astype(code).tolist()
        comm.Scan(mine, into)
        assert into.tolist() == np.full(count, sum(range(50, 51 + comm.rank))).astype(code).tolist()
        comm.Allreduce(mine, into, largest)
        assert into.tolist() == np.full(count, 52).astype(code).tolist()

    def own(a: Any, b: Any, datatype: Any) -> None:
        x, y = (np.frombuffer(each, datatype.code) for each in (a, b))
        y[:] = np.maximum(x, y)

    largest = ops.Op.Create(own)
    run_ranks(3, program)
    largest.Free()


def test_a_persistent_reduction_looks_at_its_buffer_every_time() -> None:
    def program(comm: Any) -> None:
        for size in (1, 1000):
            mine, into = np.zeros(size), np.zeros(size)
            requests = [comm.Allreduce_init(mine, into), comm.Allreduce_init(None, both := np.zeros(size))]
            for turn in range(3):
                mine[:] = both[:] = turn + comm.rank
                requests[0].Startall(requests)
                requests[0].Waitall(requests)
                assert into.tolist() == both.tolist() == [4 * turn + 6] * size

    run_ranks(4, program)


def test_a_few_numbers_are_not_given_to_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ops, "_numpy", lambda: pytest.fail("asked for numpy"))

    def program(comm: Any) -> None:
        into = np.zeros(2)
        comm.Allreduce(np.array([1.0, 2.0]), into)
        assert into.tolist() == [comm.size, 2 * comm.size]

    run_ranks(4, program)


def test_what_may_be_overwritten_is() -> None:
    schedule = Schedule.__new__(Schedule)
    own = memoryview(bytearray(np.arange(2.0).tobytes()))
    schedule.values = [own, np.ones(2).tobytes(), bytes(own)]
    arithmetic = BufferArithmetic(ops.SUM, from_code("d"))
    arithmetic.accumulate(schedule, 0, 1)
    arithmetic.accumulate(schedule, 2, 1)
    assert schedule.values[0] is own and bytes(own) == schedule.values[2] == np.array([1.0, 2.0]).tobytes()

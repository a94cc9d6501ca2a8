"""Arrays and bodies: what can be combined, and what a combination must not be."""

from __future__ import annotations

from typing import Any, Self

import pytest

np = pytest.importorskip("numpy")

from ckpt import MPI  # noqa: E402
from ckpt.reduction import Body, allreduce, reduce  # noqa: E402
from ckpt.reduction.body import OPERATIONS, OWN, Packed, array_of, checksum, combine, content_of, name_of  # noqa: E402
from ckpt.reduction.errors import CombineFailed, InvalidInput  # noqa: E402


class Tally(Body):
    """Counts by name."""

    def __init__(self, counts: dict[str, int], how: str = "") -> None:
        self.counts, self.how = counts, how

    def combine(self, other: Self) -> Any:
        both = {
            name: self.counts.get(name, 0) + other.counts.get(name, 0)
            for name in {*self.counts, *other.counts}
        }
        return {"self": self, "other": other, "none": None, "size": Tally({}, "size")}.get(
            self.how, Tally(both)
        )

    def size(self) -> object:
        return self.how == "size"


@pytest.mark.parametrize("name", OPERATIONS)
def test_every_operation_has_the_result_of_its_definition(name: str) -> None:
    op = getattr(MPI, name[4:])
    x, y = np.array([0, 1, 6, 6]), np.array([0, 3, 5, 0])
    result = combine(x, y, content_of(x, name_of(op)))
    assert result.dtype == x.dtype and result.tolist() == [
        op(int(a), int(b)) for a, b in zip(x, y, strict=True)
    ]
    assert x.tolist() == [0, 1, 6, 6] and y.tolist() == [0, 3, 5, 0]


@pytest.mark.parametrize("op", [MPI.MAXLOC, MPI.REPLACE, MPI.OP_NULL, None, sum])
def test_an_operation_that_is_not_defined_for_arrays_is_refused(op: Any) -> None:
    with pytest.raises(InvalidInput, match="op"):
        name_of(op)


@pytest.mark.parametrize(
    "data", ["text", [None], b"bytes", {1: 2}, np.zeros(2, "M8[s]"), np.zeros(2, "i4,f8")]
)
def test_what_is_no_array_of_numbers_is_refused(data: Any) -> None:
    with pytest.raises(InvalidInput, match="array of"):
        array_of(data, "MPI_SUM")


def test_an_operation_is_refused_for_types_that_mpi_does_not_define_it_for() -> None:
    with pytest.raises(InvalidInput, match="complex128 cannot be reduced with MAX"):
        array_of(np.zeros(2, complex), "MPI_MAX")
    with pytest.raises(InvalidInput, match="float64 cannot be reduced with BAND"):
        array_of(np.zeros(2), "MPI_BAND")


def test_an_array_is_taken_as_it_is_where_it_can_be() -> None:
    x = np.arange(6.0)
    assert array_of(x, "MPI_SUM") is x
    assert array_of(x[::2], "MPI_SUM").flags.c_contiguous
    assert array_of([1, 2], "MPI_SUM").tolist() == [1, 2]


def test_the_programs_operation_returns_a_new_array_of_the_same_kind() -> None:
    x = np.arange(3.0)
    content = content_of(x, OWN)
    assert combine(x, x, content, lambda a, b: a - b).tolist() == [0, 0, 0]
    for own, text in (
        (lambda a, b: a[:2], "shape"),
        (lambda a, b: b, "new array"),
        (lambda a, b: (a + b).astype("f4"), "float32"),
    ):
        with pytest.raises(CombineFailed, match=text):
            combine(x, x, content, own)


def test_bodies_are_combined_packed_or_not() -> None:
    one, two = Tally({"a": 1}), Tally({"a": 2, "b": 1})
    for left in (one, Packed.of(one)):
        result = combine(left, Packed.of(two), content_of(one, ""))
        assert result.counts == {"a": 3, "b": 1}


@pytest.mark.parametrize(
    ("how", "text"), [("self", "new body"), ("other", "new body"), ("none", "NoneType"), ("size", "size")]
)
def test_a_combination_of_another_kind_is_refused(how: str, text: str) -> None:
    left = Tally({}, how)
    left.size = lambda: False  # type: ignore[method-assign]
    with pytest.raises(CombineFailed, match=text):
        combine(left, Tally({}), "|")


def test_a_checksum_tells_what_was_written_to() -> None:
    x = np.arange(4.0)
    before = checksum(x)
    x[2] = 7
    assert checksum(x) != before
    tally = Tally({"a": 1})
    before = checksum(tally)
    assert checksum(Tally({"a": 1})) == before
    tally.counts["a"] = 2
    assert checksum(tally) != before


def test_an_operation_of_the_program_may_return_another_order_of_bytes() -> None:
    """numpy computes in the machine's: `x + y` of arrays in the other one is refused otherwise."""
    x = np.arange(3.0).astype(">f8")
    content = content_of(x, OWN)
    result = combine(x, x, content, lambda a, b: a + b)
    assert result.dtype == x.dtype and result.tolist() == [0, 2, 4]
    with pytest.raises(CombineFailed, match="array of float32"):
        combine(x, x, content, lambda a, b: (a + b).astype("f4"))


def test_an_operation_that_returns_nothing_is_told_so() -> None:
    """As operations for buffers do, which write to their second argument."""
    with pytest.raises(CombineFailed, match=r"returned nothing: function\(x, y, None\)"):
        combine(np.arange(3), np.arange(3), content_of(np.arange(3), OWN), lambda a, b: None)


def test_a_masked_array_is_refused() -> None:
    """Its masked elements would be combined like all others: a silent wrong result."""
    with pytest.raises(InvalidInput, match="masked"):
        array_of(np.ma.masked_array([1.0, 2.0], [True, False]), "MPI_SUM")


def test_one_rank_without_a_job() -> None:
    """The result is a copy, callbacks are called, and errors are raised as elsewhere."""
    x = np.arange(3.0)
    f = allreduce(x, weight=2)
    assert f.done() and f.contributors == (0,) and f.missing == () and f.weight == 2 and f.root is None
    result = f.result()
    assert result is not x and result.tolist() == [0, 1, 2] and f.result() is result
    called = []
    f.add_done_callback(called.append)
    assert called == [f]
    assert reduce(Tally({"a": 1}), root=0).result().counts == {"a": 1}
    assert allreduce(x, copies=np.int64(2), parts=np.int32(3), quorum=np.int64(1)).result().tolist() == [
        0,
        1,
        2,
    ]
    assert allreduce(x, quorum=np.float32(0.5)).result().tolist() == [0, 1, 2]
    with pytest.raises(InvalidInput, match="array of"):
        allreduce("text").result()
    with pytest.raises(ValueError, match="root"):
        reduce(x, root=1)
    with pytest.raises(TypeError, match="option 'speed'"):
        allreduce(x, speed=1)
    for wrong in (
        {"weight": -1},
        {"deadline_s": 0},
        {"copies": 3},
        {"late": "wait"},
        {"name": 7},
        {"on_loss": "again"},
    ):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            allreduce(x, **wrong)

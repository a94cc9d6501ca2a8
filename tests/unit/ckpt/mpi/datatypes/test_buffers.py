"""Messages in mpi4py's spellings."""

from array import array
from typing import Any

import numpy as np
import pytest

from ckpt.mpi.base import envelope
from ckpt.mpi.base.constants import IN_PLACE
from ckpt.mpi.datatypes import buffers
from ckpt.mpi.datatypes.datatypes import BYTE, PREDEFINED, Datatype
from ckpt.mpi.engine.operations import Receive

INT, DOUBLE = PREDEFINED["MPI_INT"], PREDEFINED["MPI_DOUBLE"]
DATA = np.arange(12, dtype="i")


@pytest.mark.parametrize(
    ("arg", "count", "datatype", "offset"),
    [
        (DATA, 12, INT, 0),
        ([DATA, INT], 12, INT, 0),
        ((DATA, "i"), 12, INT, 0),
        ([DATA, 5], 5, INT, 0),
        ([DATA, 5, INT], 5, INT, 0),
        ([DATA, (5, 2), INT], 5, INT, 8),
        ([DATA, 5, 2, INT], 5, INT, 8),
        ([DATA, None, 2, INT], 10, INT, 8),
        ([DATA, DOUBLE], 6, DOUBLE, 0),
        (array("d", [1, 2]), 2, DOUBLE, 0),
        (bytearray(3), 3, BYTE, 0),
        (memoryview(bytearray(3)), 3, BYTE, 0),
        ([None, 0, INT], 0, INT, 0),
    ],
)
def test_spellings(arg: Any, count: int, datatype: Datatype, offset: int) -> None:
    spec = buffers.simple(arg, writable=True)
    assert (spec.count, spec.datatype, spec.offset) == (count, datatype, offset)


@pytest.mark.parametrize(
    ("arg", "error"),
    [
        (None, TypeError),
        ("text", TypeError),
        (17, TypeError),
        ([DATA, 1, 2, INT, 3], ValueError),
        ([DATA, 3.5, "i"], TypeError),
        ([DATA, 1, object()], KeyError),
        ([DATA, 1, "no such type"], KeyError),
        (DATA[::2], BufferError),
        (b"read-only", BufferError),
        (np.zeros(2, [("a", "i"), ("b", "d")]), KeyError),
        (np.zeros(2, ">i4"), BufferError),
        ([None, 1, INT], ValueError),
        ([DATA, 13, INT], ValueError),
        ([DATA, (5, 10), INT], ValueError),
        ([DATA, -1, INT], ValueError),
        ([bytearray(7), INT], ValueError),
    ],
)
def test_what_is_no_message(arg: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        buffers.simple(arg, writable=True)


def test_fortran_order_and_formats_without_a_cast_are_raw_memory_too() -> None:
    for source in (np.asfortranarray(np.arange(6.0).reshape(2, 3)), np.arange(3) + 1j, np.float32(3)):
        spec = buffers.simple(source, writable=False)
        assert bytes(spec.read()) == np.asarray(source).tobytes(order="A")


def test_vectors_default_to_consecutive_blocks() -> None:
    specs = buffers.vector([DATA, [3, 4, 5]], 3, writable=True)
    assert [(spec.offset, spec.count) for spec in specs] == [(0, 3), (12, 4), (28, 5)]
    specs = buffers.vector([DATA, ([1, 2], [6, 0]), INT], 2, writable=True)
    assert [(spec.offset, spec.count) for spec in specs] == [(24, 1), (0, 2)]
    specs = buffers.vector(DATA, 5, writable=True)
    assert [spec.count for spec in specs] == [3, 3, 2, 2, 2]
    with pytest.raises(ValueError, match="expecting 3 items"):
        buffers.vector([DATA, [1, 2]], 3, writable=True)


def test_blocks() -> None:
    assert [spec.count for spec in buffers.blocks(DATA, 4, writable=True)] == [3] * 4
    assert [spec.offset for spec in buffers.blocks([DATA, 2, INT], 4, writable=True)] == [0, 8, 16, 24]
    with pytest.raises(ValueError, match="equal blocks"):
        buffers.blocks(DATA, 5, writable=True)


def test_types_with_gaps_are_packed_and_unpacked() -> None:
    column = Datatype._make("", ((0, 4),), basics=(4,), code="i", extent=12)
    matrix = np.arange(12, dtype="i").reshape(4, 3)
    spec = buffers.simple([matrix, 4, column], writable=True)
    assert np.frombuffer(spec.read(), "i").tolist() == [0, 3, 6, 9]
    spec.write(np.array([9, 8, 7], "i").tobytes())
    assert matrix[:, 0].tolist() == [9, 8, 7, 9]
    assert matrix[:, 1].tolist() == [1, 4, 7, 10]


def test_a_message_that_is_too_long_is_cut_off_and_noted() -> None:
    target = np.zeros(2, "i")
    receive = Receive(0, 0, 0, buffers.simple(target, writable=True))
    receive.fill(0, 0, bytes(envelope.SIZE) + np.array([1, 2, 3], "i").tobytes())
    assert target.tolist() == [1, 2]
    assert receive.error == 14
    assert receive.nbytes == 8


def test_the_marker_for_in_place() -> None:
    assert buffers.is_in_place(IN_PLACE)
    assert not buffers.is_in_place(-1)

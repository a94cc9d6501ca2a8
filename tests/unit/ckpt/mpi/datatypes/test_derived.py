"""Datatypes made of others: where their bytes lie, packing, how they were made."""

import pickle

import numpy as np
import pytest

from ckpt.mpi.base.constants import NUMBERS
from ckpt.mpi.base.errors import MpiException
from ckpt.mpi.datatypes import buffers
from ckpt.mpi.datatypes.datatypes import PREDEFINED, Datatype

INT, DOUBLE, BYTE = PREDEFINED["MPI_INT"], PREDEFINED["MPI_DOUBLE"], PREDEFINED["MPI_BYTE"]


def test_a_vector_is_a_column() -> None:
    column = INT.Create_vector(4, 1, 3)
    matrix = np.arange(12, dtype="i")
    assert np.frombuffer(buffers.simple([matrix, 1, column], writable=False).read(), "i").tolist() == [
        0,
        3,
        6,
        9,
    ]
    assert (column.size, column.extent) == (16, 40)


def test_a_struct_is_padded_as_in_c() -> None:
    record = Datatype.Create_struct([1, 1], [0, 4], [DOUBLE, BYTE])
    assert (record.size, record.extent) == (9, 8)
    record = Datatype.Create_struct([1, 1], [0, 8], [DOUBLE, BYTE])
    assert (record.size, record.extent) == (9, 16)


def test_the_bounds_of_elements_with_a_negative_extent() -> None:
    """MPI-4.1, 5.1.6: the lower bound is the lowest of all elements, the upper bound the highest."""
    backwards = INT.Create_resized(0, -4)
    three = backwards.Create_contiguous(3)
    assert three.Get_extent() == (-8, 4)
    assert Datatype.Create_struct([3], [0], [backwards]).Get_extent()[0] == -8


@pytest.mark.parametrize("order", ["ORDER_C", "ORDER_FORTRAN"])
def test_a_box_of_an_array(order: str) -> None:
    array = np.arange(24, dtype="i").reshape((2, 3, 4), order="C" if order == "ORDER_C" else "F")
    box = INT.Create_subarray([2, 3, 4], [1, 2, 2], [1, 1, 2], order=NUMBERS[order])
    spec = buffers.simple([array, 1, box], writable=False)
    expected = array[1:2, 1:3, 2:4].flatten(order="C" if order == "ORDER_C" else "F")
    assert np.frombuffer(spec.read(), "i").tolist() == expected.tolist()


def test_a_distributed_array_is_divided_without_rest() -> None:
    block, cyclic = NUMBERS["DISTRIBUTE_BLOCK"], NUMBERS["DISTRIBUTE_CYCLIC"]
    default = NUMBERS["DISTRIBUTE_DFLT_DARG"]
    array = np.arange(5 * 7, dtype="i")
    seen: list[int] = []
    for rank in range(6):
        part = INT.Create_darray(6, rank, [5, 7], [block, cyclic], [default, 2], [2, 3])
        seen += np.frombuffer(buffers.simple([array, 1, part], writable=False).read(), "i").tolist()
    assert sorted(seen) == array.tolist()


def test_packing_and_unpacking() -> None:
    packed = bytearray(64)
    position = INT.Pack(np.array([1, 2], "i"), packed, 0, None)
    position = DOUBLE.Pack(np.array([0.5]), packed, position, None)
    assert position == 16
    numbers, real = np.zeros(2, "i"), np.zeros(1)
    position = INT.Unpack(packed, 0, numbers, None)
    assert DOUBLE.Unpack(packed, position, real, None) == 16
    assert (numbers.tolist(), real.tolist()) == ([1, 2], [0.5])
    with pytest.raises(MpiException):
        INT.Pack(np.zeros(20, "i"), packed, 0, None)


def test_the_portable_form_is_big_endian() -> None:
    packed = bytearray(8)
    INT.Pack_external("external32", np.array([1, 258], "i"), packed, 0)
    assert packed == b"\0\0\0\1\0\0\1\2"
    back = np.zeros(2, "i")
    INT.Unpack_external("external32", packed, 0, back)
    assert back.tolist() == [1, 258]


def test_a_type_says_how_it_was_made() -> None:
    base, how, arguments = INT.Create_hvector(2, 3, 40).decode()
    assert base is INT
    assert (how, arguments) == ("HVECTOR", {"count": 2, "blocklength": 3, "stride": 40})
    again = base.Create_hvector(**arguments)
    assert again.Get_contents()[:2] == ([2, 3], [40])


def test_huge_types_are_small_objects() -> None:
    big = BYTE.Create_contiguous(1 << 40)
    assert (big.size, len(big.runs), big.contiguous) == (1 << 40, 1, True)
    assert big.elements_in(5) == 5


def test_constants_stay_themselves_when_pickled() -> None:
    assert pickle.loads(pickle.dumps(INT)) is INT
    derived = pickle.loads(pickle.dumps(INT.Create_vector(2, 1, 3)))
    assert (derived.size, derived.extent) == (8, 16)

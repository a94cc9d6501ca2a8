"""Long doubles: what is in their gaps is not sent."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ckpt.mpi.datatypes import gaps
from ckpt.mpi.datatypes import op as ops
from ckpt.mpi.datatypes.buffers import simple
from ckpt.mpi.datatypes.datatypes import PREDEFINED, from_code

pytestmark = pytest.mark.skipif(not gaps.has_gaps(), reason="long doubles have no gaps here")

NUMBERS = [1.5, -2.25, 3.0, 4.125]


def littered(dtype: str, litter: int) -> Any:
    """These numbers, with something left over in each gap."""
    array = np.zeros(len(NUMBERS), dtype)
    array[:] = NUMBERS
    array.view(np.uint8).reshape(-1, 16)[:, 10:] = litter
    return array


@pytest.mark.parametrize("code", ["g", "G"])
def test_what_is_left_over_in_the_gaps_of_a_long_double_is_not_sent(code: str) -> None:
    one, other = littered(code, 1), littered(code, 255)
    before = one.tobytes()
    assert before != other.tobytes()
    sent = simple(one, writable=False).read()
    assert bytes(sent) == bytes(simple(other, writable=False).read())
    assert np.frombuffer(sent, code).tolist() == one.tolist()
    assert one.tobytes() == before
    assert bytes(simple([one, 0], writable=False).read()) == b""


def test_nor_with_a_derived_datatype() -> None:
    datatype = PREDEFINED["MPI_LONG_DOUBLE"].Create_vector(2, 1, 2).Commit()
    one, other = (simple([littered("g", litter), 1, datatype], writable=False).read() for litter in (1, 255))
    assert bytes(one) == bytes(other)
    assert np.frombuffer(one, "g").tolist() == [1.5, 3.0]


@pytest.mark.parametrize("code", ["g", "G"])
def test_reductions_of_long_doubles_leave_nothing_in_the_gaps(code: str) -> None:
    def add(a: Any, b: Any, datatype: Any) -> None:
        y = np.frombuffer(b, code)
        y[:] = np.frombuffer(a, code) + y

    for op in (ops.SUM, ops.Op.Create(add)):
        found = {
            bytes(op.combine(littered(code, litter).tobytes(), littered(code, 9).tobytes(), from_code(code)))
            for litter in (1, 255)
        }
        assert len(found) == 1
        (result,) = found
        assert np.frombuffer(result, code).tolist() == [2 * each for each in NUMBERS]


def test_a_long_double_and_its_index() -> None:
    data = bytes([255]) * 40  # two of 16 and 4 bytes
    assert gaps.filled(data, "g,i") == (bytes([255]) * 10 + bytes(6) + bytes([255]) * 4) * 2

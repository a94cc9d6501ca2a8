"""Where an operation works in exposed memory: bounds, attached pieces, addresses after a restart."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from ckpt.mpi.base.errors import ERR_BASE, ERR_RMA_ATTACH, ERR_RMA_RANGE, MpiException
from ckpt.mpi.datatypes.datatypes import PREDEFINED
from ckpt.mpi.datatypes.memory import address_of
from ckpt.mpi.rma.exposed import Dynamic, Fixed, bounds, size_of

INT = PREDEFINED["MPI_INT"]


def refused(call: object, *args: object) -> int:
    with pytest.raises(MpiException) as caught:
        call(*args)  # type: ignore[operator]
    return caught.value.error_class


def test_exactly_what_lies_inside_is_accepted() -> None:
    memory = bytearray(range(20))
    fixed = Fixed(memory, 20)
    layouts = [None, INT.Create_vector(2, 1, 2).layout, INT.Create_resized(0, -8).layout]
    for layout, count, offset in itertools.product(layouts, range(4), range(-9, 24)):
        touched = set()
        for element in range(count):
            for at, nbytes in ((0, 1),) if layout is None else layout.runs:
                base = offset + element * (1 if layout is None else layout.extent) + at
                touched.update(range(base, base + nbytes))
        low, high = bounds(layout, count, offset)
        assert not touched or (low, high) == (min(touched), max(touched) + 1)
        inside = not touched or touched <= set(range(20))
        if inside and 0 <= offset <= 20:
            spec = fixed.spec(layout, count, offset)
            assert set(bytes(spec.read())) == touched
        elif not inside:
            assert refused(fixed.spec, layout, count, offset) == ERR_RMA_RANGE


def test_memory_must_be_writable_and_contiguous() -> None:
    assert size_of(np.zeros(3)) == 24
    with pytest.raises(BufferError, match="read-only"):
        size_of(b"abc")
    with pytest.raises(BufferError, match="not contiguous"):
        size_of(np.zeros(6)[::2])


def test_memory_in_the_order_of_fortran_has_an_address() -> None:
    memory = np.asfortranarray(np.arange(12, dtype="B").reshape(3, 4))
    dynamic = Dynamic()
    dynamic.attach(memory)
    assert address_of(memory) == memory.__array_interface__["data"][0]
    memory.flags.writeable = False
    assert address_of(memory) == memory.__array_interface__["data"][0]
    assert bytes(dynamic.spec(None, 2, address_of(memory) + 3).read()) == bytes([1, 5])


def test_attached_pieces_are_found_by_their_addresses() -> None:
    dynamic, one, two = Dynamic(), np.arange(4, dtype="B"), np.arange(10, 16, dtype="B")
    dynamic.attach(one)
    dynamic.attach(two)
    assert bytes(dynamic.spec(None, 3, address_of(two) + 1).read()) == bytes([11, 12, 13])
    assert refused(dynamic.spec, None, 6, address_of(two) + 1) == ERR_RMA_RANGE
    assert refused(dynamic.attach, two[2:]) == ERR_RMA_ATTACH
    dynamic.detach(two)
    assert refused(dynamic.spec, None, 1, address_of(two)) == ERR_RMA_RANGE
    assert refused(dynamic.detach, two) == ERR_BASE
    dynamic.spec(None, 0, 12345)  # nothing is nowhere


def test_after_a_restart_former_addresses_are_right_too() -> None:
    dynamic, piece = Dynamic(), np.arange(4, dtype="B")
    dynamic.attach(piece)
    base = address_of(piece)
    for told in (0x1000, base):
        spec = dynamic.spec(None, 2, told + 1, lambda address, nbytes: {address, base + address - 0x1000})
        assert bytes(spec.read()) == b"\1\2"
    at_an_edge = dynamic.spec(None, 4, 0x1000, lambda address, nbytes: {base})
    assert bytes(at_an_edge.read()) == b"\0\1\2\3"
    assert (
        refused(dynamic.spec, None, 4, 0x1000, lambda address, nbytes: {base + 1, base - 1}) == ERR_RMA_RANGE
    )


def test_an_address_that_is_right_for_two_pieces_is_refused() -> None:
    dynamic, one, two = Dynamic(), np.zeros(4, "B"), np.zeros(4, "B")
    dynamic.attach(one)
    dynamic.attach(two)
    both = {address_of(one), address_of(two)}
    assert refused(dynamic.spec, None, 2, address_of(two), lambda address, nbytes: both) == ERR_RMA_RANGE
    dynamic.spec(None, 2, 0x1000, lambda address, nbytes: {address_of(one), 0x1000})

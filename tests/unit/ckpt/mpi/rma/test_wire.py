"""Messages between members of a window: what is described is understood."""

from __future__ import annotations

import itertools

from ckpt.mpi.base import envelope
from ckpt.mpi.base.errors import MpiException
from ckpt.mpi.datatypes.datatypes import PREDEFINED
from ckpt.mpi.members.state import pack_error, unpack_error
from ckpt.mpi.rma import wire

HEAD = envelope.pack(envelope.WINDOW, 3, wire.PUT, 17, 5)


def test_a_description_is_read_as_it_was_written_whatever_holds_it() -> None:
    layouts = [None, PREDEFINED["MPI_INT"].Create_vector(2, 1, 3).layout]
    for layout, offset, kind in itertools.product(layouts, (0, -8, 1 << 40), (bytes, bytearray, memoryview)):
        for code, operation in (("", ""), ("i", "MPI_SUM"), ("f,i", "MPI_MAXLOC")):
            what = wire.Description(offset, 7, layout, code, operation)
            read, at = wire.described(kind(HEAD + wire.describe(what) + b"data"))
            assert (read[:2], read[3:]) == (what[:2], what[3:])
            assert (read.layout is None) == (layout is None)
            if layout is not None:
                assert read.layout is not None and read.layout.runs == layout.runs
            assert at == len(HEAD + wire.describe(what))


def test_bytes_without_an_operation_need_no_pickle() -> None:
    assert len(wire.describe(wire.Description(8, 100))) == 20


def test_an_error_is_read_as_it_was_written() -> None:
    error = unpack_error(memoryview(HEAD + pack_error(MpiException(55, "out of it"), 2)))
    assert (error.error_code, error.detail) == (55, "at rank 2: out of it")


def test_the_sides_of_a_window_are_told_apart_by_the_number() -> None:
    for_the_target = {wire.PUT, wire.ACCUMULATE, wire.GET, wire.GET_AND_TELL, wire.GET_ACCUMULATE}
    for_the_target |= {wire.COMPARE_AND_SWAP, wire.FLUSH, wire.LOCK_SHARED, wire.LOCK_EXCLUSIVE}
    for_the_target |= {wire.UNLOCK, wire.COMPLETE}
    for_the_origin = {wire.POST, wire.DATA, wire.DONE, wire.FAILED, wire.TOLD}
    assert max(for_the_target) < min(for_the_origin)
    assert len(for_the_target | for_the_origin) == 16

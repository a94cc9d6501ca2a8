"""Slots that hold integers: to Python attributes as others, to C numbers."""

from __future__ import annotations

import copy
import gc
import sys
import weakref

import pytest

from ckpt.transport.errors import FrameError
from ckpt.transport.integers import END_OF_NUMBERS, integers
from ckpt.transport.protocol.frames import ACK, ANSWER, MAGIC, open_frame
from ckpt.transport.protocol.frames import _pack_rest as pack_rest
from ckpt.transport.protocol.frames import _seal as seal

pytest.importorskip("ckpt.transport._integers", reason="the C module is not built")


@integers("end", "first")
class Piece:
    __slots__ = ("__weakref__", "data", "end", "first")

    def __init__(self, data: object) -> None:
        self.data = data


def test_they_begin_as_zero_and_hold_all_of_64_bits() -> None:
    piece = Piece(None)
    assert (piece.first, piece.end) == (0, 0)
    for number in (1, -1, (1 << 63) - 1, -(1 << 63), True):
        piece.first = number
        assert piece.first == number and type(piece.first) is int
    assert piece.end == 0 and piece.data is None


@pytest.mark.parametrize(("value", "error"), [(1 << 63, OverflowError), (1.5, TypeError), (None, TypeError)])
def test_what_is_no_such_number_is_refused(value: object, error: type) -> None:
    piece = Piece(None)
    with pytest.raises(error):
        piece.first = value  # type: ignore[assignment]


def test_a_number_is_no_reference() -> None:
    """The collector and the end of an instance leave it alone, whatever it would be as an address; objects beside it go."""
    ring = Piece([])
    ring.data.append(ring)  # type: ignore[attr-defined]
    ring.first = id(ring)
    ring.end = 1
    gone, counted = weakref.ref(ring), sys.getrefcount(ring)
    gc.collect()
    assert sys.getrefcount(ring) == counted
    del ring
    gc.collect()
    assert gone() is None


def test_an_instance_is_copied_with_its_numbers() -> None:
    piece = Piece("a")
    piece.first, piece.end = 3, 1 << 40
    other = copy.copy(piece)
    assert (other.data, other.first, other.end) == ("a", 3, 1 << 40)


@pytest.mark.parametrize("name", ["none", "__init__", "data_of_base"])
def test_a_name_that_is_no_slot_of_the_class_is_refused(name: str) -> None:
    class Base:
        __slots__ = ("data_of_base",)

    class Derived(Base):
        __slots__ = ("own",)

    with pytest.raises((TypeError, AttributeError), match=name):
        integers(name)(Derived)


@pytest.mark.parametrize("field", range(4))
def test_a_frame_with_a_number_beyond_is_damaged(field: int) -> None:
    """Epoch, acknowledged, credit or sequence."""
    numbers = [1, 2, 3, 4]
    numbers[field] = END_OF_NUMBERS - 1
    ident = (1, 0, 1, 0, 0)
    open_frame([seal(pack_rest(MAGIC, ACK, ANSWER, *ident, *numbers, 0, 0))])
    numbers[field] = END_OF_NUMBERS
    with pytest.raises(FrameError, match="number"):
        open_frame([seal(pack_rest(MAGIC, ACK, ANSWER, *ident, *numbers, 0, 0))])

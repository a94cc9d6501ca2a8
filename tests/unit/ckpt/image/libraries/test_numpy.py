"""numpy: arrays and what shares their memory, settings, random numbers."""

from __future__ import annotations

import pytest

from ckpt.image.libraries.numpy import NumPy
from tests.unit.ckpt.image.support import copy_of

np = pytest.importorskip("numpy")


def test_views_share_the_memory_of_their_owner_again() -> None:
    owner = np.arange(12.0).reshape(3, 4)
    copied, column, backwards = copy_of((owner, owner[:, 1], owner[::-1]))
    assert (copied == owner).all()
    copied[0, 1] = 99.0
    assert column[0] == backwards[2, 1] == 99.0


def test_memory_that_others_refer_to_stays_shared() -> None:
    memory = bytearray(8)
    array, copied = copy_of((np.frombuffer(memory, np.uint8), memory))
    copied[3] = 7
    assert array[3] == 7


def test_memory_that_comes_through_other_objects_stays_shared() -> None:
    memory, owner = bytearray(8), np.zeros((2, 4), np.uint8)
    through = [np.frombuffer(memoryview(memoryview(memory)), np.uint8)]
    through += [
        np.frombuffer(memoryview(owner)[1:], np.uint8),
        np.frombuffer(memoryview(through[0]), np.uint8),
    ]
    (one, two, three), array, copied = copy_of((through, memory, owner))
    array[3], copied[1, 3] = 7, 8
    assert one[3] == three[3] == 7 and two[3] == 8
    assert np.frombuffer(memoryview(array), np.uint8)[3] == 7


@pytest.mark.parametrize(
    "array",
    [
        np.asfortranarray(np.ones((2, 3))),
        np.array(5),
        np.array([1, "two", None], object),
        np.array([(1, 2.0)], [("a", "i4"), ("b", "f8")]),
        np.array(["2020-01-01"], "datetime64[D]"),
        np.ma.array([1, 2], mask=[True, False]),
        np.broadcast_to(np.arange(3), (2, 3)),
    ],
    ids=str,
)
def test_type_shape_order_and_flags_are_kept(array: np.ndarray) -> None:  # type: ignore[name-defined]
    copy = copy_of(array)
    assert (type(copy), copy.dtype, copy.shape, copy.strides) == (
        type(array), array.dtype, array.shape, array.strides
    )  # fmt: skip
    assert copy.flags.writeable == array.flags.writeable
    assert str(copy) == str(array)


def test_an_array_that_holds_itself() -> None:
    array = np.empty(1, object)
    array[0] = array
    copy = copy_of(array)
    assert copy[0] is copy


def test_settings_are_put_back() -> None:
    library = NumPy("numpy")
    noted = library.note_settings()
    before = np.geterr()
    try:
        np.seterr(divide="raise")
        assert np.geterr() != before
        library.apply_settings(noted)
        assert np.geterr() == before
    finally:
        np.seterr(**before)


def test_random_numbers_go_on() -> None:
    library = NumPy("numpy")
    np.random.seed(7)  # imports the module numpy.random, if no other test has
    noted, expected = library.note_random(), np.random.random(3)
    library.apply_random(noted)
    assert (np.random.random(3) == expected).all()
    generator = np.random.default_rng(3)
    copy = copy_of(generator)
    assert (copy.random(3) == generator.random(3)).all()

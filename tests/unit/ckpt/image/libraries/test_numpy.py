"""numpy: arrays and what shares their memory, settings, random numbers."""

from __future__ import annotations

import array
import ctypes
import mmap
import pickle
from pathlib import Path
from typing import Any

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


class Labelled(np.ndarray):  # type: ignore[misc, name-defined]
    """A subclass of the program's."""


class Record(ctypes.Structure):
    _fields_ = (("length", ctypes.c_int), ("items", ctypes.c_int * 4))


def as_numbers(obj: Any) -> Any:
    """Its memory as numbers, as programs look at an array of structures."""
    return ctypes.cast(
        obj if isinstance(obj, ctypes.Array) else ctypes.pointer(obj), ctypes.POINTER(ctypes.c_int)
    )


def memory_of_others() -> dict[str, tuple[Any, Any]]:
    """Kind → two objects over one memory, the first of which can be written to by index."""
    record, plain = Record(), np.arange(4, dtype="i4")
    pointer = plain.ctypes.data_as(ctypes.POINTER(ctypes.c_int))
    to_record = ctypes.pointer(record)
    double, owning = array.array("d", range(4)), Labelled((4,), "i4")
    owning[:] = 0
    masked = np.ma.masked_array(plain)
    return {
        "array.array": (double, np.frombuffer(double)),
        "memoryview of array.array": (double, np.asarray(memoryview(double)[:2])),
        "mmap": (mapped := mmap.mmap(-1, 4096), np.frombuffer(mapped, np.uint8)),
        "ctypes": (numbers := (ctypes.c_int * 4)(), np.ctypeslib.as_array(numbers)),
        "part of ctypes": (record.items, np.ctypeslib.as_array(record.items)),
        "what a pointer refers to": (record.items, np.ctypeslib.as_array(to_record.contents.items)),
        "pointer of ctypes": (plain, np.ctypeslib.as_array(pointer, (4,))),
        "ctypes, as another type": (record.items, np.ctypeslib.as_array(as_numbers(record), (5,))[1:]),
        "array of ctypes, as another type": (
            (records := (Record * 2)())[1].items,
            np.ctypeslib.as_array(as_numbers(records), (10,))[6:],
        ),
        "masked array": (plain, masked),
        "data of a masked array": (masked, masked.data),
        "copy of a masked array": (copied := masked.copy(), copied[:2]),
        "subclass that owns": (owning, owning[:2]),
        "plain view of a subclass": (owning, np.asarray(owning)),
        "two views of a subclass": (viewed := plain.view(Labelled), viewed[:2]),
    }


@pytest.mark.parametrize("kind", memory_of_others())
def test_arrays_were_copies_of_the_memory_that_they_share_with_another_object(kind: str) -> None:
    one, other = copy_of(memory_of_others()[kind])
    one[1] = 7
    assert other[1] == 7


def test_attributes_of_an_array_of_a_subclass_were_lost_if_it_owns_its_memory() -> None:
    for shape in ((3,), (0,)):
        labelled = Labelled(shape)
        labelled.unit = "m"
        assert copy_of(labelled).unit == "m"


def test_masks_are_shared_as_before() -> None:
    whole = np.ma.masked_array(np.arange(4.0), mask=[0, 1, 0, 0], fill_value=9)
    copied, part = copy_of((whole, whole[1:]))
    part[1] = np.ma.masked
    part.data[2] = 5
    assert copied.mask.tolist() == [*whole.mask.tolist()[:2], True, False]
    assert copied.data[3] == 5 and copied.fill_value == 9 and copied.filled()[1] == 9


def test_a_part_of_a_mapped_file_was_a_copy(tmp_path: Path) -> None:
    whole = np.memmap(tmp_path / "data", "f8", "w+", shape=(4,))
    copied, part, plain, apart = copy_of((whole, whole[1:], np.asarray(whole), whole.copy()))
    part[0] = plain[2] = 7
    part.flush()
    assert copied.tolist() == np.fromfile(tmp_path / "data").tolist() == [0, 7, 7, 0]
    assert apart.sum() == 0 and (part.filename, part.mode) == (copied.filename, copied.mode)


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


def test_no_image_was_made_while_arrays_were_broadcast_together() -> None:
    """``np.broadcast`` was refused; the copy goes on where the original is, over the same arrays."""
    column, row = np.arange(3)[:, None], np.arange(4)
    together = np.broadcast(column, row)
    next(together)
    again, column_again, row_again = copy_of((together, column, row))
    assert (again.index, again.shape) == (1, (3, 4))
    row_again[1] = 100
    assert [tuple(map(int, each)) for each in again][:2] == [(0, 100), (0, 2)]
    assert again.iters[0].base is column_again and together.index == 1


@pytest.mark.rotate(2)
def test_types_that_numpy_has_once_are_themselves_so_pickles_of_the_program_are_the_same_bytes() -> None:
    """Arrays that came back had another ``float64`` than those made later: a model that a program saved was another file."""
    for character in np.typecodes["All"]:
        assert copy_of(np.dtype(character)) is np.dtype(character)
    array, record, other = copy_of((np.ones(3), np.zeros(2, [("x", "f8")]), np.array([1.0], ">f8")))
    assert array.dtype is record.dtype["x"] is (array + array).dtype is np.dtype(float)
    assert other.dtype == np.dtype(">f8") != np.dtype(float)
    named = np.dtype(float, metadata={"unit": "m"})
    assert copy_of(named).metadata == {"unit": "m"}
    together = np.ones(3), np.zeros(2)
    assert pickle.dumps((copy_of(together[0]), together[1])) == pickle.dumps(together)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("kind", ["f8", "O"])
def test_rows_and_fields_of_a_structured_array_were_copies(order: Any, kind: str) -> None:
    """``for particle in particles: ckpt.checkpoint(); particle["x"] += 1`` changed nothing after a restart."""
    particles = np.zeros((2, 2), [("p", [("x", kind)]), ("y", "i4"), ("v", "f8", (3,))], order=order)
    row, vector = particles[1, 0], particles[1, 0]["v"]
    views = (
        row,
        row["p"],
        vector,
        vector[1:],
        particles["y"],
        particles[::-1],
        particles.view(np.recarray)[0, 1],
    )
    for owner_first in (True, False):
        if owner_first:
            copied, found = copy_of((particles, views))
        else:
            found, copied = copy_of((views, particles))
        again, inner, speed, part, field, backwards, record = found
        assert type(record) is np.record and copied.strides == particles.strides
        again["y"], inner["x"], speed[0], part[1], record.y = 3, 5, 8, 9, 4
        assert copied["y"].tolist() == field.tolist() == [[0, 4], [3, 0]]
        assert copied["p"]["x"].tolist() == [[0, 0], [5, 0]]
        assert copied["v"][1, 0].tolist() == [8, 0, 9]
        field[0, 0] = 7
        assert backwards[1, 0]["y"] == copied[0, 0]["y"] == 7


def test_a_row_is_as_writeable_as_it_was_and_one_of_its_own_stays_alone() -> None:
    fixed = np.zeros(2, [("a", "i4")])
    alone = fixed[0].copy()
    fixed.flags.writeable = False
    row, alone = copy_of((fixed[0], alone))
    with pytest.raises(ValueError, match="read-only"):
        row["a"] = 1
    alone["a"] = 1
    assert copy_of(np.void(b"ab")).tobytes() == b"ab"


def test_structured_arrays_with_objects_are_exact_and_may_hold_themselves() -> None:
    inner = [("x", "O"), ("y", "M8[ns]"), ("z", "O", (2,))]
    array = np.zeros((2, 3), [("a", "f4"), ("in", inner), ("s", "U3"), ("g", np.longdouble)])
    array["a"], array["s"], array["g"] = np.pi, "ab", np.longdouble(1) / 3
    array["in"]["y"] = np.datetime64("2021-01-01T00:00:00.123456789")
    array["in"]["z"][1, 2] = [{1}, (2,)]
    array["in"]["x"][0, 1], array["in"]["x"][1, 1] = array, array["in"]["z"]
    copied = copy_of(array)
    assert copied.dtype == array.dtype and copied["in"]["x"][0, 1] is copied
    for name in ("a", "s", "g"):
        assert (copied[name] == array[name]).all()
    assert (copied["in"]["y"] == array["in"]["y"]).all()
    copied["in"]["x"][1, 1][1, 2, 0].add(2)
    assert copied["in"]["z"][1, 2].tolist() == [{1, 2}, (2,)]


def test_views_of_record_and_masked_arrays_and_matrices_of_objects_were_copies() -> None:
    records = np.rec.array([(1, [2]), (2, None)], dtype=[("x", "i4"), ("y", "O")])
    masked = np.ma.masked_array(np.array([1, [2], None], object), [0, 1, 0])
    matrix = np.matrix(np.array([[1, [2]]], object))
    for whole, part, name in (
        (records, records.y, "y"),
        (masked, masked.data, ...),
        (matrix, matrix[:, 1:], ...),
    ):
        copied, view = copy_of((whole, part))
        assert type(copied) is type(whole) and type(view) is type(part)
        view.flat[0] = "changed"
        assert "changed" in np.asarray(copied[name]).ravel().tolist()


class Annotated(np.ndarray):  # type: ignore[misc, name-defined]
    """As numpy's guide has it, and ``Quantity`` of astropy."""

    __slots__ = ("__dict__", "place")

    def __reduce__(self) -> Any:
        make, args, state = super().__reduce__()
        return make, args, (*state, self.__dict__)

    def __setstate__(self, state: Any) -> None:
        super().__setstate__(state[:-1])
        self.__dict__.update(state[-1])


def test_arrays_of_a_subclass_with_a_reduce_of_its_own_were_copies() -> None:
    plain = np.arange(6.0)
    whole = plain.view(Annotated)
    whole.unit, whole.place = ["m"], 3
    part = whole[2:]
    part.unit = whole.unit
    plain, whole, part = copy_of((plain, whole, part))
    plain[2], whole[3] = 20.0, 30.0
    assert part.tolist() == [20.0, 30.0, 4.0, 5.0] and type(part).__name__ == "Annotated"
    assert whole.unit is part.unit == ["m"] and whole.place == 3 and not hasattr(part, "place")


class Holder:
    def __init__(self, array: Any) -> None:
        self.parts = {"array": array}
        self.__array_interface__ = array.__array_interface__


def test_an_array_over_what_an_object_tells_by_array_interface_was_a_copy() -> None:
    whole = np.arange(6.0)
    through, part = np.asarray(Holder(whole)), np.asarray(Holder(whole[4:]))
    through, part, whole = copy_of((through, part, whole))
    whole[0], whole[5] = 10.0, 50.0
    assert through.tolist() == [10.0, 1.0, 2.0, 3.0, 4.0, 50.0] and part.tolist() == [4.0, 50.0]


def test_arrays_that_share_memory_by_dlpack_were_copies() -> None:
    whole = np.arange(3.0)
    through, again, whole = copy_of((np.from_dlpack(whole), np.from_dlpack(whole)[1:], whole))
    whole[1] = 10.0
    assert through.tolist() == [0.0, 10.0, 2.0] and again.tolist() == [10.0, 2.0]


def test_coefficients_of_a_polynomial_were_copies() -> None:
    polynomial = np.polynomial.Polynomial([1.0, 2.0])
    coefficients, polynomial = copy_of((polynomial.coef, polynomial), is_disposable=True)
    coefficients[0] = 5.0
    assert polynomial(1.0) == 7.0

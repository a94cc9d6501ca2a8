"""ctypes in images: what is one memory stays one memory, functions are found again, addresses of C are refused."""

from __future__ import annotations

import ctypes
import mmap
import pickle
from pathlib import Path
from typing import Any

import pytest

from ckpt.image.errors import RestoreError
from ckpt.image.handles.ctypes_library import load_library
from tests.unit.ckpt.image.support import copy_of, image_failure, resumed_output

pytestmark = pytest.mark.turns(2)

Numbers: Any = ctypes.c_int * 5
Doubles: Any = ctypes.c_double * 4
Callback: Any = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)
DoublePointer: Any = ctypes.POINTER(ctypes.c_double)


class Point(ctypes.Structure):
    _fields_ = (("x", ctypes.c_int), ("y", Doubles))


class Either(ctypes.Union):
    _fields_ = (("number", ctypes.c_int), ("point", Point))


class Flags(ctypes.Structure):
    _fields_ = (("low", ctypes.c_int, 3), ("high", ctypes.c_int, 5), ("either", Either))
    _anonymous_ = ("either",)


class Node(ctypes.Structure):
    pass


Node._fields_ = (("value", ctypes.c_int), ("next", ctypes.POINTER(Node)))


class Everything(ctypes.Structure):
    _fields_ = (
        ("text", ctypes.c_char_p),
        ("wide", ctypes.c_wchar_p),
        ("values", DoublePointer),
        ("call", Callback),
        ("object", ctypes.py_object),
        ("nothing", ctypes.c_void_p),
    )


def everything() -> Any:
    values = Doubles(1, 2, 3, 4)
    return Everything(b"abc", "wide", values, Callback(lambda x: x * 2), [1], None), values


def test_types_are_the_very_types_that_ctypes_makes() -> None:
    for cls in (Numbers, DoublePointer, Callback, ctypes.POINTER(Numbers), ctypes.c_char * 3 * 2):
        assert copy_of(cls) is cls
    assert type(copy_of(Numbers(1, 2))) is Numbers


def test_parts_of_a_structure_stay_its_parts() -> None:
    point = Point(1, (1, 2, 3, 4))
    array = (Point * 2)(point, point)
    flags = Flags(1, 2)
    flags.point.x = 9
    made, y, made_array, second, made_flags, part = copy_of(
        [point, point.y, array, array[1], flags, flags.point]
    )
    y[0], second.x, part.x = 7, 8, 6
    assert (made.y[0], made_array[1].x, made_array[0].x) == (7, 8, 1)
    assert (made_flags.number, made_flags.low, made_flags.high) == (6, 1, 2)
    second.y[3] = 5  # a part that is asked for later
    assert list(made_array[1].y) == [1, 2, 3, 5]


@pytest.mark.parametrize("offset", [0, 8])
def test_what_lies_over_a_buffer_does_so_again(offset: int) -> None:
    buffer = bytearray(64)
    view, other, made = copy_of([Doubles.from_buffer(buffer, offset), Numbers.from_buffer(buffer), buffer])
    view[0] = 1.0
    other[0] = 5
    assert made[offset + 7] == 0x3F and made[0] == 5


@pytest.mark.parametrize("kind", ["bytearray", "mmap", "numpy"])
def test_what_lies_over_a_part_of_a_buffer_is_over_that_part_again(kind: str) -> None:
    """It came back over the beginning of the whole buffer, without a word: other numbers, and changes in the wrong place."""
    exporter: Any = bytearray(range(64)) if kind == "bytearray" else mmap.mmap(-1, 64)
    if kind == "mmap":
        exporter[:] = bytes(range(64))
    elif kind == "numpy":
        exporter = pytest.importorskip("numpy").arange(64, dtype="u1").reshape(8, 8)
    part = memoryview(exporter)[2:3].cast("B")[1:] if kind == "numpy" else memoryview(exporter)[17:]
    numbers = (ctypes.c_ubyte * 4).from_buffer(part, 1)
    (buffer, copy), alone = copy_of([exporter, numbers]), copy_of(numbers)
    assert list(copy) == list(alone) == list(numbers) == [18, 19, 20, 21]
    copy[0] = 99
    assert memoryview(buffer).tobytes()[17:20] == bytes([17, 99, 19])


def test_a_pointer_refers_to_the_object_that_it_referred_to() -> None:
    number, values = ctypes.c_int(5), Doubles(1, 2, 3, 4)
    pointer, second = ctypes.pointer(number), ctypes.cast(ctypes.byref(values, 8), DoublePointer)
    void = ctypes.cast(values, ctypes.c_void_p)
    made, made_number, made_second, made_values, made_void, null = copy_of(
        [pointer, number, second, values, void, DoublePointer()]
    )
    made.contents.value, made_second[0] = 6, 9
    assert (made_number.value, list(made_values), bool(null)) == (6, [1, 9, 3, 4], False)
    assert ctypes.cast(made_void, DoublePointer)[1] == 9


def test_what_a_pointer_refers_to_is_the_object_itself() -> None:
    points = (Point * 3)(Point(1), Point(2), Point(3))
    pointer = ctypes.pointer(points[1])
    buffer = ctypes.create_string_buffer(b"abc")
    text = ctypes.cast(buffer, ctypes.c_char_p)
    contents, following, made, made_text, made_buffer = copy_of(
        [pointer.contents, pointer[1], points, text, buffer]
    )
    contents.x, following.x = 8, 9
    made_buffer[0] = b"x"
    assert ([each.x for each in made], made_text.value) == ([1, 8, 9], b"xbc")


@pytest.mark.parametrize("kind", ["from_address", "in_dll"])
def test_memory_that_an_object_only_looks_at_is_refused(kind: str) -> None:
    if kind == "in_dll":
        obj: Any = ctypes.c_int.in_dll(ctypes.pythonapi, "Py_OptimizeFlag")
    else:
        obj = ctypes.c_int.from_address(id(kind))
    with pytest.raises(pickle.PicklingError, match=r"from_address, in_dll.*belongs to C.*on_restart"):
        copy_of(obj)


def test_many_texts_of_one_array() -> None:
    texts = (ctypes.c_char_p * 20_000)(*[b"%d" % number for number in range(20_000)])
    assert list(copy_of(texts)) == list(texts)


def test_pointers_into_arrays_of_numpy() -> None:
    numpy = pytest.importorskip("numpy")
    array = numpy.arange(4.0)
    pointer, made = copy_of(copy_of([array[1:].ctypes.data_as(DoublePointer), array]))
    pointer[0] = 7
    assert list(made) == [0, 7, 2, 3]


def test_a_pointer_that_was_cast_from_what_lies_over_a_buffer_is_not_over_the_buffer() -> None:
    """An image with one could not be loaded, and so the second image of one into an array of numpy."""
    buffer = bytearray(32)
    pointer = ctypes.cast((ctypes.c_char * 32).from_buffer(buffer), DoublePointer)
    made, copied = copy_of(copy_of([pointer, buffer]))
    made[1] = 7
    assert memoryview(copied).cast("d")[1] == 7


def test_structures_that_refer_to_each_other() -> None:
    first, second = Node(1), Node(2)
    first.next, second.next = ctypes.pointer(second), ctypes.pointer(first)
    made, other = copy_of([first, second])
    other.value = 7
    assert made.next.contents.value == 7
    assert made.next.contents.next.contents.value == 1


def test_addresses_in_the_fields_of_a_structure() -> None:
    obj, values = everything()
    made, made_values = copy_of([obj, values])
    made_values[1] = 9
    assert (made.text, made.wide, made.values[1], made.call(4), made.object, made.nothing) == (
        *(b"abc", "wide", 9, 8),
        *([1], None),
    )
    again = copy_of(copy_of((Everything * 2)(obj, obj)))
    assert (again[1].text, again[1].wide, again[1].values[2], again[1].call(5)) == (b"abc", "wide", 3, 10)


def test_functions_are_found_again_with_their_settings() -> None:
    library = ctypes.CDLL(None, use_errno=True)
    length: Any = library.strlen
    length.argtypes, length.restype = [ctypes.c_char_p], ctypes.c_size_t
    prototype = Callback(("abs", library))
    made, made_length, made_prototype, callback = copy_of(
        [library, length, prototype, Callback(lambda x: x + 1)]
    )
    assert made is not library and made.strlen is made_length
    assert (made_length(b"abc"), made_length.argtypes, made_length.restype) == (
        3,
        [ctypes.c_char_p],
        ctypes.c_size_t,
    )
    assert (made_prototype(-3), callback(3)) == (3, 4)
    assert made._FuncPtr._flags_ == library._FuncPtr._flags_


def test_a_library_that_is_gone_is_named(tmp_path: Path) -> None:
    place = str(tmp_path / "lib.so")
    with pytest.raises(RestoreError, match=r"lib\.so'.*cannot be loaded again.*Put it back"):
        load_library(ctypes.CDLL, "./lib.so", place, 1)


FOREIGN = """
import ctypes
import mmap
allocate = ctypes.CDLL(None).malloc
allocate.restype = ctypes.POINTER(ctypes.c_int)
class Holder(ctypes.Structure):
    _fields_ = (("numbers", ctypes.POINTER(ctypes.c_int) * 2),)
holder = Holder()
holder.numbers[1] = allocate(16)
driver_tick()
"""


def test_an_address_that_c_has_given_out_is_refused_by_its_place(tmp_path: Path) -> None:
    said = image_failure(tmp_path, FOREIGN)
    assert "variable 'holder': the address in Holder.numbers[1] (ctypes) is not in the memory" in said
    assert "make the others again in ckpt.on_restart" in said


@pytest.mark.rotate(4)
def test_ctypes_in_a_program_of_its_own(tmp_path: Path) -> None:
    """Classes of a program are made by value: their fields and pointers are those of the new classes."""
    source = """
    import ctypes
    class Node(ctypes.Structure):
        pass
    Node._fields_ = [("value", ctypes.c_int), ("next", ctypes.POINTER(Node))]
    nodes = (Node * 3)(*[(number, None) for number in range(3)])
    for number in range(2):
        nodes[number].next = ctypes.pointer(nodes[number + 1])
    numbers = (ctypes.c_int * 5)(5, 1, 4, 2, 3)
    compare = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.POINTER(ctypes.c_int)] * 2)(lambda a, b: a[0] - b[0])
    sort = ctypes.CDLL(None).qsort
    sort.restype = None
    driver_tick()
    nodes[2].value = 7
    sort(numbers, 5, ctypes.sizeof(ctypes.c_int), compare)
    print(nodes[0].next.contents.next.contents.value, list(numbers))
    """
    assert resumed_output(tmp_path, source) == "7 [1, 2, 3, 4, 5]\n"

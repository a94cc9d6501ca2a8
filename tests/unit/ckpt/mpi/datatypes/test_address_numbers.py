"""The numbers that stand for addresses where several processes are one rank."""

from __future__ import annotations

import array
import copy
import ctypes
import gc
import itertools
import mmap
from typing import Any

import numpy as np
import pytest

from ckpt.mpi.base.errors import MpiException
from ckpt.mpi.datatypes.address_numbers import Numbers
from ckpt.mpi.datatypes.memory import TOLD_ADDRESSES, address_of
from ckpt.mpi.rma.exposed import Dynamic


class Pair(ctypes.Structure):
    _fields_ = (("first", ctypes.c_int64), ("second", ctypes.c_int64))


MEMORY: list[Any] = [
    np.arange(10),
    np.asfortranarray(np.arange(12.0).reshape(3, 4)),
    bytearray(40),
    array.array("d", [1, 2, 3]),
    mmap.mmap(-1, 100),
    Pair(1, 2),
    b"read-only bytes",
]


def test_each_byte_of_the_program_has_a_number_of_its_own() -> None:
    numbers = Numbers()
    first = [numbers.of(memory) for memory in MEMORY]
    assert all(number in TOLD_ADDRESSES for number in first)
    taken = [range(at, at + memoryview(each).nbytes) for at, each in zip(first, MEMORY, strict=True)]
    assert all(one.stop < two.start for one, two in itertools.pairwise(taken))
    assert [numbers.of(memory) for memory in MEMORY] == first


def test_what_is_a_part_of_memory_has_the_numbers_of_that_part() -> None:
    numbers, whole, flat, pairs = Numbers(), np.arange(24.0).reshape(4, 6), bytearray(64), (Pair * 2)()
    base = numbers.of(whole[1:3])  # a part first
    assert numbers.of(whole) == base - 48
    parts: list[Any] = [
        whole[2, 3:],
        whole.ravel()[7:],
        memoryview(whole)[2:],
        whole.ravel().view("B")[9:],
    ]
    assert [numbers.of(part) - numbers.of(whole) for part in parts] == [
        address_of(part) - address_of(whole) for part in parts
    ]
    start = numbers.of(memoryview(flat))
    assert numbers.of(flat) == start and numbers.of(memoryview(flat)[8:]) == start + 8
    assert numbers.of(np.frombuffer(flat, "i4")[3:]) == start + 12
    assert numbers.of(pairs[1]) == numbers.of(pairs) + 16
    assert numbers.find(numbers.of(pairs) + 8, 8) == (pairs, 8)


def test_numbers_follow_from_the_calls_and_not_from_the_addresses() -> None:
    def program() -> list[int]:
        numbers, found = Numbers(), []
        for size in (3, 500, 5000, 1):
            memory = np.zeros(size)
            found += [numbers.of(memory), numbers.of(memory[size // 2 :])]
        return found

    one = program()
    blocker = [np.zeros(size) for size in (3, 500, 5000, 1)]
    assert program() == one and len(blocker) == 4


def test_numbers_of_memory_that_is_gone_are_never_given_again() -> None:
    numbers, memory = Numbers(), np.zeros(4)
    former = numbers.of(memory)
    assert numbers.find(former, 32) == (memory, 0) and numbers.find(former, 33) is None
    del memory
    gc.collect()
    assert numbers.find(former, 1) is None
    assert numbers.of(np.zeros(4)) > former and numbers.of(np.zeros(0)) == 0


def test_an_image_has_the_numbers_of_what_is_still_used() -> None:
    numbers, memory, plain = Numbers(), np.zeros(4), bytearray(9)
    was = numbers.of(memory), numbers.of(plain)
    gone = numbers.of(np.zeros(3))
    again, memory_again, plain_again = copy.deepcopy((numbers, memory, plain))
    assert (again.of(memory_again), again.of(plain_again)) == was and again.find(gone, 1) is None
    assert again.of(memory) > max(gone, *was)


def test_an_attached_piece_is_found_by_its_number_and_not_by_the_address_of_one_process() -> None:
    numbers, dynamic, memory = Numbers(), Dynamic(), np.arange(6, dtype="B")
    dynamic.attach(memory, is_numbered=True)

    def present(address: int, nbytes: int) -> int | None:
        found = numbers.find(address, nbytes)
        return None if found is None else address_of(found[0]) + found[1]

    number = numbers.of(memory[2:])
    assert bytes(dynamic.spec(None, 2, number + 1, present).read()) == bytes([3, 4])
    assert bytes(dynamic.spec(None, 6, number - 2, present).read()) == bytes(range(6))
    for wrong in (number + 3, address_of(memory)):
        with pytest.raises(MpiException, match="no attached memory"):
            dynamic.spec(None, 2, wrong, present)

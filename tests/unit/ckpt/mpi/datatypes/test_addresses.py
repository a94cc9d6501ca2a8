"""What a program was told of addresses, and where that memory is now: after a restart, and in several processes."""

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

from ckpt.mpi.base.constants import BOTTOM
from ckpt.mpi.base.errors import ERR_BUFFER, MpiException
from ckpt.mpi.datatypes import memory as module
from ckpt.mpi.datatypes.addresses import Addresses
from ckpt.mpi.datatypes.buffers import BufferSpec
from ckpt.mpi.datatypes.datatypes import PREDEFINED
from ckpt.mpi.datatypes.memory import TOLD_NUMBERS, address_of


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


def number(addresses: Addresses, location: Any) -> int:
    return addresses.tell(location, is_number=True)


def test_one_process_tells_the_addresses_themselves() -> None:
    addresses = Addresses()
    for memory in MEMORY:
        assert addresses.tell(memory) == address_of(memory) and addresses.find(address_of(memory), 1) == []
    assert [addresses.tell(each) for each in (None, b"", BOTTOM)] == [0, 0, int(BOTTOM)]


def test_each_byte_of_the_program_has_a_number_of_its_own() -> None:
    addresses = Addresses()
    first = [number(addresses, memory) for memory in MEMORY]
    assert all(each in TOLD_NUMBERS for each in first)
    taken = [range(at, at + memoryview(each).nbytes) for at, each in zip(first, MEMORY, strict=True)]
    assert all(one.stop < two.start for one, two in itertools.pairwise(taken))
    assert [number(addresses, memory) for memory in MEMORY] == first


def test_what_is_a_part_of_memory_is_told_its_place_in_it() -> None:
    addresses, whole, flat, pairs = Addresses(), np.arange(24.0).reshape(4, 6), bytearray(64), (Pair * 2)()
    base = number(addresses, whole[1:3])  # a part first
    assert number(addresses, whole) == base - 48
    parts: list[Any] = [whole[2, 3:], whole.ravel()[7:], memoryview(whole)[2:], whole.ravel().view("B")[9:]]
    for part in parts:
        assert number(addresses, part) - base + 48 == address_of(part) - address_of(whole)
        assert addresses.tell(part) == address_of(part)
    start = number(addresses, memoryview(flat))
    assert number(addresses, flat) == start and number(addresses, memoryview(flat)[8:]) == start + 8
    assert number(addresses, np.frombuffer(flat, "i4")[3:]) == start + 12
    assert number(addresses, pairs[1]) == number(addresses, pairs) + 16
    assert addresses.find(number(addresses, pairs) + 8, 8) == [(pairs, 8)]


def test_numbers_follow_from_the_calls_and_not_from_the_addresses() -> None:
    def program() -> list[int]:
        addresses, found = Addresses(), []
        for size in (3, 500, 5000, 1):
            memory = np.zeros(size)
            found += [number(addresses, memory), number(addresses, memory[size // 2 :])]
        return found

    one = program()
    blocker = [np.zeros(size) for size in (3, 500, 5000, 1)]
    assert program() == one and len(blocker) == 4


def test_a_number_of_memory_that_is_gone_is_never_told_again() -> None:
    addresses, memory = Addresses(), np.zeros(4)
    former = number(addresses, memory)
    assert addresses.find(former, 32) == [(memory, 0)] and addresses.find(former, 33) == []
    del memory
    gc.collect()
    assert addresses.find(former, 1) == []
    assert number(addresses, np.zeros(4)) > former and number(addresses, np.zeros(0)) == 0


@pytest.mark.parametrize("make", [np.zeros, bytearray])
def test_who_asks_for_much_memory_in_turn_does_not_make_the_rank_larger(make: Any) -> None:
    addresses, kept = Addresses(), [make(4) for _ in range(3)]
    for each in kept:
        addresses.tell(each)
    for _ in range(1000):
        addresses.tell(make(4))
    assert len(addresses._owners) < 100
    for _ in range(8):
        addresses.tell(make(10 << 20))
    assert (
        sum(memoryview(known()).nbytes for known, *_ in addresses._owners.values() if known() is not None)
        < 1000
    )
    assert len(addresses._owners) < 100 and all(id(each) in addresses._owners for each in kept)


def test_memory_whose_class_has_no_weak_references_is_forgotten_when_nobody_uses_it() -> None:
    addresses, memory = Addresses(), bytearray(16)
    told = number(addresses, memory)
    view = np.frombuffer(memory, "B")[8:]
    del memory
    assert addresses.find(told, 16)[0][1] == 0 and number(addresses, view) == told + 8
    del view
    assert addresses.find(told, 16) == []


def test_what_was_told_leads_to_the_memory_also_after_a_restart() -> None:
    addresses, memory, plain = Addresses(), np.arange(4.0), bytearray(9)
    told = addresses.tell(memory[1:]), number(addresses, plain)
    gone = number(addresses, np.zeros(3))
    again, memory_again, plain_again = copy.deepcopy((addresses, memory, plain))
    assert again.find(told[0], 24) == [(memory_again, 8)] and again.find(told[1] + 1, 8) == [(plain_again, 1)]
    assert again.find(gone, 1) == []
    assert again.tell(memory_again) == address_of(memory_again) and number(again, plain_again) == told[1]
    assert number(again, memory) > max(gone, told[1])


def test_where_processes_are_one_rank_no_address_counts_that_one_of_them_has_told() -> None:
    addresses, memory = Addresses(), np.arange(4.0)
    told, numbered = addresses.tell(memory), number(addresses, memory)
    assert addresses.find(told, 32) == [(memory, 0)] and addresses.find(told, 32, is_shared=True) == []
    assert addresses.find(numbered, 32, is_shared=True) == [(memory, 0)]
    again, memory = copy.deepcopy((addresses, memory))  # all of them have this image
    for each in (told, numbered):
        assert len(again.find(each + 8, 8, is_shared=True)) == 1


def test_a_datatype_for_bottom_leads_to_its_memory_after_a_restart(monkeypatch: pytest.MonkeyPatch) -> None:
    byte = PREDEFINED["MPI_BYTE"]
    addresses, one, two = Addresses(), bytearray(b"first"), bytearray(b"second")
    both = byte.Create_hindexed([5, 6], [addresses.tell(one), number(addresses, two)])
    again, one, two = copy.deepcopy((addresses, one, two))

    monkeypatch.setattr(module, "remembered", [again.present])
    spec = BufferSpec(BOTTOM, 1, both)
    assert bytes(spec.read()) == b"firstsecond"
    spec.write(b"FIRSTSECOND", 0)
    assert (one, two) == (b"FIRST", b"SECOND")
    with pytest.raises(MpiException, match="no memory of this program is at") as caught:
        BufferSpec(BOTTOM, 1, byte.Create_hindexed([6], [TOLD_NUMBERS.stop - 10])).read()
    assert caught.value.error_class == ERR_BUFFER


def test_an_address_that_two_buffers_have_had_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "remembered", [lambda address, nbytes: {1 << 20, 1 << 21}])
    with pytest.raises(MpiException, match="the address of two buffers"):
        BufferSpec(BOTTOM, 1, PREDEFINED["MPI_BYTE"].Create_hindexed([6], [4096])).read()

"""Integers take what mpi4py takes: on their own what has `__int__` or `__index__`, in lists what has `__index__`.

The table of all calls is tests/integer_calls.py; tests/programs/test_integer_calls.py holds it against a real mpi4py.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from ckpt import MPI
from ckpt.mpi.base.integers import argument, element, elements, is_one
from tests.integer_calls import PARTS, Table, calls_of_two, differences
from tests.unit.ckpt.mpi.bus import run_ranks


class Indexed:
    def __index__(self) -> int:
        return 1


class Convertible:
    def __int__(self) -> int:
        return 1


ONES: dict[str, Any] = {
    "int": 1,
    "float": 1.0,
    "float with a fraction": 1.7,
    "bool": True,
    "numpy integer": np.int64(1),
    "numpy float": np.float64(1.5),
    "numpy bool": np.bool_(True),
    "array of no dimension": np.array(1),
    "array of no dimension, float": np.array(1.5),
    "__index__": Indexed(),
    "__int__": Convertible(),
    "decimal": Decimal("1.5"),
    "fraction": Fraction(3, 2),
}
NONE: dict[str, Any] = {"text": "1", "bytes": b"1", "none": None, "list": [1], "complex": 1 + 1j}


def buffer() -> Any:
    return np.zeros(2)


SENDS: dict[str, Callable[[Any, Any], Any]] = {
    "send": lambda comm, one: comm.send([1, 2], one, one),
    "ssend": lambda comm, one: comm.ssend([1, 2], one, one),
    "bsend": lambda comm, one: comm.bsend([1, 2], one, one),
    "isend": lambda comm, one: comm.isend([1, 2], one, one).wait(),
    "issend": lambda comm, one: comm.issend([1, 2], one, one).wait(),
    "sendrecv": lambda comm, one: comm.sendrecv([1, 2], one, one, None, -2, 1),
    "Send": lambda comm, one: comm.Send(np.ones(2), one, one),
    "Ssend": lambda comm, one: comm.Ssend(np.ones(2), one, one),
    "Bsend": lambda comm, one: comm.Bsend(np.ones(2), one, one),
    "Isend": lambda comm, one: comm.Isend(np.ones(2), one, one).Wait(),
    "Issend": lambda comm, one: comm.Issend(np.ones(2), one, one).Wait(),
    "Sendrecv": lambda comm, one: comm.Sendrecv(np.ones(2), one, one, buffer(), -2, 1),
    "Send_init": lambda comm, one: started(comm.Send_init(np.ones(2), one, one)),
    "Ssend_init": lambda comm, one: started(comm.Ssend_init(np.ones(2), one, one)),
}
RECEIVES: dict[str, Callable[[Any, Any], Any]] = {
    "recv": lambda comm, one: comm.recv(source=one, tag=one),
    "irecv": lambda comm, one: comm.irecv(source=one, tag=one).wait(),
    "mprobe": lambda comm, one: comm.mprobe(one, one).recv(),
    "probe": lambda comm, one: (comm.probe(one, one), comm.recv(source=one, tag=one))[1],
    "sendrecv": lambda comm, one: comm.sendrecv(None, -2, source=one, recvtag=one),
    "Recv": lambda comm, one: comm.Recv(buffer(), one, one),
    "Irecv": lambda comm, one: comm.Irecv(buffer(), one, one).Wait(),
    "Sendrecv": lambda comm, one: comm.Sendrecv(buffer(), -2, 0, buffer(), one, one),
    "Recv_init": lambda comm, one: started(comm.Recv_init(buffer(), one, one)),
}


def started(request: Any) -> None:
    request.Start()
    request.Wait()


@pytest.mark.parametrize("kind", ONES)
def test_ranks_and_tags_of_messages(kind: str) -> None:
    one = ONES[kind]

    def program(comm: Any) -> Any:
        for name, send in SENDS.items():
            if comm.rank == 0:
                send(comm, one)
            elif name[0].isupper():
                comm.Recv(buffer(), 0, 1)
            else:
                assert comm.recv(source=0, tag=1) == [1, 2]
        for name, receive in RECEIVES.items():
            if comm.rank == 1:
                (comm.Send if name[0].isupper() else comm.send)(np.ones(2), 0, 1)
            else:
                receive(comm, one)
        return comm.iprobe()

    assert run_ranks(2, program) == [False, False]


@pytest.mark.parametrize("part", PARTS)
def test_every_integer_of_a_call_takes_what_mpi4py_takes(part: str) -> None:
    def program(comm: Any) -> list[str]:
        return [line for call in Table(MPI, comm, [part]).calls for line in differences(call)]

    assert run_ranks(1, program) == [[]]


def test_every_integer_of_an_intercommunicators_call_too() -> None:
    def program(comm: Any) -> list[str]:
        calls = calls_of_two(MPI, comm, comm.Split(comm.rank))
        return [line for call in calls for line in differences(call)]

    assert run_ranks(2, program) == [[], []]


SELF_SENDS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "send": lambda comm, dest, tag: comm.send(1, dest, tag),
    "isend": lambda comm, dest, tag: comm.isend(1, dest, tag).wait(),
    "sendrecv": lambda comm, dest, tag: comm.sendrecv(1, dest, tag, None, -2, 1),
    "Send": lambda comm, dest, tag: comm.Send(np.ones(2), dest, tag),
    "Isend": lambda comm, dest, tag: comm.Isend(np.ones(2), dest, tag).Wait(),
    "Sendrecv": lambda comm, dest, tag: comm.Sendrecv(np.ones(2), dest, tag, buffer(), -2, 1),
}
SELF_RECEIVES: dict[str, Callable[[Any, Any, Any], Any]] = {
    "recv": lambda comm, source, tag: comm.recv(None, source, tag),
    "irecv": lambda comm, source, tag: comm.irecv(None, source, tag).wait(),
    "Recv": lambda comm, source, tag: comm.Recv(buffer(), source, tag),
    "Irecv": lambda comm, source, tag: comm.Irecv(buffer(), source, tag).Wait(),
}


def refuses_what_is_only_equal_to_zero(call: Callable[[Any, Any, Any], Any], comm: Any) -> None:
    for pair in ((0j, 0), (0, 0j)):
        with pytest.raises(TypeError):
            call(comm, *pair)


@pytest.mark.parametrize("name", SELF_SENDS)
def test_what_is_only_equal_to_a_rank_that_was_sent_to_before_is_refused(name: str) -> None:
    def program(comm: Any) -> bool:
        SELF_SENDS[name](comm, 0, 0)
        refuses_what_is_only_equal_to_zero(SELF_SENDS[name], comm)
        comm.Recv(bytearray(64), 0, 0)
        return bool(comm.iprobe())

    assert run_ranks(1, program) == [False]


@pytest.mark.parametrize("name", SELF_RECEIVES)
def test_what_is_only_equal_to_a_source_that_has_a_message_is_refused(name: str) -> None:
    def program(comm: Any) -> bool:
        for _ in range(2):
            (comm.Send if name[0].isupper() else comm.send)(np.ones(2), 0, 0)
        SELF_RECEIVES[name](comm, 0, 0)
        refuses_what_is_only_equal_to_zero(SELF_RECEIVES[name], comm)
        SELF_RECEIVES[name](comm, 0, 0)
        return bool(comm.iprobe())

    assert run_ranks(1, program) == [False]


def test_a_range_of_ranks_that_ends_far_outside_is_refused_at_once() -> None:
    def program(comm: Any) -> None:
        group = comm.Get_group()
        for call in (group.Range_incl, group.Range_excl):
            with pytest.raises(MPI.Exception) as caught:
                call([(0, 2**31 - 1, 1)])
            assert caught.value.error_class == MPI.ERR_RANK

    run_ranks(1, program)


def test_one_integer_or_a_list() -> None:
    assert all(is_one(each) for each in (3, True, np.int64(3), np.array(3), Indexed()))
    assert not any(
        is_one(each) for each in (3.0, [3], (3,), np.array([3]), np.float64(3), "3", None, Convertible())
    )


def test_lists_have_a_length_and_places() -> None:
    assert (
        elements(range(3))
        == elements(np.arange(3), 3)
        == elements((0, np.int8(1), Indexed() and 2))
        == [0, 1, 2]
    )
    for refused in (3, {1, 2}, iter([1]), None):
        with pytest.raises(TypeError):
            elements(refused)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="expecting 2 items, got 3"):
        elements([1, 2, 3], 2)


@pytest.mark.parametrize("kind", NONE)
def test_what_is_no_number_is_refused_and_nothing_is_sent(kind: str) -> None:
    wrong = NONE[kind]

    def program(comm: Any) -> Any:
        for call in (*SENDS.values(), *RECEIVES.values()):
            with pytest.raises(TypeError):
                call(comm, wrong)
        return comm.iprobe()

    assert run_ranks(1, program) == [False]
    for way in (argument, element):
        with pytest.raises(TypeError):
            way(wrong)

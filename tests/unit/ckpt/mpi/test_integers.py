"""Integer arguments take what mpi4py takes: what has `__index__` or `__int__`, floating-point numbers cut off."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from ckpt.mpi.integers import index
from ckpt.mpi.status import Status
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


@pytest.mark.parametrize("kind", ONES)
def test_roots_colors_groups_parts_and_statuses(kind: str) -> None:
    one = ONES[kind]

    def program(comm: Any) -> Any:
        assert comm.bcast(comm.rank, one) == 1
        assert comm.reduce(1, root=one) == (2 if comm.rank == 1 else None)
        assert comm.Split(one, one).size == 2
        group = comm.Get_group()
        assert group.Incl([one]).size == group.Excl([one]).size == 1
        assert group.Translate_ranks([one], group) == [1]
        part = (
            comm.Psend_init(np.ones(2), 2, one, one)
            if comm.rank == 0
            else comm.Precv_init(buffer(), 2, 0, one)
        )
        part.Start()
        if comm.rank == 0:
            part.Pready(0)
            part.Pready(one)
        part.Wait()
        assert part.Parrived(one) if comm.rank else True
        status = Status()
        status.Set_tag(one)
        return status.Get_tag()

    assert run_ranks(2, program) == [1, 1]


@pytest.mark.parametrize("kind", NONE)
def test_what_is_no_number_is_refused_and_nothing_is_sent(kind: str) -> None:
    wrong = NONE[kind]

    def program(comm: Any) -> Any:
        for call in (*SENDS.values(), *RECEIVES.values()):
            with pytest.raises(TypeError):
                call(comm, wrong)
        return comm.iprobe()

    assert run_ranks(1, program) == [False]
    with pytest.raises(TypeError):
        index(wrong)

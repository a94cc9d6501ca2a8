"""Error handlers are honoured by every operation, once per error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ckpt.mpi.base.constants import ANY_SOURCE
from ckpt.mpi.base.errhandler import ERRORS_ABORT, ERRORS_ARE_FATAL, ERRORS_RETURN
from ckpt.mpi.base.errors import ERR_COMM, ERR_RANK, ERR_ROOT, ERR_TAG, ERR_TRUNCATE, MpiException
from ckpt.mpi.comm.communicator import Intracomm
from ckpt.mpi.engine import worlds
from ckpt.mpi.requests.request import Request
from tests.unit.ckpt.mpi.bus import run_ranks

SMALL, LARGE = np.zeros(1), np.zeros(9)

WRONG: dict[str, tuple[Callable[[Any], Any], int]] = {
    "send": (lambda comm: comm.send(1, 7), ERR_RANK),
    "ssend": (lambda comm: comm.ssend(1, 7), ERR_RANK),
    "bsend": (lambda comm: comm.bsend(1, 7), ERR_RANK),
    "isend": (lambda comm: comm.isend(1, 7), ERR_RANK),
    "recv": (lambda comm: comm.recv(source=7), ERR_RANK),
    "irecv": (lambda comm: comm.irecv(source=0, tag=-5), ERR_TAG),
    "sendrecv": (lambda comm: comm.sendrecv(1, 7), ERR_RANK),
    "Send": (lambda comm: comm.Send(SMALL, 0, -5), ERR_TAG),
    "Isend": (lambda comm: comm.Isend(SMALL, 7), ERR_RANK),
    "Ssend": (lambda comm: comm.Ssend(SMALL, 7), ERR_RANK),
    "Send_init": (lambda comm: comm.Send_init(SMALL, 7), ERR_RANK),
    "Recv_init": (lambda comm: comm.Recv_init(SMALL, 7), ERR_RANK),
    "Recv": (lambda comm: (comm.Send(LARGE, 0), comm.Recv(SMALL, 0)), ERR_TRUNCATE),
    "Sendrecv": (lambda comm: comm.Sendrecv(LARGE, 0, recvbuf=SMALL, source=0), ERR_TRUNCATE),
    "Irecv": (lambda comm: (comm.Send(LARGE, 0), comm.Irecv(SMALL, 0).Wait()), ERR_TRUNCATE),
    "Test": (lambda comm: (comm.Send(LARGE, 0), until_true(comm.Irecv(SMALL, 0).Test)), ERR_TRUNCATE),
    "Waitall": (lambda comm: (comm.Send(LARGE, 0), Request.Waitall([comm.Irecv(SMALL, 0)])), ERR_TRUNCATE),
    "Waitany": (lambda comm: (comm.Send(LARGE, 0), Request.Waitany([comm.Irecv(SMALL, 0)])), ERR_TRUNCATE),
    "probe": (lambda comm: comm.probe(source=7), ERR_RANK),
    "Improbe": (lambda comm: comm.Improbe(source=7), ERR_RANK),
    "bcast": (lambda comm: comm.bcast(1, 7), ERR_ROOT),
    "Bcast": (lambda comm: comm.Bcast(SMALL, 7), ERR_ROOT),
    "Igather": (lambda comm: comm.Igather(SMALL, SMALL, 7), ERR_ROOT),
    "Reduce_init": (lambda comm: comm.Reduce_init(SMALL, SMALL, root=7), ERR_ROOT),
    "Split": (lambda comm: comm.Split(-2), 12),
    "Create_cart": (lambda comm: comm.Create_cart([5]), 11),
}


def until_true(call: Callable[[], Any]) -> None:
    while not call():
        pass


def test_by_default_and_with_errors_return_the_exception_is_all() -> None:
    def program(comm: Any) -> None:
        for handler in (None, ERRORS_RETURN):
            if handler is not None:
                comm.Set_errhandler(handler)
            for call, code in WRONG.values():
                with pytest.raises(MpiException) as caught:
                    call(comm)
                assert caught.value.error_class == code

    run_ranks(1, program)


@pytest.mark.parametrize("name", WRONG)
def test_a_handler_of_the_programs_own_is_called_once_with_communicator_and_code(name: str) -> None:
    call, code = WRONG[name]

    def program(comm: Any) -> Any:
        mine = comm.Dup()
        calls: list[Any] = []
        mine.Set_errhandler(Intracomm.Create_errhandler(lambda where, number: calls.append((where, number))))
        with pytest.raises(MpiException) as caught:
            call(mine)
        assert caught.value.error_class == code
        assert [(where == mine, number) for where, number in calls] == [(True, code)]
        with pytest.raises(MpiException):
            call(comm)
        assert len(calls) == 1, "the other communicator has no such handler"
        mine.Get_errhandler().Free()

    run_ranks(1, program)


@pytest.mark.parametrize("handler", [ERRORS_ARE_FATAL, ERRORS_ABORT])
def test_fatal_errors_end_the_job_with_their_code(
    handler: Any, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    class Ended(BaseException):
        pass

    ended: list[int] = []

    def abort(code: int) -> None:
        ended.append(code)
        raise Ended

    monkeypatch.setattr(worlds, "_abort", [abort])

    def program(comm: Any) -> None:
        comm.Set_errhandler(handler)
        for call, _ in WRONG.values():
            with pytest.raises(Ended):
                call(comm)

    run_ranks(1, program)
    assert ended == [code for _, code in WRONG.values()]
    told = capsys.readouterr().err
    assert "in send" in told and "test_errhandlers.py" in told, "the traceback says where"


def test_a_handler_may_use_the_communicator() -> None:
    def program(comm: Any) -> Any:
        comm.Set_errhandler(Intracomm.Create_errhandler(lambda where, number: where.send(number, 0)))
        with pytest.raises(MpiException):
            comm.Irecv(SMALL, source=0, tag=-9)
        with pytest.raises(MpiException):
            comm.send(1, 9)
        return comm.recv(), comm.recv(source=ANY_SOURCE)

    assert run_ranks(1, program) == [(ERR_TAG, ERR_RANK)]


def test_communicators_inherit_the_handler() -> None:
    def program(comm: Any) -> Any:
        comm.Set_errhandler(ERRORS_ARE_FATAL)
        made = [
            comm.Dup(),
            comm.Split(0),
            comm.Create(comm.Get_group()),
            comm.Create_cart([1]),
            comm.Shrink(),
        ]
        return [each.Get_errhandler() == ERRORS_ARE_FATAL for each in made]

    assert run_ranks(1, program) == [[True] * 5]


def test_a_freed_communicator_still_refuses() -> None:
    def program(comm: Any) -> Any:
        other = comm.Dup()
        other.Free()
        with pytest.raises(MpiException) as caught:
            other.send(1, 0)
        return caught.value.error_class

    assert run_ranks(1, program) == [ERR_COMM]


def test_the_handler_of_a_request_gets_a_communicator_of_its_kind() -> None:
    def program(comm: Any) -> Any:
        kinds: list[Any] = []
        handler = Intracomm.Create_errhandler(
            lambda where, number: kinds.append((type(where).__name__, where == current))
        )
        sides = comm.Split(comm.rank)
        inter = sides.Create_intercomm(0, comm, 1 - comm.rank)
        for current in (inter, inter.Dup(), inter.Shrink(), comm.Create_cart([2]), comm.Dup().Shrink()):
            current.Set_errhandler(handler)
            current.Send(LARGE, 0 if current.Is_inter() else 1 - comm.rank)
            with pytest.raises(MpiException):
                current.Irecv(SMALL, source=ANY_SOURCE).Wait()
        return kinds

    expected = [("Intercomm", True)] * 3 + [("Intracomm", True)] * 2
    assert run_ranks(2, program) == [expected] * 2

"""Calls that complete requests, when one of them has failed: every call with every kind of failure.

The table `KINDS` makes three requests, the second of which fails; `CALLS` complete them. Whatever the call, nothing may be
lost: the failure is told (once by the call, once by the request itself), and the other two give their objects.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ckpt.mpi.base.constants import ANY_SOURCE, UNDEFINED
from ckpt.mpi.base.errors import (
    ERR_IN_STATUS,
    ERR_OTHER,
    ERR_PENDING,
    ERR_PROC_FAILED,
    ERR_PROC_FAILED_PENDING,
    ERR_REQUEST,
    ERR_REVOKED,
    ERR_TRUNCATE,
    SUCCESS,
    MpiException,
)
from ckpt.mpi.comm.communicator import self_of
from ckpt.mpi.datatypes.op import SUM
from ckpt.mpi.datatypes.status import Status
from ckpt.mpi.requests.grequest import Grequest, GrequestOperation
from ckpt.mpi.requests.request import REQUEST_NULL, Prequest, Request
from tests.unit.ckpt.mpi.bus import Killed, image_of, revive, run_ranks

LIVING, DEAD = 1, 2


def gone(comm: Any) -> None:
    """Wait until it is known here that rank 2 is dead."""
    while not comm.Get_failed().size:
        with comm._engine.lock:
            comm._engine.block()


def here(comm: Any, tag: int) -> None:
    """Wait until a message of rank 1 has come."""
    comm.recv(source=LIVING, tag=tag)


# -- kinds of failures: (what makes the request, its error, what the living rank sends) ------------------------------------


class Unreadable:
    """An object that cannot be made again."""

    def __reduce__(self) -> Any:
        return int, ("no number",)


def refuse(status: Status) -> None:
    raise MpiException(ERR_OTHER)


def operation(comm: Any) -> Any:
    request = Grequest._make(comm._engine, GrequestOperation(refuse, None, None, None, None))
    request._grequest_operation = request._operation
    request.Complete()
    return request


def started(request: Prequest) -> Prequest:
    request.Start()
    return request


def revoked(comm: Any) -> Any:
    own = self_of(comm._engine).Dup()
    request = own.irecv(source=0)
    own.Revoke()
    return request


KINDS: dict[str, tuple[Callable[[Any], Any], int]] = {
    "truncated": (lambda comm: comm.Irecv(np.zeros(1), LIVING, 5), ERR_TRUNCATE),
    "truncated, persistent": (lambda comm: started(comm.Recv_init(np.zeros(1), LIVING, 5)), ERR_TRUNCATE),
    "unreadable": (lambda comm: comm.irecv(source=LIVING, tag=6), 0),
    "receive from the dead": (lambda comm: comm.irecv(source=DEAD, tag=5), ERR_PROC_FAILED),
    "receive into a buffer from the dead": (lambda comm: comm.Irecv(np.zeros(1), DEAD), ERR_PROC_FAILED),
    "send to the dead": (lambda comm: comm.isend("x", DEAD), ERR_PROC_FAILED),
    "synchronous send to the dead": (lambda comm: comm.issend("x", DEAD), ERR_PROC_FAILED),
    "buffer to the dead": (lambda comm: comm.Isend(np.zeros(1), DEAD), ERR_PROC_FAILED),
    "persistent send to the dead": (lambda comm: started(comm.Send_init(np.zeros(1), DEAD)), ERR_PROC_FAILED),
    "persistent receive from the dead": (
        lambda comm: started(comm.Recv_init(np.zeros(1), DEAD)),
        ERR_PROC_FAILED,
    ),
    "parts to the dead": (lambda comm: started(comm.Psend_init(np.zeros(2), 2, DEAD)), ERR_PROC_FAILED),
    "parts from the dead": (lambda comm: started(comm.Precv_init(np.zeros(2), 2, DEAD)), ERR_PROC_FAILED),
    "barrier": (lambda comm: comm.Ibarrier(), ERR_PROC_FAILED),
    "reduction": (lambda comm: comm.Iallreduce(np.ones(1), np.ones(1), SUM), ERR_PROC_FAILED),
    "persistent barrier": (lambda comm: started(comm.Barrier_init()), ERR_PROC_FAILED),
    "generalized": (operation, ERR_OTHER),
    "revoked": (revoked, ERR_REVOKED),
    "from anybody": (lambda comm: comm.irecv(source=ANY_SOURCE, tag=99), ERR_PROC_FAILED_PENDING),
}


def three(comm: Any, kind: str) -> list[Any]:
    """Requests, the second of which fails; the others are done, as far as the failure lets one see that."""
    gone(comm)
    requests = [comm.irecv(source=LIVING, tag=1), KINDS[kind][0](comm), comm.irecv(source=LIVING, tag=2)]
    here(comm, 7)
    return requests


def living(comm: Any) -> None:
    comm.Send(np.ones(9), 0, tag=5)
    comm.send(Unreadable(), 0, tag=6)
    comm.send(100, 0, tag=1)
    comm.send(10, 0, tag=2)
    comm.send("all sent", 0, tag=7)


# -- the calls -------------------------------------------------------------------------------------------------------------

CALLS: dict[str, Callable[[list[Any]], Any]] = {
    "waitall": lambda requests: sum(Request.waitall(requests)),
    "testall": lambda requests: until(lambda: Request.testall(requests)[0]),
    "Waitall": lambda requests: Request.Waitall(requests),
    "Testall": lambda requests: until(lambda: Request.Testall(requests)),
    "waitany": lambda requests: Request.waitany(requests),
    "testany": lambda requests: Request.testany(requests),
    "Waitany": lambda requests: Request.Waitany(requests),
    "Testany": lambda requests: Request.Testany(requests),
    "waitsome": lambda requests: Request.waitsome(requests),
    "testsome": lambda requests: Request.testsome(requests),
    "Waitsome": lambda requests: Request.Waitsome(requests),
    "Testsome": lambda requests: Request.Testsome(requests),
}
ALL = ("waitall", "testall", "Waitall", "Testall")
SOME = ("waitsome", "testsome", "Waitsome", "Testsome")


def until(call: Callable[[], Any]) -> None:
    while not call():
        pass


def caught(call: Callable[[], Any]) -> Any:
    """What a call raises, or None."""
    try:
        call()
    except (MpiException, ValueError) as error:
        return error
    return None


def code_of(error: Any) -> int:
    return error.error_class if isinstance(error, MpiException) else 0


def in_company(program: Callable[[Any], Any]) -> Any:
    """What rank 0 returns; rank 1 sends, rank 2 is dead."""

    def body(comm: Any) -> Any:
        if comm.rank == DEAD:
            raise Killed
        if comm.rank == LIVING:
            return living(comm)
        return program(comm)

    return run_ranks(3, body, seed=1)[0]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("call", CALLS)
def test_a_failure_is_told_and_nothing_else_is_lost(call: str, kind: str) -> None:
    code = KINDS[kind][1]
    pending = code == ERR_PROC_FAILED_PENDING

    def program(comm: Any) -> Any:
        requests = three(comm, kind)
        persistent = isinstance(requests[1], Prequest)
        if call in ALL or call in SOME:
            if pending and call in SOME:
                assert CALLS[call](requests)  # the two others
                assert code_of(caught(lambda: CALLS[call](requests))) == code
                return
            error = caught(lambda: CALLS[call](requests))
        else:
            total = taken(requests, call)
            error = caught(lambda: CALLS[call]([requests[1]]))
            assert total == 110 or call[0].isupper()
            assert not requests[0] and not requests[2]
        assert error is not None, "the call reports success"
        assert code_of(error) == code
        if isinstance(error, MpiException):
            assert error.requests in ((1,), (0,))
        failed = requests[1]
        if not pending:
            assert bool(failed) is persistent, "a request that has failed is null to other calls"
            assert persistent or failed == REQUEST_NULL
            assert Request.Waitany([failed]) == UNDEFINED
            assert Request.Waitall([failed])
            assert code_of(caught(failed.Get_status)) == code
            assert caught(failed.Get_status) is not None
            again = caught(failed.Test if call[0].isupper() else failed.wait)
            assert again is not None, "tested again it reports success"
            assert code_of(again) == code
            assert failed.Test() and failed.wait() is None, "told twice, it is the null request"
        else:
            assert failed and code_of(caught(failed.Test)) == code
        if call in ALL or call in SOME:
            assert sum(each.wait() for each in (requests[0], requests[2])) == 110, "an object is lost"
        if persistent:
            failed.Start()

    def taken(requests: list[Any], call: str) -> int:
        """Complete the two good ones as a program does that knows nothing of the third."""
        total = 0
        for each in (requests[0], requests[2]):
            one = [each]
            told = CALLS[call](one)
            total += told[-1] if call.islower() else 0
        return total

    in_company(program)


@pytest.mark.parametrize("kind", [each for each in KINDS if each != "unreadable"])
@pytest.mark.parametrize("call", ["waitall", "Waitall", "testall", "Testall"])
def test_statuses_say_what_became_of_each(call: str, kind: str) -> None:
    code = KINDS[kind][1]

    def program(comm: Any) -> Any:
        requests = three(comm, kind)
        statuses: list[Status] = []
        error = caught(lambda: until(lambda: getattr(Request, call)(requests, statuses)))
        assert code_of(error) == ERR_IN_STATUS and error.requests == (1,)
        assert [status.error for status in statuses] == [SUCCESS, code, SUCCESS]
        assert [statuses[0].tag, statuses[2].tag] == [1, 2]
        assert not requests[0] and not requests[2], "what was told to be done is null"
        if code != ERR_PROC_FAILED_PENDING:
            assert Request.waitall(requests) == [None] * 3
        return requests[0].wait(), requests[2].wait(), requests[0].wait()

    assert in_company(program) == (100, 10, None)


@pytest.mark.parametrize("kind", [each for each in KINDS if each not in ("unreadable", "from anybody")])
@pytest.mark.parametrize("call", SOME)
def test_a_call_on_some_reports_the_failed_first_and_the_others_next(call: str, kind: str) -> None:
    code = KINDS[kind][1]

    def program(comm: Any) -> Any:
        requests = three(comm, kind)
        statuses: list[Status] = []
        error = caught(lambda: until(lambda: getattr(Request, call)(requests, statuses)))
        assert code_of(error) == ERR_IN_STATUS and error.requests == (1,)
        assert statuses[0].error == code
        told = getattr(Request, call)(requests, statuses)
        indices, objects = told if call.islower() else (told, [100, 10])
        assert getattr(Request, call)(requests) in (None, (None, None))
        return indices, objects, [status.tag for status in statuses[:2]]

    assert in_company(program) == ([0, 2], [100, 10], [1, 2])


def test_a_program_that_sums_up_what_came_over_failures_gets_the_right_sum() -> None:
    def program(comm: Any) -> Any:
        gone(comm)
        requests = [
            comm.irecv(source=LIVING, tag=1),
            comm.irecv(source=DEAD),
            comm.irecv(source=LIVING, tag=2),
        ]
        here(comm, 7)
        total, failed = 0, []
        while True:
            try:
                indices, objects = Request.waitsome(requests)
            except MpiException:
                for index, request in enumerate(requests):
                    try:
                        done, obj = request.test()
                    except MpiException as error:
                        failed.append((index, error.error_class))
                    else:
                        total += obj if done else 0
                continue
            if indices is None:
                return total, failed
            total += sum(objects)

    assert in_company(program) == (110, [(1, ERR_PROC_FAILED)])


def test_waitall_does_not_wait_for_the_living_once_a_process_has_failed() -> None:
    def program(comm: Any) -> Any:
        if comm.rank == DEAD:
            raise Killed
        if comm.rank == LIVING:
            return comm.recv(source=0)  # before it sends
        requests = [comm.irecv(source=LIVING), comm.irecv(source=DEAD)]
        statuses: list[Status] = []
        error = caught(lambda: Request.Waitall(requests, statuses))
        comm.send("go on", LIVING)
        return error.error_class, [status.error for status in statuses], [bool(each) for each in requests]

    assert run_ranks(3, program)[:2] == [
        (ERR_IN_STATUS, [ERR_PENDING, ERR_PROC_FAILED], [True, False]),
        "go on",
    ]


def test_waitall_ends_when_a_communicator_is_revoked_that_one_of_the_requests_needs() -> None:
    def program(comm: Any) -> Any:
        other = comm.Dup()
        if comm.rank:
            other.Revoke()
            return comm.recv(source=0)
        requests = [comm.irecv(source=1), other.irecv(source=1)]
        error = caught(lambda: Request.Waitall(requests))
        comm.send("go on", 1)
        return error.error_class, [bool(each) for each in requests]

    assert run_ranks(2, program) == [(ERR_REVOKED, [True, False]), "go on"]


@pytest.mark.parametrize("name", ["wait", "Wait", "test", "Test"])
def test_a_single_call_tells_the_error_and_leaves_the_null_request(name: str) -> None:
    def program(comm: Any) -> Any:
        comm.Send(np.ones(9), 0)
        request, status = comm.Irecv(np.zeros(1)), Status()
        assert code_of(caught(lambda: request.Get_status(status))) == ERR_TRUNCATE
        assert status.error == ERR_TRUNCATE and request, "asking completes nothing"
        code = code_of(caught(lambda: getattr(request, name)(status)))
        return code, bool(request), request.Test()

    assert run_ranks(1, program) == [(ERR_TRUNCATE, False, True)]


@pytest.mark.parametrize("name", ["Get_status_any", "Get_status_all", "Get_status_some"])
def test_asking_several_raises_the_error_and_completes_nothing(name: str) -> None:
    def program(comm: Any) -> Any:
        comm.Send(np.ones(9), 0)
        requests = [comm.Irecv(np.zeros(1)), REQUEST_NULL]
        assert code_of(caught(lambda: until(lambda: getattr(Request, name)(requests)))) == ERR_TRUNCATE
        return bool(requests[0]), code_of(caught(requests[0].Wait))

    assert run_ranks(1, program) == [(True, ERR_TRUNCATE)]


@pytest.mark.parametrize("name", ["recv", "irecv", "Recv", "Irecv"])
def test_a_message_that_was_probed_is_seen_by_calls_on_several(name: str) -> None:
    def program(comm: Any) -> Any:
        comm.send("x", 0)
        message = comm.mprobe()
        if name == "irecv":
            return Request.waitany([REQUEST_NULL, message.irecv()])
        if name == "recv":
            return 1, message.recv()
        comm.Send(np.ones(3), 0)
        message = comm.mprobe()
        if name == "Recv":
            return 1, "x" if code_of(caught(lambda: message.Recv(np.zeros(1)))) == ERR_TRUNCATE else "?"
        status, into = Status(), np.zeros(3)
        request = message.Irecv(into)
        assert request.Get_status(status) and status.source == 0 and status.count == 24
        assert Request.Testsome([request]) == [0] and into.sum() == 3
        return 1, "x"

    assert run_ranks(1, program) == [(1, "x")]


def test_a_message_that_does_not_fit_reaches_the_handler_of_its_communicator() -> None:
    from ckpt.mpi.comm.communicator import Intracomm

    def program(comm: Any) -> Any:
        mine, calls = comm.Dup(), []
        mine.Set_errhandler(
            Intracomm.Create_errhandler(lambda where, code: calls.append((where == mine, code)))
        )
        for receive in ("Recv", "Irecv"):
            mine.Send(np.ones(3), 0)
            message = mine.mprobe()
            assert caught(
                lambda message=message, receive=receive: (
                    getattr(message, receive)(np.zeros(1)) or REQUEST_NULL
                ).Wait()
            )
        return calls

    assert run_ranks(1, program) == [[(True, ERR_TRUNCATE)] * 2]


def test_a_partitioned_send_that_is_done_is_seen_by_calls_on_some() -> None:
    def program(comm: Any) -> Any:
        send = started(comm.Psend_init(np.ones(2), 2, 0))
        receive = started(comm.Precv_init(np.zeros(2), 2, 0))
        send.Pready_range(0, 1)
        assert Request.Testsome([send]) == [0]
        receive.Wait()
        send.Free()
        receive.Free()

    run_ranks(1, program)


def test_a_freed_generalized_request_frees_once_it_is_complete() -> None:
    def program(comm: Any) -> Any:
        calls: list[str] = []
        for order in ("free", "complete"):
            operation = GrequestOperation(None, lambda order=order: calls.append(order), None, None, None)
            request = Grequest._make(comm._engine, operation)
            request._grequest_operation = operation
            if order == "free":
                request.Free()
                assert calls == [], "it is not complete"
                request.Complete()
            else:
                request.Complete()
                request.Free()
        assert code_of(caught(request.Free)) == ERR_REQUEST
        return calls

    assert run_ranks(1, program) == [["free", "complete"]]


def test_what_a_raising_call_has_left_is_part_of_an_image() -> None:
    images: list[Any] = []

    def program(comm: Any) -> Any:
        comm.Send(np.ones(9), 0, tag=1)
        comm.send("kept", 0, tag=2)
        requests = [comm.Irecv(np.zeros(1), 0, 1), comm.irecv(source=0, tag=2)]
        assert caught(lambda: Request.waitall(requests))
        progress = comm._engine.progress
        requests = revive(image_of(progress, *requests), progress)
        assert code_of(caught(requests[0].wait)) == ERR_TRUNCATE
        images.append(requests[1].wait())

    run_ranks(1, program)
    assert images == ["kept"]

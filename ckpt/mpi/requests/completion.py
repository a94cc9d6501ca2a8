"""Completion of several requests in one call: Waitall, Waitany, Waitsome, Testall, Testany, Testsome and Get_status_*.

A call that raises an exception cannot return the results of its requests. So that no result is lost, each request is then
in one of these states:

    a request that failed       is null for other calls, as in the MPI standard. Its own next wait, test or get_status
                                raises the error again (wait and test once, get_status each time). The exception lists
                                the indices of the failed requests (`requests`).
    a request that was done     after Waitsome and Testsome: unchanged; the next call reports it. (MPI allows a call to
                                report fewer requests than are done.) After Waitall and Testall with statuses, which
                                tell that the request is done: null; its own next wait or test returns its object.
                                Without statuses: still active, for the next call. A persistent request can be started
                                again in both cases.
    a request that was not      unchanged; its status has the error ERR_PENDING
    done

Waitall and Testall raise as soon as a process that a request needs has failed, or a request's communicator is revoked, even
while other requests are pending: those may need a rank that waits for this rank. After other errors they wait for all.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from ckpt.mpi.base.constants import UNDEFINED
from ckpt.mpi.base.errors import (
    ERR_IN_STATUS,
    ERR_PENDING,
    ERR_PROC_FAILED,
    ERR_REVOKED,
    SUCCESS,
    MpiException,
)
from ckpt.mpi.datatypes.status import Status
from ckpt.mpi.engine.operations import KeptOutcome, Operation
from ckpt.mpi.requests.handling import handled_request

if TYPE_CHECKING:
    from ckpt.mpi.engine.engine import Engine
    from ckpt.mpi.requests.request import Request


def engine_of(requests: Sequence[Request]) -> Engine | None:
    """The engine of the requests. None: no active request has an engine, so all active requests are done."""
    for request in requests:
        if request._engine is not None and request._operation is not None:
            return request._engine
    return None


# -- waiting ---------------------------------------------------------------------------------------------------------------


def scan(requests: Sequence[Request]) -> tuple[int, bool]:
    """(index of the first request that is done, or UNDEFINED; whether any request is active). The lock is held."""
    active = False
    for index in range(len(requests)):
        operation = requests[index]._operation
        if operation is not None:
            active = True
            if operation.poll():
                return index, True
    return UNDEFINED, active


def check(engine: Engine, requests: Sequence[Request]) -> None:
    """Called when no request is done: raise if a request may never be done, because a process has failed.

    The lock is held."""
    if engine.failed_ranks.known:
        for index, request in enumerate(requests):
            error = None if request._operation is None else engine.failed_ranks.pending(request._operation)
            if error is not None:
                error.requests = (index,)
                raise error


def first_done(requests: Sequence[Request], *, poll: bool) -> tuple[int, bool]:
    engine = engine_of(requests)
    if engine is None:
        return scan(requests)
    with engine.lock:
        if engine.choices is None:
            return _first_done(engine, requests, poll)
        look = partial(_first_done, engine, requests, poll)
        return engine.choices.answer(look, lambda found: _are_done(engine, requests, found[:1]))


def _first_done(engine: Engine, requests: Sequence[Request], poll: bool) -> tuple[int, bool]:
    found = scan(requests)
    if poll and found[0] == UNDEFINED:
        engine.make_progress()
        found = scan(requests)
        if found[0] == UNDEFINED:
            check(engine, requests)
    return found


def _are_done(engine: Engine, requests: Sequence[Request], indices: Sequence[int]) -> bool:
    """Whether those of these requests that are active are done. UNDEFINED: no request."""
    engine.advance_collectives()
    chosen = [requests[index]._operation for index in indices if index != UNDEFINED]
    return all(each is None or each.poll() for each in chosen)


def wait_some(requests: Sequence[Request]) -> int:
    """Wait until a request is done and return its index; UNDEFINED if no request is active."""
    engine = engine_of(requests)
    if engine is None:
        return scan(requests)[0]
    with engine.lock:
        while engine.choices is None:  # who waits here may be in an image, and go on with choices
            index = _look_some(engine, requests)
            if index is not None:
                return index
            engine.block()
        look = partial(_look_some, engine, requests)
        return engine.choices.wait(look, lambda index: _are_done(engine, requests, [index]))


def _look_some(engine: Engine, requests: Sequence[Request]) -> int | None:
    engine.advance_collectives()
    index, active = scan(requests)
    if index != UNDEFINED or not active:
        return index
    check(engine, requests)
    return None


def wait_all(requests: Sequence[Request]) -> bool:
    """Wait until all requests are done. False: not all are done, and a process that one of them needs has failed."""
    engine, operations = active_of(requests)
    if engine is None:
        return True
    with engine.lock:
        for operation in operations:
            while True:
                if engine.runnable:
                    engine.advance_collectives()
                if operation.done or operation.poll():
                    break
                if engine.failed_ranks.any_failure:
                    if _has_failed_peer(engine, operations):
                        return all(each.poll() for each in operations)
                    if operation.poll():
                        break  # looking for failures has made progress; nothing else may ever come
                engine.block()
    return True


def all_done(requests: Sequence[Request]) -> bool | None:
    """Whether all requests are done. None: not all are done, and a process that one of them needs has failed."""
    engine, operations = active_of(requests)
    if engine is None:
        return True
    with engine.lock:
        if engine.choices is None:
            return _all_done(engine, operations)
        look, rows = partial(_all_done, engine, operations), range(len(requests))
        return engine.choices.answer(look, lambda done: not done or _are_done(engine, requests, rows))


def _all_done(engine: Engine, operations: list[Operation]) -> bool | None:
    if all(operation.poll() for operation in operations):
        return True
    engine.make_progress()
    if all(operation.poll() for operation in operations):
        return True
    return None if engine.failed_ranks.any_failure and _has_failed_peer(engine, operations) else False


def active_of(requests: Sequence[Request]) -> tuple[Engine | None, list[Operation]]:
    """(as `engine_of`, the operations of the active requests)"""
    engine, operations = None, []
    for request in requests:
        operation = request._operation
        if operation is not None:
            operations.append(operation)
            engine = engine or request._engine
    return engine, operations


def _has_failed_peer(engine: Engine, operations: list[Operation]) -> bool:
    """Whether one of the operations has failed because a process has failed or a communicator is revoked. The lock is held.
    Makes progress first, so that messages that have arrived are matched: afterwards, operations may be done."""
    engine.make_progress()
    for operation in operations:
        if operation.poll():
            error = operation.error
            if isinstance(error, MpiException) and error.error_code in (ERR_PROC_FAILED, ERR_REVOKED):
                return True
        elif engine.failed_ranks.pending(operation) is not None:
            return True
    return False


# -- taking results --------------------------------------------------------------------------------------------------------


def take_one(requests: Sequence[Request], index: int, status: Status | None) -> Any:
    """Complete the request that Waitany or Testany has found, and return its object."""
    request = requests[index]
    operation = request._operation
    try:
        return request._complete(status)
    except Exception as error:
        if operation is not None:
            request._kept = KeptOutcome(operation, None, error)
        if isinstance(error, MpiException):
            error.requests = (index,)
        raise


def collect(requests: Sequence[Request], statuses: list[Status] | None) -> list[Any]:
    """Complete all requests and return their objects. All are done. Raises when one of them has failed."""
    before = [request._operation for request in requests]
    results: list[Any] = []
    try:
        for index, request in enumerate(requests):
            status = None if statuses is None else status_at(statuses, index)
            if before[index] is not None:
                results.append(request._complete(status))
            else:
                results.append(None)
                if status is not None:
                    status._fill(-1, -1, 0)
    except Exception as error:
        raise _Ending(requests, before).end(statuses, results, error)  # noqa: B904
    return results


def fail(requests: Sequence[Request], statuses: list[Status] | None) -> Exception:
    """The exception of Waitall or Testall when a request has failed because a process has failed, and others are pending."""
    return _Ending(requests, [request._operation for request in requests]).end(statuses, [], None)


def take_done(requests: Sequence[Request], statuses: list[Status] | None) -> tuple[list[int], list[Any]]:
    """Complete the requests that are done: (their indices, their objects). If some have failed, complete only these, and
    raise."""
    indices = done_of(requests)
    failed = [index for index in indices if getattr(requests[index]._operation, "error", None) is not None]
    indices = failed or indices
    chosen = [requests[index] for index in indices]
    before = [request._operation for request in chosen]
    results: list[Any] = []
    try:
        for place, request in enumerate(chosen):
            results.append(request._complete(status_at(statuses, place)))
    except Exception as error:
        raise _Ending(chosen, before, indices).end(statuses, results, error)  # noqa: B904
    return indices, results


def done_of(requests: Sequence[Request]) -> list[int]:
    """Indices of the active requests whose operation is done."""
    engine = engine_of(requests)
    operations = [request._operation for request in requests]
    with contextlib.nullcontext() if engine is None else engine.lock:

        def look() -> list[int]:
            return [index for index, each in enumerate(operations) if each is not None and each.poll()]

        if engine is not None and engine.choices is not None:
            return engine.choices.answer(look, lambda found: _are_done(engine, requests, found))
        return look()


def fill_statuses(requests: Sequence[Request], indices: Sequence[int], statuses: list[Status] | None) -> None:
    """Fill the statuses of these requests, which are done, without completing them. Raises when one has failed."""
    first: MpiException | None = None
    failed: list[int] = []
    for place, index in enumerate(indices):
        try:
            requests[index].Get_status(status_at(statuses, place))
        except MpiException as error:
            first = first or error
            failed.append(index)
    if first is not None:
        raise _exception(first, failed, statuses)


class _Ending:
    """Brings each request into its state (see the header) when a call on several requests raises.

    `before`: the operations of the requests at the beginning of the call. `first`: the first error. `failed`: indices of
    the failed requests."""

    def __init__(
        self, requests: Sequence[Request], before: list[Operation | None], indices: list[int] | None = None
    ) -> None:
        """indices: for Waitsome and Testsome, the index of each request in the program's list; None for other calls."""
        self.requests = requests
        self.before = before
        self.indices = indices
        self.first: Exception | None = None
        self.failed: list[int] = []

    def end(self, statuses: list[Status] | None, results: list[Any], error: Exception | None) -> Exception:
        """The exception to raise. The first len(results) requests were completed; the next one has raised `error`."""
        some = self.indices is not None
        seen: set[int] = set()
        told = 0
        for place, request in enumerate(self.requests):
            operation = self.before[place]
            status = None if some else status_at(statuses, place)
            if operation is None or id(request) in seen:
                if status is not None:
                    status._fill(-1, -1, 0)
                continue
            seen.add(id(request))
            outcome: KeptOutcome | None
            if place < len(results):
                outcome = KeptOutcome(operation, results[place], None)
            elif place == len(results) and error is not None:
                outcome = KeptOutcome(operation, None, error)
            else:
                outcome = self._outcome(request, operation)
            if outcome is None:
                self._leave(request, operation, status)
                continue
            if outcome.error is not None:
                self._failed(place, outcome.error)
                status = status_at(statuses, told) if some else status
                told += 1
            if status is not None:
                _fill_status(status, outcome)
            self._keep(request, outcome, told=statuses is not None and not some)
        assert self.first is not None
        return _exception(self.first, self.failed, statuses)

    def _outcome(self, request: Request, operation: Operation) -> KeptOutcome | None:
        """Complete one request. None: its operation is not done."""
        if not operation.done:
            return None
        try:
            return KeptOutcome(operation, request._complete(None), None)
        except Exception as error:
            return KeptOutcome(operation, None, error)

    def _leave(self, request: Request, operation: Operation, status: Status | None) -> None:
        """Leave a request that is not done as it is; fill its status."""
        engine = request._engine
        error = None if engine is None else engine.failed_ranks.pending(operation)
        if error is not None:
            self._failed(self.requests.index(request), handled_request(engine, operation, error))
        if status is not None:
            status._fill(-1, -1, 0, error=ERR_PENDING if error is None else error.error_code)

    def _failed(self, place: int, error: Exception) -> None:
        self.failed.append(place if self.indices is None else self.indices[place])
        if self.first is None:
            self.first = error

    def _keep(self, request: Request, outcome: KeptOutcome, *, told: bool) -> None:
        if outcome.error is not None or told or request._recipe is not None:
            request._release()
            request._kept = outcome
        else:
            request._operation = outcome


def _exception(first: Exception, failed: list[int], statuses: list[Status] | None) -> Exception:
    """The exception of a call on several requests: the first error, or ERR_IN_STATUS if the program gets statuses."""
    if isinstance(first, MpiException):
        if statuses is not None:
            handled = first.handled
            first = MpiException(ERR_IN_STATUS, f"of request {failed[0]}: {first}")
            first.handled = handled
        first.requests = tuple(failed)
    return first


def _fill_status(status: Status, outcome: KeptOutcome) -> None:
    error = outcome.error
    code = error.error_code if isinstance(error, MpiException) else SUCCESS
    status._fill(outcome.source, outcome.tag, outcome.nbytes, error=code, cancelled=outcome.cancelled)


def status_at(statuses: list[Status] | None, index: int) -> Status | None:
    if statuses is None:
        return None
    if not isinstance(statuses, list):
        return statuses[index] if index < len(statuses) else None
    while len(statuses) <= index:
        statuses.append(Status())
    return statuses[index]

"""Several requests at once: which are done, waiting for some, taking their results in order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ckpt.mpi.constants import UNDEFINED
from ckpt.mpi.errors import ERR_IN_STATUS, MpiException
from ckpt.mpi.status import Status

if TYPE_CHECKING:
    from ckpt.mpi.engine import Engine
    from ckpt.mpi.request import Request


def engine_of(requests: Sequence[Request]) -> Engine | None:
    for request in requests:
        if request._engine is not None and request._operation is not None:
            return request._engine
    return None


def scan(requests: Sequence[Request]) -> tuple[int, bool]:
    """(first request that is done or UNDEFINED, whether any is active). The lock is held."""
    active = False
    for index in range(len(requests)):
        operation = requests[index]._operation
        if operation is not None:
            active = True
            if operation.poll():
                return index, True
    return UNDEFINED, active


def check(engine: Engine, requests: Sequence[Request]) -> None:
    """Nothing is done: raise if one of them may never be, because a process has failed. The lock is held."""
    if engine.losses.known:
        for request in requests:
            if request._operation is not None:
                engine.losses.check(request._operation)


def first_ready(requests: Sequence[Request], *, poll: bool) -> tuple[int, bool]:
    engine = engine_of(requests)
    if engine is None:
        return UNDEFINED, False
    with engine.lock:
        found = scan(requests)
        if poll and found[0] == UNDEFINED:
            engine.make_progress()
            found = scan(requests)
            if found[0] == UNDEFINED:
                check(engine, requests)
        return found


def wait_some(requests: Sequence[Request]) -> int:
    """Index of a request that is done, waiting for one; UNDEFINED if none is active."""
    engine = engine_of(requests)
    if engine is None:
        return UNDEFINED
    with engine.lock:
        while True:
            engine.settle()
            index, active = scan(requests)
            if index != UNDEFINED or not active:
                return index
            check(engine, requests)
            engine.block()


def all_ready(requests: Sequence[Request]) -> bool:
    engine = engine_of(requests)
    if engine is None:
        return True
    with engine.lock:
        for attempt in range(2):
            if attempt:
                engine.make_progress()
            pending = False
            for request in requests:
                if not request._ready():
                    pending = True
                    break
            if not pending:
                return True
        check(engine, requests)
        return False


def collect(requests: Sequence[Request], statuses: list[Status] | None) -> list[Any]:
    """Complete all requests, then raise the first error: as ERR_IN_STATUS when statuses are given."""
    results = []
    first: MpiException | None = None
    for index in range(len(requests)):
        status = status_at(statuses, index)
        try:
            results.append(requests[index]._complete(status))
        except MpiException as error:
            results.append(None)
            first = first or error
    if first is not None:
        raise MpiException(ERR_IN_STATUS, str(first)) if statuses is not None else first
    return results


def take_ready(requests: Sequence[Request], statuses: list[Status] | None) -> tuple[list[int], list[Any]]:
    indices: list[int] = []
    for index, request in enumerate(requests):
        if request._operation is not None and request._operation.done:
            indices.append(index)
    results = collect([requests[index] for index in indices], statuses)
    return indices, results


def status_at(statuses: list[Status] | None, index: int) -> Status | None:
    if statuses is None:
        return None
    if not isinstance(statuses, list):
        return statuses[index] if index < len(statuses) else None
    while len(statuses) <= index:
        statuses.append(Status())
    return statuses[index]

"""Requests: handles of operations that were started, with the wait and test methods of mpi4py.

    null        no operation; wait and test return at once
    active      `_operation` holds an operation, pending or done
    inactive    a persistent request that is not started: `_recipe` holds the function and arguments that start it

A wait, or a successful test, completes the request: it returns the operation's result or raises its error, and the request
is null, or inactive if it is persistent. `_kept` holds the outcome of an operation that a call on several requests could
not return, because the call raised (completion.py).

Lower-case methods return the received object, upper-case methods True. Both fill a Status if one is given.

This module is long because mpi4py's class has a method for each call, in two spellings.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

from ckpt.compat.threads import captured_in_threads
from ckpt.mpi.base.constants import UNDEFINED
from ckpt.mpi.base.errors import ERR_REQUEST, MpiException
from ckpt.mpi.base.handle import Handle, expect
from ckpt.mpi.base.integers import argument, elements
from ckpt.mpi.datatypes.status import Status
from ckpt.mpi.engine import quick
from ckpt.mpi.engine.operations import Done, Operation, Receive
from ckpt.mpi.engine.partitioned import PartReceive, PartSend
from ckpt.mpi.requests import completion
from ckpt.mpi.requests.handling import guard_requests, handled_request

if TYPE_CHECKING:
    from ckpt.mpi.engine.engine import Engine

R = TypeVar("R", bound="Request")


class Request(Handle):
    """A request. `bool(request)` is False for the null request."""

    __slots__ = ("__weakref__", "_engine", "_kept", "_operation", "_recipe")
    _constants: ClassVar[tuple[str, ...]] = ("REQUEST_NULL",)
    _accepts: ClassVar[Any] = object
    """The class (or classes) of requests that the constructor accepts."""

    _recipe: tuple[Any, ...] | None
    _engine: Engine | None
    _operation: Operation | None
    _kept: Operation | None

    def __new__(cls, request: Request | None = None) -> Self:
        expect(cls, request, Request)
        if request is not None and request and not isinstance(request, cls._accepts):
            raise TypeError(f"{cls.__name__}: cannot be made of a {type(request).__name__}")
        self = super().__new__(cls)
        self._recipe = None if request is None else request._recipe
        self._engine = None if request is None else request._engine
        self._operation = None if request is None else request._operation
        self._kept = None if request is None else request._kept
        return self

    def __image_reduce__(self) -> Any:
        name = self._named()
        if name is not None:
            return name
        state = {}
        for cls in type(self).__mro__:
            for slot in cls.__dict__.get("__slots__", ()):
                if slot != "__weakref__" and hasattr(self, slot):
                    state[slot] = getattr(self, slot)
        return type(self), (), (getattr(self, "__dict__", None), state)

    def _discard(self) -> None:
        self.Free()

    @classmethod
    def _make(cls: type[R], engine: Engine | None, operation: Operation) -> R:
        """An active request. engine: None for an operation that is done and belongs to no communicator."""
        request = object.__new__(cls)  # not by `__new__`, which has the arguments of a program to check
        request._recipe = request._kept = None
        request._engine = engine
        request._operation = operation
        return request

    def __bool__(self) -> bool:
        return self._operation is not None or self._recipe is not None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Request):
            return NotImplemented
        if self._recipe is not None or other._recipe is not None:
            return self._recipe is other._recipe
        return self._operation is other._operation

    __hash__ = None

    def __repr__(self) -> str:
        operation = self._operation
        if operation is None:
            return "<Request null>"
        return f"<Request {type(operation).__name__} {'done' if operation.done else 'pending'}>"

    # -- completion --------------------------------------------------------------------------------

    def _complete(self, status: Status | None) -> Any:
        """Complete the request, whose operation is done: return the operation's result, or raise its error."""
        operation = self._operation
        if operation is None:
            operation, self._kept = self._kept, None
        if operation is None:
            if status is not None:
                status._fill(-1, -1, 0)
            return None
        self._release()
        try:
            return operation.complete(status)
        except MpiException as error:
            raise handled_request(self._engine, operation, error)  # noqa: B904

    def _release(self) -> None:
        self._operation = None

    def wait(self, status: Status | None = None) -> Any:
        """Wait until the operation is done. Returns the received object, or None. Raises the operation's error."""
        if status is None and quick.finish((self,)):
            return None
        engine = self._engine
        operation = self._operation
        if engine is not None and operation is not None:
            try:
                with engine.lock:
                    engine.wait(operation)
                    if self._operation is not operation:
                        raise MpiException(ERR_REQUEST, "another thread has completed the request meanwhile")
            except MpiException as error:
                raise handled_request(engine, operation, error)  # noqa: B904
        return self._complete(status)

    @captured_in_threads
    def test(self, status: Status | None = None) -> tuple[bool, Any]:
        """(whether the operation is done, received object or None). Raises the operation's error."""
        engine = self._engine
        operation = self._operation
        if engine is not None and operation is not None:
            try:
                with engine.lock:
                    done = engine.test(operation)
            except MpiException as error:
                raise handled_request(engine, operation, error)  # noqa: B904
            if not done:
                return False, None
        return True, self._complete(status)

    def Wait(self, status: Status | None = None) -> bool:
        Request.wait(self, status)
        return True

    @captured_in_threads
    def Test(self, status: Status | None = None) -> bool:
        return Request.test(self, status)[0]

    def Get_status(self, status: Status | None = None) -> bool:
        """Whether the operation is done. Does not complete the request. Raises the operation's error."""
        engine = self._engine
        operation = self._operation or self._kept
        if operation is None:
            if status is not None:
                status._fill(-1, -1, 0)
            return True
        done = True
        try:
            if engine is not None:
                with engine.lock:
                    done = engine.test(operation)
            if done:
                operation.fill_status(status)
        except MpiException as error:
            raise handled_request(engine, operation, error)  # noqa: B904
        return done

    def get_status(self, status: Status | None = None) -> bool:
        return self.Get_status(status)

    @classmethod
    def Get_status_any(cls, requests: Sequence[Request], status: Status | None = None) -> tuple[int, bool]:
        """(index of a request that is done, or UNDEFINED; True if one is done or none is active). Completes no request."""
        index, active = completion.first_done(requests, poll=True)
        if index != UNDEFINED:
            requests[index].Get_status(status)
        elif not active and status is not None:
            status._fill(-1, -1, 0)
        return index, index != UNDEFINED or not active

    @classmethod
    def Get_status_all(cls, requests: Sequence[Request], statuses: list[Status] | None = None) -> bool:
        """Whether all requests are done. Completes no request."""
        if not completion.all_done(requests):
            return False
        completion.fill_statuses(requests, range(len(requests)), statuses)
        return True

    @classmethod
    def Get_status_some(
        cls, requests: Sequence[Request], statuses: list[Status] | None = None
    ) -> list[int] | None:
        """Indices of all requests that are done; None if no request is active. Completes no request."""
        _, active = completion.first_done(requests, poll=True)
        if not active:
            return None
        indices = completion.done_of(requests)
        completion.fill_statuses(requests, indices, statuses)
        return indices

    get_status_any = Get_status_any
    get_status_all = Get_status_all
    get_status_some = Get_status_some

    def Cancel(self) -> None:
        """Cancel a receive that has not matched a message. A send is not cancelled."""
        engine = self._engine
        operation = self._operation
        if not self:
            raise MpiException(ERR_REQUEST, "the request is null")
        if engine is None or operation is None:
            return
        if not isinstance(operation, Receive):
            return
        with engine.lock:
            if engine.choices is not None:
                is_withdrawn = engine.choices.cancel(operation)
            else:
                is_withdrawn = not operation.done and engine.matcher.withdraw(operation)
            if is_withdrawn:
                operation.cancelled = True
                operation.done = True
                engine.tell()

    def cancel(self) -> None:
        self.Cancel()

    def Free(self) -> None:
        """Make the request null. Its operation still finishes."""
        if not self:
            raise MpiException(ERR_REQUEST, "the request is null")
        self._operation = self._recipe = self._kept = None

    # -- several requests; for errors see completion.py --------------------------------------------

    @classmethod
    def waitall(cls, requests: Sequence[Request], statuses: list[Status] | None = None) -> list[Any]:
        """Wait until all requests are done. Returns the list of their objects, in the order of the requests."""
        if not completion.wait_all(requests):
            raise completion.fail(requests, statuses)
        return completion.collect(requests, statuses)

    @classmethod
    def testall(
        cls, requests: Sequence[Request], statuses: list[Status] | None = None
    ) -> tuple[bool, list[Any] | None]:
        """(whether all requests are done, list of their objects or None)"""
        done = completion.all_done(requests)
        if done is None:
            raise completion.fail(requests, statuses)
        return done, completion.collect(requests, statuses) if done else None

    @classmethod
    def waitany(cls, requests: Sequence[Request], status: Status | None = None) -> tuple[int, Any]:
        """Wait for one request: (its index, its object); (UNDEFINED, None) if no request is active."""
        index = completion.wait_some(requests)
        if index == UNDEFINED:
            if status is not None:
                status._fill(-1, -1, 0)
            return UNDEFINED, None
        return index, completion.take_one(requests, index, status)

    @classmethod
    def testany(cls, requests: Sequence[Request], status: Status | None = None) -> tuple[int, bool, Any]:
        """(index of a request that is done, True, its object); (UNDEFINED, False, None) if none is done; (UNDEFINED, True,
        None) if no request is active."""
        index, active = completion.first_done(requests, poll=True)
        if index == UNDEFINED:
            if not active and status is not None:
                status._fill(-1, -1, 0)
            return UNDEFINED, not active, None
        return index, True, completion.take_one(requests, index, status)

    @classmethod
    def waitsome(
        cls, requests: Sequence[Request], statuses: list[Status] | None = None
    ) -> tuple[list[int] | None, list[Any] | None]:
        """Wait for at least one request: (indices, objects) of all that are done; (None, None) if no request is active."""
        if completion.wait_some(requests) == UNDEFINED:
            return None, None
        return completion.take_done(requests, statuses)

    @classmethod
    def testsome(
        cls, requests: Sequence[Request], statuses: list[Status] | None = None
    ) -> tuple[list[int] | None, list[Any] | None]:
        """(indices, objects) of all requests that are done, perhaps none; (None, None) if no request is active."""
        _, active = completion.first_done(requests, poll=True)
        if not active:
            return None, None
        return completion.take_done(requests, statuses)

    @classmethod
    def Waitall(cls, requests: Sequence[Request], statuses: list[Status] | None = None) -> bool:
        if statuses is not None or not quick.finish(requests):
            Request.waitall(requests, statuses)
        return True

    @classmethod
    def Testall(cls, requests: Sequence[Request], statuses: list[Status] | None = None) -> bool:
        return Request.testall(requests, statuses)[0]

    @classmethod
    def Waitany(cls, requests: Sequence[Request], status: Status | None = None) -> int:
        return Request.waitany(requests, status)[0]

    @classmethod
    def Testany(cls, requests: Sequence[Request], status: Status | None = None) -> tuple[int, bool]:
        return Request.testany(requests, status)[:2]

    @classmethod
    def Waitsome(cls, requests: Sequence[Request], statuses: list[Status] | None = None) -> list[int] | None:
        return Request.waitsome(requests, statuses)[0]

    @classmethod
    def Testsome(cls, requests: Sequence[Request], statuses: list[Status] | None = None) -> list[int] | None:
        return Request.testsome(requests, statuses)[0]


class Prequest(Request):
    """A persistent request: `Start` starts the same operation again. Completion makes the request inactive, not null.

    For a partitioned operation, `Pready` and its variants send partitions, and `Parrived` tests for one."""

    __slots__ = ()

    @classmethod
    def _prepare(cls, engine: Engine, function: Any, *args: Any) -> Prequest:
        """An inactive request. Start calls function(*args), with the lock held, which starts and returns the operation."""
        request = cls()
        request._engine = engine
        request._recipe = (function, args)
        return request

    def Start(self) -> None:
        """Start the operation. MpiException (ERR_REQUEST): the request is null, or its operation is under way."""
        if self._engine is None or self._recipe is None:
            raise MpiException(ERR_REQUEST, "the request is null or freed")
        if self._operation is not None:
            raise MpiException(ERR_REQUEST, "the operation is under way already")
        function, args = self._recipe
        self._kept = None
        with self._engine.lock:
            self._operation = function(*args)

    def Pready(self, partition: int) -> None:
        """Send this partition of a partitioned send, which must be started (ERR_REQUEST)."""
        self._ready([argument(partition)])

    def Pready_range(self, partition_low: int, partition_high: int) -> None:
        """Send the partitions from `partition_low` to `partition_high`, both included."""
        self._ready(range(argument(partition_low), argument(partition_high) + 1))

    def Pready_list(self, partitions: Sequence[int]) -> None:
        self._ready(elements(partitions))

    def _ready(self, partitions: Iterable[int]) -> None:
        operation = self._part(PartSend)
        if operation is not None:
            with operation.engine.lock:
                for partition in partitions:
                    operation.mark_ready(partition)

    def Parrived(self, partition: int) -> bool:
        """Whether this partition of a partitioned receive has arrived; True if the request is not active."""
        partition = argument(partition)
        operation = self._part(PartReceive)
        if operation is None:
            return True
        engine = operation.engine

        def look() -> bool:
            if not operation.has(partition):
                engine.make_progress()
            return bool(operation.has(partition))

        with engine.lock:
            if engine.choices is None:
                return look()
            return bool(engine.choices.answer(look, lambda arrived: not arrived or operation.has(partition)))

    def _part(self, operation_class: Any) -> Any:
        """The partitioned operation of class `operation_class` under way. None: there is none, or its peer is PROC_NULL."""
        operation = self._operation
        if self._recipe is None or (operation is None and operation_class is PartSend):
            raise MpiException(ERR_REQUEST, "the request is null or was not started")
        if operation is None or isinstance(operation, Done):
            return None
        if not isinstance(operation, operation_class):
            raise MpiException(ERR_REQUEST, "the request is not partitioned, or of the other direction")
        return operation

    @classmethod
    def Startall(cls, requests: Sequence[Prequest]) -> None:
        for request in requests:
            request.Start()


Prequest._accepts = Prequest
guard_requests(
    Request, "waitall testall waitany testany waitsome testsome Get_status_any Get_status_all Get_status_some"
)

REQUEST_NULL = Request()

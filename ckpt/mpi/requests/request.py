"""Handles of pending operations, with mpi4py's waiting and testing.

A request is active while it holds an operation. Completing it (wait, or a successful test) takes the
operation's result, or its error, and leaves the null request; waiting for the null request returns at once.
`_kept` is what a call on several requests could not hand over because it raised (completion.py).

Lower-case methods return the received object, upper-case ones True; both fill a Status on demand.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

from ckpt.mpi.base.constants import UNDEFINED
from ckpt.mpi.base.errors import ERR_REQUEST, MpiException
from ckpt.mpi.base.handle import Handle, expect
from ckpt.mpi.base.integers import argument, elements
from ckpt.mpi.datatypes.status import Status
from ckpt.mpi.engine.operations import Done, Operation, Receive
from ckpt.mpi.engine.partitioned import PartReceive, PartSend
from ckpt.mpi.requests import completion
from ckpt.mpi.requests.handling import guard_requests, handled_request

if TYPE_CHECKING:
    from ckpt.mpi.engine.engine import Engine

R = TypeVar("R", bound="Request")


class Request(Handle):
    """An operation that was started. `bool(request)` is False for the null request."""

    __slots__ = ("__weakref__", "_engine", "_kept", "_operation", "_recipe")
    _constants: ClassVar[tuple[str, ...]] = ("REQUEST_NULL",)
    _accepts: ClassVar[Any] = object
    """Classes of requests that this one may be a copy of."""

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
        for kind in type(self).__mro__:
            for slot in kind.__dict__.get("__slots__", ()):
                if slot != "__weakref__" and hasattr(self, slot):
                    state[slot] = getattr(self, slot)
        return type(self), (), (getattr(self, "__dict__", None), state)

    def _discard(self) -> None:
        self.Free()

    @classmethod
    def _make(cls: type[R], engine: Engine | None, operation: Operation) -> R:
        """engine: None for what is done already and belongs to no communicator."""
        request = cls()
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
        """Take the result of the finished operation. Raises its error."""
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
        """Wait until done; the received object, or None."""
        engine = self._engine
        operation = self._operation
        if engine is not None and operation is not None:
            try:
                with engine.lock:
                    engine.wait(operation)
            except MpiException as error:
                raise handled_request(engine, operation, error)  # noqa: B904
        return self._complete(status)

    def test(self, status: Status | None = None) -> tuple[bool, Any]:
        """(done, received object or None)"""
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

    def Test(self, status: Status | None = None) -> bool:
        return Request.test(self, status)[0]

    def Get_status(self, status: Status | None = None) -> bool:
        """Whether it is done, without completing it. Raises the error of one that has failed."""
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
                operation.tell(status)
        except MpiException as error:
            raise handled_request(engine, operation, error)  # noqa: B904
        return done

    def get_status(self, status: Status | None = None) -> bool:
        return self.Get_status(status)

    @classmethod
    def Get_status_any(cls, requests: Sequence[Request], status: Status | None = None) -> tuple[int, bool]:
        """(index of one that is done, whether any is or none is active), completing nothing."""
        index, active = completion.first_ready(requests, poll=True)
        if index != UNDEFINED:
            requests[index].Get_status(status)
        elif not active and status is not None:
            status._fill(-1, -1, 0)
        return index, index != UNDEFINED or not active

    @classmethod
    def Get_status_all(cls, requests: Sequence[Request], statuses: list[Status] | None = None) -> bool:
        """Whether all are done, completing nothing."""
        if not completion.all_ready(requests):
            return False
        completion.tell_all(requests, range(len(requests)), statuses)
        return True

    @classmethod
    def Get_status_some(
        cls, requests: Sequence[Request], statuses: list[Status] | None = None
    ) -> list[int] | None:
        """Indices of all that are done, completing nothing; None if none is active."""
        _, active = completion.first_ready(requests, poll=True)
        if not active:
            return None
        indices = completion.done_of(requests)
        completion.tell_all(requests, indices, statuses)
        return indices

    get_status_any = Get_status_any
    get_status_all = Get_status_all
    get_status_some = Get_status_some

    def Cancel(self) -> None:
        """Take a posted receive back if it has not matched; sends go through."""
        engine = self._engine
        operation = self._operation
        if not self:
            raise MpiException(ERR_REQUEST, "the request is null")
        if engine is None or operation is None:
            return
        with engine.lock:
            if isinstance(operation, Receive) and not operation.done and engine.matcher.withdraw(operation):
                operation.cancelled = True
                operation.done = True

    def cancel(self) -> None:
        self.Cancel()

    def Free(self) -> None:
        """Let go of the handle; the operation finishes by itself."""
        if not self:
            raise MpiException(ERR_REQUEST, "the request is null")
        self._operation = self._recipe = self._kept = None

    # -- several -----------------------------------------------------------------------------------

    @classmethod
    def waitall(cls, requests: Sequence[Request], statuses: list[Status] | None = None) -> list[Any]:
        """Wait for all; their objects in order."""
        if not completion.wait_all(requests):
            raise completion.fail(requests, statuses)
        return completion.collect(requests, statuses)

    @classmethod
    def testall(
        cls, requests: Sequence[Request], statuses: list[Status] | None = None
    ) -> tuple[bool, list[Any] | None]:
        """(all done, objects or None)"""
        ready = completion.all_ready(requests)
        if ready is None:
            raise completion.fail(requests, statuses)
        return ready, completion.collect(requests, statuses) if ready else None

    @classmethod
    def waitany(cls, requests: Sequence[Request], status: Status | None = None) -> tuple[int, Any]:
        """(index of one that is done, its object); (UNDEFINED, None) if none is active."""
        index = completion.wait_some(requests)
        if index == UNDEFINED:
            if status is not None:
                status._fill(-1, -1, 0)
            return UNDEFINED, None
        return index, completion.take_one(requests, index, status)

    @classmethod
    def testany(cls, requests: Sequence[Request], status: Status | None = None) -> tuple[int, bool, Any]:
        """(index, done, object); (UNDEFINED, True, None) if none is active."""
        index, active = completion.first_ready(requests, poll=True)
        if index == UNDEFINED:
            if not active and status is not None:
                status._fill(-1, -1, 0)
            return UNDEFINED, not active, None
        return index, True, completion.take_one(requests, index, status)

    @classmethod
    def waitsome(
        cls, requests: Sequence[Request], statuses: list[Status] | None = None
    ) -> tuple[list[int] | None, list[Any] | None]:
        """Indices and objects of all that are done, at least one; (None, None) if none is active."""
        if completion.wait_some(requests) == UNDEFINED:
            return None, None
        return completion.take_ready(requests, statuses)

    @classmethod
    def testsome(
        cls, requests: Sequence[Request], statuses: list[Status] | None = None
    ) -> tuple[list[int] | None, list[Any] | None]:
        """Indices and objects of all that are done, perhaps none; (None, None) if none is active."""
        _, active = completion.first_ready(requests, poll=True)
        if not active:
            return None, None
        return completion.take_ready(requests, statuses)

    @classmethod
    def Waitall(cls, requests: Sequence[Request], statuses: list[Status] | None = None) -> bool:
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
    """A persistent request: `Start` begins the same operation again; completing it leaves it inactive."""

    __slots__ = ()

    @classmethod
    def _prepare(cls, engine: Engine, function: Any, *args: Any) -> Prequest:
        """function(*args) starts the operation and returns it; it is called with the lock held."""
        request = cls()
        request._engine = engine
        request._recipe = (function, args)
        return request

    def Start(self) -> None:
        """Begin the operation."""
        if self._engine is None or self._recipe is None:
            raise MpiException(ERR_REQUEST, "the request is null or freed")
        if self._operation is not None:
            raise MpiException(ERR_REQUEST, "the operation is under way already")
        function, args = self._recipe
        self._kept = None
        with self._engine.lock:
            self._operation = function(*args)

    def Pready(self, partition: int) -> None:
        """This partition of a started send may go."""
        self._ready([argument(partition)])

    def Pready_range(self, partition_low: int, partition_high: int) -> None:
        """These partitions may go, both ends included."""
        self._ready(range(argument(partition_low), argument(partition_high) + 1))

    def Pready_list(self, partitions: Sequence[int]) -> None:
        self._ready(elements(partitions))

    def _ready(self, partitions: Iterable[int]) -> None:
        operation = self._part(PartSend)
        if operation is not None:
            with operation.engine.lock:
                for partition in partitions:
                    operation.ready(partition)

    def Parrived(self, partition: int) -> bool:
        """Whether this partition of a receive is here; True when nothing is under way."""
        partition = argument(partition)
        operation = self._part(PartReceive)
        if operation is None:
            return True
        engine = operation.engine
        with engine.lock:
            if not operation.has(partition):
                engine.make_progress()
            return bool(operation.has(partition))

    def _part(self, kind: Any) -> Any:
        """The partitioned operation under way; None: there is none, or it is with PROC_NULL."""
        operation = self._operation
        if self._recipe is None or (operation is None and kind is PartSend):
            raise MpiException(ERR_REQUEST, "the request is null or was not started")
        if operation is None or isinstance(operation, Done):
            return None
        if not isinstance(operation, kind):
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

"""Generalized requests (MPI standard, "Generalized requests"): the program itself completes the operation."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any, Self

from ckpt.mpi.base.errors import ERR_OTHER, ERR_REQUEST, MpiException
from ckpt.mpi.datatypes.status import Status
from ckpt.mpi.engine import worlds
from ckpt.mpi.engine.operations import Operation
from ckpt.mpi.requests.request import Request


class GrequestOperation(Operation):
    """The operation of a generalized request. It is done when the program calls Complete.

    `query_fn` fills the status, `free_fn` is called at the end, `cancel_fn` by Cancel, all with `args` and `kwargs`."""

    __slots__ = ("args", "cancel_fn", "free_fn", "free_requested", "kwargs", "obj", "query_fn")

    def __init__(self, query_fn: Any, free_fn: Any, cancel_fn: Any, args: Any, kwargs: Any) -> None:
        super().__init__()
        self.query_fn = query_fn
        self.free_fn = free_fn
        self.cancel_fn = cancel_fn
        self.args = () if args is None else tuple(args)
        self.kwargs = {} if kwargs is None else dict(kwargs)
        self.obj: Any = None
        self.free_requested = False
        """The request was freed before it was complete: Complete has to call free_fn."""

    def query(self, status: Status) -> None:
        status._fill(-1, -1, 0)
        if self.query_fn is not None:
            _call(self.query_fn, (status, *self.args), self.kwargs)

    def complete(self, status: Status | None) -> Any:
        told: Status = Status() if status is None else status
        try:
            self.query(told)
        finally:
            self.free()
        return self.obj

    def free(self) -> None:
        if self.free_fn is not None:
            _call(self.free_fn, self.args, self.kwargs)


def _call(function: Any, args: Any, kwargs: Any) -> None:
    """Call a function of the program. Its exception is printed; an MpiException is raised with the same error code, any
    other exception as MpiException (ERR_OTHER), as in mpi4py."""
    try:
        function(*args, **kwargs)
    except MpiException as error:
        traceback.print_exception(error)
        raise MpiException(error.error_code) from None
    except Exception as error:
        traceback.print_exception(error)
        raise MpiException(ERR_OTHER, repr(error)) from None


class Grequest(Request):
    """A request whose operation the program completes."""

    __slots__ = ("_grequest_operation",)

    _grequest_operation: GrequestOperation | None

    def __new__(cls, request: Request | None = None) -> Self:
        self = super().__new__(cls, request)
        self._grequest_operation = getattr(request, "_grequest_operation", None)
        return self

    @classmethod
    def Start(
        cls,
        query_fn: Callable[..., None] | None = None,
        free_fn: Callable[..., None] | None = None,
        cancel_fn: Callable[..., None] | None = None,
        args: tuple[Any, ...] | None = None,
        kwargs: dict[str, Any] | None = None,
    ) -> Grequest:
        operation = GrequestOperation(query_fn, free_fn, cancel_fn, args, kwargs)
        request: Grequest = cls._make(worlds.engine(), operation)
        request._grequest_operation = operation
        return request

    def Complete(self) -> None:
        """Mark the operation as done. MpiException (ERR_REQUEST): the request is null, or was complete."""
        if self._grequest_operation is None or self._grequest_operation.done:
            raise MpiException(ERR_REQUEST, "the request is null or complete already")
        self._grequest_operation.done = True
        if self._grequest_operation.free_requested:
            self._grequest_operation.free()

    def complete(self, obj: Any = None) -> None:
        """Mark the operation as done. The wait of the request returns `obj`."""
        if self._grequest_operation is not None:
            self._grequest_operation.obj = obj
        self.Complete()

    def Get_status(self, status: Status | None = None) -> bool:
        if self._grequest_operation is None or not self._grequest_operation.done or self._operation is None:
            return super().Get_status(status)
        self._grequest_operation.query(Status() if status is None else status)
        return True

    def Cancel(self) -> None:
        operation = self._grequest_operation
        if operation is not None and operation.cancel_fn is not None:
            _call(operation.cancel_fn, (operation.done, *operation.args), operation.kwargs)

    def Free(self) -> None:
        operation = self._operation
        super().Free()
        if isinstance(operation, GrequestOperation):
            operation.free_requested = True
            if operation.done:
                operation.free()


Grequest._accepts = Grequest

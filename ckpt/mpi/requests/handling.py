"""Error handlers are honoured here: every public call on a communicator or a request passes through `handle` when
it raises.

The default, and ERRORS_RETURN, is that the exception simply goes on to the caller. Otherwise, once per error:

    ERRORS_ARE_FATAL, ERRORS_ABORT    the job ends with the error's code, after the traceback
    a handler of the program's own    is called with the communicator and the code; then the exception goes on

The handler is that of the communicator on which the operation was started, also when a request's wait raises:
`handled_request`. The calls on communicators themselves: guard.py.
"""

from __future__ import annotations

import functools
import sys
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ckpt.mpi.base import envelope
from ckpt.mpi.base.errors import MpiException
from ckpt.mpi.engine import worlds

if TYPE_CHECKING:
    from ckpt.mpi.engine.engine import Engine
    from ckpt.mpi.engine.operations import Operation


def handle(comm: Callable[[], object], handler: Any, error: MpiException) -> MpiException:
    """Let `handler`, of the communicator that `comm` gives, handle the error; returns it, to be raised on."""
    if handler is not None:
        error.handled = True
        if handler._target is not None:
            handler._target(comm(), error.error_code)
        elif handler._kind in ("abort", "fatal"):
            _say(error)
            worlds.abort(error.error_code)
    return error


def _say(error: MpiException) -> None:
    """The traceback from the program's first frame on, as if the exception had gone all the way."""
    home = __file__.rpartition("ckpt")[0]
    ours = (home + "ckpt/",)
    frames = [frame for frame in traceback.extract_stack() if not frame.filename.startswith((*ours, "<"))]
    head, *rest = traceback.format_exception(error)
    sys.stderr.write("".join((head, *traceback.format_list(frames), *rest)))


def handled_request(engine: Engine | None, operation: Operation | None, error: MpiException) -> MpiException:
    """Let the handler handle the error of an operation that a request stood for."""
    if engine is None or error.handled:
        return error
    shared = error.where or getattr(operation, "shared", None)
    context = getattr(operation, "context", None)
    if shared is None and type(context) is int:
        shared = engine.shared.get(context - context % envelope.PLANES)
    error.where = None
    if shared is None:
        return error
    return handle(lambda: shared.handle(engine, shared), shared.errhandler, error)


def guard_of_requests(method: Any) -> Any:
    """A class method for several requests."""

    @functools.wraps(method)
    def guarded(cls: Any, requests: Any, *args: Any, **options: Any) -> Any:
        try:
            return method(cls, requests, *args, **options)
        except MpiException as error:
            engine = next((each._engine for each in requests if each._engine is not None), None)
            raise handled_request(engine, None, error)  # noqa: B904

    return guarded


def guard_requests(cls: type, names: str) -> None:
    """Guard class methods for several requests."""
    for name in names.split():
        setattr(cls, name, classmethod(guard_of_requests(vars(cls)[name].__func__)))

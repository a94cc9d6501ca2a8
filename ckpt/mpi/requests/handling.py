"""The actions of error handlers: every public method of a communicator or request that raises MpiException calls `handle`.

By default, and with ERRORS_RETURN, the exception is raised to the caller, and nothing else happens. Other handlers act once
for each error:

    ERRORS_ARE_FATAL, ERRORS_ABORT    print the traceback; the job ends with the error code
    a handler made by the program     is called with the communicator and the error code; then the exception is raised

The handler is that of the communicator on which the operation was started, also for errors that the wait of a request
raises (`handled_request`).

Not here: the wrappers of methods of communicators (comm/guard.py), and the class of handlers (base/errhandler.py).
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ckpt.mpi.base import envelope
from ckpt.mpi.base.errors import MpiException
from ckpt.mpi.engine import worlds

if TYPE_CHECKING:
    from ckpt.mpi.engine.engine import Engine
    from ckpt.mpi.engine.operations import Operation


def handle(comm: Callable[[], object], handler: Any, error: MpiException) -> MpiException:
    """Let `handler` act on the error. Returns `error`, for the caller to raise; does not return if the job ends.

    comm: a function that returns the communicator, for a handler made by the program."""
    if handler is not None:
        error.handled = True
        if handler._target is not None:
            handler._target(comm(), error.error_code)
        elif handler._kind in ("abort", "fatal"):
            _print_traceback(error)
            worlds.abort(error.error_code)
    return error


def _print_traceback(error: MpiException) -> None:
    """Print the traceback from the program's outermost frame on, as if no caller had caught the exception."""
    import traceback

    home = __file__.rpartition("ckpt")[0]
    ours = (home + "ckpt/",)
    frames = [frame for frame in traceback.extract_stack() if not frame.filename.startswith((*ours, "<"))]
    head, *rest = traceback.format_exception(error)
    sys.stderr.write("".join((head, *traceback.format_list(frames), *rest)))


def handled_request(engine: Engine | None, operation: Operation | None, error: MpiException) -> MpiException:
    """Let the error handler of the operation's communicator act on the error of a request. Returns `error`."""
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
    """Wrap a class method for several requests: its MpiException goes through `handled_request`."""

    @functools.wraps(method)
    def guarded(cls: Any, requests: Any, *args: Any, **options: Any) -> Any:
        try:
            return method(cls, requests, *args, **options)
        except MpiException as error:
            engine = next((each._engine for each in requests if each._engine is not None), None)
            raise handled_request(engine, None, error)  # noqa: B904

    return guarded


def guard_requests(cls: type, names: str) -> None:
    """Wrap the class methods with these names (separated by spaces) with `guard_of_requests`."""
    for name in names.split():
        setattr(cls, name, classmethod(guard_of_requests(vars(cls)[name].__func__)))

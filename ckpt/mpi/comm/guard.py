"""Error handlers: every public method of a communicator, window or file that raises MpiException calls `_handled` first.

That of communicators and windows is `handled`. Errors of calls on a null one use the error handler of COMM_SELF, as the MPI
standard requires.

`guard_all` wraps the public methods of a class. The methods in DIRECT are not wrapped, because a wrapper makes small
messages slower. They contain `except MpiException as error: raise handled(self, error)` themselves.

Not here: the actions of a handler, and the calls on requests (requests/handling.py).
"""

from __future__ import annotations

import functools
from types import FunctionType
from typing import Any

from ckpt.compat.threads import captured_in_threads
from ckpt.mpi.base.errors import MpiException
from ckpt.mpi.base.null_handles import NULL_PART
from ckpt.mpi.engine import imports, worlds
from ckpt.mpi.requests.handling import handle

DIRECT = frozenset(
    "send recv isend irecv sendrecv Send Recv Isend Irecv Sendrecv wait test Wait Test".split()  # noqa: SIM905
)
_NO_CALLS = frozenset({"Get_errhandler", "Set_errhandler", "Call_errhandler", "Abort", "free"})


def handled(comm: Any, error: MpiException) -> MpiException:
    """Call the object's error handler, unless `error` was handled before. Returns `error`, for the caller to raise.

    A fatal handler ends the job, and does not return."""
    if error.handled:
        return error
    shared = comm._shared
    if shared is NULL_PART:
        if not worlds.is_provided():
            return error
        from ckpt.mpi.comm.communicator import self_of

        comm = self_of(worlds.engine())
        shared = comm._shared
    return handle(lambda: comm, shared.errhandler, error)


def guard(method: Any) -> Any:
    """Wrap a method: its MpiException goes through the object's `_handled`; a restart repeats what comes out of a
    collective that a library calls while it is imported."""

    @functools.wraps(method)
    @captured_in_threads
    def guarded(self: Any, *args: Any, **options: Any) -> Any:
        try:
            if imports.under_way:
                return imports.repeatable(method, self, args, options)
            return method(self, *args, **options)
        except MpiException as error:
            raise self._handled(error)  # noqa: B904

    return guarded


def guard_all(*classes: type, direct: frozenset[str] = DIRECT) -> None:
    """Wrap the public methods that these classes define with `guard`, those in `direct` excepted."""
    for cls in classes:
        for name, value in list(vars(cls).items()):
            if name.startswith("_") or name in direct or name in _NO_CALLS:
                continue
            if type(value) is FunctionType:
                setattr(cls, name, guard(value))

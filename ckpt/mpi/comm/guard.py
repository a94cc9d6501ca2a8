"""Error handlers are honoured by communicators: every public call on one passes through `handled` when it raises.
What a handler does: handling.py, which also has the requests.

Errors of a null communicator are COMM_SELF's, as MPI has it.

`guard_all` wraps the public methods of a class. Those that small messages depend on are not wrapped but say
`except MpiException as error: raise handled(self, error)` themselves, which costs nothing (`DIRECT`).
"""

from __future__ import annotations

import functools
from types import FunctionType
from typing import Any

from ckpt.mpi.base.errors import MpiException
from ckpt.mpi.base.null_handles import NOTHING
from ckpt.mpi.engine import worlds
from ckpt.mpi.requests.handling import handle

DIRECT = frozenset(
    "send recv isend irecv sendrecv Send Recv Isend Irecv Sendrecv wait test Wait Test".split()  # noqa: SIM905
)
_NO_CALLS = frozenset({"Get_errhandler", "Set_errhandler", "Call_errhandler", "Abort", "free"})


def handled(comm: Any, error: MpiException) -> MpiException:
    """Let the communicator's handler handle the error; returns it, to be raised on."""
    if error.handled:
        return error
    shared = comm._shared
    if shared is NOTHING:
        if not worlds.is_provided():
            return error
        from ckpt.mpi.comm.communicator import self_of

        comm = self_of(worlds.engine())
        shared = comm._shared
    return handle(lambda: comm, shared.errhandler, error)


def guard(method: Any) -> Any:
    """A communicator's method, whose errors pass through the communicator's handler."""

    @functools.wraps(method)
    def guarded(self: Any, *args: Any, **options: Any) -> Any:
        try:
            return method(self, *args, **options)
        except MpiException as error:
            raise handled(self, error)  # noqa: B904

    return guarded


def guard_all(*classes: type) -> None:
    """Guard the public methods that these classes define."""
    for cls in classes:
        for name, value in list(vars(cls).items()):
            if name.startswith("_") or name in DIRECT or name in _NO_CALLS:
                continue
            if type(value) is FunctionType:
                setattr(cls, name, guard(value))

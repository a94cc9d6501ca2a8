"""The base class of `File`: a handle of an open file, its error handler, and the checks that all calls share.

`File(other)` is another handle of the same file, and compares equal; all handles share one FileState. A handle of a closed
file is null. Errors of calls on a null handle, of Open and of Delete use the error handler of FILE_NULL, which new files
get, too (MPI standard, "I/O Error Handling").

Not here: what `File` offers (file.py).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import FunctionType
from typing import Any, Self

from ckpt.compat.threads import captured_in_threads
from ckpt.mpi.base.errhandler import HasErrhandler
from ckpt.mpi.base.errors import ERR_FILE, MpiException
from ckpt.mpi.base.handle import Handle, expect
from ckpt.mpi.base.process import process_state
from ckpt.mpi.engine import worlds
from ckpt.mpi.io.state import FileState
from ckpt.mpi.requests.handling import handle

_NO_CALLS = frozenset({"Get_errhandler", "Set_errhandler", "Call_errhandler"})


class Defaults:
    """Of this process: the error handler of FILE_NULL, and the data representations of the program."""

    __slots__ = ("datareps", "errhandler")

    def __init__(self) -> None:
        self.errhandler: Any = None
        self.datareps: dict[str, Any] = {}


def defaults() -> Defaults:
    """Those of this process; they are part of the image."""
    found: Defaults = process_state().interned.setdefault("files", Defaults())
    return found


class FileHandle(Handle, HasErrhandler):
    """A handle of an open file; `bool(file)` is False for the null file and a closed one."""

    __slots__ = ("__weakref__", "_state")
    _errhandler_kind = "File"

    _state: FileState | None

    def __new__(cls, file: FileHandle | None = None) -> Self:
        expect(cls, file, FileHandle)
        self = super().__new__(cls)
        self._state = None if file is None else file._state
        return self

    def _alive(self) -> FileState:
        """The state that all handles of the file share. MpiException (ERR_FILE): it is null or closed."""
        state = self._state
        if state is None or state.closed:
            raise MpiException(ERR_FILE, "the file is null or closed")
        return state

    def _errhandler_slot(self) -> Any:
        return self._alive() if self else defaults()

    def _fatal(self, code: int) -> None:
        worlds.abort(code)

    def __image_reduce__(self) -> Any:
        extra = getattr(self, "__dict__", None)
        return self._named() or (FileHandle.__new__, (type(self),), (extra, {"_state": self._state}))

    def __bool__(self) -> bool:
        return self._state is not None and not self._state.closed

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, FileHandle):
            return NotImplemented
        return self._state is other._state if self and other else bool(self) == bool(other)

    __hash__ = None  # type: ignore[assignment]


def handled(file: Any, error: MpiException) -> MpiException:
    """Let the error handler of the file act on the error. Returns `error`, for the caller to raise."""
    if error.handled:
        return error
    state = getattr(file, "_state", None)
    slot = defaults() if state is None or state.closed else state
    return handle(lambda: file, slot.errhandler, error)


def guard(method: Callable[..., Any]) -> Any:
    """Wrap a method: its MpiException goes through `handled`."""

    @functools.wraps(method)
    @captured_in_threads
    def guarded(self: Any, *args: Any, **options: Any) -> Any:
        try:
            return method(self, *args, **options)
        except MpiException as error:
            raise handled(self, error)  # noqa: B904

    return guarded


def guard_all(*classes: type) -> None:
    """Wrap the public methods that these classes define with `guard`."""
    for cls in classes:
        for name, value in list(vars(cls).items()):
            if name.startswith("_") or name in _NO_CALLS:
                continue
            if type(value) is FunctionType:
                setattr(cls, name, guard(value))

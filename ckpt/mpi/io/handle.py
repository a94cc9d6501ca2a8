"""The base class of `File`: a handle of an open file, its error handler, and the checks that all calls share.

A handle of a closed file is null. Errors of calls on a null handle, of Open and of Delete use the error handler of
FILE_NULL, which new files get, too (MPI standard, "I/O Error Handling").

Not here: what `File` offers (file.py).
"""

from __future__ import annotations

from typing import Any, Self

from ckpt.mpi.base.errors import ERR_FILE, MpiException
from ckpt.mpi.base.handle import expect
from ckpt.mpi.base.process import process_state
from ckpt.mpi.io.state import FileState
from ckpt.mpi.members.handle import SharedHandle
from ckpt.mpi.requests.handling import handle


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


def handled(file: FileHandle | None, error: MpiException) -> MpiException:
    """Let the error handler of the file act on the error. Returns `error`, for the caller to raise."""
    if error.handled:
        return error
    slot = file._shared if file else defaults()
    return handle(lambda: file, slot.errhandler, error)


class FileHandle(SharedHandle[FileState]):
    """A handle of an open file; `bool(file)` is False for the null file and a closed one."""

    __slots__ = ()
    _errhandler_kind = "File"
    _gone = ERR_FILE, "the file is null or closed"
    _handled = handled

    def __new__(cls, file: FileHandle | None = None) -> Self:
        return super().__new__(cls, expect(cls, file, FileHandle))

    def _errhandler_slot(self) -> Any:
        return self._alive() if self else defaults()

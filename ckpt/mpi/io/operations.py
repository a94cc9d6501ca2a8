"""An access to a file that waits for answers of the rank that writes (ckpt/mpi/engine/operations.py says what an operation
is)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ckpt.mpi.datatypes.buffers import BufferSpec
from ckpt.mpi.datatypes.datatypes import BYTE
from ckpt.mpi.engine.operations import Operation

if TYPE_CHECKING:
    from ckpt.mpi.io.state import FileState
    from ckpt.mpi.io.view import Ranges


class Access(Operation):
    """An access: it is done when all its messages are answered. `shared`: the file, for its error handler.

    `into`: where the data of a read go; None: there are none. `staged`: the data of a read into memory with gaps, or in
    another representation, until all are here. `number`: what the answer to ADVANCE or SIZE has brought."""

    __slots__ = ("advanced", "into", "number", "shared", "staged", "swap", "unanswered")

    def __init__(
        self, shared: FileState, into: BufferSpec | None = None, swap: Any = None, *, nbytes: int = 0
    ) -> None:
        super().__init__()
        self.shared = shared
        self.into = into
        self.swap = swap
        self.nbytes = nbytes
        """Of a write: the size of the data. Of a read: what has come until now."""
        self.number = 0
        self.advanced = 0
        """By so many etypes this rank's pointer went on."""
        self.unanswered: dict[int, tuple[int, int]] = {}
        """By token: (index of the data's first byte, bytes)."""
        is_staged = into is not None and (swap is not None or not into.dense)
        self.staged = bytearray(into.nbytes if into is not None and is_staged else 0)

    def take(self, token: int, data: Any, begin: int) -> None:
        """Data of a read, which begin at this index of the message, have come."""
        at, _ = self.unanswered[token]
        nbytes = len(data) - begin
        self.nbytes += nbytes
        if not nbytes or self.into is None:
            return
        if self.staged:
            self.staged[at : at + nbytes] = memoryview(data)[begin:]
        else:
            BufferSpec(self.into.obj, nbytes, BYTE, self.into.offset + at).write(data, begin)

    def abandon(self) -> None:
        """Nobody waits for this any more: what comes is dropped."""
        self.into = None

    def finish(self) -> None:
        """Everything is answered."""
        if self.into is not None and self.staged and self.error is None and self.nbytes:
            self.into.write(represent(self.staged[: self.nbytes], self.swap))
        self.staged = bytearray()
        self.done = True


def represent(data: Any, swap: Any) -> Any:
    """Data in the representation of the file. swap: the datatype, if the file has another byte order; else None."""
    return data if swap is None else swap._swap(bytes(data))


def read_here(operation: Access, fd: int, ranges: Ranges) -> None:
    """Do a read by this process's own descriptor. Raises OSError."""
    from ckpt.mpi.io import disk

    into = operation.into
    assert into is not None
    if operation.staged:
        operation.nbytes = disk.read(fd, ranges, operation.staged)
    else:
        operation.nbytes = disk.read(fd, ranges, into.view())
    operation.finish()


def fail(operation: Access, error: Exception) -> None:
    """End the operation with an error."""
    operation.error = error
    operation.unanswered.clear()
    operation.finish()

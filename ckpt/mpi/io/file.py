"""`File`: a file that the ranks of a communicator read and write together (MPI standard, "I/O")."""

from __future__ import annotations

from typing import ClassVar

from ckpt.mpi.comm.guard import guard_all
from ckpt.mpi.io.accesses import Accesses
from ckpt.mpi.io.opening import Opening
from ckpt.mpi.io.properties import Properties
from ckpt.mpi.io.shared import SharedPointer


class File(Opening, SharedPointer, Properties):
    """A file that is open at all ranks of a communicator."""

    __slots__ = ()
    _constants: ClassVar[tuple[str, ...]] = ("FILE_NULL",)

    def __repr__(self) -> str:
        if not self:
            return f"<{type(self).__name__} null>"
        state = self._alive()
        return f"<{type(self).__name__} {state.path}: rank {state.rank} of {len(state.group)}>"

    def _discard(self) -> None:
        self.Close()


guard_all(Opening, Accesses, SharedPointer, Properties)

FILE_NULL = File()
"""The null file: every call raises ERR_FILE."""

__all__ = ["FILE_NULL", "File"]

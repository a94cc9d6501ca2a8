"""Methods of communicators that concern no messages: info, attributes, error handler, attached buffer, Abort."""

from __future__ import annotations

from typing import Any, NoReturn

from ckpt.mpi.base.attributes import HasAttributes
from ckpt.mpi.base.constants import BUFFER_AUTOMATIC, NUMBERS, TAG_UB, BufferAutomaticType
from ckpt.mpi.base.errhandler import HasErrhandler
from ckpt.mpi.base.errors import ERR_BUFFER, MpiException
from ckpt.mpi.base.info import INFO_NULL, HasInfo
from ckpt.mpi.base.integers import argument
from ckpt.mpi.base.process import process_state
from ckpt.mpi.comm.comm_base import CommBase
from ckpt.mpi.comm.guard import handled
from ckpt.mpi.datatypes.memory import buffer_type
from ckpt.mpi.engine import worlds
from ckpt.mpi.engine.operations import Done
from ckpt.mpi.requests.request import Request


class CommObject(CommBase, HasAttributes, HasErrhandler, HasInfo):
    """Base class of Comm with these methods."""

    __slots__ = ()
    _errhandler_kind = "Comm"
    _handled = handled

    # -- attributes --------------------------------------------------------------------------------

    def _attribute_table(self) -> dict[int, Any]:
        table: dict[int, Any] = self._alive().attributes
        return table

    @classmethod
    def _keyval_kind(cls) -> str:
        return "Comm"

    def _predefined_attr(self, keyval: int) -> Any:
        if keyval == NUMBERS["TAG_UB"]:
            return TAG_UB
        if keyval == NUMBERS["WTIME_IS_GLOBAL"]:
            return False
        if keyval == NUMBERS["IO"]:
            return NUMBERS["ANY_SOURCE"]
        if keyval == NUMBERS["UNIVERSE_SIZE"]:
            return self._engine.progress.size
        if keyval == NUMBERS["APPNUM"]:
            spawns = self._engine.spawns
            return 0 if spawns is None or spawns.parent is None else spawns.parent["appnum"]
        if keyval == NUMBERS["LASTUSEDCODE"]:
            return process_state().next_error - 1
        return None

    # -- info --------------------------------------------------------------------------------------

    def _hints(self) -> dict[str, str]:
        hints: dict[str, str] = self._alive().info
        return hints

    # -- errors ------------------------------------------------------------------------------------

    def _errhandler_slot(self) -> Any:
        return self._alive()

    def _fatal(self, code: int) -> None:
        self.Abort(code)

    def Abort(self, errorcode: int = 0) -> NoReturn:
        """End all ranks of the job with the exit code `errorcode`."""
        code = argument(errorcode)
        self._alive()
        worlds.abort(code)

    # -- buffered sends ----------------------------------------------------------------------------

    def Attach_buffer(self, buf: Any) -> None:
        """Attach a buffer for buffered sends. It is kept for Detach_buffer; buffered sends do not need it."""
        shared = self._alive()
        if shared.buffer is not None:
            raise MpiException(ERR_BUFFER, "a buffer is attached already")
        if buf is not None and not isinstance(buf, BufferAutomaticType) and memoryview(buf).readonly:
            raise BufferError("the buffer is read-only")
        shared.buffer = BUFFER_AUTOMATIC if buf is None else buf

    def Detach_buffer(self) -> Any:
        shared = self._alive()
        buffer, shared.buffer = shared.buffer, None
        if buffer is None or isinstance(buffer, BufferAutomaticType):
            return buffer
        buffer_class = buffer_type()
        return buffer if isinstance(buffer, buffer_class) else buffer_class.frombuffer(buffer)

    def Flush_buffer(self) -> None:
        """No effect: buffered sends do not use the attached buffer, so it never holds a message."""
        self._alive()

    def Iflush_buffer(self) -> Request:
        self._alive()
        return Request._make(self._engine, Done())

    # -- processes ---------------------------------------------------------------------------------

    @classmethod
    def Get_parent(cls) -> Any:
        """The intercommunicator with those that have started this process (Spawn). The null one for the ranks that a job
        begins with, and after it was freed."""
        from ckpt.mpi.comm.comm_inter import parent

        return parent()

    # -- not offered -------------------------------------------------------------------------------

    @classmethod
    def Join(cls, fd: int) -> Any:
        from ckpt.mpi.comm.unsupported import PORTS, not_offered

        raise not_offered("Comm.Join", PORTS)


__all__ = ["INFO_NULL", "CommObject"]

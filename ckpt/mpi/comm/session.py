"""Sessions (MPI standard 4, "The Sessions model"): access to the job's ranks through named process sets.

The process sets are mpi://WORLD and mpi://SELF. Their groups are those of COMM_WORLD and COMM_SELF."""

from __future__ import annotations

from typing import Any, ClassVar, Self

from ckpt.mpi.base.constants import BUFFER_AUTOMATIC, BufferAutomaticType
from ckpt.mpi.base.errhandler import HasErrhandler
from ckpt.mpi.base.errors import ERR_ARG, ERR_BUFFER, ERROR_CLASSES, MpiException
from ckpt.mpi.base.group import Group
from ckpt.mpi.base.handle import Handle, expect
from ckpt.mpi.base.info import INFO_NULL, Info
from ckpt.mpi.base.integers import argument
from ckpt.mpi.comm.communicator import self_of, world_of
from ckpt.mpi.datatypes.memory import buffer_type
from ckpt.mpi.engine import worlds
from ckpt.mpi.engine.operations import Done
from ckpt.mpi.requests.request import Request

PSETS = ("mpi://WORLD", "mpi://SELF")


class State:
    """The state of a session, which all its handles share."""

    __slots__ = ("buffer", "errhandler", "info")

    def __init__(self, info: Info, errhandler: Any) -> None:
        self.info = dict(info.items())
        self.errhandler = errhandler
        self.buffer: Any = None


class Session(Handle, HasErrhandler):
    """A handle of a session. `bool(session)` is False for the null session, and after Finalize."""

    __slots__ = ("__weakref__", "_state")
    _constants: ClassVar[tuple[str, ...]] = ("SESSION_NULL",)
    _errhandler_kind = "Session"

    _state: State | None

    def __new__(cls, session: Session | None = None) -> Self:
        expect(cls, session, Session)
        self = super().__new__(cls)
        self._state = None if session is None else session._state
        return self

    def __bool__(self) -> bool:
        return self._state is not None

    def __eq__(self, other: object) -> bool:
        return self._state is other._state if isinstance(other, Session) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __image_reduce__(self) -> Any:
        return self._named() or (type(self), (), (None, {"_state": self._state}))

    def _valid(self) -> State:
        if self._state is None:
            raise MpiException(ERROR_CLASSES["ERR_SESSION"], "the session is null or finalized")
        return self._state

    def _errhandler_slot(self) -> Any:
        return self._valid()

    def _fatal(self, code: int) -> None:
        worlds.abort(code)

    @classmethod
    def Init(cls, info: Info = INFO_NULL, errhandler: Any = None) -> Session:
        session: Session = cls()
        session._state = State(info, errhandler)
        return session

    def Finalize(self) -> None:
        self._valid()
        self._state = None

    def _discard(self) -> None:
        self.Finalize()

    def Get_num_psets(self, info: Info = INFO_NULL) -> int:
        self._valid()
        return len(PSETS)

    def Get_nth_pset(self, n: int, info: Info = INFO_NULL) -> str:
        n = argument(n)
        self._valid()
        if not 0 <= n < len(PSETS):
            raise MpiException(ERR_ARG, f"process set {n} of {len(PSETS)}")
        return PSETS[n]

    def Get_info(self) -> Info:
        return Info.Create(self._valid().info)

    def _members(self, pset_name: str) -> Group:
        self._valid()
        engine = worlds.engine()
        if pset_name == PSETS[0]:
            return world_of(engine).Get_group()
        if pset_name == PSETS[1]:
            return self_of(engine).Get_group()
        raise MpiException(ERR_ARG, f"no process set {pset_name!r}")

    def Get_pset_info(self, pset_name: str) -> Info:
        return Info.Create({"mpi_size": str(self._members(pset_name).size)})

    def Create_group(self, pset_name: str) -> Group:
        return self._members(pset_name)

    # -- buffered sends ----------------------------------------------------------------------------

    def Attach_buffer(self, buf: Any) -> None:
        """Attach a buffer for buffered sends. It is kept for Detach_buffer; buffered sends do not need it."""
        state = self._valid()
        if state.buffer is not None:
            raise MpiException(ERR_BUFFER, "a buffer is attached already")
        if buf is not None and not isinstance(buf, BufferAutomaticType) and memoryview(buf).readonly:
            raise BufferError("the buffer is read-only")
        state.buffer = BUFFER_AUTOMATIC if buf is None else buf

    def Detach_buffer(self) -> Any:
        state = self._valid()
        buffer, state.buffer = state.buffer, None
        if buffer is None or isinstance(buffer, BufferAutomaticType):
            return buffer
        buffer_class = buffer_type()
        return buffer if isinstance(buffer, buffer_class) else buffer_class.frombuffer(buffer)

    def Flush_buffer(self) -> None:
        self._valid()

    def Iflush_buffer(self) -> Request:
        self._valid()
        return Request._make(None, Done())


SESSION_NULL = Session()

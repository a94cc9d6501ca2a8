"""The base class of `Win` and `File`: handles of what the members of a group share.

`cls(other)` is another handle of the same window or file, and compares equal; all handles share one MemberState. A null
handle, and one that has freed it, has `NULL_PART` in its place (ckpt/mpi/base/null_handles.py).

Not here: what is null raises (`_gone` of the classes), and the calls.
"""

from __future__ import annotations

from typing import Any, ClassVar, Generic, Self, TypeVar

from ckpt.mpi.base.errhandler import HasErrhandler
from ckpt.mpi.base.errors import MpiException
from ckpt.mpi.base.group import Group
from ckpt.mpi.base.handle import Handle
from ckpt.mpi.base.info import HasInfo
from ckpt.mpi.base.null_handles import NULL_PART
from ckpt.mpi.comm.guard import guard_all, handled
from ckpt.mpi.engine import worlds
from ckpt.mpi.members.state import MemberState

S = TypeVar("S", bound=MemberState)


class SharedHandle(Handle, HasErrhandler, HasInfo, Generic[S]):
    """`bool(handle)` is False for the null handle, and when what is shared is freed."""

    __slots__ = ("__weakref__", "_shared")
    _errhandler_kind: ClassVar[str]
    _gone: ClassVar[tuple[int, str]]
    """Error class and text of calls on a null handle."""

    _shared: Any
    _handled = handled

    def __new__(cls, other: Any = None) -> Self:
        self = super().__new__(cls)
        self._shared = NULL_PART if other is None else other._shared
        return self

    @classmethod
    def _of(cls, state: S) -> Self:
        """A new handle."""
        self = cls()
        self._shared = state
        return self

    def _alive(self) -> S:
        """The state that all handles share. MpiException: it is null or freed."""
        state: S = self._shared
        if self._shared is NULL_PART or state.freed:
            raise MpiException(*self._gone)
        return state

    def __image_reduce__(self) -> Any:
        extra = getattr(self, "__dict__", None)
        return self._named() or (SharedHandle.__new__, (type(self),), (extra, {"_shared": self._shared}))

    def __bool__(self) -> bool:
        return self._shared is not NULL_PART and not self._shared.freed

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SharedHandle) or self._errhandler_kind != other._errhandler_kind:
            return NotImplemented
        return self._shared is other._shared if self and other else bool(self) == bool(other)

    __hash__ = None  # type: ignore[assignment]

    def Get_group(self) -> Group:
        state = self._alive()
        return Group._make(state.group, state.engine.progress.rank)

    @property
    def group(self) -> Group:
        return self.Get_group()

    @property
    def group_size(self) -> int:
        return len(self._alive().group)

    @property
    def group_rank(self) -> int:
        return self._alive().rank

    def _hints(self) -> dict[str, str]:
        return self._alive().info

    def _errhandler_slot(self) -> Any:
        return self._alive()

    def _fatal(self, code: int) -> None:
        worlds.abort(code)


guard_all(SharedHandle)

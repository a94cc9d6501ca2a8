"""The base class of `Win`: a handle of a window, and the checks that all calls share.

`Win(other)` is another handle of the same window, and compares equal; all handles share one WindowState. A freed or null
window has `NULL_PART` in its place (ckpt/mpi/base/null_handles.py), and every call on it raises ERR_WIN.

Not here: making and freeing of windows (window.py).
"""

from __future__ import annotations

from typing import Any, Self

from ckpt.mpi.base.constants import PROC_NULL
from ckpt.mpi.base.errors import ERR_GROUP, ERR_RANK, ERR_WIN, MpiException
from ckpt.mpi.base.group import Group
from ckpt.mpi.base.handle import Handle, expect
from ckpt.mpi.base.integers import argument
from ckpt.mpi.base.null_handles import NULL_PART
from ckpt.mpi.rma.state import WindowState

try:
    from ckpt.mpi.rma._exporter import Exporter
except ImportError:

    class Exporter:  # type: ignore[no-redef]
        """Without the C module: memoryview(win) needs Python 3.12."""

        __slots__ = ()

        def __buffer__(self, flags: int) -> memoryview:
            return memoryview(self.tomemory())  # type: ignore[attr-defined]


class WinHandle(Handle, Exporter):
    """A handle of a window; `bool(win)` is False for the null window and a freed one."""

    __slots__ = ("__weakref__", "_shared")

    _shared: Any

    def __new__(cls, win: WinHandle | None = None) -> Self:
        expect(cls, win, WinHandle)
        self = super().__new__(cls)
        self._shared = NULL_PART if win is None else win._shared
        return self

    def _alive(self) -> WindowState:
        """The state that all handles of the window share. MpiException (ERR_WIN): it is null or freed."""
        shared: WindowState = self._shared
        if self._shared is NULL_PART or shared.freed:
            raise MpiException(ERR_WIN, "the window is null or freed")
        return shared

    def _member(self, rank: int) -> int | None:
        """A rank in the window; None for PROC_NULL. MpiException (ERR_RANK): there is no such rank."""
        number, state = argument(rank), self._alive()
        if number == PROC_NULL:
            return None
        if not 0 <= number < len(state.group):
            raise MpiException(ERR_RANK, f"rank {number} in a window of {len(state.group)} ranks")
        return number

    def _members(self, group: Group) -> tuple[int, ...]:
        """The ranks in the window of a group's processes. MpiException (ERR_GROUP): one of them is no member."""
        state = self._alive()
        ranks = []
        for world in group._members:
            if world not in state.group:
                raise MpiException(ERR_GROUP, f"rank {world} of the job is not a member of the window")
            ranks.append(state.group.index(world))
        return tuple(ranks)

    def __image_reduce__(self) -> Any:
        extra = getattr(self, "__dict__", None)
        return self._named() or (WinHandle.__new__, (type(self),), (extra, {"_shared": self._shared}))

    def __bool__(self) -> bool:
        return self._shared is not NULL_PART and not self._shared.freed

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, WinHandle):
            return NotImplemented
        if not self or not other:
            return bool(self) == bool(other)
        return self._shared is other._shared

    __hash__ = None  # type: ignore[assignment]

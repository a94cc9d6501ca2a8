"""The base class of `Win`: a handle of a window, and the checks that all calls share.

Every call on a freed or null window raises ERR_WIN.

Not here: making and freeing of windows (window.py).
"""

from __future__ import annotations

from typing import Self

from ckpt.mpi.base.constants import PROC_NULL
from ckpt.mpi.base.errors import ERR_GROUP, ERR_RANK, ERR_WIN, MpiException
from ckpt.mpi.base.group import Group
from ckpt.mpi.base.handle import expect
from ckpt.mpi.base.integers import argument
from ckpt.mpi.members.handle import SharedHandle
from ckpt.mpi.rma.state import WindowState

try:
    from ckpt.mpi.rma._exporter import Exporter
except ImportError:

    class Exporter:  # type: ignore[no-redef]
        """Without the C module: memoryview(win) needs Python 3.12."""

        __slots__ = ()

        def __buffer__(self, flags: int) -> memoryview:
            return memoryview(self.tomemory())  # type: ignore[attr-defined]


class WinHandle(SharedHandle[WindowState], Exporter):
    """A handle of a window; `bool(win)` is False for the null window and a freed one."""

    __slots__ = ()
    _errhandler_kind = "Win"
    _gone = ERR_WIN, "the window is null or freed"

    def __new__(cls, win: WinHandle | None = None) -> Self:
        return super().__new__(cls, expect(cls, win, WinHandle))

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

"""Communicators as programs see them: messages, collectives, and making new communicators."""

from __future__ import annotations

from ckpt.mpi.comm_collectives import BufferCollectives
from ckpt.mpi.group import Group


class Comm(BufferCollectives):
    """Messages between the ranks of a group."""

    __slots__ = ()

    def Get_group(self) -> Group:
        return Group._make(self._shared.group, self._engine.progress.rank)

    @property
    def group(self) -> Group:
        return self.Get_group()


class Intracomm(Comm):
    """One group: messages within it, collectives over it."""

    __slots__ = ()


Communicator = Intracomm
"""The communicator most programs use."""

COMM_NULL = Comm()
"""No communicator: every call raises ERR_COMM."""

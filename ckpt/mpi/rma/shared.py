"""Memory of a window that all members load from and store to directly (Win.Allocate_shared).

The members' parts follow each other in one segment of the host's memory, without gaps unless the info
``alloc_shared_noncontig`` is "true". The first member allocates, all map, and each becomes a member of those that stand
still together for an image. Before any of them stores to the memory, all know that the others do
(:func:`ckpt.shared_memory.rules.may_store`).

Not here: how such memory is part of images (:mod:`ckpt.shared_memory`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from ckpt.mpi.base.errors import ERR_OTHER, ERR_RMA_SHARED, ERR_SIZE, MpiException
from ckpt.mpi.rma.exposed import Fixed
from ckpt.shared_memory.pages import whole_pages
from ckpt.shared_memory.rules import may_store

if TYPE_CHECKING:
    from ckpt.mpi.engine.engine import Engine
    from ckpt.mpi.rma.state import WindowState
    from ckpt.shared_memory.host import HostMemory

Where = tuple[tuple[str, ...], int]
"""What ranks of one host have in common, until a restart; and the epoch of the last image of who tells it."""

NO_MEMORY = (
    "there is no memory that the ranks of this host could share (memfd_create(2) is forbidden), or several processes "
    "compute each rank, of which only messages are compared"
)


@runtime_checkable
class OnAHost(Protocol):
    """A `Progress` that knows the memory of its host: that of a rank's runtime, not that of a layer."""

    shared_memory: HostMemory | None


class SharedPart(Fixed):
    """This rank's part of a segment. `parts`: (first byte, size) of each member's. Without a segment, there is no byte at
    all, or the window is being made."""

    __slots__ = ("parts", "segment")

    def __init__(self, nbytes: int) -> None:
        if nbytes < 0:
            raise MpiException(ERR_SIZE, f"negative size {nbytes}")
        super().__init__(None, nbytes)
        self.parts: Sequence[tuple[int, int]] = ()
        self.segment: Any = None

    def of(self, rank: int) -> memoryview | None:
        """The memory of a member."""
        return None if self.segment is None else self.segment.view(*self.parts[rank])


def memory_of(engine: Engine) -> HostMemory | None:
    """The memory that this rank can share with others of its host; None: there is none."""
    progress = engine.progress
    return progress.shared_memory if isinstance(progress, OnAHost) else None


def place_of(engine: Engine) -> Where:
    """Where this rank is now."""
    memory = memory_of(engine)
    if memory is None:
        return (), 0
    return (os.environ.get("CKPT_HOST", ""), *map(str, memory.place)), memory.epoch


def share(state: WindowState, part: SharedPart, told: Sequence[Where], *, has_gaps: bool) -> None:
    """Allocate the memory of a window and become a member. Collective. `told`: what the members have told each other of
    where they are. MpiException: ERR_RMA_SHARED, ERR_OTHER (no memory, or another rank could not)."""
    while not _are_on_one_host(told):
        told = state.private.allgather(place_of(state.engine))
    assert state.sizes is not None
    part.parts, nbytes = layout(state.sizes, has_gaps=has_gaps)
    memory, private = memory_of(state.engine), state.private
    assert memory is not None
    if not nbytes:
        return
    begin, problem = 0, ""
    if state.rank == 0:
        begin, problem = _done(state, lambda: memory.allocate(nbytes))
    begin, problem = private.bcast((begin, problem))
    if not problem:
        part.segment, problem = _done(
            state, lambda: _mapped(memory, begin, nbytes, part.parts[state.rank], state.group)
        )
    epochs: list[list[int]] = []
    while not may_store(epochs):
        answers = private.allgather((problem, *place_of(state.engine)))
        for rank, (theirs, _, _) in enumerate(answers):
            if theirs:
                raise MpiException(ERR_OTHER, f"no shared memory of {nbytes} bytes: rank {rank}: {theirs}")
        _are_on_one_host([where for _, *where in answers])
        epochs.append([epoch for _, _, epoch in answers])
    part.memory = part.of(state.rank)
    part.segment.is_complete = True


def _are_on_one_host(told: Sequence[Sequence[Any]]) -> bool:
    """All members find the same. False: an image has come in between, so some may tell of a place before a restart, and
    others of one after it. MpiException (ERR_RMA_SHARED)."""
    others = [rank for rank, (host, _) in enumerate(told) if host != told[0][0]]
    if others and len({epoch for _, epoch in told}) == 1:
        raise MpiException(
            ERR_RMA_SHARED,
            f"rank {others[0]} is on another host than rank 0: use Split_type(COMM_TYPE_SHARED)",
        )
    return not others


def _mapped(memory: HostMemory, begin: int, nbytes: int, own: tuple[int, int], group: tuple[int, ...]) -> Any:
    segment = memory.map(begin, nbytes, own, group)
    memory.join(segment)
    return segment


def _done(state: WindowState, do: Callable[[], Any]) -> tuple[Any, str]:
    """(what it returns, what has gone wrong)."""
    try:
        with state.engine.lock:
            return do(), ""
    except Exception as failure:
        return None, f"{type(failure).__name__}: {failure}"


def unshare(state: WindowState, part: SharedPart) -> None:
    """This rank stores nothing more; so the memory can go when the first member says so, who has waited for all. The
    engine's lock is held."""
    segment, memory = part.segment, memory_of(state.engine)
    part.segment = None
    if segment is not None and memory is not None:
        memory.part(segment)
        if state.rank == 0:
            memory.discard(segment)


def layout(sizes: Sequence[int], *, has_gaps: bool) -> tuple[list[tuple[int, int]], int]:
    """The parts of the members, and the size of the whole. `has_gaps`: each part begins a page."""
    parts, at = [], 0
    for nbytes in sizes:
        parts.append((at, nbytes))
        at += whole_pages(nbytes) if has_gaps else nbytes
    return parts, at

"""The operations of windows that a program may have to wait for (ckpt/mpi/engine/operations.py says what an operation is).

    Answered         it is done when the target's answer arrives, or the target has failed
    Ended            the posts, or the ends of access epochs, of some members have arrived

Not here: which messages are sent (origin.py), and when the program waits (synchronization.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ckpt.mpi.engine.operations import Operation

if TYPE_CHECKING:
    from ckpt.mpi.datatypes.buffers import BufferSpec
    from ckpt.mpi.rma.state import WindowState


class Answered(Operation):
    """An operation with an answer. `target`: rank in the window. `result_spec`: where the answer's data go; None: it
    has none.

    `own_request`: the program has a request for it, which reports its error. Otherwise the next synchronization does."""

    __slots__ = ("own_request", "result_spec", "shared", "target")

    def __init__(
        self, shared: WindowState, target: int, result_spec: BufferSpec | None, *, own_request: bool
    ) -> None:
        super().__init__()
        self.shared = shared
        self.target = target
        self.result_spec = result_spec
        self.own_request = own_request


class Ended(Operation):
    """Done when each of `ranks` (in the window) has told more than was consumed: `told` counts messages by rank.

    When it is done, one message of each rank is consumed. A failed rank that has told nothing ends it with an error."""

    __slots__ = ("ranks", "shared", "told")

    def __init__(self, shared: WindowState, told: dict[int, int], ranks: tuple[int, ...]) -> None:
        super().__init__()
        self.shared = shared
        self.told = told
        self.ranks = ranks

    def poll(self) -> bool:
        if self.done:
            return True
        missing = [rank for rank in self.ranks if not self.told.get(rank)]
        failed = [rank for rank in missing if self.shared.failure(rank) is not None]
        if missing and not failed:
            return False
        for rank in self.ranks:
            if rank not in missing:
                self.told[rank] -= 1
        self.error = self.shared.failure(failed[0]) if failed else None
        self.done = True
        return True

"""The epochs of a window at one rank: when the program may access others' memory, and what it has begun. (pure)

    access epochs      locked    Lock to Unlock of one target, or Lock_all to Unlock_all
                       fenced    between two calls of Fence (not after MODE_NOSUCCEED)
                       started   Start to Complete, for the ranks of its group
    exposure epoch     exposed   Post to Wait, for the ranks of its group

A call that does not fit raises MpiException (ERR_RMA_SYNC) and changes nothing. A fence epoch may stay open beside the
others, because the standard lets each call of Fence begin one that is never used.

Not here: the messages and the waiting (synchronization.py).
"""

from __future__ import annotations

from ckpt.mpi.base.errors import ERR_RMA_SYNC, MpiException


def _error(text: str) -> MpiException:
    return MpiException(ERR_RMA_SYNC, text)


class Epochs:
    """Targets and origins are ranks in the window. `locked`: target -> whether it has a lock of this rank to release."""

    __slots__ = ("all_locked", "exposed", "fenced", "locked", "started")

    def __init__(self) -> None:
        self.locked: dict[int, bool] = {}
        self.all_locked = False
        self.fenced = False
        self.started: tuple[int, ...] | None = None
        self.exposed: tuple[int, ...] | None = None

    def check_access(self, target: int) -> None:
        """May the program work on the target's memory now?"""
        if self.fenced or target in self.locked or (self.started is not None and target in self.started):
            return
        raise _error(f"no access epoch for rank {target}: call Lock, Lock_all, Fence or Start before")

    def check_locked(self, target: int) -> None:
        """Has the program locked the target (for Flush)?"""
        if target not in self.locked:
            raise _error(f"rank {target} is not locked by this rank")

    def check_any_lock(self) -> None:
        """Has the program locked something (for Flush_all)?"""
        if not self.locked:
            raise _error("nothing is locked by this rank")

    def check_lock(self, target: int) -> None:
        if target in self.locked:
            raise _error(f"rank {target} is locked by this rank already")
        if self.started is not None:
            raise _error("Start has begun an access epoch: call Complete before")

    def check_lock_all(self) -> None:
        if self.locked:
            raise _error("something is locked by this rank already")
        if self.started is not None:
            raise _error("Start has begun an access epoch: call Complete before")

    def check_unlock(self, target: int) -> None:
        self.check_locked(target)
        if self.all_locked:
            raise _error("Lock_all has locked this rank: call Unlock_all")

    def check_unlock_all(self) -> None:
        if not self.all_locked:
            raise _error("Lock_all was not called")

    def check_fence(self) -> None:
        if self.locked:
            raise _error("a fence inside of a lock")
        if self.started is not None or self.exposed is not None:
            raise _error("a fence inside of an epoch of Start or Post")

    def check_start(self) -> None:
        if self.started is not None:
            raise _error("Start has begun an access epoch already")
        if self.locked:
            raise _error("Start inside of a lock")

    def check_complete(self) -> tuple[int, ...]:
        if self.started is None:
            raise _error("Start was not called")
        return self.started

    def check_post(self) -> None:
        if self.exposed is not None:
            raise _error("Post has begun an exposure epoch already")

    def check_wait(self) -> tuple[int, ...]:
        if self.exposed is None:
            raise _error("Post was not called")
        return self.exposed

    def check_free(self) -> None:
        if self.locked:
            raise _error("the window is freed while this rank has locked something")
        if self.started is not None or self.exposed is not None:
            raise _error("the window is freed inside of an epoch of Start or Post")

"""The calls that begin and end epochs, and those that complete operations.

Passive target (Lock, Lock_all, Flush, Unlock): the target's program takes no part. Its messages are handled by whoever makes
progress there, the helper thread while the program computes.

When a target has failed, its operations and locks end with ERR_PROC_FAILED. A call that ends an epoch ends it in any
case, and raises afterwards. The assertions are hints: MODE_NOCHECK makes Lock send nothing, the others have no effect.

Not here: what may be called when (epochs.py), the messages (wire.py).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ckpt.mpi.base.constants import NUMBERS
from ckpt.mpi.base.errors import ERR_LOCKTYPE, MpiException
from ckpt.mpi.base.group import Group
from ckpt.mpi.base.integers import argument
from ckpt.mpi.engine.operations import Operation
from ckpt.mpi.rma import wire
from ckpt.mpi.rma.handle import WinHandle
from ckpt.mpi.rma.operations import Ended
from ckpt.mpi.rma.state import WindowState

LOCK_EXCLUSIVE = NUMBERS["LOCK_EXCLUSIVE"]
LOCK_SHARED = NUMBERS["LOCK_SHARED"]
MODE_NOCHECK = NUMBERS["MODE_NOCHECK"]
MODE_NOSUCCEED = NUMBERS["MODE_NOSUCCEED"]


class Synchronization(WinHandle):
    """Base class of Win with these methods. Errors: MpiException with ERR_WIN, ERR_RANK, ERR_RMA_SYNC (the call does
    not fit the present epoch), ERR_LOCKTYPE or ERR_GROUP; those of the operations that are completed; PeerFailed."""

    __slots__ = ()

    # -- passive target ----------------------------------------------------------------------------

    def Lock(self, rank: int, lock_type: int = LOCK_EXCLUSIVE, assertion: int = 0) -> None:
        """Begin an access epoch at one target. Returns when this rank has the lock."""
        target, kind, hints = self._member(rank), argument(lock_type), argument(assertion)
        state = self._alive()
        if kind not in (LOCK_EXCLUSIVE, LOCK_SHARED):
            raise MpiException(ERR_LOCKTYPE, f"{kind} is no lock type")
        if target is None:
            return
        state.epochs.check_lock(target)
        action = wire.LOCK_EXCLUSIVE if kind == LOCK_EXCLUSIVE else wire.LOCK_SHARED
        with state.engine.lock:
            _lock(state, (target,), action, hints)
            if target == state.rank:
                _look(state)

    def Lock_all(self, assertion: int = 0) -> None:
        """Begin an access epoch at all targets, with shared locks."""
        hints, state = argument(assertion), self._alive()
        state.epochs.check_lock_all()
        with state.engine.lock:
            _lock(state, tuple(range(len(state.group))), wire.LOCK_SHARED, hints)
            state.epochs.all_locked = True

    def Unlock(self, rank: int) -> None:
        """Complete all operations at a target, there too, and release the lock."""
        target, state = self._member(rank), self._alive()
        if target is None:
            return
        state.epochs.check_unlock(target)
        with state.engine.lock:
            _unlock(state, (target,))

    def Unlock_all(self) -> None:
        """Complete all operations at all targets, and release the locks."""
        state = self._alive()
        state.epochs.check_unlock_all()
        with state.engine.lock:
            state.epochs.all_locked = False
            _unlock(state, tuple(state.epochs.locked))

    def Flush(self, rank: int) -> None:
        """Complete all operations at a target, there too."""
        target, state = self._member(rank), self._alive()
        if target is None:
            return
        state.epochs.check_locked(target)
        with state.engine.lock:
            _raise(flush(state, (target,)))

    def Flush_all(self) -> None:
        """Complete all operations at all targets, there too."""
        state = self._alive()
        state.epochs.check_any_lock()
        with state.engine.lock:
            _raise(flush(state, tuple(state.epochs.locked)))

    def Flush_local(self, rank: int) -> None:
        """Complete all operations at a target as far as this rank is concerned: its buffers may be reused."""
        target, state = self._member(rank), self._alive()
        if target is None:
            return
        state.epochs.check_locked(target)
        with state.engine.lock:
            _flush_local(state, (target,))

    def Flush_local_all(self) -> None:
        """Flush_local for all targets."""
        state = self._alive()
        state.epochs.check_any_lock()
        with state.engine.lock:
            _flush_local(state, tuple(state.epochs.locked))

    def Sync(self) -> None:
        """Make progress once. The window has one copy of the memory (WIN_UNIFIED), so there is nothing to synchronize."""
        state = self._alive()
        with state.engine.lock:
            state.engine.make_progress()
            _look(state)

    # -- active target -----------------------------------------------------------------------------

    def Fence(self, assertion: int = 0) -> None:
        """Complete all operations of all members, and begin the next epoch (not with MODE_NOSUCCEED). Collective."""
        hints, state = argument(assertion), self._alive()
        state.epochs.check_fence()
        with state.engine.lock:
            error = flush(state, tuple(range(len(state.group))))
            state.epochs.fenced = False
        # The others wait in the barrier, also when an operation of this rank has failed.
        state.private.Barrier()
        state.epochs.fenced = not hints & MODE_NOSUCCEED
        _raise(error)

    def Start(self, group: Group, assertion: int = 0) -> None:
        """Begin an access epoch at the targets of a group. Waits for the Post of each."""
        argument(assertion)
        targets, state = self._members(group), self._alive()
        state.epochs.check_start()
        with state.engine.lock:
            _wait(state, Ended(state, state.origin.posted, targets))
            state.epochs.started = targets

    def Complete(self) -> None:
        """Complete all operations of the epoch that Start has begun, and end it."""
        state = self._alive()
        targets = state.epochs.check_complete()
        with state.engine.lock:
            state.epochs.started = None
            waited = _outstanding(state, targets)
            for target in targets:
                state.post(target, wire.COMPLETE)
            _raise(_finish(state, targets, waited))

    def Post(self, group: Group, assertion: int = 0) -> None:
        """Begin an exposure epoch for the origins of a group. Does not wait."""
        argument(assertion)
        origins, state = self._members(group), self._alive()
        state.epochs.check_post()
        with state.engine.lock:
            state.epochs.exposed = origins
            for origin in origins:
                state.post(origin, wire.POST)

    def Wait(self) -> bool:
        """Wait until all origins have called Complete, and end the exposure epoch."""
        state = self._alive()
        origins = state.epochs.check_wait()
        with state.engine.lock:
            operation = Ended(state, state.target.completed, origins)
            try:
                _wait(state, operation)
            finally:
                if operation.done:
                    state.epochs.exposed = None
        return True

    def Test(self) -> bool:
        """Whether all origins have called Complete; if so, the exposure epoch is ended."""
        state = self._alive()
        origins = state.epochs.check_wait()
        with state.engine.lock:
            operation = Ended(state, state.target.completed, origins)
            if not state.engine.test(operation):
                return False
            state.epochs.exposed = None
        _raise(operation.error)
        return True


# -- the engine's lock is held in all that follows -------------------------------------------------


def _raise(error: Any) -> None:
    if error is not None:
        raise error


def _look(state: WindowState) -> None:
    """The program may look at its memory now, and do something else by what it finds."""
    if state.engine.choices is not None:
        state.engine.choices.still()


def _wait(state: WindowState, operation: Operation) -> None:
    """Wait for an operation and raise its error."""
    windows = state.engine.windows
    windows.awaited += 1
    try:
        state.engine.wait(operation)
    finally:
        windows.awaited -= 1
    _raise(operation.error)


def _lock(state: WindowState, targets: tuple[int, ...], action: int, hints: int) -> None:
    """Lock all targets, or none: who fails, or is interrupted by an exception of a signal handler, holds nothing."""
    if hints & MODE_NOCHECK:
        for target in targets:
            _raise(state.failure(target))
        state.epochs.locked.update(dict.fromkeys(targets, False))
        return
    asked: list[tuple[int, Operation]] = []
    try:
        for target in targets:
            _raise(state.failure(target))
            asked.append((target, state.origin.ask(target, action, own_request=True)))
        for _, operation in asked:
            _wait(state, operation)
    except BaseException:
        for target, operation in asked:
            state.origin.abandon(operation)
            if state.failure(target) is None:
                state.post(target, wire.UNLOCK)
        raise
    state.epochs.locked.update(dict.fromkeys(targets, True))


def _unlock(state: WindowState, targets: tuple[int, ...]) -> None:
    waited: list[Operation] = []
    for target in targets:
        is_held = state.epochs.locked.pop(target)
        if state.failure(target) is not None:
            continue
        if is_held and target in state.origin.changing:
            waited.append(state.origin.flushing(target, wire.UNLOCK))
            continue
        waited += state.origin.outstanding(target)
        if is_held:
            state.post(target, wire.UNLOCK)
    _raise(_finish(state, targets, waited))


def _outstanding(state: WindowState, targets: Iterable[int]) -> list[Operation]:
    waited: list[Operation] = []
    for target in targets:
        if state.failure(target) is None:
            waited += state.origin.outstanding(target)
    return waited


def flush(state: WindowState, targets: tuple[int, ...]) -> MpiException | None:
    """Complete the operations at the targets. Returns the first error."""
    return _finish(state, targets, _outstanding(state, targets))


def _flush_local(state: WindowState, targets: tuple[int, ...]) -> None:
    waited: list[Operation] = []
    for target in targets:
        waited += state.origin.lent.pop(target, [])
        waited += [each for each in state.pending.values() if each.target == target]
    _raise(_finish(state, targets, waited))


def _finish(state: WindowState, targets: tuple[int, ...], waited: list[Operation]) -> MpiException | None:
    """Wait for the operations. Returns the first error at these targets, and forgets the others."""
    for operation in waited:
        state.engine.wait(operation)
    first: MpiException | None = None
    for target in targets:
        error = state.origin.take_error(target)
        first = first or state.failure(target) or error
    return first

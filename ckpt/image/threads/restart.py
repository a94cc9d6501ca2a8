"""The program's other threads in a new process: started, put into their frames one after the other, released together.

::

    Restart(stack)     takes the captured threads out of the stack of the main thread
    start()            new threads; each is entered in ``threading`` under its new identifier. Reentrant locks get their
                       owners. Then one thread at a time: its values of ``threading.local``, its context, its frames;
                       it stops where its innermost frame is about to go on
    release()          all go on. Called when the main thread's frames are there, too

What an image holds by the identifier of a thread is told here while it is loaded (:func:`hold_later`, :func:`fill_later`,
:func:`set_ident_later`, :func:`call_later_in`), and put in order when the new identifiers are known. What must be done when
all threads stand where they go on is told by :func:`call_at_last`. Where ``Condition.wait`` keeps an identifier in a
variable, it is replaced.

Not here: what a thread is joined by (:mod:`ckpt.compat.threads`), how frames are made again
(:mod:`ckpt.image.frames.running`).
"""

from __future__ import annotations

import contextlib
import threading
from _thread import allocate_lock, get_ident
from collections.abc import Callable, Iterator
from typing import Any

from ckpt.compat import threads
from ckpt.image.errors import RestoreError
from ckpt.image.frames.running import records_of, run_records
from ckpt.image.frames.stack import CapturedThread, FrameRecord, Stack

__all__ = [
    "Restart",
    "call_at_last",
    "call_later_in",
    "fill_later",
    "forget_locks",
    "hold_later",
    "locks_set_free",
    "note_lock",
    "set_ident_later",
    "started_threads",
]

Call = tuple[Callable[..., object], tuple[Any, ...]]

_held: list[tuple[Any, int, int]] = []
_calls: list[tuple[int, Call]] = []
_idents: list[tuple[Any, str, int]] = []
_last: list[Call] = []
_started: list[threading.Thread] = []
_locks: list[Any] = []  # those that are not reentrant, and that the program holds: from when they are made


def hold_later(lock: Any, owner: int, times: int) -> None:
    """While an image is loaded: the thread that was ``owner`` holds this reentrant lock, ``times`` times."""
    _held.append((lock, owner, times))


def note_lock(lock: Any) -> None:
    """While an image is loaded: the program holds this lock, which is not reentrant."""
    _locks.append(lock)


def forget_locks() -> None:
    """The image is loaded."""
    _locks.clear()


@contextlib.contextmanager
def locks_set_free() -> Iterator[None]:
    """While an image is loaded: a context in which none of these locks is held. No thread of the program runs yet. For
    processes that are started within, as the workers of pools: they have nobody who would release them. And what is called
    before a fork (``os.register_at_fork``) may wait for one that the program releases only when it goes on."""
    locks = [lock for lock in _locks if lock.locked()]
    for lock in locks:
        lock.release()
    try:
        yield
    finally:
        for lock in locks:
            lock.acquire()


def fill_later(ident: int, local: Any, values: dict[str, Any]) -> None:
    """While an image is loaded: these are the attributes of a ``threading.local`` in the thread that was ``ident``."""
    call_later_in(ident, _fill, local, values)


def _fill(local: Any, values: dict[str, Any]) -> None:
    attributes = threading.local.__getattribute__(local, "__dict__")
    attributes.clear()
    attributes.update(values)


def set_ident_later(obj: Any, name: str, ident: int) -> None:
    """While an image is loaded: this attribute is the identifier of the thread that was ``ident``."""
    _idents.append((obj, name, ident))


def call_later_in(ident: int, function: Callable[..., object], *args: Any) -> None:
    """While an image is loaded: the thread that was ``ident``, another one than the main thread, calls ``function(*args)``
    before its frames are made."""
    _calls.append((ident, (function, args)))


def call_at_last(function: Callable[..., object], *args: Any) -> None:
    """While an image is loaded: the main thread calls ``function(*args)`` when the frames of all threads are there, just
    before they go on."""
    _last.append((function, args))


def started_threads() -> Iterator[threading.Thread]:
    """The threads that an image has brought into this process and that are no daemons. The interpreter, which joins its own
    at its end, does not know these."""
    while _started:
        thread = _started.pop()
        if not thread.daemon:
            yield thread


class Restart:
    """The other threads of one program."""

    def __init__(self, stack: Stack) -> None:
        self._main_ident = stack.ident
        self._main_frames = stack.frames
        self._beginnings = [_Beginning(captured) for captured in stack.threads]
        stack.threads = []

    def start(self) -> None:
        """Returns when every thread stands where it goes on. Raises :class:`RestoreError`: a thread cannot be started, or
        its frames do not fit this process; RuntimeError: the system has no thread left."""
        idents = {self._main_ident: get_ident()}
        for each in self._beginnings:
            idents[each.captured.stack.ident] = each.start()
        for lock, owner, times in _held:
            threads.own_rlock(lock, idents[owner], times)
        _held.clear()
        for ident, call in _calls:
            for each in self._beginnings:
                if each.captured.stack.ident == ident:
                    each.calls.append(call)
        _calls.clear()
        for obj, name, ident in _idents:
            setattr(obj, name, idents.get(ident, ident))
        _idents.clear()
        _replace_idents(self._main_frames, idents)
        for each in self._beginnings:
            _replace_idents(each.captured.stack.frames, idents)
            each.rebuild()
            _started.append(each.captured.thread)

    def release(self) -> None:
        """Have all threads go on."""
        while _last:
            function, args = _last.pop(0)
            function(*args)
        for each in self._beginnings:
            each.go_on.release()
        self._beginnings.clear()


def _replace_idents(frames: list[FrameRecord], idents: dict[int, int]) -> None:
    for record in frames:
        if record.code == threads.CONDITION_WAIT:
            index = record.code.co_varnames.index(threads.SAVED_STATE)
            state = record.locals[index]
            if type(state) is tuple and len(state) == 2:
                record.locals[index] = (state[0], idents.get(state[1], state[1]))
                # It has been woken, and waits for the lock: the state is an operand of the call that is made again.
                record.stack[:] = [record.locals[index] if each is state else each for each in record.stack]


class _Beginning:
    """One thread, until it goes on. The locks are held until what they are named after may happen, or has happened."""

    def __init__(self, captured: CapturedThread) -> None:
        self.captured = captured
        self.calls: list[Call] = []
        self.go_on = _held_lock()
        self._has_begun = _held_lock()
        self._may_rebuild = _held_lock()
        self._is_there = _held_lock()
        self._failure: BaseException | None = None

    def start(self) -> int:
        """Start the thread; returns its identifier."""
        threads.start(self.captured.thread, self._run)
        self._has_begun.acquire()
        ident = self.captured.thread.ident
        assert ident is not None
        return ident

    def rebuild(self) -> None:
        """Have the thread make its frames; returns when they are there. Raises RestoreError."""
        self._may_rebuild.release()
        self._is_there.acquire()
        if self._failure is not None:
            name = self.captured.thread.name
            raise RestoreError(f"thread {name!r}: {self._failure}") from self._failure

    def _run(self) -> None:
        """All that the new thread does."""
        thread, context = self.captured.thread, self.captured.context
        threads.begin_again(thread)
        if self.captured.queue is not None:
            threads.put_pool_queue(thread, self.captured.queue)
        self._has_begun.release()
        self._may_rebuild.acquire()
        try:
            while self.calls:
                function, args = self.calls.pop()
                function(*args)
                del function, args
            records, blocked = records_of(self.captured.stack), self.captured.blocked
            del self.captured.stack
            if context is None:
                run_records(records, 0, blocked, self._stop)
            else:
                context.run(run_records, records, 0, blocked, self._stop)
        except BaseException as failure:
            if not self._is_there.locked():
                raise
            self._failure = failure
            self._is_there.release()
        finally:
            threads.end(thread)

    def _stop(self) -> None:
        """The frames are there: wait until all threads go on."""
        self._is_there.release()
        self.go_on.acquire()


def _held_lock() -> Any:
    lock = allocate_lock()
    lock.acquire()
    return lock

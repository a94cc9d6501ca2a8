"""Thread objects, and what belongs to one thread.

A thread whose stack is in the image runs after a restart, too (:mod:`ckpt.image.threads.restart`). A harmless one that was
started is a thread that has ended: ``is_alive()`` is False and ``join()`` returns at once; target, name and the attributes
of a subclass are kept. A thread that was not started yet can be started after the restart.

A reentrant lock is held by the thread that held it; one whose thread has ended without a release is held by nobody, as
before. An object of ``threading.local`` has its attributes in each thread.

Not here: which threads may run while an image is taken (:mod:`ckpt.capture.threads`).
"""

from __future__ import annotations

import gc
import threading
from typing import TYPE_CHECKING, Any

from ckpt.compat import stdlib, threads
from ckpt.image.threads.restart import fill_later, hold_later

if TYPE_CHECKING:
    from ckpt.image.reducers.saver import Saver

__all__ = ["REDUCERS", "reduce_rlock", "reduce_thread", "reduce_thread_local"]


def reduce_thread(pickler: Saver, thread: threading.Thread) -> Any:
    """The reducer for threads: saves the attributes without the interpreter's handle."""
    attributes = stdlib.thread_attributes(thread)
    ident = threads.ident_of(thread)
    if pickler.threads.get(ident, (None,))[0] is thread:
        attributes |= threads.state_of(thread)
        return make_thread, (type(thread),), attributes, None, None, fill_running_thread
    return make_thread, (type(thread),), (attributes, ident != 0), None, None, fill_thread


def make_thread(cls: type) -> Any:
    return object.__new__(cls)


def fill_thread(thread: Any, state: tuple[dict[str, Any], bool]) -> None:
    attributes, started = state
    stdlib.fill_thread(thread, attributes, has_ended=started)


def fill_running_thread(thread: Any, attributes: dict[str, Any]) -> None:
    thread.__dict__.update(attributes)
    threads.keep_from_joining(thread)


def _reduce_handle(pickler: Saver, handle: Any) -> Any:
    """Of a thread that runs: it is given to the new thread. Any other that is still referred to is of a thread that somebody
    waits for, and that has no Python code left to run: it has ended."""
    runs = any(handle in threads.state_of(thread).values() for thread, _ in pickler.threads.values())
    return (threads.new_handle, ()) if runs else (threads.done_handle, (handle.ident,))


# ---------------------------------------------------------------------- locks, values


def reduce_rlock(pickler: Saver, lock: Any) -> Any:
    owner, times = threads.rlock_owner(lock)
    if owner in pickler.threads:
        return make_rlock, (0,), (owner, times), None, None, hold_rlock_later
    if times and owner != pickler.main_thread_id and owner not in stdlib.threads_by_ident():
        return make_rlock_of_nobody, (times,)
    return make_rlock, (times if owner == pickler.main_thread_id else 0,)


def make_rlock(times: int) -> Any:
    """A reentrant lock held ``times`` times by the thread that loads the image."""
    made = threading.RLock()
    if times:
        stdlib.acquire_times(made, times)
    return made


def make_rlock_of_nobody(times: int) -> Any:
    """A reentrant lock whose thread has ended: nobody can take it, and nobody can release it."""
    made = threading.RLock()
    threads.own_rlock(made, threads.NO_THREAD, times)
    return made


def hold_rlock_later(lock: Any, state: tuple[int, int]) -> None:
    hold_later(lock, *state)


def reduce_thread_local(pickler: Saver, obj: Any) -> Any:
    """The values of the threads that are in the image."""
    own = dict(threading.local.__getattribute__(obj, "__dict__"))
    others = {}
    for ident, (_, key) in pickler.threads.items():
        values = threads.values_of(obj, key)
        if values is not None:
            others[ident] = dict(values)
    return make_thread_local, (type(obj), _arguments(obj)), (own, others), None, None, fill_thread_local


def _arguments(local: Any) -> tuple[Any, ...]:
    """The positional arguments with which the object was made: a subclass gets them in each thread that uses it first."""
    return next((found for found in gc.get_referents(local) if type(found) is tuple), ())


def make_thread_local(cls: type, args: tuple[Any, ...]) -> Any:
    return cls.__new__(cls, *args)


def fill_thread_local(obj: Any, state: tuple[dict[str, Any], dict[int, dict[str, Any]]]) -> None:
    own, others = state
    threading.local.__getattribute__(obj, "__dict__").update(own)
    for ident, values in others.items():
        fill_later(ident, obj, values)


REDUCERS = {
    threads.RLOCK: reduce_rlock,
    **({threads.HANDLE: _reduce_handle} if threads.HANDLE is not None else {}),
}

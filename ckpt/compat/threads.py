"""Private names of ``threading`` and ``_thread`` that belong to a running thread: its lock or handle, its values, its place.

For a new minor version: does ``Lib/threading.py`` still start a thread by ``_bootstrap``, enter it in ``_active`` and tell
its end by one of the attributes of `_STATE`? How does ``threading.local`` find the values of a thread
(``Modules/_threadmodule.c``)?
"""

from __future__ import annotations

import _thread
import ctypes
import functools
import gc
import os
import re
import struct
import threading
from collections.abc import Callable
from types import BuiltinMethodType, CodeType
from typing import Any, TypeVar

from ckpt.compat import accelerators, interpreter, stdlib

__all__ = [
    "CONDITION_WAIT",
    "FIRST_CODE",
    "SAVED_STATE",
    "WAITS",
    "WAIT_FOR_ALL",
    "begin_again",
    "captured_in_threads",
    "is_captured_in_threads",
    "is_in_own_lock",
    "done_handle",
    "end",
    "hands_over",
    "has_been_woken",
    "is_foreign",
    "is_registry_locked",
    "ident_of",
    "keep_from_joining",
    "new_handle",
    "own_locks",
    "own_rlock",
    "own_sqlite",
    "pool_queue",
    "put_pool_queue",
    "registry_lock",
    "rlock_owner",
    "running_count",
    "sqlite_owner",
    "start",
    "state_of",
    "values_of",
    "HANDLE",
    "NO_THREAD",
    "POLL_CALL",
    "RLOCK",
]

RLOCK: type = type(threading.RLock())
HANDLE: Any = getattr(_thread, "_ThreadHandle", None)
"""The type of what a thread is joined by since 3.13; None: there is none."""
POLL_CALL = {"x86_64": 7, "aarch64": 73}.get(os.uname().machine, -1)
"""The number of ``poll(2)``, ``ppoll(2)`` on the latter: there a call of a socket with a time limit waits, and takes
nothing."""

_ACQUIRE = ("acquire", "acquire_lock", "__enter__")
WAITS: dict[type, tuple[str, ...]] = {
    _thread.LockType: _ACQUIRE,
    RLOCK: (*_ACQUIRE, "_acquire_restore"),
    **({HANDLE: ("join",)} if HANDLE is not None else {}),
}
"""Type in C → its methods that wait, and take what they have waited for with the interpreter's lock held. All versions."""
WAIT_FOR_ALL = ("_thread", "_shutdown")
"""The function in C with which ``threading._shutdown`` waits for all threads that are no daemons, since 3.13. In a new
process it knows none of those that a restart has started, and returns at once."""

_CAPTURED = "__captured_in_threads__"
_F = TypeVar("_F", bound=Callable[..., Any])

FIRST_CODE: CodeType = threading.Thread._bootstrap.__code__  # type: ignore[attr-defined]
"""The code with which the stack of a thread of ``threading`` begins."""


def captured_in_threads(function: _F) -> _F:
    """A decorator of functions of ckpt: an image may be taken while a thread other than the main one runs `function`.

    Its variables are the program's, and what it waits for are locks of ``threading`` that images know."""
    function.__dict__[_CAPTURED] = True
    return function


def is_captured_in_threads(function: object) -> bool:
    """Has the function been decorated by `captured_in_threads`?"""
    return getattr(function, _CAPTURED, False) is True


CONDITION_WAIT: CodeType = threading.Condition.wait.__code__
SAVED_STATE = "saved_state"
"""The variable of ``Condition.wait`` that holds (count, identifier of the thread) of an ``RLock`` meanwhile."""

_STATE = ("_tstate_lock", "_handle")
_OWNER = re.compile(r"owner=(\d+) count=(\d+)")


def ident_of(thread: threading.Thread) -> int:
    """The identifier; 0: it was not started, or its ``__init__`` has not been called yet (``ident`` raises then)."""
    return vars(thread).get("_ident") or 0


def is_foreign(thread: threading.Thread) -> bool:
    """Has C code started the thread (``_DummyThread``)? What that code does behind Python's frames is not known."""
    return isinstance(thread, threading._DummyThread)


def state_of(thread: threading.Thread) -> dict[str, Any]:
    """What a running thread is joined by, by the name of its attribute: a lock that is held while the thread runs, until
    3.12; a handle since 3.13."""
    return {name: thread.__dict__[name] for name in _STATE if name in thread.__dict__}


def new_handle() -> Any:
    """A handle of a thread that has not begun."""
    return HANDLE()


def done_handle(ident: int) -> Any:
    """A handle of a thread that has ended."""
    handle = threading._make_thread_handle(ident)  # type: ignore[attr-defined]
    handle._set_done()
    return handle


def start(thread: threading.Thread, function: Callable[[], object]) -> None:
    """Have an operating system's thread call ``function``; ``thread`` is what stands for it. Raises RuntimeError: the system
    has no thread left."""
    handle = thread.__dict__.get("_handle")
    if handle is None:
        _thread.start_new_thread(function, ())
    else:
        _thread.start_joinable_thread(function, handle=handle, daemon=True)  # type: ignore[attr-defined]


def begin_again(thread: Any) -> None:
    """In the new thread: enter it under its new identifiers, as ``Thread._bootstrap_inner`` does."""
    thread._set_ident()
    thread._set_native_id()
    stdlib.threads_by_ident()[thread._ident] = thread
    threading._dangling.add(thread)  # type: ignore[attr-defined]


def registry_lock() -> Any:
    """The reentrant lock of the table of all threads; all versions. A forked child has another one."""
    return threading._active_limbo_lock  # type: ignore[attr-defined]


def own_locks() -> list[Any]:
    """The locks of ``threading`` itself: that of the table of all threads; until 3.12 also that of the table of what is
    joined at the end. A forked child has others."""
    found = (getattr(threading, name, None) for name in ("_active_limbo_lock", "_shutdown_locks_lock"))
    return [lock for lock in found if lock is not None]


def is_in_own_lock(stack: list[Any]) -> bool:
    """Is the function that has this evaluation stack inside of ``with`` of one of these? What it will call at the end is on
    the stack meanwhile: the lock's ``__exit__``."""
    held = [each.__self__ for each in stack if type(each) is BuiltinMethodType]
    return bool(held) and any(each is lock for each in held for lock in own_locks())


def is_registry_locked() -> bool:
    """Is a thread entering or leaving the table of all threads?"""
    return rlock_owner(registry_lock())[0] != 0


def keep_from_joining(thread: Any) -> None:
    """Until :func:`end`, those who join the thread wait. The interpreter of a forked child has released the lock, because it
    has deleted the states of all other threads."""
    lock = thread.__dict__.get("_tstate_lock")
    if lock is not None:
        lock.acquire(blocking=False)


def end(thread: Any) -> None:
    """In the new thread, last of all: those who join it go on. The handle tells its end by itself."""
    lock = thread.__dict__.get("_tstate_lock")
    if lock is not None and lock.locked():
        lock.release()


running_count: Callable[[], int] = _thread._count
"""How many threads run that Python code has started; takes no lock."""


def rlock_owner(lock: Any) -> tuple[int, int]:
    """(identifier of the thread that holds the reentrant lock, how many times); (0, 0): it is free. All versions."""
    found = _OWNER.search(repr(lock))
    return (int(found[1]), int(found[2])) if found else (0, 0)


NO_THREAD = 1
"""No thread has this identifier: they are addresses of structures."""


def own_rlock(lock: Any, owner: int, times: int) -> None:
    """Have a thread hold a free reentrant lock; from any thread."""
    lock._acquire_restore((times, owner))


def values_of(local: Any, key: Any) -> dict[str, Any] | None:
    """The attributes that an object of ``threading.local`` has in a thread; None: the thread has not used it.

    ``key``: :func:`ckpt.image.frames._frames.thread_values`, of that thread. Until 3.12: a dictionary, which holds a dummy
    under the object's address; the object has a dictionary by weak references to dummies. Since 3.13: the dummy itself, by
    which the object has a dictionary, and what must not end before that is read.
    """
    if key is None:
        return None
    is_by_address = type(key) is dict
    dummy = key.get(f"thread.local.{id(local):#x}") if is_by_address else key[0]
    if dummy is None:
        return None
    for table in gc.get_referents(local):
        if type(table) is dict:
            for found, values in table.items():
                if (found() if is_by_address and callable(found) else found) is dummy:
                    return values  # type: ignore[no-any-return]
    return None


# ---------------------------------------------------------------------- queues that hand over

_STACK_BYTES = 1 << 16


def hands_over(awaited: Any) -> bool:
    """Does this object give an item to a thread that waits in its ``get``? Where a ``SimpleQueue`` is a ring, ``put`` does:
    the item is in no queue any more, but on the C stack of a thread that waits for the interpreter's lock next."""
    return interpreter.QUEUES_ARE_RINGS and type(awaited) is accelerators.SimpleQueue


def has_been_woken(system_call: str) -> bool:
    """Of a thread in such a ``get``, by :func:`ckpt.image.frames._frames.system_call`. Until it is given an item, it waits
    in the kernel for a word on its own C stack (``_PyParkingLot_Park``)."""
    number, *fields = system_call.split()
    if not number.isdigit() or len(fields) < 3:
        return True  # it runs
    word, stack = int(fields[0], 16), int(fields[-2], 16)
    return not 0 <= word - stack < _STACK_BYTES


# ---------------------------------------------------------------------- connections of sqlite3


@functools.cache
def _sqlite_offsets() -> tuple[int, int] | None:
    """Where in a ``sqlite3.Connection`` the number is that says whether its thread is compared, and where the identifier of
    that thread (``check_same_thread``, ``thread_ident``; all versions), found by two connections that differ in the
    former. None: not found."""
    import sqlite3

    made = [sqlite3.connect(":memory:", check_same_thread=is_checked) for is_checked in (True, False)]
    checked, free = (ctypes.string_at(id(each), sqlite3.Connection.__basicsize__) for each in made)
    for each in made:
        each.close()
    one, zero, ident = struct.pack("=i", 1), struct.pack("=i", 0), struct.pack("=Q", threading.get_ident())
    flags = [
        at for at in range(0, len(free) - 3, 4) if (checked[at : at + 4], free[at : at + 4]) == (one, zero)
    ]
    idents = [at for at in range(0, len(free) - 7, 8) if checked[at : at + 8] == free[at : at + 8] == ident]
    return (flags[0], idents[0]) if len(flags) == len(idents) == 1 else None


def sqlite_owner(connection: Any) -> tuple[int, bool] | None:
    """The thread that a ``sqlite3.Connection`` was made in, and whether others are refused; None: that cannot be read."""
    offsets = _sqlite_offsets()
    if offsets is None:
        return None
    flag, ident = offsets
    is_checked = ctypes.c_int.from_address(id(connection) + flag).value
    return ctypes.c_ulong.from_address(id(connection) + ident).value, bool(is_checked)


def own_sqlite(connection: Any) -> None:
    """From now on the connection is one that this thread has made."""
    offsets = _sqlite_offsets()
    if offsets is not None:
        ctypes.c_ulong.from_address(id(connection) + offsets[1]).value = threading.get_ident()


# ---------------------------------------------------------------------- concurrent.futures


def _pool_queues() -> Any:
    import sys

    return getattr(sys.modules.get("concurrent.futures.thread"), "_threads_queues", None)


def pool_queue(thread: threading.Thread) -> Any:
    """The queue from which a thread of a ``ThreadPoolExecutor`` takes its work; None: it is none. At the program's end each
    such thread is told through its queue to leave (``_threads_queues``; all versions)."""
    queues = _pool_queues()
    return None if queues is None else queues.get(thread)


def put_pool_queue(thread: threading.Thread, queue: Any) -> None:
    """Enter the thread in that table again. The module has been imported."""
    _pool_queues()[thread] = queue

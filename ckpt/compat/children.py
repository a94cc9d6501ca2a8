"""Private names of ``subprocess``, which tell whether a child process was started, and which method waits for its end; and
of what ``multiprocessing`` shares with its child processes: semaphores and memory.

For a new minor version: do these methods of ``Popen`` still wait, and no others? Do ``Condition``, ``Event``, ``Arena`` and
the wrappers of ``Value`` and ``Array`` still consist of the parts that are named here?
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Callable, Container, Iterable
from typing import Any

__all__ = [
    "CHILD_WAITS",
    "SEMAPHORE_MOMENTS",
    "TRACKER_MOMENTS",
    "children_started",
    "disown_child",
    "fill_arena",
    "finalizers_of_queue",
    "has_state_after_fork",
    "follow_instances",
    "forget_fork_server",
    "is_held_elsewhere",
    "is_in_use",
    "is_served",
    "lock_of",
    "manager_runs",
    "map_of_arena",
    "map_of_block",
    "method_of",
    "owner_of_semaphore",
    "parts_of_event",
    "parts_of_synchronized",
    "pids_started",
    "proxy_is_served",
    "register_finalizers",
    "register_queue",
    "semaphore_of",
    "semaphore_value",
    "semaphores",
    "share_types",
    "shared_types",
    "times_semaphore_owned",
    "type_of_semaphores",
    "track_shared_memory",
    "tracker_in_use",
    "was_started",
]

CHILD_WAITS = ("communicate", "_communicate", "wait", "_wait", "_try_wait")
"""Methods of ``subprocess.Popen`` in which a program waits for its child."""


def was_started(child: Any) -> bool:
    """Has a ``subprocess.Popen`` started a child process? One whose ``__init__`` has failed has not."""
    return bool(getattr(child, "_child_created", True))


def disown_child(child: Any) -> None:
    """Another ``subprocess.Popen`` stands for the process now: the end of this object is not to warn of it."""
    child._child_created = False


# ---------------------------------------------------------------------- multiprocessing


def children_started() -> list[Any]:
    """The processes that this one has started by ``multiprocessing`` and has not waited for."""
    module = sys.modules.get("multiprocessing.process")
    return [] if module is None else list(module._children)


def finalizers_of_queue(queue: Any) -> list[Any]:
    """Those of its finalizers that are to be called at the end of the process, or by its own methods (all versions)."""
    registry = getattr(sys.modules.get("multiprocessing.util"), "_finalizer_registry", {})
    found = [queue.__dict__.get(name) for name in ("_close", "_jointhread")]
    return [each for each in found if each is not None and registry.get(each._key) is each]


def has_state_after_fork(queue: Any) -> bool:
    """Is it a ``Queue``, which begins anew in a forked child? A ``SimpleQueue`` does not."""
    return hasattr(type(queue), "_after_fork")


def is_served(queue: Any, threads: Container[int | None]) -> bool:
    """Is the thread that writes what has been put into a ``Queue`` one of these, or is there none?"""
    thread = getattr(queue, "_thread", None)
    return thread is None or queue._closed or thread.ident in threads


def register_queue(queue: Any, finalizers: list[Any]) -> None:
    """In a new process: a forked child has no thread of the queue, and its finalizers are to be called, again."""
    sys.modules["multiprocessing.util"].register_after_fork(queue, type(queue)._after_fork)
    register_finalizers(finalizers)


def register_finalizers(finalizers: list[Any]) -> None:
    """In a new process: they are to be called, again."""
    util = sys.modules["multiprocessing.util"]
    for finalizer in finalizers:
        finalizer._pid = os.getpid()
        finalizer._key = (finalizer._key[0], next(util._finalizer_counter))
        util._finalizer_registry[finalizer._key] = finalizer


def pids_started() -> list[int]:
    """The numbers of these processes."""
    return [process._popen.pid for process in children_started() if process._popen is not None]


def manager_runs(manager: Any) -> bool:
    """Has this ``BaseManager`` of ``multiprocessing.managers`` been started, and not been shut down? All versions."""
    return bool(manager._state.value == sys.modules["multiprocessing.managers"].State.STARTED)


def proxy_is_served(proxy: Any) -> bool:
    """May the manager of this ``BaseProxy`` run? Of one that came from another process only the address is known: a file, or
    one of TCP, where somebody may listen."""
    if proxy._manager is not None:
        return manager_runs(proxy._manager)
    address = proxy._token.address
    return not isinstance(address, str) or address.startswith("\0") or os.path.exists(address)


SEMAPHORE_MOMENTS = (
    ("multiprocessing.synchronize:SemLock.__init__", "a semaphore of multiprocessing is being made"),
    ("multiprocessing.synchronize:SemLock._cleanup", "a semaphore of multiprocessing is being removed"),
)
TRACKER_MOMENTS = tuple(
    (
        f"multiprocessing.resource_tracker:ResourceTracker.{name}",
        "the resource tracker of multiprocessing is in use",
    )
    for name in ("ensure_running", "getfd", "_send", "_stop")
)
"""Functions that no image is taken in, as ``Library.transient_functions``."""


def semaphores() -> Iterable[Any]:
    """The locks and semaphores of ``multiprocessing.synchronize`` in this process."""
    kind = sys.modules["multiprocessing.synchronize"].SemLock
    registered = list(sys.modules["multiprocessing.util"]._afterfork_registry.values())
    return [obj for obj in registered if isinstance(obj, kind)]


def semaphore_of(lock: Any) -> Any:
    """The semaphore in C behind a lock of ``multiprocessing.synchronize``: ``kind``, ``maxvalue`` and more; all versions."""
    return lock._semlock


def times_semaphore_owned(semaphore: Any) -> int:
    """How many times more this process has acquired the semaphore than it has released it, whichever of its threads has; of
    a recursive lock, this thread."""
    return 0 if is_held_elsewhere(semaphore) else int(semaphore._count())


def is_held_elsewhere(semaphore: Any) -> bool:
    """Does another thread hold this lock, which only that thread may release (``RLock``)?"""
    is_recursive = semaphore.kind == sys.modules["multiprocessing.synchronize"].RECURSIVE_MUTEX
    return is_recursive and semaphore._count() > 0 and not semaphore._is_mine()


def type_of_semaphores() -> type:
    """The type of semaphores in C."""
    found: type = sys.modules["multiprocessing.synchronize"]._multiprocessing.SemLock
    return found


def owner_of_semaphore(semaphore: Any) -> Any:
    """The lock of ``multiprocessing.synchronize`` to which a semaphore in C belongs; None: none in this process."""
    return next((lock for lock in semaphores() if lock._semlock is semaphore), None)


def semaphore_value(semaphore: Any) -> int:
    """How many times the semaphore can still be acquired."""
    return int(semaphore._get_value())


def method_of(lock: Any) -> str:
    """A start method whose processes may share this lock: of another kind of process it would be refused."""
    return "fork" if getattr(lock, "_is_fork_ctx", True) else "spawn"


def lock_of(condition: Any) -> Any:
    """The lock of a ``Condition``."""
    return condition._lock


def parts_of_event(event: Any) -> tuple[Any, Any]:
    """The lock of an ``Event``, and the semaphore that says whether it is set."""
    return event._cond._lock, event._flag


def parts_of_synchronized(wrapper: Any) -> tuple[Any, Any]:
    """What a ``Value`` or an ``Array`` wraps, and its lock."""
    return wrapper._obj, wrapper._lock


def map_of_arena(arena: Any) -> tuple[int, Any]:
    """The descriptor and the mapping of an ``Arena``, the memory of ``Value`` and ``Array``; None: it is being made."""
    return getattr(arena, "fd", -1), getattr(arena, "buffer", None)


def is_in_use(arena: Any) -> bool:
    """Is a ``Value`` or the like in this ``Arena``? True also of one that a former process had."""
    heap = sys.modules["multiprocessing.heap"].BufferWrapper._heap
    return arena not in heap._arenas or bool(heap._allocated_blocks.get(arena))


def fill_arena(arena: Any, fd: int, mapped: Any) -> None:
    """Give an ``Arena`` its descriptor, which it closes at its end, and its mapping."""
    from multiprocessing import util

    arena.size, arena.fd, arena.buffer = len(mapped), fd, mapped
    util.Finalize(arena, os.close, (fd,))


def shared_types() -> list[type]:
    """The types of ctypes of which ``Value`` and ``Array`` have been made: child processes get objects of them as shared."""
    names = sys.modules["multiprocessing.sharedctypes"]
    return [
        cls for cls, reduce in names._ForkingPickler._extra_reducers.items() if reduce is names.reduce_ctype
    ]


def share_types(types: Iterable[type]) -> None:
    """Let child processes get objects of these types as shared, not as copies."""
    names = sys.modules["multiprocessing.sharedctypes"]
    for cls in types:
        names._ForkingPickler.register(cls, names.reduce_ctype)


def map_of_block(block: Any) -> Any:
    """The mapping of a ``SharedMemory``; None: it is closed."""
    return getattr(block, "_mmap", None)


def follow_instances(cls: Any, tell: Callable[[Any], None]) -> None:
    """From now on, ``tell(obj)`` is called for each new object of the class, before its ``__init__``."""
    plain = cls.__init__
    if hasattr(plain, "is_followed"):
        return

    @functools.wraps(plain)
    def init(self: Any, *args: Any, **options: Any) -> None:
        tell(self)
        plain(self, *args, **options)

    init.is_followed = True  # type: ignore[attr-defined]
    cls.__init__ = init


def track_shared_memory(block: Any) -> None:
    """Register an open block with the resource tracker, as ``SharedMemory`` does unless told otherwise (``track``, since
    3.13)."""
    if block.buf is not None and getattr(block, "_track", True):
        from multiprocessing import resource_tracker

        resource_tracker.register(block._name, "shared_memory")


def tracker_in_use(module: str = "multiprocessing.resource_tracker") -> tuple[set[int], set[int]]:
    """Process and descriptor of the resource tracker, which ``multiprocessing`` starts when it needs one."""
    tracker = getattr(sys.modules.get(module), "_resource_tracker", None)
    pid, fd = getattr(tracker, "_pid", None), getattr(tracker, "_fd", None)
    return {pid} if pid is not None else set(), {fd} if fd is not None else set()


def forget_fork_server(module: Any) -> None:
    """Let ``multiprocessing.forkserver`` start another server when it needs one, unless this process has the one that it
    knows as its child. Its descriptor may have become that of another file."""
    server = module._forkserver
    with contextlib.suppress(ChildProcessError):
        if server._forkserver_pid is None or os.waitpid(server._forkserver_pid, os.WNOHANG)[0] == 0:
            return
    server._forkserver_pid = server._forkserver_alive_fd = server._forkserver_address = None

"""Child processes, and objects that processes share. An image holds one process only.

A running child is refused by name: after a restart, nobody would wait for the right process. One that the program has
registered is started again by it (:mod:`ckpt.image.stdlib.registered_children`). A child that has ended is an
ordinary object. The locks of ``multiprocessing`` are saved with what the program itself holds of them: without
children they are like other locks, and many libraries make one in case they need it. What else is made of semaphores:
:mod:`ckpt.image.handles.semaphores`.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

from ckpt.compat.children import (
    is_held_elsewhere,
    method_of,
    owner_of_semaphore,
    semaphore_of,
    times_semaphore_owned,
    type_of_semaphores,
    was_started,
)
from ckpt.compat.worker_pools import adopt, is_child
from ckpt.image.errors import ObjectRefused
from ckpt.image.reducers.rebuild import make_instance
from ckpt.image.stdlib.registered_children import is_expected

__all__ = ["reducers"]


def reducers() -> dict[type, Any]:
    """Reducers by exact type, for the modules that have been imported."""
    found: dict[type, Any] = {}
    if "subprocess" in sys.modules:
        found[sys.modules["subprocess"].Popen] = reduce_child
    for package in ("multiprocessing", "multiprocess"):  # the latter is a copy of it, which pathos uses
        if f"{package}.popen_fork" in sys.modules:
            found[sys.modules[f"{package}.popen_fork"].Popen] = reduce_child
        if f"{package}.process" in sys.modules:
            found[sys.modules[f"{package}.process"].AuthenticationString] = reduce_key
        if synchronize := sys.modules.get(f"{package}.synchronize"):
            for name in ("Lock", "RLock", "BoundedSemaphore"):
                found[getattr(synchronize, name)] = reduce_lock
            if package == "multiprocessing":
                found[type_of_semaphores()] = reduce_semaphore
    return found


_REMEDIES = {
    True: "let it end before (subprocess.run), or say how it is started again: ckpt.register_child(process, start)",
    False: "let it end before, or use multiprocessing.Pool or concurrent.futures, whose processes are started anew",
}


def reduce_child(pickler: Any, child: Any) -> Any:
    from ckpt.image.reducers.raw_instances import reduce_raw

    if child.returncode is None and is_expected(child):
        return make_instance, (type(child),), {"args": child.args, "returncode": None, "pid": child.pid}
    if child.returncode is None and was_started(child):
        package = type(child).__module__.partition(".")[0]
        command = getattr(child, "args", f"a process of {package}")
        raise ObjectRefused(
            child,
            f"the child process {getattr(child, 'pid', '')} ({command}) is running, and cannot be part of an image: "
            f"checkpoints wait until it has ended and was waited for; {_REMEDIES[package == 'subprocess']}",
        )
    return reduce_raw(pickler, child)


def reduce_process(pickler: Any, process: Any) -> Any:
    """One that runs is refused by what it holds (:func:`reduce_child`)."""
    from ckpt.image.reducers.raw_instances import reduce_raw

    if is_child(process):
        pickler.defer(adopt, process)
    return reduce_raw(pickler, process)


def reduce_key(pickler: Any, key: bytes) -> Any:
    """``multiprocessing`` forbids to pickle its keys, which would go to other processes; images are private to the job."""
    return type(key), (bytes(memoryview(key)),)


def reduce_lock(pickler: Any, lock: Any) -> Any:
    """The semaphore is in memory that parent and forked child share, so its value here is that of a later moment. How many
    times this process has acquired it is not shared. That number is enough for a lock that can be acquired once, or whose
    first value is known. What child processes hold is free after a restart, which they do not live to see.
    """
    semaphore = semaphore_of(lock)
    if is_held_elsewhere(semaphore):
        raise ObjectRefused(
            lock,
            "another thread holds this lock of multiprocessing (RLock); the image is made when it does not",
        )
    times = times_semaphore_owned(semaphore)
    return make_lock, (
        type(lock),
        semaphore.kind,
        semaphore.maxvalue,
        semaphore.maxvalue,
        times,
        method_of(lock),
    )


def reduce_semaphore(pickler: Any, semaphore: Any) -> Any:
    """The semaphore in C, of which a function holds a method (``acquire = lock.acquire``)."""
    owner = owner_of_semaphore(semaphore)
    return NotImplemented if owner is None else (semaphore_of, (owner,))


# ---------------------------------------------------------------------- called while loading


def make_lock(cls: type, kind: int, value: int, maximum: int, times: int, method: str) -> Any:
    made: Any = object.__new__(cls)
    package = importlib.import_module(cls.__module__.partition(".")[0])
    importlib.import_module(cls.__module__).SemLock.__init__(
        made, kind, value, maximum, ctx=package.get_context(method)
    )
    for _ in range(times):
        made.acquire()
    return made

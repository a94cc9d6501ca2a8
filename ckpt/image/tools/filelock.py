"""filelock: locks as objects, held over a restart.

The kernel's lock is taken again by :mod:`ckpt.image.files.file_locks`. But from its fourth version on, the package records
which process has made a lock object, and in another process the object neither acquires nor releases. So after a restart the
new process is entered as the one that has made the object.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from ckpt.image.interface.library import Library, Reducer, by_name
from ckpt.image.reducers.raw_instances import reduce_raw

__all__ = ["FileLock"]


class FileLock(Library):
    def reducers(self) -> dict[type, Reducer]:
        return by_name("filelock", {"UnixFileLock": reduce_lock, "SoftFileLock": reduce_lock})


def reduce_lock(pickler: Any, lock: Any) -> Any:
    pickler.defer(adopt, lock)
    return reduce_raw(pickler, lock)


# ---------------------------------------------------------------------- called while loading


def adopt(lock: Any) -> None:
    if getattr(lock, "_creator_pid", None) is None:
        return
    lock._creator_pid = os.getpid()
    live_locks = _of_the_module(lock, "LIVE_LOCKS", "_LIVE_LOCKS")
    if live_locks is not None:
        live_locks[id(lock)] = lock
    register = _of_the_module(lock, "register_fork_object")
    if register is not None:
        register(lock)
    context: Any = getattr(lock, "_context", None)
    if getattr(context, "lock_file_fd_token", None) is not None and hasattr(
        lock, "_register_context_descriptor"
    ):
        context.lock_file_fd_token = None  # it was an entry in a table of the former process
        lock._register_context_descriptor()


def _of_the_module(lock: Any, *names: str) -> Any:
    """The variable of one of these names, in the modules of the lock's classes: releases differ in modules and names. None:
    this release has none."""
    modules = [
        sys.modules.get(cls.__module__)
        for cls in type(lock).__mro__
        if cls.__module__.startswith("filelock.")
    ]
    found = (getattr(module, name, None) for module in modules for name in names)
    return next((value for value in found if value is not None), None)

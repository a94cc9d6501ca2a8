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
    api = sys.modules["filelock._api"]
    lock._creator_pid = os.getpid()
    if hasattr(api, "_LIVE_LOCKS"):
        api._LIVE_LOCKS[id(lock)] = lock
    if hasattr(api, "register_fork_object"):
        api.register_fork_object(lock)
    context: Any = getattr(lock, "_context", None)
    if getattr(context, "lock_file_fd_token", None) is not None and hasattr(
        lock, "_register_context_descriptor"
    ):
        context.lock_file_fd_token = None  # it was an entry in a table of the former process
        lock._register_context_descriptor()

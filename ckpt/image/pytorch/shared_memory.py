"""Memory that workers of a ``DataLoader`` share with the main process: each batch comes in it, without being copied.

An image is written by a forked child while the program goes on, so memory that the program shares with others cannot be in
it. But a worker gives a batch away: from then on only the main process uses it. So the memory of a batch that has come is
mapped anew at the same address, as the process's own (``MAP_PRIVATE``): nothing is copied, but the pages that the program
writes to later. torch keeps a descriptor of the file to close it; that number becomes one of ``/dev/null``, opened by
``O_PATH``, which no image has.

A batch that the program itself gives to another process is copied first, because its memory is no longer the file's.

Not here: memory that is shared on purpose (``share_memory_()``), which images refuse by name.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import mmap
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["put_between", "receiving"]

_REDUCTIONS = "torch.multiprocessing.reductions"
_MAP_FIXED = 0x10


class _State(threading.local):
    is_receiving = False


_state = _State()


@contextmanager
def receiving() -> Iterator[None]:
    """A context in which this thread unpickles what a worker of a loader has sent."""
    _state.is_receiving = True
    try:
        yield
    finally:
        _state.is_receiving = False


def put_between() -> None:
    """From now on, memory that comes from a worker becomes the process's own."""
    reductions: Any = importlib.import_module(_REDUCTIONS)
    pickler: Any = importlib.import_module("multiprocessing.reduction").ForkingPickler
    rebuild, reduce = reductions.rebuild_storage_fd, reductions.reduce_storage

    @functools.wraps(rebuild)
    def rebuild_storage_fd(cls: Any, df: Any, size: int) -> Any:
        storage = rebuild(cls, df, size)
        if _state.is_receiving and not _is_own(storage):
            _make_own(storage)
        return storage

    @functools.wraps(reduce)
    def reduce_storage(storage: Any) -> Any:
        return reduce(storage.clone() if _is_own(storage) else storage)

    reductions.rebuild_storage_fd, reductions.reduce_storage = rebuild_storage_fd, reduce_storage
    for cls, registered in list(pickler._extra_reducers.items()):
        if registered is reduce:
            pickler.register(cls, reduce_storage)


def _is_own(storage: Any) -> bool:
    """Was it made the process's own? Shared memory has the descriptor of its file."""
    if storage.device.type != "cpu" or not storage.is_shared():
        return False
    try:
        return os.readlink(f"/proc/self/fd/{storage._share_fd_cpu_()[0]}") == os.devnull
    except OSError:
        return False


def _make_own(storage: Any) -> None:
    """Raises OSError: no memory can be mapped; the storage is as it was."""
    fd, nbytes = storage._share_fd_cpu_()
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = (
        *(ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long),
    )
    address = storage.data_ptr()
    protection = mmap.PROT_READ | mmap.PROT_WRITE
    mapped = libc.mmap(address, nbytes, protection, mmap.MAP_PRIVATE | _MAP_FIXED, fd, 0)
    if mapped != address:
        raise OSError(ctypes.get_errno(), "the memory of a batch of a DataLoader cannot be mapped")
    nothing = os.open(os.devnull, os.O_PATH | os.O_CLOEXEC)
    try:
        os.dup2(nothing, fd, inheritable=False)
    finally:
        os.close(nothing)

"""Files of the host's memory, mapped without a descriptor that stays open. (driver)

An image has the descriptors that are open when it is taken, and a restart opens their files again. These files are not there
any more after a restart on another host, or after a reboot: so no image may have one. `mmap.mmap` keeps a copy of the
descriptor for as long as it lives. Here a file is opened, mapped and closed in one call of C, in which no image is taken.

Not here: what lies in the files (calls.py, ckpt/reduction/copies.py).
"""

from __future__ import annotations

import ctypes
import mmap
import os
from typing import Any, Final

try:
    from ckpt.reduction.keeping import _keeper  # type: ignore[attr-defined]
except ImportError:  # an installation without a compiler
    _keeper = None


def _function(name: str, result: Any, *arguments: Any) -> Any:
    found = getattr(ctypes.CDLL(None, use_errno=True), name)
    found.restype, found.argtypes = result, arguments
    return found


_mmap = _function(
    "mmap",
    ctypes.c_void_p,
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int64,
)
_munmap = _function("munmap", ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t)
_NEW: Final = os.O_RDWR | os.O_CREAT | os.O_EXCL


class Mapping:
    """A file, mapped as long as this object or an array of its memory lives. No part of an image."""

    __slots__ = ("__array_interface__", "_address", "head", "nbytes", "path")

    def __init__(self, path: str, nbytes: int = 0) -> None:
        """`nbytes`: of a new file, which may be written to; 0: one that is there, to be read. Raises OSError: there is no
        such file, or there is already one, or no room, or it is shorter than its head."""
        self.path, self._address = path, 0
        found: tuple[int, int] = _mapped(path, nbytes) if _keeper is None else _keeper.map(path, nbytes)
        self._address, self.nbytes = found
        if self.nbytes < 16:
            raise OSError(f"{path} has {self.nbytes} bytes")
        self.head = (ctypes.c_uint64 * 2).from_address(self._address)
        self.__array_interface__ = {
            "version": 3,
            "typestr": "|u1",
            "shape": (self.nbytes,),
            "data": (self._address, not nbytes),
        }

    def __reduce__(self) -> Any:
        raise TypeError("memory of the host is no part of an image")

    def __del__(self) -> None:
        if self._address:
            _munmap(self._address, self.nbytes)

    def view(self) -> memoryview:
        """Its bytes, which must not be used when this object is gone."""
        return memoryview((ctypes.c_ubyte * self.nbytes).from_address(self._address)).cast("B")


def _mapped(path: str, nbytes: int) -> tuple[int, int]:
    descriptor = os.open(path, (_NEW if nbytes else os.O_RDONLY) | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    protection = mmap.PROT_READ | (mmap.PROT_WRITE if nbytes else 0)
    try:
        if nbytes:
            os.posix_fallocate(descriptor, 0, nbytes)  # else a full memory would be a SIGBUS later
        size = nbytes or os.fstat(descriptor).st_size
        address = _mmap(None, size, protection, mmap.MAP_SHARED, descriptor, 0)
        if address in (None, ctypes.c_void_p(-1).value):
            code = ctypes.get_errno()
            raise OSError(code, f"cannot map {path}: {os.strerror(code)}")
        return address, size
    except OSError:
        if nbytes:
            os.unlink(path)
        raise
    finally:
        os.close(descriptor)

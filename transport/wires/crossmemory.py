"""Reading the memory of another process of this host: `process_vm_readv(2)`, and nothing else. (driver)

One copy instead of two, and no system call of the process that is read. The kernel allows it where it would allow
a debugger: same user, no larger capabilities, and no security module that says no. Yama's mode 1 (`ptrace_scope`,
common on desktops) asks the process that is read for its consent: `consent`.

Process ids are used again, so whoever is read shows a *badge*: random bytes at an address of its own, read by the
same system call before the data. A process that is not the one meant has other bytes there, or nothing.

What does not belong here: frames, ranks, sockets.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
from typing import Any, Final

BADGE_BYTES: Final = 16
_PR_SET_PTRACER: Final = 0x59616D61
_PTRACER_ANY: Final = ctypes.c_ulong(-1)


class _Iovec(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


class _View(ctypes.Structure):
    """`Py_buffer` of the C API (its layout is part of the stable ABI since CPython 3.11)."""

    _fields_ = (
        ("buf", ctypes.c_void_p),
        ("obj", ctypes.py_object),
        ("len", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t),
        ("readonly", ctypes.c_int),
        ("ndim", ctypes.c_int),
        ("format", ctypes.c_char_p),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("suboffsets", ctypes.c_void_p),
        ("internal", ctypes.c_void_p),
    )


def _system_call() -> Any:
    try:
        call = ctypes.CDLL(None, use_errno=True).process_vm_readv
    except (AttributeError, OSError):
        return None
    call.restype = ctypes.c_ssize_t
    call.argtypes = (
        ctypes.c_int,
        ctypes.c_void_p,
        ctypes.c_ulong,
        ctypes.c_void_p,
        ctypes.c_ulong,
        ctypes.c_ulong,
    )
    return call


_read = _system_call()

if sys.implementation.name == "cpython":
    # Our own: what is said of the functions of ctypes.pythonapi holds for the program, too.
    _python = ctypes.PyDLL(None)
    _get_buffer = _python.PyObject_GetBuffer
    _get_buffer.argtypes = (ctypes.py_object, ctypes.POINTER(_View), ctypes.c_int)
    _release_buffer = _python.PyBuffer_Release
    _release_buffer.argtypes = (ctypes.POINTER(_View),)
    _release_buffer.restype = None
else:
    _read = None


def available() -> bool:
    """Does this system have the call? Whether a certain process may be read, only `Reader.read` tells."""
    return _read is not None


def consent() -> None:
    """Let any process of this user read this one where Yama asks for that; elsewhere without effect."""
    prctl = ctypes.CDLL(None).prctl
    prctl(_PR_SET_PTRACER, _PTRACER_ANY, 0, 0, 0)


def address_of(buffer: Any) -> int:
    """Where the bytes of a contiguous buffer lie. Valid for as long as somebody keeps the buffer as it is."""
    view = _View()
    _get_buffer(buffer, ctypes.byref(view), 0)
    try:
        return int(view.buf or 0)
    finally:
        _release_buffer(ctypes.byref(view))


class Badge:
    """What shows others that this process is the one they mean: `packed` names process, address and bytes."""

    def __init__(self) -> None:
        self._bytes = ctypes.create_string_buffer(os.urandom(BADGE_BYTES), BADGE_BYTES)
        self.packed = _BADGE.pack(os.getpid(), ctypes.addressof(self._bytes), self._bytes.raw)


_BADGE = struct.Struct(f"<QQ{BADGE_BYTES}s")
PACKED_BADGE_BYTES: Final = _BADGE.size


class Reader:
    """Reads other processes. Keeps the little arrays that the call takes, so one per thread at a time."""

    def __init__(self) -> None:
        self._seen = ctypes.create_string_buffer(BADGE_BYTES)
        self._local = (_Iovec * 2)()
        self._local[0].base = ctypes.addressof(self._seen)
        self._local[0].length = BADGE_BYTES
        self._remote = (_Iovec * 2)()
        self._remote[0].length = BADGE_BYTES
        self._local_at = ctypes.addressof(self._local)
        self._remote_at = ctypes.addressof(self._remote)

    def read(self, badge: bytes, address: int, into: bytearray) -> None:
        """Fill `into` from `address` of the process that wears `badge` (packed).

        OSError: not allowed (EPERM), no such process (ESRCH), no such memory (EFAULT). ProcessLookupError also when
        the process has another badge.
        """
        pid, badge_at, expected = _BADGE.unpack(badge)
        nbytes = len(into)
        local, remote = self._local[1], self._remote[1]
        self._remote[0].base = badge_at
        remote.base, remote.length = address, nbytes
        local.base, local.length = (address_of(into), nbytes) if nbytes else (None, 0)
        done = _read(pid, self._local_at, 2, self._remote_at, 2, 0)
        if done < 0:
            code = ctypes.get_errno()
            raise OSError(code, f"cannot read process {pid}: {os.strerror(code)}")
        if done < BADGE_BYTES or self._seen.raw != expected:
            raise ProcessLookupError(f"process {pid} is another one by now")
        if done != BADGE_BYTES + nbytes:
            raise OSError(14, f"process {pid} has no {nbytes} bytes at {address:#x}")  # EFAULT

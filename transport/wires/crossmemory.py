"""Reads the memory of another process of this host by `process_vm_readv(2)`. (driver)

That is one copy instead of two, and no system call of the process whose memory is read. The kernel allows the call under
the rules of ptrace(2): same user, no larger capabilities, and no security module that forbids it. Yama's mode 1
(`ptrace_scope`, common on desktops) requires the consent of the process whose memory is read: `consent`.

The kernel gives process ids to new processes again. So each process has a *badge*: random bytes at an address of its
own, which the same system call reads before the data. Another process with the same id has other bytes there, or none.

What does not belong here: frames, ranks, sockets.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
from collections.abc import Sequence
from typing import Any, Final

BADGE_BYTES: Final = 16
_PR_SET_PTRACER: Final = 0x59616D61
_PTRACER_ANY: Final = ctypes.c_ulong(-1)


class _Iovec(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


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
    from ckpt.compat.memory import address_of as address_of
else:
    _read = None


def available() -> bool:
    """Does this system have the call? Whether the memory of a certain process may be read, only `Reader.read` tells."""
    return _read is not None


def consent() -> None:
    """Allow any process of this user to read this process's memory where Yama requires that; no effect elsewhere."""
    prctl = ctypes.CDLL(None).prctl
    prctl(_PR_SET_PTRACER, _PTRACER_ANY, 0, 0, 0)


def read_pairs(pid: int, pairs: Sequence[tuple[int, int, int]]) -> int:
    """Copy memory of process `pid` to this one's, in the order of `pairs`: address here, address there, bytes. Returns the
    number of bytes that were copied. Raises OSError, as `Reader.read`, if nothing was."""
    count = len(pairs)
    local, remote = (_Iovec * count)(), (_Iovec * count)()
    for at, (here, there, nbytes) in enumerate(pairs):
        local[at].base, local[at].length = here, nbytes
        remote[at].base, remote[at].length = there, nbytes
    done: int = _read(pid, ctypes.addressof(local), count, ctypes.addressof(remote), count, 0)
    if done < 0:
        raise _failure(pid)
    return done


def _failure(pid: int) -> OSError:
    code = ctypes.get_errno()
    return OSError(code, f"cannot read process {pid}: {os.strerror(code)}")


class Badge:
    """The badge of this process (see the module). `packed`: process id, address and random bytes, for other processes."""

    def __init__(self) -> None:
        self._bytes = ctypes.create_string_buffer(os.urandom(BADGE_BYTES), BADGE_BYTES)
        self.packed = _BADGE.pack(os.getpid(), ctypes.addressof(self._bytes), self._bytes.raw)


_BADGE = struct.Struct(f"<QQ{BADGE_BYTES}s")
PACKED_BADGE_BYTES: Final = _BADGE.size


class Published:
    """A number that other processes may read at its `address`. It grows only, and is 64 bits long."""

    def __init__(self, value: int) -> None:
        cell = ctypes.c_uint64(value)
        # touches less memory than an attribute of ctypes does: it is set while a program stands still
        self._cells = memoryview(cell).cast("B").cast("Q")
        self.address = ctypes.addressof(cell)

    @property
    def value(self) -> int:
        return self._cells[0]

    @value.setter
    def value(self, value: int) -> None:
        self._cells[0] = value


class Reader:
    """Reads memory of other processes. A Reader holds the argument arrays of the call: one thread uses it at a time."""

    def __init__(self) -> None:
        self._seen = ctypes.create_string_buffer(BADGE_BYTES)
        self._local = (_Iovec * 2)()
        self._local[0].base = ctypes.addressof(self._seen)
        self._local[0].length = BADGE_BYTES
        self._remote = (_Iovec * 2)()
        self._remote[0].length = BADGE_BYTES
        self._local_at = ctypes.addressof(self._local)
        self._remote_at = ctypes.addressof(self._remote)

    def read(self, badge: bytes, address: int, into: bytearray | memoryview) -> None:
        """Fill `into` (writable, of single bytes) from `address` in the process that has `badge` (packed).

        Raises OSError: not allowed (EPERM), no such process (ESRCH), no such memory (EFAULT). Raises ProcessLookupError
        also when the process has another badge. Raises struct.error when `badge` has another length.
        """
        pid, badge_at, expected = _BADGE.unpack(badge)
        nbytes = len(into)
        local, remote = self._local[1], self._remote[1]
        self._remote[0].base = badge_at
        remote.base, remote.length = address, nbytes
        local.base, local.length = (address_of(into), nbytes) if nbytes else (None, 0)
        done = _read(pid, self._local_at, 2, self._remote_at, 2, 0)
        if done < 0:
            raise _failure(pid)
        if done < BADGE_BYTES or self._seen.raw != expected:
            raise ProcessLookupError(f"process {pid} is another one by now")
        if done != BADGE_BYTES + nbytes:
            raise OSError(14, f"process {pid} has no {nbytes} bytes at {address:#x}")  # EFAULT

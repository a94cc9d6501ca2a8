"""Runs a command to which the kernel refuses some calls, as a sandbox does (seccomp): refusing.py NUMBER,… COMMAND …"""

from __future__ import annotations

import ctypes
import os
import struct
import sys

NUMBERS = {
    "x86_64": {"preadv2": 327, "sched_getaffinity": 204, "process_vm_readv": 310},
    "aarch64": {"preadv2": 286, "sched_getaffinity": 123, "process_vm_readv": 270},
}
_LOAD, _RETURN, _SKIP_UNLESS = 0x20, 0x06, 0x15
_REFUSE, _ALLOW = 0x50000, 0x7FFF0000
_EPERM = 1
_PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS, _MODE_FILTER = 22, 38, 2


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))


def refuse(numbers: list[int]) -> None:
    """From here on, in this process and all that come of it."""
    steps = [(_LOAD, 0, 0, 0)]
    for number in numbers:
        steps += [(_SKIP_UNLESS, 0, 1, number), (_RETURN, 0, 0, _REFUSE | _EPERM)]
    steps.append((_RETURN, 0, 0, _ALLOW))
    filters = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
    program = _Program(len(steps), ctypes.addressof(filters))
    libc = ctypes.CDLL(None, use_errno=True)
    for call in ((_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), (_PR_SET_SECCOMP, _MODE_FILTER, ctypes.byref(program))):
        if libc.prctl(*call):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


if __name__ == "__main__":
    refuse([int(number) for number in sys.argv[1].split(",")])
    os.execvp(sys.argv[2], sys.argv[2:])

"""More functions of `os` that take a descriptor of a file that the replicas of a rank write together: what copies into it,
and its mode. (driver)

    os.fchmod                          a change; `os.chmod` of such a number is the same
    os.sendfile, os.copy_file_range    each replica reads what is to be copied; to write it is a change like any other

Not here: reading, writing, positions (descriptors.py).
"""

from __future__ import annotations

import errno
import os
import stat
from typing import Any

from ckpt.redundancy.files import descriptors
from ckpt.redundancy.files.descriptors import GIVEN, TABLE, is_descriptor
from ckpt.redundancy.files.objects import ReplicaFile, numbers

__all__ = ["os_copy_file_range", "os_fchmod", "os_sendfile"]

COPY_BYTES = 8 << 20
"""More is not copied at once: these functions may copy less than they are asked for."""

_genuine_fchmod = os.fchmod
_genuine_sendfile = os.sendfile
_genuine_copy_file_range = os.copy_file_range


def os_fchmod(fd: Any, mode: int) -> None:
    """As `os.fchmod`."""
    if not is_descriptor(fd):
        return _genuine_fchmod(fd, mode)
    file: ReplicaFile = numbers.get(fd) or descriptors.of(fd)
    return file.set_mode(mode)


def os_sendfile(out_fd: Any, in_fd: Any, offset: int | None, count: int) -> int:
    """As `os.sendfile`."""
    if not is_descriptor(out_fd) and not is_descriptor(in_fd):
        return _genuine_sendfile(out_fd, in_fd, offset, count)
    out = _target(out_fd, "os.sendfile")
    _check_readable(in_fd)
    if count < 0 or (offset or 0) < 0:
        raise _failure(errno.EINVAL)
    if not out.writable():
        raise _failure(errno.EBADF)
    if out.mode.startswith("a"):
        raise _failure(errno.EINVAL)
    if _is_one(
        descriptors.os_fstat(in_fd), out.status()
    ):  # the kernel reads some of what it has just written
        raise descriptors.refusal("os.sendfile into the same file")
    return descriptors.os_write(out_fd, _piece(in_fd, offset, count))


def os_copy_file_range(
    src: Any, dst: Any, count: int, offset_src: int | None = None, offset_dst: int | None = None
) -> int:
    """As `os.copy_file_range`."""
    if not is_descriptor(dst) and not is_descriptor(src):
        return _genuine_copy_file_range(src, dst, count, offset_src, offset_dst)
    if count < 0:
        raise ValueError("negative value for 'count' not allowed")
    out = _target(dst, "os.copy_file_range")
    _check_readable(src)
    if not out.writable() or out.mode.startswith("a"):
        raise _failure(errno.EBADF)
    first = descriptors.os_lseek(src, 0, os.SEEK_CUR) if offset_src is None else offset_src
    into = out.tell() if offset_dst is None else offset_dst
    if first < 0 or into < 0:  # as the kernel has it, which adds without sign
        raise _failure(errno.EOVERFLOW if max(-first, -into) <= count else errno.EINVAL)
    here, there = descriptors.os_fstat(src), out.status()
    count = min(count, max(0, here.st_size - first))
    if _is_one(here, there) and abs(first - into) < count:
        raise _failure(errno.EINVAL)
    data = _piece(src, offset_src, count)
    if offset_dst is None:
        return descriptors.os_write(dst, data)
    return descriptors.os_pwrite(dst, data, offset_dst)


def _failure(number: int) -> OSError:
    return OSError(number, os.strerror(number))


def _is_one(one: os.stat_result, other: os.stat_result) -> bool:
    return (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)


def _target(number: Any, name: str) -> Any:
    """The file into which is copied. Raises NotReplicable for a descriptor of the kernel's."""
    if not is_descriptor(number) or (number not in TABLE.files and number in numbers):
        raise descriptors.refusal(name)
    return descriptors.of(number)


def _check_readable(number: Any) -> None:
    """Raises OSError for what cannot be copied."""
    if is_descriptor(number) and not descriptors.of(number).readable():
        raise _failure(errno.EBADF)
    mode = descriptors.os_fstat(number).st_mode
    if not stat.S_ISREG(mode):
        raise _failure(errno.EISDIR if stat.S_ISDIR(mode) else errno.EINVAL)


def _piece(number: Any, offset: int | None, count: int) -> bytes:
    length = min(count, COPY_BYTES)
    if offset is None:
        return descriptors.os_read(number, length)
    return descriptors.os_pread(number, length, offset)


GIVEN |= {
    _genuine_fchmod: os_fchmod,
    _genuine_sendfile: os_sendfile,
    _genuine_copy_file_range: os_copy_file_range,
}

"""Copies of the contents of files, and digests by which contents are known again.

Copies share their blocks with the file where the file system can do that (FICLONE), and have its holes.

Not here: which files are copied (:mod:`ckpt.undo.recorder`).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os

from blake3 import blake3

from ckpt.undo.allowance import Allowance

__all__ = ["copy_extents", "copy_file", "tail_digest", "tail_digest_of"]

_TAIL_BYTES = 4096
_FICLONE = 0x40049409  # linux/fs.h
_NO_CLONES = (errno.EOPNOTSUPP, errno.EXDEV, errno.EINVAL, errno.ENOTTY, errno.ENOSYS, errno.EPERM)


def tail_digest(path: str, nbytes: int) -> str:
    """Digest of the first bytes of a file and of the last ones before offset ``nbytes``; "": they cannot be read."""
    with contextlib.suppress(OSError):
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            return tail_digest_of(fd, nbytes)
        finally:
            os.close(fd)
    return ""


def tail_digest_of(fd: int, nbytes: int) -> str:
    """The same of an open file. Raises OSError."""
    start = max(0, nbytes - _TAIL_BYTES)
    head = os.pread(fd, min(_TAIL_BYTES, start), 0)
    return blake3(head + os.pread(fd, nbytes - start, start)).hexdigest(length=16)


def copy_file(source: str, target: str, fd: int = -1, allowance: Allowance | None = None) -> bool:
    """Copy the contents into a new file; holes stay holes, and blocks are shared where the file system can do that.

    ``fd``: a descriptor of the source, if there is one. Closing another descriptor would take the process its POSIX locks on
    the file (fcntl(2)), on which SQLite relies. ``allowance``: of bytes that are not shared. Returns False, and there is no
    copy: it does not suffice. Raises OSError.
    """
    if fd >= 0:
        offset = os.lseek(fd, 0, os.SEEK_CUR)
        try:
            return _copy(fd, target, allowance)
        finally:
            os.lseek(fd, offset, os.SEEK_SET)
    reading = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        return _copy(reading, target, allowance)
    finally:
        os.close(reading)


def _copy(reading: int, target: str, allowance: Allowance | None) -> bool:
    writing = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        fcntl.ioctl(writing, _FICLONE, reading)
        return True
    except OSError as failure:
        if failure.errno not in _NO_CLONES:
            raise
        status = os.fstat(reading)
        needed = min(status.st_size, status.st_blocks * 512)
        if allowance is not None and not allowance.take(needed):
            os.unlink(target)
            return False
        copied = copy_extents(reading, writing, status.st_size)
        if allowance is not None:
            allowance.give_back(needed - copied)
        return True
    finally:
        os.close(writing)


def copy_extents(reading: int, writing: int, nbytes: int) -> int:
    """Make the first ``nbytes`` of a file those of another one; its holes stay holes. Returns the bytes of data."""
    os.ftruncate(writing, 0)
    at = copied = 0
    while at < nbytes:
        try:
            start = os.lseek(reading, at, os.SEEK_DATA)
        except OSError as failure:
            if failure.errno == errno.ENXIO:  # a hole up to the end
                break
            raise
        at = min(os.lseek(reading, start, os.SEEK_HOLE), nbytes)
        while start < at:
            count = _copy_range(reading, writing, start, at - start)
            if not count:
                break
            start, copied = start + count, copied + count
    if os.fstat(writing).st_size != nbytes:  # a hole up to the end: not all file systems can make one (FAT)
        os.ftruncate(writing, nbytes)
    return copied


def _copy_range(reading: int, writing: int, offset: int, nbytes: int) -> int:
    try:
        return os.copy_file_range(reading, writing, nbytes, offset, offset)
    except OSError as failure:
        if failure.errno not in _NO_CLONES:
            raise
    return os.pwrite(writing, os.pread(reading, min(nbytes, 1 << 20), offset), offset)

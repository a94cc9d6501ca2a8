"""Copies of the contents of files, and digests by which contents are known again.

Copies share their blocks with the file where the file system can do that (FICLONE); then nothing is read, and the copy is
known again by its inode, length and time. All others have a digest, which is computed of what is written; so has a copy of a
block or less, since to write one is less work than to share it, or to ask.

Not here: which files are copied (:mod:`ckpt.undo.recorder`).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterable, Iterator

from blake3 import blake3

from ckpt.transport.records import NamedTuple
from ckpt.undo import _status
from ckpt.undo.allowance import Allowance
from ckpt.undo.records import Binding, status_of

__all__ = [
    "Copied",
    "content_digest",
    "copy_extents",
    "copy_file",
    "tail_digest",
    "tail_digest_of",
    "write_all",
]

_TAIL_BYTES = 4096
_BLOCK_BYTES = 1 << 18
_SMALL_BYTES = 4096
_ZEROS = bytes(_BLOCK_BYTES)
_FICLONE = 0x40049409  # linux/fs.h
_NO_CLONES = (errno.EOPNOTSUPP, errno.EXDEV, errno.EINVAL, errno.ENOTTY, errno.ENOSYS, errno.EPERM)


class Copied(NamedTuple):
    """By what a copy is known again: see :class:`ckpt.undo.records.Content`."""

    digest: str
    clone: Binding


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
    """As :func:`tail_digest`, of an open file. Raises OSError."""
    start = max(0, nbytes - _TAIL_BYTES)
    head = os.pread(fd, min(_TAIL_BYTES, start), 0)
    return blake3(head + os.pread(fd, nbytes - start, start)).hexdigest(length=16)


def copy_file(
    source: str, target: str, fd: int = -1, allowance: Allowance | None = None, start: int = 0
) -> Copied | None:
    """Copy the contents into a new file; holes stay holes, and blocks are shared where the file system can do that.

    ``fd``: a descriptor of the source, if there is one. Closing another descriptor would take the process its POSIX locks on
    the file (fcntl(2)), on which SQLite relies. ``allowance``: of bytes that are not shared. ``start``: what is before this
    offset is not needed. Returns None, and there is no copy: the allowance does not suffice. Raises OSError.
    """
    if fd >= 0:
        offset = os.lseek(fd, 0, os.SEEK_CUR)
        try:
            return _copy(fd, target, allowance, start)
        finally:
            os.lseek(fd, offset, os.SEEK_SET)
    reading = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        return _copy(reading, target, allowance, start)
    finally:
        os.close(reading)


def _copy(reading: int, target: str, allowance: Allowance | None, start: int) -> Copied | None:
    writing = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        status = os.fstat(reading)
        if status.st_size > _SMALL_BYTES and (clone := _clone(reading, writing)) is not None:
            return Copied("", clone)
        start = max(0, min(start, status.st_size) // _BLOCK_BYTES * _BLOCK_BYTES)  # as digests are computed
        needed = min(status.st_size - start, status.st_blocks * 512)
        if allowance is not None and not allowance.take(needed):
            os.unlink(target)
            return None
        copied, digest = _copy_blocks(reading, writing, status.st_size, start)
        if allowance is not None:
            allowance.give_back(max(0, needed - copied))
        return Copied(digest, None)
    finally:
        os.close(writing)


def _clone(reading: int, writing: int) -> Binding:
    """Make the empty file share all blocks of the other one. Returns what it is then; None: it cannot. Raises OSError."""
    try:
        fcntl.ioctl(writing, _FICLONE, reading)
    except OSError as failure:
        if failure.errno not in _NO_CLONES:
            raise
        return None
    found = _status.look_at(writing, "")
    return None if found is None else status_of(found)


def _copy_blocks(reading: int, writing: int, nbytes: int, first: int) -> tuple[int, str]:
    """Copy what is behind the offset ``first``. Returns how many bytes were written, and the digest of the copy."""
    digest, copied, end = _digest_begun(nbytes), 0, 0
    for offset, block in _blocks(reading, nbytes, first):
        digest.update(offset.to_bytes(8, "little"))
        digest.update(block)
        copied, end = copied + len(block), offset + len(block)
        write_all(writing, block, offset)
    if end != nbytes:
        _end_at(writing, nbytes)
    return copied, digest.hexdigest()


def write_all(fd: int, data: bytes | bytearray, offset: int) -> None:
    """Write all of it to this offset of the file. Raises OSError."""
    view = memoryview(data)
    while view:
        count = os.pwrite(fd, view, offset)
        view, offset = view[count:], offset + count


def content_digest(fd: int) -> str:
    """The digest of the contents of an open file: BLAKE3 of its length, and of each block of 256 KiB that is not all zeros,
    behind the block's offset. So holes need not be read, and it does not matter which zeros are holes. Raises OSError.
    """
    nbytes = os.fstat(fd).st_size
    digest = _digest_begun(nbytes)
    for offset, block in _blocks(fd, nbytes):
        digest.update(offset.to_bytes(8, "little"))
        digest.update(block)
    return digest.hexdigest()


def _digest_begun(nbytes: int) -> blake3:
    return blake3(nbytes.to_bytes(8, "little"))


def _blocks(fd: int, nbytes: int, first: int = 0) -> Iterable[tuple[int, bytes]]:
    """Offset and contents of each block that is not all zeros, within the first ``nbytes`` of a file; from the offset
    ``first`` on, at which a block begins."""
    if nbytes > _BLOCK_BYTES:
        return _many_blocks(fd, nbytes, first)
    block = _read(fd, nbytes, 0)
    return [(0, block)] if block != _ZEROS[:nbytes] else []


def _many_blocks(fd: int, nbytes: int, first: int) -> Iterator[tuple[int, bytes]]:
    for start, end in _data(fd, nbytes, first):
        for offset in range(start, end, _BLOCK_BYTES):
            size = min(_BLOCK_BYTES, nbytes - offset)
            block = _read(fd, size, offset)
            if block != _ZEROS[:size]:
                yield offset, block


def _read(fd: int, nbytes: int, offset: int) -> bytes:
    """What is missing, because the file has just been cut, are zeros: so much the copy has, too."""
    block = os.pread(fd, nbytes, offset)
    while len(block) < nbytes and (more := os.pread(fd, nbytes - len(block), offset + len(block))):
        block += more
    return block.ljust(nbytes, b"\0")


def _data(fd: int, nbytes: int, first: int) -> Iterator[tuple[int, int]]:
    """Where whole blocks with data begin and end, from the offset ``first`` on; none twice."""
    at = first
    while at < nbytes and (start := _seek(fd, at, os.SEEK_DATA)) is not None and start < nbytes:
        hole = _seek(fd, start, os.SEEK_HOLE)
        begin, at = max(at, start - start % _BLOCK_BYTES), nbytes if hole is None else min(hole, nbytes)
        at = min(at + -at % _BLOCK_BYTES, nbytes)
        yield begin, at


def _seek(fd: int, offset: int, whence: int) -> int | None:
    """None: there is nothing of that kind behind it."""
    try:
        return os.lseek(fd, offset, whence)
    except OSError as failure:
        if failure.errno == errno.ENXIO:
            return None
        raise


def copy_extents(reading: int, writing: int, nbytes: int, first: int = 0) -> None:
    """Make the first ``nbytes`` of a file those of another one, from the offset ``first`` on; its holes stay holes."""
    at = first
    if nbytes - first <= _SMALL_BYTES:  # less work than to look for holes, and to have the kernel copy
        block = os.pread(reading, nbytes - first, first)
        if len(block) == nbytes - first and block.strip(b"\0"):
            at += os.pwrite(writing, block, first)
    if at == first:
        os.ftruncate(writing, first)
    while at < nbytes and (start := _seek(reading, at, os.SEEK_DATA)) is not None:
        hole = _seek(reading, start, os.SEEK_HOLE)
        at = nbytes if hole is None else min(hole, nbytes)
        while start < at:
            count = _copy_range(reading, writing, start, at - start)
            if not count:
                break
            start += count
    _end_at(writing, nbytes)


def _end_at(writing: int, nbytes: int) -> None:
    """Make a file as long as that: with a hole, or with zeros where the file system cannot do that (FAT by FUSE)."""
    at = os.fstat(writing).st_size
    if at == nbytes:
        return
    try:
        os.ftruncate(writing, nbytes)
    except OSError as failure:
        if failure.errno not in _NO_CLONES:
            raise
        while at < nbytes:
            at += os.pwrite(writing, _ZEROS[: nbytes - at], at)


def _copy_range(reading: int, writing: int, offset: int, nbytes: int) -> int:
    try:
        return os.copy_file_range(reading, writing, nbytes, offset, offset)
    except OSError as failure:
        if failure.errno not in _NO_CLONES:
            raise
    return os.pwrite(writing, os.pread(reading, min(nbytes, 1 << 20), offset), offset)

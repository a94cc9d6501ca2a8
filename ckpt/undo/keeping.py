"""Before-images on disk: looks at files, keeps them, and writes the undo log of one rank and interval.

    JOB/undo/rank-00003/epoch-00000007-2/     one interval: rank, epoch of the checkpoint before it, incarnation
        log                                   one line a record: MAC, space, JSON
        1, 2, 3, …                            hard links and copies; their numbers stand in the records

A line is in the log before the change that it is about begins, in one write(2): a process that is killed leaves whole lines.
The MAC of a line covers the line before, too, so no line can be left out or changed unseen.

Copies share their blocks with the file where the file system can do that (FICLONE), and have its holes.

Not here: what needs to be kept (:mod:`ckpt.undo.recorder`).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import stat
import time
from collections.abc import Iterator

from blake3 import blake3

from ckpt.transport import jsontext
from ckpt.undo import _status
from ckpt.undo.errors import LogDamaged
from ckpt.undo.recorder import Keep, Operation, Recorder
from ckpt.undo.records import (
    Binding,
    Content,
    FileId,
    Name,
    Record,
    Status,
    Uncovered,
    from_plain,
    to_plain,
)

__all__ = ["LOG", "Keeper", "copy_file", "look", "read_log", "tail_digest"]

LOG = "log"
_MAC_DIGITS = 32
_TAIL_BYTES = 4096
_FICLONE = 0x40049409  # linux/fs.h
_NO_CLONES = (errno.EOPNOTSUPP, errno.EXDEV, errno.EINVAL, errno.ENOTTY, errno.ENOSYS, errno.EPERM)


def look(path: str) -> Binding:
    """What the path is bound to; a symbolic link is not followed. Raises OSError, but not for a path that does not exist."""
    found = _status.look(path)
    if found is None:
        return None
    target = os.readlink(path) if stat.S_ISLNK(found[3]) else ""
    return Status(FileId(*found[:3]), *found[3:], target)


class Keeper:
    """The undo log of one interval on disk; the recorder's interval begins with it.

    ``directory`` is made. ``key``: of the job. ``limit_bytes``: for all copies of this interval; a change that would need
    more is recorded as uncovered.
    """

    def __init__(self, directory: str, key: bytes, recorder: Recorder, *, limit_bytes: int) -> None:
        os.makedirs(directory, mode=0o700)
        recorder.begin(time.time_ns())
        self._directory = directory
        self._recorder = recorder
        self._key = _line_key(key)
        self._before = ""
        self._left_bytes = limit_bytes
        self._fd = os.open(
            os.path.join(directory, LOG),
            os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC,
            0o600,
        )

    def close(self) -> None:
        """The interval ends. Called again, it does nothing."""
        if self._fd < 0:
            return
        seen = {path: look(path) for path in self._recorder.paths()}
        self._write(self._recorder.end(seen, time.time_ns()))
        os.close(self._fd)
        self._fd = -1

    def before(self, operation: Operation) -> list[Uncovered]:
        """The operation is about to begin: keep what it needs. Returns what cannot be undone."""
        seen = {path: look(path) for path in self._recorder.paths(operation)}
        return self._write(self._recorder.before(operation, seen, time.time_ns()))

    def _write(self, due: list[Keep]) -> list[Uncovered]:
        uncovered: list[Uncovered] = []
        lines = bytearray()
        while due:
            keep = due.pop(0)
            try:
                record = self._keep(keep)
            except _Unlinkable as failure:
                due[:0] = self._recorder.unlinkable(keep, failure.status)
                continue
            except OSError as failure:
                record = Uncovered(keep.path, failure.strerror or str(failure), time.time_ns())
            if isinstance(record, Uncovered):
                uncovered.append(record)
            lines += self._line(record)
        if lines:
            os.write(self._fd, lines)
        return uncovered

    def _keep(self, keep: Keep) -> Record:
        record = keep.record
        if isinstance(record, Name) and record.kept:
            try:
                os.link(keep.path, self._path(record.kept), follow_symlinks=False)
            except OSError as failure:
                status = look(keep.path)
                if status is None:
                    return Uncovered(keep.path, "it has just been removed by another process", record.time_ns)
                raise _Unlinkable(status) from failure
        if isinstance(record, Content):
            if record.copy:
                if record.status.nbytes > self._left_bytes:
                    return Uncovered(keep.path, "the limit for copies of files is reached", record.time_ns)
                self._left_bytes -= copy_file(keep.path, self._path(record.copy))
            else:
                record = record._replace(tail=tail_digest(keep.path, record.status.nbytes))
        return record

    def _path(self, number: int) -> str:
        return os.path.join(self._directory, str(number))

    def _line(self, record: Record) -> bytes:
        text = json.dumps(to_plain(record), separators=(",", ":"))
        self._before = _mac(self._key, self._before, text)
        return f"{self._before} {text}\n".encode("ascii")


class _Unlinkable(Exception):
    def __init__(self, status: Status) -> None:
        super().__init__()
        self.status = status


def read_log(directory: str, key: bytes) -> Iterator[Record]:
    """The records of an interval, in the order of time. A last line that is not whole is left out: its change has not begun.

    Raises LogDamaged: a line does not verify. Raises OSError.
    """
    line_key, before = _line_key(key), ""
    path = os.path.join(directory, LOG)
    with open(path, "rb") as file:
        lines = file.read().split(b"\n")
    for number, line in enumerate(lines[:-1], 1):
        mac, text = line[:_MAC_DIGITS].decode("latin-1"), line[_MAC_DIGITS + 1 :].decode("latin-1")
        before = _mac(line_key, before, text)
        if before != mac:
            raise LogDamaged(f"line {number} does not verify", path=path)
        try:
            yield from_plain(jsontext.parse(text))
        except ValueError as failure:
            raise LogDamaged(f"line {number} verifies, and is no record ({failure})", path=path) from failure


def _line_key(key: bytes) -> bytes:
    return blake3(key, derive_key_context="checkpoint toolkit, undo log").digest()


def _mac(key: bytes, before: str, text: str) -> str:
    return blake3(f"{before} {text}".encode("latin-1"), key=key).hexdigest(length=_MAC_DIGITS // 2)


def tail_digest(path: str, nbytes: int) -> str:
    """Digest of the last bytes before offset ``nbytes``; "": they cannot be read."""
    with contextlib.suppress(OSError):
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            start = max(0, nbytes - _TAIL_BYTES)
            return blake3(os.pread(fd, nbytes - start, start)).hexdigest(length=16)
        finally:
            os.close(fd)
    return ""


def copy_file(source: str, target: str) -> int:
    """Copy the contents into a new file. Returns how many bytes this took. Raises OSError."""
    reading = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        writing = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            fcntl.ioctl(writing, _FICLONE, reading)
            return 0
        except OSError as failure:
            if failure.errno not in _NO_CLONES:
                raise
            return copy_extents(reading, writing, os.fstat(reading).st_size)
        finally:
            os.close(writing)
    finally:
        os.close(reading)


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
    os.ftruncate(writing, nbytes)
    return copied


def _copy_range(reading: int, writing: int, offset: int, nbytes: int) -> int:
    try:
        return os.copy_file_range(reading, writing, nbytes, offset, offset)
    except OSError as failure:
        if failure.errno not in _NO_CLONES:
            raise
    return os.pwrite(writing, os.pread(reading, min(nbytes, 1 << 20), offset), offset)

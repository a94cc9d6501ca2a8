"""Parallel files (`MPI.File`) of a program with replicas: what changes them, made once. (driver)

    opening, size, Sync, Delete     the program's calls: changes like any other (changes.py)
    writes                          requests to the rank that writes, of its own program and of others: the leader makes
                                    each when all replicas have come to it
                                    (:class:`ckpt.redundancy.agreement.requests.Serves`)
    reading                         each replica does it by itself

No descriptor is kept: a file is opened for each access, and has to be the one that was opened first. What was there before
is noted, as of all files (notes.py).

Not here: which pieces (ckpt/mpi/io), who agrees on what.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from typing import Any

from ckpt.layer import Buffer
from ckpt.redundancy.files.changes import STATE, change

__all__ = ["ReplicaDisk"]


class ReplicaDisk:
    """:class:`ckpt.layer.Disk` of this process."""

    def __init__(self) -> None:
        self._identities: dict[str, tuple[int, int]] = {}
        """By path, device and inode of the file that was opened; after an image has been loaded, of the one that is there
        then."""

    def create(self, path: str, flags: int, mode: int) -> None:
        """See the protocol."""
        is_new = bool(flags & os.O_EXCL)

        def act(seen: bool | None, again: bool) -> tuple[int, int]:
            if not os.path.exists(path):
                STATE.notes.name(os.path.realpath(path))
            given = flags & ~os.O_EXCL if again and seen is False else flags
            fd = os.open(path, given | os.O_CLOEXEC, mode)
            try:
                return _identity(fd)
            finally:
                os.close(fd)

        before = (lambda: os.path.lexists(path)) if is_new else None
        device, inode = change(f"open {path} (0o{flags:o})", act, before, by_library=True)
        self._identities[path] = device, inode

    def resize(self, path: str, nbytes: int) -> None:
        """See the protocol."""

        def act(seen: Any, again: bool) -> None:
            STATE.notes.content(path, nbytes)
            with _Opened(self, path) as fd:
                os.ftruncate(fd, nbytes)

        change(f"resize {path} to {nbytes}", act, by_library=True)

    def allocate(self, path: str, nbytes: int) -> None:
        """See the protocol."""

        def act(seen: Any, again: bool) -> None:
            with _Opened(self, path) as fd:
                STATE.notes.content(path, os.fstat(fd).st_size)
                if nbytes:
                    os.posix_fallocate(fd, 0, nbytes)

        change(f"allocate {nbytes} of {path}", act, by_library=True)

    def sync(self, path: str) -> None:
        """See the protocol."""

        def act(seen: Any, again: bool) -> None:
            with _Opened(self, path, os.O_RDONLY) as fd:
                os.fsync(fd)

        change(f"fsync {path}", act, by_library=True)

    def remove(self, path: str) -> None:
        """See the protocol."""

        def act(seen: bool, again: bool) -> None:
            STATE.notes.name(path)
            try:
                os.remove(path)
            except FileNotFoundError:
                if not (again and seen):
                    raise

        change(f"remove {path}", act, lambda: os.path.lexists(path), by_library=True)
        self._identities.pop(path, None)

    def write(self, path: str, ranges: Iterable[tuple[int, int]], data: Buffer) -> None:
        """See the protocol."""
        pieces, view = list(ranges), memoryview(data)
        STATE.notes.content(path, min((offset for offset, _ in pieces), default=0))
        with _Opened(self, path) as fd:
            for offset, nbytes in pieces:
                piece, view = view[:nbytes], view[nbytes:]
                while piece:
                    done = os.pwrite(fd, piece, offset)
                    piece, offset = piece[done:], offset + done

    def check(self, path: str, fd: int) -> None:
        """See the protocol."""
        if self._identities.setdefault(path, _identity(fd)) != _identity(fd):
            text = "replaced by another file while the program had it open, which replicas cannot follow"
            raise OSError(errno.ESTALE, text, path)


def _identity(fd: int) -> tuple[int, int]:
    status = os.fstat(fd)
    return status.st_dev, status.st_ino


class _Opened:
    """The file of one change, opened for it."""

    def __init__(self, disk: ReplicaDisk, path: str, flags: int = os.O_WRONLY) -> None:
        self._disk, self._path, self._flags = disk, path, flags

    def __enter__(self) -> int:
        self._fd = os.open(self._path, self._flags | os.O_CLOEXEC)
        try:
            self._disk.check(self._path, self._fd)
        except BaseException:
            os.close(self._fd)
            raise
        return self._fd

    def __exit__(self, *raised: object) -> None:
        os.close(self._fd)

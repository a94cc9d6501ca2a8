"""Packs: the files that hold the blocks of images. An image writes at most one pack.

The blocks of a small image are collected in memory and written one after the other with one call: few system calls, one
sync. Beyond `STREAM_FROM` the pack is *streamed*: every block starts at a multiple of `ALIGN` and is written
at once, by the thread that packed it, with O_DIRECT from aligned memory. That is several times faster than
through the page cache, and does not evict the application's pages. Each block is padded to a multiple of `ALIGN` with
zeros, which readers check. Where O_DIRECT is not supported (tmpfs and others), the same layout
is written through the cache.

A pack has no header: every byte of it belongs to a block, or is padding that readers check to be zero.
"""

from __future__ import annotations

import _thread
import errno
from typing import Final

from ckpt.store.disk.fsio import Buffer, FileSystem, PendingFile, write_all
from ckpt.store.disk.memory import ALIGN, Staging, round_up
from ckpt.store.errors import StorageFailed

__all__ = ["ALIGN", "STREAM_FROM", "PackWriter"]

STREAM_FROM: Final = 4 << 20
"""A pack of more bytes than this is streamed."""


class PackWriter:
    """Writes the pack of one image. Several threads may call `add` once `streaming` is true.

    Args:
        name: final file name in `directory`.

    Raises:
        StorageFailed: from `add`, `stream` and `complete`, when the system refuses.
    """

    def __init__(self, fs: FileSystem, directory: str, name: str) -> None:
        self._fs = fs
        self._directory = directory
        self._name = name
        self._lock = _thread.allocate_lock()
        self._pending: list[Buffer] = []
        self._direct = False
        self.file: PendingFile | None = None
        self.length = 0
        self.streaming = False

    @property
    def align(self) -> int:
        """Block offsets are multiples of this, in bytes."""
        return ALIGN if self.streaming else 1

    def add(self, data: Buffer, staging: Staging | None) -> int:
        """Store one block; return its offset in the pack. The caller may reuse `data` after the call only when streaming.

        `staging`: the calling thread's aligned memory; needed when streaming.
        """
        length = len(data)
        if not self.streaming:
            offset = self.length
            self._pending.append(data)
            self.length += length
            return offset
        assert staging is not None
        padded = staging.fill(data)
        with self._lock:
            offset = self.length
            self.length += len(padded)
        self._write(padded, offset)
        return offset

    def stream(self) -> dict[int, int]:
        """Switch to streaming: write the blocks collected so far; later ones are written at once.

        The blocks collected so far move, each to a multiple of `ALIGN`. Returns {offset that `add` returned: new offset}.
        """
        self.file = PendingFile(self._fs, self._directory, self._name)
        moved: dict[int, int] = {}
        head = bytearray()
        given = 0
        for data in self._pending:
            moved[given] = len(head)
            given += len(data)
            head += data
            head += bytes(round_up(len(head)) - len(head))
        self._pending.clear()
        self.length = len(head)
        if head:
            self.file.write(head, 0)
        self.streaming = True
        try:
            self._fs.set_direct(self.file.fd, True)
            self._direct = True
        except OSError:
            self._direct = False  # a file system without O_DIRECT: write through the cache
        return moved

    def _write(self, padded: memoryview, offset: int) -> None:
        assert self.file is not None
        try:
            write_all(self._fs, self.file.fd, padded, offset)
        except OSError as error:
            if error.errno != errno.EINVAL or not self._direct:
                raise StorageFailed("write", self.file.path, error) from error
            self._write_cached(padded, offset)

    def _write_cached(self, padded: memoryview, offset: int) -> None:
        """Write without O_DIRECT: the device requires another alignment, or a short write left an unaligned rest."""
        assert self.file is not None
        try:
            self._fs.set_direct(self.file.fd, False)
            write_all(self._fs, self.file.fd, padded, offset)
        except OSError as error:
            raise StorageFailed("write", self.file.path, error) from error

    def complete(self) -> bool:
        """Write the collected blocks; the caller still has to seal `file`. False: no block was stored: there is no file."""
        if self.file is None:
            if not self.length:
                return False
            self.file = PendingFile(self._fs, self._directory, self._name)
            self.file.write(self._pending[0] if len(self._pending) == 1 else b"".join(self._pending), 0)
            self._pending.clear()
        return True

    def drop(self) -> None:
        """Give the pack up and remove its file, if there is one."""
        self._pending.clear()
        if self.file is not None:
            self.file.drop()

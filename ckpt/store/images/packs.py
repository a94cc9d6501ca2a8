"""Packs: the files that blocks lie in; one per image, at most.

A small image's blocks are kept until the end and written back to back with one call: few system calls, one
sync. Beyond `STREAM_FROM` the pack is *streamed*: every block starts at a multiple of `ALIGN` and is written
at once, by whichever thread made it, with O_DIRECT from aligned memory. That is several times faster than
through the page cache, and does not push the application's pages out. What fills up the last `ALIGN` bytes
of a block is zero, and readers check it. Where O_DIRECT is not to be had (tmpfs and others), the same layout
is written through the cache.

A pack has no header: every byte of it is a block's, or checked to be zero.
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
"""Bytes after which a pack is streamed."""


class PackWriter:
    """Collects blocks; `add` may be called by several threads once `streaming` is on.

    Args:
        name: final file name in `directory`.
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
        self.bytes_stored = 0
        self.streaming = False

    @property
    def align(self) -> int:
        """What block offsets are multiples of."""
        return ALIGN if self.streaming else 1

    def add(self, data: Buffer, staging: Staging | None) -> int:
        """Store one block; returns its offset. `data` may be reused after the call only when streaming."""
        length = len(data)
        if not self.streaming:
            offset = self.length
            self._pending.append(data)
            self.length += length
            self.bytes_stored += length
            return offset
        assert staging is not None
        padded = staging.fill(data)
        with self._lock:
            offset = self.length
            self.length += len(padded)
            self.bytes_stored += length
        self._write(padded, offset)
        return offset

    def stream(self) -> dict[int, int]:
        """Go over to streaming: write what has been collected, and everything from now on at once.

        The blocks collected so far move apart, each to a multiple of `ALIGN`: returns {offset that `add`
        gave: offset from now on}.
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
            self._direct = False  # a file system without O_DIRECT: through the cache then
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
        """The device wants another alignment, or a short write left an odd rest: O_DIRECT off."""
        assert self.file is not None
        try:
            self._fs.set_direct(self.file.fd, False)
            write_all(self._fs, self.file.fd, padded, offset)
        except OSError as error:
            raise StorageFailed("write", self.file.path, error) from error

    def seal(self) -> bool:
        """Write what is left, and sync. False: there was nothing to store, there is no file."""
        if self.file is None:
            if not self.length:
                return False
            self.file = PendingFile(self._fs, self._directory, self._name)
            self.file.write(self._pending[0] if len(self._pending) == 1 else b"".join(self._pending), 0)
            self._pending.clear()
        self.file.seal()
        return True

    def drop(self) -> None:
        """Give up; harmless when there is no file."""
        self._pending.clear()
        if self.file is not None:
            self.file.drop()

"""Buffers of files that a program with replicas reads and writes through one object. (driver)

What leaves a buffer is a change (changes.py), and the changes of all replicas must be the same, in the same order: those of
a copy, too, which comes from an image. So the buffer is written in Python, and all its state is in the image:

    written     bytes that follow one another are collected; whatever else is done with the file writes them first
    read ahead  a block behind the position, until something is written

Not here: the files below (objects.py).
"""

from __future__ import annotations

import errno
import io
import os
from typing import Any, Protocol

__all__ = ["ReplicaBuffer", "Below"]


class Below(Protocol):
    """The raw file of a buffer. `number`: what its `fileno` says to the caller of this depth."""

    name: Any
    mode: str

    def seek(self, offset: int, whence: int = 0, /) -> int: ...
    def tell(self) -> int: ...
    def read(self, size: int = -1, /) -> bytes | None: ...
    def write(self, data: Any, /) -> int: ...
    def truncate(self, size: int | None = None, /) -> int: ...
    def close(self) -> None: ...
    def number(self, depth: int) -> int: ...


class ReplicaBuffer(io.BufferedIOBase):
    """As :class:`io.BufferedRandom`. `nbytes`: so many are collected before they are written, and read ahead."""

    def __init__(self, file: Below, nbytes: int) -> None:
        super().__init__()
        self._file, self._nbytes = file, nbytes
        self._at = file.tell()
        self._unwritten = bytearray()  # the bytes before the position
        self._ahead = b""  # the bytes behind it, as far as they are known

    @property
    def file(self) -> Any:
        """The raw file. It is not called ``raw``, so that images do not take this for a buffer of :mod:`io`."""
        return self._file

    @property
    def name(self) -> Any:
        return self._file.name

    @name.setter
    def name(self, given: Any) -> None:  # by `tempfile`, which takes this for the raw file
        self._file.name = given

    @property
    def mode(self) -> str:
        return self._file.mode

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def fileno(self) -> int:
        """See `ReplicaFile.fileno`."""
        self._check()
        return self._file.number(2)

    def tell(self) -> int:
        self._check()
        return self._at

    def seek(self, offset: int, whence: int = 0, /) -> int:
        if self._unwritten:
            self.flush()
        self._check()
        at = self._file.seek(offset, 2) if whence == 2 else offset + (self._at if whence == 1 else 0)
        if at < 0:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        self._move(at)
        return at

    def _move(self, at: int) -> None:
        step = at - self._at
        self._ahead = self._ahead[step:] if 0 <= step <= len(self._ahead) else b""
        self._at = at

    def peek(self, size: int = 0, /) -> bytes:
        self.flush()
        if not self._ahead:
            self._file.seek(self._at)
            self._ahead = self._file.read(self._nbytes) or b""
        return self._ahead

    def read1(self, size: int = -1, /) -> bytes:
        self.flush()
        data = self._ahead
        if not data:
            self._file.seek(self._at)
            data = self._file.read(self._nbytes if size < 0 else size) or b""
        return self._taken(data if size < 0 else data[:size])

    def read(self, size: int | None = -1, /) -> bytes:
        self.flush()
        if size is None or size < 0:
            self._file.seek(self._at)
            return self._taken(self._file.read() or b"")
        while len(self._ahead) < size:
            self._file.seek(self._at + len(self._ahead))
            more = self._file.read(max(self._nbytes, size - len(self._ahead)))
            if not more:
                break
            self._ahead += more
        return self._taken(self._ahead[:size])

    def _taken(self, data: bytes) -> bytes:
        self._move(self._at + len(data))
        return data

    def write(self, data: Any, /) -> int:
        self._check()
        given = memoryview(data).cast("B")
        self._unwritten += given
        self._at += len(given)
        self._ahead = b""
        if len(self._unwritten) >= self._nbytes:
            self.flush()
        return len(given)

    def truncate(self, size: int | None = None, /) -> int:
        self.flush()
        self._ahead = b""
        return self._file.truncate(self._at if size is None else size)

    def flush(self) -> None:
        self._check()
        if self._unwritten:
            self._file.seek(self._at - len(self._unwritten))
            self._file.write(bytes(self._unwritten))
            self._unwritten.clear()
            self._at = self._file.tell()  # what is appended goes to the end

    def close(self) -> None:
        if not self.closed:
            try:
                super().close()  # flushes
            finally:
                self._file.close()

    def _check(self) -> None:
        if self.closed:
            raise ValueError("I/O operation on closed file.")

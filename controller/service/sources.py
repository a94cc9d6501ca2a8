"""Where the controller has the text of an output file from: it reads the file, or is sent what is in it. (driver)

    LocalFile   the file itself
    FarFile     what the agent of the rank's host has sent (`ckpt.controller.launch.following`). The file itself is read only
                for what no agent will send: when all ranks have ended, and what the controller before this one was sent

Not here: what is printed of it (`passthrough.py`).
"""

from __future__ import annotations

import os
from typing import Protocol

from ckpt.store.disk.privacy import open_regular

__all__ = ["FarFile", "LocalFile", "Source"]


class Source(Protocol):
    """An output file, which may become shorter when a rank goes back."""

    def size(self) -> int | None:
        """Its length in bytes, as far as is known; None: there is no such file yet."""
        ...

    def cut(self) -> int | None:
        """The shortest length that it has had since the last call, if that is not its length now; None: not known."""
        ...

    def read(self, offset: int, limit: int) -> bytes:
        """Its text from `offset` on, at most `limit` bytes."""
        ...

    def forget(self, offset: int) -> None:
        """What is before `offset` will not be read, unless the file becomes shorter."""
        ...

    def all_ended(self) -> None:
        """No rank writes any more, and no agent sends anything."""
        ...

    def close(self) -> None: ...


class LocalFile:
    """Implements `Source`."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._fd = -1

    def size(self) -> int | None:
        if self._fd < 0:
            try:
                self._fd = open_regular(self._path, os.O_RDONLY)
            except FileNotFoundError:
                return None
        return os.fstat(self._fd).st_size

    def cut(self) -> int | None:
        return None

    def read(self, offset: int, limit: int) -> bytes:
        if self.size() is None:
            return b""
        try:
            return os.pread(self._fd, limit, offset)
        except OSError:  # some file systems read no file that was opened before it had any bytes (fusefat)
            self.close()
            return b"" if self.size() is None else os.pread(self._fd, limit, offset)

    def forget(self, offset: int) -> None: ...

    def all_ended(self) -> None: ...

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class FarFile:
    """Implements `Source`. `start`: from there on it is printed."""

    def __init__(self, path: str, start: int) -> None:
        self._file = LocalFile(path)
        self._begin = start
        self._text = bytearray()
        self._unsettled = 0
        self._cut: int | None = None
        self._ended = False

    def came(self, at: int, text: bytes, cut: int | None) -> None:
        """An agent has sent this part. `cut`: to this length the file was cut before."""
        if cut is not None:
            self._cut = cut if self._cut is None else min(cut, self._cut)
        kept = at - self._begin
        if 0 <= kept <= len(self._text):
            del self._text[kept:]
        else:  # before what is known; or behind it: what is between was sent to the controller before this one
            self._begin = at
            self._text.clear()
        self._text += text
        self._unsettled += len(text)

    def size(self) -> int | None:
        return self._file.size() if self._ended else self._begin + len(self._text)

    def cut(self) -> int | None:
        cut, self._cut = self._cut, None
        return cut

    def read(self, offset: int, limit: int) -> bytes:
        if self._ended:
            return self._file.read(offset, limit)
        if offset < self._begin:
            return self._file.read(offset, min(limit, self._begin - offset))
        return bytes(self._text[offset - self._begin : offset - self._begin + limit])

    def forget(self, offset: int) -> None:
        count = min(offset - self._begin, len(self._text))
        if count > 0:
            del self._text[:count]
            self._begin += count

    def settle(self) -> int:
        """How many bytes of what has come are not kept any more, since the last call."""
        count, self._unsettled = self._unsettled - len(self._text), len(self._text)
        return count

    def all_ended(self) -> None:
        self._ended = True
        self._text.clear()

    def close(self) -> None:
        self._file.close()

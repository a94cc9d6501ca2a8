"""Where the program *is* in its files, asked of the objects above a descriptor in the forked child.

Buffers hold what the program has written but the kernel has not seen, and what has been read ahead. The objects can
say where the program is only by touching their descriptor, so another file is put under it first: one of the child's
own, opened again (readers), or a memory file that catches what flushing writes (writers). The parent's file is never
touched. Without fork the writers are flushed for real: the program stands still.

Not here: what becomes of the answers (:mod:`ckpt.image.files.open_files`, :mod:`ckpt.image.files.text_files`).
"""

from __future__ import annotations

import contextlib
import fcntl
import io
import os
from collections.abc import Iterator
from pickle import PicklingError
from typing import Any

from ckpt.image.files.file_notes import FileNote, completed
from ckpt.image.files.standard_output import catching
from ckpt.image.files.unwritten import can_be_caught, unwritten_bytes
from ckpt.transport.records import dataclass, replace

__all__ = ["HARMLESS_DEVICES", "STD_FDS", "Opened", "Positions", "memory_file", "read_at"]

STD_FDS = (0, 1, 2)
HARMLESS_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")


@dataclass(slots=True)
class Opened:
    """One descriptor met by the pickler.

    ``original``: a duplicate of the parent's, read with ``pread`` only.
    """

    note: FileNote
    original: int
    fd: int
    collected: int = 0  # bytes that flushing has written so far


class Positions:
    """Of all files of one image. ``is_disposable``: this process is a forked child.

    ``opened``: by descriptor, those that were asked for. ``at``: id of a buffered object -> its position, once
    text over it was taken apart. ``pending``: id of a buffered object -> what it, or text over it, had not written.
    """

    def __init__(self, notes: dict[int, FileNote], *, is_disposable: bool) -> None:
        self.is_disposable = is_disposable
        self.opened: dict[int, Opened] = {}
        self.at: dict[int, int] = {}
        self.pending: dict[int, bytes] = {}
        self._notes = notes

    def open(self, fd: int) -> Opened:
        """Put a file of this process' own under the descriptor, so that the objects above it may be asked
        anything.
        """
        opened = self.opened.get(fd)
        if opened is not None:
            return opened
        note = self._notes.get(fd)
        if note is None:
            raise PicklingError(f"descriptor {fd} was opened after the image was prepared")
        note = completed(fd, note)
        if note.kind not in ("file", "deleted") and note.path not in HARMLESS_DEVICES:
            raise PicklingError(f"an open {note.kind} ({note.path}) cannot be saved")
        opened = self.opened[fd] = Opened(note, fd, fd)
        if not self.is_disposable or note.kind == "device":
            return opened
        opened.original = os.dup(fd)
        if note.flags & os.O_ACCMODE == os.O_RDONLY:  # one inherited by the program was not set apart
            own = os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_CLOEXEC)
        else:
            own = os.memfd_create("image")
            if note.flags & os.O_APPEND:
                fcntl.fcntl(own, fcntl.F_SETFL, os.O_APPEND)
            os.ftruncate(own, note.length)
        os.lseek(own, note.offset, os.SEEK_SET)
        os.dup2(own, fd, inheritable=False)
        os.close(own)
        return opened

    def buffered(self, obj: Any) -> int | None:
        known = self.at.get(id(obj))
        if known is not None:
            return known
        if not isinstance(obj.raw, io.FileIO):
            if type(obj) is io.BufferedWriter and can_be_caught(obj.raw):
                if id(obj) not in self.pending:
                    self.pending[id(obj)] = unwritten_bytes(obj, is_disposable=self.is_disposable)
                return None
            return obj.tell() if obj.seekable() else None
        fd = obj.raw.fileno()
        if fd in STD_FDS:
            self.flush_standard(obj)
            return None
        self.open(fd)
        if obj.writable():
            obj.flush()
            self.collect(fd, obj)
        if not obj.seekable():
            return None
        position: int = obj.tell()
        self.at[id(obj)] = position
        return position

    def flush_standard(self, obj: Any) -> None:
        """A writer of the program over a standard stream: what it holds stays with it."""
        with catching(obj.raw, is_disposable=self.is_disposable) as caught:
            obj.flush()
        self.pending[id(obj)] = self.pending.get(id(obj), b"") + bytes(caught)

    def collect(self, fd: int, writer: Any) -> None:
        """Take what flushing ``writer`` has written, from the memory file; without fork, note the file as it is now."""
        opened = self.opened[fd]
        note = opened.note
        if note.kind == "device":
            return
        end = os.lseek(fd, 0, os.SEEK_CUR)
        if opened.original == fd:
            length = os.fstat(fd).st_size
            opened.note = replace(note, offset=end, length=length)
            return
        start = note.length if note.flags & os.O_APPEND else note.offset
        # a seek of the program may have flushed before; then the descriptor stands elsewhere and nothing is
        # pending
        written = os.pread(fd, max(0, end - start), start)
        self.pending[id(writer)] = self.pending.get(id(writer), b"") + written[opened.collected :]
        opened.collected = max(opened.collected, len(written))


def read_at(fd: int, offset: int, nbytes: int) -> bytes:
    """Bytes of the file behind a descriptor, however it was opened, without moving its offset."""
    with open(f"/proc/self/fd/{fd}", "rb") as again:
        again.seek(offset)
        return again.read(nbytes)


@contextlib.contextmanager
def memory_file(content: bytes) -> Iterator[int]:
    fd = os.memfd_create("image")
    try:
        os.write(fd, content)
        os.lseek(fd, 0, os.SEEK_SET)
        yield fd
    finally:
        os.close(fd)

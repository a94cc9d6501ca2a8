"""The program's logical position in its files: in the forked child, Python's file objects are asked for it.

The offset of the kernel is not the program's position: buffers hold bytes that the program has written and the kernel has
not got yet, and bytes that have been read ahead. File objects use their descriptor when they tell their position. So the
child first puts another file under the descriptor: for a reader a file of the child's own, opened again; for a writer a
memory file (``memfd_create(2)``), which takes the bytes that flushing writes. The parent's file is never changed. Without
fork, writers are flushed into their real files: the program stands still meanwhile.

Not here: how the positions are saved (:mod:`ckpt.image.files.open_files`, :mod:`ckpt.image.files.text_files`).
"""

from __future__ import annotations

import contextlib
import fcntl
import io
import os
from collections.abc import Collection, Iterator
from pickle import PicklingError
from typing import Any

from ckpt.compat.readers import Window, buffers_of_pair, is_in_use, taken_of_line, window_of
from ckpt.image.files.buffered_data import (
    bytes_ahead,
    can_be_caught,
    has_unwritten_bytes,
    replaced,
    unwritten_bytes,
)
from ckpt.image.files.file_notes import FileNote, completed
from ckpt.image.files.standard_output import catching
from ckpt.transport.records import dataclass, replace
from ckpt.undo.selection.kept import is_kept

__all__ = [
    "HARMLESS_DEVICES",
    "STD_FDS",
    "Opened",
    "Positions",
    "memory_file",
    "read_at",
]

SavedWindow = Window | tuple[int, int, int, tuple[int, bytes] | None]
STD_FDS = (0, 1, 2)
HARMLESS_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")


@dataclass(slots=True)
class Opened:
    """One descriptor of a file object that the pickler has met.

    ``original``: a duplicate of the descriptor as it was before another file was put under it; its offset is not moved.
    Without fork ``original`` is ``fd`` itself.
    """

    note: FileNote
    original: int
    fd: int


class Positions:
    """Positions in all files of one image. ``is_disposable``: this process is a forked child.

    ``opened``: descriptor -> :class:`Opened`, for each :meth:`open`. ``at``: id of a buffered object -> its position; it is
    kept, because taking a text layer above apart changes what the object itself answers. ``pending``: id of a buffered
    object -> bytes that the object, or a text layer above it, had not written. ``places``: id of such an object that reads,
    too (``r+``) -> at which offsets flushing has written, and what: after a seek within what has been read ahead, that is
    neither the descriptor's offset nor the program's position. ``ahead``: id of a buffered reader that cannot seek -> bytes
    that it has read and the program has not. ``windows``: id of a buffer over a file -> what it has read of the file
    (:data:`ckpt.compat.readers.Window`), or how many bytes, where the file has them still. It is filled with just that
    again: so it goes on with what it had read, whoever has changed the file since, and asks for the same pieces later.
    """

    def __init__(
        self, notes: dict[int, FileNote], *, is_disposable: bool, channels: Collection[int] = ()
    ) -> None:
        self.is_disposable = is_disposable
        self.channels = channels
        self.opened: dict[int, Opened] = {}
        self.at: dict[int, int] = {}
        self.pending: dict[int, bytes] = {}
        self.places: dict[int, list[tuple[int, bytes]]] = {}
        self.ahead: dict[int, bytes] = {}
        self.windows: dict[int, SavedWindow] = {}
        self._notes = notes

    def open(self, fd: int) -> Opened:
        """Put a file of this process' own under the descriptor, so that any method of the file objects above the descriptor
        may be called. Raises PicklingError: the descriptor is new, or refers to what cannot be saved.
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
        # A file that the program has inherited was not replaced by the fork
        if note.flags & os.O_ACCMODE == os.O_RDONLY:
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

    def has_position(self, raw: Any) -> bool:
        """Is ``raw`` a file object of the kernel's files, and not of a pipe or socket that comes back?"""
        return isinstance(raw, io.FileIO) and not (self.channels and raw.fileno() in self.channels)

    def buffered(self, obj: Any) -> int | None:
        """The logical position, in bytes, of an object of :mod:`io`'s buffered classes; what such an object has not written
        is put into ``pending``. ``None``: the object cannot seek, is over a standard stream, or is a writer over a raw file
        written in Python.
        """
        known = self.at.get(id(obj))
        if known is not None:
            return known
        if isinstance(obj, io.BufferedReader) and is_in_use(obj):
            self.ahead[id(obj)] = self._taken_of_line(obj)
            return None
        if not self.has_position(obj.raw):
            if isinstance(obj, io.BufferedWriter) and can_be_caught(obj.raw):
                if id(obj) not in self.pending:
                    self.pending[id(obj)] = unwritten_bytes(obj, is_disposable=self.is_disposable)
                return None
            if obj.seekable():
                _refuse_unwritten(obj, is_disposable=self.is_disposable)
                return int(obj.tell())
            if isinstance(obj, io.BufferedReader):
                self.ahead[id(obj)] = self._bytes_ahead(obj)
            return None
        fd = obj.raw.fileno()
        if fd in STD_FDS:
            self.flush_standard(obj)
            return None
        self.open(fd)
        # Flushing leads to the end where the file is opened for appending
        before = obj.tell() if isinstance(obj, io.BufferedRandom) else None
        if window := self._window(obj):
            self.windows[id(obj)] = window
        if obj.writable():
            with self.flushing(obj):
                obj.flush()
        if not obj.seekable():
            return None
        position: int = obj.tell() if before is None else before
        self.at[id(obj)] = position
        return position

    def _window(self, obj: Any) -> SavedWindow | None:
        """What a buffer over a file has read. Not of one that writes, too, without fork: it is about to be flushed. Nor of a
        file that is to stay as it is."""
        note = self.opened[obj.raw.fileno()].note
        if not obj.readable() or (obj.writable() and not self.is_disposable):
            return None
        if note.kind not in ("file", "deleted") or is_kept(note.path) or not can_be_caught(obj.raw):
            return None
        window = window_of(obj)
        # What is written over a part of it takes the rest of it to the file with it
        if window is None or obj.writable() or not self.has(obj.raw.fileno(), *window[:2]):
            return window
        return (window[0], len(window[1]), *window[2:])

    def has(self, fd: int, position: int, data: bytes) -> bool:
        """Does the file have this there? If so, it can be read again."""
        opened = self.opened[fd]
        try:
            return read_at(opened.original, position, len(data)) == data
        except OSError:
            return True  # reading it is not permitted any more

    def end(self, buffer: io.BufferedRandom) -> int:
        """The length of the file below with what the buffer has not written, in bytes. The buffer has been flushed."""
        raw: Any = buffer.raw
        places = self.places.get(id(buffer), [])
        return max(self.opened[raw.fileno()].note.length, *(at + len(data) for at, data in places), 0)

    def of_pair(self, pair: io.BufferedRWPair) -> tuple[Any, Any, bytes, bytes]:
        """The two raw objects of a pair of buffers, what has been read ahead, and what has not been written. Raises
        PicklingError: it is over files."""
        buffers = buffers_of_pair(pair)
        if buffers is None:
            raise PicklingError(
                "a BufferedRWPair has another layout in this Python than is known: use makefile twice"
            )
        reader, writer = buffers
        is_waiting = is_in_use(reader)
        if is_waiting:
            self.ahead[id(reader)] = self._taken_of_line(reader, is_listed=False)
        if (not is_waiting and self.buffered(reader) is not None) or self.buffered(writer) is not None:
            raise PicklingError("a BufferedRWPair over files cannot be saved: use open(path, 'r+b')")
        return reader.raw, writer.raw, self.ahead.get(id(reader), b""), self.pending.get(id(writer), b"")

    def is_waited_for(self, buffer: Any) -> bool:
        """Does a thread of the image wait in a call of this buffer?"""
        if type(buffer) is io.BufferedRWPair:
            buffer = (buffers_of_pair(buffer) or (None,))[0]
        return isinstance(buffer, io.BufferedReader) and is_in_use(buffer)

    def _taken_of_line(self, obj: io.BufferedReader, *, is_listed: bool = True) -> bytes:
        """What a thread of the image has taken that waits for the rest of a line. It reads it again after a restart."""
        taken = taken_of_line(obj, is_listed=is_listed)
        if taken is None:
            raise PicklingError(
                "a thread waits in the middle of a line of a connection, and which part of it has come already cannot be "
                "told (another one has the same, or the file is open for reading and writing); a later image succeeds"
            )
        return taken

    def _bytes_ahead(self, obj: io.BufferedReader) -> bytes:
        if not can_be_caught(obj.raw):
            raise PicklingError(
                f"a buffer over a {type(obj.raw).__name__}, which has no attributes, cannot be saved"
            )
        return bytes_ahead(obj)

    def flush_standard(self, obj: Any) -> None:
        """For a writer of the program over a standard stream: its unwritten bytes are saved with the writer (``pending``),
        and not written.
        """
        with catching(obj.raw, is_disposable=self.is_disposable) as caught:
            obj.flush()
        self.pending[id(obj)] = self.pending.get(id(obj), b"") + bytes(caught)

    @contextlib.contextmanager
    def flushing(self, buffer: Any) -> Iterator[None]:
        """While the context is active, the buffer, over a file, or a text layer above it is flushed (``tell`` of a text
        layer does that, too). What that writes to the memory file is added to ``pending`` and ``places``. Without fork, the
        bytes are in the real file: its new offset and length are recorded.
        """
        fd = buffer.raw.fileno()
        opened = self.opened[fd]
        note = opened.note
        if opened.original == fd:
            yield
            if note.kind != "device":
                end, length = os.lseek(fd, 0, os.SEEK_CUR), os.fstat(fd).st_size
                opened.note = replace(note, offset=end, length=length)
            return
        written: list[tuple[int, bytes]] = []

        def write(data: Any) -> int:
            written.append((os.lseek(fd, 0, os.SEEK_CUR), bytes(data)))
            return os.write(fd, data)

        with replaced(buffer.raw, {"write": write}):
            yield
        self.pending[id(buffer)] = self.pending.get(id(buffer), b"") + b"".join(data for _, data in written)
        # Where the file is opened for appending, all of it goes to the end
        if isinstance(buffer, io.BufferedRandom) and not note.flags & os.O_APPEND:
            self.places.setdefault(id(buffer), []).extend(written)


def read_at(fd: int, offset: int, nbytes: int) -> bytes:
    """Bytes of the file of a descriptor, also of one that is open for writing only; the offset is not moved."""
    with open(f"/proc/self/fd/{fd}", "rb") as file:
        file.seek(offset)
        return file.read(nbytes)


@contextlib.contextmanager
def memory_file(content: bytes) -> Iterator[int]:
    """A descriptor of a memory file with this content, at offset 0; closed at the end."""
    fd = os.memfd_create("image")
    try:
        os.write(fd, content)
        os.lseek(fd, 0, os.SEEK_SET)
        yield fd
    finally:
        os.close(fd)


def _refuse_unwritten(obj: Any, *, is_disposable: bool) -> None:
    """What a BufferedRandom has not written to what is no file, and may have been saved before, would be lost."""
    raw: Any = obj.raw if isinstance(obj, io.BufferedRandom) else None
    if type(raw) is io.BytesIO:
        before = raw.getvalue()
        obj.flush()
        is_unwritten = raw.getvalue() != before
    else:
        is_unwritten = (
            raw is not None and can_be_caught(raw) and has_unwritten_bytes(obj, is_disposable=is_disposable)
        )
    if is_unwritten:
        raise PicklingError(f"a BufferedRandom over {type(raw).__name__} holds unwritten bytes: flush it")

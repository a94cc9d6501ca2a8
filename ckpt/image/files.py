"""Open files: noted in the parent, understood in the child, opened again at load.

In the parent, before the fork (:func:`note_files`)
    For every descriptor of this process: what it refers to, its offset, flags and length. After the fork
    parent and child share the offset, and the parent goes on moving it, so the child must not ask again.

In the child, when a file object is met (:class:`FileSaver`)
    Buffers hold what the program has written but the kernel has not seen, and what has been read ahead. The
    objects can say where the program *is* only by touching their descriptor, so the child first puts another
    file under it: one of its own, opened again (readers), or a memory file that catches what flushing writes
    (writers). The parent's file is never touched. Without fork the writers are flushed for real: the program
    stands still.

    ==================  ======================================================================================
    object              saved
    ==================  ======================================================================================
    FileIO              path, access, offset; for writers the length
    buffered ones       their raw file, the logical position, what has not been written yet
    TextIOWrapper       its buffer, encoding, errors, newline, the position of the next character
    standard streams    references; their lengths are in :mod:`ckpt.image.resources`. File objects of the program over
                        them: with what they have not written
    deleted files       with their content (temporary files)
    NamedTemporaryFile  likewise; made again if it is gone
    mere descriptors    :mod:`ckpt.image.descriptors`
    pipes, sockets, …   not saved: named as the reason
    ==================  ======================================================================================

At load (:mod:`ckpt.image.reopen`)
    A writable file is cut to its saved length, what had not been flushed is in its buffer, and the program goes on
    at its offset. A missing or too short file is a :class:`RestoreError` that names the path; the loader adds
    the variable.
"""

from __future__ import annotations

import codecs
import contextlib
import fcntl
import io
import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pickle import PicklingError
from typing import TYPE_CHECKING, Any

from ckpt.image.descriptors import Descriptors, reduce_descriptors, unexplained
from ckpt.image.reducers import attributes_of, reduce_raw
from ckpt.image.reopen import (
    OpenedFile,
    SavedFile,
    compressed_readers,
    make_buffered,
    make_closed,
    make_closed_memory,
    make_raw_file,
    make_std_raw,
    make_text,
)
from ckpt.image.standard import catching

if TYPE_CHECKING:
    from ckpt.image.pickler import ImagePickler

__all__ = ["FileNote", "FileSaver", "note_files"]

_DELETED_LIMIT_BYTES = 1 << 30
_DELETED = " (deleted)"


@dataclass(frozen=True, slots=True)
class FileNote:
    """What a descriptor referred to when the image was prepared. ``offset`` and ``length`` in bytes."""

    path: str
    kind: str  # "file", "deleted", "device" or another word for what cannot be saved
    flags: int
    offset: int
    length: int


def note_files() -> dict[int, FileNote]:
    """A note for every open descriptor of this process; 2 µs each, 8 for a regular file.

    What is no regular file has a kind only: it cannot change before the child looks (:func:`_completed`).
    """
    notes: dict[int, FileNote] = {}
    for name in os.listdir("/proc/self/fd"):
        fd = int(name)
        try:
            status = os.fstat(fd)
            if not stat.S_ISREG(status.st_mode):
                notes[fd] = FileNote("", _kind("", status), 0, 0, 0)
                continue
            path = os.readlink(f"/proc/self/fd/{name}")
            flags = fcntl.fcntl(fd, fcntl.F_GETFL)
            offset = os.lseek(fd, 0, os.SEEK_CUR)
        except OSError:
            continue  # the descriptor of the listing itself
        notes[fd] = FileNote(path, _kind(path, status), flags, offset, status.st_size)
    return notes


def _completed(fd: int, note: FileNote) -> FileNote:
    """With path and flags, for what is no regular file; the descriptor must still be the parent's."""
    if note.path:
        return note
    return replace(note, path=os.readlink(f"/proc/self/fd/{fd}"), flags=fcntl.fcntl(fd, fcntl.F_GETFL))


def _kind(path: str, status: os.stat_result) -> str:
    if stat.S_ISREG(status.st_mode):
        return "deleted" if path.endswith(_DELETED) or status.st_nlink == 0 else "file"
    if stat.S_ISCHR(status.st_mode):
        return "device"
    if stat.S_ISFIFO(status.st_mode):
        return "pipe"
    return "socket" if stat.S_ISSOCK(status.st_mode) else "special file"


# ---------------------------------------------------------------------- saving

_STD_FDS = (0, 1, 2)
_HARMLESS_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
_STATELESS_CODECS = ("utf-8", "ascii", "iso8859-1", "iso8859-15", "cp1252")
_READ_PROBE = "a\rb\nc\r\nd"
_READ_ANSWERS: dict[tuple[str, ...], str | None] = {
    ("a\n", "b\n", "c\n", "d"): None,
    ("a\r", "b\n", "c\r\n", "d"): "",
    ("a\rb\n", "c\r\n", "d"): "\n",
    ("a\r", "b\nc\r", "\nd"): "\r",
    ("a\rb\nc\r\n", "d"): "\r\n",
}
_WRITE_ANSWERS: dict[str, str | None] = {"\n": None, "\r": "\r", "\r\n": "\r\n"}


@dataclass(slots=True)
class _Opened:
    """One descriptor met by the pickler.

    ``original``: a duplicate of the parent's, read with ``pread`` only.
    """

    note: FileNote
    original: int
    fd: int
    collected: int = 0  # bytes that flushing has written so far


class FileSaver:
    """The reducers of file objects, for one image. ``is_disposable``: this process is a forked child."""

    def __init__(self, notes: dict[int, FileNote], *, is_disposable: bool) -> None:
        self._notes = notes
        self._is_disposable = is_disposable
        self._opened: dict[int, _Opened] = {}
        self._temporary: set[int] = set()  # descriptors of files that are deleted when the program ends
        self._positions: dict[
            int, int
        ] = {}  # id of a buffered object -> position, once text over it was taken apart
        self._pending: dict[
            int, bytes
        ] = {}  # id of a buffered object -> what it, or text over it, had not written

    def reducers(self) -> dict[type, Callable[[ImagePickler, Any], Any]]:
        return {
            io.FileIO: self.reduce_raw_file,
            io.BufferedReader: self.reduce_buffered,
            io.BufferedWriter: self.reduce_buffered,
            io.BufferedRandom: self.reduce_buffered,
            io.TextIOWrapper: self.reduce_text,
            tempfile._TemporaryFileWrapper: self.reduce_temporary,
            Descriptors: reduce_descriptors,
            _Opened: self.reduce_opened,
            io.BytesIO: self.reduce_memory,
            io.StringIO: self.reduce_memory,
            **compressed_readers(),
        }

    def reduce_temporary(self, pickler: ImagePickler, obj: Any) -> Any:
        """``NamedTemporaryFile``: its file is deleted when the program ends, so its content travels too."""
        raw: Any = obj.file
        raw = getattr(raw, "buffer", raw)
        raw = getattr(raw, "raw", raw)
        if isinstance(raw, io.FileIO) and not raw.closed and obj._closer.delete:
            self._temporary.add(raw.fileno())
        return reduce_raw(pickler, obj)

    def raw_descriptors(self) -> list[SavedFile]:
        """Regular files that are open under mere numbers; :mod:`ckpt.image.descriptors`."""
        return [self._saved(fd, self._notes[fd]) for fd in unexplained(self._notes, self._opened)]

    def _saved(self, fd: int, note: FileNote) -> SavedFile:
        content, is_temporary = None, fd in self._temporary
        if note.kind == "deleted" or is_temporary:
            if note.length > _DELETED_LIMIT_BYTES:
                raise PicklingError(
                    f"the temporary file {note.path!r} is too large to be saved ({note.length} bytes)"
                )
            original = self._opened[fd].original if fd in self._opened else fd
            content = _read(original, 0, note.length)
        length = note.length if note.flags & os.O_ACCMODE != os.O_RDONLY else None
        return SavedFile(fd, note.path, note.flags, note.offset, length, content, is_temporary)

    def reduce_raw_file(self, pickler: ImagePickler, obj: io.FileIO) -> Any:
        if obj.closed:
            return make_closed, ("raw", obj.name, obj.mode)
        fd = obj.fileno()
        if fd in _STD_FDS:
            return make_std_raw, (fd, obj.mode, obj.name)
        opened = self._open(fd)
        return make_raw_file, (opened, obj.mode, obj.name, obj.closefd)

    def reduce_opened(self, pickler: ImagePickler, opened: _Opened) -> Any:
        """One for all file objects of a descriptor."""
        return OpenedFile, (self._saved(opened.fd, opened.note),)

    def reduce_memory(self, pickler: ImagePickler, obj: Any) -> Any:
        return (make_closed_memory, (type(obj),)) if obj.closed else NotImplemented

    def reduce_buffered(self, pickler: ImagePickler, obj: Any) -> Any:
        if obj.closed:
            return make_closed, ("buffered", obj.raw.name, obj.raw.mode)
        position = self._buffered_position(obj)
        return make_buffered, (type(obj), obj.raw, position, self._pending.get(id(obj), b""))

    def reduce_text(self, pickler: ImagePickler, obj: io.TextIOWrapper) -> Any:
        buffer: Any = obj.buffer
        if obj.closed:
            return make_closed, ("text", obj.name, getattr(obj, "mode", "r"))
        attributes = attributes_of(obj) or {}
        raw = getattr(buffer, "raw", None)
        if type(buffer) is io.BytesIO:
            return self._reduce_text_in_memory(obj, buffer, attributes)
        if isinstance(buffer, io.FileIO) or (isinstance(raw, io.FileIO) and raw.fileno() in _STD_FDS):
            return self._reduce_text_unbuffered(obj, buffer, attributes)
        if not isinstance(raw, io.FileIO):
            if raw is None and obj.seekable() and _is_iterated(obj):
                return self._reduce_text_in_a_loop(obj, buffer, attributes)
            obj.flush()
            settings: tuple[Any, ...] = (
                obj.encoding,
                obj.errors,
                None,
                obj.line_buffering,
                obj.write_through,
            )
            position = obj.tell() if obj.seekable() and raw is None else None
            return make_text, (buffer, settings, position, attributes)
        self._buffered_position(buffer)
        is_iterated = obj.seekable() and _is_iterated(
            obj
        )  # asked before flush(), which makes Python forget it
        if obj.writable():
            obj.flush()
            self._collect(raw.fileno(), buffer)
            self._positions[id(buffer)] = buffer.tell()
        position = self._text_position(obj, raw.fileno(), is_iterated)
        settings = (obj.encoding, obj.errors, self._newline(obj), obj.line_buffering, obj.write_through)
        return make_text, (buffer, settings, position, attributes)

    def _reduce_text_unbuffered(self, obj: io.TextIOWrapper, buffer: Any, attributes: dict[str, Any]) -> Any:
        """Over a mere file, or over a standard stream that others write too: what it holds stays with it."""
        raw = buffer if isinstance(buffer, io.FileIO) else buffer.raw
        newline, text = None, ""
        if raw is not buffer:
            self._flush_standard(buffer)
        elif raw.fileno() not in _STD_FDS:
            self._open(raw.fileno())
        if obj.writable():
            with catching(raw, is_disposable=self._is_disposable) as caught:
                obj.flush()
            if self._is_disposable:
                with catching(raw, is_disposable=True) as probe:
                    obj.write("\n")
                    obj.flush()
                newline = _WRITE_ANSWERS.get(probe.decode(obj.encoding))
            text = caught.decode(obj.encoding, obj.errors or "strict").replace(newline or "\n", "\n")
        settings = (obj.encoding, obj.errors, newline, obj.line_buffering, obj.write_through)
        position = obj.tell() if raw is buffer and obj.seekable() else None
        return make_text, (buffer, settings, position, attributes, text)

    def _reduce_text_in_memory(
        self, obj: io.TextIOWrapper, buffer: io.BytesIO, attributes: dict[str, Any]
    ) -> Any:
        """Over a BytesIO, which can be asked everything; in a ``for`` loop by using the text up."""
        if not _is_iterated(obj):
            position: int | None = obj.tell()  # writes what is pending
        elif self._is_disposable and codecs.lookup(obj.encoding).name in _STATELESS_CODECS:
            position = None
        else:
            raise PicklingError(
                "a text layer over memory in the middle of a for loop needs fork, and utf-8, to be saved"
            )
        content, at = buffer.getvalue(), buffer.tell()
        pending = obj.read() if position is None else ""
        newline = _newline_in_memory(obj, buffer)
        if position is None:
            position = _start_of(pending, content, obj.encoding, obj.errors or "strict", newline)
            if position is None:
                raise PicklingError("the position in a text layer over memory cannot be worked out")
        buffer.seek(0)
        buffer.truncate()
        buffer.write(content)
        buffer.seek(at)
        if not self._is_disposable:
            obj.seek(position)
        settings = (obj.encoding, obj.errors, newline, obj.line_buffering, obj.write_through)
        return make_text, (buffer, settings, position, attributes)

    def _reduce_text_in_a_loop(self, obj: io.TextIOWrapper, buffer: Any, attributes: dict[str, Any]) -> Any:
        """Over a buffer that is no file itself (gzip): by reading the rest, and finding where it begins."""
        where = f"a text layer over {type(buffer).__name__} in the middle of a for loop"
        if not self._is_disposable or codecs.lookup(obj.encoding).name not in _STATELESS_CODECS:
            raise PicklingError(
                f"{where} needs fork, and utf-8, to be saved; readline() in a while loop does not"
            )
        errors = obj.errors or "strict"
        pending = obj.read()
        end = buffer.tell()
        window = min(end, len(pending.encode(obj.encoding, errors)) + pending.count("\n") + 4)
        buffer.seek(end - window)
        before = buffer.read(window)
        for newline in (None, ""):
            start = _start_of(pending, before, obj.encoding, errors, newline)
            if start is not None:
                position = end - window + start
                buffer.seek(position)
                settings = (obj.encoding, obj.errors, newline, obj.line_buffering, obj.write_through)
                return make_text, (buffer, settings, position, attributes)
        raise PicklingError(f"the position in {where} cannot be worked out")

    # -- descriptors of the child's own

    def _open(self, fd: int) -> _Opened:
        """Put a file of this process' own under the descriptor, so that the objects above it may be asked
        anything.
        """
        opened = self._opened.get(fd)
        if opened is not None:
            return opened
        note = self._notes.get(fd)
        if note is None:
            raise PicklingError(f"descriptor {fd} was opened after the image was prepared")
        note = _completed(fd, note)
        if note.kind not in ("file", "deleted") and note.path not in _HARMLESS_DEVICES:
            raise PicklingError(f"an open {note.kind} ({note.path}) cannot be saved")
        opened = self._opened[fd] = _Opened(note, fd, fd)
        if not self._is_disposable or note.kind == "device":
            return opened
        opened.original = os.dup(fd)
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

    def _buffered_position(self, obj: Any) -> int | None:
        known = self._positions.get(id(obj))
        if known is not None:
            return known
        if not isinstance(obj.raw, io.FileIO):
            return obj.tell() if obj.seekable() else None
        fd = obj.raw.fileno()
        if fd in _STD_FDS:
            self._flush_standard(obj)
            return None
        self._open(fd)
        if obj.writable():
            obj.flush()
            self._collect(fd, obj)
        if not obj.seekable():
            return None
        position: int = obj.tell()
        self._positions[id(obj)] = position
        return position

    def _flush_standard(self, obj: Any) -> None:
        """A writer of the program over a standard stream: what it holds stays with it."""
        with catching(obj.raw, is_disposable=self._is_disposable) as caught:
            obj.flush()
        self._pending[id(obj)] = self._pending.get(id(obj), b"") + bytes(caught)

    def _collect(self, fd: int, writer: Any) -> None:
        """Take what flushing ``writer`` has written, from the memory file; without fork, note the file as it is now."""
        opened = self._opened[fd]
        note = opened.note
        if note.kind == "device":
            return
        end = os.lseek(fd, 0, os.SEEK_CUR)
        if opened.original == fd:
            length = os.fstat(fd).st_size
            opened.note = FileNote(note.path, note.kind, note.flags, end, length)
            return
        start = note.length if note.flags & os.O_APPEND else note.offset
        # a seek of the program may have flushed before; then the descriptor stands elsewhere and nothing is
        # pending
        written = os.pread(fd, max(0, end - start), start)
        self._pending[id(writer)] = self._pending.get(id(writer), b"") + written[opened.collected :]
        opened.collected = max(opened.collected, len(written))

    # -- text

    def _text_position(self, obj: io.TextIOWrapper, fd: int, is_iterated: bool) -> int | None:
        """The cookie for ``seek``.

        While a ``for`` loop reads lines Python refuses to tell; then it is worked out.
        """
        if not obj.seekable():
            return None
        if not is_iterated:
            return obj.tell()
        if not self._is_disposable:
            raise PicklingError("a text file in the middle of a for loop needs fork to be saved")
        if codecs.lookup(obj.encoding).name not in _STATELESS_CODECS:
            raise PicklingError(f"a for loop over a file in encoding {obj.encoding!r} cannot be saved")
        original = self._opened[fd].original
        buffer: Any = obj.buffer
        end: int = buffer.tell()  # up to here the text layer has taken bytes
        rest = b""
        if codecs.lookup(obj.encoding).name == "utf-8":  # it may hold half a character
            for byte in _read(original, end, 3):
                if byte & 0xC0 != 0x80:
                    break
                rest += bytes([byte])
        with _memory_file(b"") as nothing, _memory_file(rest) as tail:
            os.dup2(nothing, fd, inheritable=False)
            buffer.read()  # drops what the buffer has read ahead
            os.dup2(tail, fd, inheritable=False)
            pending = obj.read()
        errors = obj.errors or "strict"
        end += len(rest)
        window = len(pending.encode(obj.encoding, errors)) + pending.count("\n") + 4
        before = _read(original, max(0, end - window), min(window, end))
        start = _start_of(pending, before, obj.encoding, errors, self._newline(obj))
        if start is None:
            raise PicklingError("the position in a text file cannot be worked out")
        return end - len(before) + start

    def _newline(self, obj: io.TextIOWrapper) -> str | None:
        """The ``newline`` argument, which nobody can ask for, found by a try on a memory file."""
        fd = obj.fileno()
        if self._opened[fd].note.kind == "device":
            return None
        cookie = None if self._is_disposable or not obj.seekable() else obj.tell()
        keep = os.dup(fd)
        try:
            with _memory_file(_READ_PROBE.encode(obj.encoding)) as probe:
                os.dup2(probe, fd, inheritable=False)
                return _try_newline(obj, probe)
        finally:
            os.dup2(keep, fd, inheritable=False)
            os.close(keep)
            if cookie is not None:
                obj.seek(cookie)


def _is_iterated(obj: io.TextIOWrapper) -> bool:
    """Is a ``for`` loop reading its lines? Then Python refuses to tell the position."""
    try:
        obj.tell()
    except OSError:
        return True
    return False


def _newline_in_memory(obj: io.TextIOWrapper, buffer: io.BytesIO) -> str | None:
    """The ``newline`` argument, found by a try; the content of ``buffer`` is overwritten."""
    probe = _READ_PROBE.encode(obj.encoding)
    obj.seek(0)
    buffer.seek(0)
    buffer.truncate()
    buffer.write(probe)
    obj.seek(0)
    lines: list[str] = []
    while line := obj.readline():
        lines.append(line)
    obj.seek(0)
    return _READ_ANSWERS.get(tuple(lines))


def _try_newline(obj: io.TextIOWrapper, probe: int) -> str | None:
    if obj.readable():
        obj.seek(0)
        lines: list[str] = []
        while line := obj.readline():
            lines.append(line)
        return _READ_ANSWERS.get(tuple(lines))
    os.ftruncate(probe, 0)
    obj.seek(0)
    obj.write("\n")
    obj.flush()
    written = os.pread(probe, 64, 0).decode(obj.encoding)
    return _WRITE_ANSWERS.get(written)


def _start_of(pending: str, before: bytes, encoding: str, errors: str, newline: str | None) -> int | None:
    """Index in ``before`` from which on it reads as ``pending``."""
    first = len(before) - len(pending.encode(encoding, errors))
    for start in range(first, max(0, first - pending.count("\n") - 1) - 1, -1):
        text = before[start:].decode(encoding, errors) if start >= 0 else None
        if text is not None and newline is None:
            text = text.replace("\r\n", "\n").replace("\r", "\n")
        if text == pending:
            return start
    return None


def _read(fd: int, offset: int, nbytes: int) -> bytes:
    """Bytes of the file behind a descriptor, however it was opened, without moving its offset."""
    with open(f"/proc/self/fd/{fd}", "rb") as again:
        again.seek(offset)
        return again.read(nbytes)


@contextlib.contextmanager
def _memory_file(content: bytes) -> Iterator[int]:
    fd = os.memfd_create("image")
    try:
        os.write(fd, content)
        os.lseek(fd, 0, os.SEEK_SET)
        yield fd
    finally:
        os.close(fd)

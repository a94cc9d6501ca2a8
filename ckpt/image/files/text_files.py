"""Text layers over files: they are saved with the position of the next character, and with their settings.

A :class:`~io.TextIOWrapper` does not show its ``newline`` argument, and while a ``for`` loop reads its lines, ``tell()``
raises OSError. Both are found by experiment:

- ``newline``: the layer reads or writes a probe, on a memory file put under its descriptor
  (:mod:`ckpt.image.files.file_positions`).
- position in a ``for`` loop: the layer's remaining text is read, and the place in the file where this text begins is
  searched for. This uses the object up, so it is done in a forked child only.
"""

from __future__ import annotations

import codecs
import contextlib
import io
import os
from pickle import PicklingError
from typing import TYPE_CHECKING, Any

from ckpt.compat.accelerators import skips_characters
from ckpt.image.files.buffered_data import (
    READ_PROBE,
    STATELESS_CODECS,
    can_be_caught,
    caught_from,
    make_text_ahead,
    make_text_between,
    make_text_writer,
    newline_read,
    put_text_back,
    read_on,
    text_ahead,
)
from ckpt.image.files.file_positions import STD_FDS, Positions, memory_file, read_at
from ckpt.image.files.reopen import make_closed, make_text
from ckpt.image.files.standard_output import catching
from ckpt.image.reducers.raw_instances import attributes_of

if TYPE_CHECKING:
    from ckpt.image.reducers.saver import Saver

__all__ = ["TextSaver", "newline_in_memory"]

_WRITE_ANSWERS: dict[str, str | None] = {"\n": None, "\r": "\r", "\r\n": "\r\n"}


class TextSaver:
    """The reducer of text layers, for one image."""

    def __init__(self, positions: Positions) -> None:
        self._positions = positions
        self._is_disposable = positions.is_disposable

    def position(self, obj: io.TextIOWrapper) -> int | None:
        """The argument for ``seek`` at which a reader over a file goes on with the next character that the program sees.
        ``None``: it cannot seek. Raises PicklingError: the position cannot be found.
        """
        fd = obj.fileno()
        self._positions.open(fd)
        return self._position(obj, fd, _is_iterated(obj))

    def reduce(self, pickler: Saver, obj: io.TextIOWrapper) -> Any:
        buffer: Any = obj.buffer
        if obj.closed:
            return make_closed, ("text", _attribute(obj, "name", None), _attribute(obj, "mode", "r"))
        attributes = attributes_of(obj) or {}
        raw: Any = getattr(buffer, "raw", None)
        if type(buffer) is io.BytesIO:
            return self._reduce_in_memory(obj, buffer, attributes)
        if isinstance(buffer, io.FileIO) or (isinstance(raw, io.FileIO) and raw.fileno() in STD_FDS):
            return self._reduce_unbuffered(obj, buffer, attributes)
        if not self._positions.has_position(raw):
            if obj.writable() and not obj.readable() and can_be_caught(buffer):
                return self._reduce_writer(obj, buffer, attributes)
            if raw is None and obj.seekable() and _is_iterated(obj):
                return self._reduce_in_a_loop(obj, buffer, attributes)
            if raw is not None or not obj.seekable():
                return self._reduce_reader(obj, buffer, attributes)
            obj.flush()
            settings: tuple[Any, ...] = (
                obj.encoding,
                obj.errors,
                None,
                obj.line_buffering,
                obj.write_through,
            )
            return make_text, (buffer, settings, obj.tell(), attributes)
        self._positions.buffered(buffer)
        with self._positions.flushing(buffer) if obj.writable() else contextlib.nullcontext():
            # Tested before flush(), after which tell() works again
            is_iterated = obj.seekable() and _is_iterated(obj)
            if obj.writable():
                obj.flush()
        if obj.writable():
            self._positions.at[id(buffer)] = buffer.tell()
        position = self._position(obj, raw.fileno(), is_iterated)
        read = self._positions.at[id(buffer)] if obj.writable() and obj.readable() else position
        _check_read(obj, position, read)
        settings = (obj.encoding, obj.errors, self._newline(obj), obj.line_buffering, obj.write_through)
        made = make_text, (buffer, settings, position, attributes)
        return made if read == position else (make_text_between, (*made[1], read))

    def _reduce_unbuffered(self, obj: io.TextIOWrapper, buffer: Any, attributes: dict[str, Any]) -> Any:
        """A text layer over a FileIO, or over a standard stream, to which others write too. Its unwritten text is saved with
        the layer, and not written.
        """
        raw = buffer if isinstance(buffer, io.FileIO) else buffer.raw
        newline, text = None, ""
        if raw is not buffer:
            self._positions.flush_standard(buffer)
        elif raw.fileno() not in STD_FDS:
            self._positions.open(raw.fileno())
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

    def _reduce_writer(self, obj: io.TextIOWrapper, buffer: Any, attributes: dict[str, Any]) -> Any:
        """A writing text layer over an object written in Python, such as a compressed file. Its unwritten text is saved with
        the layer, and not written.
        """
        if not self._is_disposable and codecs.lookup(obj.encoding).name not in STATELESS_CODECS:
            raise PicklingError(
                f"a text layer over {type(buffer).__name__} needs fork, or utf-8, to be saved"
            )
        errors = obj.errors or "strict"
        with caught_from(buffer) as caught:
            obj.flush()
            nbytes = len(caught)
            obj.write("\n")
            obj.flush()
            pending, probe = bytes(caught[:nbytes]), bytes(caught[nbytes:])
            newline = _WRITE_ANSWERS.get(probe.decode(obj.encoding))
            translated = pending.decode(obj.encoding, errors)
            has_begun = (pending or probe) != (translated or probe.decode(obj.encoding)).encode(
                obj.encoding, errors
            )
            text = translated.replace(newline or "\n", "\n")
            if not self._is_disposable:
                obj.write(text)
        settings = (obj.encoding, obj.errors, newline, obj.line_buffering, obj.write_through)
        return make_text_writer, (buffer, settings, has_begun, text, attributes)

    def _reduce_reader(self, obj: io.TextIOWrapper, buffer: Any, attributes: dict[str, Any]) -> Any:
        """A reading text layer over an object without a position that the layer could go back to: the characters that the
        layer has read ahead are saved with it.
        """
        if not can_be_caught(buffer):
            raise PicklingError(
                f"a text layer over {type(buffer).__name__}, which has no attributes, cannot be saved"
            )
        if obj.writable():
            with caught_from(buffer) as caught:
                obj.flush()
            if caught:
                raise PicklingError(
                    f"a text layer over {type(buffer).__name__}, which reads and writes, holds text that is not written: "
                    "flush it"
                )
        ahead, has_carriage_return, newline = text_ahead(obj)
        if not self._is_disposable:
            put_text_back(obj, ahead, has_carriage_return)
        settings = (obj.encoding, obj.errors, newline, obj.line_buffering, obj.write_through)
        return make_text_ahead, (buffer, settings, ahead, has_carriage_return, attributes)

    def _reduce_in_memory(self, obj: io.TextIOWrapper, buffer: io.BytesIO, attributes: dict[str, Any]) -> Any:
        """A text layer over a BytesIO. In a ``for`` loop, the remaining text is read to find the position. Unwritten text is
        saved with the layer, and not written: the BytesIO may have been saved before.
        """
        before = buffer.getvalue(), buffer.tell()
        if not _is_iterated(obj):
            position: int | None = obj.tell()  # tell() also writes the unwritten text
        elif self._is_disposable and codecs.lookup(obj.encoding).name in STATELESS_CODECS:
            position = None
        else:
            raise PicklingError(
                "a text layer over memory in the middle of a for loop needs fork, and utf-8, to be saved"
            )
        content, at = buffer.getvalue(), buffer.tell()
        pending = obj.read() if position is None else ""
        newline = newline_in_memory(obj, buffer)
        if position is None:
            position = _start_of(pending, content, obj.encoding, obj.errors or "strict", newline)
            if position is None:
                raise PicklingError("the position in a text layer over memory cannot be worked out")
        settings = (obj.encoding, obj.errors, newline, obj.line_buffering, obj.write_through)
        unwritten = _unwritten(settings, *before, content, at)
        read = before[1]
        if unwritten:
            (content, at), position = before, read
        _check_read(obj, position, read)
        buffer.seek(0)
        buffer.truncate()
        buffer.write(content)
        buffer.seek(at)
        if not self._is_disposable:
            obj.seek(position)
            obj.write(unwritten)
            read_on(obj, read)
        if read != position:
            return make_text_between, (buffer, settings, position, attributes, read)
        return make_text, (buffer, settings, position, attributes, unwritten)

    def _reduce_in_a_loop(self, obj: io.TextIOWrapper, buffer: Any, attributes: dict[str, Any]) -> Any:
        """A text layer in a ``for`` loop over a buffer that is no file of the kernel (gzip): the remaining text is read, and
        its beginning is searched for.
        """
        where = f"a text layer over {type(buffer).__name__} in the middle of a for loop"
        if not self._is_disposable or codecs.lookup(obj.encoding).name not in STATELESS_CODECS:
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

    def _position(self, obj: io.TextIOWrapper, fd: int, is_iterated: bool) -> int | None:
        """The cookie for ``seek`` (:meth:`io.TextIOBase.tell`).

        While a ``for`` loop reads lines ``tell()`` raises OSError; then the cookie is computed from the remaining text.
        """
        if not obj.seekable():
            return None
        if not is_iterated:
            return obj.tell()
        if not self._is_disposable:
            raise PicklingError("a text file in the middle of a for loop needs fork to be saved")
        if codecs.lookup(obj.encoding).name not in STATELESS_CODECS:
            raise PicklingError(f"a for loop over a file in encoding {obj.encoding!r} cannot be saved")
        original = self._positions.opened[fd].original
        buffer: Any = obj.buffer
        end: int = buffer.tell()  # the text layer has taken the bytes before this position
        incomplete = b""
        if codecs.lookup(obj.encoding).name == "utf-8":  # the decoder may hold the first bytes of a character
            for byte in read_at(original, end, 3):
                if byte & 0xC0 != 0x80:
                    break
                incomplete += bytes([byte])
        with memory_file(b"") as empty, memory_file(incomplete) as tail:
            os.dup2(empty, fd, inheritable=False)
            buffer.read()  # drops what the buffer has read ahead
            os.dup2(tail, fd, inheritable=False)
            pending = obj.read()
        errors = obj.errors or "strict"
        end += len(incomplete)
        window = len(pending.encode(obj.encoding, errors)) + pending.count("\n") + 4
        before = read_at(original, max(0, end - window), min(window, end))
        start = _start_of(pending, before, obj.encoding, errors, self._newline(obj))
        if start is None:
            raise PicklingError("the position in a text file cannot be worked out")
        return end - len(before) + start

    def _newline(self, obj: io.TextIOWrapper) -> str | None:
        """The ``newline`` argument, which has no attribute: found with a probe on a memory file."""
        fd = obj.fileno()
        if self._positions.opened[fd].note.kind == "device":
            return None
        cookie = None if self._is_disposable or not obj.seekable() else obj.tell()
        keep = os.dup(fd)
        try:
            with memory_file(READ_PROBE.encode(obj.encoding)) as probe:
                os.dup2(probe, fd, inheritable=False)
                return _try_newline(obj, probe)
        finally:
            os.dup2(keep, fd, inheritable=False)
            os.close(keep)
            if cookie is not None:
                obj.seek(cookie)


def _attribute(obj: io.TextIOWrapper, name: str, default: str | None) -> Any:
    """An attribute that the layer may take from the object below, or ``default``: a closed ``BZ2File`` has no ``name``, in
    later versions of Python it raises ValueError.
    """
    try:
        return getattr(obj, name)
    except (AttributeError, ValueError):
        return default


def _check_read(obj: io.TextIOWrapper, position: int | None, read: int | None) -> None:
    """Raise PicklingError: after a restart, the layer could not read ahead from ``position`` up to ``read``."""
    if read != position and skips_characters(position or 0):
        raise PicklingError(
            f"a text file that is read and written, in encoding {obj.encoding!r}, has been read up to a place where its "
            "decoder cannot begin: checkpoints wait until more of it has been read"
        )


def _is_iterated(obj: io.TextIOWrapper) -> bool:
    """Is a ``for`` loop reading its lines? Then ``tell()`` raises OSError."""
    try:
        obj.tell()
    except OSError:
        return True
    return False


def _unwritten(settings: tuple[Any, ...], before: bytes, at: int, after: bytes, end: int) -> str:
    """The text that a layer with these settings has written to a BytesIO, which was ``before``, with the position ``at``.
    Raises PicklingError: written once more, it would be something else."""
    if (before, at) == (after, end):
        return ""
    encoding, errors, newline = settings[:3]
    try:
        text = str(after[at:end], encoding, errors).replace(newline or "\n", "\n")
        again = io.BytesIO(before)
        again.seek(at)
        layer = io.TextIOWrapper(again, *settings)
        layer.write(text)
        layer.flush()
        is_same = again.getvalue() == after
    except (UnicodeError, TypeError):
        is_same = False
    if not is_same:
        raise PicklingError(
            f"a text layer over memory ({encoding}) holds unwritten text that cannot be saved: flush it"
        )
    return text


def newline_in_memory(obj: io.TextIOWrapper, buffer: io.BytesIO) -> str | None:
    """The ``newline`` argument, found with a probe; the content of ``buffer`` is overwritten."""
    probe = READ_PROBE.encode(obj.encoding)
    obj.seek(0)
    buffer.seek(0)
    buffer.truncate()
    buffer.write(probe)
    obj.seek(0)
    newline = newline_read(obj)
    obj.seek(0)
    return newline


def _try_newline(obj: io.TextIOWrapper, probe: int) -> str | None:
    if obj.readable():
        obj.seek(0)
        return newline_read(obj)
    os.ftruncate(probe, 0)
    obj.seek(0)
    obj.write("\n")
    obj.flush()
    written = os.pread(probe, 64, 0).decode(obj.encoding)
    return _WRITE_ANSWERS.get(written)


def _start_of(pending: str, before: bytes, encoding: str, errors: str, newline: str | None) -> int | None:
    """The index of ``before`` from which its bytes, decoded, are the text ``pending``; None: there is none."""
    first = len(before) - len(pending.encode(encoding, errors))
    for start in range(first, max(0, first - pending.count("\n") - 1) - 1, -1):
        text = before[start:].decode(encoding, errors) if start >= 0 else None
        if text is not None and newline is None:
            text = text.replace("\r\n", "\n").replace("\r", "\n")
        if text == pending:
            return start
    return None

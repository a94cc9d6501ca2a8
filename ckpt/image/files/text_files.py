"""Text layers over files: they are saved with the position of the next character, and with their settings.

A :class:`~io.TextIOWrapper` does not show its ``newline`` argument, and while a ``for`` loop reads its lines, ``tell()``
raises OSError. Both are found by experiment:

- ``newline``: the layer reads or writes a probe, on a memory file put under its descriptor.
- the text in a ``for`` loop, and over a file: what the layer has read and not given out is taken out of it, and saved with
  it (:mod:`.text_states`). This uses the object up, so it is done in a forked child only.
"""

from __future__ import annotations

import codecs
import contextlib
import io
import os
from pickle import PicklingError
from typing import TYPE_CHECKING, Any

from ckpt.compat.accelerators import skips_characters
from ckpt.compat.readers import has_taken_text
from ckpt.image.files.buffered_data import (
    READ_PROBE,
    STATELESS_CODECS,
    can_be_caught,
    caught_from,
    newline_found,
    newline_read,
    put_text_back,
    read_on,
    replaced,
    text_ahead,
    text_unwritten,
)
from ckpt.image.files.file_positions import STD_FDS, Positions, memory_file
from ckpt.image.files.reopen import make_closed
from ckpt.image.files.standard_output import catching
from ckpt.image.files.text_states import (
    Taken,
    TextState,
    make_text,
    make_text_ahead,
    make_text_between,
    make_text_with,
    make_text_writer,
    shortened,
    state_of,
    take_rest,
)
from ckpt.image.reducers.raw_instances import attributes_of

if TYPE_CHECKING:
    from ckpt.image.reducers.saver import Saver

__all__ = ["TextSaver", "is_in_a_loop", "newline_of"]

_WRITE_ANSWERS: dict[str, str | None] = {"\n": None, "\r": "\r", "\r\n": "\r\n"}


_OFFSET = (1 << 64) - 1
"""Bits of a layer's position (``tell``) that are an offset in the file; the others say how its decoder begins there."""


class TextSaver:
    """The reducer of text layers, for one image."""

    def __init__(self, positions: Positions) -> None:
        self._positions = positions
        self._is_disposable = positions.is_disposable

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
            return self._reduce_over_python(obj, buffer, raw, attributes)
        self._positions.buffered(buffer)
        if self._is_disposable and obj.writable() and obj.readable() and obj.seekable():
            is_iterated, pending = _flushed(obj, buffer)
            if pending:
                return self._reduce_pending(obj, buffer, attributes, pending)
            position = None if is_iterated else obj.tell()
            return self._reduce_reading(obj, position, self._positions.at[id(buffer)], attributes)
        with self._positions.flushing(buffer) if obj.writable() else contextlib.nullcontext():
            # Tested before flush(), after which tell() works again
            is_iterated = obj.seekable() and is_in_a_loop(obj)
            if obj.writable():
                obj.flush()
        if obj.writable():
            self._positions.at[id(buffer)] = buffer.tell()
        if is_iterated and not self._is_disposable:
            raise PicklingError("a text file in the middle of a for loop needs fork to be saved")
        position = obj.tell() if obj.seekable() and not is_iterated else None
        read = self._positions.at.get(id(buffer))
        if self._is_disposable and obj.readable() and read is not None:
            return self._reduce_reading(obj, position, read, attributes)
        newline = newline_of(obj, self._positions)
        read = self._positions.at[id(buffer)] if obj.writable() and obj.readable() else position
        if position is not None and read is not None and read != position:
            _check_read(obj, not skips_characters(position) and read <= self._positions.end(buffer))
        made = buffer, _settings(obj, newline), position, attributes
        return (make_text, made) if read == position else (make_text_between, (*made, read))

    def _reduce_over_python(
        self, obj: io.TextIOWrapper, buffer: Any, raw: Any, attributes: dict[str, Any]
    ) -> Any:
        """A text layer over an object that is no file of the kernel."""
        if obj.writable() and not obj.readable() and can_be_caught(buffer):
            return self._reduce_writer(obj, buffer, attributes)
        is_iterated = False
        if obj.writable() and can_be_caught(buffer):
            is_iterated, pending = _flushed(obj, buffer)
            if pending:
                return self._reduce_pending(obj, buffer, attributes, pending)
        elif obj.seekable():
            is_iterated = is_in_a_loop(obj)
        is_taken_out = is_iterated and raw is not None and not self._is_disposable  # it can be put back, too
        if is_taken_out or not obj.seekable():
            return self._reduce_reader(obj, buffer, attributes)
        if is_iterated:
            return self._reduce_in_a_loop(obj, buffer, attributes)
        read, position = buffer.tell(), obj.tell()
        data, begin = b"", position & _OFFSET
        if obj.writable() and begin != read:
            _check_read(obj, begin == position)
            buffer.seek(position)
            data = buffer.read(read - position)
            buffer.seek(read)
            _check_read(obj, len(data) == read - position)
        newline = newline_found(obj)
        if not self._is_disposable:
            obj.seek(position)
            read_on(obj, read, data)
        made = buffer, _settings(obj, newline), position, attributes
        return (make_text_between, (*made, read, data)) if data else (make_text, made)

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
        settings = _settings(obj, newline)
        position = obj.tell() if raw is buffer and obj.seekable() else None
        return make_text, (buffer, settings, position, attributes, text)

    def _reduce_writer(
        self, obj: io.TextIOWrapper, buffer: Any, attributes: dict[str, Any], unwritten: bytes = b""
    ) -> Any:
        """A writing text layer over an object written in Python, such as a compressed file. Its unwritten text is saved with
        the layer, and not written. ``unwritten``: what has been taken out of it already.
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
            pending, probe = unwritten + caught[:nbytes], bytes(caught[nbytes:])
            newline = _WRITE_ANSWERS.get(probe.decode(obj.encoding))
            translated = pending.decode(obj.encoding, errors)
            has_begun = (pending or probe) != (translated or probe.decode(obj.encoding)).encode(
                obj.encoding, errors
            )
            text = translated.replace(newline or "\n", "\n")
            if obj.readable():
                newline = newline_found(obj)  # None and "" write alike
            if not self._is_disposable:
                obj.write(text)
        return make_text_writer, (buffer, _settings(obj, newline), has_begun, text, attributes)

    def _reduce_reader(self, obj: io.TextIOWrapper, buffer: Any, attributes: dict[str, Any]) -> Any:
        """A reading text layer over an object without a position that the layer could go back to: the characters that the
        layer has read ahead are saved with it.
        """
        if not can_be_caught(buffer):
            raise PicklingError(
                f"a text layer over {type(buffer).__name__}, which has no attributes, cannot be saved"
            )
        if self._positions.is_waited_for(buffer) and has_taken_text():
            raise PicklingError(
                "a thread waits in the middle of a line of a connection that is read as text, and which part of it has come "
                "already cannot be told; a later image succeeds"
            )
        ahead, has_carriage_return, newline = text_ahead(obj)
        if not self._is_disposable:
            put_text_back(obj, ahead, has_carriage_return)
        return make_text_ahead, (buffer, _settings(obj, newline), ahead, has_carriage_return, attributes)

    def _reduce_in_memory(self, obj: io.TextIOWrapper, buffer: io.BytesIO, attributes: dict[str, Any]) -> Any:
        """A text layer over a BytesIO. Unwritten text is saved with the layer, and not written: the BytesIO may have been
        saved before.
        """
        before = buffer.getvalue(), buffer.tell()
        if is_in_a_loop(obj):
            _, pending = _flushed(obj, buffer) if self._is_disposable else (True, b"")
            if pending:
                return self._reduce_pending(obj, buffer, attributes, pending)
            return self._reduce_in_a_loop(obj, buffer, attributes)
        position = obj.tell()  # also writes the unwritten text
        content, at = buffer.getvalue(), buffer.tell()
        settings = _settings(obj, newline_found(obj))
        unwritten = text_unwritten(settings, *before, content, at)
        read = before[1]
        if unwritten:
            (content, at), position = before, read
        _check_read(obj, read == position or not skips_characters(position))
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

    def _reduce_pending(
        self, obj: io.TextIOWrapper, buffer: Any, attributes: dict[str, Any], pending: bytes
    ) -> Any:
        """A layer that has written, which it reads, too. ``pending``: what has been taken out of it."""
        before = take_rest(obj)
        made = self._reduce_writer(obj, buffer, attributes, pending)
        if not before[0]:
            return made
        # Since 3.13 it reads on, in a loop, from what it had read before it wrote
        _, (_, settings, _, text, _) = made
        return make_text_with, (buffer, settings, _state_in_a_loop(obj, before, settings), attributes, text)

    def _reduce_in_a_loop(self, obj: io.TextIOWrapper, buffer: Any, attributes: dict[str, Any]) -> Any:
        """A layer in a ``for`` loop, over what is no file of the kernel."""
        if not (self._is_disposable and can_be_caught(buffer)):
            raise PicklingError(
                f"a text layer over {type(buffer).__name__} in the middle of a for loop needs fork to be saved; readline() "
                "in a while loop does not"
            )
        before = take_rest(obj)
        settings = _settings(obj, newline_found(obj))
        return make_text_with, (buffer, settings, _state_in_a_loop(obj, before, settings), attributes)

    def _reduce_reading(
        self, obj: io.TextIOWrapper, position: int | None, read: int, attributes: dict[str, Any]
    ) -> Any:
        """A layer over a file that it reads, in a forked child. ``position``: None in a ``for`` loop."""
        buffer: Any = obj.buffer
        before = take_rest(obj)
        settings = _settings(obj, newline_of(obj, self._positions))
        if position is None:
            return make_text_with, (buffer, settings, _state_in_a_loop(obj, before, settings), attributes)
        state = state_of(before, settings, read, is_iterated=False)
        if state is None:
            return make_text, (buffer, settings, position, attributes)
        is_same = isinstance(state.piece, bytes) and self._positions.has(
            buffer.fileno(), state.begin, state.piece
        )
        if not obj.writable() and is_same:
            state = shortened(state)
        return make_text_with, (buffer, settings, state, attributes)


def _state_in_a_loop(obj: io.TextIOWrapper, before: Taken, settings: tuple[Any, ...]) -> TextState:
    buffer: Any = obj.buffer
    state = state_of(before, settings, buffer.tell(), is_iterated=True)
    if state is None:
        raise PicklingError(
            f"a for loop over text in encoding {obj.encoding!r} (errors={obj.errors!r}) holds what cannot be encoded again: "
            "checkpoints wait until it reads on; readline() in a while loop does not"
        )
    return state


def _attribute(obj: io.TextIOWrapper, name: str, default: str | None) -> Any:
    """An attribute that the layer may take from the object below, or ``default``: a closed ``BZ2File`` has no ``name``, in
    later versions of Python it raises ValueError.
    """
    try:
        return getattr(obj, name)
    except (AttributeError, ValueError):
        return default


def _check_read(obj: io.TextIOWrapper, can_read_ahead: bool) -> None:
    """Raise PicklingError: after a restart, the layer could not read ahead as far as it has read."""
    if not can_read_ahead:
        raise PicklingError(
            f"a text layer that reads and writes, in encoding {obj.encoding!r}, has read ahead what cannot be read ahead "
            "again (its decoder cannot begin there, or the file was cut): checkpoints wait until it reads on, or seeks"
        )


def _settings(obj: io.TextIOWrapper, newline: str | None) -> tuple[Any, ...]:
    return obj.encoding, obj.errors, newline, obj.line_buffering, obj.write_through


def _flushed(obj: io.TextIOWrapper, buffer: Any) -> tuple[bool, bytes]:
    """Take out of a layer that reads and writes what it has not written; is a ``for`` loop reading its lines?"""
    if not obj.seekable():
        with caught_from(buffer) as caught:
            obj.flush()
        return False, bytes(caught)
    at = buffer.tell()
    with caught_from(buffer) as caught, replaced(buffer, {"tell": lambda: at}):
        is_iterated = is_in_a_loop(obj)
        obj.flush()
    return is_iterated, bytes(caught)


def is_in_a_loop(obj: io.TextIOWrapper) -> bool:
    """Is a ``for`` loop reading its lines? Then ``tell()`` raises OSError."""
    try:
        obj.tell()
    except OSError:
        return True
    return False


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


def newline_of(obj: io.TextIOWrapper, positions: Positions) -> str | None:
    """The ``newline`` argument, which has no attribute: found with a probe on a memory file."""
    fd = obj.fileno()
    if positions.opened[fd].note.kind == "device":
        return None
    cookie = None if positions.is_disposable or not obj.seekable() else obj.tell()
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

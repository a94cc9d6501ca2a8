"""Data that a buffer or text layer holds over an object that is no file of the kernel with a position: what the program has
written and the object below has not got yet, and what has been read from below and the program has not got yet.

The object below is, for example, a pipe, the gzip file under ``gzip.open(..., "wt")``, or a raw file written in Python. It
must not hear of any of this: the image may hold it already, its methods may be the program's code, and reading might wait.
So for a moment its methods are replaced: attributes of the instance hide those of its class.

written     the data is what ``flush()`` writes below
read ahead  a buffer shows its bytes by ``peek()``, with nothing to be had from below. A text layer shows no such thing: its
            characters are read one by one until it asks below. Its decoder may hold the first bytes of a character, or a
            carriage return to which a line feed may belong: one more character shows that

Without fork (the program itself takes its image) the data is put back into the buffer or layer.

Of a file that is read and written the buffer is filled again at load (:func:`make_random_access`).

Not here: what buffers over files hold (:mod:`ckpt.image.files.file_positions`), standard streams
(:mod:`ckpt.image.files.standard_output`).
"""

from __future__ import annotations

import codecs
import contextlib
import io
import os
from collections.abc import Callable, Iterator
from pickle import PicklingError
from typing import Any

from ckpt.compat.typeobjects import instance_bytes
from ckpt.image.files.reopen import make_buffered
from ckpt.image.reducers.buffers import buffer_over
from ckpt.image.reducers.raw_instances import attributes_of

__all__ = [
    "READ_PROBE",
    "STATELESS_CODECS",
    "TextAhead",
    "buffer_nbytes",
    "bytes_ahead",
    "can_be_caught",
    "caught_from",
    "has_unwritten_bytes",
    "make_buffer_ahead",
    "make_buffer_pair",
    "make_closed_pair",
    "make_filled",
    "make_random_access",
    "newline_found",
    "newline_read",
    "put_text_back",
    "read_on",
    "replaced",
    "text_ahead",
    "text_unwritten",
    "unwritten_bytes",
]

STATELESS_CODECS = frozenset(
    {
        *("utf-8", "ascii", "koi8-r", "koi8-u", "mac-roman"),
        *(f"iso8859-{number}" for number in range(1, 17)),
        *(f"cp{number}" for number in (437, 737, 775, 850, 852, 855, 857, 858, 866, 874, *range(1250, 1259))),
    }
)
"""A decoder begins with any character: nothing that came before matters."""


def can_be_caught(below: Any) -> bool:
    """Does the object have a ``__dict__``, so that its methods can be replaced for a moment?"""
    return attributes_of(below) is not None


@contextlib.contextmanager
def caught_from(below: Any) -> Iterator[bytearray]:
    """While the context is active, bytes written to the object go into the bytearray that the context gives, and none of
    the object's own methods is called.
    """
    caught = bytearray()

    def write(data: Any) -> int:
        nbytes = memoryview(data).nbytes
        caught.extend(data)
        return nbytes

    with replaced(below, {"write": write, "flush": lambda: None, "tell": lambda: 0}):
        yield caught


@contextlib.contextmanager
def replaced(below: Any, replacements: dict[str, Callable[..., Any]]) -> Iterator[None]:
    """While the context is active, these methods of one object are others."""
    attributes = attributes_of(below)
    assert attributes is not None, "asked before"
    originals = {name: attributes[name] for name in replacements if name in attributes}
    attributes.update(replacements)
    try:
        yield
    finally:
        for name in replacements:
            del attributes[name]
        attributes.update(originals)


def unwritten_bytes(buffer: io.BufferedWriter, *, is_disposable: bool) -> bytes:
    """The bytes that the buffer holds. ``is_disposable``: this process is a forked child, and the buffer stays empty; else
    the bytes are put back into the buffer.
    """
    with caught_from(buffer.raw) as caught:
        buffer.flush()
        if not is_disposable:
            pending = bytes(caught)
            buffer.write(pending)  # fits: the buffer held these bytes before
            return pending
    return bytes(caught)


def has_unwritten_bytes(buffer: io.BufferedRandom, *, is_disposable: bool) -> bool:
    """Does the buffer, which can seek, hold bytes that it has not written? They stay in it, except in a forked child
    (``is_disposable``)."""
    raw, position = buffer.raw, buffer.tell()
    at, written = raw.tell(), list[tuple[int, bytes]]()

    def seek(offset: int, whence: int = 0) -> int:
        nonlocal at
        at = offset + (at if whence == 1 else 0)
        return at

    def write(data: Any) -> int:
        nonlocal at
        written.append((at, bytes(data)))
        at += len(written[-1][1])
        return len(written[-1][1])

    with replaced(raw, {"seek": seek, "tell": lambda: at, "write": write, "flush": lambda: None}):
        buffer.flush()
    if not is_disposable:
        raw.seek(at)
        for place, data in written:
            buffer.seek(place)
            buffer.write(data)
        if buffer.tell() != position:
            buffer.seek(position)
    return bool(written)


def text_unwritten(settings: tuple[Any, ...], before: bytes, at: int, after: bytes, end: int) -> str:
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


# ---------------------------------------------------------------------- read ahead


def bytes_ahead(buffer: io.BufferedReader) -> bytes:
    """The bytes that the buffer has read and the program has not; they stay where they are."""
    with replaced(buffer.raw, {"readinto": lambda target: 0}):
        return bytes(buffer.peek(1))


class _Asked(Exception):
    """A text layer has asked the object below for more."""


TextAhead = tuple[str, bool, str | None]
"""The characters that a text layer has decoded and the program has not read; whether its decoder holds a carriage return
too; the layer's argument ``newline``."""

READ_PROBE = "a\rb\nc\r\nd"
_READ_ANSWERS: dict[tuple[str, ...], str | None] = {
    ("a\n", "b\n", "c\n", "d"): None,
    ("a\r", "b\n", "c\r\n", "d"): "",
    ("a\rb\n", "c\r\n", "d"): "\n",
    ("a\r", "b\nc\r", "\nd"): "\r",
    ("a\rb\nc\r\n", "d"): "\r\n",
}


def text_ahead(text: io.TextIOWrapper) -> TextAhead:
    """Take what the layer has read ahead out of it. Raises PicklingError: the layer's decoder is in the middle of a
    character, or the encoding has a state that cannot be read.
    """
    if codecs.lookup(text.encoding).name not in STATELESS_CODECS:
        raise PicklingError(
            f"a text layer in encoding {text.encoding!r} over {type(text.buffer).__name__} cannot be saved while it is read"
        )
    parts: list[bytes] = []
    has_end = False

    def read(size: int = -1) -> bytes:
        if not parts and not has_end:
            raise _Asked
        return parts.pop() if parts else b""

    with replaced(text.buffer, {"read": read, "read1": read}):
        ahead = "".join(_characters(text))
        parts.append(b"a")
        try:
            after = "".join(_characters(text))
        except UnicodeDecodeError:
            after = ""
        if after[-1:] != "a" or len(after) > 2:
            raise PicklingError(
                f"a text layer over {type(text.buffer).__name__} has read half of a character: checkpoints wait until it "
                "has the other half"
            )
        has_end = True
        parts.append(READ_PROBE.encode(text.encoding))
        newline = newline_read(text)
    return ahead, len(after) == 2, newline


def newline_read(text: io.TextIOWrapper) -> str | None:
    """The layer's argument ``newline``, by the lines in which it reads ``READ_PROBE`` up to the end."""
    return _READ_ANSWERS.get(tuple(iter(text.readline, "")))


def newline_found(text: io.TextIOWrapper) -> str | None:
    """As :func:`newline_read`; nobody below is asked. What the layer has read ahead is gone: seek."""
    if not can_be_caught(text.buffer):
        return None
    parts = [READ_PROBE.encode(text.encoding)]

    def read(size: int = -1) -> bytes:
        return parts.pop() if parts else b""

    methods: dict[str, Callable[..., Any]] = {
        "seek": lambda *where: 0,
        "tell": lambda: 0,
        "flush": lambda: None,
        "read": read,
        "read1": read,
    }
    with replaced(text.buffer, methods):
        text.seek(0)
        return newline_read(text)


def _characters(text: io.TextIOWrapper) -> Iterator[str]:
    with contextlib.suppress(_Asked):
        while True:
            yield text.read(1)


def put_text_back(text: io.TextIOWrapper, ahead: str, has_carriage_return: bool) -> None:
    """Counterpart of :func:`text_ahead`, for the same layer or a new one. One character is read, so that the layer reads the
    others ahead."""
    if not ahead and not has_carriage_return:
        return
    data = ("a" + ahead + "\r" * has_carriage_return).encode(text.encoding, text.errors or "strict")
    with replaced(text.buffer, {"read": lambda size=-1: data, "read1": lambda size=-1: data}):
        text.read(1)


def read_on(text: io.TextIOWrapper, read: int, data: bytes | None = None) -> None:
    """A text layer that reads and writes, and has been put to its position by ``seek``, reads ahead up to the byte ``read``.
    There, the program's next text is written, if no seek comes before (``Modules/_io/textio.c``). ``data``: what it
    reads."""
    buffer: Any = text.buffer
    if data is None:
        data = buffer.read(read - buffer.tell())
    elif data:
        buffer.seek(read)
    if data:
        with replaced(buffer, {"read": lambda size=-1: data, "read1": lambda size=-1: data}):
            text.readline(0)  # decodes what is read, and takes no character of it


# ---------------------------------------------------------------------- called while loading


def make_random_access(
    cls: Any, raw: Any, position: int, places: list[tuple[int, bytes]], nbytes: int = io.DEFAULT_BUFFER_SIZE
) -> Any:
    """A buffered object over ``raw`` that is read and written, at the logical position in bytes. ``places``: what is in its
    buffer and not written yet, each with its offset in the file. It stays there, as far as the end of the file allows that.
    ``nbytes``: of the buffer.
    """
    first = min(position, *(at for at, _ in places))
    end = max(position, *(at + len(data) for at, data in places))
    made = buffer_over(cls, raw, max(nbytes, end - first + 1))
    made.seek(first)
    made.peek(1)  # a seek within what has been read ahead writes nothing
    for at, data in places:
        made.seek(at)
        made.write(data)
    if made.tell() != position:  # a seek to where it is would write
        made.seek(position)
    return made


def make_buffer_ahead(cls: Any, raw: Any, ahead: bytes, nbytes: int = io.DEFAULT_BUFFER_SIZE) -> Any:
    """A buffer of ``nbytes`` that has read ``ahead`` from ``raw`` already."""
    with replaced(raw, {"readinto": lambda target: _fill(target, ahead)}):
        made = buffer_over(cls, raw, nbytes)
        if ahead:
            made.peek(1)
    return made


def make_filled(
    cls: Any,
    raw: Any,
    nbytes: int,
    begin: int,
    data: bytes | int,
    place: int,
    written: tuple[int, bytes] | None,
) -> Any:
    """A buffer of ``nbytes`` that holds the bytes ``data`` of a file from ``begin`` on (a number: so many, which the file
    still has), with the program at the ``place`` in them, and what the program has written over them
    (:data:`ckpt.compat.readers.Window`). The offset of the descriptor is behind them already."""
    if isinstance(data, int):
        expected = data
        data = os.pread(raw.fileno(), expected, begin)
        if len(data) < expected:  # it is another file by now
            return make_buffered(cls, raw, begin + place, b"", nbytes)
    methods: dict[str, Callable[..., Any]] = {
        "readinto": lambda target: _fill(target, data),
        "tell": lambda: begin,
        "seek": lambda *where: begin,
    }
    with replaced(raw, methods):
        made = buffer_over(cls, raw, nbytes)
        if data:
            made.peek(1)
    with replaced(raw, {"tell": lambda: begin + len(data)}):
        if written is not None:
            made.seek(begin + written[0])
            made.write(written[1])
        if made.tell() != begin + place:
            made.seek(begin + place)
    return made


def make_buffer_pair(reader: Any, writer: Any, ahead: bytes, pending: bytes) -> io.BufferedRWPair:
    """A pair of buffers that has read ``ahead`` from ``reader`` already, and not written ``pending`` to ``writer``."""
    made = io.BufferedRWPair(reader, writer, max(io.DEFAULT_BUFFER_SIZE, len(ahead), len(pending)))
    if ahead:
        with replaced(reader, {"readinto": lambda target: _fill(target, ahead)}):
            made.peek(1)
    made.write(pending)
    return made


def make_closed_pair() -> io.BufferedRWPair:
    nothing: Any = io.BytesIO()
    made = io.BufferedRWPair(nothing, nothing)
    made.close()
    return made


def buffer_nbytes(buffer: Any) -> int:
    """The size of the buffer of an object of :mod:`io`'s buffered classes, in bytes (``__sizeof__`` counts it; all
    versions)."""
    return int(buffer.__sizeof__()) - instance_bytes(type(buffer))


def _fill(target: Any, data: bytes) -> int:
    target[: len(data)] = data
    return len(data)

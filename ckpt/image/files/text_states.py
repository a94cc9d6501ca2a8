"""What a text layer over a file has read and not given out yet: taken out of it for an image, and given to a new layer.

A layer reads its file in pieces, decodes each, and keeps what the program has not read. In a new layer the methods of the
buffer below are replaced for a moment, so that it reads just the same piece: then its text, its decoder and its position
are those of the old one, in any encoding. It reads on where the old one would have, whoever has changed the file since.

before a ``for`` loop    the layer keeps the piece itself, and the state in which its decoder was before it, for ``tell()``;
                         they are among what it refers to. And how many of its characters the program has read
in a ``for`` loop        it keeps neither. The text that is left is encoded again, and the decoder gets its state

What is taken out of a layer uses it up, so this is done in a forked child only. There, the new layer is tried, too.
"""

from __future__ import annotations

import codecs
import gc
import io
import os
from typing import Any

from ckpt.image.files.buffered_data import STATELESS_CODECS, caught_from, put_text_back, read_on, replaced
from ckpt.transport.records import dataclass, replace

__all__ = [
    "Taken",
    "TextState",
    "length_of_rest",
    "make_text",
    "make_text_ahead",
    "make_text_between",
    "make_text_with",
    "make_text_writer",
    "search_encoding",
    "shortened",
    "start_of",
    "state_of",
    "take_rest",
]

Taken = tuple[str, tuple[bytes, int], int | None, bytes]
"""Text, the state of the decoder; the decoder's flags before the piece that was read last, and this piece."""

_FLAGS_SHIFT = 64
"""A position of a text layer: an offset in the file, and from this bit on the state in which its decoder begins there."""


class _Asked(Exception):
    """A text layer has asked the object below for more."""


@dataclass(slots=True)
class TextState:
    """``piece``: the bytes from which the layer has its text; a number: so many, which the file has. ``begin``: their
    place in the file. ``flags``: of the decoder before them; None: the layer keeps no such piece. ``given``: how many
    characters of it the program has read. ``decoder``: its state behind the piece; None: that which follows from it, and no
    ``for`` loop reads the lines."""

    piece: bytes | int
    begin: int
    flags: int | None
    given: int
    decoder: tuple[bytes, int] | None


def take_rest(obj: io.TextIOWrapper) -> Taken:
    """Take out of the layer what it has read and not given out."""
    rest, decoder = _rest(obj), _decoder_state(obj)
    kinds = ((each, [type(part) for part in each]) for each in gc.get_referents(obj) if type(each) is tuple)
    flags, piece = next((each for each, parts in kinds if parts == [int, bytes]), (None, b""))
    return rest, decoder, flags, piece


def state_of(taken: Taken, settings: tuple[Any, ...], read: int, is_iterated: bool) -> TextState | None:
    """``settings``: further arguments of :class:`io.TextIOWrapper`. ``read``: the position of the buffer below. None: a new
    layer would have something else."""
    rest, decoder, flags, piece = taken
    if is_iterated:
        end = settings[2] or "\n"
        try:
            piece = f"{end}{rest}".encode(settings[0], settings[1] or "strict")
        except UnicodeError:
            return None
        state = TextState(piece, read, flags and 0, 0, decoder)
    else:
        state = TextState(piece, read - len(piece), flags, 0, None)
        state = replace(state, given=len(_rest(_tried(settings, state))) - len(rest))
        if state.given < 0:
            return None
    tried = _tried(settings, state)
    return state if (_rest(tried), _decoder_state(tried)) == (rest, decoder) else None


def shortened(state: TextState) -> TextState:
    """Where the file has the piece still."""
    return replace(state, piece=len(state.piece)) if isinstance(state.piece, bytes) else state


def _tried(settings: tuple[Any, ...], state: TextState) -> io.TextIOWrapper:
    return make_text_with(io.BytesIO(), settings, state, {})


def _rest(obj: io.TextIOWrapper) -> str:
    """What the layer has decoded and not given out; nobody below is asked."""
    parts: list[str] = []

    def read(size: int = -1) -> bytes:
        raise _Asked

    with replaced(obj.buffer, {"read": read, "read1": read}):
        try:
            while True:
                parts.append(obj.read(1))
        except _Asked:
            return "".join(parts)


def _decoder_of(obj: io.TextIOWrapper) -> Any:
    return next(
        (each for each in gc.get_referents(obj) if hasattr(each, "getstate") and hasattr(each, "decode")),
        None,
    )


def _decoder_state(obj: io.TextIOWrapper) -> tuple[bytes, int]:
    decoder = _decoder_of(obj)
    found: tuple[bytes, int] = (b"", 0) if decoder is None else decoder.getstate()
    return found


def make_text_with(
    buffer: Any, settings: tuple[Any, ...], state: TextState, attributes: dict[str, Any], text: str = ""
) -> io.TextIOWrapper:
    """A text layer with this state over a buffer that is behind what it has read. ``text``: what it has not written."""
    made = io.TextIOWrapper(buffer, *settings)
    piece = state.piece
    if isinstance(piece, int):
        piece = os.pread(buffer.fileno(), piece, state.begin)
    pieces = [piece] if piece else []

    def read(size: int = -1) -> bytes:
        if not pieces:
            raise _Asked
        return pieces.pop()

    methods: dict[str, Any] = {"read": read, "read1": read, "flush": lambda: None, "seek": lambda *where: 0}
    with replaced(buffer, methods):
        if state.flags is not None:
            made.seek(state.begin | state.flags << _FLAGS_SHIFT)
        try:
            if state.decoder is not None:
                next(made)  # a layer does not tell its position from there on
                _decoder_of(made).setstate(state.decoder)
            elif pieces and state.given:
                made.read(state.given)
            elif pieces:
                made.readline(0)
        except _Asked:
            pass  # the piece is no whole character
        if text:
            made.write(text)
    made.__dict__.update(attributes)
    return made


def make_text(
    buffer: Any, settings: tuple[Any, ...], position: Any, attributes: dict[str, Any], pending: str = ""
) -> Any:
    """A text layer over ``buffer``. ``settings``: further arguments of :class:`io.TextIOWrapper`, in order. ``position``:
    for ``seek``, or None. ``attributes``: of the instance. ``pending``: text that is not written yet.
    """
    made = io.TextIOWrapper(buffer, *settings)
    if position is not None and type(buffer) is not io.BufferedWriter and position != buffer.tell():
        made.seek(position)  # before write(): a seek would flush the pending text
    if pending:
        made.write(pending)
    made.__dict__.update(attributes)
    return made


def make_text_between(
    buffer: Any,
    settings: tuple[Any, ...],
    position: int,
    attributes: dict[str, Any],
    read: int,
    data: bytes | None = None,
) -> Any:
    """A text layer at this position for the program, which has read up to ``read`` (:func:`read_on`). ``data``: the bytes
    from the position on, where nobody below can be asked for them."""
    made = make_text(buffer, settings, position, attributes)
    read_on(made, read, data)
    return made


def make_text_writer(
    buffer: Any, settings: tuple[Any, ...], has_begun: bool, text: str, attributes: dict[str, Any]
) -> io.TextIOWrapper:
    """A text layer that holds the unwritten ``text``. ``has_begun``: the encoder has written its byte order mark already."""
    with caught_from(buffer):
        made = io.TextIOWrapper(buffer, *settings)
        if has_begun:
            made.write("\n")
            made.flush()
    made.write(text)  # fits: a text layer held this text before
    made.__dict__.update(attributes)
    return made


def make_text_ahead(
    buffer: Any, settings: tuple[Any, ...], ahead: str, has_carriage_return: bool, attributes: dict[str, Any]
) -> io.TextIOWrapper:
    """A text layer that has read ``ahead`` already."""
    made = io.TextIOWrapper(buffer, *settings)
    put_text_back(made, ahead, has_carriage_return)
    made.__dict__.update(attributes)
    return made


# ---------------------------------------------------------------------- where text begins


def start_of(pending: str, before: bytes, encoding: str, errors: str, newline: str | None) -> int | None:
    """The index of ``before`` from which its bytes, decoded, are the text ``pending``; None: there is none. ``before`` may
    begin within a character. ``encoding``: of :func:`search_encoding`."""
    begin = length_of_rest(before, encoding)
    try:
        text = before[begin:].decode(encoding, errors)
    except UnicodeDecodeError:
        return None
    at = end = len(text) - len(pending)
    while newline is None and at >= 0 and (longer := end - text.count("\r\n", at)) != at:
        at = longer  # each end of line of two characters is one in the text
    if at < 0:
        return None
    found = text[at:]
    start = len(before) - len(found.encode(encoding, errors))
    read = found.replace("\r\n", "\n").replace("\r", "\n") if newline is None else found
    is_right = read == pending and start >= begin and before[start:].decode(encoding, errors) == found
    return start if is_right else None


def search_encoding(encoding: str) -> str | None:
    """The encoding in which text can be searched for in a file of this encoding, from any character on; None: there is
    none."""
    name = codecs.lookup(encoding).name
    if name == "utf-8-sig":
        return "utf-8"  # it differs at the beginning of a file only
    return name if name in STATELESS_CODECS else None


def length_of_rest(data: bytes, encoding: str) -> int:
    """How many bytes at the beginning belong to a character that has begun before: at most three, in UTF-8. ``encoding``:
    of :func:`search_encoding`."""
    count = 0
    if encoding == "utf-8":
        while count < min(3, len(data)) and data[count] & 0xC0 == 0x80:
            count += 1
    return count

"""Where in a file the text is that a text layer has read ahead.

The layer's remaining text is taken out of it, and the place in the file where this text begins is searched for. This uses
the layer up, so it is done in a forked child only.

A program that reads a file, and meanwhile writes it anew, goes on with what it had read. So where the file does not have
this text any more, a place in it is of no use, and the text is saved with the layer; it is looked at also where the layer
tells its position.
"""

from __future__ import annotations

import codecs
import io
import os
from collections.abc import Callable
from pickle import PicklingError
from typing import Any

from ckpt.image.files.buffered_data import STATELESS_CODECS
from ckpt.image.files.file_positions import Positions, memory_file, read_at

__all__ = ["length_of_rest", "place_of_text", "search_encoding", "start_of"]


def place_of_text(
    obj: io.TextIOWrapper,
    positions: Positions,
    position: int | None,
    encoding: str,
    newline_of: Callable[[io.TextIOWrapper], str | None],
) -> tuple[int | None, tuple[str, bool] | None]:
    """The offset at which the file has what the layer has read ahead; or else that text, and whether the layer's decoder
    holds a carriage return, too. ``position``: what the layer says; None: it is in a ``for`` loop.
    """
    buffer: Any = obj.buffer
    fd = obj.fileno()
    original = positions.opened[fd].original
    end: int = buffer.tell()  # the text layer has taken the bytes before this position
    ahead = positions.ahead.get(id(buffer))
    pending, nbytes, has_carriage_return = _take(obj, fd, ahead or read_at(original, end, 3), encoding)
    errors, newline = obj.errors or "strict", newline_of(obj)
    end += nbytes
    window = min(end, len(pending.encode(encoding, errors)) + pending.count("\n") + 4)
    before = read_at(original, end - window, window)
    start = start_of(pending, before, encoding, errors, newline) if len(before) == window else None
    if position is None and start is not None:
        return end - window + start, None
    if position is not None:
        data = read_at(original, position, end - position)
        if start is not None or _text_of(data, obj.encoding, errors, newline) == pending:
            return position, None
    text = pending[: len(pending) - bool(has_carriage_return)]
    again = f"a{text}".encode(obj.encoding, errors).decode(obj.encoding, errors)
    if has_carriage_return is None or again != f"a{text}":
        raise PicklingError("the file has changed, and the text that was read ahead of it cannot be saved")
    positions.at[id(buffer)] = end
    if ahead:
        positions.ahead[id(buffer)] = ahead[nbytes:]
    return None, (text, has_carriage_return)


def _take(obj: io.TextIOWrapper, fd: int, following: bytes, encoding: str) -> tuple[str, int, bool | None]:
    """Take out of a reader over a file what it has read ahead, which uses it up. ``following``: at least three bytes behind
    that, if there are any. Also: how many of these belong to a character that its decoder had begun; does that hold a
    carriage return, which may begin an end of line (None: this cannot be told)?
    """
    incomplete = following[: length_of_rest(following[:3], encoding)]
    seen = _ends_of_lines(obj)
    keep = os.dup(fd)
    with memory_file(b"") as empty, memory_file(incomplete) as tail:
        os.dup2(empty, fd, inheritable=False)
        obj.buffer.read()  # drops what the buffer has read ahead
        os.dup2(tail, fd, inheritable=False)
        pending = obj.read()
    os.dup2(keep, fd, inheritable=False)
    os.close(keep)
    holds = "\r" in _ends_of_lines(obj) and "\r" not in seen
    is_unclear = "\r" in seen and pending.endswith(("\r", "\n"))
    return pending, len(incomplete), None if is_unclear or (holds and incomplete) else holds


def _ends_of_lines(obj: io.TextIOWrapper) -> set[str]:
    """Those that the layer's decoder has seen so far."""
    kinds: Any = obj.newlines
    return set(kinds if isinstance(kinds, tuple) else () if kinds is None else (kinds,))


def _text_of(data: bytes, encoding: str, errors: str, newline: str | None) -> str | None:
    """The text that a layer reads where these bytes are all that is left; None: they are no text in this encoding."""
    try:
        text = data.decode(encoding, errors)
    except UnicodeDecodeError:
        return None
    return text.replace("\r\n", "\n").replace("\r", "\n") if newline is None else text


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

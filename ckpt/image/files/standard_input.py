"""Standard input that is a file: the position up to which the program has read.

``ckpt run APP.PY < FILE`` gives rank 0 the file itself (:mod:`ckpt.rank.boot`); a restart opens the file again. One that has
lost its name is in the image, like what the program has put there (:func:`.descriptors.redirected`). The saved
position is that of the next character that the program will see, not the offset of the descriptor, which is behind the bytes
read ahead. ``sys.stdin`` is asked for it. In a ``for`` loop it does not tell it: its remaining text is taken out of it then,
and the place in the file where this text begins is searched for. A program that reads descriptor 0 without ``sys.stdin``
goes on at the same position.
"""

from __future__ import annotations

import io
import os
import sys
from pickle import PicklingError
from typing import Any

from ckpt.errors import IncompatibleImage
from ckpt.image.files.file_notes import FileNote
from ckpt.image.files.file_positions import Positions, memory_file, read_at
from ckpt.image.files.text_files import is_in_a_loop, newline_of
from ckpt.image.files.text_states import length_of_rest, search_encoding, start_of

__all__ = ["go_on_reading", "note_position"]

_OFFSET = (
    1 << 64
) - 1  # a text file's `tell` returns the byte position in the low 64 bits, and the decoder's state above


def note_position(notes: dict[int, FileNote], *, is_disposable: bool) -> int | None:
    """In the child: the position as :meth:`io.TextIOWrapper.seek` takes it; ``None`` if standard input is no regular file.

    ``is_disposable``: this process is a forked child. Raises PicklingError: the position cannot be found.
    """
    note, stream = notes.get(0), sys.__stdin__
    if (
        note is None
        or note.kind not in ("file", "deleted")
        or not isinstance(stream, io.TextIOWrapper)
        or stream.closed
    ):
        return None
    positions = Positions(notes, is_disposable=is_disposable)
    positions.open(stream.fileno())
    if not is_in_a_loop(stream):
        return stream.tell() if stream.seekable() else None
    encoding = search_encoding(stream.encoding)
    if not is_disposable or encoding is None:
        raise PicklingError(
            f"a for loop over standard input in encoding {stream.encoding!r} needs fork, and utf-8"
        )
    return _place_of_text(stream, positions, encoding)


def go_on_reading(position: int | None, *, is_saved: bool = False) -> None:
    """Seek standard input to the saved position. Raises :class:`IncompatibleImage`: the file is gone, or is shorter than
    what the program had read. ``is_saved``: the image has the file itself, and it is open.

    The error is not RestoreError, because the image is not at fault: an older image would fail in the same way, and a
    program that starts from the beginning would find no input, or another.
    """
    stream = sys.__stdin__
    if position is None or not isinstance(stream, io.TextIOWrapper):
        return
    if is_saved:
        raw: Any = getattr(stream.buffer, "raw", None)
        if isinstance(raw, io.FileIO) and hasattr(raw, "reason"):
            raw.reason = ""  # that its path cannot be opened does not matter
        elif not stream.seekable():
            # Nothing can be put there any more; reading raises NoInput, which says why
            return
    if not stream.seekable():
        reason = getattr(stream.buffer.raw, "reason", "standard input is no longer a file")  # type: ignore[attr-defined]
        raise IncompatibleImage(reason)
    length, needed = os.fstat(0).st_size, position & _OFFSET
    if length < needed:
        raise IncompatibleImage(
            f"standard input ({os.readlink('/proc/self/fd/0')}) is no longer the file that the program was reading: it has "
            f"{length} bytes, {needed} had been read. Put back what it had, and start the job again"
        )
    stream.seek(position)


def _place_of_text(
    obj: io.TextIOWrapper,
    positions: Positions,
    encoding: str,
) -> int:
    """The offset at which the file has what the layer, in a ``for`` loop, has read ahead. Raises PicklingError."""
    buffer: Any = obj.buffer
    fd = obj.fileno()
    original = positions.opened[fd].original
    end: int = buffer.tell()  # the text layer has taken the bytes before this position
    pending, nbytes = _take(obj, fd, read_at(original, end, 3), encoding)
    end += nbytes
    window = min(end, len(pending.encode(encoding, obj.errors or "strict")) + pending.count("\n") + 4)
    before = read_at(original, end - window, window)
    start = start_of(pending, before, encoding, obj.errors or "strict", newline_of(obj, positions))
    if start is None:
        raise PicklingError("the position in a text file cannot be worked out")
    return end - window + start


def _take(obj: io.TextIOWrapper, fd: int, following: bytes, encoding: str) -> tuple[str, int]:
    """Take out of a reader over a file what it has read ahead, which uses it up. ``following``: at least three bytes behind
    that, if there are any. Also: how many of these belong to a character that its decoder had begun.
    """
    incomplete = following[: length_of_rest(following[:3], encoding)]
    keep = os.dup(fd)
    with memory_file(b"") as empty, memory_file(incomplete) as tail:
        os.dup2(empty, fd, inheritable=False)
        obj.buffer.read()  # drops what the buffer has read ahead
        os.dup2(tail, fd, inheritable=False)
        pending = obj.read()
    os.dup2(keep, fd, inheritable=False)
    os.close(keep)
    return pending, len(incomplete)

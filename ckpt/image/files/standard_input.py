"""Standard input that is a file: how far the program has read.

``ckpt run APP.PY < FILE`` gives rank 0 the file itself (:mod:`ckpt.rank.boot`), opened again at a restart. The position is
that of the next character which the program will see, not of what was read ahead; ``sys.stdin`` is asked for it as all text
files are (:mod:`ckpt.image.files.text_files`). A program that reads descriptor 0 past ``sys.stdin`` goes on at the same
place.
"""

from __future__ import annotations

import io
import os
import sys

from ckpt.errors import IncompatibleImage
from ckpt.image.files.file_notes import FileNote
from ckpt.image.files.file_positions import Positions
from ckpt.image.files.text_files import TextSaver

__all__ = ["go_on_reading", "note_position"]

_OFFSET = (
    1 << 64
) - 1  # of what a text file's `tell` returns, the bytes; above it is the state of its decoder


def note_position(notes: dict[int, FileNote], *, is_disposable: bool) -> int | None:
    """In the child: what :meth:`io.TextIOWrapper.seek` takes; ``None`` where standard input is no file."""
    note, stream = notes.get(0), sys.__stdin__
    if note is None or note.kind != "file" or not isinstance(stream, io.TextIOWrapper) or stream.closed:
        return None
    return TextSaver(Positions(notes, is_disposable=is_disposable)).position(stream)


def go_on_reading(position: int | None) -> None:
    """Raises :class:`IncompatibleImage` when the file is no longer there, or is shorter than what had been read.

    Not the image is at fault: no older one would do, and a program that starts over would find no input, or another one.
    """
    stream = sys.__stdin__
    if position is None or not isinstance(stream, io.TextIOWrapper):
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

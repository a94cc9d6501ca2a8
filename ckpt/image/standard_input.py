"""Standard input that is a file: how far the program has read.

``ckpt run APP.PY < FILE`` gives rank 0 the file itself (:mod:`ckpt.boot`), opened again at a restart. The position is
that of the next character which the program will see, not of what was read ahead; ``sys.stdin`` is asked for it as all text
files are (:mod:`ckpt.image.text_files`). A program that reads descriptor 0 past ``sys.stdin`` goes on at the same place.
"""

from __future__ import annotations

import io
import os
import sys

from ckpt.image.errors import RestoreError
from ckpt.image.file_notes import FileNote
from ckpt.image.file_positions import Positions
from ckpt.image.text_files import TextSaver

__all__ = ["go_on_reading", "note_position"]


def note_position(notes: dict[int, FileNote], *, is_disposable: bool) -> int | None:
    """In the child: what :meth:`io.TextIOWrapper.seek` takes; ``None`` where standard input is no file."""
    note, stream = notes.get(0), sys.__stdin__
    if note is None or note.kind != "file" or not isinstance(stream, io.TextIOWrapper) or stream.closed:
        return None
    return TextSaver(Positions(notes, is_disposable=is_disposable)).position(stream)


def go_on_reading(position: int | None) -> None:
    """Raises :class:`RestoreError` when the file is no longer there, or is shorter than what had been read."""
    stream = sys.__stdin__
    if position is None or not isinstance(stream, io.TextIOWrapper):
        return
    path, length = os.readlink("/proc/self/fd/0"), os.fstat(0).st_size
    if not stream.seekable() or length < position & ((1 << 64) - 1):
        raise RestoreError(f"standard input ({path}) is no longer the file that the program was reading")
    stream.seek(position)

"""Standard input that is a file: the position up to which the program has read.

``ckpt run APP.PY < FILE`` gives rank 0 the file itself (:mod:`ckpt.rank.boot`); a restart opens the file again. One that has
lost its name is in the image, like what the program has put there (:func:`.descriptors.redirected`). The saved
position is that of the next character that the program will see, not the offset of the descriptor, which is behind the bytes
read ahead. ``sys.stdin`` is asked for the position like every text file (:mod:`ckpt.image.files.text_files`). A program that
reads descriptor 0 without ``sys.stdin`` goes on at the same position.
"""

from __future__ import annotations

import io
import os
import sys
from typing import Any

from ckpt.errors import IncompatibleImage
from ckpt.image.files.file_notes import FileNote
from ckpt.image.files.file_positions import Positions
from ckpt.image.files.text_files import TextSaver

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
    return TextSaver(Positions(notes, is_disposable=is_disposable)).position(stream)


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
